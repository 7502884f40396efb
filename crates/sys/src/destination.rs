//! Descriptors of others that are written to without waiting.

use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, send};

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
pub struct Destination {
    file: File,
    way: Way,
}

impl Destination {
    /// Finds out how to write to `file`.
    ///
    /// # Errors
    /// The kernel does not say what it is.
    pub fn new(file: File) -> io::Result<Self> {
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
    /// # Errors
    /// EAGAIN, or why nothing can be written any more.
    pub fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
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

    /// Whether something can be written, waiting for it as long as `timeout`.
    ///
    /// # Errors
    /// EINTR, or what poll(2) reports.
    pub fn has_room(&self, timeout: PollTimeout) -> Result<bool, Errno> {
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

/// The same pipe or terminal by an open file description of our own.
fn open_anew(file: &File) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    File::options()
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use nix::fcntl::{FcntlArg, OFlag, fcntl};

    use super::*;

    /// Fills `to` until it takes no more; nothing waited, or the test would hang.
    fn fill(to: &Destination) -> usize {
        let mut sum = 0;
        loop {
            match to.write(&[b'x'; 4096]) {
                Ok(count) => sum += count,
                Err(Errno::EINTR) => {}
                Err(errno) => {
                    assert_eq!(errno, Errno::EAGAIN);
                    return sum;
                }
            }
        }
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
            fill(&to);
            let flags = fcntl(&shared, FcntlArg::F_GETFL).unwrap();
            assert!(!OFlag::from_bits_retain(flags).contains(OFlag::O_NONBLOCK));
            read.read_exact(&mut vec![0; 16 << 10]).unwrap();
            assert!(fill(&to) > 0);
        }
    }

    #[test]
    fn a_socket_that_is_full_is_left_alone() {
        let (_read, write) = UnixStream::pair().unwrap();
        let to = Destination::new(OwnedFd::from(write).into()).unwrap();
        assert_eq!(to.way, Way::Socket);
        assert!(fill(&to) > 0);
    }
}
