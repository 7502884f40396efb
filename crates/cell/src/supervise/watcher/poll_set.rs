//! What is waited for, and until when.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signalfd::SignalFd;

use super::{Phase, Watcher};
use crate::supervise::turn::Pace;
use crate::supervise::{Observer, Stream};
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
    /// Room for events.
    Events,
}

impl Watcher<'_> {
    pub(super) fn wait(&self, signals: &SignalFd) -> Result<Vec<Slot>> {
        let slots = self.slots(signals);
        let mut fds: Vec<PollFd<'_>> = slots
            .iter()
            .map(|(_, fd, flags)| PollFd::new(*fd, *flags))
            .collect();
        match poll(&mut fds, self.timeout()) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(SetupError::os(Step::Supervise, "poll", errno)),
        }
        let happened = |(slot, fd): (&(Slot, BorrowedFd<'_>, PollFlags), &PollFd<'_>)| {
            fd.revents()
                .filter(|events| !events.is_empty())
                .map(|_| slot.0)
        };
        Ok(slots.iter().zip(&fds).filter_map(happened).collect())
    }

    fn slots<'s>(&'s self, signals: &'s SignalFd) -> Vec<(Slot, BorrowedFd<'s>, PollFlags)> {
        let mut slots = vec![
            (Slot::Init, self.cell.pidfd.as_fd(), PollFlags::POLLIN),
            (Slot::Signals, signals.as_fd(), PollFlags::POLLIN),
        ];
        if let Some(parent) = self.parent {
            slots.push((Slot::Parent, parent, PollFlags::POLLIN));
        }
        if !matches!(self.phase, Phase::Ending | Phase::Over) {
            slots.insert(
                0,
                (Slot::Report, self.cell.report.as_fd(), PollFlags::POLLIN),
            );
        }
        let may_read = self.observer.is_none_or(Observer::has_room);
        for (stream, fd) in Stream::ALL.into_iter().zip(&self.cell.output) {
            let rests = self.paces.output[stream as usize].resumes_at().is_some();
            let is_read = self.output_open[stream as usize] && may_read && !rests;
            if let (Some(fd), true) = (fd, is_read) {
                slots.push((Slot::Output(stream), fd.as_fd(), PollFlags::POLLIN));
            }
        }
        if let (Some(end), Some(channel), true) =
            (&self.cell.channel, &self.channel, self.channel_open)
        {
            if may_read && self.paces.frames.resumes_at().is_none() {
                slots.push((Slot::Frames, end.from.as_fd(), PollFlags::POLLIN));
            }
            if !channel.pending().is_empty() {
                slots.push((Slot::Requests, end.to.as_fd(), PollFlags::POLLOUT));
            }
        }
        if let Some(listener) = &self.listener
            && self.paces.denials.resumes_at().is_none()
        {
            slots.push((Slot::Listener, listener.as_fd(), PollFlags::POLLIN));
        }
        if let Some(fd) = self.observer.and_then(Observer::waits_for) {
            slots.push((Slot::Events, fd, PollFlags::POLLOUT));
        }
        slots
    }

    /// The time until the next deadline. Rounded up: a poll that ends a little
    /// early would only poll again.
    fn timeout(&self) -> PollTimeout {
        let [stdout, stderr] = &self.paces.output;
        let resume = [stdout, stderr, &self.paces.frames, &self.paces.denials];
        let next = [self.deadline, self.next_check]
            .into_iter()
            .chain(resume.map(Pace::resumes_at))
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
