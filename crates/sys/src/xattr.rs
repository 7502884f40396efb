//! Extended attributes of open files (xattr(7)).

use std::ffi::CStr;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use nix::errno::Errno;

/// Reads an attribute; of a longer value, nothing (ERANGE).
///
/// # Errors
/// The error number of fgetxattr(2): ENODATA without the attribute.
pub fn get(fd: BorrowedFd<'_>, name: &CStr) -> Result<Vec<u8>, Errno> {
    let mut value = [0_u8; 64];
    // SAFETY: the name is a C string, and the kernel writes at most the stated size.
    let length = unsafe {
        libc::fgetxattr(
            fd.as_raw_fd(),
            name.as_ptr(),
            value.as_mut_ptr().cast(),
            value.len(),
        )
    };
    let length = Errno::result(length)?;
    Ok(value[..usize::try_from(length).unwrap_or(0)].to_vec())
}

/// Sets an attribute.
///
/// # Errors
/// The error number of fsetxattr(2).
pub fn set(fd: BorrowedFd<'_>, name: &CStr, value: &[u8]) -> Result<(), Errno> {
    // SAFETY: the name is a C string, and the value has the stated size.
    let done = unsafe {
        libc::fsetxattr(
            fd.as_raw_fd(),
            name.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            0,
        )
    };
    Errno::result(done).map(drop)
}

/// Removes an attribute.
///
/// # Errors
/// The error number of fremovexattr(2).
pub fn remove(fd: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    // SAFETY: the name is a C string.
    Errno::result(unsafe { libc::fremovexattr(fd.as_raw_fd(), name.as_ptr()) }).map(drop)
}
