//! The connection to a client.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use record::error::{Result, SetupError, Step};
use sys::destination::Destination;
use wire::{Failure, LONGEST_LINE, Lines, Outbox, Share};

use super::input::TURN;

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
    /// The party's share for these lines.
    pub(super) share: Option<Share>,
    pub(super) outbox: Outbox,
    /// The party's share for what is in it.
    pub(super) unread: Option<Share>,
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
            share: None,
            outbox: Outbox::new(now),
            unread: None,
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

    /// Whether its calls are taken.
    pub(super) fn is_heard(&self) -> bool {
        self.input.is_some() && !self.closing && !self.is_full()
    }

    /// Whether something is read from it: not before its lines so far are taken, or more of them
    /// could arrive than are taken.
    pub(super) fn is_read(&self) -> bool {
        self.is_heard() && !self.lines.has_next()
    }

    /// Takes bytes that arrived.
    ///
    /// # Errors
    /// There is no room for its line, which begins with the bytes returned, and is dropped.
    pub(super) fn take(&mut self, bytes: &[u8]) -> std::result::Result<(), (Vec<u8>, Failure)> {
        self.lines.push(bytes);
        let counted = self.counted();
        match self.share.as_mut().map(|share| share.try_set(counted)) {
            Some(Err(failure)) => {
                let beginning = self.lines.skip();
                self.note_taken();
                Err((beginning, failure))
            }
            _ => Ok(()),
        }
    }

    /// Notes that fewer bytes wait.
    pub(super) fn note_taken(&mut self) {
        let counted = self.counted();
        if let Some(share) = &mut self.share {
            share.set(counted);
        }
    }

    /// The bytes that wait, unless they are those of one read.
    fn counted(&self) -> usize {
        match self.lines.len() {
            few if few <= TURN => 0,
            many => many,
        }
    }

    /// # Errors
    /// It is gone.
    pub(super) fn flush(&mut self, now: Instant) -> Result<(), Errno> {
        let output = &self.output;
        let flushed = self.outbox.flush(now, |bytes| output.write(bytes));
        self.note_unread();
        flushed
    }

    /// Adds a line that it is to read.
    pub(super) fn say(&mut self, line: &str, now: Instant) {
        self.outbox.push_line(line, now);
        self.note_unread();
    }

    fn note_unread(&mut self) {
        if let Some(unread) = &mut self.unread {
            unread.set(self.outbox.len());
        }
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
