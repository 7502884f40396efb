//! Deadlines, and the end of a cell: a warning, then init's own killing and
//! counting, then init itself.

use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::sys::socket::{Shutdown, shutdown};

use super::Grace;
use super::watch::{Phase, Watch, setup_deadline};
use jail::child::command::Command;
use jail::launch::END_DEADLINE;
use record::Start;
use record::error::{SetupError, Step};
use verdict::evidence::Stop;

/// How long init gets to kill what is left before it is killed too.
const COUNT_DEADLINE: Duration = Duration::from_secs(2);
/// How long init gets to end what was started for a guest. It may be starting a
/// program for another supervisor meanwhile, whose cell ends too if init is killed.
const LEAVE_DEADLINE: Duration = Duration::from_secs(2);
/// How long a shell gets after its grace, when what it waited for has been killed.
const LAST_DEADLINE: Duration = Duration::from_secs(1);
/// After this time, an interrupt is repeated for an interpreter whose commands may have missed it.
const AGAIN: Duration = Duration::from_millis(50);

impl Watch<'_, '_> {
    /// Deals with deadlines that have passed.
    pub(super) fn on_time(&mut self) {
        let now = Instant::now();
        let is_running = self.cell.lives() || self.cell.phase == Phase::Grace;
        if is_running && let Some(stop) = self.cell.measure_if_due() {
            self.end(stop);
        }
        if self.cell.lives() && !self.cell.check_processes(now) {
            let why = "the cell's init did not start a process".to_owned();
            self.end_for_good(Stop::Internal(why));
            self.end_stuck_cell();
        }
        if self.repeat_at.is_some_and(|again| again <= now) {
            self.repeat_at = None;
            self.owes_interrupt = self.cell.phase == Phase::Interrupted;
            self.pay_interrupt();
        }
        if self.cell.deadline.is_none_or(|deadline| deadline > now) {
            return;
        }
        match self.cell.phase {
            Phase::SetUp if self.cell.seen.stopped.is_some() => self.kill(),
            Phase::SetUp => {
                let step = self.cell.running.progress.step().unwrap_or(Step::Clone);
                let most = setup_deadline(self.cell.running.is_guest);
                let message = format!("not done after {} seconds", most.as_secs());
                let error = SetupError::new(step, message)
                    .hint("is a bind on a network file system that does not answer?");
                self.cell.seen.failure = Some(error);
                self.end_stuck_cell();
                self.kill();
            }
            Phase::Running | Phase::Interrupted if self.is_cut_off => {
                self.end_for_good(Stop::ChannelBroken);
            }
            Phase::Running => {
                self.end(Stop::WallTimeout(self.wall.unwrap_or_default()));
            }
            Phase::Interrupted => self.end_grace(),
            Phase::Grace => {
                if let Some(grace) = &mut self.cell.seen.grace {
                    grace.used_up = true;
                }
                self.end_now();
            }
            // All are dead, and the kernel frees what they held. Killing init would not
            // make that faster, and their use would not be counted.
            Phase::Counting if self.cell.running.progress.are_all_killed() => {
                self.enter(Phase::Freeing, END_DEADLINE);
            }
            Phase::Counting => self.kill(),
            Phase::Freeing => {
                self.kill();
                self.give_up();
            }
            Phase::Leaving => {
                self.end_stuck_cell();
                self.enter(Phase::Ending, END_DEADLINE);
            }
            Phase::Ending => self.give_up(),
            Phase::Waiting | Phase::Over => {}
        }
    }

    /// Ends the cell, unless it is ending already: with its time of grace, where
    /// the program has one.
    pub(super) fn end(&mut self, stop: Stop) {
        match self.cell.phase {
            Phase::SetUp => {
                self.cell.seen.stopped.get_or_insert(stop);
                if self.cell.running.progress.began_ns(Step::Exec).is_none() {
                    self.kill();
                } else {
                    // The program may run already, and init be about to say so.
                    self.cell.deadline = Some(Instant::now() + COUNT_DEADLINE);
                }
            }
            Phase::Waiting => {
                self.cell.seen.stopped = Some(stop);
                self.kill();
            }
            Phase::Running => {
                if self.interrupt(&stop) {
                    return;
                }
                let is_warned = self.warn(&stop);
                self.cell.seen.stopped = Some(stop);
                if !is_warned {
                    self.end_now();
                }
            }
            Phase::Interrupted if stop.is_of_one_execution() => self.interrupt_again(&stop),
            Phase::Interrupted => {
                self.cell.seen.stopped = Some(stop);
                self.end_now();
            }
            // Its reason stays the first one; a caller that cancels now, or cancels
            // twice, and a cell that eats up memory, have waited enough.
            Phase::Grace if matches!(stop, Stop::Cancelled(_) | Stop::MemoryWatchdog) => {
                self.end_now();
            }
            Phase::Grace | Phase::Counting | Phase::Freeing => {}
            Phase::Leaving | Phase::Ending | Phase::Over => {}
        }
    }

    /// Ends the cell without a time of grace.
    pub(super) fn end_for_good(&mut self, stop: Stop) {
        match self.cell.phase {
            Phase::Running | Phase::Interrupted | Phase::Grace => {
                self.cell.seen.stopped.get_or_insert(stop);
                self.end_now();
            }
            _ => self.end(stop),
        }
    }

    /// Ends a program that waits to be ended, if nothing else runs. If other processes must be
    /// ended or counted, or the program is being ended already, it has to exit by itself. Only a
    /// copy waits in this way, at the end of its cell: any other such frame was sent by the code
    /// and has no effect.
    pub(super) fn end_waiting(&mut self) {
        let waits = self.cell.running.start == Start::Forked && self.cell.is_last;
        let exit = self.execution.report.exit.take();
        let Some(status) = exit.filter(|_| waits) else {
            return;
        };
        if self.cell.phase == Phase::Running && self.cell.has_only_its_program() {
            self.cell.seen.waited_with = Some(status);
            self.order_end(Command::EndWith(status));
        } else if let Some(channel) = &mut self.cell.running.channel {
            channel.from = None;
            self.cell.frames_open = false;
        }
    }

