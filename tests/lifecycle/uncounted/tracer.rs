//! A tracer that changes the size of shared memory in its tracee's registers, where a policy allows
//! ptrace(2): at the entry of the call, and while the call waits for the supervisor.

use nix::libc::user_regs_struct;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};

use super::shared::{PAGE, map_shared};
use super::{WANTED, fill, forget};
use crate::cells::prelude::*;
use crate::cells::raw;

/// How often the tracee maps a page.
const CALLS: usize = 40;
/// What the tracee ends with when it has got more than it asked for.
const GOT_MORE: i32 = 3;

pub(super) fn shared_by_tracer() -> Attempt {
    match at_entry() {
        Err(Errno::ENOMEM) => while_it_waits(),
        other => other,
    }
}

/// The tracee stops before its call, and the tracer writes another length.
fn at_entry() -> Attempt {
    let child = raw::fork(|| {
        let asked = ptrace::traceme().and_then(|()| nix::sys::signal::raise(Signal::SIGSTOP));
        if asked.is_err() {
            return 1;
        }
        match map_shared(PAGE) {
            Ok(start) => i32::from(fill(start, WANTED, forget).is_err()),
            Err(errno) => errno as i32,
        }
    })?;
    waitpid(child, None)?;
    loop {
        ptrace::syscall(child, None)?;
        match waitpid(child, None)? {
            WaitStatus::Stopped(..) => {}
            WaitStatus::Exited(_, 0) => return Ok(()),
            WaitStatus::Exited(_, status) => return Err(Errno::from_raw(status)),
            WaitStatus::Signaled(..) => return Err(Errno::EFAULT),
            _ => {}
        }
        let mut regs = ptrace::getregs(child)?;
        if is_shared_page(&regs) {
            regs.rsi = WANTED as u64;
            ptrace::setregs(child, regs)?;
        }
    }
}

fn is_shared_page(regs: &user_regs_struct) -> bool {
    let shared = (libc::MAP_SHARED | libc::MAP_ANONYMOUS) as u64;
    regs.orig_rax == libc::SYS_mmap as u64 && regs.r10 == shared && regs.rsi == PAGE as u64
}

/// The tracee is interrupted while its call waits for the supervisor, and the tracer writes another
/// length before the call is made again. It also tries to without having stopped the tracee. No
/// call waits outside of a cell.
fn while_it_waits() -> Attempt {
    let child = raw::fork(map_pages)?;
    let options = ptrace::Options::PTRACE_O_EXITKILL;
    ptrace::seize(child, options)?;
    loop {
        if let Ok(mut regs) = ptrace::getregs(child) {
            regs.rsi = WANTED as u64;
            let _ = ptrace::setregs(child, regs);
        }
        let _ = ptrace::interrupt(child);
        match waitpid(child, None)? {
            WaitStatus::Exited(_, GOT_MORE) => return Ok(()),
            WaitStatus::Exited(_, 0) => return Err(Errno::ENOMEM),
            WaitStatus::Exited(..) | WaitStatus::Signaled(..) => return Err(Errno::EFAULT),
            _ => {}
        }
        let mut regs = ptrace::getregs(child)?;
        if is_shared_page(&regs) {
            regs.rsi = WANTED as u64;
            ptrace::setregs(child, regs)?;
        }
        ptrace::cont(child, None)?;
    }
}

/// Maps single pages, and looks whether one is larger.
fn map_pages() -> i32 {
    let before = size();
    for _ in 0..CALLS {
        // Refused where the length was changed.
        let Ok(start) = map_shared(PAGE) else {
            continue;
        };
        if size() > before + WANTED / PAGE / 2 {
            return GOT_MORE;
        }
        let _ = call!(SYS_munmap, start, PAGE);
    }
    0
}

/// Pages of its address space.
fn size() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_ascii_whitespace().next();
    pages
        .and_then(|pages| pages.parse().ok())
        .unwrap_or(usize::MAX)
}
