//! What the driver reports on its channel.

use std::os::fd::OwnedFd;

use nix::errno::Errno;

use super::Observer;
use super::results::Results;
use super::turn::Turn;
use languages::frames::{Displayed, Frame, FrameReader};
use record::{CodeError, Variables};
use spec::Bytes;
use sys::buffer::ReadBuffer;
use sys::process::monotonic_ns;

/// What the driver reported of one execution; hostile input, capped.
#[derive(Debug, Default)]
pub struct DriverReport {
    /// The execution's number.
    execution: u64,
    /// When the interpreter began with the code (monotonic, ns).
    pub started_ns: Option<u64>,
    pub results: Results,
    pub error: Option<CodeError>,
    /// Whether the error means that the code does not parse.
    pub is_syntax: bool,
    /// The interpreter ends by itself, and the execution with it.
    pub(crate) is_ending: bool,
    /// The answer to a request to describe them.
    pub variables: Option<Variables>,
    /// The code has ended.
    pub is_done: bool,
    /// The exit status of its last command, for a shell that goes on.
    pub status: Option<u8>,
    /// The exit status with which the interpreter waits to be ended.
    pub(super) exit: Option<u8>,
    /// The channel carried something that is no frame.
    pub is_broken: bool,
    /// The channel ended within a frame.
    pub is_cut_short: bool,
    /// Frames of other executions, which were dropped.
    pub foreign: u64,
}

impl DriverReport {
    /// Nothing yet. Results are kept up to this size.
    pub(super) fn of(execution: u64, results: Bytes) -> Self {
        Self {
            execution,
            results: Results::within(results),
            ..Self::default()
        }
    }

    fn take(&mut self, execution: u64, frame: Frame, observer: Option<&dyn Observer>) {
        // A thread of an earlier execution may still report.
        if execution != self.execution {
            self.foreign += 1;
            return;
        }
        match frame {
            Frame::Started => self.started_ns = self.started_ns.or_else(|| Some(monotonic_ns())),
            Frame::Result(Displayed { item, notes, size }) => {
                let kept = self.results.add(item, notes, size);
                if let (Some(observer), Some(kept)) = (observer, kept) {
                    observer.result(kept);
                }
            }
            Frame::Update(Displayed { item, notes, size }) => {
                let kept = self.results.update(item, notes, size);
                if let (Some(observer), Some(kept)) = (observer, kept) {
                    observer.update(kept);
                }
            }
            Frame::Clear { wait } => {
                self.results.clear(wait);
                if let Some(observer) = observer {
                    observer.clear(wait);
                }
            }
            Frame::Error { error, is_syntax } => {
                if let Some(observer) = observer {
                    observer.error(&error);
                }
                self.error = Some(error);
                self.is_syntax = is_syntax;
            }
            Frame::Ending => self.is_ending = true,
            Frame::Variables(list) => self.variables = Some(list),
            Frame::Done { status } => {
                self.is_done = true;
                self.status = status;
            }
            Frame::Exit { status } => self.exit = status,
            Frame::Unknown => {}
        }
    }
}

/// What is left of the channel after a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Channel {
    /// There may be more.
    More,
    /// There is nothing more for now.
    Drained,
    /// No process of the cell has it open.
    Closed,
}

/// Reads frames for one turn, while the observer has room.
pub(super) fn read_frames(
    fd: &OwnedFd,
    reader: &mut FrameReader,
    report: &mut DriverReport,
    observer: Option<&dyn Observer>,
    turn: &mut Turn,
) -> Channel {
    let mut buffer = ReadBuffer::default();
    loop {
        match buffer.read(|room| nix::unistd::read(fd, room)) {
            Ok([]) => return Channel::Closed,
            Ok(bytes) => {
                // What follows a violation is read and left aside, so that no writer
                // waits for ever.
                let take = |execution, frame| report.take(execution, frame, observer);
                report.is_broken |= reader.feed(bytes, take).is_err();
                if observer.is_some_and(|observer| !observer.has_room())
                    || !turn.goes_on(bytes.len())
                {
                    return Channel::More;
                }
            }
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => return Channel::Drained,
            Err(_) => return Channel::Closed,
        }
    }
}
