//! What cgroups need beyond nix.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// Whether the extended attribute `name` of `file` is `1` (getxattr(2)).
///
/// # Errors
/// The system call's, but for a missing attribute.
pub fn attribute_is_one(file: BorrowedFd<'_>, name: &CStr) -> io::Result<bool> {
    let mut value = [0_u8; 8];
    // SAFETY: `name` ends with a NUL byte, and the kernel writes at most
    // `value.len()` bytes to `value`, which lives through the call.
    let length = unsafe {
        libc::fgetxattr(
            file.as_raw_fd(),
            name.as_ptr(),
            value.as_mut_ptr().cast(),
            value.len(),
        )
    };
    if let Ok(length) = usize::try_from(length) {
        return Ok(&value[..length] == b"1");
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        // Missing, not supported here, or longer than "1".
        Some(libc::ENODATA | libc::ENOTSUP | libc::ERANGE) => Ok(false),
        _ => Err(error),
    }
}
