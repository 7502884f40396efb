//! Further interpreters in a cell, each with a supervisor of its own.
//!
//! A seat is a socket that init obeys besides its first one. The interpreter that is started for
//! it is init's child, confined like the cell's program; so are the processes beside it. When its
//! supervisor closes the socket, the interpreter and these processes are killed. Nothing else of
//! the cell ends with a seat, and all seats end with the cell.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::Prepared;
use super::command::{InterpreterOrder, ProcessOrder};
use super::fail::{At, Call, Fail, Site};
use super::parcel::Parcel;
use super::processes::{self, Processes};
use super::program::{self, RESERVED, Start, Streams};
use super::report::Reporter;
use record::error::Step;
use sys::process::ChildUsage;

/// A socket that init obeys, and what was started for it.
pub(super) struct Seat {
    socket: OwnedFd,
    /// `None` until it is started, and after its end.
    program: Option<Pid>,
    pub(super) processes: Processes,
    /// Whether its supervisor keeps all processes stopped.
    pub(super) has_frozen: bool,
}

impl Seat {
    /// # Errors
    /// There is no descriptor left.
    pub(super) fn new(socket: OwnedFd) -> nix::Result<Self> {
        Ok(Self {
            // A program's own descriptors are put in place in a table that init shares.
            socket: sys::process::duplicate_above(&socket, RESERVED)?,
            program: None,
            processes: Processes::default(),
            has_frozen: false,
        })
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(super) fn report(&self) -> Reporter<'_> {
        Reporter::afterwards(&self.socket)
    }

    /// Starts its interpreter, and reports it.
    pub(super) fn start(
        &mut self,
        cell: &Prepared<'_>,
        ruleset: Option<&OwnedFd>,
        order: InterpreterOrder,
    ) {
        let report = Reporter::afterwards(&self.socket);
        match start(cell, ruleset, order, &report) {
            Ok(pid) => self.program = Some(pid),
            Err(failure) => report.failed(&failure),
        }
    }

    /// Starts a process beside the interpreter, and reports it.
    pub(super) fn start_process(
        &mut self,
        cell: &Prepared<'_>,
        ruleset: Option<&OwnedFd>,
        order: ProcessOrder,
    ) {
        let report = Reporter::afterwards(&self.socket);
        self.processes.start(cell, ruleset, order, &report);
    }

    /// Sends a signal to the interpreter's process group.
    pub(super) fn signal(&self, signal: Signal) {
        // It leads its session, so it cannot leave the group.
        let _ = (self.program).map(|pid| kill(Pid::from_raw(-pid.as_raw()), signal));
    }

    /// Kills the interpreter's process group, and those of the processes beside it.
    pub(super) fn kill(&self) {
        self.signal(Signal::SIGKILL);
        self.processes.kill();
    }

    /// Reports the end of a reaped child, if it is one of this seat's.
    pub(super) fn reaped(&mut self, pid: Pid, status: i32) {
        if Some(pid) == self.program {
            // The kernel does not reuse the group's number so soon.
            self.kill();
            self.program = None;
            // Its usage cannot be told apart from that of the rest of the cell.
            self.report().ended(status, ChildUsage::default());
        }
        let report = Reporter::afterwards(&self.socket);
        self.processes.reaped(pid, status, &report);
    }
}

fn start(
    cell: &Prepared<'_>,
    ruleset: Option<&OwnedFd>,
    order: InterpreterOrder,
    report: &Reporter<'_>,
) -> Result<Pid, Fail> {
    let site = Site::new(Step::Report);
    let parcel = Parcel::unpack(order.parcel).at(site, Call::Recv)?;
    let begin = parcel.deliver(report)?;
    let streams = processes::above(order.streams)?;
    let above = |fd: OwnedFd| {
        sys::process::duplicate_above(&fd, RESERVED).at(Site::new(Step::Stdio), Call::Dup)
    };
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
