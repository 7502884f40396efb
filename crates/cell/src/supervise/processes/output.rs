//! What a process writes.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::unistd::read;

use super::ProcessStream;

/// The most that is read at once.
const TURN: usize = 64 << 10;
/// How long a terminal may take to show what was written before its process ended: the
/// kernel hands it over in its own time.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// A stream of a process, which its children can have as well.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) stream: ProcessStream,
    /// `None` once nothing more is read.
    fd: Option<OwnedFd>,
    /// Bytes that were in the pipe when the process had ended.
    left: Option<usize>,
    /// Until when a terminal is read after that.
    until: Option<Instant>,
}

impl Output {
    pub(super) fn new(stream: ProcessStream, fd: OwnedFd) -> Self {
        Self {
            stream,
            fd: Some(fd),
            left: None,
            until: None,
        }
    }

    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(|fd| fd.as_fd())
    }

    /// What is to be waited for, so that something can be read.
    pub(super) fn waits_for(&self) -> Option<BorrowedFd<'_>> {
        self.fd().filter(|_| self.left != Some(0))
    }

    /// When it is over though nothing more has come.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until.filter(|_| self.fd.is_some())
    }

    /// Whether all has been read.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.waits_for().is_none() || self.until.is_some_and(|until| until <= now)
    }

    /// Reads at most once; returns the number of bytes.
    pub(super) fn read(&mut self, take: impl FnOnce(&[u8])) -> usize {
        let Some(fd) = &self.fd else {
            return 0;
        };
        let mut buffer = [0; TURN];
        let most = self.left.map_or(TURN, |left| left.min(TURN));
        match read(fd, &mut buffer[..most]) {
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

    /// Its process has ended. What others write from now on is not read.
    pub(super) fn writer_has_ended(&mut self) {
        match self.stream {
            ProcessStream::Terminal => self.until = Some(Instant::now() + LAST_WORDS),
            ProcessStream::Stdout | ProcessStream::Stderr => {
                let left = self.fd().map(|fd| sys::process::readable(fd).unwrap_or(0));
                self.left = Some(left.unwrap_or(0));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::fcntl::OFlag;
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
        assert!(!output.is_over(Instant::now()));
        assert_eq!(output.read(|bytes| heard.extend(bytes)), 6);
        assert!(output.is_over(Instant::now()));
        assert!(output.waits_for().is_none());
        assert_eq!(heard, b"before");
    }

    #[test]
    fn a_stream_is_over_when_nobody_has_it() {
        let (from, to) = pipe2(OFlag::O_NONBLOCK | OFlag::O_CLOEXEC).unwrap();
        let mut output = Output::new(ProcessStream::Stderr, from);
        assert_eq!(output.read(|_| panic!()), 0);
        assert!(!output.is_over(Instant::now()));
        drop(to);
        assert_eq!(output.read(|_| panic!()), 0);
        assert!(output.is_over(Instant::now()));
    }
}
