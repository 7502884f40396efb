//! Making a network namespace while the caller does other things.
//!
//! A new network namespace costs more than all other namespaces of a cell
//! together, and nothing of the set-up needs it before the program starts. So a
//! process of its own makes it, at the same time as the mounts are made. It
//! shares the caller's memory and descriptors, which makes it cheap to start,
//! and therefore keeps to bare system calls and its own stack.

use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use super::bare::{bare, start};
use super::clone::clone_args;

/// Its stack; most of it is never touched.
const STACK: usize = 16 * 1024;

/// Its pid, which no process of the cell has so early, and which every pid
/// namespace allows (the least that `kernel.pid_max` takes is 301). Chosen, so
/// that the next pid after init's stays for the program.
static MAKER: libc::pid_t = 300;

/// Gives the network namespace of a socket (linux/sockios.h, Linux 4.9).
const SIOCGSKNS: usize = 0x894C;

/// A network namespace in the making.
#[derive(Debug)]
pub struct NewNetwork {
    maker: Option<Pid>,
    result: Box<Made>,
    _stack: Vec<u128>,
}

/// What the maker leaves behind: a descriptor, or the negative error number of
/// what failed.
#[derive(Debug)]
struct Made {
    unshare: AtomicI32,
    namespace: AtomicI32,
}

/// Which system call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// clone(2), of the process that makes the namespace.
    Clone(Errno),
    /// unshare(2).
    Unshare(Errno),
    /// socket(2) or ioctl(2), bringing `lo` up (netdevice(7)).
    Ioctl(Errno),
    /// setns(2).
    Setns(Errno),
}

impl NewNetwork {
    /// Starts making a network namespace whose `lo` is up, owned by the caller's
    /// user namespace.
    ///
    /// # Errors
    /// [`Failed::Clone`].
    pub fn start() -> Result<Self, Failed> {
        let result = Box::new(Made {
            unshare: AtomicI32::new(0),
            namespace: AtomicI32::new(-libc::ECHILD),
        });
        // Without a value, so that its pages are not touched here.
        let mut stack = Vec::<u128>::with_capacity(STACK / size_of::<u128>());
        let args = libc::clone_args {
            flags: (libc::CLONE_VM | libc::CLONE_FILES) as u64,
            stack: stack.as_mut_ptr() as u64,
            stack_size: STACK as u64,
            set_tid: &raw const MAKER as u64,
            set_tid_size: 1,
            ..clone_args()
        };
        // SAFETY: stack and result are kept until the new process has been waited
        // for, see `wait`; u128 gives the stack the 16 bytes of alignment that the
        // ABI wants. It touches no other memory, see `make`.
        let maker = unsafe { start(&args, make, (&raw const *result).cast_mut().cast()) };
        Ok(Self {
            maker: Some(maker.map_err(Failed::Clone)?),
            result,
            _stack: stack,
        })
    }

    /// Waits until the namespace is made, and enters it.
    ///
    /// # Errors
    /// What failed.
    pub fn enter(mut self) -> Result<(), Failed> {
        self.wait();
        let number = |of: &AtomicI32| of.load(Ordering::Acquire);
        if let error @ ..0 = number(&self.result.unshare) {
            return Err(Failed::Unshare(Errno::from_raw(-error)));
        }
        let namespace: RawFd = match number(&self.result.namespace) {
            error @ ..0 => return Err(Failed::Ioctl(Errno::from_raw(-error))),
            descriptor => descriptor,
        };
        // SAFETY: the maker has opened it in the table that both share, and is
        // gone.
        let namespace = unsafe { OwnedFd::from_raw_fd(namespace) };
        setns(namespace, CloneFlags::CLONE_NEWNET).map_err(Failed::Setns)
    }

    fn wait(&mut self) {
        if let Some(maker) = self.maker.take() {
            let how = WaitPidFlag::WEXITED | WaitPidFlag::__WALL;
            while waitid(Id::Pid(maker), how) == Err(Errno::EINTR) {}
        }
    }
}

impl Drop for NewNetwork {
    fn drop(&mut self) {
        self.wait();
    }
}

/// Listens at a socket for connections, of which `backlog` may wait. The kernel lowers it to
/// `net.core.somaxconn`; nix refuses more than the C library's SOMAXCONN, 128 in musl.
///
/// # Errors
/// The error number of listen(2).
pub fn listen(socket: BorrowedFd<'_>, backlog: i32) -> Result<(), Errno> {
    // SAFETY: no pointers.
    Errno::result(unsafe { libc::listen(socket.as_raw_fd(), backlog) }).map(drop)
}

/// The maker's life.
extern "C" fn make(result: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the result is kept until this process has been waited for; both
    // sides use atomics.
    let made = unsafe { &*result.cast::<Made>() };
    // SAFETY: no pointers.
    let unshared = unsafe { bare(libc::SYS_unshare, [libc::CLONE_NEWNET as usize, 0, 0, 0]) };
    made.unshare.store(unshared as i32, Ordering::Release);
    if unshared == 0 {
        // The numbers fit: they are descriptors or error numbers.
        made.namespace
            .store(loopback_up() as i32, Ordering::Release);
    }
    0
}

/// Brings `lo` up; returns a descriptor of the namespace or a negative error
/// number.
fn loopback_up() -> isize {
    // SAFETY: ifreq is plain data for which all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    let kind = (libc::SOCK_DGRAM | libc::SOCK_CLOEXEC) as usize;
    // SAFETY: SIOCSIFFLAGS reads an ifreq, which `request` is; the other calls
    // take no pointers.
    unsafe {
        let socket = bare(libc::SYS_socket, [libc::AF_INET as usize, kind, 0, 0]);
        if socket < 0 {
            return socket;
        }
        let request = &raw const request as usize;
        let up = bare(
            libc::SYS_ioctl,
            [socket as usize, libc::SIOCSIFFLAGS as usize, request, 0],
        );
        let namespace = if up < 0 {
            up
        } else {
            bare(libc::SYS_ioctl, [socket as usize, SIOCGSKNS, 0, 0])
        };
        bare(libc::SYS_close, [socket as usize, 0, 0, 0]);
        namespace
    }
}
