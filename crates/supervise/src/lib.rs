//! A cell from outside: its start, executions in it, and its end.
//!
//! [`Cell`] is the object; one thread and one poll(2) loop (`watch/`) serve it.
//! The loop never waits for anything without a deadline: neither the program, nor
//! init, nor a reader can hold it up. `watch/mod.rs` has the invariant, call by call.
//!
//! What is observed has two lives: an [`Execution`] is one piece of work in a cell,
//! [`Observed`] is the cell from its start to its end.

#![forbid(unsafe_code)]
// Nothing that input, the kernel or a cell can influence may end in a panic.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, OwnedFd};

use nix::errno::Errno;
use record::error::SetupError;
use record::{CodeError, Connection, RefusedHost, ResultItem};
use sys::process::{ChildUsage, CpuTime};
use verdict::evidence::Stop;

mod blank;
pub mod capture;
mod cell;
mod control;
pub mod copy;
mod counters;
mod denials;
pub mod disks;
mod driver;
mod ending;
mod guests;
mod meter;
mod network;
mod order;
mod poll_set;
mod proc;
mod processes;
pub(crate) mod results;
mod shared_memory;
mod signals;
pub mod turn;
pub mod verify;
#[cfg(debug_assertions)]
pub use verify::verify;
mod watch;

pub use blank::{Blank, Program};
use capture::Capture;
pub use cell::{Cancel, Cell, Frozen, Request};
use cgroup::CgroupUsage;
pub use control::{Asked, Control, wait};
pub use denials::{Counted, Denials, System};
pub(crate) use disks::Disks;
pub(crate) use driver::DriverReport;
pub use network::NetworkLog;
pub use processes::{ProcessNews, ProcessOrder, ProcessStart, ProcessStream};
pub use shared_memory::SharedMemory;
pub use signals::{BlockedSignals, Parent};

/// A captured stream; its number is the place in [`Execution::output`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Stream {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Stdout, Self::Stderr];

    /// Its name in the record.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// Hears that the program was executed.
pub trait OnStart {
    /// It was. This must not wait.
    fn started(&self);
}

/// Sees what happens in an execution while it happens. Nothing here may wait.
/// Everything comes from the cell, and is hostile input.
pub trait Observer {
    /// The program was executed.
    fn started(&self);
    /// The program wrote this to a captured stream.
    fn wrote(&self, stream: Stream, bytes: &[u8]);
    /// Nothing more comes from the stream.
    fn stream_ended(&self, stream: Stream);
    /// A system call of this number was denied for the first time.
    fn denied(&self, number: i64);
    /// A connection to an allowed host ended, or was refused.
    fn connection(&self, connection: &Connection);
    /// A name or a host was refused for the first time.
    fn refused(&self, refused: &RefusedHost);
    /// The code produced a value.
    fn result(&self, result: &ResultItem);
    /// The code replaced what it displayed.
    fn update(&self, result: &ResultItem);
    /// The code took back what it displayed, at once or before the next result.
    fn clear(&self, wait: bool);
    /// The code raised an exception.
    fn error(&self, error: &CodeError);
    /// Whether it can take more output. Until it can, what the program writes is
    /// not read, so that the program waits; all else goes on.
    fn has_room(&self) -> bool;
    /// Where it has to write to, while something waits to be written.
    fn waits_for(&self) -> Vec<BorrowedFd<'_>>;
    /// Writes what it can without waiting.
    fn flush(&self);
}

/// What was observed of one execution.
#[derive(Debug, Default)]
pub struct Execution {
    /// When it began (monotonic, ns); 0 if it never did.
    pub began_ns: u64,
    /// When it had ended.
    pub ended_ns: u64,
    /// CPU time that the program had used before it.
    pub cpu_before: CpuTime,
    /// What its cgroup had counted before it.
    pub cgroup_before: CgroupUsage,
    /// What the supervisor ended it for, if it did.
    pub stopped: Option<Stop>,
    /// The time that the program had to stop it, if it had any.
    pub grace: Option<Grace>,
    /// What happened before it, after the execution before.
    pub between: Between,
    /// What it wrote to the captured streams.
    pub output: [Option<Capture>; 2],
    /// What seccomp denied to it.
    pub denials: Denials,
    /// What the driver reported.
    pub report: DriverReport,
    /// What the broker reported, in a cell that has one.
    pub network: Option<NetworkLog>,
}

