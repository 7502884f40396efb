//! The poll(2) loop: what happens, and what is done about it.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;
use nix::sys::socket::{Shutdown, shutdown};
use nix::sys::wait::{Id, WaitPidFlag, waitid};

use super::capture::{Capture, ReadStatus};
use super::denials::Denials;
use super::meter::{Meter, Peaks};
use super::verdict::Stop;
use super::{Channel, Observed, Observer, Stream};
use crate::child::report::Message;
use crate::error::{Result, SetupError, Step};
use crate::launch::cgroup::CellCgroup;
use crate::launch::{Running, in_words};
use crate::plan::Plan;
use crate::sys::process::pidfd_send_signal;

mod channel;
mod poll_set;

use channel::{ChannelState, read_channel};
use poll_set::Slot;

/// Setting a cell up takes a millisecond; a bind of a dead network file system
/// can take for ever.
const SETUP_DEADLINE: Duration = Duration::from_secs(30);
/// How long init gets to kill and count what is left before it is killed too.
const COUNT_DEADLINE: Duration = Duration::from_millis(500);
/// How long the kernel gets to end what was killed. A process that waits in
/// the kernel for a dead file system cannot be ended at all.
const END_DEADLINE: Duration = Duration::from_secs(5);
/// Bytes of output from which on the supervisor's own memory counts.
const HEAVY: u64 = 256 << 10;

/// How far a cell has come, as seen from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Init sets up.
    SetUp,
    /// The program runs.
    Running,
    /// Init was asked to end everything.
    Counting,
    /// Init itself was killed, or is on its way out.
    Ending,
    /// Init is gone, or given up on.
    Over,
}

pub(super) struct Watcher<'a> {
    cell: &'a Running,
    plan: &'a Plan,
    channel: Option<&'a mut dyn Channel>,
    observer: Option<&'a dyn Observer>,
    channel_open: bool,
    output_open: [bool; 2],
    meter: Meter<'a>,
    listener: Option<OwnedFd>,
    phase: Phase,
    deadline: Option<Instant>,
    next_check: Option<Instant>,
    seen: Observed,
}

