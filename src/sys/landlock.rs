//! The one question about Landlock that the landlock crate keeps to itself.

/// The Landlock ABI of the running kernel (landlock_create_ruleset(2)); 0 where
/// Landlock is missing or switched off.
pub fn abi() -> u32 {
    const VERSION: usize = 1;
    // SAFETY: with the version flag the kernel takes no pointer.
    unsafe { super::syscall(libc::SYS_landlock_create_ruleset, [0, 0, VERSION, 0, 0]) }
        .map_or(0, |abi| abi as u32)
}
