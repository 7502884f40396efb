//! A request to a cell, and how it is sent to the driver.

use std::os::fd::AsFd as _;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::Cell;
use crate::{Control, Observer, OnStart};
use spec::Bytes;

/// One piece of work for a cell.
#[derive(Default)]
pub struct Request<'o> {
    /// Its number, which the driver repeats in every frame; no two have the same.
    pub execution: u64,
    /// The driver's request; empty where the program itself is the work.
    pub message: Vec<u8>,
    /// Whether it is the cell's last. Then the driver sees the end of its requests,
    /// and the execution ends with the program instead of with the driver's `done`.
    pub is_last: bool,
    /// The most that is kept of its results.
    pub results: Bytes,
    /// The most wall time, where that is less than the plan's.
    pub wall: Option<Duration>,
    /// The time between SIGINT and the cell's end, for an execution that takes too long
    /// or writes too much in a cell that is to go on. `None` ends the cell.
    pub grace: Option<Duration>,
    /// Whether SIGURG interrupts the interpreter, and is sent again and again in that time.
    pub urgent_interrupts: bool,
    /// Whether what was printed before a frame has been read when the frame is sent.
    pub settles: bool,
    /// Observes the execution.
    pub observer: Option<&'o dyn Observer>,
    /// Is notified when the program has been executed.
    pub on_start: Option<&'o dyn OnStart>,
    /// Controls the execution.
    pub control: Option<&'o dyn Control>,
}

impl Cell<'_> {
    /// Whether there is something to send to the driver.
    pub(crate) fn has_request(&self) -> bool {
        self.sent < self.request.len()
    }

    /// Sends the driver as much of its request as it takes.
    pub(crate) fn send_request(&mut self) {
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
    pub(crate) fn takes_requests(&self) -> bool {
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
