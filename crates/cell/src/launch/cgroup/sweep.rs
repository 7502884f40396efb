//! Removes what dead supervisors left, should their janitors have died as well.

use std::ffi::CStr;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant, UNIX_EPOCH};

use nix::dir;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{Mode, fstatat};

use super::dir::Dir;
use super::dispose::dispose;
use super::lock::claim;
use super::{LEAF, PREFIX};

/// How long one sweep may take, and how many cells it looks at.
const PATIENCE: Duration = Duration::from_millis(200);
const MOST: usize = 1000;

/// A directory that is younger is left alone: its supervisor may be about to lock
/// it, and would have to make it again. In seconds, as file times may be coarse.
const GRACE: u64 = 2;

/// Removes stale cells' cgroups in `parent`, and says how many. A cell is stale
/// when its lock can be had, for its supervisor holds that as long as it lives.
pub(super) fn sweep(parent: &Dir) -> usize {
    let end = Instant::now() + PATIENCE;
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let Ok(mut entries) = dir::Dir::openat(parent, c".", flags, Mode::empty()) else {
        return 0;
    };
    entries
        .iter()
        .filter_map(Result::ok)
        .filter(|entry| is_cell(entry.file_name()))
        .take(MOST)
        .take_while(|_| Instant::now() < end)
        .filter(|entry| !is_young(parent, entry.file_name()))
        .filter(|entry| remove_stale(parent, entry.file_name(), end))
        .count()
}

fn is_cell(name: &CStr) -> bool {
    let name = name.to_bytes();
    name.starts_with(PREFIX.as_bytes()) && name != LEAF.as_bytes()
}

fn is_young(parent: &Dir, name: &CStr) -> bool {
    let Ok(status) = fstatat(parent, name, AtFlags::AT_SYMLINK_NOFOLLOW) else {
        return true;
    };
    let made = UNIX_EPOCH + Duration::from_secs(status.st_mtime.try_into().unwrap_or(0));
    // An error is a time in the future.
    made.elapsed().is_ok_and(|age| age.as_secs() < GRACE)
}

/// Removes the cell `name` if it is stale, and says whether it did.
fn remove_stale(parent: &Dir, name: &CStr, end: Instant) -> bool {
    let Ok(text) = name.to_str() else {
        return false;
    };
    // The lock is held until the cell is gone.
    let Ok(Some(_claimed)) = claim(parent, text) else {
        return false;
    };
    let patience = end.saturating_duration_since(Instant::now());
    dispose(parent.as_fd(), name, patience).is_ok()
}
