//! Files in memory (memfd_create(2)).

use std::ffi::CStr;
use std::fs::File;

use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};

use record::error::{Result, SetupError, Step};

/// MFD_NOEXEC_SEAL (Linux 6.3), without which a host may refuse.
const NOEXEC_SEAL: u32 = 0x8;

/// A new file in memory, which can be sealed and, where the kernel knows how, never
/// executed.
///
/// # Errors
/// That of memfd_create(2).
pub fn memory_file(name: &CStr) -> Result<File> {
    let usual = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let made = match memfd_create(name, usual | MFdFlags::from_bits_retain(NOEXEC_SEAL)) {
        Err(Errno::EINVAL) => memfd_create(name, usual),
        other => other,
    };
    let made = made.map_err(|e| SetupError::os(Step::Inputs, "memfd_create", e))?;
    Ok(made.into())
}
