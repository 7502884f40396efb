//! What cgroups need beyond nix.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

use nix::errno::Errno;
use nix::sched::CloneFlags;
use nix::sys::wait::{Id, WaitPidFlag, waitid};

use super::clone::{Fork, fork_into};

/// Whether the extended attribute `name` of `file` is `1` (getxattr(2)).
///
/// # Errors
/// The system call's, but for a missing attribute.
pub fn attribute_is_one(file: BorrowedFd<'_>, name: &CStr) -> io::Result<bool> {
    let mut value = [0_u8; 8];
    // SAFETY: `name` ends with a NUL byte, and the kernel writes at most
    // `value.len()` bytes to `value`, which lives through the call.
    let length = unsafe {
        libc::fgetxattr(
            file.as_raw_fd(),
            name.as_ptr(),
            value.as_mut_ptr().cast(),
            value.len(),
        )
    };
    if let Ok(length) = usize::try_from(length) {
        return Ok(&value[..length] == b"1");
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        // Missing, not supported here, or longer than "1".
        Some(libc::ENODATA | libc::ENOTSUP | libc::ERANGE) => Ok(false),
        _ => Err(error),
    }
}

/// Runs `work` with `data` in a copy of this process that is no child of it and has no other
/// descriptor than `keep`; `work` gets what closing the others returned. The copy ends after
/// `work`, without running any destructors of this process.
///
/// # Errors
/// `EDEADLK` when this process has more than one thread: in the copy, locks that
/// the others hold would stay locked for ever. Otherwise those of clone3(2) and
/// waitid(2).
pub fn spawn_detached<T: Copy + 'static>(
    data: T,
    keep: OwnedFd,
    work: fn(T, OwnedFd, Result<(), Errno>),
) -> Result<(), Errno> {
    let child = fork_to(|| {
        i32::from(
            fork_to(|| {
                // SAFETY: this copy goes from here to its end without running any destructors of
                // the process that it is a copy of, and a function with these arguments uses no
                // other descriptor that it did not open itself.
                let closed = unsafe { crate::process::close_all_but(keep.as_fd()) };
                work(data, keep, closed);
                0
            })
            .is_err(),
        )
    })?;
    // It ends at once, and with that the copy is no descendant of this process.
    while waitid(Id::PIDFd(child.as_fd()), WaitPidFlag::WEXITED) == Err(Errno::EINTR) {}
    Ok(())
}

/// Runs `work` in a copy of this process, which ends with its result as the status.
fn fork_to(work: impl FnOnce() -> i32) -> Result<OwnedFd, Errno> {
    if !super::process::has_one_thread()? {
        return Err(Errno::EDEADLK);
    }
    // SAFETY: this process has one thread, as just checked.
    match unsafe { fork_into(CloneFlags::empty(), None) }? {
        Fork::Parent { pidfd, .. } => Ok(pidfd),
        Fork::Child => {
            let status = catch_unwind(AssertUnwindSafe(work)).unwrap_or(101);
            // SAFETY: ends this process; nothing that it shares with its parent
            // is touched on the way.
            unsafe { libc::_exit(status) }
        }
    }
}
