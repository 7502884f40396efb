//! The caller's signals.

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::error::{Result, SetupError, Step};

/// Signals by which a caller cancels a run, blocked and read as data.
#[derive(Debug)]
pub struct BlockedSignals(SignalFd);

impl BlockedSignals {
    /// Blocks them from here on.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn block() -> Result<Self> {
        let mut set = SigSet::empty();
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
            set.add(signal);
        }
        set.thread_block()
            .map_err(|e| SetupError::os(Step::Supervise, "rt_sigprocmask", e))?;
        SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
            .map(Self)
            .map_err(|e| SetupError::os(Step::Supervise, "signalfd4", e))
    }

    /// The descriptor to poll.
    pub fn fd(&self) -> &SignalFd {
        &self.0
    }
}
