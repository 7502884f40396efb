//! The poll(2) loop: what happens, and what is done about it.
//!
//! # Nothing from a cell blocks or exhausts the supervisor
//!
//! Limits and signals are looked at after each round of the loop, and a round takes
//! at most 20 ms, because no call in it can wait and each source has a budget
//! ([`super::turn`]). Call by call:
//!
//! | what | why it does not wait |
//! |---|---|
//! | report socket | `MSG_DONTWAIT`. It may carry descriptors, so only init ever has the other end: it is close-on-exec and above the numbers that the program is given. From init's first message on it takes no more of them (`SO_PASSRIGHTS`, Linux 6.16) |
//! | streams, frames | read(2) of pipes by open file descriptions of our own, which are `O_NONBLOCK` and which no process of the cell shares. Pipes carry no descriptors, so none is ever closed here for a cell |
//! | requests | write(2) to a pipe, likewise |
//! | denials | `NOTIF_RECV` only after poll(2) said that a call waits; arguments are never read from the program's memory |
//! | pidfds, signals | waitid(2) with `WNOHANG`; the signalfd is non-blocking |
//! | `/proc`, cgroups | reads that take no lock which a program holds for long; each look is bounded in time |
//! | the tmpfs | fstatvfs(2) on descriptors that init sent; files are opened when all processes are gone, `O_NONBLOCK`, and never through links or mounts |
//!
//! A pipe's lock is held while a writer copies from its own memory. That copy waits
//! only for memory that has to be fetched: `userfaultfd` is denied, and a program
//! has files of network file systems only where the caller binds them in.
//!
//! What comes is bounded in memory as well: streams by their cap, results by theirs
//! (`run/results.rs`), a frame on its way by what one result may hold
//! (`drivers/frames/`), denials by the number of calls that are told apart.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;
use nix::sys::wait::{Id, WaitPidFlag, waitid};

use super::capture::{Capture, ReadStatus};
use super::denials::Denials;
use super::disks::Disks;
use super::meter::{Meter, Peaks};
use super::turn::Pace;
use super::verdict::Stop;
use super::{Channel, Observed, Observer, Parent, Stream};
use crate::child::report::Message;
use crate::launch::cgroup::CellCgroup;
use crate::launch::{Running, in_words};
use crate::plan::Plan;
use crate::spec::OnOutput;
use record::error::{Result, Step};

mod channel;
mod ending;
mod finish;
mod poll_set;

use channel::{ChannelState, read_channel};
use ending::END_DEADLINE;
use poll_set::Slot;

/// Setting a cell up takes a millisecond; a bind of a dead network file system
/// can take for ever.
const SETUP_DEADLINE: Duration = Duration::from_secs(30);

/// How far a cell has come, as seen from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Init sets up.
    SetUp,
    /// The program runs.
    Running,
    /// The program was told of its end, and has time to see to it.
    Grace,
    /// Init was asked to end everything.
    Counting,
    /// Init has killed everything; the kernel frees what it held, and init will
    /// count what was used.
    Freeing,
    /// Init itself was killed, or is on its way out.
    Ending,
    /// Init is gone, or given up on.
    Over,
}

/// What each source may take over time.
struct Paces {
    output: [Pace; 2],
    frames: Pace,
    denials: Pace,
}

