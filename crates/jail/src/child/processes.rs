//! Processes that init starts beside the cell's program, when it is ordered to.
//!
//! They are init's own children, confined like the program, and each leads a session. Code in the
//! cell may already run with the same ids. It can send signals to a process that has not been
//! executed yet: then the process ends, or init waits for it until the supervisor's deadline has
//! passed. Such code cannot look at the process or at init: neither is dumpable, and the process
//! becomes dumpable only when it is executed.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::Prepared;
use super::command::{ProcessOrder, ProcessStreams};
use super::fail::{At, Call, Fail, Site};
use super::parcel::Parcel;
use super::program::{self, RESERVED, Start, Streams};
use super::report::Reporter;
use super::terminal::{Terminal, TerminalSetup};
use record::error::Step;
use sys::terminal::Size;

/// Processes that are running.
#[derive(Default)]
pub(super) struct Processes(Vec<Process>);

struct Process {
    /// The supervisor's number for it.
    number: u32,
    /// The process has not been reaped, so no other process has this pid.
    pid: Pid,
    /// Its side of its terminal. It stays open here, so the process can close its own and open the
    /// terminal again.
    terminal: Option<OwnedFd>,
}

impl Processes {
    /// Starts a process, and reports it.
    pub(super) fn start(
        &mut self,
        cell: &Prepared<'_>,
        ruleset: Option<&OwnedFd>,
        order: ProcessOrder,
        report: &Reporter<'_>,
    ) {
        let number = order.number;
        match start(cell, ruleset, order, report) {
            Ok(process) => self.0.push(process),
            Err(failure) => report.refused(number, &failure),
        }
    }

    /// Sends a signal to the process group of a process that is running.
    pub(super) fn signal(&self, number: u32, signal: Signal) {
        let found = self.0.iter().find(|process| process.number == number);
        // The process leads its session, so it cannot leave the group.
        let _ = found.map(|process| kill(Pid::from_raw(-process.pid.as_raw()), signal));
    }

    /// Kills the process groups of all.
    pub(super) fn kill(&self) {
        for process in &self.0 {
            let _ = kill(Pid::from_raw(-process.pid.as_raw()), Signal::SIGKILL);
        }
    }

    /// Reports the end of a reaped child, if it is one of these processes.
    pub(super) fn reaped(&mut self, pid: Pid, status: i32, report: &Reporter<'_>) {
        if let Some(index) = self.0.iter().position(|process| process.pid == pid) {
            report.exited(self.0.swap_remove(index).number, status);
        }
    }

    /// Descriptors that init keeps for them.
    pub(super) fn terminals(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let terminals = self
            .0
            .iter()
            .filter_map(|process| process.terminal.as_ref());
        terminals.map(|fd| fd.as_fd())
    }
}

fn start(
    cell: &Prepared<'_>,
    ruleset: Option<&OwnedFd>,
    order: ProcessOrder,
    report: &Reporter<'_>,
) -> Result<Process, Fail> {
    let ProcessOrder {
        number,
        parcel,
        streams,
    } = order;
    let parcel = Parcel::unpack(parcel).at(Site::new(Step::Report), Call::Recv)?;
    let begin = parcel.deliver(report)?;
    let (pipes, terminal) = match streams {
        ProcessStreams::Pipes(streams) => (all_above(streams)?.map(Some), None),
        ProcessStreams::Terminal([rows, columns]) => {
            let setup = TerminalSetup {
                settings: None,
                size: Size::new(rows, columns),
            };
            ([None, None, None], Some(Terminal::open(&setup, report)?))
        }
    };
    let start = Start {
        begin: &begin,
        streams: match &terminal {
            Some(terminal) => Streams::Terminal(&terminal.line),
            None => Streams::Given(pipes.each_ref().map(Option::as_ref)),
        },
        channel: &[],
        passed: &[],
        ruleset,
    };
    let started = program::start(cell, &start, report)?;
    let pid = started.pid;
    let master = terminal.as_ref().map(|terminal| &terminal.master);
    let reported = report.spawned(number, pid, started.listener.as_ref(), master);
    if reported.is_err() {
        // The supervisor would not watch it.
        let _ = kill(Pid::from_raw(-pid.as_raw()), Signal::SIGKILL);
    }
    reported.map(|()| Process {
        number,
        pid,
        terminal: terminal.map(|terminal| terminal.line),
    })
}

/// Moves a descriptor above the numbers that are replaced for a program: init shares the table.
pub(super) fn above(fd: OwnedFd) -> Result<OwnedFd, Fail> {
    sys::process::duplicate_above(&fd, RESERVED).at(Site::new(Step::Stdio), Call::Dup)
}

/// [`above`] for the three standard streams.
pub(super) fn all_above(streams: [OwnedFd; 3]) -> Result<[OwnedFd; 3], Fail> {
    let [stdin, stdout, stderr] = streams;
    Ok([above(stdin)?, above(stdout)?, above(stderr)?])
}
