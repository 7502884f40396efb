//! The caller: its signals, and its end.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{Pid, getppid};

use record::error::{Result, SetupError, Step};
use sys::process;

/// Signals that end a process which does nothing about them, and that a caller,
/// a terminal, a timer or a limit on the caller's own resources sends. Each of
/// them cancels a run: by its default action it would take the record along.
const CANCELLING: [Signal; 12] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGALRM,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGXCPU,
    Signal::SIGVTALRM,
    Signal::SIGPROF,
    Signal::SIGIO,
    Signal::SIGPWR,
];

/// Signals by which a caller cancels a run, blocked and read as data.
#[derive(Debug)]
pub struct BlockedSignals(SignalFd);

impl BlockedSignals {
    /// Blocks them from here on.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn block() -> Result<Self> {
        let set = SigSet::from_iter(CANCELLING);
        set.thread_block()
            .map_err(|e| SetupError::os(Step::Supervise, "rt_sigprocmask", e))?;
        SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
            .map(Self)
            .map_err(|e| SetupError::os(Step::Supervise, "signalfd4", e))
    }

    /// The descriptor to poll.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// The next signal that has come, but for those that the caller has this process ignore, as
    /// nohup(1) does: a blocked signal is queued even then.
    pub fn next(&self) -> Option<Signal> {
        loop {
            let info = self.0.read_signal().ok().flatten()?;
            match Signal::try_from(info.ssi_signo as i32) {
                Ok(signal) if !process::ignores(signal) => return Some(signal),
                _ => {}
            }
        }
    }
}

/// The process that started this one.
///
/// It is watched by its pidfd and not by PR_SET_PDEATHSIG, which reports the end of
/// the *thread* that started this process: a caller whose pool of threads shrinks is
/// still there.
#[derive(Debug)]
pub struct Parent(OwnedFd);

impl Parent {
    /// Opens the parent's pidfd. If the parent has ended before, this is the process
    /// that has adopted this one since; the two cannot be distinguished.
    ///
    /// # Errors
    /// The parent is in another pid namespace, or the kernel refuses.
    pub fn hold() -> Result<Self> {
        loop {
            let parent = getppid();
            if parent == Pid::from_raw(0) {
                return Err(SetupError::new(
                    Step::Supervise,
                    "the process that started cellblock is in another pid namespace, so its end cannot be seen",
                )
                .on("--die-with-parent")
                .hint("start cellblock by a process of its own pid namespace, or leave --die-with-parent out"));
            }
            let opened = process::pidfd_open(parent);
            // The number may have gone to another process in between, unless it is
            // still the parent's.
            if getppid() != parent {
                continue;
            }
            return opened.map(Self).map_err(|errno| {
                SetupError::os(Step::Supervise, "pidfd_open", errno)
                    .on("--die-with-parent")
                    .hint("allow pidfd_open(2) to cellblock, or leave --die-with-parent out")
            });
        }
    }
}

impl AsFd for Parent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
