//! Walks a tree on descriptors, never following a link.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat};
use nix::sys::stat::{FileStat, Mode, fstatat};

use super::shown;
use record::error::{Result, SetupError, Step};

/// Directories inside each other; each is held open while the walk is below it.
const DEEPEST: usize = 200;

/// The kernel takes no longer path (PATH_MAX), so what has one could never be
/// opened by it.
const LONGEST_PATH: usize = 4095;

/// One thing in a tree.
pub struct Entry<'a> {
    /// The directory that it is in.
    pub dir: BorrowedFd<'a>,
    /// Its name there.
    pub name: &'a CStr,
    /// Its path relative to the tree.
    pub path: &'a [u8],
    /// What it is; of a link, the link itself.
    pub stat: FileStat,
}

/// Opens the top of a tree. `step` is what fails if that does.
///
/// # Errors
/// The error of open(2).
pub fn open_top(directory: &Path, step: Step) -> Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    openat(AT_FDCWD, directory, flags, Mode::empty())
        .map_err(|e| SetupError::os(step, "open", e).on(directory.display()))
}

/// Shows `visit` everything below `top`, directories before what is in them; it
/// says whether to go on into one.
///
/// # Errors
/// Those of `visit`, and what cannot be read, by its path.
pub fn each(
    top: &OwnedFd,
    step: Step,
    visit: &mut dyn FnMut(&Entry<'_>) -> Result<bool>,
) -> Result<()> {
    below(top.as_fd(), c".", &mut Vec::new(), 0, step, visit)
}

fn below(
    parent: BorrowedFd<'_>,
    name: &CStr,
    path: &mut Vec<u8>,
    depth: usize,
    step: Step,
    visit: &mut dyn FnMut(&Entry<'_>) -> Result<bool>,
) -> Result<()> {
    let failed =
        |call: &str, errno: Errno, path: &[u8]| SetupError::os(step, call, errno).on(shown(path));
    if depth > DEEPEST {
        return Err(SetupError::new(
            step,
            format!("there are more than {DEEPEST} directories inside each other"),
        )
        .on(shown(path)));
    }
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut dir = openat(parent, name, flags, Mode::empty())
        .and_then(Dir::from_fd)
        .map_err(|e| failed("open", e, path))?;
    let mut names = Vec::new();
    for entry in dir.iter() {
        let entry = entry.map_err(|e| failed("readdir", e, path))?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_owned());
        }
    }
    for name in names {
        let length = path.len();
        if length > 0 {
            path.push(b'/');
        }
        path.extend(name.as_bytes());
        if path.len() > LONGEST_PATH {
            return Err(failed("open", Errno::ENAMETOOLONG, path));
        }
        let stat = fstatat(&dir, name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW)
            .map_err(|e| failed("stat", e, path))?;
        let enter = visit(&Entry {
            dir: dir.as_fd(),
            name: &name,
            path,
            stat,
        })?;
        if enter && stat.st_mode & libc::S_IFMT == libc::S_IFDIR {
            below(dir.as_fd(), &name, path, depth + 1, step, visit)?;
        }
        path.truncate(length);
    }
    Ok(())
}
