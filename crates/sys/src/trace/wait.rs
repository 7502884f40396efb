//! Waiting for a traced process, with a deadline.

use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::unistd::Pid;

/// How often the processor is given away before the wait sleeps: most stops follow within
/// microseconds.
const YIELDS: u32 = 200;
const NAP: Duration = Duration::from_micros(50);

/// Why a traced process stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Its tracer interrupted it, or it belongs to a stopped group.
    Interrupted,
    /// This signal is about to be delivered.
    Signal(i32),
    /// It has ended.
    Gone,
}

/// Waits until the process stops or ends.
pub(super) fn for_stop(pid: Pid, deadline: Instant) -> Result<Stop, Errno> {
    let status = wait(pid, deadline)?;
    if !libc::WIFSTOPPED(status) {
        return Ok(Stop::Gone);
    }
    Ok(match status >> 16 {
        libc::PTRACE_EVENT_STOP => Stop::Interrupted,
        _ => Stop::Signal(libc::WSTOPSIG(status)),
    })
}

/// Waits until a killed process has ended, so that its parent can wait for it.
pub(super) fn for_end(pid: Pid, deadline: Instant) -> Result<(), Errno> {
    while libc::WIFSTOPPED(wait(pid, deadline)?) {}
    Ok(())
}

fn wait(pid: Pid, deadline: Instant) -> Result<i32, Errno> {
    let mut status = 0;
    let mut tries = 0;
    loop {
        let options = libc::__WALL | libc::WNOHANG;
        // SAFETY: `status` is valid for writing.
        match Errno::result(unsafe { libc::waitpid(pid.as_raw(), &raw mut status, options) }) {
            Ok(0) => {}
            Ok(_) => return Ok(status),
            Err(Errno::EINTR) => continue,
            Err(Errno::ECHILD) => return Err(Errno::ESRCH),
            Err(errno) => return Err(errno),
        }
        tries += 1;
        if tries < YIELDS {
            std::thread::yield_now();
        } else if Instant::now() < deadline {
            std::thread::sleep(NAP);
        } else {
            return Err(Errno::ETIMEDOUT);
        }
    }
}
