//! The set-up without its program: what `doctor` has done for real.
//!
//! The same verbs in the same order as in [`super::main`], up to a given step.
//! A plan that is reduced to one concern makes the others do nothing; what a
//! layer takes away is then tried, so that one which only pretends shows.

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

use super::fail::{Call, Fail, Verb};
use super::report::Reporter;
use super::{Prepared, confine, identity, landlock, mounts, program, tether};
use crate::plan::Namespace;
use record::error::Step;
use sys;

/// Sets up what the plan of `cell` holds, until `last` is done, and ends.
pub(crate) fn rehearse(cell: &Prepared<'_>, last: Step) -> ! {
    let report = Reporter::new(&cell.report, cell.progress);
    let status = match play(cell, last, &report) {
        Ok(()) => 0,
        Err(failure) => {
            report.failed(&failure);
            1
        }
    };
    sys::process::exit_now(status)
}

fn play(cell: &Prepared<'_>, last: Step, report: &Reporter<'_>) -> Result<(), Fail> {
    let plan = cell.plan;
    tether::die_with_supervisor(report)?;
    if last == Step::Clone {
        return Ok(());
    }
    let network = identity::begin_network(plan, report)?;
    identity::enter_network(network, report)?;
    if plan.has(Namespace::Uts) {
        identity::set_host_name(plan, report)?;
    }
    let sources = if plan.has(Namespace::Mount) {
        mounts::open_sources(plan, Vec::new(), report)?
    } else {
        Vec::new()
    };
    if plan.has(Namespace::User) {
        tether::wait_for_id_maps(report)?;
        identity::become_inner_user(plan, report)?;
    }
    confine::forbid_nested_userns(plan, report)?;
    if !plan.mounts.is_empty() {
        let root = mounts::build(plan, sources, report)?;
        if last >= Step::Pivot {
            mounts::change_root(plan, root, report)?;
        }
    }
    identity::enter_cgroup_namespace(plan, report)?;
    // Only who has a user namespace of its own has capabilities to drop.
    if last >= Step::Capabilities && plan.has(Namespace::User) {
        confine::drop_capabilities(report)?;
    }
    if last >= Step::NoNewPrivs {
        confine::set_no_new_privs(report)?;
    }
    restrict(cell, report)?;
    filter(cell, report)
}

/// Applies Landlock, and sees it deny what no rule allows.
fn restrict(cell: &Prepared<'_>, report: &Reporter<'_>) -> Result<(), Fail> {
    let Some(rules) = &cell.plan.landlock else {
        return Ok(());
    };
    landlock::restrict(cell.plan, report)?;
    if rules.rules.iter().any(|rule| rule.path.parent().is_none()) {
        return Ok(());
    }
    match open("/", OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()) {
        Err(Errno::EACCES) => Ok(()),
        _ => Err(Verb::new(Step::Landlock, Call::Landlock).failed(Errno::EOPNOTSUPP)),
    }
}

/// Loads the filter, and sees it deny a call; a listening supervisor answers.
fn filter(cell: &Prepared<'_>, report: &Reporter<'_>) -> Result<(), Fail> {
    if cell.filter.is_none() {
        return Ok(());
    }
    report.enter(Step::Seccomp);
    if let Some(listener) = program::load_filter(cell)? {
        report.listening(&listener)?;
    }
    match sys::process::try_nested_userns() {
        Err(Errno::EPERM) => Ok(()),
        _ => Err(Verb::new(Step::Seccomp, Call::Seccomp).failed(Errno::EOPNOTSUPP)),
    }
}
