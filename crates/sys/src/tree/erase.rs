//! Removes a tree, whatever is in it.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat, renameat};
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat};
use nix::unistd::{UnlinkatFlags, unlinkat};

/// Removes the directory `name` of `parent` with everything in it; directories
/// that nobody may enter too, and without a limit on depth. Links are not
/// followed. What is gone already is no error.
///
/// Directories found inside are moved to its top, and wait there for their
/// turn: so no path gets long, and few descriptors are open.
///
/// # Errors
/// The error number of the call that failed.
pub fn erase(parent: impl AsFd, name: &CStr) -> nix::Result<()> {
    let parent = parent.as_fd();
    let top = match open(parent, name) {
        Err(Errno::ENOENT) => return Ok(()),
        Err(Errno::ENOTDIR | Errno::ELOOP) => {
            return unlinkat(parent, name, UnlinkatFlags::NoRemoveDir);
        }
        other => other?,
    };
    let mut waiting = empty(&top, None)?;
    let mut moved = 0;
    while let Some(name) = waiting.pop() {
        let dir = match open(top.as_fd(), &name) {
            // A directory that was moved took the place of an empty one.
            Err(Errno::ENOENT) => continue,
            other => other?,
        };
        for inner in empty(&dir, Some((&top, &mut moved)))? {
            waiting.push(inner);
        }
        unlinkat(&top, name.as_c_str(), UnlinkatFlags::RemoveDir)?;
    }
    unlinkat(parent, name, UnlinkatFlags::RemoveDir)
}

/// Unlinks what is not a directory; directories are moved to `to`, under names
/// from a counter. Returns the directories' names.
fn empty(dir: &OwnedFd, mut to: Option<(&OwnedFd, &mut u64)>) -> nix::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::from_fd(dir.try_clone().map_err(|_| Errno::EMFILE)?)?.iter() {
        let name = entry?.file_name().to_owned();
        if !matches!(name.as_bytes(), b"." | b"..") {
            names.push(name);
        }
    }
    let mut directories = Vec::new();
    for name in names {
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
        drop(open(dir.as_fd(), &name)?);
        let free = loop {
            **moved += 1;
            let free = CString::new(format!(".cellblock-{moved}")).map_err(|_| Errno::EINVAL)?;
            match renameat(dir, name.as_c_str(), *top, free.as_c_str()) {
                Ok(()) => break free,
                // A name of the tree's own.
                Err(Errno::EEXIST | Errno::ENOTEMPTY | Errno::ENOTDIR) => {}
                Err(errno) => return Err(errno),
            }
        };
        directories.push(free);
    }
    Ok(directories)
}

/// Opens a directory, and makes sure that its owner may do everything in it.
fn open(parent: BorrowedFd<'_>, name: &CStr) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let place = openat(parent, name, flags | OFlag::O_PATH, Mode::empty())?;
    // fchmod(2) refuses a descriptor opened with O_PATH; its name in /proc does
    // not lead through the tree again.
    let link = format!("/proc/self/fd/{}", place.as_raw_fd());
    fchmodat(
        AT_FDCWD,
        link.as_str(),
        Mode::S_IRWXU,
        FchmodatFlags::FollowSymlink,
    )?;
    openat(&place, c".", flags | OFlag::O_RDONLY, Mode::empty())
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
