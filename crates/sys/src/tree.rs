//! Directory trees with any content: how to walk and how to remove them.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{FchmodatFlags, FileStat, Mode, SFlag, fchmodat, fstatat, futimens};
use nix::sys::time::{TimeSpec, TimeValLike as _};
use nix::unistd::{UnlinkatFlags, unlinkat};

use crate::beneath::{Beneath, names};
use record::error::{Result, SetupError, Step};

/// Directories inside each other; each is held open while the walk is below it.
const DEEPEST: usize = 200;

/// The kernel takes no longer path (PATH_MAX), so it could not open what has one.
const LONGEST_PATH: usize = 4095;

/// The latest time that a file gets, in seconds since 1970. This is the year 2242; file
/// systems differ in how far they go.
const LATEST: i64 = 1 << 33;

/// One thing in a tree.
pub struct Entry<'a> {
    /// The directory that it is in.
    pub dir: BorrowedFd<'a>,
    /// Its name there.
    pub name: &'a CStr,
    /// Its path relative to the tree.
    pub path: &'a [u8],
    /// Its metadata, a link not followed.
    pub stat: FileStat,
}

/// Opens the top of a tree. `step` is the one that errors name.
///
/// # Errors
/// The error of open(2).
pub fn open_top(directory: &Path, step: Step) -> Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    openat(AT_FDCWD, directory, flags, Mode::empty())
        .map_err(|e| SetupError::os(step, "open", e).on(directory.display()))
}

/// Passes everything below `top` to `visit`, directories before their content. `visit`
/// returns whether to go on into a directory.
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
    let mut dir = Beneath::new(&parent)
        .list(name)
        .map_err(|e| failed("openat2", e, path))?;
    for name in names(&mut dir).map_err(|e| failed("readdir", e, path))? {
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
        if enter && kind_of(&stat) == SFlag::S_IFDIR {
            below(dir.as_fd(), &name, path, depth + 1, step, visit)?;
        }
        path.truncate(length);
    }
    Ok(())
}

/// A path below a tree, for a message; `.` for its top.
pub fn shown(path: &[u8]) -> String {
    match path {
        [] => ".".to_owned(),
        path => String::from_utf8_lossy(path).into_owned(),
    }
}

/// The kind of a file.
pub fn kind_of(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}

/// Sets the mode of a file that is open by `O_PATH`, which fchmod(2) refuses. The name in
/// `/proc` does not lead through the tree again.
///
/// # Errors
/// The error number of fchmodat(2).
pub fn set_mode(file: &OwnedFd, mode: Mode) -> nix::Result<()> {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    fchmodat(AT_FDCWD, link.as_str(), mode, FchmodatFlags::FollowSymlink)
}

/// Sets the times of an open file, within the range that file systems take.
///
/// # Errors
/// The error number of futimens(3).
pub fn set_mtime(file: impl AsFd, seconds: i64) -> nix::Result<()> {
    let time = TimeSpec::seconds(seconds.clamp(0, LATEST));
    futimens(file, &time, &time)
}

/// Removes the directory `name` of `parent` with all its content, of any depth, including
/// directories that their owner may not enter. Links are not followed. It is not an error
/// if there is no such directory.
///
/// Directories found inside are moved to its top, and wait there for their turn: so no
/// path gets long, and few descriptors are open.
///
/// # Errors
/// The error number of the call that failed.
pub fn erase(parent: impl AsFd, name: &CStr) -> nix::Result<()> {
    let top = match open_writable(&parent, name) {
        Err(Errno::ENOENT) => return Ok(()),
        Err(Errno::ENOTDIR | Errno::ELOOP) => {
            return unlinkat(parent, name, UnlinkatFlags::NoRemoveDir);
        }
        other => other?,
    };
    let mut waiting = empty(&top, None)?;
    let mut moved = 0;
    while let Some(name) = waiting.pop() {
        let dir = match open_writable(&top, &name) {
            // A directory that was moved took the place of an empty one.
            Err(Errno::ENOENT) => continue,
            other => other?,
        };
        waiting.extend(empty(&dir, Some((&top, &mut moved)))?);
        unlinkat(&top, name.as_c_str(), UnlinkatFlags::RemoveDir)?;
    }
    unlinkat(parent, name, UnlinkatFlags::RemoveDir)
}

/// Unlinks everything but directories, which are moved to `to` under names from a
/// counter. Returns the directories' names.
fn empty(dir: &OwnedFd, mut to: Option<(&OwnedFd, &mut u64)>) -> nix::Result<Vec<CString>> {
    let mut directories = Vec::new();
    for name in names(&mut Beneath::new(dir).list("")?)? {
        match unlinkat(dir, name.as_c_str(), UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => continue,
            // EPERM is what POSIX has for a directory.
            Err(Errno::EISDIR | Errno::EPERM) => {}
            Err(errno) => return Err(errno),
        }
        let Some((top, moved)) = &mut to else {
            directories.push(name);
            continue;
        };
        // To leave its parent, a directory must be writable: its `..` changes.
        open_writable(dir, &name)?;
        let free = loop {
            **moved += 1;
            let free = CString::new(format!(".cellblock-{moved}")).map_err(|_| Errno::EINVAL)?;
            match renameat(dir, name.as_c_str(), *top, free.as_c_str()) {
                Ok(()) => break free,
                // The tree has something of this name.
                Err(Errno::EEXIST | Errno::ENOTEMPTY | Errno::ENOTDIR) => {}
                Err(errno) => return Err(errno),
            }
        };
        directories.push(free);
    }
    Ok(directories)
}

/// Finds a directory, and gives its owner all rights to it.
fn open_writable(parent: &impl AsFd, name: &CStr) -> nix::Result<OwnedFd> {
    let dir = Beneath::new(parent).directory(name)?;
    set_mode(&dir, Mode::S_IRWXU)?;
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn everything_goes_and_nothing_else() {
        let base = tempfile::tempdir().unwrap();
        let outside = base.path().join("outside");
        fs::write(&outside, "stays").unwrap();
        let tree = base.path().join("tree");
        fs::create_dir_all(tree.join("a/b/c")).unwrap();
        fs::create_dir(tree.join(".cellblock-1")).unwrap();
        fs::write(tree.join("a/b/c/file"), "x").unwrap();
        symlink(&outside, tree.join("a/link")).unwrap();
        symlink(base.path(), tree.join("a/b/up")).unwrap();
        let mut deep = tree.join("deep");
        for _ in 0..300 {
            fs::create_dir(&deep).unwrap();
            deep.push("d");
        }
        for path in ["a/b/c", "a/b", "a"] {
            fs::set_permissions(tree.join(path), fs::Permissions::from_mode(0o0)).unwrap();
        }
        let parent = fs::File::open(base.path()).unwrap();
        erase(&parent, c"tree").unwrap();
        erase(&parent, c"tree").unwrap();
        assert!(fs::symlink_metadata(&tree).is_err());
        assert_eq!(fs::read_to_string(&outside).unwrap(), "stays");
    }
}