impl<'a> Watcher<'a> {
    pub(super) fn new(
        cell: &'a Running,
        plan: &'a Plan,
        denials: Denials,
        channel: Option<&'a mut dyn Channel>,
        observer: Option<&'a dyn Observer>,
    ) -> Self {
        let capture = |fd: &Option<OwnedFd>| fd.as_ref().map(|_| Capture::new(plan.watch.output));
        Self {
            cell,
            plan,
            channel,
            observer,
            channel_open: cell.channel.is_some(),
            output_open: [cell.output[0].is_some(), cell.output[1].is_some()],
            meter: Meter::new(cell, plan),
            listener: None,
            phase: Phase::SetUp,
            deadline: Some(Instant::now() + SETUP_DEADLINE),
            next_check: None,
            seen: Observed {
                failure: None,
                status: None,
                stopped: None,
                reaped: None,
                output: [capture(&cell.output[0]), capture(&cell.output[1])],
                channel_broken: false,
                denials,
                directories: Vec::new(),
                began_ns: 0,
                ended_ns: 0,
                unkillable: false,
                watched: Peaks::default(),
            },
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Waits for something to happen and deals with it.
    pub(super) fn step(&mut self, signals: &SignalFd) -> Result<()> {
        let ready = self.wait(signals)?;
        for slot in ready {
            match slot {
                Slot::Report => self.on_message(),
                Slot::Init => self.on_init_gone(),
                Slot::Signals => self.on_signal(signals),
                Slot::Output(stream) => self.on_output(stream),
                Slot::Frames => self.on_frames(),
                Slot::Requests => self.on_requests(),
                Slot::Listener => self.on_denial(),
                // Passed on below, with what came in this turn.
                Slot::Events => {}
            }
        }
        self.on_time();
        if let Some(observer) = self.observer {
            observer.pass_on();
        }
        Ok(())
    }

    fn on_message(&mut self) {
        match Message::receive(self.cell.report.as_fd()) {
            Ok(Some(Message::Started { fds })) => self.on_started(fds),
            Ok(Some(Message::Failed {
                step,
                syscall,
                errno,
                item,
            })) => {
                self.seen.failure = Some(in_words(self.plan, step, syscall, errno, item));
                self.kill();
            }
            Ok(Some(Message::Ended { status, usage })) => {
                self.seen.status = Some(status);
                self.seen.reaped = Some(usage);
                self.seen.ended_ns = crate::sys::process::monotonic_ns();
                self.enter(Phase::Ending, END_DEADLINE);
            }
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            // End of file: init is gone, and the pidfd says so as well.
            Ok(None) | Err(_) => self.kill(),
        }
    }

    fn on_started(&mut self, fds: Vec<OwnedFd>) {
        let mut fds = fds.into_iter();
        self.seen.directories = fds.by_ref().take(3).collect();
        self.listener = fds.next();
        self.seen.began_ns = self
            .cell
            .progress
            .began_ns(Step::Exec)
            .unwrap_or_else(crate::sys::process::monotonic_ns);
        if let Some(observer) = self.observer {
            observer.started();
        }
        self.phase = Phase::Running;
        if let Some(Err(error)) = self.cell.cgroup.as_ref().map(CellCgroup::throttle) {
            self.end(Stop::Internal(error.to_string()));
            return;
        }
        if self.cell.output.iter().any(Option::is_some) {
            // Room for output, while the program is still starting.
            crate::sys::text::let_go();
        }
        let now = Instant::now();
        self.deadline = self.plan.watch.wall.and_then(|wall| now.checked_add(wall));
        self.next_check = self.meter.next_check(now);
    }

    fn on_init_gone(&mut self) {
        // Reaps init, so that the pid is free when the call returns.
        let _ = waitid(Id::PIDFd(self.cell.pidfd.as_fd()), WaitPidFlag::WEXITED);
        if self.seen.status.is_none() && self.seen.failure.is_none() {
            // What init had sent before its end is still in the socket.
            while let Ok(Some(message)) = Message::receive(self.cell.report.as_fd()) {
                match message {
                    Message::Started { fds } => self.on_started(fds),
                    Message::Failed {
                        step,
                        syscall,
                        errno,
                        item,
                    } => {
                        self.seen.failure = Some(in_words(self.plan, step, syscall, errno, item));
                    }
                    Message::Ended { status, usage } => {
                        self.seen.status = Some(status);
                        self.seen.reaped = Some(usage);
                    }
                }
            }
        }
        self.phase = Phase::Over;
    }

    fn on_signal(&mut self, signals: &SignalFd) {
        while let Ok(Some(info)) = signals.read_signal() {
            if let Ok(signal) = Signal::try_from(info.ssi_signo as i32) {
                self.end(Stop::Cancelled(signal as i32));
            }
        }
    }

    fn on_output(&mut self, stream: Stream) {
        self.read_output(stream);
        let over = self.seen.output[stream as usize]
            .as_ref()
            .is_some_and(Capture::over_cap);
        if self.plan.watch.kill_on_output && over {
            self.end(Stop::OutputLimit {
                stream: stream.name(),
                cap: self.plan.watch.output,
            });
        }
    }

    /// Reads for one turn; says whether there may be more.
    fn read_output(&mut self, stream: Stream) -> bool {
        let index = stream as usize;
        let (Some(fd), Some(capture)) = (&self.cell.output[index], &mut self.seen.output[index])
        else {
            return false;
        };
        let read = match self.observer {
            None => capture.read_from(fd.as_fd()),
            Some(observer) => capture.read_and_tell(fd.as_fd(), |parts| {
                for bytes in parts.into_iter().filter(|bytes| !bytes.is_empty()) {
                    observer.wrote(stream, bytes);
                }
                observer.has_room()
            }),
        };
        let status = read.unwrap_or(ReadStatus::Closed);
        self.output_open[index] = status != ReadStatus::Closed;
        if let (Some(observer), ReadStatus::Closed) = (self.observer, status) {
            observer.ended(stream);
        }
        status == ReadStatus::More
    }

    fn on_requests(&mut self) {
        let (Some(end), Some(channel)) = (&self.cell.channel, &mut self.channel) else {
            return;
        };
        match nix::unistd::write(&end.to, channel.pending()) {
            Ok(count) => channel.sent(count),
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            // Nobody reads: what is left is not sent.
            Err(_) => channel.sent(channel.pending().len()),
        }
    }

    fn on_frames(&mut self) {
        let (Some(end), Some(channel)) = (&self.cell.channel, &mut self.channel) else {
            return;
        };
        let goes_on = || self.observer.is_none_or(Observer::has_room);
        match read_channel(&end.from, &mut **channel, goes_on) {
            ChannelState::Open => {}
            ChannelState::Closed => self.channel_open = false,
            ChannelState::Broken => {
                self.seen.channel_broken = true;
                // A writer must not wait for a reader that takes nothing in: a
                // socket is shut, and from a pipe all is read and left aside.
                let _ = shutdown(end.from.as_raw_fd(), Shutdown::Both);
            }
        }
    }

    fn on_denial(&mut self) {
        let Some(listener) = &self.listener else {
            return;
        };
        let first = |number| {
            if let Some(observer) = self.observer {
                observer.denied(number);
            }
        };
        if !self.seen.denials.answer(listener.as_fd(), first) {
            self.listener = None;
        }
    }

    /// Deals with deadlines that have passed.
    fn on_time(&mut self) {
        let now = Instant::now();
        if self.phase == Phase::Running && self.next_check.is_some_and(|check| check <= now) {
            let found = self
                .meter
                .check(&self.seen.directories, &mut self.seen.watched);
            self.next_check = self.meter.next_check(now);
            if let Some(stop) = found {
                self.end(stop);
            }
        }
        if self.deadline.is_none_or(|deadline| deadline > now) {
            return;
        }
        match self.phase {
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
                self.end(Stop::WallTimeout(self.plan.watch.wall.unwrap_or_default()));
            }
            Phase::Counting => self.kill(),
            Phase::Ending => {
                self.seen.unkillable = true;
                self.phase = Phase::Over;
            }
            Phase::Over => {}
        }
    }

    /// Ends the cell, unless it is ending already.
    fn end(&mut self, stop: Stop) {
        if !matches!(self.phase, Phase::SetUp | Phase::Running) {
            return;
        }
        self.seen.stopped = Some(stop);
        if self.phase == Phase::SetUp {
            self.kill();
            return;
        }
        // Init kills and reaps, so that all that was used is counted.
        match pidfd_send_signal(self.cell.pidfd.as_fd(), Signal::SIGTERM) {
            Ok(()) => self.enter(Phase::Counting, COUNT_DEADLINE),
            Err(_) => self.kill(),
        }
    }

    /// Kills init, and with it everything in its pid namespace.
    fn kill(&mut self) {
        if let Some(cgroup) = &self.cell.cgroup {
            // One write for all, where forking outruns anything else.
            let _ = cgroup.kill();
        }
        let _ = pidfd_send_signal(self.cell.pidfd.as_fd(), Signal::SIGKILL);
        if self.phase != Phase::Ending {
            self.enter(Phase::Ending, END_DEADLINE);
        }
    }

    fn enter(&mut self, phase: Phase, deadline: Duration) {
        self.phase = phase;
        self.deadline = Some(Instant::now() + deadline);
        self.next_check = None;
    }

    /// Takes what is left in pipes whose writers are all dead.
    pub(super) fn finish(mut self) -> Result<Observed> {
        self.listener = None;
        for stream in Stream::ALL {
            while self.output_open[stream as usize] && self.read_output(stream) {}
        }
        if let (Some(end), Some(channel), true) =
            (&self.cell.channel, &mut self.channel, self.channel_open)
        {
            self.seen.channel_broken |= matches!(
                read_channel(&end.from, &mut **channel, || true),
                ChannelState::Broken
            );
        }
        let kept = self.seen.output.iter().flatten().map(Capture::total);
        if kept.sum::<u64>() > HEAVY {
            // What watched makes room for what writes the record.
            crate::sys::text::let_go();
        }
        if let Some(observer) = self.observer {
            // A stream whose writer could not be killed has not ended.
            for stream in Stream::ALL {
                observer.ended(stream);
            }
            observer.pass_on();
        }
        if self.seen.ended_ns == 0 {
            self.seen.ended_ns = crate::sys::process::monotonic_ns();
        }
        if self.seen.failure.is_none() && self.seen.began_ns == 0 && self.seen.stopped.is_none() {
            self.seen.failure = Some(self.silent_death());
        }
        Ok(self.seen)
    }

    /// Init died without a word: the shared page knows during which step.
    fn silent_death(&self) -> SetupError {
        let step = self.cell.progress.step().unwrap_or(Step::Clone);
        SetupError::new(step, "the cell's init was killed")
            .hint("too little memory for the files that go in, or someone killed it")
    }
}
