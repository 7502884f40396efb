//! Loading system call filters, and answering the calls that they deny (seccomp(2)).

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;

/// One instruction of a filter.
pub use libc::sock_filter as Instruction;

fn load(filter: &[Instruction], flags: libc::c_ulong) -> Result<usize, Errno> {
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(|_| Errno::EINVAL)?,
        filter: filter.as_ptr().cast_mut(),
    };
    // SAFETY: `program` describes `filter`, which outlives the call; the kernel
    // verifies and copies it.
    unsafe {
        super::syscall(
            libc::SYS_seccomp,
            [
                libc::SECCOMP_SET_MODE_FILTER as usize,
                flags as usize,
                &raw const program as usize,
            ],
        )
    }
}

/// Adds `filter` to this thread's filters.
///
/// # Errors
/// The error number of seccomp(2).
pub fn install(filter: &[Instruction]) -> Result<(), Errno> {
    load(filter, 0).map(drop)
}

/// Adds `filter` and returns the descriptor on which its notifications arrive
/// (seccomp_unotify(2), Linux 5.0).
///
/// # Errors
/// The error number of seccomp(2); EBUSY when an outer sandbox already listens.
pub fn install_with_listener(filter: &[Instruction]) -> Result<OwnedFd, Errno> {
    let fd = load(filter, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER)?;
    // SAFETY: just returned by the kernel; no other value owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Takes one notification and answers it with `errno`; returns the number of
/// the system call. Pointer arguments are not looked at: the program could
/// change what they point to.
///
/// # Errors
/// ENOENT when the calling process died meanwhile, EAGAIN when no call waits.
pub fn deny_next(
    listener: BorrowedFd<'_>,
    errno_of: impl FnOnce(i64) -> Errno,
) -> Result<i64, Errno> {
    let listener = listener.as_raw_fd();
    // SAFETY: seccomp_notif is plain data for which all zeroes is valid.
    let mut notification: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    let receive = libc::SECCOMP_IOCTL_NOTIF_RECV;
    // SAFETY: it fills a seccomp_notif, which must be zeroed before.
    Errno::result(unsafe { libc::ioctl(listener, receive, &raw mut notification) })?;
    let number = i64::from(notification.data.nr);
    let mut response = libc::seccomp_notif_resp {
        id: notification.id,
        val: 0,
        error: -(errno_of(number) as i32),
        flags: 0,
    };
    let send = libc::SECCOMP_IOCTL_NOTIF_SEND;
    // SAFETY: it reads a seccomp_notif_resp.
    match Errno::result(unsafe { libc::ioctl(listener, send, &raw mut response) }) {
        // The caller was killed while it waited; it was denied all the same.
        Ok(_) | Err(Errno::ENOENT) => Ok(number),
        Err(error) => Err(error),
    }
}
