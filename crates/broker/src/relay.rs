//! Passing bytes on.
//!
//! While a connection is checked, bytes are looked at in the socket's queue (`MSG_PEEK`),
//! sent, and then removed from the queue, as many as were sent. After that they move through
//! a pipe without being copied (splice(2)). So a connection needs no memory of its own, and a
//! peer that does not read stops the other one by TCP's own means.
//!
//! One pipe serves all connections by turns. Where a peer takes only a part of it, the pipe
//! stays with that connection until it is empty.

use std::io::{self, ErrorKind, PipeReader, PipeWriter, Write as _};
use std::net::{Shutdown, TcpStream};
use std::rc::Rc;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SpliceFFlags, fcntl, splice};

use crate::connection::{Connection, Flow, Readiness};
use crate::guard::Guard;
use crate::report::Reason;
use crate::socket;

/// The most bytes of one connection and direction in a turn: others wait as long as that
/// takes.
const TURN: usize = 2 << 20;

/// The size of a pipe, in bytes. Larger ones do not fit into a processor's cache, and the
/// client's copy of the bytes takes longer than what is saved here.
const PIPE: usize = 256 << 10;

/// The most pipes at once, which bounds what waits in them.
const MOST_PIPES: usize = 64;

/// Without waiting.
const NOW: SpliceFFlags = SpliceFFlags::SPLICE_F_NONBLOCK.union(SpliceFFlags::SPLICE_F_MOVE);

/// A pipe, and how many bytes are in it.
pub(crate) struct Pipe {
    reader: PipeReader,
    writer: PipeWriter,
    filled: usize,
    _counted: Rc<()>,
}

impl Pipe {
    fn new(counted: Rc<()>) -> Option<Self> {
        let (reader, writer) = io::pipe().ok()?;
        // Beyond a user's share, pipes stay small.
        let _ = fcntl(&writer, FcntlArg::F_SETPIPE_SZ(PIPE as i32));
        Some(Self {
            reader,
            writer,
            filled: 0,
            _counted: counted,
        })
    }
}

/// The pipes of all connections.
#[derive(Default)]
pub(crate) struct Pipes {
    /// The one for the next turn.
    spare: Option<Pipe>,
    /// Each pipe has a copy, wherever it is.
    count: Rc<()>,
}

impl Pipes {
    fn take(&mut self) -> Option<Pipe> {
        let has_room = Rc::strong_count(&self.count) <= MOST_PIPES;
        let new = || has_room.then(|| Pipe::new(self.count.clone())).flatten();
        self.spare.take().or_else(new)
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
    pipes: &mut Pipes,
    budget: &Budget,
) -> Result<Turn, Reason> {
    let Some(upstream) = &connection.upstream else {
        return Err(connection.failure);
    };
    let mut client = End {
        stream: &connection.client,
        ready: &mut connection.client_ready,
        reset: Reason::ClientReset,
    };
    let mut host = End {
        stream: upstream,
        ready: &mut connection.upstream_ready,
        reset: Reason::Reset,
    };
    let mut up = Pass {
        from: &mut client,
        to: &mut host,
        flow: &mut connection.up,
        budget: budget.sent,
        count: &mut connection.sent,
    };
    let mut turn = up.run(buffer, pipes, Some(&mut connection.guard))?;
    let mut down = Pass {
        from: &mut host,
        to: &mut client,
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
    if down.run(buffer, pipes, None)? == Turn::Ready {
        turn = Turn::Ready;
    }
    if connection.up.closed && connection.down.closed {
        return Ok(Turn::Over);
    }
    Ok(turn)
}

/// One side of a connection.
struct End<'a> {
    stream: &'a TcpStream,
    ready: &'a mut Readiness,
    /// What it is when this side breaks.
    reset: Reason,
}

/// One direction of a connection.
struct Pass<'a, 'b> {
    from: &'a mut End<'b>,
    to: &'a mut End<'b>,
    flow: &'a mut Flow,
    budget: u64,
    count: &'a mut u64,
}

impl Pass<'_, '_> {
    fn run(
        &mut self,
        buffer: &mut [u8],
        pipes: &mut Pipes,
        guard: Option<&mut Guard>,
    ) -> Result<Turn, Reason> {
        let turn = self.pass(buffer, pipes, guard);
        if let Some(pipe) = self.flow.pipe.take_if(|pipe| pipe.filled == 0) {
            pipes.spare = Some(pipe);
        }
        turn
    }

