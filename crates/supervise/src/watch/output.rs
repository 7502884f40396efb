//! What the program and its driver write: streams, frames, a terminal.

use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use nix::unistd::Pid;

use super::Watch;
use crate::Stream;
use crate::capture::{Capture, ReadStatus};
use crate::driver::{Channel, read_frames};
use crate::turn::Turn;
use jail::launch::terminal::RELAY_DEADLINE;
use jail::launch::wait_for;
use spec::OnOutput;
use verdict::evidence::Stop;

/// The most CPU time for reading what is left in a pipe when an execution has ended. On a host that
/// stalls, time passes in which nothing is read.
const DRAIN_TIME: Duration = Duration::from_millis(100);

/// How soon a program that has closed the driver's channel is to end.
const EXIT_DEADLINE: Duration = Duration::from_secs(2);

impl Watch<'_, '_> {
    pub(super) fn on_output(&mut self, stream: Stream) {
        self.read_output(stream);
        if let Some(stop) = self.too_much_output() {
            self.end(stop);
        }
    }

    /// The stream that has more than its cap, where that ends a cell.
    pub(super) fn too_much_output(&self) -> Option<Stop> {
        let over = |stream: &Stream| {
            let capture = self.execution.output[*stream as usize].as_ref();
            capture.is_some_and(Capture::over_cap)
        };
        let stream = Stream::ALL.into_iter().find(over)?;
        let limits = &self.cell.plan.limits;
        (limits.on_output == OnOutput::Kill).then(|| Stop::OutputLimit {
            stream: stream.name(),
            cap: limits.output,
        })
    }

    /// Whether a stream has bytes that wait. Where nothing was written, no room is made.
    pub(super) fn has_output(&self, stream: Stream) -> bool {
        let fd = self.cell.running.output[stream as usize].as_ref();
        let fd = fd.filter(|_| self.cell.output_open[stream as usize]);
        fd.is_some_and(|fd| sys::process::readable(fd.as_fd()).unwrap_or(1) > 0)
    }

    /// Reads for one turn; returns whether there may be more.
    pub(super) fn read_output(&mut self, stream: Stream) -> bool {
        let index = stream as usize;
        let (Some(fd), Some(capture)) = (
            &self.cell.running.output[index],
            &mut self.execution.output[index],
        ) else {
            return false;
        };
        let (observer, settles) = (self.observer, self.settles);
        let on_bytes = |parts: [&[u8]; 2]| {
            let has_room = observer.is_none_or(|observer| {
                for bytes in parts.into_iter().filter(|bytes| !bytes.is_empty()) {
                    observer.wrote(stream, bytes);
                }
                observer.has_room()
            });
            has_room && !settles
        };
        let before = capture.total();
        let pace = &mut self.cell.paces.output[index];
        let read = pace.turn(|turn| capture.read_turn(fd.as_fd(), turn, on_bytes));
        let status = read.unwrap_or(ReadStatus::Closed);
        let count = capture.total() - before;
        self.execution.report.results.wrote(stream, count);
        self.cell.output_open[index] = status != ReadStatus::Closed;
        status == ReadStatus::More
    }

    /// Reads frames for one turn; without `turn`, for one of the channel's own pace.
    pub(super) fn read_frames(&mut self, turn: Option<&mut Turn>) -> Channel {
        let channel = self.cell.running.channel.as_ref();
        let Some(from) = channel.and_then(|end| end.from.as_ref()) else {
            return Channel::Closed;
        };
        let (reader, report) = (&mut self.cell.frames, &mut self.execution.report);
        let observer = self.observer;
        let mut read = |turn: &mut Turn| read_frames(from, reader, report, observer, turn);
        let state = match turn {
            Some(turn) => read(turn),
            None => self.cell.paces.frames.turn(read),
        };
        if state == Channel::Closed {
            self.cell.frames_open = false;
        }
        self.pay_interrupt();
        self.note_broken_channel();
        self.end_waiting();
        state
    }

    /// A cell that was to go on ends when no further `done` can come.
    pub(crate) fn note_broken_channel(&mut self) {
        let has_channel = self.cell.running.channel.is_some();
        let is_lost = !self.cell.frames_open || self.execution.report.is_broken;
        if has_channel && is_lost && !self.cell.is_last && self.cell.lives() {
            self.cut_off();
        }
    }

    /// Ends a cell that can do no more work, after a short time: its program may be ending by itself,
    /// and the kernel closes its descriptors before init can report why.
    pub(super) fn cut_off(&mut self) {
        if !self.is_cut_off {
            self.is_cut_off = true;
            let soon = Instant::now() + EXIT_DEADLINE;
            self.cell.deadline = Some(self.cell.deadline.map_or(soon, |until| until.min(soon)));
        }
    }

    /// Reads the last output of the cell's terminal, and restores the caller's.
    pub(super) fn leave_terminal(&mut self) {
        let Some(relay) = self.cell.running.relay.take() else {
            return;
        };
        let until = Instant::now() + RELAY_DEADLINE;
        // It closes its pipe when it has carried all that there is.
        while let Some(shown) = &self.cell.running.output[0]
            && self.cell.output_open[0]
            && wait_for(shown.as_fd(), until)
        {
            self.read_output(Stream::Stdout);
        }
        drop(relay);
    }

    pub(super) fn drain_output(&mut self) {
        for stream in Stream::ALL {
            if !self.has_output(stream) {
                continue;
            }
            let has_time = has_cpu_time(DRAIN_TIME);
            while self.has_output(stream) && self.read_output(stream) && has_time() {}
        }
    }

    pub(super) fn drain_frames(&mut self) {
        if !self.cell.frames_open {
            return;
        }
        let has_time = has_cpu_time(DRAIN_TIME);
        while self.cell.frames_open
            && self.read_frames(Some(&mut Turn::begin())) == Channel::More
            && has_time()
        {}
    }
}

/// Tells whether the supervisor has used less than this much CPU time since this call.
fn has_cpu_time(most: Duration) -> impl Fn() -> bool {
    let used = || sys::process::cpu_clock(Pid::this());
    let until = used().map(|used| used + most);
    move || used().zip(until).is_some_and(|(used, until)| used < until)
}
