//! The output of a process.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::read;

use super::ProcessStream;

/// The most that is read at once.
const TURN: usize = 64 << 10;
/// Bytes, more than a terminal can hold: some 20 KiB, of which FIONREAD counts the first four.
const TERMINAL_HOLDS: usize = 64 << 10;

/// A stream of a process, which its children can hold as well.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) stream: ProcessStream,
    /// `None` once nothing more is read.
    fd: Option<OwnedFd>,
    /// Once the process has ended, the most bytes that are still read.
    left: Option<usize>,
}

impl Output {
    pub(super) fn new(stream: ProcessStream, fd: OwnedFd) -> Self {
        Self {
            stream,
            fd: Some(fd),
            left: None,
        }
    }

    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(|fd| fd.as_fd())
    }

    /// The descriptor to poll for reading, unless nothing more is read.
    pub(super) fn waits_for(&self) -> Option<BorrowedFd<'_>> {
        self.fd().filter(|_| self.left != Some(0))
    }

    /// Whether all has been read. Once its process has ended, it is also over when there is
    /// nothing to read, however much is left: any process of the cell can open a pipe by its
    /// name and read from it, or flush a terminal.
    pub(super) fn is_over(&self) -> bool {
        self.waits_for()
            .is_none_or(|fd| self.left.is_some() && is_empty(fd))
    }

    /// Reads at most once; returns the number of bytes.
    pub(super) fn read(&mut self, take: impl FnOnce(&[u8])) -> usize {
        let Some(fd) = &self.fd else {
            return 0;
        };
        let most = self.left.map_or(TURN, |left| left.min(TURN));
        // Not on the stack: this is inlined into the loop of every cell, also of one without such
        // processes, whose stack would grow by as much.
        let mut buffer = vec![0; most];
        match read(fd, &mut buffer) {
            Ok(count) if count > 0 => {
                self.left = self.left.map(|left| left.saturating_sub(count));
                take(&buffer[..count]);
                count
            }
            Err(Errno::EAGAIN | Errno::EINTR) => 0,
            // EIO: no process has the terminal any more.
            Ok(_) | Err(_) => {
                self.fd = None;
                0
            }
        }
    }

    /// Notes that its process has ended. Of what others write from now on, nothing is read from a
    /// pipe, and from a terminal no more than it can hold.
    pub(super) fn writer_has_ended(&mut self) {
        match self.stream {
            ProcessStream::Terminal => self.left = Some(TERMINAL_HOLDS),
            ProcessStream::Stdout | ProcessStream::Stderr => {
                let left = self.fd().map(|fd| sys::process::readable(fd).unwrap_or(0));
                self.left = Some(left.unwrap_or(0));
            }
        }
    }
}

/// Whether there is nothing to read. For poll(2) of a terminal's master, the kernel first
/// passes on what was written to the other side (n_tty_poll).
fn is_empty(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    // If poll(2) fails, there may be something.
    let polled = poll(&mut fds, PollTimeout::ZERO).is_ok();
    let [fd] = fds;
    polled && !(fd.revents()).is_some_and(|seen| seen.contains(PollFlags::POLLIN))
}

#[cfg(test)]
mod tests {
    use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
    use nix::sys::stat::Mode;
    use nix::unistd::{pipe2, write};

    use super::*;

    #[test]
    fn what_comes_after_the_end_of_its_process_is_not_read() {
        let (from, to) = pipe2(OFlag::O_NONBLOCK | OFlag::O_CLOEXEC).unwrap();
        let mut output = Output::new(ProcessStream::Stdout, from);
        write(&to, b"before").unwrap();
        output.writer_has_ended();
        write(&to, b"after").unwrap();
        let mut heard: Vec<u8> = Vec::new();
        assert!(!output.is_over());
        assert_eq!(output.read(|bytes| heard.extend(bytes)), 6);
        assert!(output.is_over());
        assert!(output.waits_for().is_none());
        assert_eq!(heard, b"before");
    }

    #[test]
    fn what_others_took_is_not_waited_for() {
        let (from, to) = pipe2(OFlag::O_NONBLOCK | OFlag::O_CLOEXEC).unwrap();
        let others = from.try_clone().unwrap();
        let mut output = Output::new(ProcessStream::Stdout, from);
        write(&to, b"before").unwrap();
        output.writer_has_ended();
        assert!(!output.is_over());
        assert_eq!(read(&others, &mut [0; 6]), Ok(6));
        // A child of its process has the pipe still.
        assert!(output.is_over());
    }

    /// A terminal, and its other side, neither of which waits.
    fn terminal() -> (Output, OwnedFd) {
        let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let master = open("/dev/ptmx", flags, Mode::empty()).unwrap();
        let line = sys::terminal::open_peer(master.as_fd()).unwrap();
        fcntl(&line, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
        (Output::new(ProcessStream::Terminal, master), line)
    }

    /// Writes what there is room for; returns the number of bytes.
    fn fill(line: &OwnedFd) -> usize {
        std::iter::from_fn(|| write(line, &[b'x'; 100]).ok()).sum()
    }

    #[test]
    fn a_terminal_is_read_to_its_end_however_late() {
        let (mut output, line) = terminal();
        let written = fill(&line);
        assert!(written > 4096 && written < TERMINAL_HOLDS, "{written}");
        assert!(!output.is_over());
        output.writer_has_ended();
        let mut heard = 0;
        while !output.is_over() {
            heard += output.read(|_| ());
        }
        assert_eq!(heard, written);
        // A child of its process still has it open.
        assert!(output.fd().is_some());
        drop(line);
        assert_eq!(output.read(|_| panic!()), 0);
        assert!(output.fd().is_none() && output.is_over());
    }

    #[test]
    fn a_terminal_is_over_though_a_child_goes_on_to_write() {
        let (mut output, line) = terminal();
        output.writer_has_ended();
        let mut heard = 0;
        loop {
            // It may have no room yet: the kernel makes that after a read, in its own time.
            fill(&line);
            if output.is_over() {
                break;
            }
            heard += output.read(|_| ());
        }
        assert_eq!(heard, TERMINAL_HOLDS);
    }

    #[test]
    fn a_stream_is_over_when_nobody_has_it() {
        let (from, to) = pipe2(OFlag::O_NONBLOCK | OFlag::O_CLOEXEC).unwrap();
        let mut output = Output::new(ProcessStream::Stderr, from);
        assert_eq!(output.read(|_| panic!()), 0);
        assert!(!output.is_over());
        drop(to);
        assert_eq!(output.read(|_| panic!()), 0);
        assert!(output.is_over());
    }
}
