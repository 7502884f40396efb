//! The descriptor that events go to, and the queue before it.
//!
//! While a cell is watched, nothing here waits for the reader. What the reader
//! has no room for stays in the queue; once that is longer than [`ROOM`], the
//! watcher reads no more of what the program writes, so that it is the program
//! that waits.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IsTerminal as _, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, send};

/// With more than this in the queue, no more output is read. It is as much as a
/// cell's own pipes hold; an event may be longer, and is not cut.
const ROOM: usize = 256 << 10;
/// The most that is written before other things get their turn.
const TURN: usize = 256 << 10;
/// How long the reader may take nothing, once the cell is gone.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// How to write without waiting. The caller's descriptor cannot be made
/// non-blocking: others use its open file description too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Each send has a flag not to wait.
    Socket,
    /// A file, of which poll(2) knows nothing; or a pipe or terminal by an open file
    /// description of our own, which does not block.
    Plain,
    /// A pipe that could not be opened anew: where poll(2) sees room, there is room
    /// for `PIPE_BUF` bytes.
    Careful,
}

/// A descriptor that is written to without waiting.
#[derive(Debug)]
struct Destination {
    file: File,
    way: Way,
}

impl Destination {
    fn new(file: File) -> io::Result<Self> {
        let kind = file.metadata()?.file_type();
        let way = if kind.is_socket() {
            Way::Socket
        } else if kind.is_file() {
            Way::Plain
        } else if (kind.is_fifo() || file.is_terminal())
            && let Ok(own) = open_anew(&file)
        {
            let way = Way::Plain;
            return Ok(Self { file: own, way });
        } else {
            Way::Careful
        };
        Ok(Self { file, way })
    }

    /// Writes some of `bytes`; EAGAIN when that would wait.
    fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        match self.way {
            Way::Socket => send(
                self.file.as_raw_fd(),
                bytes,
                MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL,
            ),
            Way::Plain => nix::unistd::write(&self.file, bytes),
            Way::Careful if !self.has_room(PollTimeout::ZERO)? => Err(Errno::EAGAIN),
            Way::Careful => {
                nix::unistd::write(&self.file, &bytes[..bytes.len().min(libc::PIPE_BUF)])
            }
        }
    }

    fn has_room(&self, timeout: PollTimeout) -> Result<bool, Errno> {
        poll(
            &mut [PollFd::new(self.file.as_fd(), PollFlags::POLLOUT)],
            timeout,
        )
        .map(|n| n > 0)
    }
}

impl AsFd for Destination {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A descriptor, and what waits to be written to it.
#[derive(Debug)]
pub(crate) struct Outbox {
    to: Destination,
    queue: RefCell<Queue>,
}

impl Outbox {
    /// An empty queue before `to`.
    ///
    /// # Errors
    /// The system cannot tell what kind of file it is.
    pub(crate) fn new(to: File) -> io::Result<Self> {
        Ok(Self {
            to: Destination::new(to)?,
            queue: RefCell::default(),
        })
    }

    /// Adds what `write` writes, if it is at most `cap` bytes, and returns its length;
    /// `None` when it is longer, or no text.
    pub(crate) fn add(
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
    pub(crate) fn has_room(&self) -> bool {
        self.queue.borrow().len() < ROOM
    }

    /// The descriptor to wait for, while something waits to be written.
    pub(crate) fn waits_for(&self) -> Option<BorrowedFd<'_>> {
        (self.queue.borrow().len() > 0).then(|| self.to.as_fd())
    }

    /// Writes what it can without waiting, for a turn.
    pub(crate) fn flush(&self) {
        self.queue.borrow_mut().flush(&self.to);
    }

    /// Waits until there is room for more.
    pub(super) fn make_room(&self) {
        self.queue.borrow_mut().make_room(&self.to);
    }

    /// Why nothing can be written any more.
    pub(crate) fn broken(&self) -> Option<Errno> {
        self.queue.borrow().broken()
    }

    /// Writes all that waits, and returns the way to write more.
    pub(super) fn drain(&self) -> (BlockingWriter<'_>, io::Result<()>) {
        let mut to = BlockingWriter(&self.to);
        let drained = self.queue.borrow_mut().drain(&mut to);
        (to, drained)
    }
}

/// The same pipe or terminal by an open file description of our own.
fn open_anew(file: &File) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    File::options()
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
}

/// What waits to be written.
#[derive(Debug, Default)]
pub(crate) struct Queue {
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
            match BlockingWriter(to).write(next) {
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

/// Waits for the reader, but not for ever: a write fails with `TimedOut` after
/// [`PATIENCE`] without room.
pub(super) struct BlockingWriter<'a>(&'a Destination);

impl Write for BlockingWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.0.write(bytes) {
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                done => return Ok(done?),
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            match self.0.has_room(timeout) {
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
    use std::os::unix::net::UnixStream;

    use nix::fcntl::{FcntlArg, OFlag, fcntl};

    use super::*;

    fn fill(queue: &mut Queue, bytes: usize) {
        queue.write_all(&vec![b'x'; bytes]).unwrap();
    }

    /// Fills `to` until it takes no more; nothing waited, or the test would hang.
    fn stuck(to: &Destination) -> Queue {
        let mut queue = Queue::default();
        fill(&mut queue, 8 << 20);
        for _ in 0..100 {
            queue.flush(to);
        }
        assert!(queue.len() > 0);
        queue
    }

    #[test]
    fn a_pipe_that_is_full_is_left_alone() {
        let (mut read, write) = io::pipe().unwrap();
        let shared = write.try_clone().unwrap();
        let own = Destination::new(OwnedFd::from(write.try_clone().unwrap()).into()).unwrap();
        assert_eq!(own.way, Way::Plain);
        let careful = Destination {
            file: OwnedFd::from(write).into(),
            way: Way::Careful,
        };
        for to in [own, careful] {
            let mut queue = stuck(&to);
            let flags = fcntl(&shared, FcntlArg::F_GETFL).unwrap();
            assert!(!OFlag::from_bits_retain(flags).contains(OFlag::O_NONBLOCK));
            let before = queue.len();
            read.read_exact(&mut vec![0; 16 << 10]).unwrap();
            queue.flush(&to);
            assert!(queue.len() < before);
        }
    }

    #[test]
    fn a_socket_that_is_full_is_left_alone() {
        let (_read, write) = UnixStream::pair().unwrap();
        let to = Destination::new(OwnedFd::from(write).into()).unwrap();
        assert_eq!(to.way, Way::Socket);
        stuck(&to);
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
        assert!(queue.drain(&mut BlockingWriter(&to)).is_err());
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
