//! A cell between two executions.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use super::Cell;
use crate::watch::{Phase, Watch};
use crate::{Control, Disks, Execution};
use cgroup::CellCgroup;
use jail::child::report::Role;
use record::error::Result;
use sys::buffer::ReadBuffer;

impl<'a> Cell<'a> {
    /// Notes what was used before the execution, and leaves aside what was written
    /// since the one before: it belongs to neither.
    pub(super) fn begin_anew(&mut self, execution: &mut Execution) {
        let cgroup = self.running.cgroup.as_ref();
        execution.cgroup_before = cgroup.map(CellCgroup::usage).unwrap_or_default();
        let seen = &mut self.seen;
        execution.cpu_before = (self.meter).cpu_used_so_far(cgroup, &mut seen.watched);
        (seen.watched.memory, seen.watched.processes) = (None, None);
        seen.disks = Disks::default();
        execution.between = std::mem::take(&mut self.between);
        if let Some(denials) = self.processes.denials.take() {
            execution.between.add_denials(denials);
        }
        let written = &mut execution.between.written;
        for (fd, written) in self.running.output.iter().zip(written) {
            *written = fd.as_ref().map_or(0, |fd| discard(fd.as_fd()));
        }
        if let Some(broker) = &mut self.broker {
            broker.read(None);
            execution.between.add_network(broker.take_log());
        }
    }

    /// Watches the cell while it does nothing, until `control` has work, or the cell
    /// has ended, or `until`. What processes write meanwhile stays in their pipes, and
    /// they wait once these are full.
    ///
    /// # Errors
    /// Only when watching itself is impossible.
    pub fn rest(&mut self, control: &dyn Control, until: Option<Instant>) -> Result<()> {
        self.meter.rest(true);
        let mut watch = self.idle();
        (watch.control, watch.until) = (Some(control), until);
        let is_late = |until: Instant| until <= Instant::now();
        // At least once: other work must not keep processes from being read.
        while watch.cell.phase != Phase::Over {
            if control.has_work() {
                watch.until = Some(Instant::now());
            }
            watch.step()?;
            if control.has_work() || until.is_some_and(is_late) {
                break;
            }
        }
        let denials = watch.execution.denials;
        self.between.add_denials(denials);
        Ok(())
    }

    /// Watches the cell while it executes nothing until something happens, or this time is
    /// over. No process is read from.
    ///
    /// # Errors
    /// Only when watching itself is impossible.
    pub fn watch_for(&mut self, time: Duration) -> Result<()> {
        let mut watch = self.idle();
        watch.until = Some(Instant::now() + time);
        watch.step()?;
        let denials = watch.execution.denials;
        self.between.add_denials(denials);
        Ok(())
    }

    /// Waits until the cell is set up, or has failed to be.
    ///
    /// # Errors
    /// Only when watching itself is impossible.
    pub fn settle(&mut self) -> Result<()> {
        let mut watch = self.idle();
        while watch.cell.phase == Phase::SetUp {
            watch.step()?;
        }
        Ok(())
    }

    /// The cell with no execution in it.
    pub(crate) fn idle(&mut self) -> Watch<'_, 'a> {
        Watch {
            execution: Execution {
                denials: self.denials.clone(),
                ..Execution::default()
            },
            cell: self,
            observer: None,
            on_start: None,
            control: None,
            wall: None,
            grace: None,
            is_idle: true,
            owes_interrupt: false,
            urgent_interrupts: false,
            settles: false,
            repeat_at: None,
            is_cut_off: false,
            until: None,
        }
    }

    /// Takes the next message of init's.
    pub(crate) fn receive_message(&mut self) {
        self.idle().on_message();
    }

    /// Notes that the program runs, and waits for a request.
    pub(crate) fn park(&mut self, fds: Vec<(Role, OwnedFd)>) {
        self.idle().on_started(fds);
        if self.lives() {
            // Between executions no time is counted.
            self.deadline = None;
        }
    }
}

/// Reads what is in a pipe at this moment, and drops it; returns the number of bytes. A
/// program that goes on writing does not keep this from ending.
fn discard(pipe: BorrowedFd<'_>) -> u64 {
    let mut left = sys::process::readable(pipe).unwrap_or(0);
    let mut buffer = ReadBuffer::default();
    let mut dropped = 0;
    while left > 0 {
        let read = buffer.read(|room| {
            let most = left.min(room.len());
            nix::unistd::read(pipe, &mut room[..most])
        });
        match read {
            Ok([]) | Err(_) => break,
            Ok(bytes) => {
                left -= bytes.len();
                dropped += bytes.len() as u64;
            }
        }
    }
    dropped
}
