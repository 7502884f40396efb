//! The descriptor that events go to, and the queue before it.
//!
//! While a cell is watched, nothing here waits for the reader. What the reader
//! has no room for stays in the queue; once that is longer than [`ROOM`], the
//! watcher reads no more of what the program writes, so that it is the program
//! that waits.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::PollTimeout;
use sys::destination::Destination;

/// With more than this in the queue, no more output is read. It is as much as a
/// cell's own pipes hold; an event may be longer, and is not cut.
const ROOM: usize = 256 << 10;
/// The most that is written before other things get their turn.
const TURN: usize = 256 << 10;
/// How long the reader may take nothing, once the cell is gone.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// A descriptor, and what waits to be written to it.
#[derive(Debug)]
pub struct Outbox {
    to: Destination,
    queue: RefCell<Queue>,
}

impl Outbox {
    /// An empty queue before `to`.
    ///
    /// # Errors
    /// The system cannot tell what kind of file it is.
    pub fn new(to: File) -> io::Result<Self> {
        Ok(Self {
            to: Destination::new(to)?,
            queue: RefCell::default(),
        })
    }

    /// Adds what `write` writes, if it is at most `cap` bytes, and returns its length;
    /// `None` when it is longer, or no text.
    pub fn add(
        &self,
        cap: usize,
        write: impl FnOnce(&mut Queue) -> io::Result<()>,
    ) -> Option<usize> {
        let mut queue = self.queue.borrow_mut();
        if queue.broken().is_some() {
            return Some(0);
        }
        let before = queue.len();
        // Memory takes everything.
        let written = write(&mut queue);
        let length = queue.len() - before;
        if written.is_err() || length > cap {
            queue.truncate(before);
            return None;
        }
        Some(length)
    }

    /// Whether more may be added.
    pub fn has_room(&self) -> bool {
        self.queue.borrow().len() < ROOM
    }

    /// The descriptor to wait for, while something waits to be written.
    pub fn waits_for(&self) -> Option<BorrowedFd<'_>> {
        (self.queue.borrow().len() > 0).then(|| self.to.as_fd())
    }

    /// Writes what it can without waiting, for a turn.
    pub fn flush(&self) {
        self.queue.borrow_mut().flush(&self.to);
    }

    /// Waits until there is room for more.
    pub(super) fn make_room(&self) {
        self.queue.borrow_mut().make_room(&self.to);
    }

    /// Why nothing can be written any more.
    pub fn broken(&self) -> Option<Errno> {
        self.queue.borrow().broken()
    }

    /// Writes all that waits, and returns the way to write more. The reader may take nothing for
    /// as long as `patience`; without it, for ever.
    pub(super) fn drain(&self, patience: Option<Duration>) -> (BlockingWriter<'_>, io::Result<()>) {
        let mut to = BlockingWriter {
            to: &self.to,
            patience,
        };
        let drained = self.queue.borrow_mut().drain(&mut to);
        (to, drained)
    }
}

/// What waits to be written.
#[derive(Debug, Default)]
pub struct Queue {
    bytes: VecDeque<u8>,
    /// Why nothing can be written any more.
    broken: Option<Errno>,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn broken(&self) -> Option<Errno> {
        self.broken
    }

    /// Takes back what was added behind the first `length` bytes.
    pub(super) fn truncate(&mut self, length: usize) {
        self.bytes.truncate(length);
    }

    /// Writes as much as it can without waiting, for a turn.
    fn flush(&mut self, to: &Destination) {
        let mut turn = TURN;
        while turn > 0 && !self.bytes.is_empty() {
            let (next, _) = self.bytes.as_slices();
            match to.write(&next[..next.len().min(turn)]) {
                Ok(count) => {
                    self.bytes.drain(..count);
                    turn -= count;
                }
                Err(Errno::EAGAIN) => return,
                Err(Errno::EINTR) => {}
                Err(errno) => self.fail(errno),
            }
        }
        self.give_back();
    }

    /// Waits until the queue is short enough for more; a reader that takes nothing
    /// for too long gets no more.
    fn make_room(&mut self, to: &Destination) {
        self.flush(to);
        while self.len() >= ROOM {
            let (next, _) = self.bytes.as_slices();
            let mut writer = BlockingWriter {
                to,
                patience: Some(PATIENCE),
            };
            match writer.write(next) {
                Ok(count) => drop(self.bytes.drain(..count)),
                Err(error) => self.fail(errno_of(&error)),
            }
        }
        self.give_back();
    }

