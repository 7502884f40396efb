//! Loading system call filters, and answering the calls that they deny (seccomp(2)).

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;

/// One instruction of a filter: `struct sock_filter`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Operation.
    pub code: u16,
    /// Instructions to skip if true.
    pub jt: u8,
    /// Instructions to skip if false.
    pub jf: u8,
    /// Operand.
    pub k: u32,
}

#[repr(C)]
struct Program {
    length: u16,
    instructions: *const Instruction,
}

const SET_MODE_FILTER: usize = 1;
const NEW_LISTENER: usize = 1 << 3;

fn load(filter: &[Instruction], flags: usize) -> Result<usize, Errno> {
    let length = u16::try_from(filter.len()).map_err(|_| Errno::EINVAL)?;
    let program = Program {
        length,
        instructions: filter.as_ptr(),
    };
    // SAFETY: `program` describes `filter`, which outlives the call; the kernel
    // verifies and copies it.
    unsafe {
        super::syscall(
            libc::SYS_seccomp,
            [SET_MODE_FILTER, flags, &raw const program as usize],
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
    let fd = load(filter, NEW_LISTENER)?;
    // SAFETY: just returned by the kernel; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

#[repr(C)]
#[derive(Default)]
struct Notification {
    id: u64,
    pid: u32,
    flags: u32,
    nr: i32,
    arch: u32,
    instruction_pointer: u64,
    args: [u64; 6],
}

#[repr(C)]
struct Response {
    id: u64,
    val: i64,
    error: i32,
    flags: u32,
}

const fn iowr(number: u32, size: usize) -> u32 {
    (3 << 30) | ((size as u32) << 16) | ((b'!' as u32) << 8) | number
}

const NOTIF_RECV: u32 = iowr(0, size_of::<Notification>());
const NOTIF_SEND: u32 = iowr(1, size_of::<Response>());

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
    let mut notification = Notification::default();
    // SAFETY: NOTIF_RECV fills a seccomp_notif, which must be zeroed before.
    Errno::result(unsafe {
        libc::ioctl(listener.as_raw_fd(), NOTIF_RECV as _, &raw mut notification)
    })?;
    let number = i64::from(notification.nr);
    let mut response = Response {
        id: notification.id,
        val: 0,
        error: -(errno_of(number) as i32),
        flags: 0,
    };
    // SAFETY: NOTIF_SEND reads a seccomp_notif_resp.
    let sent = Errno::result(unsafe {
        libc::ioctl(listener.as_raw_fd(), NOTIF_SEND as _, &raw mut response)
    });
    match sent {
        // The caller was killed while it waited; it was denied all the same.
        Ok(_) | Err(Errno::ENOENT) => Ok(number),
        Err(error) => Err(error),
    }
}
