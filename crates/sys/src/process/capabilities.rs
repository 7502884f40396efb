//! Capabilities, and what uid 0 means for them (capabilities(7)).

use nix::errno::Errno;

/// Drops every capability that this kernel knows from the bounding set of this
/// thread (capabilities(7)).
///
/// # Errors
/// The error number of prctl(2); EPERM without CAP_SETPCAP.
pub fn empty_bounding_set() -> Result<(), Errno> {
    for capability in 0..64 {
        // SAFETY: no pointers.
        let dropped = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
        match Errno::result(dropped) {
            Ok(_) => {}
            // All capabilities of this kernel come before this number.
            Err(Errno::EINVAL) if capability > 0 => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Takes from uid 0 what it means for capabilities, for good: programs that it executes get
/// none, and a change of ids gives and takes none (capabilities(7), `securebits`).
///
/// # Errors
/// The error number of prctl(2); EPERM without CAP_SETPCAP.
pub fn lock_securebits() -> Result<(), Errno> {
    // SAFETY: no pointers.
    Errno::result(unsafe { libc::prctl(libc::PR_SET_SECUREBITS, LOCKED_SECUREBITS, 0, 0, 0) })
        .map(drop)
}

/// The `securebits` of [`lock_securebits`], with their locks. What a program keeps over a
/// change of ids is left to it: it has nothing to keep.
pub const LOCKED_SECUREBITS: libc::c_int = libc::SECBIT_NOROOT
    | libc::SECBIT_NOROOT_LOCKED
    | libc::SECBIT_NO_SETUID_FIXUP
    | libc::SECBIT_NO_SETUID_FIXUP_LOCKED
    | libc::SECBIT_NO_CAP_AMBIENT_RAISE
    | libc::SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;

/// `_LINUX_CAPABILITY_VERSION_3` (Linux 2.6.26), and this thread.
const HEADER: [u32; 2] = [0x2008_0522, 0];

/// Empties the effective, permitted and inheritable sets of the calling thread at
/// once (capset(2)).
///
/// # Errors
/// The call's error number.
pub fn empty_capability_sets() -> Result<(), Errno> {
    const EMPTY: [[u32; 3]; 2] = [[0; 3]; 2];
    let args = [HEADER.as_ptr() as usize, EMPTY.as_ptr() as usize];
    // SAFETY: header and sets have the layout of that version, which reads two
    // triples of 32-bit masks.
    unsafe { crate::syscall(libc::SYS_capset, args) }.map(drop)
}

/// The highest number of a capability that this kernel knows.
pub fn last_capability() -> u32 {
    // SAFETY: no pointers.
    let knows = |number: &u32| unsafe { libc::prctl(libc::PR_CAPBSET_READ, *number, 0, 0, 0) } >= 0;
    (0..64).take_while(knows).last().unwrap_or(0)
}

/// Keeps one capability and drops all others, for this thread and for programs that it
/// executes without more privileges (capabilities(7), ambient set).
///
/// # Errors
/// The error number of prctl(2) or capset(2); EPERM where this thread lacks it.
pub fn keep_only_capability(kept: u32) -> Result<(), Errno> {
    for capability in (0..64).filter(|capability| *capability != kept) {
        // SAFETY: no pointers.
        let dropped = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
        match Errno::result(dropped) {
            Ok(_) => {}
            // All capabilities of this kernel come before this number.
            Err(Errno::EINVAL) if capability > 0 => break,
            Err(errno) => return Err(errno),
        }
    }
    let mut sets = [[0_u32; 3]; 2];
    sets[kept as usize / 32] = [1 << (kept % 32); 3];
    let args = [HEADER.as_ptr() as usize, sets.as_ptr() as usize];
    // SAFETY: header and sets have the layout of that version, which reads two
    // triples of 32-bit masks.
    unsafe { crate::syscall(libc::SYS_capset, args) }?;
    let raise = libc::PR_CAP_AMBIENT_RAISE;
    // SAFETY: no pointers.
    Errno::result(unsafe { libc::prctl(libc::PR_CAP_AMBIENT, raise, kept, 0, 0) }).map(drop)
}
