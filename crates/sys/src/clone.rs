//! Making processes: clone3(2) for the cell's init, a vfork-style clone(2) for
//! the program.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::clone_args;
use nix::errno::Errno;
use nix::sched::CloneFlags;
use nix::unistd::Pid;

/// `CLONE_INTO_CGROUP`, which libc declares as a `c_int`, where it becomes 0.
pub(super) const INTO_CGROUP: u64 = 0x2_0000_0000;

/// A `struct clone_args` of zeroes.
pub(super) fn clone_args() -> clone_args {
    // SAFETY: it is plain data for which all zeroes is valid.
    unsafe { std::mem::zeroed() }
}

/// The two sides of [`fork_into`].
#[derive(Debug)]
pub enum Fork {
    /// In the new process.
    Child,
    /// In the caller.
    Parent {
        /// The new process, as the caller's pid namespace numbers it.
        pid: Pid,
        /// A pidfd for it, close-on-exec.
        pidfd: OwnedFd,
    },
}

/// Copies this process into new namespaces (clone3(2), Linux 5.3) and, where
/// `cgroup` is given, into that cgroup (Linux 5.7).
///
/// # Safety
/// The calling process must have exactly one thread: in the copy, locks that
/// other threads held would stay locked for ever.
///
/// # Errors
/// The error number of clone3(2).
pub unsafe fn fork_into(
    namespaces: CloneFlags,
    cgroup: Option<BorrowedFd<'_>>,
) -> Result<Fork, Errno> {
    let mut pidfd: libc::c_int = -1;
    if namespaces.is_empty() && cgroup.is_none() {
        // Filters that want to see the flags of new namespaces hide clone3(2).
        let flags = (libc::CLONE_PIDFD | libc::SIGCHLD) as usize;
        // SAFETY: the third argument is where the kernel stores the pidfd; without
        // CLONE_VM the child has its own copy of this stack.
        let pid = unsafe { super::syscall(libc::SYS_clone, [flags, 0, &raw mut pidfd as usize]) }?;
        return Ok(sides(pid, pidfd));
    }
    let flags = (namespaces.bits() | libc::CLONE_PIDFD) as u64;
    let args = clone_args {
        flags: flags | cgroup.map_or(0, |_| INTO_CGROUP),
        pidfd: &raw mut pidfd as u64,
        exit_signal: libc::SIGCHLD as u64,
        cgroup: cgroup.map_or(0, |fd| fd.as_raw_fd() as u64),
        ..clone_args()
    };
    let args = [&raw const args as usize, size_of::<clone_args>()];
    // SAFETY: `args` is a valid clone_args of the stated size and outlives the
    // call; without CLONE_VM the child has its own copy of this stack.
    let pid = unsafe { super::syscall(libc::SYS_clone3, args) }?;
    Ok(sides(pid, pidfd))
}

/// `pidfd` is the kernel's only in the parent.
fn sides(pid: usize, pidfd: libc::c_int) -> Fork {
    if pid == 0 {
        return Fork::Child;
    }
    Fork::Parent {
        pid: Pid::from_raw(pid as libc::pid_t),
        // SAFETY: the kernel has just stored a new descriptor that no other value owns.
        pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) },
    }
}

/// Stack of the child of [`vfork_shared`]. It sets a few attributes and execs.
const CHILD_STACK: usize = 64 * 1024;

/// Runs `child` in a new process that shares this one's memory and descriptor
/// table, and waits until it has executed another program or ended: vfork(2)
/// with a stack of its own. Sharing the memory saves copying page tables;
/// sharing the table lets the child leave a descriptor behind for its parent.
///
/// # Safety
/// The calling process must have exactly one thread. `child` must neither
/// return control by panicking nor rely on the C library's idea of its pid or
/// thread; what it changes in memory the caller sees.
///
/// # Errors
/// The error number of clone(2).
pub unsafe fn vfork_shared<F: FnMut() -> i32>(mut child: F) -> Result<Pid, Errno> {
    extern "C" fn enter<F: FnMut() -> i32>(child: *mut libc::c_void) -> libc::c_int {
        // SAFETY: `child` is the closure below, which outlives this process's
        // use of the shared memory because the parent is held until then.
        (unsafe { &mut *child.cast::<F>() })()
    }
    // Without a value, so that its pages are not touched here.
    let mut stack = Vec::<u128>::with_capacity(CHILD_STACK / size_of::<u128>());
    let end = stack.spare_capacity_mut().as_mut_ptr_range().end;
    // SAFETY: one past the end of the allocation is a valid pointer value, and
    // the stack grows down from it; u128 gives the 16 bytes of alignment that
    // the ABI wants. CLONE_VFORK keeps stack and closure alive as long as the
    // child can use them.
    let pid = unsafe {
        libc::clone(
            enter::<F>,
            end.cast(),
            libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_FILES | libc::SIGCHLD,
            (&raw mut child).cast(),
        )
    };
    Errno::result(pid).map(Pid::from_raw)
}
