//! Removes a cell's cgroup when the supervisor cannot, because it was killed.
//!
//! The janitor is a child of the supervisor, made before the cgroup is. It has
//! two descriptors: one for the supervisor, which becomes readable when that is
//! dead, and one for the cgroup's parent. (A pipe that ends with the supervisor
//! would have to rely on every other child to close its copy in time.) A
//! supervisor that has removed the cgroup itself ends the janitor and waits for
//! it, so that no caller gets a child to bury.

use std::ffi::{CStr, CString};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use nix::errno::Errno;

use super::dispose::dispose;
use sys::survivor::Survivor;

/// How long killed processes may take to be gone; nobody waits for the janitor.
const PATIENCE: Duration = Duration::from_secs(30);

/// Makes a janitor for the cgroup `name` below `parent`, which need not exist yet.
pub(super) fn hire(parent: BorrowedFd<'_>, name: CString) -> Result<Survivor, Errno> {
    Survivor::start(parent, name, clear_up)
}

fn clear_up(parent: BorrowedFd<'_>, name: &CStr) {
    // Nobody is left to hear of a failure; a sweep will try again.
    let _ = dispose(parent, name, PATIENCE);
}
