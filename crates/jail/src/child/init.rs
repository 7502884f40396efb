//! Pid 1 of a running cell.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::MsgFlags;
use nix::unistd::Pid;

use super::command::{Command, Received};
use super::fail::{At, Call, Fail, Site};
use super::program::RESERVED;
use super::report::Reporter;
use super::supervisors::Supervisor;
use super::waiting::{await_stop, is_alone, started};
use super::{Prepared, Role};
use record::error::Step;
use sys::process::{self, ChildUsage, ProcessCount, Stopped};

/// All processes of the cell but init: from pid 1, -1 is everybody else in the
/// namespace.
const ALL: Pid = Pid::from_raw(-1);

/// The other side has closed its end, or sends nothing more. `POLLIN` would show this only after
/// all waiting messages have been received.
const HANGS_UP: PollFlags = PollFlags::from_bits_retain(libc::POLLRDHUP);

/// What init needs for its remaining life.
pub(super) struct Init<'a> {
    cell: &'a Prepared<'a>,
    signals: SignalFd,
    /// The exit status that the program announced when it began to wait to be ended.
    waits_with: Option<u8>,
    /// The program's side of the cell's terminal. It stays open here: otherwise a program that
    /// closes its own descriptors and opens the terminal again by name would find it hung up.
    pub(super) terminal: Option<OwnedFd>,
    /// Landlock rules that further processes apply to themselves in a copy's cell, as its program
    /// did: init's own rules are not scoped there.
    pub(super) ruleset: Option<OwnedFd>,
    /// The cell's own comes first. The indices stay the same while init obeys orders.
    supervisors: Vec<Supervisor<'a>>,
}

/// Blocks the signals that init waits for, before there is a child. The number of their
/// descriptor is above those that are replaced for a program.
pub(super) fn block_signals() -> Result<SignalFd, Fail> {
    let site = Site::new(Step::Report);
    let signals = SigSet::from_iter([Signal::SIGCHLD, Signal::SIGTERM]);
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&signals), None).at(site, Call::Sigprocmask)?;
    let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
    let low = SignalFd::with_flags(&signals, flags).at(site, Call::Signalfd)?;
    let high = process::duplicate_above(&low, RESERVED).at(site, Call::Dup)?;
    // SAFETY: a copy of a descriptor that signalfd(2) made.
    Ok(unsafe { SignalFd::from_owned_fd(high) })
}

impl<'a> Init<'a> {
    pub(super) fn new(cell: &'a Prepared<'a>, signals: SignalFd, program: Option<Pid>) -> Self {
        Self {
            cell,
            signals,
            waits_with: None,
            terminal: None,
            ruleset: None,
            supervisors: vec![Supervisor::own(&cell.report, program)],
        }
    }

    /// The cell's program; `None` in a cell without one.
    fn program(&self) -> Option<Pid> {
        self.supervisors.first().and_then(|own| own.program)
    }

    /// Waits for the program's end, or for the supervisor's order; then kills and
    /// reaps all that is left, so that its use is counted, and reports. Returns
    /// the exit status.
    pub(super) fn run(mut self) -> i32 {
        let report = Reporter::afterwards(&self.cell.report);
        let mut status = self.serve();
        let waiting = self.program().filter(|_| status.is_none());
        let mut is_reported = false;
        if let (Some(exit), Some(program)) = (self.waits_with, waiting) {
            let _ = kill(ALL, Signal::SIGSTOP);
            match await_stop(program, &self.signals) {
                Some(Stopped::Alive(used)) if is_alone(program) => {
                    self.report_stopped(exit, used, &report);
                    is_reported = true;
                }
                Some(Stopped::Ended(ended)) => status = Some(ended),
                // Other processes must be ended and counted, too.
                _ => {}
            }
        }
        let _ = kill(ALL, Signal::SIGKILL);
        self.cell.progress.note_all_killed();
        match is_reported {
            true => while let Ok(Some(_)) = process::reap(true) {},
            false => self.reap_all(status, &report),
        }
        0
    }

