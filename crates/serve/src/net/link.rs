//! The connection to a supervisor.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::Instant;

use nix::sys::socket::{ControlMessage, MsgFlags, Shutdown, sendmsg, shutdown};
use wire::{Lines, Outbox, Share};

/// Longer reports end the connection: a record holds streams and results, each at most
/// as long as the limits that the server was started with allow.
const LONGEST_REPORT: usize = 256 << 20;

/// A supervisor's connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) socket: OwnedFd,
    pub(super) lines: Lines,
    pub(super) outbox: Outbox,
    /// Sockets that are sent with lines of the outbox, each with the number of bytes before its
    /// line.
    sockets: VecDeque<(u64, OwnedFd)>,
    /// Bytes that were sent.
    sent: u64,
    /// Shares of clients whose bytes are in the outbox, each with the number of bytes up to its end.
    shares: VecDeque<(u64, Share)>,
    /// Whether no order follows those in the outbox.
    pub(super) ending: bool,
}

impl Link {
    /// `socket` does not block.
    pub(super) fn new(socket: OwnedFd, now: Instant) -> Self {
        Self {
            socket,
            lines: Lines::new(LONGEST_REPORT),
            outbox: Outbox::new(now),
            sockets: VecDeque::new(),
            sent: 0,
            shares: VecDeque::new(),
            ending: false,
        }
    }

    /// Adds a line with which the supervisor gets a socket.
    pub(super) fn push_with(&mut self, line: &str, socket: OwnedFd, now: Instant) {
        let before = self.sent + self.outbox.len() as u64;
        self.sockets.push_back((before, socket));
        self.outbox.push_line(line, now);
    }

    /// Keeps a share until what is in the outbox now has been sent.
    pub(super) fn hold(&mut self, share: Share) {
        if self.outbox.len() > 0 {
            let end = self.sent + self.outbox.len() as u64;
            self.shares.push_back((end, share));
        }
    }

    /// Sends what there is room for. A supervisor that is gone is noticed by the end of
    /// what it says.
    pub(super) fn flush(&mut self, now: Instant) {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let raw = self.socket.as_raw_fd();
        let (sockets, sent) = (&self.sockets, Cell::new((self.sent, 0)));
        let flushed = self.outbox.flush(now, |bytes| {
            let (at, given) = sent.get();
            let mut waiting = sockets.iter().skip(given);
            let (mut most, mut rights) = (bytes.len(), None);
            match waiting.next() {
                Some((place, socket)) if *place == at => {
                    rights = Some([socket.as_raw_fd()]);
                    if let Some((next, _)) = waiting.next() {
                        most = most.min((next - at) as usize);
                    }
                }
                Some((place, _)) => most = most.min((place - at) as usize),
                None => {}
            }
            let control = rights.as_ref().map(|fds| ControlMessage::ScmRights(fds));
            let parts = [IoSlice::new(&bytes[..most])];
            let count = sendmsg::<()>(raw, &parts, control.as_slice(), flags, None)?;
            sent.set((at + count as u64, given + rights.iter().len()));
            Ok(count)
        });
        let (at, given) = sent.get();
        self.sent = at;
        self.sockets.drain(..given);
        if flushed.is_err() {
            self.outbox = Outbox::new(now);
            self.sockets.clear();
            self.shares.clear();
        }
        while self.shares.front().is_some_and(|(end, _)| *end <= at) {
            self.shares.pop_front();
        }
        if self.ending && self.outbox.len() == 0 {
            self.ending = false;
            // One that is gone has nothing to shut down.
            let _ = shutdown(raw, Shutdown::Write);
        }
    }
}
