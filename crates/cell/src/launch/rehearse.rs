//! A launch of parts of a cell, without a program (`doctor`).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};

use super::{clone_flags, has_message, in_words, map_ids, release, require_one_thread};
use crate::child::report::Message;
use crate::child::{self, Content, Filter, Prepared};
use crate::plan::{Fallback, Namespace, Plan};
use record::error::{Result, SetupError, Step};
use sys::clone::{Fork, fork_into};
use sys::process::pidfd_send_signal;
use sys::shared::Progress;

/// How long a rehearsal may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Sets up what `plan` holds in a child process of its own, until `last` is
/// done, and throws it away.
///
/// # Errors
/// The step that failed, on either side.
pub(crate) fn rehearse(plan: &Plan, filter: Option<&Filter>, last: Step) -> Result<()> {
    require_one_thread()?;
    let (report, child_report) = socketpair(
        AddressFamily::Unix,
        SockType::SeqPacket,
        None,
        SockFlag::SOCK_CLOEXEC,
    )
    .map_err(|e| SetupError::os(Step::Clone, "socketpair", e))?;
    let progress = Progress::new().map_err(|e| SetupError::os(Step::Clone, "mmap", e))?;
    // SAFETY: this process has one thread, as just checked.
    let forked = unsafe { fork_into(clone_flags(plan), None) };
    let (pid, pidfd) = match forked.map_err(|e| SetupError::os(Step::Clone, "clone3", e))? {
        Fork::Child => {
            let cell = Prepared {
                plan,
                fallback: &Fallback::default(),
                cpus: &[],
                report: child_report,
                progress: &progress,
                content: Content::default(),
                stdio: [None, None, None],
                shields: Vec::new(),
                channel: Vec::new(),
                filter,
            };
            child::rehearse(&cell, last)
        }
        Fork::Parent { pid, pidfd } => (pid, pidfd),
    };
    drop(child_report);
    let mapped = if last != Step::Clone && plan.has(Namespace::User) {
        map_ids(pid, &plan.ids).and_then(|()| release(report.as_fd()))
    } else {
        Ok(())
    };
    let heard = match mapped {
        // The child may have failed first, and then tells more.
        Err(error) if !has_message(report.as_fd()) => Err(error),
        _ => hear(plan, report.as_fd(), Instant::now() + PATIENCE),
    };
    reap(heard, &pidfd, &progress)
}

/// Ends the child, and says how it did.
fn reap(heard: Result<()>, pidfd: &OwnedFd, progress: &Progress) -> Result<()> {
    if heard.is_err() {
        let _ = pidfd_send_signal(pidfd.as_fd(), Signal::SIGKILL);
    }
    let status = waitid(Id::PIDFd(pidfd.as_fd()), WaitPidFlag::WEXITED);
    // A filter killed it: what failed on this side failed because of that.
    let by_filter = matches!(status, Ok(WaitStatus::Signaled(_, Signal::SIGSYS, _)));
    if !by_filter {
        heard?;
    }
    match status {
        Ok(WaitStatus::Exited(_, 0)) => Ok(()),
        Ok(WaitStatus::Signaled(_, signal, _)) => Err(SetupError::new(
            progress.step().unwrap_or(Step::Clone),
            format!("killed by {signal}"),
        )),
        _ => Err(SetupError::new(
            progress.step().unwrap_or(Step::Clone),
            "ended without a word",
        )),
    }
}

fn hear(plan: &Plan, report: BorrowedFd<'_>, deadline: Instant) -> Result<()> {
    loop {
        readable(report, deadline)?;
        match Message::receive(report) {
            Ok(Some(Message::Failed {
                step,
                syscall,
                errno,
                item,
            })) => return Err(in_words(plan, step, syscall, errno, item)),
            Ok(Some(Message::Started { fds })) => {
                for listener in fds {
                    readable(listener.as_fd(), deadline)?;
                    match sys::seccomp::deny_next(listener.as_fd(), |_| Errno::EPERM) {
                        // A filter further out denied the call first, and the
                        // child, which checks that it is denied, has ended.
                        Ok(_) | Err(Errno::ENOENT) => {}
                        Err(errno) => return Err(SetupError::os(Step::Seccomp, "ioctl", errno)),
                    }
                }
            }
            Ok(Some(Message::Ended { .. })) | Err(Errno::EINTR | Errno::EAGAIN) => {}
            Ok(None) | Err(Errno::ECONNRESET) => return Ok(()),
            Err(errno) => return Err(SetupError::os(Step::Report, "recvmsg", errno)),
        }
    }
}

/// Waits until there is something to read, or the other end is gone.
fn readable(fd: BorrowedFd<'_>, deadline: Instant) -> Result<()> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], timeout) {
            Ok(0) => {
                return Err(SetupError::new(
                    Step::Report,
                    format!("not done after {} seconds", PATIENCE.as_secs()),
                ));
            }
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(SetupError::os(Step::Report, "poll", errno)),
        }
    }
}
