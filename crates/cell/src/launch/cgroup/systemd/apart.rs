//! A conversation in a process of its own: whatever the other side of a socket
//! does, it costs a bounded time, and leaves nothing in the process that makes
//! cells.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::pipe2;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::bus::failure;
use record::error::{Result, SetupError, Step};
use sys;

/// Does `work` in a child and returns its result. The child is killed when it
/// takes longer than `patience`, and when this process dies.
pub(super) fn apart<T: Serialize + DeserializeOwned>(
    patience: Duration,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let failed = |call| move |errno| SetupError::os(Step::Cgroup, call, errno);
    let (report, write_end) = pipe2(OFlag::O_CLOEXEC).map_err(failed("pipe2"))?;
    let write_end = File::from(write_end);
    let child = sys::cgroup::fork_apart(|| {
        let tied = set_pdeathsig(Signal::SIGKILL).map_err(failed("prctl"));
        let outcome = tied.and_then(|()| work());
        let text = serde_json::to_vec(&outcome).unwrap_or_default();
        i32::from((&write_end).write_all(&text).is_err())
    })
    .map_err(failed("clone3"))?;
    drop(write_end);
    let mut ended = [PollFd::new(child.as_fd(), PollFlags::POLLIN)];
    let deadline = Instant::now() + patience;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        match poll(&mut ended, left) {
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(failed("poll")(errno)),
            Ok(_) => break,
        }
    }
    // The reply is short enough for the pipe to hold it.
    let _ = sys::process::pidfd_send_signal(child.as_fd(), Signal::SIGKILL);
    while waitid(Id::PIDFd(child.as_fd()), WaitPidFlag::WEXITED) == Err(Errno::EINTR) {}
    let mut text = Vec::new();
    File::from(report)
        .read_to_end(&mut text)
        .map_err(|error| SetupError::io(Step::Cgroup, "read", &error))?;
    serde_json::from_slice(&text).unwrap_or_else(|_| Err(failure("systemd did not answer in time")))
}
