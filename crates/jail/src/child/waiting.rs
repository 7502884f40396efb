//! What init checks before it ends a program that waits to be ended: that the program has stopped,
//! and that nothing else runs.

use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::kill;
use nix::sys::signalfd::SignalFd;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use sys::clone::vfork_shared;
use sys::process::{self, Stopped};

/// How long a program may take to stop. A program that waits in vfork(2) does not stop, and neither
/// does one that another process continues.
const STOP_DEADLINE: Duration = Duration::from_millis(20);
/// The kernel reuses no process id below this one (`RESERVED_PIDS`).
const FIRST_REUSED_ID: i32 = 300;

/// Waits until a program that was sent SIGSTOP is stopped or has ended; `None` when it takes too
/// long. `signals` is readable at SIGCHLD.
pub(super) fn await_stop(program: Pid, signals: &SignalFd) -> Option<Stopped> {
    let until = Instant::now() + STOP_DEADLINE;
    loop {
        if let Some(stopped) = process::stopped(program).ok()? {
            return Some(stopped);
        }
        let left = until.checked_duration_since(Instant::now())?;
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        let _ = poll(
            &mut [PollFd::new(signals.as_fd(), PollFlags::POLLIN)],
            timeout,
        );
        while let Ok(Some(_)) = signals.read_signal() {}
    }
}

/// Whether it is certain that only this program and init, which calls this, run in the namespace.
/// All process ids that were assigned are tried: init may not look at every process in `/proc`.
pub(super) fn is_alone(program: Pid) -> bool {
    let others = |number: &i32| *number != program.as_raw();
    let is_unused = |number| kill(Pid::from_raw(number), None) == Err(Errno::ESRCH);
    next_number()
        .filter(|next| *next < FIRST_REUSED_ID)
        .is_some_and(|next| (2..next).filter(others).all(is_unused))
}

/// How many processes and threads were started since the program was, itself
/// included. The kernel numbers them in order (pid_namespaces(7)), so the id of one more process
/// shows how many there were; a refused process gets no id.
pub(super) fn started(program: Pid) -> Option<u32> {
    let next = next_number().filter(|next| *next < FIRST_REUSED_ID)?;
    u32::try_from(next - program.as_raw()).ok()
}

/// The id that the next process gets.
fn next_number() -> Option<i32> {
    // SAFETY: init has one thread, and the child does nothing.
    let next = unsafe { vfork_shared(|| 0) }.ok()?;
    let _ = waitpid(next, Some(WaitPidFlag::__WALL));
    Some(next.as_raw())
}

#[cfg(test)]
mod tests {
    use nix::sched::{CloneFlags, unshare};
    use nix::sys::signal::Signal;
    use nix::sys::wait::WaitStatus;
    use nix::unistd::{ForkResult, fork, pause};

    use super::*;

    /// A process that waits for its end.
    fn start() -> Pid {
        // SAFETY: this process has one thread.
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => loop {
                pause();
            },
            ForkResult::Parent { child } => child,
        }
    }

    fn finds_others() -> bool {
        let program = start();
        let before = is_alone(program) && is_alone(program);
        let other = start();
        let beside = is_alone(program);
        let _ = kill(other, Signal::SIGKILL);
        let _ = waitpid(other, None);
        before && !beside && is_alone(program)
    }

    /// Has `work` done in a copy of this process, with one thread; returns whether it said yes.
    fn in_a_copy(work: impl FnOnce() -> bool) -> bool {
        // SAFETY: fork(3) of the C library leaves the heap usable in the copy, which needs no lock
        // of this process's other threads, and ends by `_exit`.
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => process::exit_now(i32::from(!work())),
            ForkResult::Parent { child } => {
                waitpid(child, None) == Ok(WaitStatus::Exited(child, 0))
            }
        }
    }

    #[test]
    fn a_process_beside_the_program_is_found() {
        let namespaces = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWPID;
        let found = || unshare(namespaces).is_ok() && in_a_copy(finds_others);
        assert!(in_a_copy(found));
    }
}
