//! Pid 1 of a running cell.

use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, sigprocmask};
use nix::unistd::Pid;

use super::attempt;
use super::fail::{Call, Fail, Verb};
use super::report::{self, Reporter};
use record::error::Step;
use sys::clone::vfork_shared;
use sys::process::{self, ProcessCount};
use sys::shared::Progress;

/// The supervisor's order to end everything.
const END: Signal = Signal::SIGTERM;
/// The supervisor's hint that the socket holds the number of a signal for the
/// program.
const WORD: Signal = Signal::SIGUSR1;

/// What init needs for its remaining life.
pub(super) struct Reaper {
    signals: SigSet,
    program: Pid,
    /// Whether nothing else counts processes.
    counts: bool,
}

impl Reaper {
    /// Blocks the signals that init waits for, before there is a child.
    pub(super) fn prepare(_report: &Reporter<'_>) -> Result<Self, Fail> {
        let mut signals = SigSet::empty();
        for signal in [Signal::SIGCHLD, END, WORD] {
            signals.add(signal);
        }
        attempt(Verb::new(Step::Report, Call::Sigprocmask), || {
            sigprocmask(SigmaskHow::SIG_SETMASK, Some(&signals), None)
        })?;
        Ok(Self {
            signals,
            program: Pid::from_raw(-1),
            counts: false,
        })
    }

    pub(super) fn with(self, program: Pid, counts: bool) -> Self {
        Self {
            program,
            counts,
            ..self
        }
    }
}

/// Waits for the program's end, or for the supervisor's word; then kills and
/// reaps all that is left, so that its use is counted, and reports.
pub(super) fn reap(reaper: &Reaper, report: &OwnedFd, progress: &Progress) -> i32 {
    // SAFETY: init goes from here straight to `_exit`; nothing that owns
    // another descriptor is used or dropped again.
    let _ = unsafe { process::close_all_but(report.as_fd()) };
    let status = wait_for(reaper, report);
    // From pid 1, -1 is everybody else in the namespace.
    let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
    progress.note_all_killed();
    reap_all(reaper, status, report)
}

/// The program's wait status, if it ended before the supervisor ended it.
fn wait_for(reaper: &Reaper, report: &OwnedFd) -> Option<i32> {
    loop {
        if let Some(status) = reap_the_dead(reaper.program) {
            return Some(status);
        }
        match process::wait_signal(&reaper.signals) {
            Ok(received) if received.signal == END as i32 && received.from_outside => {
                return reap_the_dead(reaper.program);
            }
            // Whoever sent it: only the supervisor writes to the socket.
            Ok(received) if received.signal == WORD as i32 => pass_on(reaper.program, report),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return None,
        }
    }
}

/// Sends the signals that the supervisor names to the program's process group: a
/// shell heeds a trap only once the command it waits for has ended too. The
/// program leads its session, so it cannot leave the group.
fn pass_on(program: Pid, report: &OwnedFd) {
    while let Some(signal) = report::signal_to_pass_on(report.as_fd()) {
        let _ = kill(Pid::from_raw(-program.as_raw()), signal);
    }
}

/// Reaps whatever has ended; returns the program's status if it was among them.
fn reap_the_dead(program: Pid) -> Option<i32> {
    while let Ok(Some((pid, status))) = process::reap(false) {
        if pid == program {
            return Some(status);
        }
    }
    None
}

fn reap_all(reaper: &Reaper, mut status: Option<i32>, report: &OwnedFd) -> i32 {
    // The program was there as well, even if it was reaped first.
    let mut at_end = u32::from(status.is_some());
    while let Ok(Some((pid, ended))) = process::reap(true) {
        at_end += 1;
        if pid == reaper.program {
            status = status.or(Some(ended));
        }
    }
    let mut usage = process::children_usage();
    usage.count = ProcessCount {
        at_end,
        started: reaper.counts.then(|| started(reaper.program)).flatten(),
    };
    report::ended(report.as_fd(), status.unwrap_or(libc::SIGKILL), usage);
    0
}

/// How many processes and threads were started since the program was, itself
/// included. The kernel numbers them in order (pid_namespaces(7)), so the number
/// of one more tells; refused ones get none.
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