    fn pass(
        &mut self,
        buffer: &mut [u8],
        pipes: &mut Pipes,
        mut guard: Option<&mut Guard>,
    ) -> Result<Turn, Reason> {
        let mut passed = 0;
        let mut copies = false;
        while !self.flow.closed {
            let waits = !self.flow.first.is_empty() && !self.send_first()?;
            if waits || !self.empty_pipe()? {
                return Ok(Turn::Waits);
            }
            if !self.from.ready.readable || !self.to.ready.writable {
                return Ok(Turn::Waits);
            }
            if passed >= TURN {
                return Ok(Turn::Ready);
            }
            let most = self.unseen(guard.as_deref());
            if most > 0 && !copies && self.has_pipe(pipes) {
                let moved = self.splice(most)?;
                if let Some(guard) = &mut guard {
                    guard.go_on(moved as u64);
                }
                passed += moved;
                // splice(2) moves nothing at a TCP urgent mark either, and nothing after it
                // until a read has passed the mark.
                copies = moved == 0;
                continue;
            }
            let seen = match self.from.stream.peek(buffer) {
                Ok(0) => {
                    if let Some(guard) = &guard {
                        guard.end()?;
                    }
                    self.end();
                    return Ok(Turn::Waits);
                }
                Ok(seen) => seen,
                Err(error) => return self.from.wait_or_fail(&error, Direction::Read),
            };
            if self.budget == 0 {
                return Err(Reason::ByteLimit);
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
                    self.from.ready.readable = guard.awaits_response();
                    return match self.from.ready.ended && !guard.awaits_response() {
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
            match (&mut &*self.to.stream).write(&buffer[..most]) {
                Ok(count) => {
                    self.flow.admitted = self.flow.admitted.saturating_sub(count);
                    self.remove(buffer, count)?;
                    passed += count;
                    copies = false;
                }
                Err(error) => return self.to.wait_or_fail(&error, Direction::Write),
            }
        }
        Ok(Turn::Waits)
    }

    /// How many of the next bytes pass without being looked at, as far as there is room.
    fn unseen(&self, guard: Option<&Guard>) -> usize {
        if self.flow.admitted > 0 {
            return 0;
        }
        let most = guard.map_or(u64::MAX, Guard::unseen).min(self.budget);
        usize::try_from(most).map_or(PIPE, |most| most.min(PIPE))
    }

    /// Whether there is a pipe; without one, bytes are copied.
    fn has_pipe(&mut self, pipes: &mut Pipes) -> bool {
        if self.flow.pipe.is_none() {
            self.flow.pipe = pipes.take();
        }
        self.flow.pipe.is_some()
    }

    /// Passes the end of the bytes on.
    fn end(&mut self) {
        self.flow.closed = true;
        // The peer may be gone already.
        let _ = self.to.stream.shutdown(Shutdown::Write);
    }

    /// Moves bytes through the pipe; returns how many have left the queue. They count whether or
    /// not they are delivered at once. If no bytes have left, only the queue itself shows why.
    fn splice(&mut self, most: usize) -> Result<usize, Reason> {
        let Some(pipe) = &mut self.flow.pipe else {
            return Ok(0);
        };
        match splice(self.from.stream, None, &pipe.writer, None, most, NOW) {
            Ok(count @ 1..) => {
                pipe.filled = count;
                *self.count += count as u64;
                self.budget = self.budget.saturating_sub(count as u64);
                self.empty_pipe()?;
                return Ok(count);
            }
            Ok(0) | Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(_) => return Err(self.from.reset),
        }
        Ok(0)
    }

    /// Sends what is in the pipe; `false` when it waits for room.
    fn empty_pipe(&mut self) -> Result<bool, Reason> {
        while let Some(pipe) = self.flow.pipe.as_mut().filter(|pipe| pipe.filled > 0) {
            if !self.to.ready.writable {
                return Ok(false);
            }
            match splice(&pipe.reader, None, self.to.stream, None, pipe.filled, NOW) {
                Ok(count @ 1..) => pipe.filled = pipe.filled.saturating_sub(count),
                Err(Errno::EAGAIN) => self.to.ready.writable = false,
                Err(Errno::EINTR) => {}
                Ok(_) | Err(_) => return Err(self.to.reset),
            }
        }
        Ok(true)
    }

    /// Shows the guard the response that it waits for; `false` when more of it is needed,
    /// which stays in the queue until then.
    fn shows_response(&mut self, buffer: &mut [u8], guard: &mut Guard) -> bool {
        match self.from.stream.peek(buffer) {
            // There will be no more.
            Ok(seen) => guard.response(&buffer[..seen]) || self.from.ready.ended,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        }
    }

    /// Sends what goes first; `false` when it waits for room.
    fn send_first(&mut self) -> Result<bool, Reason> {
        while !self.flow.first.is_empty() && self.to.ready.writable {
            match (&mut &*self.to.stream).write(&self.flow.first) {
                Ok(count) => drop(self.flow.first.drain(..count)),
                Err(error) => drop(self.to.wait_or_fail(&error, Direction::Write)?),
            }
        }
        Ok(self.flow.first.is_empty())
    }

    fn remove(&mut self, buffer: &mut [u8], count: usize) -> Result<(), Reason> {
        *self.count += count as u64;
        self.budget = self.budget.saturating_sub(count as u64);
        socket::discard(self.from.stream, buffer, count).map_err(|_| self.from.reset)
    }
}

/// What a call on a socket was for.
#[derive(Clone, Copy)]
enum Direction {
    Read,
    Write,
}

impl End<'_> {
    fn wait_or_fail(&mut self, error: &io::Error, direction: Direction) -> Result<Turn, Reason> {
        match (error.kind(), direction) {
            (ErrorKind::WouldBlock, Direction::Read) => self.ready.readable = false,
            (ErrorKind::WouldBlock, Direction::Write) => self.ready.writable = false,
            (ErrorKind::Interrupted, _) => return Ok(Turn::Ready),
            _ => return Err(self.reset),
        }
        Ok(Turn::Waits)
    }
}