/// What happened in a cell between two executions, and counts for neither.
#[derive(Debug, Default)]
pub struct Between {
    /// Bytes that were written to the captured streams.
    pub written: [u64; 2],
    /// How often each system call was denied.
    pub denied: BTreeMap<i64, u64>,
    /// How often calls of other numbers were denied.
    pub denied_unlisted: u64,
    /// What the broker reported.
    pub network: Option<NetworkLog>,
}

impl Between {
    /// Adds what else happened.
    pub fn add(&mut self, other: Self) {
        for (sum, written) in self.written.iter_mut().zip(other.written) {
            *sum = sum.saturating_add(written);
        }
        for (number, count) in other.denied {
            let is_listed = self.denied.contains_key(&number);
            let sum = match is_listed || self.denied.len() < denials::NUMBERS {
                true => self.denied.entry(number).or_default(),
                false => &mut self.denied_unlisted,
            };
            *sum = sum.saturating_add(count);
        }
        self.denied_unlisted = self.denied_unlisted.saturating_add(other.denied_unlisted);
        if let Some(log) = other.network {
            self.add_network(log);
        }
    }

    /// Adds calls that were denied to programs.
    pub fn add_denials(&mut self, denials: Denials) {
        self.add(Self {
            denied: denials.counts,
            denied_unlisted: denials.uncounted,
            ..Self::default()
        });
    }

    /// Adds what the broker reported.
    pub fn add_network(&mut self, log: NetworkLog) {
        match &mut self.network {
            Some(all) => all.absorb(log),
            None => self.network = Some(log),
        }
    }
}

/// What was observed of a cell from its start to its end.
#[derive(Debug, Default)]
pub struct Observed {
    /// Why the set-up failed; then the program never ran.
    pub failure: Option<SetupError>,
    /// When the program was executed (monotonic, ns); 0 if it never was.
    pub executed_ns: u64,
    /// The program's wait status (wait(2)), if it came to run.
    pub status: Option<i32>,
    /// The exit status with which the program waited to be ended, if it did.
    pub waited_with: Option<u8>,
    /// What the supervisor ended the cell for, if it did.
    pub stopped: Option<Stop>,
    /// The time that the program had for its own end, if it had any.
    pub grace: Option<Grace>,
    /// Usage by what init reaped.
    pub reaped: Option<ChildUsage>,
    /// Usage as seen from outside when the end began, for where init could not
    /// report.
    pub used_so_far: Option<ChildUsage>,
    /// The tmpfs that the program writes to ([`Plan::writable_tmpfs`], in that
    /// order), still there though the cell is gone.
    pub scratch: Vec<OwnedFd>,
    /// Which of them were seen without room, in the last execution.
    pub disks: Disks,
    /// Whether a process could not be ended within the deadline.
    pub unkillable: bool,
    /// Why output is missing in a file of the caller's, if any is.
    pub unwritten: Option<Errno>,
    /// What the broker reported last, in a cell that had one.
    pub network: Option<NetworkLog>,
    /// The most memory and processes that the watchdog saw, without a cgroup, in the
    /// last execution.
    pub watched: meter::Peaks,
}

/// The time between a program's warning and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grace {
    /// When the program was warned (monotonic, ns).
    pub began_ns: u64,
    /// Whether it had not ended when its time was up.
    pub used_up: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_numbers_are_kept_than_of_one_execution() {
        let most = denials::NUMBERS as i64;
        let mut between = Between::default();
        for first in [0, most - 1, 5 * most] {
            between.add(Between {
                denied: (first..first + most).map(|number| (number, 2)).collect(),
                ..Between::default()
            });
        }
        assert_eq!(between.denied.len(), denials::NUMBERS);
        assert_eq!(between.denied.get(&(most - 1)), Some(&4));
        assert_eq!(between.denied_unlisted, 2 * (2 * most as u64 - 1));
    }
}
