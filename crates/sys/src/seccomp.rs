//! Loading system call filters, and answering the calls that they report (seccomp(2)).

use std::fs::File;
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::unistd::Pid;

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

/// A system call whose caller waits for the answer.
pub struct Waiting<'l> {
    listener: BorrowedFd<'l>,
    notification: libc::seccomp_notif,
}

impl<'l> Waiting<'l> {
    /// Receives the next call that waits. Blocks until there is one.
    ///
    /// # Errors
    /// ENOENT when the calling process has ended meanwhile.
    pub fn next(listener: BorrowedFd<'l>) -> Result<Self, Errno> {
        // SAFETY: seccomp_notif is plain data for which all zeroes is valid.
        let mut notification: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        let receive = libc::SECCOMP_IOCTL_NOTIF_RECV;
        // SAFETY: it fills a seccomp_notif, which must be zeroed before.
        let received = unsafe { libc::ioctl(listener.as_raw_fd(), receive, &raw mut notification) };
        Errno::result(received).map(|_| Self {
            listener,
            notification,
        })
    }

    /// The number of the system call.
    pub fn number(&self) -> i64 {
        i64::from(self.notification.data.nr)
    }

    /// The argument with this index, as it is in the caller's register.
    pub fn argument(&self, index: usize) -> u64 {
        self.notification.data.args.get(index).copied().unwrap_or(0)
    }

    /// The thread that called, as this process sees it.
    pub const fn thread(&self) -> Pid {
        Pid::from_raw(self.notification.pid.cast_signed())
    }

    /// Writes `bytes` to where the argument with this index points, in the memory of the
    /// caller. What the argument points to is never read: the program could change it.
    ///
    /// `/proc/PID/mem` stays the memory of the process that it was opened for. The call
    /// still waits once it is open, so that process is the caller, and not another one that
    /// has the same number since. Other threads of the caller can map something else at the
    /// address meanwhile, and harm nothing but their own memory. As for a
    /// debugger, the kernel writes to private pages whose protection forbids it as well.
    ///
    /// # Errors
    /// EFAULT when the caller cannot be written to at that address; otherwise the error
    /// number of open(2), for a caller whose memory is out of reach.
    pub fn write(&self, index: usize, bytes: &[u8]) -> Result<(), Errno> {
        let errno =
            |error: std::io::Error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
        let path = format!("/proc/{}/mem", self.notification.pid);
        let memory = File::options().write(true).open(path).map_err(errno)?;
        self.still_waits()?;
        (memory.write_all_at(bytes, self.argument(index))).map_err(|_| Errno::EFAULT)
    }

    /// Whether the caller waits.
    ///
    /// # Errors
    /// ENOENT when it does not: it was killed, or a signal has interrupted the call, which is then
    /// made anew.
    pub fn still_waits(&self) -> Result<(), Errno> {
        let valid = libc::SECCOMP_IOCTL_NOTIF_ID_VALID;
        let id = &raw const self.notification.id;
        // SAFETY: it reads the 64 bits of an id.
        let is_valid = unsafe { libc::ioctl(self.listener.as_raw_fd(), valid, id) };
        Errno::result(is_valid).map(drop)
    }

    /// Makes the call return 0, or this error number.
    ///
    /// # Errors
    /// Those of ioctl(2). A caller that was killed while it waited is not one.
    pub fn answer(self, result: Result<(), Errno>) -> Result<(), Errno> {
        let error = result.err().map_or(0, |errno| -(errno as i32));
        send(self.listener, self.notification.id, error, 0)
    }

    /// Lets the call happen as it was made (Linux 5.5). It happens with the arguments of this
    /// notification: they are in the caller's registers, which nobody can change from here on.
    /// What they point to can change.
    ///
    /// A debugger changes registers only while the caller is stopped for it. The kernel stops a
    /// caller at the entry of a call before it asks the filter, and asks the filter again where
    /// the filter itself has stopped it (`SECCOMP_RET_TRACE`, Linux 4.8). A signal that
    /// interrupts a caller that waits here ends the wait, and the call is made anew.
    ///
    /// # Errors
    /// Those of ioctl(2). A caller that was killed while it waited is not one.
    pub fn go_on(self) -> Result<(), Errno> {
        send(self.listener, self.notification.id, 0, GO_ON)
    }

    /// The same call, to be answered later.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn to_deferred(&self) -> Result<Deferred, Errno> {
        let listener = self.listener.try_clone_to_owned();
        let errno = |error: std::io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(0));
        Ok(Deferred {
            listener: listener.map_err(errno)?,
            notification: self.notification,
        })
    }
}

/// A call that is to be answered later. Without an answer it waits for as long as the listener
/// is open.
#[derive(Debug)]
pub struct Deferred {
    listener: OwnedFd,
    notification: libc::seccomp_notif,
}

impl Deferred {
    /// The call.
    pub fn waiting(&self) -> Waiting<'_> {
        Waiting {
            listener: self.listener.as_fd(),
            notification: self.notification,
        }
    }
}

/// `SECCOMP_USER_NOTIF_FLAG_CONTINUE`
const GO_ON: u32 = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;

fn send(listener: BorrowedFd<'_>, id: u64, error: i32, flags: u32) -> Result<(), Errno> {
    let mut response = libc::seccomp_notif_resp {
        id,
        val: 0,
        error,
        flags,
    };
    let send = libc::SECCOMP_IOCTL_NOTIF_SEND;
    // SAFETY: it reads a seccomp_notif_resp.
    let sent = unsafe { libc::ioctl(listener.as_raw_fd(), send, &raw mut response) };
    match Errno::result(sent) {
        Ok(_) | Err(Errno::ENOENT) => Ok(()),
        Err(error) => Err(error),
    }
}
