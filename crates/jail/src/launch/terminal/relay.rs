//! The loop of the relay. Output of the cell's terminal is hostile input. The relay passes it on
//! unchanged: to the caller's terminal, like the output of any program, and to the supervisor.

use std::os::fd::{AsFd as _, BorrowedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{read, write};

use sys::terminal::Size;

/// Bytes that are carried at once.
const CHUNK: usize = 4096;

/// What the supervisor sends once the caller's terminal is in raw mode. Before that, the terminal
/// would turn each newline of the program's into two bytes a second time.
pub(super) const BEGIN: u8 = b'b';

/// What the relay has open.
pub(super) struct Ends<'a> {
    /// Brings [`BEGIN`], and hangs up when the supervisor ends.
    pub(super) supervisor: BorrowedFd<'a>,
    /// The caller's terminal.
    pub(super) terminal: BorrowedFd<'a>,
    /// The cell's; non-blocking.
    pub(super) master: BorrowedFd<'a>,
    /// Where a copy of what the cell's terminal shows goes.
    pub(super) copy: BorrowedFd<'a>,
}

/// Carries bytes and sizes until no process has the cell's terminal open any more, or the
/// caller's terminal or the supervisor is gone.
pub(super) fn run(ends: &Ends<'_>) {
    // A call fails when one of them is gone.
    let _ = carry(ends);
}

fn carry(ends: &Ends<'_>) -> Result<(), Errno> {
    if !has_begun(ends.supervisor)? {
        return Ok(());
    }
    let resized = SigSet::from_iter([Signal::SIGWINCH]);
    resized.thread_block()?;
    let resizes = SignalFd::with_flags(&resized, SfdFlags::SFD_NONBLOCK)?;
    // The size may have changed since the cell's terminal was made.
    Size::of(ends.terminal)?.apply(ends.master)?;
    let mut buffer = [0; CHUNK];
    let mut typed = Vec::new();
    loop {
        let (into, from) = match typed.is_empty() {
            true => (PollFlags::empty(), PollFlags::POLLIN),
            // Earlier keys wait until the cell's terminal has room.
            false => (PollFlags::POLLOUT, PollFlags::empty()),
        };
        let mut fds = [
            PollFd::new(ends.supervisor, PollFlags::POLLIN),
            PollFd::new(resizes.as_fd(), PollFlags::POLLIN),
            PollFd::new(ends.master, PollFlags::POLLIN | into),
            PollFd::new(ends.terminal, from),
        ];
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
        let [supervisor, resize, master, terminal] =
            fds.map(|fd| fd.revents().unwrap_or(PollFlags::empty()));
        if !supervisor.is_empty() {
            return Ok(());
        }
        if !resize.is_empty() {
            while let Ok(Some(_)) = resizes.read_signal() {}
            Size::of(ends.terminal)?.apply(ends.master)?;
        }
        if master.contains(PollFlags::POLLOUT) {
            match write(ends.master, &typed) {
                Ok(count) => drop(typed.drain(..count)),
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        if master.intersects(PollFlags::POLLIN | PollFlags::POLLHUP | PollFlags::POLLERR) {
            match read(ends.master, &mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => {
                    write_all(ends.terminal, &buffer[..count])?;
                    write_all(ends.copy, &buffer[..count])?;
                }
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                // EIO: no process has the other side open.
                Err(errno) => return Err(errno),
            }
        }
        if terminal.intersects(PollFlags::POLLHUP | PollFlags::POLLERR) {
            return Ok(());
        }
        if terminal.contains(PollFlags::POLLIN) {
            match read(ends.terminal, &mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => typed.extend_from_slice(&buffer[..count]),
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

/// Waits for [`BEGIN`]; returns false if the supervisor has ended instead.
fn has_begun(supervisor: BorrowedFd<'_>) -> Result<bool, Errno> {
    loop {
        match read(supervisor, &mut [0]) {
            Ok(count) => return Ok(count > 0),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

fn write_all(to: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match write(to, bytes) {
            Ok(count) => bytes = &bytes[count..],
            // Another process may have made the caller's terminal non-blocking.
            Err(Errno::EAGAIN) => {
                let _ = poll(
                    &mut [PollFd::new(to, PollFlags::POLLOUT)],
                    PollTimeout::NONE,
                );
            }
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
