//! The system calls that nix lacks, as safe functions on owned descriptors.
//!
//! All `unsafe` of the supervisor's side is here. Every function returns the
//! kernel's error number; naming step and operand is the caller's business.

// Nothing that input, the kernel or a cell can influence may end in a panic.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[cfg(debug_assertions)]
pub mod alone;
mod bare;
pub mod beneath;
pub mod buffer;
pub mod cgroup;
pub mod clone;
pub mod destination;
pub mod double_fork;
pub mod environment;
pub mod identity;
pub mod inherited;
pub mod landlock;
pub mod listing;
mod lock;
pub mod memory;
mod memory_file;
pub mod mount;
pub mod nested;
pub mod net;
pub mod other;
pub mod process;
pub mod random;
pub mod route;
pub mod seccomp;
pub mod shared;
#[cfg(test)]
#[path = "../../../tests/support/skip.rs"]
mod skip;
pub mod streams;
pub mod survivor;
pub mod sysinfo;
pub mod terminal;
pub mod text;
pub mod trace;
pub mod tree;
pub mod trial;
pub mod watched;
pub mod xattr;

pub use lock::{flock, flock_within};
pub use memory_file::memory_file;

use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};

use nix::errno::Errno;

/// Runs a raw system call and turns `-1` into the error number. Arguments that are
/// left out are 0.
///
/// # Safety
/// The arguments must be what the system call with this number expects, and
/// any pointer among them valid for as long as the kernel uses it.
unsafe fn syscall<const N: usize>(number: libc::c_long, args: [usize; N]) -> Result<usize, Errno> {
    let argument = |index: usize| args.get(index).copied().unwrap_or(0);
    let [a, b, c, d, e] = [0, 1, 2, 3, 4].map(argument);
    // SAFETY: the caller vouches for number and arguments.
    let result = unsafe { libc::syscall(number, a, b, c, d, e) };
    Errno::result(result).map(|value| value as usize)
}

/// Runs a system call that returns a new descriptor.
///
/// # Safety
/// As for [`syscall`]; the call's result must be a descriptor.
unsafe fn syscall_fd<const N: usize>(
    number: libc::c_long,
    args: [usize; N],
) -> Result<OwnedFd, Errno> {
    // SAFETY: the caller vouches for number and arguments.
    let fd = unsafe { syscall(number, args) }?;
    // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}
