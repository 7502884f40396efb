//! System calls that the landlock crate does not expose.

use std::os::fd::{AsRawFd as _, BorrowedFd};

use nix::errno::Errno;

/// The Landlock ABI of the running kernel (landlock_create_ruleset(2)); 0 where
/// Landlock is missing or switched off.
pub fn abi() -> u32 {
    query().unwrap_or(0)
}

/// The same, or why it is not there.
///
/// # Errors
/// ENOSYS where the kernel was built without Landlock or a filter hides it,
/// EOPNOTSUPP where it was switched off at boot.
pub fn query() -> Result<u32, Errno> {
    const VERSION: usize = 1;
    // SAFETY: with the version flag the kernel takes no pointer.
    unsafe { super::syscall(libc::SYS_landlock_create_ruleset, [0, 0, VERSION]) }
        .map(|abi| abi as u32)
}

/// Applies the rules of `ruleset` to this process (landlock_restrict_self(2)), which must
/// have `no_new_privs`.
///
/// # Errors
/// The call's error number.
pub fn restrict_self(ruleset: BorrowedFd<'_>) -> Result<(), Errno> {
    let arguments = [ruleset.as_raw_fd() as usize, 0];
    // SAFETY: no pointers.
    unsafe { super::syscall(libc::SYS_landlock_restrict_self, arguments) }.map(drop)
}
