//! Pid 1 of a running cell.

use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::MsgFlags;
use nix::unistd::Pid;

use super::command::Command;
use super::fail::{At, Call, Fail, Site};
use super::report::Reporter;
use record::error::Step;
use sys::clone::vfork_shared;
use sys::process::{self, ProcessCount};
use sys::shared::Progress;

/// All processes of the cell but init: from pid 1, -1 is everybody else in the
/// namespace.
const ALL: Pid = Pid::from_raw(-1);

/// What init needs for its remaining life.
pub(super) struct Init {
    pub(super) signals: SigSet,
    pub(super) program: Pid,
    /// Whether nothing else counts processes.
    pub(super) counts: bool,
    /// Whether the program's end is not the cell's: the copies of a template are in
    /// namespaces below this one's, and go on.
    pub(super) stays: bool,
    /// The program's side of the cell's terminal: a program that closes its own, and opens
    /// it again by its name, is not to find it hung up.
    pub(super) terminal: Option<OwnedFd>,
}

/// Blocks the signals that init waits for, before there is a child.
pub(super) fn block_signals() -> Result<SigSet, Fail> {
    let signals = SigSet::from_iter([Signal::SIGCHLD, Signal::SIGTERM]);
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&signals), None)
        .at(Site::new(Step::Report), Call::Sigprocmask)?;
    Ok(signals)
}

impl Init {
    /// Waits for the program's end, or for the supervisor's order; then kills and
    /// reaps all that is left, so that its use is counted, and reports. Returns
    /// the exit status.
    pub(super) fn run(&self, socket: &OwnedFd, progress: &Progress) -> i32 {
        let terminal = self.terminal.as_ref().map(AsFd::as_fd);
        let kept: Vec<_> = terminal.into_iter().chain([socket.as_fd()]).collect();
        // SAFETY: init goes from here straight to `_exit`; nothing that owns
        // another descriptor is used or dropped again.
        let _ = unsafe { process::close_from(0, &kept) };
        let report = Reporter::new(socket, progress);
        let status = self.serve(&report);
        let _ = kill(ALL, Signal::SIGKILL);
        progress.note_all_killed();
        self.reap_all(status, &report);
        0
    }

    /// Serves the supervisor until the end. Returns the program's wait status, if
    /// it ended before the supervisor ended it.
    fn serve(&self, report: &Reporter<'_>) -> Option<i32> {
        let signals = SignalFd::with_flags(&self.signals, SfdFlags::SFD_NONBLOCK).ok()?;
        loop {
            if let Some(status) = self.reap_dead()
                && !self.stays
            {
                return Some(status);
            }
            let mut ready = [
                PollFd::new(signals.as_fd(), PollFlags::POLLIN),
                PollFd::new(report.socket(), PollFlags::POLLIN),
            ];
            match poll(&mut ready, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(_) => return None,
            }
            if is_asked_to_end(&signals) || !self.obey(report) {
                return self.reap_dead();
            }
        }
    }

    /// Carries out what the supervisor has asked for; false when that is the end.
    fn obey(&self, report: &Reporter<'_>) -> bool {
        loop {
            match Command::receive(report.socket(), MsgFlags::MSG_DONTWAIT) {
                // To the program's process group: a shell heeds a trap only once
                // the command it waits for has ended too. The program leads its
                // session, so it cannot leave the group.
                Ok(Some(Command::Signal(signal))) => {
                    let _ = kill(Pid::from_raw(-self.program.as_raw()), signal);
                }
                Ok(Some(Command::Freeze)) => {
                    let _ = kill(ALL, Signal::SIGSTOP);
                    report.frozen();
                }
                Ok(Some(Command::Thaw)) => {
                    let _ = kill(ALL, Signal::SIGCONT);
                }
                Ok(Some(Command::Go | Command::Adopt(_))) | Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return true,
                Ok(Some(Command::End) | None) | Err(_) => return false,
            }
        }
    }

    /// Reaps what has ended; returns the program's status if it was among them.
    fn reap_dead(&self) -> Option<i32> {
        while let Ok(Some((pid, status))) = process::reap(false) {
            if pid == self.program {
                return Some(status);
            }
        }
        None
    }

    /// Reaps everything and reports. `status` is the program's, if it was reaped
    /// before.
    fn reap_all(&self, mut status: Option<i32>, report: &Reporter<'_>) {
        let mut at_end = u32::from(status.is_some());
        while let Ok(Some((pid, ended))) = process::reap(true) {
            at_end += 1;
            if pid == self.program {
                status = status.or(Some(ended));
            }
        }
        let mut usage = process::children_usage();
        usage.count = ProcessCount {
            at_end,
            started: self.counts.then(|| started(self.program)).flatten(),
        };
        report.ended(status.unwrap_or(libc::SIGKILL), usage);
    }
}

/// Whether a SIGTERM came from outside of the cell: a process in it cannot send one
/// that looks so. Only the kernel and kill(2) give `si_code` 0 together with a
/// sender that has no pid here (rt_sigqueueinfo(2)).
fn is_asked_to_end(signals: &SignalFd) -> bool {
    let mut is_asked = false;
    while let Ok(Some(info)) = signals.read_signal() {
        is_asked |= info.ssi_signo == Signal::SIGTERM as u32
            && info.ssi_code == libc::SI_USER
            && info.ssi_pid == 0;
    }
    is_asked
}

/// How many processes and threads were started since the program was, itself
/// included. The kernel numbers them in order (pid_namespaces(7)), so the number
/// of one more shows it; a refused one gets none.
fn started(program: Pid) -> Option<u32> {
    /// Below this, numbers are not given out again when the last one has been.
    const FIRST_AGAIN: i32 = 300;
    // SAFETY: init has one thread, and the child does nothing.
    let next = unsafe { vfork_shared(|| 0) }.ok()?;
    let _ = process::reap(true);
    let count = next.as_raw() - program.as_raw();
    (next.as_raw() < FIRST_AGAIN)
        .then(|| u32::try_from(count).ok())
        .flatten()
}