    /// Has the program stop what it does, in a cell that is to go on.
    fn interrupt(&mut self, stop: &Stop) -> bool {
        let Some(grace) = self.grace.filter(|_| stop.is_of_one_execution()) else {
            return false;
        };
        self.owes_interrupt = true;
        self.pay_interrupt();
        self.execution.stopped = Some(stop.clone());
        self.execution.grace = Some(Grace {
            began_ns: sys::process::monotonic_ns(),
            used_up: false,
        });
        self.cell.phase = Phase::Interrupted;
        self.cell.deadline = Instant::now().checked_add(grace);
        true
    }

    /// Sends SIGINT, where it is due and the interpreter has begun with the code.
    pub(super) fn pay_interrupt(&mut self) {
        let has_channel = self.cell.running.channel.is_some();
        let report = &self.execution.report;
        if self.owes_interrupt && (!has_channel || report.started_ns.is_some()) {
            self.owes_interrupt = false;
            // An init that does not take it is gone.
            if !report.is_done {
                self.cell.was_interrupted = true;
                let is_over = self.execution.grace.is_some_and(|grace| grace.used_up);
                self.cell.order(match (self.urgent_interrupts, is_over) {
                    (false, _) => Command::Signal(Signal::SIGINT),
                    (true, false) => Command::Interrupt(Signal::SIGINT),
                    (true, true) => Command::Interrupt(Signal::SIGKILL),
                });
                let again = self.urgent_interrupts.then(|| Instant::now() + AGAIN);
                self.repeat_at = again;
            }
        }
    }

    /// Ends an execution that has used up its grace, and with it the cell. A shell may still go on
    /// once nothing is left that it waits for.
    fn end_grace(&mut self) {
        let grace = self.execution.grace.as_mut();
        let is_first = grace.is_some_and(|grace| !std::mem::replace(&mut grace.used_up, true));
        if is_first && self.urgent_interrupts {
            self.owes_interrupt = true;
            self.pay_interrupt();
            self.cell.deadline = Some(Instant::now() + LAST_DEADLINE);
        } else {
            self.cell.seen.stopped = self.execution.stopped.clone();
            self.end_now();
        }
    }

    /// Code that has caught an interrupt gets the caller's next one as well. It may bring less grace,
    /// and never more.
    fn interrupt_again(&mut self, stop: &Stop) {
        if matches!(stop, Stop::Cancelled(_)) {
            self.owes_interrupt = true;
            self.pay_interrupt();
        }
        let latest = self
            .grace
            .and_then(|grace| Instant::now().checked_add(grace));
        self.cell.deadline = [self.cell.deadline, latest].into_iter().flatten().min();
    }

    /// Warns the program of its end; false where it has no time of grace.
    fn warn(&mut self, stop: &Stop) -> bool {
        let (Some(grace), Some(signal)) = (self.cell.plan.limits.grace, stop.warning()) else {
            return false;
        };
        if !self.cell.order(Command::Signal(signal)) {
            return false;
        }
        self.cell.seen.grace = Some(Grace {
            began_ns: sys::process::monotonic_ns(),
            used_up: false,
        });
        self.cell.phase = Phase::Grace;
        self.cell.deadline = Instant::now().checked_add(grace);
        true
    }

    /// Has init kill and reap everything, so that all that was used is counted.
    pub(super) fn end_now(&mut self) {
        self.order_end(Command::End);
    }

    fn order_end(&mut self, command: Command) {
        // In case init does not come to report what was used.
        self.cell.note_use();
        if self.cell.order(command) {
            self.enter(Phase::Counting, COUNT_DEADLINE);
        } else {
            self.kill();
        }
    }

    /// Ends a cell whose init does not come back from starting a program: code in the cell has
    /// stopped that program before it was executed. The cell's own supervisor ends it in any case.
    fn end_stuck_cell(&self) {
        if self.cell.running.is_guest {
            self.cell.running.init.kill();
        }
    }

    /// Kills init, and with it everything in its pid namespace. In another supervisor's cell, init
    /// kills what was started for this one, and is killed only if it does not.
    pub(super) fn kill(&mut self) {
        if self.cell.running.is_guest {
            return self.leave();
        }
        if let Some(cgroup) = &self.cell.running.cgroup {
            // One write for all, where forking outruns anything else.
            let _ = cgroup.kill();
        }
        self.cell.running.init.kill();
        if self.cell.phase != Phase::Ending {
            self.enter(Phase::Ending, END_DEADLINE);
        }
    }

    /// Ends the orders to init, which then sends SIGKILL to everything that it has started for this
    /// supervisor and closes its end.
    fn leave(&mut self) {
        if !matches!(
            self.cell.phase,
            Phase::Leaving | Phase::Ending | Phase::Over
        ) {
            let report = self.cell.running.report.as_raw_fd();
            // It can only have ended already.
            let _ = shutdown(report, Shutdown::Write);
            self.enter(Phase::Leaving, LEAVE_DEADLINE);
        }
    }

    fn give_up(&mut self) {
        self.cell.seen.unkillable = true;
        self.cell.running.init.give_up();
        self.cell.phase = Phase::Over;
    }

    pub(super) fn enter(&mut self, phase: Phase, deadline: Duration) {
        self.cell.phase = phase;
        self.cell.deadline = Some(Instant::now() + deadline);
        self.cell.next_check = None;
    }
}
