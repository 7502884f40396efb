//! Loads real filters, each in a process of its own.

use std::os::fd::RawFd;

use libc::{c_int, c_long};
use plan::seccomp::{Arch, Compiled, Insn};

/// How a single call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It returned without an error.
    Succeeded,
    /// It returned this error number.
    Failed(i32),
    /// The process was killed by this signal.
    Killed(i32),
}

/// A system call with its arguments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) number: u32,
    pub(crate) args: [u64; 6],
}

impl Call {
    pub(crate) fn new(name: &str, args: &[u64]) -> Self {
        Self::numbered(Arch::NATIVE.number(name).unwrap(), args)
    }

    pub(crate) fn numbered(number: u32, args: &[u64]) -> Self {
        let mut all = [0; 6];
        all[..args.len()].copy_from_slice(args);
        Self { number, args: all }
    }

    /// Makes the call; the error number, negated, or what the call returned.
    fn make(&self) -> c_long {
        let [a, b, c, d, e, f] = self.args;
        // SAFETY: callers pass addresses that are null or live, and numbers of
        // calls that change nothing in this process's memory.
        match unsafe { libc::syscall(self.number.into(), a, b, c, d, e, f) } {
            -1 => -c_long::from(errno()),
            returned => returned,
        }
    }

    /// Makes the call in a process of its own, behind `filter` if there is one.
    pub(crate) fn behind(&self, filter: Option<&Compiled>) -> Ended {
        in_child(|| {
            if let Some(filter) = filter {
                load(&filter.program, 0);
            }
            self.make()
        })
    }

    /// Makes the call in this thread.
    pub(crate) fn here(&self) -> Ended {
        match self.make() {
            error @ ..0 => Ended::Failed(-error as i32),
            _ => Ended::Succeeded,
        }
    }
}

/// Forks, lets the child do `work` on existing memory, and returns how the child ended;
/// the result of `work` counts as a system call's.
pub(crate) fn in_child(work: impl FnOnce() -> c_long) -> Ended {
    // SAFETY: the child only makes system calls and ends, so it needs nothing
    // that another thread of the parent may have held at the fork.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork failed");
    if pid == 0 {
        let result = work();
        // A child of the child, where the call was a clone, ends like success.
        let code = if result < 0 { -result as c_int } else { 0 };
        // SAFETY: _exit does not return, and runs nothing of the parent's.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: `status` is live; the child is this function's own.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(waited, pid);
    match (libc::WIFSIGNALED(status), libc::WEXITSTATUS(status)) {
        (true, _) => Ended::Killed(libc::WTERMSIG(status)),
        (false, 0) => Ended::Succeeded,
        (false, errno) => Ended::Failed(errno),
    }
}

/// Loads `program` for the calling thread and returns what seccomp(2) returned:
/// a listener, if `flags` ask for one. Ends the process with 255 on failure;
/// makes only system calls, so that it can run between fork and exec.
pub(crate) fn load(program: &[Insn], flags: u64) -> RawFd {
    #[repr(C)]
    struct Program {
        length: u16,
        insns: *const Insn,
    }
    let program = Program {
        length: program.len() as u16,
        insns: program.as_ptr(),
    };
    // SAFETY: plain integers; then a program that lives for the call, with its
    // true length; then an end that runs nothing more.
    unsafe {
        let privileges = libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        let loaded = libc::syscall(libc::SYS_seccomp, 1, flags, &raw const program);
        if privileges != 0 || loaded < 0 {
            libc::_exit(255);
        }
        loaded as RawFd
    }
}

pub(crate) fn errno() -> i32 {
    // SAFETY: the location is the thread's own, always valid.
    unsafe { *libc::__errno_location() }
}