    /// Reports the end of a stopped program before it is killed, when nothing else runs. Its usage
    /// is known by then. The kernel would report it only after freeing the program's memory, which
    /// also takes the processor from the report.
    fn report_stopped(&self, exit: u8, used: ChildUsage, report: &Reporter<'_>) {
        let mut usage = used.and(process::children_usage());
        usage.count = ProcessCount {
            at_end: 1,
            started: self.started(),
        };
        report.ended(i32::from(exit) << 8, usage);
    }

    /// How many processes were started; `None` with a cgroup, which counts them better.
    fn started(&self) -> Option<u32> {
        (self.program())
            .filter(|_| self.cell.fallback.processes.is_some())
            .and_then(started)
    }

    /// Closes every descriptor that is not init's own. A program shares init's table until it is
    /// executed, so the descriptors that were put in place for it are in the table too.
    fn close_others(&self) {
        let of_supervisors = (self.supervisors.iter()).flat_map(|supervisor| {
            std::iter::once(supervisor.socket()).chain(supervisor.processes.terminals())
        });
        let kept: Vec<_> = (self.terminal.iter().chain(&self.ruleset))
            .map(AsFd::as_fd)
            .chain([self.signals.as_fd()])
            .chain(of_supervisors)
            .collect();
        // SAFETY: init goes from here straight to `_exit`; nothing that owns
        // another descriptor is used or dropped again.
        let _ = unsafe { process::close_from(0, &kept) };
    }

    /// Serves the supervisors until the end. Returns the program's wait status, if
    /// it ended before the cell's own supervisor ended it.
    fn serve(&mut self) -> Option<i32> {
        self.close_others();
        // A template's copies are in namespaces below this one, and outlast the template.
        let stays = self.cell.role == Role::Template;
        loop {
            if let Some(status) = self.reap_dead()
                && !stays
            {
                return Some(status);
            }
            let sockets = (self.supervisors.iter().enumerate()).map(|(index, supervisor)| {
                let awaited = match self.has_to_wait(index) {
                    true => HANGS_UP,
                    false => PollFlags::POLLIN,
                };
                PollFd::new(supervisor.socket(), awaited)
            });
            let mut ready: Vec<PollFd<'_>> =
                std::iter::once(PollFd::new(self.signals.as_fd(), PollFlags::POLLIN))
                    .chain(sockets)
                    .collect();
            match poll(&mut ready, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(_) => return None,
            }
            if is_asked_to_end(&self.signals) || !self.obey() {
                return self.reap_dead();
            }
        }
    }

    /// Whether a supervisor other than this one needs all processes stopped.
    fn is_frozen_for(&self, index: usize) -> bool {
        let mut all = self.supervisors.iter().enumerate();
        all.any(|(other, supervisor)| other != index && supervisor.has_frozen)
    }

    /// Whether the next order of this supervisor is to start something, and has to wait.
    fn has_to_wait(&self, index: usize) -> bool {
        let supervisor = self.supervisors.get(index);
        self.is_frozen_for(index)
            && supervisor.is_some_and(|own| Received::next_starts(own.socket()) == Ok(true))
    }

    /// Carries out the orders of all supervisors, and ends the guests whose supervisors are gone;
    /// false when the cell is to end.
    fn obey(&mut self) -> bool {
        let mut next = 0;
        while let Some(supervisor) = self.supervisors.get(next) {
            let socket = supervisor.socket();
            let received = match self.is_frozen_for(next) {
                false => Received::next(socket, MsgFlags::MSG_DONTWAIT),
                true => match Received::next_but_no_start(socket) {
                    Err(Errno::EAGAIN) if hangs_up(socket) => Ok(None),
                    received => received,
                },
            };
            let goes_on = match received {
                Ok(Some(order)) => self.carry_out(next, order),
                Err(Errno::EINTR) => true,
                Err(Errno::EAGAIN) => {
                    next += 1;
                    true
                }
                Ok(None) | Err(_) => self.supervisor_gone(next),
            };
            if !goes_on {
                return false;
            }
        }
        true
    }

