//! The supervisors that init obeys: the cell's own, and those of guests.
//!
//! A *guest* is an interpreter in a cell besides the cell's program. It has a supervisor of its
//! own, and so a socket of its own that init obeys. The interpreter is init's child, confined like
//! the cell's program; so are the processes beside it. When its supervisor closes the socket, the
//! interpreter and these processes are killed. Nothing else of the cell ends with a guest, and all
//! guests end with the cell.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::Prepared;
use super::command::{InterpreterOrder, ProcessOrder};
use super::fail::{At, Call, Fail, Site};
use super::interrupt;
use super::parcel::Parcel;
use super::processes::{Processes, above, all_above};
use super::program::{self, RESERVED, Start, Streams};
use super::report::Reporter;
use record::error::Step;
use sys::process::ChildUsage;

/// A supervisor that init obeys, and what was started for it.
pub(super) struct Supervisor<'a> {
    socket: Socket<'a>,
    /// The cell's program or a guest's interpreter. `None` in a cell without a program, and for a
    /// guest before its interpreter is started and after its end.
    pub(super) program: Option<Pid>,
    pub(super) processes: Processes,
    /// Whether it keeps all processes stopped.
    pub(super) has_frozen: bool,
}

enum Socket<'a> {
    /// That of the cell's own supervisor.
    Own(&'a OwnedFd),
    Guest(OwnedFd),
}

impl<'a> Supervisor<'a> {
    /// The cell's own, with the cell's program.
    pub(super) fn own(socket: &'a OwnedFd, program: Option<Pid>) -> Self {
        Self::new(Socket::Own(socket), program)
    }

    /// # Errors
    /// There is no descriptor left.
    pub(super) fn of_guest(socket: OwnedFd) -> nix::Result<Self> {
        // A program's own descriptors are put in place in a table that init shares.
        let socket = sys::process::duplicate_above(&socket, RESERVED)?;
        Ok(Self::new(Socket::Guest(socket), None))
    }

    fn new(socket: Socket<'a>, program: Option<Pid>) -> Self {
        Self {
            socket,
            program,
            processes: Processes::default(),
            has_frozen: false,
        }
    }

    pub(super) const fn is_guest(&self) -> bool {
        matches!(self.socket, Socket::Guest(_))
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.descriptor().as_fd()
    }

    pub(super) fn report(&self) -> Reporter<'_> {
        Reporter::afterwards(self.socket.descriptor())
    }

    /// Starts a guest's interpreter, and reports it.
    pub(super) fn start(
        &mut self,
        cell: &Prepared<'_>,
        ruleset: Option<&OwnedFd>,
        order: InterpreterOrder,
    ) {
        let report = Reporter::afterwards(self.socket.descriptor());
        match start(cell, ruleset, order, &report) {
            Ok(pid) => self.program = Some(pid),
            Err(failure) => report.failed(&failure),
        }
    }

    /// Starts a process beside the program, and reports it.
    pub(super) fn start_process(
        &mut self,
        cell: &Prepared<'_>,
        ruleset: Option<&OwnedFd>,
        order: ProcessOrder,
    ) {
        let report = Reporter::afterwards(self.socket.descriptor());
        self.processes.start(cell, ruleset, order, &report);
    }

    /// Sends a signal to the program's process group: a shell heeds a trap only once the command it
    /// waits for has ended too. The program leads its session, so it cannot leave the group.
    pub(super) fn signal(&self, signal: Signal) {
        let _ = (self.program).map(|pid| kill(Pid::from_raw(-pid.as_raw()), signal));
    }

    /// Interrupts a program that must not get SIGINT itself.
    pub(super) fn interrupt(&self, signal: Signal) {
        if let Some(program) = self.program {
            interrupt::interrupt(program, signal);
        }
    }

    /// Kills the program's process group, and those of the processes beside it.
    pub(super) fn kill(&self) {
        self.signal(Signal::SIGKILL);
        self.processes.kill();
    }

    /// Reports the end of a reaped child, if it is one of this supervisor's. It is not the cell's
    /// program, with which the cell ends.
    pub(super) fn reaped(&mut self, pid: Pid, status: i32) {
        if Some(pid) == self.program {
            // The kernel does not reuse the group's number so soon.
            self.kill();
            self.program = None;
            // Its usage cannot be told apart from that of the rest of the cell.
            self.report().ended(status, ChildUsage::default());
        }
        let report = Reporter::afterwards(self.socket.descriptor());
        self.processes.reaped(pid, status, &report);
    }
}

impl Socket<'_> {
    const fn descriptor(&self) -> &OwnedFd {
        match self {
            Self::Own(fd) => fd,
            Self::Guest(fd) => fd,
        }
    }
}

fn start(
    cell: &Prepared<'_>,
    ruleset: Option<&OwnedFd>,
    order: InterpreterOrder,
    report: &Reporter<'_>,
) -> Result<Pid, Fail> {
    let parcel = Parcel::unpack(order.parcel).at(Site::new(Step::Report), Call::Recv)?;
    let begin = parcel.deliver(report)?;
    let streams = all_above(order.streams)?;
    let channel: Vec<OwnedFd> = (order.channel.into_iter().map(above)).collect::<Result<_, _>>()?;
    let start = Start {
        begin: &begin,
        streams: Streams::Given(streams.each_ref().map(Some)),
        channel: &channel,
        passed: &[],
        ruleset,
    };
    let started = program::start(cell, &start, report)?;
    let reported = report.started(&[], started.listener.as_ref(), None, &[]);
    if let Err(failure) = reported {
        // Its supervisor is gone, and would not watch it.
        let _ = kill(Pid::from_raw(-started.pid.as_raw()), Signal::SIGKILL);
        return Err(failure);
    }
    Ok(started.pid)
}
