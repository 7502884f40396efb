//! What is waited for, and until when.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::network::CellBroker;
use super::turn::Pace;
use super::watch::{Phase, Watch};
use super::{Control, Observer, Stream};
use record::error::{Result, SetupError, Step};

/// What a descriptor in the poll set is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Slot {
    Report,
    Init,
    Signals,
    /// The parent has ended.
    Parent,
    Output(Stream),
    /// Frames come.
    Frames,
    /// Room for requests.
    Requests,
    Listener,
    /// A process's stream: the process's number, and the stream's index.
    Process(u32, usize),
    /// Room for a process's input.
    ProcessInput(u32),
    /// The listener of a filter that processes have.
    ProcessListener(usize),
    /// The broker reports.
    Broker,
    /// Something is asked for.
    Control,
    /// Room for events, or something to report.
    Events,
}

impl Watch<'_, '_> {
    pub(super) fn wait(&self) -> Result<Vec<Slot>> {
        let slots = self.slots();
        let mut fds: Vec<PollFd<'_>> = slots
            .iter()
            .map(|(_, fd, flags)| PollFd::new(*fd, *flags))
            .collect();
        match poll(&mut fds, self.timeout()) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(SetupError::os(Step::Supervise, "poll", errno)),
        }
        let ready = slots.iter().zip(&fds);
        let ready = ready.filter(|(_, fd)| fd.any().unwrap_or(false));
        Ok(ready.map(|((slot, ..), _)| *slot).collect())
    }

    fn slots(&self) -> Vec<(Slot, BorrowedFd<'_>, PollFlags)> {
        let cell = &*self.cell;
        let mut slots = Vec::new();
        if !matches!(cell.phase, Phase::Ending | Phase::Over) {
            slots.push((Slot::Report, cell.running.report.as_fd(), PollFlags::POLLIN));
        }
        slots.push((Slot::Init, cell.running.init.as_fd(), PollFlags::POLLIN));
        if let Some(signals) = cell.cancel.signals {
            slots.push((Slot::Signals, signals.fd(), PollFlags::POLLIN));
        }
        if let Some(parent) = cell.cancel.parent {
            slots.push((Slot::Parent, parent.as_fd(), PollFlags::POLLIN));
        }
        let may_read = self.observer.is_none_or(Observer::has_room);
        let output = slots.len();
        for (stream, fd) in Stream::ALL.into_iter().zip(&cell.running.output) {
            let index = stream as usize;
            let rests = cell.paces.output[index].resumes_at().is_some();
            let is_kept = self.execution.output[index].is_some() && cell.output_open[index];
            if let (Some(fd), true) = (fd, is_kept && may_read && !rests) {
                slots.push((Slot::Output(stream), fd.as_fd(), PollFlags::POLLIN));
            }
        }
        if let Some(end) = &cell.running.channel {
            let rests = cell.paces.frames.resumes_at().is_some();
            let is_read = cell.frames_open && may_read && !rests && !self.is_idle;
            if let Some(from) = end.from.as_ref().filter(|_| is_read) {
                let at = if self.settles { output } else { slots.len() };
                slots.insert(at, (Slot::Frames, from.as_fd(), PollFlags::POLLIN));
            }
            if let (Some(to), true) = (&end.to, cell.has_request()) {
                slots.push((Slot::Requests, to.as_fd(), PollFlags::POLLOUT));
            }
        }
        if cell.paces.denials.resumes_at().is_none() {
            if let Some(listener) = &cell.listener {
                slots.push((Slot::Listener, listener.as_fd(), PollFlags::POLLIN));
            }
            for (index, listener) in cell.processes.listeners.iter().enumerate() {
                let slot = Slot::ProcessListener(index);
                slots.push((slot, listener.as_fd(), PollFlags::POLLIN));
            }
        }
        if self.control.is_some_and(Control::has_room) {
            for (number, index, fd) in cell.processes.readable() {
                slots.push((Slot::Process(number, index), fd, PollFlags::POLLIN));
            }
        }
        for (number, fd) in cell.processes.writable() {
            slots.push((Slot::ProcessInput(number), fd, PollFlags::POLLOUT));
        }
        if let Some(fd) = cell.broker.as_ref().and_then(CellBroker::waits_for) {
            slots.push((Slot::Broker, fd, PollFlags::POLLIN));
        }
        for fd in self.observer.map(Observer::waits_for).unwrap_or_default() {
            slots.push((Slot::Events, fd, PollFlags::POLLOUT));
        }
        if let Some(fd) = self.control.and_then(Control::writes) {
            slots.push((Slot::Events, fd, PollFlags::POLLOUT));
        }
        if let Some(fd) = self.control.and_then(Control::watches) {
            slots.push((Slot::Events, fd, PollFlags::POLLIN));
        }
        if let Some(fd) = self.control.and_then(Control::reads) {
            slots.push((Slot::Control, fd, PollFlags::POLLIN));
        }
        slots
    }

    /// The time until the next deadline. Rounded up: a poll that ends a little
    /// early would only poll again.
    fn timeout(&self) -> PollTimeout {
        let paces = &self.cell.paces;
        let [stdout, stderr] = &paces.output;
        let resume = [stdout, stderr, &paces.frames, &paces.denials];
        let next = [
            self.cell.deadline,
            self.cell.next_check,
            self.repeat_at,
            self.until,
            self.cell.processes.next_time(),
        ]
        .into_iter()
        .chain(resume.map(Pace::resumes_at))
        .chain([self.control.and_then(Control::resumes_at)])
        .chain([self
            .cell
            .broker
            .as_ref()
            .and_then(|broker| broker.pace.resumes_at())])
        .flatten()
        .min();
        let Some(next) = next else {
            return PollTimeout::NONE;
        };
        let left = next.saturating_duration_since(Instant::now());
        let millis = left.as_millis() + u128::from(left.subsec_nanos() % 1_000_000 != 0);
        PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)
    }
}