    /// Ends a guest whose supervisor is gone: its socket is closed after all has been killed.
    /// False when it was the cell's own supervisor.
    fn supervisor_gone(&mut self, index: usize) -> bool {
        let is_guest = self
            .supervisors
            .get(index)
            .is_some_and(Supervisor::is_guest);
        if is_guest {
            // The cell's own stays the first.
            self.supervisors.swap_remove(index).kill();
            self.thaw_unless_needed();
        }
        is_guest
    }

    /// Carries out an order of a supervisor; false when that is the end of the cell.
    fn carry_out(&mut self, index: usize, order: Received) -> bool {
        let (cell, ruleset) = (self.cell, self.ruleset.as_ref());
        let Some(supervisor) = self.supervisors.get_mut(index) else {
            return true;
        };
        match order {
            Received::Supervisor(socket) => {
                // If that fails, the socket is closed, and its supervisor reads end of file.
                self.supervisors.extend(Supervisor::of_guest(socket).ok());
                self.close_others();
            }
            Received::Interpreter(order) if supervisor.is_guest() => {
                supervisor.start(cell, ruleset, order);
                self.close_others();
            }
            Received::Process(order) => {
                supervisor.start_process(cell, ruleset, order);
                self.close_others();
            }
            Received::Command(command) => match command {
                Command::Signal(signal) => supervisor.signal(signal),
                Command::Interrupt(signal) => supervisor.interrupt(signal),
                Command::SignalProcess(number, signal) => {
                    supervisor.processes.signal(number, signal);
                }
                Command::Freeze => {
                    supervisor.has_frozen = true;
                    let _ = kill(ALL, Signal::SIGSTOP);
                    supervisor.report().frozen();
                }
                Command::Thaw => {
                    supervisor.has_frozen = false;
                    self.thaw_unless_needed();
                }
                Command::End | Command::EndWith(_) if supervisor.is_guest() => supervisor.kill(),
                Command::End => return false,
                Command::EndWith(status) => {
                    self.waits_with = Some(status);
                    return false;
                }
                Command::Go | Command::Adopt(_) => {}
            },
            // A cell obeys these only while it waits for its program.
            Received::Program(_) | Received::Stay(_) | Received::Interpreter(_) => {}
        }
        true
    }

    /// Lets stopped processes go on, unless another supervisor needs them stopped.
    fn thaw_unless_needed(&self) {
        if !self
            .supervisors
            .iter()
            .any(|supervisor| supervisor.has_frozen)
        {
            let _ = kill(ALL, Signal::SIGCONT);
        }
    }

    /// Reaps what has ended; returns the program's status if it was among them.
    fn reap_dead(&mut self) -> Option<i32> {
        while let Ok(Some((pid, status))) = process::reap(false) {
            if Some(pid) == self.program() {
                return Some(status);
            }
            self.reaped(pid, status);
        }
        None
    }

    /// Reports the end of a reaped child that is not the program, if a supervisor waits for it.
    fn reaped(&mut self, pid: Pid, status: i32) {
        for supervisor in &mut self.supervisors {
            supervisor.reaped(pid, status);
        }
    }

    /// Reaps everything and reports. `status` is the program's, if it was reaped
    /// before. A program that waited to be ended and was killed has the status that it announced.
    fn reap_all(&mut self, mut status: Option<i32>, report: &Reporter<'_>) {
        let mut at_end = u32::from(status.is_some());
        while let Ok(Some((pid, ended))) = process::reap(true) {
            at_end += 1;
            if Some(pid) == self.program() {
                let waits_with = self.waits_with.map(|exit| i32::from(exit) << 8);
                let is_killed = libc::WIFSIGNALED(ended) && libc::WTERMSIG(ended) == libc::SIGKILL;
                status = status.or(waits_with.filter(|_| is_killed)).or(Some(ended));
            } else {
                self.reaped(pid, ended);
            }
        }
        let mut usage = process::children_usage();
        usage.count = ProcessCount {
            at_end,
            started: self.started(),
        };
        report.ended(status.unwrap_or(libc::SIGKILL), usage);
    }
}

/// Whether the other side sends nothing more.
fn hangs_up(socket: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::new(socket, HANGS_UP)];
    poll(&mut fds, PollTimeout::ZERO).is_ok_and(|count| count > 0)
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
