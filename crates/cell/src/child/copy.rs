//! The init of a cell whose program is forked from a template, ahead of need.
//!
//! Init sets the cell up as for any program, up to where it would start it, and hands
//! the supervisor what the program's process needs to enter: the namespaces, and the
//! Landlock rules. The template then forks that process into the cell's pid namespace,
//! where it becomes init's child, and it confines itself (`supervise/copy.rs`).

use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::socket::MsgFlags;
use nix::sys::stat::Mode;
use nix::unistd::Pid;

use super::command::{Command, Received};
use super::fail::{At, Call, Fail, Site};
use super::init::{Init, block_signals};
use super::report::{Reporter, Role as FdRole};
use super::{Prepared, Role, landlock};
use crate::plan::Namespace;
use record::error::Step;

/// Waits for the program to be forked into the cell.
///
/// # Errors
/// A step that failed; EPIPE when the supervisor gives the cell up.
pub(super) fn await_program<'a>(
    cell: &'a Prepared<'a>,
    scratch: &[OwnedFd],
    report: &Reporter<'_>,
) -> Result<Init<'a>, Fail> {
    // By path, and so before Landlock.
    let namespaces = open_namespaces(&cell.plan.namespaces)?;
    let ruleset = landlock::restrict_apart(cell.plan, report)?;
    let signals = block_signals()?;
    let namespaces = namespaces
        .iter()
        .map(|(kind, fd)| (FdRole::Namespace(*kind), fd));
    let theirs = ruleset.iter().map(|fd| (FdRole::Ruleset, fd));
    report.prepared(scratch, namespaces.chain(theirs))?;
    let mut init = Init::new(cell, signals, Some(adopt(report)?));
    init.ruleset = ruleset;
    Ok(init)
}

/// The namespaces of a template below which its copies have theirs; none of other cells.
pub(super) fn namespaces_for_copies(
    cell: &Prepared<'_>,
) -> Result<Vec<(Namespace, OwnedFd)>, Fail> {
    match cell.role {
        Role::Template => open_namespaces(&[Namespace::User, Namespace::Pid]),
        Role::Program | Role::Copy { .. } => Ok(Vec::new()),
    }
}

fn open_namespaces(kinds: &[Namespace]) -> Result<Vec<(Namespace, OwnedFd)>, Fail> {
    let site = Site::new(Step::Report);
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    kinds
        .iter()
        .map(|kind| {
            let path = format!("/proc/self/ns/{}", kind.file());
            let fd = open(path.as_str(), flags, Mode::empty()).at(site, Call::Open)?;
            Ok((*kind, fd))
        })
        .collect()
}

/// The program's pid, from the supervisor.
fn adopt(report: &Reporter<'_>) -> Result<Pid, Fail> {
    let site = Site::new(Step::Exec);
    loop {
        match Received::next(report.socket(), MsgFlags::empty()) {
            Ok(Some(Received::Command(Command::Adopt(pid)))) => {
                return Ok(Pid::from_raw(i32::from(pid)));
            }
            Ok(_) => return Err(site.failed(Call::Recv, Errno::EPIPE)),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(site.failed(Call::Recv, errno)),
        }
    }
}
