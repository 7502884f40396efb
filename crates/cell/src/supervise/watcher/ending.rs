//! Deadlines, and the end of a cell: a warning, then init's own killing and
//! counting, then init itself.

use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::super::Grace;
use super::super::so_far::used_so_far;
use super::super::verdict::Stop;
use super::{Phase, SETUP_DEADLINE, Watcher};
use crate::child::report;
use record::error::{SetupError, Step};
use sys::process::pidfd_send_signal;

/// How long init gets to kill what is left before it is killed too.
const COUNT_DEADLINE: Duration = Duration::from_millis(500);
/// How long the kernel gets to end what was killed. Freeing gigabytes takes
/// seconds, and a process that waits in the kernel for a dead file system cannot be
/// ended at all.
pub(super) const END_DEADLINE: Duration = Duration::from_secs(5);

impl Watcher<'_> {
    /// Deals with deadlines that have passed.
    pub(super) fn on_time(&mut self) {
        let now = Instant::now();
        if matches!(self.phase, Phase::Running | Phase::Grace)
            && self.next_check.is_some_and(|check| check <= now)
        {
            let found = self.meter.check(&self.seen.scratch, &mut self.seen.watched);
            self.next_check = self.meter.next_check(now);
            self.seen.disks.look(&self.seen.scratch);
            if let Some(stop) = found {
                self.end(stop);
            }
        }
        if self.deadline.is_none_or(|deadline| deadline > now) {
            return;
        }
        match self.phase {
            Phase::SetUp if self.seen.stopped.is_some() => self.kill(),
            Phase::SetUp => {
                let step = self.cell.progress.step().unwrap_or(Step::Clone);
                let message = format!("not done after {} seconds", SETUP_DEADLINE.as_secs());
                self.seen.failure = Some(
                    SetupError::new(step, message)
                        .hint("is a bind on a network file system that does not answer?"),
                );
                self.kill();
            }
            Phase::Running => {
                self.end(Stop::WallTimeout(self.plan.limits.wall.unwrap_or_default()));
            }
            Phase::Grace => {
                if let Some(grace) = &mut self.seen.grace {
                    grace.used_up = true;
                }
                self.end_now();
            }
            // All are dead but for what the kernel still frees. Killing init would not
            // make that faster, and nobody would count what was used.
            Phase::Counting if self.cell.progress.are_all_killed() => {
                self.enter(Phase::Freeing, END_DEADLINE);
            }
            Phase::Counting => self.kill(),
            Phase::Freeing => {
                self.kill();
                self.seen.unkillable = true;
                self.phase = Phase::Over;
            }
            Phase::Ending => {
                self.seen.unkillable = true;
                self.phase = Phase::Over;
            }
            Phase::Over => {}
        }
    }

    /// Ends the cell, unless it is ending already: with its time of grace, where
    /// the program has one.
    pub(super) fn end(&mut self, stop: Stop) {
        match self.phase {
            Phase::SetUp => {
                self.seen.stopped.get_or_insert(stop);
                if self.cell.progress.began_ns(Step::Exec).is_none() {
                    self.kill();
                } else {
                    // The program may run already, and init be about to say so.
                    self.deadline = Some(Instant::now() + COUNT_DEADLINE);
                }
            }
            Phase::Running => {
                let warned = self.warn(&stop);
                self.seen.stopped = Some(stop);
                if !warned {
                    self.end_now();
                }
            }
            // Its reason stays the first one; a caller that cancels now, or cancels
            // twice, and a cell that eats up memory, have waited enough.
            Phase::Grace if matches!(stop, Stop::Cancelled(_) | Stop::MemoryWatchdog) => {
                self.end_now();
            }
            Phase::Grace | Phase::Counting | Phase::Freeing | Phase::Ending | Phase::Over => {}
        }
    }

    /// Tells the program of its end, if it has time to see to it.
    fn warn(&mut self, stop: &Stop) -> bool {
        let (Some(grace), Some(signal)) = (self.plan.limits.grace, stop.warning()) else {
            return false;
        };
        let (socket, init) = (self.cell.report.as_fd(), self.cell.pidfd.as_fd());
        if report::pass_on(socket, init, signal).is_err() {
            return false;
        }
        self.seen.grace = Some(Grace {
            began_ns: sys::process::monotonic_ns(),
            used_up: false,
        });
        self.phase = Phase::Grace;
        self.deadline = Instant::now().checked_add(grace);
        true
    }

    fn end_now(&mut self) {
        // Should init not come to tell what was used, this is known at least.
        self.seen.used_so_far = used_so_far(self.cell.pid);
        // Init kills and reaps, so that all that was used is counted.
        match pidfd_send_signal(self.cell.pidfd.as_fd(), Signal::SIGTERM) {
            Ok(()) => self.enter(Phase::Counting, COUNT_DEADLINE),
            Err(_) => self.kill(),
        }
    }

    /// Kills init, and with it everything in its pid namespace.
    pub(super) fn kill(&mut self) {
        if let Some(cgroup) = &self.cell.cgroup {
            // One write for all, where forking outruns anything else.
            let _ = cgroup.kill();
        }
        let _ = pidfd_send_signal(self.cell.pidfd.as_fd(), Signal::SIGKILL);
        if self.phase != Phase::Ending {
            self.enter(Phase::Ending, END_DEADLINE);
        }
    }

    pub(super) fn enter(&mut self, phase: Phase, deadline: Duration) {
        self.phase = phase;
        self.deadline = Some(Instant::now() + deadline);
        self.next_check = None;
    }
}
