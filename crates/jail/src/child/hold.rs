//! A blank cell: complete but for its program.

use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::sys::prctl::set_dumpable;
use nix::sys::socket::MsgFlags;

use super::Prepared;
use super::command::{Command, ProgramOrder, Received};
use super::fail::{At, Call, Fail, Site};
use super::landlock;
use super::parcel::Parcel;
use super::program::Begin;
use super::report::Reporter;
use record::error::Step;

/// How a blank cell goes on.
pub(super) enum Ordered {
    /// With a program, and its standard input where one was given.
    Program(Begin, Option<OwnedFd>),
    /// Without a program.
    Stay,
}

/// Reports that the cell is complete, and waits for the order to go on; `None` when the cell is to
/// end instead.
pub(super) fn wait(
    cell: &Prepared<'_>,
    scratch: &[OwnedFd],
    report: &Reporter<'_>,
) -> Result<Option<Ordered>, Fail> {
    // The supervisor checks everything else from outside before it sends a program.
    landlock::prove(cell.plan)?;
    let site = Site::new(Step::Report);
    // The supervisor looks at the cell's namespaces from outside, which an unprivileged
    // one may do only while init is dumpable. Nobody is inside who could look at init.
    let is_shown = !cell.plan.ids.privileged;
    set_dumpable(is_shown).at(site, Call::Prctl)?;
    report.waiting(scratch)?;
    let order = receive(report).at(site, Call::Recv)?;
    set_dumpable(false).at(site, Call::Prctl)?;
    let unpack = |parcel| Parcel::unpack(parcel).at(site, Call::Recv);
    match order {
        None => Ok(None),
        Some(Received::Stay(parcel)) => {
            unpack(parcel)?.deliver(report)?;
            Ok(Some(Ordered::Stay))
        }
        Some(Received::Program(ProgramOrder { parcel, stdin })) => {
            let begin = Begin {
                fixed_layout: cell.plan.program.fixed_layout,
                ..unpack(parcel)?.deliver(report)?
            };
            Ok(Some(Ordered::Program(begin, stdin)))
        }
        Some(_) => Err(site.failed(Call::Recv, Errno::EBADMSG)),
    }
}

/// The order, or `None` for the end.
fn receive(report: &Reporter<'_>) -> Result<Option<Received>, Errno> {
    loop {
        match Received::next(report.socket(), MsgFlags::empty()) {
            Err(Errno::EINTR) => {}
            Ok(Some(Received::Command(command))) => match command {
                Command::End => return Ok(None),
                // These concern processes, and the cell has none yet.
                Command::Signal(_)
                | Command::Interrupt(_)
                | Command::SignalProcess(..)
                | Command::Freeze
                | Command::Thaw => {}
                Command::Go | Command::Adopt(_) | Command::EndWith(_) => {
                    return Err(Errno::EBADMSG);
                }
            },
            other => return other,
        }
    }
}
