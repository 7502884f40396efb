//! The connection to a client.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use record::error::{Result, SetupError, Step};
use sys::destination::Destination;

use super::lines::Lines;
use super::outbox::Outbox;
use crate::protocol::LONGEST_LINE;

/// With more than this waiting for a client, nothing is read from it, nor from the
/// supervisor that works for it.
const ROOM: usize = 1 << 20;
/// How long a client may take nothing of what waits for it.
const PATIENCE: Duration = Duration::from_secs(300);
/// The same for one whose connection is being closed.
const LAST_PATIENCE: Duration = Duration::from_secs(5);

/// A client's connection.
#[derive(Debug)]
pub(super) struct Peer {
    /// `None` once nothing more comes.
    pub(super) input: Option<OwnedFd>,
    pub(super) output: Destination,
    pub(super) lines: Lines,
    pub(super) outbox: Outbox,
    /// Whether both directions are one socket, which ends as a whole.
    pub(super) is_socket: bool,
    /// Whether it is closed once all has been written.
    pub(super) closing: bool,
}

impl Peer {
    /// A client on standard input and output.
    pub(super) fn stdio(input: OwnedFd, output: OwnedFd, now: Instant) -> Result<Self> {
        Ok(Self {
            input: Some(input),
            output: Destination::new(File::from(output)).map_err(failed("fstat"))?,
            lines: Lines::new(LONGEST_LINE),
            outbox: Outbox::new(now),
            is_socket: false,
            closing: false,
        })
    }

    pub(super) fn socket(socket: UnixStream, now: Instant) -> Result<Self> {
        socket.set_nonblocking(true).map_err(failed("fcntl"))?;
        let input = socket.try_clone().map_err(failed("dup"))?;
        let peer = Self::stdio(input.into(), socket.into(), now)?;
        Ok(Self {
            is_socket: true,
            ..peer
        })
    }

    /// Whether it has too much to read before it gets more.
    pub(super) fn is_full(&self) -> bool {
        self.outbox.len() > ROOM
    }

    /// Whether something is read from it.
    pub(super) fn is_read(&self) -> bool {
        self.input.is_some() && !self.closing && !self.is_full()
    }

    /// # Errors
    /// It is gone.
    pub(super) fn flush(&mut self, now: Instant) -> Result<(), Errno> {
        let output = &self.output;
        self.outbox.flush(now, |bytes| output.write(bytes))
    }

    /// When it has taken nothing for too long.
    pub(super) fn patience(&self) -> Option<Instant> {
        let patience = match self.closing {
            true => LAST_PATIENCE,
            false => PATIENCE,
        };
        (self.outbox.len() > 0).then(|| self.outbox.since + patience)
    }
}

fn failed(call: &'static str) -> impl Fn(std::io::Error) -> SetupError {
    move |error| SetupError::io(Step::Serve, call, &error).on("client")
}
