//! Removes what dead supervisors left, should their janitors have died as well.
//!
//! The holder of a directory's lock may use or remove it. The supervisor holds it
//! from the making to the removal; so a directory whose lock is free belongs to a
//! cell without a supervisor.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant, UNIX_EPOCH};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, Flock, FlockArg};
use nix::sys::stat::{fstat, fstatat};

use super::dir::Dir;
use super::removal::dispose;
use record::error::Result;

/// How long one sweep may take, and how many cells it looks at.
const PATIENCE: Duration = Duration::from_millis(200);
const MOST: usize = 1000;

/// A directory that is younger is left alone: its supervisor may be about to lock
/// it, and would have to make it again. In seconds, as file times may be coarse.
const GRACE: u64 = 2;

/// Removes stale cells' cgroups in `parent`, and returns their number.
pub(super) fn sweep(parent: &Dir) -> usize {
    let end = Instant::now() + PATIENCE;
    let cells = parent.cells();
    cells
        .iter()
        .take(MOST)
        .take_while(|_| Instant::now() < end)
        .filter(|name| !is_young(parent, name) && remove_stale(parent, name, end))
        .count()
}

fn is_young(parent: &Dir, name: &str) -> bool {
    let Ok(status) = fstatat(parent, name, AtFlags::AT_SYMLINK_NOFOLLOW) else {
        return true;
    };
    let made = UNIX_EPOCH + Duration::from_secs(status.st_mtime.try_into().unwrap_or(0));
    // An error is a time in the future.
    made.elapsed().is_ok_and(|age| age.as_secs() < GRACE)
}

/// Removes the cell `name` if it is stale, and returns whether it did.
fn remove_stale(parent: &Dir, name: &str, end: Instant) -> bool {
    // The lock is held until the cell is gone.
    let Ok(Some(_claimed)) = claim(parent, name) else {
        return false;
    };
    let patience = end.saturating_duration_since(Instant::now());
    CString::new(name).is_ok_and(|name| dispose(parent.as_fd(), &name, patience).is_ok())
}

/// A directory and its lock.
pub(super) type Claimed = (Dir, Flock<File>);

/// Locks the directory `name` in `parent`; `None` when another process has its lock,
/// or it is gone.
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
/// is looked up again under the lock: what the name leads to then stays.
fn lock(parent: &Dir, name: &str, dir: Dir) -> Result<Option<Claimed>> {
    let copy = dir.try_clone()?.into_file();
    let Ok(lock) = sys::flock(copy, FlockArg::LockExclusiveNonblock) else {
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
    fn a_lock_is_exclusive() {
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
    fn a_directory_that_is_opened_again_is_not_the_one_that_is_locked() {
        let place = tempfile::tempdir().unwrap();
        let parent = Dir::anywhere(place.path());
        fs::create_dir(place.path().join("cell")).unwrap();
        let (dir, _lock) = claim(&parent, "cell").unwrap().unwrap();
        let again = dir.reopen().unwrap();
        assert_eq!(again.path(), dir.path());
        assert!(lock(&parent, "cell", again).unwrap().is_none());
    }

    #[test]
    fn the_lock_of_a_removed_directory_does_not_claim_its_successor() {
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
