//! The init of a cell whose program is forked from a template, ahead of need.
//!
//! Init first hands the supervisor the pid namespace. The template forks the program's process
//! into it, where it becomes init's child, while init sets the cell up as for any program, up to
//! where it would start it. Then init hands over what that process needs to enter, the other
//! namespaces and the Landlock rules, and the process confines itself (`supervise/copy/mod.rs`).

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
use plan::Namespace;
use record::error::Step;

/// Hands over the pid namespace of a copy's cell, so that the template forks the program's process
/// while init sets up the rest.
pub(super) fn offer_pid_namespace(role: Role, report: &Reporter<'_>) -> Result<(), Fail> {
    match role {
        Role::Copy { .. } => {
            let namespaces = open_namespaces(&[Namespace::Pid])?;
            report.prepared(&[], with_roles(&namespaces))
        }
        Role::Program | Role::Template => Ok(()),
    }
}

/// Waits until the supervisor gives up the cell of a copy, whose set-up has failed. The template may
/// be forking into its pid namespace, and the end of init would kill a process that shares the
/// template's memory.
pub(super) fn await_end(role: Role, report: &Reporter<'_>) {
    if let Role::Copy { .. } = role {
        while let Ok(Some(_)) | Err(Errno::EINTR) =
            Received::next(report.socket(), MsgFlags::empty())
        {}
    }
}

/// Waits for the program that the template has forked into the cell.
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
    let theirs = ruleset.iter().map(|fd| (FdRole::Ruleset, fd));
    report.prepared(scratch, with_roles(&namespaces).chain(theirs))?;
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

fn with_roles(namespaces: &[(Namespace, OwnedFd)]) -> impl Iterator<Item = (FdRole, &OwnedFd)> {
    (namespaces.iter()).map(|(kind, fd)| (FdRole::Namespace(*kind), fd))
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
