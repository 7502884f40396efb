//! What a supervisor does to a process of a cell from outside.

use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::resource::Resource;
use nix::unistd::Pid;

/// The pid of a pidfd's process, as the mounted `/proc` numbers it
/// (proc_pid_fdinfo(5)).
///
/// # Errors
/// ESRCH when it has ended and was waited for, or where `/proc` does not show it.
pub fn pid_of(pidfd: &OwnedFd) -> Result<Pid, Errno> {
    let path = format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd());
    let info = std::fs::read_to_string(path)
        .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))?;
    let line = info.lines().find_map(|line| line.strip_prefix("Pid:"));
    let pid = line.and_then(|pid| pid.trim().parse().ok());
    pid.filter(|pid| *pid > 0)
        .map(Pid::from_raw)
        .ok_or(Errno::ESRCH)
}

/// A copy of another process's descriptor, close-on-exec (pidfd_getfd(2), Linux 5.6).
///
/// # Errors
/// The call's error number; EPERM without the right to trace the process.
pub fn copy_descriptor(pidfd: BorrowedFd<'_>, number: RawFd) -> Result<OwnedFd, Errno> {
    let args = [pidfd.as_raw_fd() as usize, number as usize];
    // SAFETY: no pointers; the call returns a new descriptor.
    unsafe { super::syscall_fd(libc::SYS_pidfd_getfd, args) }
}

/// A resource's soft and hard limit in another process (prlimit(2)).
///
/// # Errors
/// The call's error number.
pub fn limits_of(pid: Pid, resource: Resource) -> Result<(u64, u64), Errno> {
    let mut old = libc::rlimit64 {
        rlim_cur: 0,
        rlim_max: 0,
    };
    prlimit(pid, resource, std::ptr::null(), &raw mut old)?;
    Ok((old.rlim_cur, old.rlim_max))
}

/// Sets a resource's limits in another process (prlimit(2)).
///
/// # Errors
/// The call's error number.
pub fn set_limits_of(pid: Pid, resource: Resource, soft: u64, hard: u64) -> Result<(), Errno> {
    let new = libc::rlimit64 {
        rlim_cur: soft,
        rlim_max: hard,
    };
    prlimit(pid, resource, &raw const new, std::ptr::null_mut())
}

fn prlimit(
    pid: Pid,
    resource: Resource,
    new: *const libc::rlimit64,
    old: *mut libc::rlimit64,
) -> Result<(), Errno> {
    let args = [
        pid.as_raw() as usize,
        resource as usize,
        new as usize,
        old as usize,
    ];
    // SAFETY: each pointer is null, or points to an rlimit64 that outlives the call.
    unsafe { super::syscall(libc::SYS_prlimit64, args) }.map(drop)
}
