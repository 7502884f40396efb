//! Passing bytes on.
//!
//! Bytes are looked at in the socket's queue (`MSG_PEEK`), sent, and then removed from the
//! queue, as many as were sent. So a connection needs no memory of its own, and a peer that
//! does not read stops the other one by TCP's own means.
//!
//! Where much is under way and nothing has to be looked at, bytes move through a pipe
//! without being copied (splice(2)). A direction has its pipe only while bytes are in it.

use std::io::{self, ErrorKind, PipeReader, PipeWriter, Write as _};
use std::net::{Shutdown, TcpStream};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SpliceFFlags, fcntl, splice};

use crate::connection::{Connection, Flow, Readiness};
use crate::guard::Guard;
use crate::report::Reason;
use crate::socket;

/// The most bytes of one connection and direction in a turn: others wait as long as that
/// takes.
const TURN: usize = 2 << 20;

/// The size of a pipe, in bytes.
const PIPE: usize = 256 << 10;

/// Without waiting.
const NOW: SpliceFFlags = SpliceFFlags::SPLICE_F_NONBLOCK.union(SpliceFFlags::SPLICE_F_MOVE);

/// A pipe, and how many bytes are in it.
pub(crate) struct Pipe {
    reader: PipeReader,
    writer: PipeWriter,
    filled: usize,
}

impl Pipe {
    fn new() -> Option<Self> {
        let (reader, writer) = io::pipe().ok()?;
        // Beyond a user's share, pipes stay small.
        let _ = fcntl(&writer, FcntlArg::F_SETPIPE_SZ(PIPE as i32));
        Some(Self {
            reader,
            writer,
            filled: 0,
        })
    }
}

impl Flow {
    /// Whether there is a pipe; without one, bytes are copied.
    fn open_pipe(&mut self) -> bool {
        self.pipe = Pipe::new();
        self.pipe.is_some()
    }
}

/// How much may still pass, over all connections.
pub(crate) struct Budget {
    pub(crate) sent: u64,
    pub(crate) received: u64,
}

/// How a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It waits for an event.
    Waits,
    /// It has more to do at once.
    Ready,
    /// Both directions have ended.
    Over,
}

/// Passes on what can be passed on in both directions.
pub(crate) fn relay(
    connection: &mut Connection,
    buffer: &mut [u8],
    budget: &Budget,
) -> Result<Turn, Reason> {
    let Some(upstream) = &connection.upstream else {
        return Err(connection.failure);
    };
    let mut up = Pass {
        from: (&connection.client, &mut connection.client_ready),
        to: (upstream, &mut connection.upstream_ready),
        flow: &mut connection.up,
        budget: budget.sent,
        count: &mut connection.sent,
    };
    let mut turn = up.run(buffer, Some(&mut connection.guard))?;
    let mut down = Pass {
        from: (upstream, &mut connection.upstream_ready),
        to: (&connection.client, &mut connection.client_ready),
        flow: &mut connection.down,
        budget: budget.received,
        count: &mut connection.received,
    };
    if connection.guard.awaits_response() {
        if !down.shows_response(buffer, &mut connection.guard) {
            return Ok(turn);
        }
        turn = Turn::Ready;
    }
    if down.run(buffer, None)? == Turn::Ready {
        turn = Turn::Ready;
    }
    if connection.up.closed && connection.down.closed {
        return Ok(Turn::Over);
    }
    Ok(turn)
}

/// One direction of a connection.
struct Pass<'a> {
    from: (&'a TcpStream, &'a mut Readiness),
    to: (&'a TcpStream, &'a mut Readiness),
    flow: &'a mut Flow,
    budget: u64,
    count: &'a mut u64,
}

