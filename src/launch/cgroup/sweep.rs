//! Removes what dead supervisors left, should their janitors have died as well.

use std::ffi::CStr;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use nix::dir;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

use super::dir::Dir;
use super::dispose::dispose;
use super::lock::claim;
use super::{LEAF, PREFIX};

/// How long one sweep may take, and how many cells it looks at.
const PATIENCE: Duration = Duration::from_millis(200);
const MOST: usize = 1000;

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
        .filter(|entry| remove_stale(parent, entry.file_name(), end))
        .count()
}

fn is_cell(name: &CStr) -> bool {
    let name = name.to_bytes();
    name.starts_with(PREFIX.as_bytes()) && name != LEAF.as_bytes()
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