pub(super) struct Watcher<'a> {
    cell: &'a Running,
    plan: &'a Plan,
    channel: Option<&'a mut dyn Channel>,
    observer: Option<&'a dyn Observer>,
    parent: Option<BorrowedFd<'a>>,
    channel_open: bool,
    output_open: [bool; 2],
    paces: Paces,
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
        parent: Option<&'a Parent>,
    ) -> Self {
        let capture = |fd: &Option<OwnedFd>| fd.as_ref().map(|_| Capture::new(plan.limits.output));
        Self {
            cell,
            plan,
            channel,
            observer,
            parent: parent.map(AsFd::as_fd),
            channel_open: cell.channel.is_some(),
            output_open: [cell.output[0].is_some(), cell.output[1].is_some()],
            paces: Paces {
                output: [Pace::of_bytes(), Pace::of_bytes()],
                frames: Pace::of_bytes(),
                denials: Pace::of_calls(),
            },
            meter: Meter::new(cell, plan),
            listener: None,
            phase: Phase::SetUp,
            deadline: Some(Instant::now() + SETUP_DEADLINE),
            next_check: None,
            seen: Observed {
                failure: None,
                status: None,
                stopped: None,
                grace: None,
                reaped: None,
                used_so_far: None,
                output: [capture(&cell.output[0]), capture(&cell.output[1])],
                channel_broken: false,
                denials,
                scratch: Vec::new(),
                disks: Disks::default(),
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
                Slot::Parent => self.on_parent_gone(),
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
                self.seen.ended_ns = sys::process::monotonic_ns();
                self.enter(Phase::Ending, END_DEADLINE);
            }
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            // End of file: init is gone, and the pidfd says so as well.
            Ok(None) | Err(_) => self.kill(),
        }
    }

    fn on_started(&mut self, fds: Vec<OwnedFd>) {
        // It needs no more descriptors. Older kernels do not know the option.
        let _ = sys::process::refuse_descriptors(self.cell.report.as_fd());
        let mut fds = fds.into_iter();
        self.seen.scratch = fds.by_ref().take(self.plan.own_scratch().count()).collect();
        self.listener = fds.next();
        self.seen.began_ns = self
            .cell
            .progress
            .began_ns(Step::Exec)
            .unwrap_or_else(sys::process::monotonic_ns);
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
            sys::text::let_go();
        }
        let now = Instant::now();
        self.deadline = self.plan.limits.wall.and_then(|wall| now.checked_add(wall));
        self.next_check = self.meter.next_check(now);
        if let Some(stop) = self.seen.stopped.take() {
            self.end(stop);
        }
    }

    fn on_init_gone(&mut self) {
        // Reaps init, so that the pid is free when the call returns.
        let _ = waitid(
            Id::PIDFd(self.cell.pidfd.as_fd()),
            WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG,
        );
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

    fn on_parent_gone(&mut self) {
        self.parent = None;
        self.end(Stop::ParentEnded);
    }

    fn on_output(&mut self, stream: Stream) {
        self.read_output(stream);
        if let Some(stop) = self.too_much_output() {
            self.end(stop);
        }
    }

    /// The stream that has more than its cap, where that ends a cell.
    fn too_much_output(&self) -> Option<Stop> {
        let over = |stream: &Stream| {
            let capture = self.seen.output[*stream as usize].as_ref();
            capture.is_some_and(Capture::over_cap)
        };
        let stream = Stream::ALL.into_iter().find(over)?;
        (self.plan.limits.on_output == OnOutput::Kill).then(|| Stop::OutputLimit {
            stream: stream.name(),
            cap: self.plan.limits.output,
        })
    }

    /// Reads for one turn; says whether there may be more.
    fn read_output(&mut self, stream: Stream) -> bool {
        let index = stream as usize;
        let (Some(fd), Some(capture)) = (&self.cell.output[index], &mut self.seen.output[index])
        else {
            return false;
        };
        let observer = self.observer;
        let heard = |parts: [&[u8]; 2]| {
            observer.is_none_or(|observer| {
                for bytes in parts.into_iter().filter(|bytes| !bytes.is_empty()) {
                    observer.wrote(stream, bytes);
                }
                observer.has_room()
            })
        };
        let pace = &mut self.paces.output[index];
        let read = pace.turn(|turn| capture.read_and_tell(fd.as_fd(), turn, heard));
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
        let frames = &mut self.paces.frames;
        match frames.turn(|turn| read_channel(&end.from, &mut **channel, turn, goes_on)) {
            ChannelState::Open => {}
            ChannelState::Closed => self.channel_open = false,
            // What follows is read as well and left aside, so that no writer waits
            // for ever.
            ChannelState::Broken => self.seen.channel_broken = true,
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
        // Frames that were sent before the call was made have been read in this
        // turn: their slot is before this one.
        let has_begun = (self.channel.as_ref()).is_none_or(|channel| channel.has_begun());
        let (denials, seen) = (&mut self.paces.denials, &mut self.seen.denials);
        if !denials.turn(|turn| seen.answer(listener.as_fd(), has_begun, turn, first)) {
            self.listener = None;
        }
    }
}
