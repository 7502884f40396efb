//! Who may use or remove a cell's directory: the one who holds its lock.
//!
//! The supervisor holds it from the making to the removal, whatever happens to
//! it; so a lock that can be had belongs to a cell without a supervisor.

use std::fs::File;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, Flock, FlockArg};
use nix::sys::stat::{fstat, fstatat};

use super::dir::Dir;
use record::error::{Result, SetupError, Step};

/// A directory and its lock.
pub(super) type Claimed = (Dir, Flock<File>);

/// The directory `name` in `parent`; `None` when somebody else has its lock, or
/// it is gone.
pub(super) fn claim(parent: &Dir, name: &str) -> Result<Option<Claimed>> {
    match parent.child(name) {
        Ok(dir) => lock(parent, name, dir),
        Err(error) if error.errno == Some(Errno::ENOENT as i32) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Locks `dir`, which was `name` in `parent` when it was opened.
///
/// Since then it may have been removed, and the name may lead to a new one. So it
/// is looked up again under the lock: what it leads to then, nobody else removes.
fn lock(parent: &Dir, name: &str, dir: Dir) -> Result<Option<Claimed>> {
    let copy = dir
        .file()
        .try_clone()
        .map_err(|error| SetupError::io(Step::Cgroup, "dup", &error).on(dir.path().display()))?;
    let Ok(lock) = Flock::lock(copy, FlockArg::LockExclusiveNonblock) else {
        return Ok(None);
    };
    let held = fstat(&dir).map_err(|errno| parent.error("fstat", name, errno))?;
    match fstatat(parent, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(named) if named.st_ino == held.st_ino => Ok(Some((dir, lock))),
        Ok(_) | Err(Errno::ENOENT) => Ok(None),
        Err(errno) => Err(parent.error("fstatat", name, errno)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_lock_is_had_once() {
        let place = tempfile::tempdir().unwrap();
        let parent = Dir::anywhere(place.path());
        assert!(claim(&parent, "cell").unwrap().is_none());
        fs::create_dir(place.path().join("cell")).unwrap();
        let first = claim(&parent, "cell").unwrap();
        assert!(first.is_some());
        assert!(claim(&parent, "cell").unwrap().is_none());
        drop(first);
        assert!(claim(&parent, "cell").unwrap().is_some());
    }

    #[test]
    fn the_lock_of_what_was_removed_is_no_claim_to_what_came_after() {
        let place = tempfile::tempdir().unwrap();
        let parent = Dir::anywhere(place.path());
        let path = place.path().join("cell");
        fs::create_dir(&path).unwrap();
        let stale = || parent.child("cell").unwrap();
        let (one, another) = (stale(), stale());
        fs::remove_dir(&path).unwrap();
        assert!(lock(&parent, "cell", one).unwrap().is_none());
        fs::create_dir(&path).unwrap();
        assert!(lock(&parent, "cell", another).unwrap().is_none());
        assert!(claim(&parent, "cell").unwrap().is_some());
    }
}
