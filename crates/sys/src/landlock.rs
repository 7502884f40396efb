//! Landlock's ABI, and system calls that the landlock crate does not expose.

use std::os::fd::{AsRawFd as _, BorrowedFd};

use nix::errno::Errno;

/// The newest ABI whose rights and flags cellblock knows (Linux 7.3). Of a newer kernel it uses
/// what this one has.
pub const NEWEST_ABI: u32 = 11;

/// A flag of landlock_restrict_self(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestrictFlag {
    /// Its name in the record.
    pub name: &'static str,
    /// Its bit.
    pub bit: u32,
    /// The first ABI that has it.
    pub since: u32,
}

/// Keeps denials out of the host's audit log until the program executes another.
pub const LOG_SAME_EXEC_OFF: RestrictFlag = RestrictFlag {
    name: "log_same_exec_off",
    bit: 1,
    since: 7,
};
/// Keeps denials of domains inside this one out of the host's audit log.
pub const LOG_SUBDOMAINS_OFF: RestrictFlag = RestrictFlag {
    name: "log_subdomains_off",
    bit: 1 << 2,
    since: 7,
};
/// Restricts all threads of the process, and not only the one that makes the call.
pub const TSYNC: RestrictFlag = RestrictFlag {
    name: "tsync",
    bit: 1 << 3,
    since: 8,
};

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

/// `struct landlock_path_beneath_attr`.
#[repr(C, packed)]
struct PathBeneath {
    allowed_access: u64,
    parent_fd: i32,
}

/// Allows `access` beneath `place` (landlock_add_rule(2)). Unlike the landlock crate, it does not
/// ask once more what kind of file `place` is.
///
/// # Errors
/// The call's error number; EINVAL for rights that the ruleset does not handle, or that a file
/// which is no directory cannot have.
pub fn allow_beneath(
    ruleset: BorrowedFd<'_>,
    place: BorrowedFd<'_>,
    access: u64,
) -> Result<(), Errno> {
    const PATH_BENEATH: usize = 1;
    let rule = PathBeneath {
        allowed_access: access,
        parent_fd: place.as_raw_fd(),
    };
    let ruleset = ruleset.as_raw_fd() as usize;
    let args = [ruleset, PATH_BENEATH, &raw const rule as usize, 0];
    // SAFETY: `rule` has the layout of that kind of rule and outlives the call.
    unsafe { super::syscall(libc::SYS_landlock_add_rule, args) }.map(drop)
}

/// Applies the rules of `ruleset` to this process (landlock_restrict_self(2)), which must
/// have `no_new_privs`.
///
/// # Errors
/// The call's error number.
pub fn restrict_self(
    ruleset: BorrowedFd<'_>,
    flags: impl IntoIterator<Item = RestrictFlag>,
) -> Result<(), Errno> {
    let flags = flags.into_iter().fold(0, |bits, flag| bits | flag.bit);
    let arguments = [ruleset.as_raw_fd() as usize, flags as usize];
    // SAFETY: no pointers.
    unsafe { super::syscall(libc::SYS_landlock_restrict_self, arguments) }.map(drop)
}
