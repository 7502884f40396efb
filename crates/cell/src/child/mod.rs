//! What runs inside a cell before the program does.
//!
//! [`main`] is one cell's life as its init sees it: an ordered list of verbs.
//! Each either succeeds or ends the set-up with a fixed-size failure message;
//! the supervisor, which holds the plan, turns that into words. Nothing here
//! knows where the plan came from.

use std::os::fd::{BorrowedFd, OwnedFd};

use nix::fcntl::OFlag;

use crate::plan::Plan;
use crate::workspace::Stage;
use sys;
use sys::shared::Progress;

mod confine;
mod fail;
mod files;
mod identity;
mod init;
mod landlock;
mod mounts;
mod program;
mod rehearsal;
pub(crate) mod report;
mod stdio;
mod tether;
mod tree;

use fail::{Fail, Verb};
pub(crate) use rehearsal::rehearse;
use report::Reporter;

/// What init needs besides the plan: descriptors and prepared memory.
#[derive(Debug)]
pub(crate) struct Prepared<'a> {
    /// What to do.
    pub plan: &'a Plan,
    /// Limits that no cgroup holds, so that init and program must.
    pub fallback: &'a crate::plan::Fallback,
    /// The CPUs to bind the cell to; none where a cgroup limits them.
    pub cpus: &'a [usize],
    /// The supervisor's messages come from here, and ours go there.
    pub report: OwnedFd,
    /// Where the supervisor sees how far the set-up has come.
    pub progress: &'a Progress,
    /// What goes into the cell.
    pub content: Content,
    /// What becomes the program's descriptors 0, 1 and 2; `None` leaves the
    /// caller's in place.
    pub stdio: [Option<OwnedFd>; 3],
    /// Standard streams of the caller's that are opened anew.
    pub shields: Vec<Shield>,
    /// The driver's end of its channel: its descriptors, in their order.
    pub channel: Vec<OwnedFd>,
    /// The system call filter.
    pub filter: Option<&'a Filter>,
}

/// What goes into a cell, taken hold of by the supervisor.
#[derive(Debug, Default)]
pub(crate) struct Content {
    /// Open input files, in the order of the plan's.
    pub inputs: Vec<Option<OwnedFd>>,
    /// What places of the cell's own begin with, besides these.
    pub stages: Vec<Stage>,
    /// Detached mounts that stand for binds of the plan, by its index.
    pub mapped: Vec<Option<OwnedFd>>,
}

/// A file or terminal of the caller's that is a standard stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shield {
    /// The stream.
    pub stream: BorrowedFd<'static>,
    /// How it is open: `O_RDONLY`, `O_WRONLY` or `O_RDWR`.
    pub access: OFlag,
    /// Whether the set-up fails when it cannot be opened anew.
    pub required: bool,
}

/// A system call filter, ready to load (seccomp(2)).
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    /// Its instructions.
    pub program: Vec<sys::seccomp::Instruction>,
    /// Whether the supervisor hears of what it denies, and answers.
    pub notify: bool,
}

/// The life of a cell's init. Descriptors are not closed one by one on the way
/// out: the process ends, and with it all that it had.
pub(crate) fn main(mut cell: Prepared<'_>) -> ! {
    // The program's descriptors are put in place in a table that init shares,
    // so init's own must be out of the way.
    if let Ok(high) = sys::process::duplicate_above(&cell.report, program::RESERVED) {
        cell.report = high;
    }
    for fd in &mut cell.channel {
        if let Ok(high) = sys::process::duplicate_above(&fd, program::RESERVED) {
            *fd = high;
        }
    }
    let report = Reporter::new(&cell.report, cell.progress);
    let content = std::mem::take(&mut cell.content);
    let status = match set_up(&cell, content, &report) {
        Ok(reaper) => init::reap(&reaper, &cell.report, cell.progress),
        Err(failure) => {
            report.failed(&failure);
            1
        }
    };
    sys::process::exit_now(status)
}

fn set_up(
    cell: &Prepared<'_>,
    content: Content,
    report: &Reporter<'_>,
) -> Result<init::Reaper, Fail> {
    let plan = cell.plan;
    tether::die_with_supervisor(report)?;
    let network = identity::begin_network(plan, report)?;
    identity::set_host_name(plan, report)?;
    let sources = mounts::open_sources(plan, content.mapped, report)?;
    let streams = stdio::shield(&cell.shields, report)?;
    tether::wait_for_id_maps(report)?;
    identity::become_inner_user(plan, report)?;
    stdio::reopen(streams, report)?;
    tether::die_with_supervisor(report)?;
    confine::forbid_nested_userns(plan, report)?;
    let root = mounts::build(plan, sources, report)?;
    let scratch = mounts::open_scratch(plan, &root)?;
    for stage in content.stages {
        tree::make(stage, &root, report)?;
    }
    files::copy_in(plan, &content.inputs, &root, report)?;
    mounts::change_root(plan, root, report)?;
    identity::enter_network(network, report)?;
    identity::enter_cgroup_namespace(plan, report)?;
    confine::bind_to_cpus(cell.cpus, report)?;
    confine::drop_capabilities(report)?;
    confine::set_no_new_privs(report)?;
    landlock::restrict(plan, report)?;
    let reaper = init::Reaper::prepare(report)?;
    let started = program::start(cell, report)?;
    report.started(&scratch, started.listener.as_ref())?;
    Ok(reaper.with(started.pid, cell.fallback.processes.is_some()))
}

/// Enters `step` and runs one system call of it; its failure names both.
fn attempt<T>(verb: Verb, call: impl FnOnce() -> nix::Result<T>) -> Result<T, Fail> {
    call().map_err(|errno| verb.failed(errno))
}