    /// Gives the memory of long events back.
    fn give_back(&mut self) {
        if self.bytes.is_empty() && self.bytes.capacity() > 2 * ROOM {
            self.bytes = VecDeque::new();
        }
    }

    /// Drops what waits: nothing can be written any more.
    fn fail(&mut self, errno: Errno) {
        self.broken = Some(errno);
        self.bytes = VecDeque::new();
    }

    /// Writes all that waits.
    pub(super) fn drain(&mut self, to: &mut BlockingWriter<'_>) -> io::Result<()> {
        if let Some(errno) = self.broken {
            return Err(errno.into());
        }
        let (first, second) = self.bytes.as_slices();
        to.write_all(first)?;
        to.write_all(second)
    }
}

/// The system's error number; `ETIMEDOUT` for a reader that took nothing.
fn errno_of(error: &io::Error) -> Errno {
    let none = match error.kind() {
        io::ErrorKind::TimedOut => Errno::ETIMEDOUT,
        _ => Errno::EIO,
    };
    error.raw_os_error().map_or(none, Errno::from_raw)
}

impl Write for Queue {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Waits for the reader: a write fails with `TimedOut` after `patience` without room, if there
/// is a bound.
pub(super) struct BlockingWriter<'a> {
    to: &'a Destination,
    patience: Option<Duration>,
}

impl Write for BlockingWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let end = self.patience.map(|patience| Instant::now() + patience);
        loop {
            match self.to.write(bytes) {
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                done => return Ok(done?),
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let timeout = match left {
                Some(Duration::ZERO) => return Err(io::ErrorKind::TimedOut.into()),
                Some(left) => PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX),
                None => PollTimeout::NONE,
            };
            match self.to.has_room(timeout) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::fd::OwnedFd;

    use super::*;

    fn fill(queue: &mut Queue, bytes: usize) {
        queue.write_all(&vec![b'x'; bytes]).unwrap();
    }

    #[test]
    fn a_queue_without_a_reader_is_dropped() {
        let (read, write) = io::pipe().unwrap();
        let to = Destination::new(OwnedFd::from(write).into()).unwrap();
        let mut queue = Queue::default();
        fill(&mut queue, 10);
        drop(read);
        queue.flush(&to);
        assert_eq!((queue.len(), queue.broken()), (0, Some(Errno::EPIPE)));
        let mut writer = BlockingWriter {
            to: &to,
            patience: Some(PATIENCE),
        };
        assert!(queue.drain(&mut writer).is_err());
    }

    #[test]
    fn room_is_made_by_waiting_for_the_reader() {
        let (mut read, write) = io::pipe().unwrap();
        let to = Destination::new(OwnedFd::from(write).into()).unwrap();
        let mut queue = Queue::default();
        fill(&mut queue, 4 << 20);
        // As much as has to be read at the least.
        let reader = std::thread::spawn(move || {
            read.read_exact(&mut vec![0; (4 << 20) - ROOM]).unwrap();
            read
        });
        queue.make_room(&to);
        assert!(queue.len() < ROOM && queue.broken().is_none());
        let read = reader.join().unwrap();
        fill(&mut queue, 1);
        queue.make_room(&to);
        assert_eq!(queue.broken(), None);
        drop(read);
        fill(&mut queue, 4 << 20);
        queue.make_room(&to);
        assert_eq!((queue.len(), queue.broken()), (0, Some(Errno::EPIPE)));
    }

    #[test]
    fn memory_of_a_long_event_is_given_back() {
        let (mut read, write) = io::pipe().unwrap();
        let to = Destination::new(OwnedFd::from(write).into()).unwrap();
        let mut queue = Queue::default();
        fill(&mut queue, 4 << 20);
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            read.read_to_end(&mut all).unwrap();
            all.len()
        });
        while queue.len() > 0 {
            queue.flush(&to);
        }
        assert_eq!(queue.bytes.capacity(), 0);
        drop(to);
        assert_eq!(reader.join().unwrap(), 4 << 20);
    }
}