impl Pass<'_> {
    fn run(&mut self, buffer: &mut [u8], guard: Option<&mut Guard>) -> Result<Turn, Reason> {
        let turn = self.pass(buffer, guard);
        if self.flow.pipe.as_ref().is_some_and(|pipe| pipe.filled == 0) {
            self.flow.pipe = None;
        }
        turn
    }

    fn pass(&mut self, buffer: &mut [u8], mut guard: Option<&mut Guard>) -> Result<Turn, Reason> {
        let mut passed = 0;
        let (mut bulk, mut pipes) = (false, true);
        while !self.flow.closed {
            let waits = !self.flow.first.is_empty() && !self.send_first()?;
            if waits || !self.empty_pipe()? {
                return Ok(Turn::Waits);
            }
            if !self.from.1.readable || !self.to.1.writable {
                return Ok(Turn::Waits);
            }
            if passed >= TURN {
                return Ok(Turn::Ready);
            }
            if bulk && self.budget > 0 {
                let moved = self.splice()?;
                passed += moved;
                bulk = moved > 0;
                continue;
            }
            let seen = match self.from.0.peek(buffer) {
                Ok(0) => {
                    if let Some(guard) = &guard {
                        guard.end()?;
                    }
                    self.flow.closed = true;
                    // The peer may be gone already.
                    let _ = self.to.0.shutdown(Shutdown::Write);
                    return Ok(Turn::Waits);
                }
                Ok(seen) => seen,
                Err(error) => return self.wait_or_fail(&error, true),
            };
            if self.budget == 0 {
                return Err(Reason::ByteLimit);
            }
            let is_open = self.flow.admitted == 0 && guard.as_deref().is_none_or(Guard::is_open);
            if pipes && seen == buffer.len() && is_open {
                pipes = self.flow.pipe.is_some() || self.flow.open_pipe();
                bulk = pipes;
                if bulk {
                    continue;
                }
            }
            let mut take = seen;
            // What was admitted is not judged again: it may have been sent in part.
            if self.flow.admitted > 0 {
                take = self.flow.admitted.min(seen);
            } else if let Some(guard) = guard.as_deref_mut().filter(|guard| !guard.is_open()) {
                let admit = guard.admit(&buffer[..seen])?;
                take = admit.take;
                if take == 0 {
                    // Only more bytes can change that.
                    self.from.1.readable = guard.awaits_response();
                    return match self.from.1.ended && !guard.awaits_response() {
                        true => Err(Reason::ClientGone),
                        false => Ok(Turn::Waits),
                    };
                }
                if let Some(instead) = admit.instead {
                    self.flow.first = instead;
                    self.remove(buffer, take)?;
                    passed += take;
                    continue;
                }
                self.flow.admitted = take;
            }
            let most = usize::try_from(self.budget).unwrap_or(usize::MAX).min(take);
            match (&mut &*self.to.0).write(&buffer[..most]) {
                Ok(count) => {
                    self.flow.admitted = self.flow.admitted.saturating_sub(count);
                    self.remove(buffer, count)?;
                    passed += count;
                }
                Err(error) => return self.wait_or_fail(&error, false),
            }
        }
        Ok(Turn::Waits)
    }

    /// Moves bytes through the pipe: how many have left the queue, 0 at its end. They count
    /// whether or not they are delivered at once.
    fn splice(&mut self) -> Result<usize, Reason> {
        let Some(pipe) = &mut self.flow.pipe else {
            return Ok(0);
        };
        let most = usize::try_from(self.budget).unwrap_or(usize::MAX).min(PIPE);
        match splice(self.from.0, None, &pipe.writer, None, most, NOW) {
            Ok(count) => pipe.filled = count,
            Err(Errno::EAGAIN) => self.from.1.readable = false,
            Err(Errno::EINTR) => {}
            Err(_) => return Err(Reason::Reset),
        }
        let moved = pipe.filled;
        *self.count += moved as u64;
        self.budget = self.budget.saturating_sub(moved as u64);
        self.empty_pipe().map(|_| moved)
    }

    /// Sends what is in the pipe; `false` when it waits for room.
    fn empty_pipe(&mut self) -> Result<bool, Reason> {
        while let Some(pipe) = self.flow.pipe.as_mut().filter(|pipe| pipe.filled > 0) {
            if !self.to.1.writable {
                return Ok(false);
            }
            match splice(&pipe.reader, None, self.to.0, None, pipe.filled, NOW) {
                Ok(count @ 1..) => pipe.filled = pipe.filled.saturating_sub(count),
                Err(Errno::EAGAIN) => self.to.1.writable = false,
                Err(Errno::EINTR) => {}
                Ok(_) | Err(_) => return Err(Reason::Reset),
            }
        }
        Ok(true)
    }

    /// Shows the guard the response that it waits for; `false` when more of it is needed,
    /// which stays in the queue until then.
    fn shows_response(&mut self, buffer: &mut [u8], guard: &mut Guard) -> bool {
        match self.from.0.peek(buffer) {
            // There will be no more.
            Ok(seen) => guard.response(&buffer[..seen]) || self.from.1.ended,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        }
    }

    /// Sends what goes first; `false` when it waits for room.
    fn send_first(&mut self) -> Result<bool, Reason> {
        while !self.flow.first.is_empty() && self.to.1.writable {
            match (&mut &*self.to.0).write(&self.flow.first) {
                Ok(count) => drop(self.flow.first.drain(..count)),
                Err(error) => drop(self.wait_or_fail(&error, false)?),
            }
        }
        Ok(self.flow.first.is_empty())
    }

    fn remove(&mut self, buffer: &mut [u8], count: usize) -> Result<(), Reason> {
        *self.count += count as u64;
        self.budget = self.budget.saturating_sub(count as u64);
        socket::discard(self.from.0, buffer, count).map_err(|_| Reason::Reset)
    }

    fn wait_or_fail(&mut self, error: &io::Error, reading: bool) -> Result<Turn, Reason> {
        match error.kind() {
            ErrorKind::WouldBlock if reading => self.from.1.readable = false,
            ErrorKind::WouldBlock => self.to.1.writable = false,
            ErrorKind::Interrupted => return Ok(Turn::Ready),
            _ => return Err(Reason::Reset),
        }
        Ok(Turn::Waits)
    }
}
