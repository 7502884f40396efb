//! Kills the processes in a cell's cgroup and removes it.
//!
//! The janitor does so when the supervisor was killed. It is a child of the
//! supervisor, made before the cgroup is. It has two descriptors: one for the
//! supervisor, which becomes readable when that is dead, and one for the cgroup's
//! parent. (A pipe that ends with the supervisor would depend on every other child
//! closing its copy in time.) A supervisor that has removed the cgroup itself ends
//! the janitor and waits for it, so that no caller inherits a zombie.
//!
//! Nothing here allocates memory, since the janitor shares the supervisor's.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::Mode;
use nix::sys::uio::pread;
use nix::unistd::{UnlinkatFlags, unlinkat, write};

use sys::survivor::Survivor;

/// How long the janitor waits for killed processes to be gone. Nothing waits for it.
const JANITOR_PATIENCE: Duration = Duration::from_secs(30);

/// How long to sleep, in ms, where the kernel gives no event to wait for.
const NAP: u16 = 1;
/// How long to wait for an event, in ms, before looking without one.
const DISTRUST: u16 = 50;

/// Starts a janitor for the cgroup `name` below `parent`, which need not exist yet.
pub(super) fn start_janitor(parent: BorrowedFd<'_>, name: CString) -> Result<Survivor, Errno> {
    Survivor::start(parent, name, |parent, name| {
        // A failure has no consequence; a sweep tries again.
        let _ = dispose(parent, name, JANITOR_PATIENCE);
    })
}

/// Kills all processes of the cgroup `name` below `parent` and removes it. One that
/// is gone already is a success.
///
/// # Errors
/// `ETIMEDOUT` when a process is still there after `patience`, for example because
/// it sleeps uninterruptibly in the kernel.
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

/// Waits until `cell` has no processes, or until the deadline.
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
            // Its directory may still be busy for a moment.
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
