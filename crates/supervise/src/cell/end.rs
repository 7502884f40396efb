//! The end of a cell, and why it came.

use std::os::fd::OwnedFd;

use nix::sys::signal::Signal;

use super::Cell;
use crate::proc::{ProcFiles, descendants};
use crate::watch::Phase;
use crate::{Observed, Observer};
use cgroup::CellCgroup;
use record::error::Result;
use verdict::evidence::Stop;

impl Cell<'_> {
    /// Whether the cell has ended.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Why the cell has ended, as the beginning of a sentence.
    pub fn why_over(&self) -> String {
        match (&self.seen.stopped, self.seen.status) {
            (Some(Stop::MemoryWatchdog), _) => "the cell used up its memory".to_owned(),
            (Some(Stop::CpuTimeout(_)), _) => "the cell used up its CPU time".to_owned(),
            (None, Some(status)) if libc::WIFEXITED(status) => {
                format!(
                    "the interpreter ended with status {}",
                    libc::WEXITSTATUS(status)
                )
            }
            (None, Some(status)) => {
                let signal = Signal::try_from(libc::WTERMSIG(status));
                format!(
                    "{} ended the interpreter",
                    signal.map_or("a signal", Signal::as_str)
                )
            }
            _ => "the cell ended".to_owned(),
        }
    }

    /// Ends the cell; returns what was observed of it.
    ///
    /// # Errors
    /// Only when watching itself is impossible; the cell is ended then too.
    pub fn end(mut self) -> Result<Observed> {
        self.end_processes(false, None)?;
        Ok(self.seen)
    }

    /// Ends what runs in the cell. Where `early` is set, init may still be on its way out:
    /// it has no process any more, and has said how the program ended. `observer` sees
    /// what the broker still reports.
    ///
    /// # Errors
    /// Only when watching itself is impossible; the cell is to be dropped then.
    pub fn end_processes(&mut self, early: bool, observer: Option<&dyn Observer>) -> Result<()> {
        let mut watch = self.idle();
        while !(watch.cell.is_over() || early && watch.cell.is_empty()) {
            if watch.cell.phase == Phase::Running {
                watch.end_now();
            }
            watch.step()?;
        }
        self.seen.disks.look(&self.seen.scratch);
        for writer in std::mem::take(&mut self.running.writers) {
            self.seen.unwritten = writer.finish().err().or(self.seen.unwritten);
        }
        if let Some(broker) = self.broker.take() {
            self.seen.network = Some(broker.finish(observer));
        }
        Ok(())
    }

    /// Whether the program is the only process besides init, and has one thread.
    pub(crate) fn has_only_its_program(&self) -> bool {
        let files = ProcFiles::default();
        let mut others = descendants(self.running.init.pid, &files).skip(1);
        let program = others.next();
        program.is_some_and(|program| program.threads.len() == 1) && others.next().is_none()
    }

    /// Whether no process executes anything any more, what they used was counted, and init is on its
    /// way out.
    pub(crate) fn is_empty(&self) -> bool {
        self.phase == Phase::Ending && self.seen.reaped.is_some()
    }

    /// Takes the cell's own scratch places ([`Plan::own_scratch`], in that order).
    pub fn take_scratch(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.seen.scratch)
    }

    /// Removes the cgroup of a cell that is over.
    ///
    /// # Errors
    /// The system refuses.
    pub fn remove_cgroup(&mut self) -> Result<()> {
        let cgroup = self.running.cgroup.take();
        cgroup.map_or(Ok(()), CellCgroup::remove)
    }
}
