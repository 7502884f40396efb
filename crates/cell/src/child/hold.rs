//! A blank cell: complete but for its program.

use std::os::fd::OwnedFd;

use nix::sys::prctl::set_dumpable;

use super::Prepared;
use super::command::ProgramOrder;
use super::fail::{At, Call, Fail, Site};
use super::parcel::Parcel;
use super::program::Begin;
use super::report::Reporter;
use record::error::Step;

/// Says that the cell is complete, and waits for its program. Returns how that begins,
/// and its standard input where one was given; `None` when the cell is to end instead.
pub(super) fn wait(
    cell: &Prepared<'_>,
    scratch: &[OwnedFd],
    report: &Reporter<'_>,
) -> Result<Option<(Begin, Option<OwnedFd>)>, Fail> {
    let site = Site::new(Step::Report);
    // The supervisor looks at the cell's namespaces from outside, which an unprivileged
    // one may do only while init is dumpable. Nobody is inside who could look at init.
    let is_shown = !cell.plan.ids.privileged;
    set_dumpable(is_shown).at(site, Call::Prctl)?;
    report.waiting(scratch)?;
    let Some(ProgramOrder { parcel, stdin }) =
        ProgramOrder::receive(report.socket()).at(site, Call::Recv)?
    else {
        return Ok(None);
    };
    set_dumpable(false).at(site, Call::Prctl)?;
    let parcel = Parcel::unpack(parcel).at(site, Call::Recv)?;
    Ok(Some((parcel.deliver(report)?, stdin)))
}
