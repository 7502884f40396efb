//! A request to a cell, and how it is sent to the driver.

use std::os::fd::AsFd as _;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::Cell;
use crate::spec::Bytes;
use crate::supervise::{Control, Observer, OnStart};

/// One piece of work for a cell.
#[derive(Default)]
pub struct Request<'o> {
    /// Its number, which the driver repeats in every frame; no two have the same.
    pub(crate) execution: u64,
    /// The driver's request; empty where the program itself is the work.
    pub(crate) message: Vec<u8>,
    /// Whether it is the cell's last. Then the driver sees the end of its requests,
    /// and the execution ends with the program instead of with the driver's `done`.
    pub(crate) is_last: bool,
    /// The most that is kept of its results.
    pub(crate) results: Bytes,
    /// The most wall time, where that is less than the plan's.
    pub(crate) wall: Option<Duration>,
    /// The time between SIGINT and the cell's end, for an execution that takes too long
    /// or writes too much in a cell that is to go on. `None` ends the cell.
    pub(crate) grace: Option<Duration>,
    /// Whether SIGURG interrupts the interpreter, and is sent again and again in that time.
    pub(crate) urgent_interrupts: bool,
    /// Whether what was printed before a frame has been read when the frame is sent.
    pub(crate) settles: bool,
    /// Observes the execution.
    pub(crate) observer: Option<&'o dyn Observer>,
    /// Is notified when the program has been executed.
    pub(crate) on_start: Option<&'o dyn OnStart>,
    /// Controls the execution.
    pub(crate) control: Option<&'o dyn Control>,
}

impl Cell<'_> {
    /// Whether there is something to send to the driver.
    pub(in crate::supervise) fn has_request(&self) -> bool {
        self.sent < self.request.len()
    }

    /// Sends the driver as much of its request as it takes.
    pub(in crate::supervise) fn send_request(&mut self) {
        let channel = self.running.channel.as_ref();
        let Some(to) = channel.and_then(|end| end.to.as_ref()) else {
            return;
        };
        match nix::unistd::write(to, &self.request[self.sent..]) {
            Ok(count) => self.sent += count,
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            // The driver has closed it, and the rest is not sent.
            Err(_) => self.sent = self.request.len(),
        }
        self.close_if_sent();
    }

    /// Whether the driver still has the pipes from which it reads requests and to which it reports.
    pub(in crate::supervise) fn takes_requests(&self) -> bool {
        let channel = self.running.channel.as_ref();
        let Some(to) = channel.and_then(|end| end.to.as_ref()) else {
            return true;
        };
        if !self.frames_open {
            return false;
        }
        let mut fds = [PollFd::new(to.as_fd(), PollFlags::empty())];
        let polled = poll(&mut fds, PollTimeout::ZERO);
        !polled.is_ok_and(|count| count > 0)
    }

    /// Frees a request that was sent; after the last one, the driver sees the end.
    pub(super) fn close_if_sent(&mut self) {
        if self.has_request() {
            return;
        }
        self.request = Vec::new();
        self.sent = 0;
        if let (true, Some(end)) = (self.is_last, &mut self.running.channel) {
            end.to = None;
        }
    }
}
