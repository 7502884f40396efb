//! Ends everything in a cell's cgroup and removes it.
//!
//! Nothing here allocates memory: a process that was forked for this, and may
//! have no other working part of the program left, uses it too.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::Mode;
use nix::sys::uio::pread;
use nix::unistd::{UnlinkatFlags, unlinkat, write};

/// How long to sleep, in ms, where the kernel gives no event to wait for.
const NAP: u16 = 1;
/// After so many ms an event that should have come is looked for.
const DISTRUST: u16 = 50;

/// Kills all processes of the cgroup `name` below `parent` and removes it. That
/// it is gone already is success.
///
/// # Errors
/// `ETIMEDOUT` when processes are still there after `patience`, such as one
/// that sleeps uninterruptibly in the kernel.
pub(super) fn dispose(
    parent: BorrowedFd<'_>,
    name: &CStr,
    patience: Duration,
) -> Result<(), Errno> {
    let deadline = Instant::now() + patience;
    loop {
        match unlinkat(parent, name, UnlinkatFlags::RemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => return Ok(()),
            Err(Errno::EBUSY) if Instant::now() < deadline => {}
            Err(Errno::EBUSY) => return Err(Errno::ETIMEDOUT),
            Err(errno) => return Err(errno),
        }
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        let cell = match openat(parent, name, flags, Mode::empty()) {
            Err(Errno::ENOENT) => return Ok(()),
            other => other?,
        };
        // Before Linux 5.14 there is no such file; then the end of the cell's
        // pid namespace ends its processes.
        match kill(&cell) {
            Ok(()) | Err(Errno::ENOENT | Errno::ENODEV) => {}
            Err(errno) => return Err(errno),
        }
        empty(&cell, deadline)?;
    }
}

/// Kills all processes of `cell`, also those that are being forked now
/// (`cgroup.kill`, Linux 5.14).
pub(super) fn kill(cell: impl AsFd) -> Result<(), Errno> {
    let file = openat(
        cell,
        c"cgroup.kill",
        OFlag::O_WRONLY | OFlag::O_CLOEXEC,
        Mode::empty(),
    )?;
    write(file, b"1").map(drop)
}

/// Waits until `cell` has no processes, or the deadline is over.
fn empty(cell: impl AsFd, deadline: Instant) -> Result<(), Errno> {
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    let events = match openat(cell, c"cgroup.events", flags, Mode::empty()) {
        Err(Errno::ENOENT | Errno::ENODEV) => return Ok(()),
        other => other?,
    };
    while Instant::now() < deadline {
        let mut text = [0_u8; 128];
        let length = match pread(&events, &mut text, 0) {
            Err(Errno::ENODEV) => return Ok(()),
            other => other?,
        };
        let populated = text[..length]
            .windows(b"populated 1".len())
            .any(|window| window == b"populated 1");
        if !populated {
            // Removing it comes next; should that be too early, then not again
            // at once.
            return wait(&mut [], NAP);
        }
        wait(
            &mut [PollFd::new(events.as_fd(), PollFlags::POLLPRI)],
            DISTRUST,
        )?;
    }
    Ok(())
}

/// poll(2) for `ms`, or less when a signal comes.
fn wait(events: &mut [PollFd<'_>], ms: u16) -> Result<(), Errno> {
    match poll(events, PollTimeout::from(ms)) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(errno) => Err(errno),
    }
}
