//! Making a cell's init in namespaces below those of another cell.
//!
//! A process enters a user namespace for itself, but a pid namespace only for its
//! children, and it makes a pid namespace only below the one that it is in. So it takes
//! two processes to get there, each of which ends at once, and init becomes the caller's
//! own child (`CLONE_PARENT`):
//!
//! ```text
//!   caller ──► first: enters the user namespace, its ids; chooses the pid namespace
//!     ├─────────► second: is in it, and clones
//!     └────────────► init, in new namespaces below
//! ```

use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};

use libc::clone_args;
use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Gid, Pid, Uid, setgroups, setresgid, setresuid};

use super::clone::{Fork, INTO_CGROUP, clone_args};
use super::process::exit_now;
use super::shared::Shared;

/// The namespaces below which a process is made.
#[derive(Clone, Copy, Debug)]
pub struct Above<'a> {
    /// A user namespace over which the caller has all capabilities.
    pub user: BorrowedFd<'a>,
    /// A pid namespace that belongs to it.
    pub pid: BorrowedFd<'a>,
    /// The uid and gid to take in that user namespace, without other groups; `None`
    /// where the caller's are mapped there.
    pub ids: Option<(u32, u32)>,
}

/// A system call that failed, by its name, and its error number.
pub type Failed = (&'static str, Errno);

/// What the processes in between leave behind. Zero is nothing yet.
#[derive(Debug)]
struct Relay {
    call: AtomicI32,
    errno: AtomicI32,
    second: AtomicI32,
    /// The new process's pidfd, plus one.
    pidfd: AtomicI32,
}

const CALLS: [&str; 8] = [
    "clone",
    "setns",
    "setgroups",
    "setresgid",
    "setresuid",
    "prctl",
    "clone3",
    "read",
];

impl Relay {
    fn fail(&self, call: &str, errno: Errno) {
        let index = CALLS.iter().position(|name| *name == call).unwrap_or(0);
        self.call.store(index as i32, Ordering::Release);
        self.errno.store(errno as i32, Ordering::Release);
    }

    fn failure(&self) -> Option<Failed> {
        let call = usize::try_from(self.call.load(Ordering::Acquire)).ok()?;
        match self.errno.load(Ordering::Acquire) {
            0 => None,
            errno => Some((CALLS.get(call)?, Errno::from_raw(errno))),
        }
    }
}

/// As [`super::clone::fork_into`], with the new namespaces below those in `above`.
///
/// # Safety
/// The calling process must have exactly one thread: in the copy, locks that
/// other threads held would stay locked for ever.
///
/// # Errors
/// The call that failed.
pub unsafe fn fork_below(
    above: Above<'_>,
    namespaces: CloneFlags,
    cgroup: Option<BorrowedFd<'_>>,
) -> Result<Fork, Failed> {
    // SAFETY: a zeroed Relay is valid, and consists of atomics.
    let relay = unsafe { Shared::<Relay>::zeroed() }.map_err(|errno| ("clone", errno))?;
    let left = relay.get();
    // SAFETY: the caller has one thread.
    let first = match unsafe { share_files(0) }.map_err(|errno| ("clone", errno))? {
        Some(pid) => pid,
        None => {
            if let Err((call, errno)) = enter(above, left, namespaces, cgroup) {
                left.fail(call, errno);
                exit_now(1);
            }
            // Only init comes here: both others end in `enter`.
            return Ok(Fork::Child);
        }
    };
    wait(first);
    let second = left.second.load(Ordering::Acquire);
    if second > 0 {
        wait(Pid::from_raw(second));
    }
    let pidfd = left.pidfd.load(Ordering::Acquire);
    if pidfd == 0 {
        return Err(left.failure().unwrap_or(("clone", Errno::ECHILD)));
    }
    // SAFETY: the second process has opened it in the table that it shared, and is gone.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd - 1) };
    let pid = super::other::pid_of(&pidfd).map_err(|errno| ("read", errno))?;
    Ok(Fork::Parent { pid, pidfd })
}

/// The life of the first process, and in its child that of the second. Returns in init
/// alone, or with what failed.
fn enter(
    above: Above<'_>,
    left: &Relay,
    namespaces: CloneFlags,
    cgroup: Option<BorrowedFd<'_>>,
) -> Result<(), Failed> {
    let at = |call: &'static str| move |errno: Errno| (call, errno);
    setns(above.user, CloneFlags::CLONE_NEWUSER).map_err(at("setns"))?;
    if let Some((uid, gid)) = above.ids {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        setgroups(&[]).map_err(at("setgroups"))?;
        setresgid(gid, gid, gid).map_err(at("setresgid"))?;
        setresuid(uid, uid, uid).map_err(at("setresuid"))?;
        // The change has made `/proc/self` root's, where init maps its ids.
        nix::sys::prctl::set_dumpable(true).map_err(at("prctl"))?;
    }
    setns(above.pid, CloneFlags::CLONE_NEWPID).map_err(at("setns"))?;
    // SAFETY: this process is a copy of one that had one thread.
    match unsafe { share_files(libc::CLONE_PARENT) }.map_err(at("clone"))? {
        Some(second) => {
            left.second.store(second.as_raw(), Ordering::Release);
            exit_now(0)
        }
        None => clone_init(left, namespaces, cgroup).map_err(at("clone3")),
    }
}

/// The life of the second process; returns in init.
fn clone_init(
    left: &Relay,
    namespaces: CloneFlags,
    cgroup: Option<BorrowedFd<'_>>,
) -> Result<(), Errno> {
    let mut pidfd: libc::c_int = -1;
    let flags = (namespaces.bits() | libc::CLONE_PIDFD | libc::CLONE_PARENT) as u64;
    let args = clone_args {
        flags: flags | cgroup.map_or(0, |_| INTO_CGROUP),
        pidfd: &raw mut pidfd as u64,
        cgroup: cgroup.map_or(0, |fd| fd.as_raw_fd() as u64),
        ..clone_args()
    };
    let args = [&raw const args as usize, size_of::<clone_args>()];
    // SAFETY: `args` is a valid clone_args of the stated size and outlives the call;
    // without CLONE_VM the child has its own copy of this stack.
    match unsafe { super::syscall(libc::SYS_clone3, args) }? {
        0 => Ok(()),
        _ => {
            left.pidfd.store(pidfd + 1, Ordering::Release);
            exit_now(0)
        }
    }
}

/// Forks a process that shares the table of descriptors; its pid, or `None` in it.
///
/// # Safety
/// As for [`fork_below`].
unsafe fn share_files(flags: libc::c_int) -> Result<Option<Pid>, Errno> {
    let flags = (flags | libc::CLONE_FILES | libc::SIGCHLD) as usize;
    // SAFETY: without CLONE_VM the child has its own copy of this stack; the other
    // arguments are not used with these flags.
    let pid = unsafe { super::syscall(libc::SYS_clone, [flags, 0]) }?;
    Ok((pid > 0).then(|| Pid::from_raw(pid as libc::pid_t)))
}

fn wait(pid: Pid) {
    while waitpid(pid, Some(WaitPidFlag::__WALL)) == Err(Errno::EINTR) {}
}
