//! The system calls that nix lacks, as safe functions on owned descriptors.
//!
//! All `unsafe` of the supervisor's side is here. Every function returns the
//! kernel's error number; naming step and operand is the caller's business.

// Nothing that input, the kernel or a cell can influence may end in a panic.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bare;
pub mod beneath;
pub mod cgroup;
pub mod clone;
pub mod inherited;
pub mod landlock;
pub mod mount;
pub mod net;
pub mod process;
pub mod seccomp;
pub mod shared;
pub mod survivor;
pub mod text;
pub mod tree;
pub mod trial;

use nix::errno::Errno;

/// Runs a raw system call and turns `-1` into the error number.
///
/// # Safety
/// The arguments must be what the system call with this number expects, and
/// any pointer among them valid for as long as the kernel uses it.
unsafe fn syscall(number: libc::c_long, args: [usize; 5]) -> Result<usize, Errno> {
    let [a, b, c, d, e] = args;
    // SAFETY: the caller vouches for number and arguments.
    let result = unsafe { libc::syscall(number, a, b, c, d, e) };
    Errno::result(result).map(|value| value as usize)
}
