//! Watching a cell from outside until nothing of it is left.
//!
//! One thread, one poll(2) loop. It never waits for anything without a
//! deadline: neither the program, nor init, nor a reader can hold it up. The
//! invariant, call by call, is written down where the loop is (`watcher.rs`).

use std::os::fd::{BorrowedFd, OwnedFd};

use nix::sys::signalfd::SignalFd;

use crate::launch::Running;
use crate::plan::Plan;
use record::error::{Result, SetupError};
use sys::process::ChildUsage;

pub mod capture;
mod category;
mod denials;
pub(crate) mod disks;
mod explain;
mod measured;
mod meter;
mod modules;
mod programs;
mod signals;
mod so_far;
pub(crate) mod turn;
pub(crate) mod verdict;
mod watcher;

use capture::Capture;
pub(crate) use denials::Denials;
pub(crate) use disks::Disks;
pub(crate) use measured::Measured;
pub use signals::{BlockedSignals, Parent};
use verdict::Stop;
use watcher::Watcher;

/// What a driver's channel carries; given bytes as they come.
pub(crate) trait Channel {
    /// Takes bytes from the cell, which are hostile input; false when they break
    /// the protocol, and nothing more is to be read.
    fn receive(&mut self, bytes: &[u8]) -> bool;
    /// What is to be sent next; empty when there is nothing.
    fn pending(&self) -> &[u8];
    /// Says that this much of [`Channel::pending`] was sent.
    fn sent(&mut self, count: usize);
    /// Whether the interpreter has said that it begins with the code.
    fn has_begun(&self) -> bool;
}

/// A captured stream; its number is the place in [`Observed::output`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Stream {
    /// Both.
    pub(crate) const ALL: [Self; 2] = [Self::Stdout, Self::Stderr];

    /// Its name in the record.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// Is told what happens in a cell while it happens. Nothing here may wait.
pub(crate) trait Observer {
    /// The program was executed.
    fn started(&self);
    /// The program wrote this to a captured stream; hostile input.
    fn wrote(&self, stream: Stream, bytes: &[u8]);
    /// Nothing more comes from the stream.
    fn ended(&self, stream: Stream);
    /// A system call of this number was denied for the first time.
    fn denied(&self, number: i64);
    /// Whether it can take more output. Until it can, what the program writes is
    /// not read, so that the program waits; all else goes on.
    fn has_room(&self) -> bool;
    /// What it waits to be able to write to, if it does.
    fn waits_for(&self) -> Option<BorrowedFd<'_>>;
    /// Has it pass on what it can without waiting.
    fn pass_on(&self);
}

/// Everything observed about a cell, from its start to its end.
#[derive(Debug)]
pub(crate) struct Observed {
    /// Why the set-up failed; then the program never ran.
    pub failure: Option<SetupError>,
    /// The program's wait status (wait(2)), if it came to run.
    pub status: Option<i32>,
    /// What the supervisor ended it for, if it did.
    pub stopped: Option<Stop>,
    /// The time that the program had to see to its end, if it had any.
    pub grace: Option<Grace>,
    /// Usage by what init reaped.
    pub reaped: Option<ChildUsage>,
    /// Usage as seen from outside when the end began, for where init could not
    /// report.
    pub used_so_far: Option<ChildUsage>,
    /// The captured streams.
    pub output: [Option<Capture>; 2],
    /// Whether the driver's channel carried something that is no frame.
    pub channel_broken: bool,
    /// What seccomp denied.
    pub denials: Denials,
    /// The places that are tmpfs of the cell's own ([`Plan::own_scratch`], in that
    /// order), still there though the cell is gone.
    pub scratch: Vec<OwnedFd>,
    /// What these had none left of whenever the watchdog looked.
    pub disks: Disks,
    /// When the program began, ended, and when all was over (monotonic, ns).
    pub began_ns: u64,
    /// When the program had ended.
    pub ended_ns: u64,
    /// Whether a process could not be ended within the deadline.
    pub unkillable: bool,
    /// The most memory and processes that the watchdog saw, without a cgroup.
    pub watched: meter::Peaks,
}

/// The time between a program's warning and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grace {
    /// When the program was told of its end (monotonic, ns).
    pub began_ns: u64,
    /// Whether it had not ended when its time was up.
    pub used_up: bool,
}

/// Watches `cell` to its end, which comes with `parent`'s at the latest.
///
/// # Errors
/// Only when watching itself is impossible; the cell is ended then too.
pub(crate) fn watch<'a>(
    cell: &'a Running,
    plan: &'a Plan,
    denials: Denials,
    signals: &SignalFd,
    channel: Option<&'a mut dyn Channel>,
    observer: Option<&'a dyn Observer>,
    parent: Option<&'a Parent>,
) -> Result<Observed> {
    let mut watcher = Watcher::new(cell, plan, denials, channel, observer, parent);
    while !watcher.is_over() {
        watcher.step(signals)?;
    }
    watcher.finish()
}
