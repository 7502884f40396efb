//! The connection to a supervisor.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::Instant;

use nix::sys::socket::{MsgFlags, Shutdown, send, shutdown};

use super::lines::Lines;
use super::outbox::Outbox;

/// Longer reports end the connection: a record holds streams and results, each at most
/// as long as the limits that the server was started with allow.
const LONGEST_REPORT: usize = 256 << 20;

/// A supervisor's connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) socket: OwnedFd,
    pub(super) lines: Lines,
    pub(super) outbox: Outbox,
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
            ending: false,
        }
    }

    /// Sends what there is room for. A supervisor that is gone is noticed by the end of
    /// what it says.
    pub(super) fn flush(&mut self, now: Instant) {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let raw = self.socket.as_raw_fd();
        let sent = self.outbox.flush(now, |bytes| send(raw, bytes, flags));
        if sent.is_err() {
            self.outbox = Outbox::new(now);
        }
        if self.ending && self.outbox.len() == 0 {
            self.ending = false;
            // One that is gone has nothing to shut down.
            let _ = shutdown(raw, Shutdown::Write);
        }
    }
}
