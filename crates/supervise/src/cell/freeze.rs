//! A cell whose processes are stopped for a while.

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use super::Cell;
use crate::watch::Phase;
use jail::child::command::Command;
use jail::launch::wait_for;
use record::error::{Result, SetupError, Step};

/// How long init gets to stop all processes. It shares its CPUs with them, so many busy processes
/// can keep it from running for some of that time.
const FREEZE_DEADLINE: Duration = Duration::from_secs(5);

/// Why all processes of a cell are stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// For a [`Frozen`], or one that is being made.
    Frozen,
    /// For what the memory meter reads, which is a matter of milliseconds.
    Measured,
}

impl<'a> Cell<'a> {
    /// Stops all processes for as long as the returned value lives, so that files can
    /// be looked at while nothing changes them. A process in uninterruptible sleep
    /// stops when that ends.
    ///
    /// A timer that sends SIGCONT can continue a program meanwhile. Code that looks at files
    /// therefore reads no more of each than the size that it found, and does not rely on finding
    /// the same a second time.
    ///
    /// # Errors
    /// Init does not answer, or the cell has exceeded a limit and is ending.
    pub fn freeze(&mut self) -> Result<Frozen<'_, 'a>> {
        self.freeze_within(FREEZE_DEADLINE)
    }

    /// [`Self::freeze`] with a deadline of its own.
    ///
    /// # Errors
    /// Init does not answer in this time.
    pub(crate) fn freeze_within(&mut self, most: Duration) -> Result<Frozen<'_, 'a>> {
        let failed =
            || SetupError::new(Step::Supervise, "the cell's processes could not be stopped");
        let deadline = Instant::now() + most;
        if self.phase != Phase::Running || !self.order(Command::Freeze) {
            return Err(failed());
        }
        self.freezes += 1;
        // Of which the meter makes use as well.
        self.stopped_for = Some(Stopped::Frozen);
        while self.freezes > 0 {
            if self.phase != Phase::Running || Instant::now() >= deadline {
                self.stopped_for = None;
                return Err(failed());
            }
            let next = self.wakes_before(deadline);
            if wait_for(self.running.report.as_fd(), next) {
                self.idle().on_message();
            }
            if let Some(stop) = self.measure_if_due() {
                self.idle().end_for_good(stop);
            }
        }
        Ok(Frozen(self))
    }

    /// Stops all processes while the meter needs that, and lets them go on.
    pub(super) fn keep_quiet(&mut self, is_needed: bool) {
        match (self.stopped_for, is_needed) {
            (None, true) if self.phase == Phase::Running && self.order(Command::Freeze) => {
                self.freezes += 1;
                self.stopped_for = Some(Stopped::Measured);
            }
            (Some(Stopped::Measured), false) => {
                // An init that does not take it is gone, and the cell with it.
                self.order(Command::Thaw);
                self.stopped_for = None;
            }
            _ => {}
        }
    }
}

/// A cell whose processes are stopped. Dropping this lets them go on.
#[derive(Debug)]
pub struct Frozen<'c, 'a>(&'c mut Cell<'a>);

impl Frozen<'_, '_> {
    /// The cell's own scratch places ([`Plan::own_scratch`], in that order).
    pub fn scratch(&self) -> &[OwnedFd] {
        &self.0.seen.scratch
    }
}

impl Drop for Frozen<'_, '_> {
    fn drop(&mut self) {
        self.0.stopped_for = None;
        // An init that does not take it is gone, and the cell with it.
        self.0.order(Command::Thaw);
    }
}
