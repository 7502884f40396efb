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
use super::processes::Processes;
use super::program::RESERVED;
use super::report::Reporter;
use super::seats::Seat;
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
    /// `None` in a cell without one.
    program: Option<Pid>,
    /// The exit status that the program announced when it began to wait to be ended.
    waits_with: Option<u8>,
    /// The program's side of the cell's terminal. It stays open here: otherwise a program that
    /// closes its own descriptors and opens the terminal again by name would find it hung up.
    pub(super) terminal: Option<OwnedFd>,
    /// Landlock rules that further processes apply to themselves in a copy's cell, as its program
    /// did: init's own rules are not scoped there.
    pub(super) ruleset: Option<OwnedFd>,
    processes: Processes,
    /// Further interpreters. Their places in the list stay while init obeys orders.
    seats: Vec<Seat>,
    /// Whether the cell's own supervisor keeps all processes stopped.
    has_frozen: bool,
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
            program,
            waits_with: None,
            terminal: None,
            ruleset: None,
            processes: Processes::default(),
            seats: Vec::new(),
            has_frozen: false,
        }
    }

    /// Waits for the program's end, or for the supervisor's order; then kills and
    /// reaps all that is left, so that its use is counted, and reports. Returns
    /// the exit status.
    pub(super) fn run(mut self) -> i32 {
        let report = Reporter::afterwards(&self.cell.report);
        let mut status = self.serve(&report);
        let waiting = self.program.filter(|_| status.is_none());
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
        (self.program)
            .filter(|_| self.cell.fallback.processes.is_some())
            .and_then(started)
    }

    /// Closes every descriptor that is not init's own. A program shares init's table until it is
    /// executed, so the descriptors that were put in place for it are in the table too.
    fn close_others(&self) {
        let own = (self.terminal.iter().chain(&self.ruleset)).chain([&self.cell.report]);
        let of_seats = (self.seats.iter())
            .flat_map(|seat| std::iter::once(seat.socket()).chain(seat.processes.terminals()));
        let kept: Vec<_> = (own.map(AsFd::as_fd))
            .chain([self.signals.as_fd()])
            .chain(self.processes.terminals())
            .chain(of_seats)
            .collect();
        // SAFETY: init goes from here straight to `_exit`; nothing that owns
        // another descriptor is used or dropped again.
        let _ = unsafe { process::close_from(0, &kept) };
    }

    /// Serves the supervisor until the end. Returns the program's wait status, if
    /// it ended before the supervisor ended it.
    fn serve(&mut self, report: &Reporter<'_>) -> Option<i32> {
        self.close_others();
        // A template's copies are in namespaces below this one, and outlast the template.
        let stays = self.cell.role == Role::Template;
        loop {
            if let Some(status) = self.reap_dead(report)
                && !stays
            {
                return Some(status);
            }
            let of_seats = (self.seats.iter().enumerate())
                .map(|(index, seat)| PollFd::new(seat.socket(), self.awaited(Some(index))));
            let mut ready: Vec<PollFd<'_>> = [
                PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
                PollFd::new(report.socket(), self.awaited(None)),
            ]
            .into_iter()
            .chain(of_seats)
            .collect();
            match poll(&mut ready, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(_) => return None,
            }
            if is_asked_to_end(&self.signals) || !self.obey(report) {
                return self.reap_dead(report);
            }
            self.serve_seats();
        }
    }

    /// The events to wait for on the socket of the seat with this index, or on that of the cell's
    /// own supervisor (`None`). An order to start something waits while another supervisor needs
    /// all processes stopped.
    fn awaited(&self, index: Option<usize>) -> PollFlags {
        let seat = index.and_then(|index| self.seats.get(index));
        let socket = seat.map_or(self.cell.report.as_fd(), Seat::socket);
        match self.is_frozen_by_another(index) && Received::next_starts(socket) {
            true => HANGS_UP,
            false => PollFlags::POLLIN,
        }
    }

    /// Whether a supervisor keeps all processes stopped, other than that of this seat or, for
    /// `None`, than the cell's own.
    fn is_frozen_by_another(&self, index: Option<usize>) -> bool {
        let mut seats = self.seats.iter().enumerate();
        (index.is_some() && self.has_frozen)
            || seats.any(|(other, seat)| Some(other) != index && seat.has_frozen)
    }

    /// Carries out the orders of further supervisors, and ends the seats of those that are gone.
    fn serve_seats(&mut self) {
        let mut next = 0;
        while let Some(seat) = self.seats.get(next) {
            if self.awaited(Some(next)) == HANGS_UP {
                match hangs_up(seat.socket()) {
                    true => self.end_seat(next),
                    false => next += 1,
                }
                continue;
            }
            match Received::next(seat.socket(), MsgFlags::MSG_DONTWAIT) {
                Ok(Some(order)) => self.obey_seat(next, order),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => next += 1,
                Ok(None) | Err(_) => self.end_seat(next),
            }
        }
    }

    /// Ends a seat whose supervisor has left. Its socket is closed after all has been killed.
    fn end_seat(&mut self, index: usize) {
        let seat = self.seats.swap_remove(index);
        seat.kill();
        self.thaw_unless_needed();
    }

    fn obey_seat(&mut self, index: usize, order: Received) {
        if let Received::Seat(socket) = order {
            return self.add_seat(socket);
        }
        let (cell, ruleset) = (self.cell, self.ruleset.as_ref());
        let Some(seat) = self.seats.get_mut(index) else {
            return;
        };
        match order {
            Received::Interpreter(order) => {
                seat.start(cell, ruleset, order);
                self.close_others();
            }
            Received::Process(order) => {
                seat.start_process(cell, ruleset, order);
                self.close_others();
            }
            Received::Command(command) => match command {
                Command::Signal(signal) => seat.signal(signal),
                Command::SignalProcess(number, signal) => seat.processes.signal(number, signal),
                Command::Freeze => {
                    seat.has_frozen = true;
                    let _ = kill(ALL, Signal::SIGSTOP);
                    seat.report().frozen();
                }
                Command::Thaw => {
                    seat.has_frozen = false;
                    self.thaw_unless_needed();
                }
                Command::End | Command::EndWith(_) => seat.kill(),
                Command::Go | Command::Adopt(_) => {}
            },
            Received::Seat(_) | Received::Program(_) | Received::Stay(_) => {}
        }
    }

    /// Obeys another socket from here on. If that fails, the socket is closed, and its supervisor
    /// reads end of file.
    fn add_seat(&mut self, socket: OwnedFd) {
        self.seats.extend(Seat::new(socket).ok());
        self.close_others();
    }

    /// Lets stopped processes go on, unless another supervisor needs them stopped.
    fn thaw_unless_needed(&self) {
        if !self.has_frozen && !self.seats.iter().any(|seat| seat.has_frozen) {
            let _ = kill(ALL, Signal::SIGCONT);
        }
    }

    /// Carries out what the supervisor has asked for; false when that is the end.
    fn obey(&mut self, report: &Reporter<'_>) -> bool {
        loop {
            if self.awaited(None) == HANGS_UP {
                return !hangs_up(report.socket());
            }
            let command = match Received::next(report.socket(), MsgFlags::MSG_DONTWAIT) {
                Ok(Some(Received::Command(command))) => command,
                Ok(Some(Received::Process(order))) => {
                    let ruleset = self.ruleset.as_ref();
                    self.processes.start(self.cell, ruleset, order, report);
                    self.close_others();
                    continue;
                }
                Ok(Some(Received::Seat(socket))) => {
                    self.add_seat(socket);
                    continue;
                }
                // Only a cell that waits for its program obeys these, and only a seat the last.
                Ok(Some(Received::Program(_) | Received::Stay(_) | Received::Interpreter(_)))
                | Err(Errno::EINTR) => continue,
                Err(Errno::EAGAIN) => return true,
                Ok(None) | Err(_) => return false,
            };
            match command {
                // To the program's process group: a shell heeds a trap only once
                // the command it waits for has ended too. The program leads its
                // session, so it cannot leave the group.
                Command::Signal(signal) => {
                    let program = self.program.map(Pid::as_raw);
                    let _ = program.map(|pid| kill(Pid::from_raw(-pid), signal));
                }
                Command::SignalProcess(number, signal) => self.processes.signal(number, signal),
                Command::Freeze => {
                    self.has_frozen = true;
                    let _ = kill(ALL, Signal::SIGSTOP);
                    report.frozen();
                }
                Command::Thaw => {
                    self.has_frozen = false;
                    self.thaw_unless_needed();
                }
                Command::Go | Command::Adopt(_) => {}
                Command::End => return false,
                Command::EndWith(status) => {
                    self.waits_with = Some(status);
                    return false;
                }
            }
        }
    }

    /// Reaps what has ended; returns the program's status if it was among them.
    fn reap_dead(&mut self, report: &Reporter<'_>) -> Option<i32> {
        while let Ok(Some((pid, status))) = process::reap(false) {
            if Some(pid) == self.program {
                return Some(status);
            }
            self.reaped(pid, status, report);
        }
        None
    }

    /// Reports the end of a reaped child that is not the program, if a supervisor waits for it.
    fn reaped(&mut self, pid: Pid, status: i32, report: &Reporter<'_>) {
        self.processes.reaped(pid, status, report);
        for seat in &mut self.seats {
            seat.reaped(pid, status);
        }
    }

    /// Reaps everything and reports. `status` is the program's, if it was reaped
    /// before. A program that waited to be ended and was killed has the status that it announced.
    fn reap_all(&mut self, mut status: Option<i32>, report: &Reporter<'_>) {
        let mut at_end = u32::from(status.is_some());
        while let Ok(Some((pid, ended))) = process::reap(true) {
            at_end += 1;
            if Some(pid) == self.program {
                let waits_with = self.waits_with.map(|exit| i32::from(exit) << 8);
                let is_killed = libc::WIFSIGNALED(ended) && libc::WTERMSIG(ended) == libc::SIGKILL;
                status = status.or(waits_with.filter(|_| is_killed)).or(Some(ended));
            }
            self.reaped(pid, ended, report);
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
