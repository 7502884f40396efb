//! The one question about Landlock that the landlock crate keeps to itself.

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
