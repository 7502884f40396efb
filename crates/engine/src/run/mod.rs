//! One call from a spec to its record: the flow of `lib.rs` in one place.

use std::borrow::Cow;
use std::rc::Rc;
use std::time::Instant;

use caller_streams::CallerStreams;
use cgroup::{CellCgroup, CgroupLimits, CgroupSite};
use jail::launch::terminal::CallerTerminal;
use plan::probe::Filters;
use plan::{Fallback, Plan};
use record::Record;
use record::error::{Result, SetupError, Step};
use record::words::of_fallback;
use spec::{FilesFrom, Spec, Stdio};
use supervise::copy::TemplateCell;
use supervise::{BlockedSignals, Cancel, Parent};
use workspace::inputs::Staged;

mod ahead;
mod assemble;
mod caller_streams;
mod compiled;
mod events;
mod evidence;
mod filter;
mod host_paths;
mod info;
mod isolation;
mod limits;
mod live;
mod measures;
mod network;
mod passed;
mod places;
mod resolve;
mod sockets;
mod stock;
// They leave out steps, which a build for release cannot.
#[cfg(all(test, debug_assertions))]
mod tests;

pub use ahead::Ahead;
pub use compiled::Compiled;
pub use events::{Chunks, Events, Outbox, Viewer};
pub use filter::{Policy as FilterPolicy, instructions};
pub use info::Info;
pub(crate) use live::{Code, From, Live, Work, code_of};
pub use passed::Passed;
pub(crate) use resolve::resolve_with;
pub use resolve::{Resolved, interpreter, resolve, resolve_on};
pub use stock::{Stock, StockCell};

/// The number of a call's one execution.
const ONLY: u64 = 1;

/// Who a call is made for, and stays in touch with it while it goes on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Caller<'a> {
    /// Where events go; the last one, with the record, is the caller's to write.
    pub events: Option<&'a Events>,
    /// The process whose end ends the cell.
    pub parent: Option<&'a Parent>,
    /// How the cell is started.
    pub start: CellStart,
    /// Descriptors that its program gets.
    pub passed: Option<&'a Passed>,
    /// Where what the cell is goes, when its program has been started.
    pub info: Option<&'a Info>,
    /// What there is of its shim's compiled form. Its owner keeps what is missing, after the call.
    pub compiled: Option<&'a Compiled>,
}

/// How a call starts its cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CellStart {
    /// In one go.
    #[default]
    Cold,
    /// As a blank cell, which is looked at from outside before its program starts. That
    /// gains nothing for one call: a server does so ahead of it.
    Blank,
    /// As a copy of a template of its own, which gains nothing for one call either. Where
    /// that fails, the cell is started in one go, and the record says why.
    Forked,
    /// With the state of an interpreter in another cell, as [`crate::context::execute_carried`] does
    /// it. Here it is the same as [`Self::Cold`].
    Carried,
}

/// Executes `spec` and returns the record. `began` is when the call began.
pub fn execute(spec: &Spec, began: Instant) -> Record {
    execute_for(Caller::default(), spec, began)
}

/// The same as [`execute`], for a caller that stays in touch.
#[inline(never)]
pub fn execute_for(caller: Caller<'_>, spec: &Spec, began: Instant) -> Record {
    let began_ns = sys::process::monotonic_ns() - began.elapsed().as_nanos() as u64;
    let run_as = |caller: Caller<'_>| {
        let resolved = resolve::resolve_for(spec, caller.compiled)?;
        run(caller, spec, resolved, began_ns)
    };
    // What was read from standard input is not there a second time.
    let can_repeat = !matches!(spec.files_from, Some(FilesFrom::Stdin));
    let ran = match run_as(caller) {
        Err(error) if caller.start == CellStart::Forked && can_repeat => {
            let start = CellStart::Cold;
            run_as(Caller { start, ..caller }).map(|mut record| {
                record.warnings.push(without_template(&error));
                record
            })
        }
        ran => ran,
    };
    match ran {
        Ok(record) => record,
        Err(error) => not_set_up(spec, error),
    }
}

/// The record of a call for `spec` whose cell could not be launched.
#[inline(never)]
pub(crate) fn not_set_up(spec: &Spec, error: SetupError) -> Record {
    assemble::not_set_up(Some(spec), hints::explain(error))
}

/// The record of an execution that was cancelled before it began.
pub(crate) fn cancelled(spec: &Spec) -> Record {
    assemble::cancelled(spec)
}

/// The record of a call whose request could not be read.
pub fn refused(error: SetupError) -> Record {
    assemble::not_set_up(None, error)
}

#[inline(never)]
fn run(caller: Caller<'_>, spec: &Spec, resolved: Resolved, began_ns: u64) -> Result<Record> {
    if resolved.plan.watch.stdio == Stdio::Terminal {
        // Before anything is made.
        CallerTerminal::of_stdin()?;
    }
    let mut staged = Staged::read(&resolved.plan)?;
    staged.passed = caller.passed.map(Passed::take).unwrap_or_default();
    let signals = BlockedSignals::block()?;
    let cancel = Cancel {
        signals: Some(&signals),
        parent: caller.parent,
    };
    let is_forked = caller.start == CellStart::Forked;
    let template = is_forked.then(|| own_template(caller, &resolved, cancel));
    let from = match &template {
        Some(Ok(of)) => From::Template {
            template: of.template(),
            is_awaited: false,
        },
        // What waits for its program can be looked at.
        _ if caller.start == CellStart::Blank || caller.info.is_some() => From::Blank(caller.info),
        _ => From::Nothing,
    };
    // The program may begin with the cell.
    let streams = CallerStreams::of(&resolved.plan);
    let mut live = Live::start(Cow::Borrowed(spec), resolved, staged, cancel, from)?;
    if let Some(Err(error)) = &template {
        live.warn(without_template(error));
    }
    let work = Work {
        execution: ONLY,
        message: live.message(ONLY, code_of(spec), true)?,
        code_file: live.facts.code_file(code_of(spec)),
        is_last: true,
        began_ns,
        ..Work::default()
    };
    let plan = Rc::clone(&live.facts.plan);
    let executed = live.execute(work, caller.events, None);
    streams.restore();
    let mut record = executed?.record;
    if let Some(hint) = host_paths::hint(&record, &plan) {
        record.operator_hint = Some(hint);
    }
    Ok(record)
}

fn without_template(error: &SetupError) -> String {
    format!("the cell was started without a template: {error}")
}

/// Starts a template for one cell.
#[inline(never)]
fn own_template<'a>(
    caller: Caller<'_>,
    resolved: &Resolved,
    cancel: Cancel<'a>,
) -> Result<TemplateCell<'a>> {
    match resolved.driver() {
        _ if caller.info.is_some() => {
            let message = "a copy cannot be inspected before its program runs";
            Err(SetupError::new(Step::Fork, message).on("--info-fd"))
        }
        Some(driver) if driver.is_template => {
            TemplateCell::start(Rc::new(resolved.plan.for_template(&[])), cancel)
        }
        _ => Err(SetupError::new(Step::Fork, "only Python has templates")),
    }
}

/// Makes the cell's cgroup, and finds what no cgroup holds. A fallback for that is
/// worth a warning; it is an error where the caller refuses it, or where a filter
/// kills for it.
fn hold_limits(plan: &Plan, warnings: &mut Vec<String>) -> Result<(Option<CellCgroup>, Fallback)> {
    let (cgroup, reasons) = prepare_cgroup(plan)?;
    let mut fallback = fallback(plan, cgroup.as_ref());
    let missing = limits_without_cgroup(&fallback);
    if fallback.cpus.is_some()
        && let Some(error) = Filters::current().refusal(|call| call == "sched_setaffinity")
    {
        return Err(error);
    }
    if plan.strict {
        refuse_fallbacks(&missing, &reasons)?;
    }
    // The way that was tried last needs the least; doctor lists all.
    fallback.why = reasons.into_iter().next_back();
    warnings.extend(fallback_warning(&fallback));
    Ok((cgroup, fallback))
}

/// The cell's cgroup, and why it holds fewer limits or does not exist.
fn prepare_cgroup(plan: &Plan) -> Result<(Option<CellCgroup>, Vec<String>)> {
    let limits = CgroupLimits {
        memory: plan.limits.memory,
        processes: plan.limits.processes,
        cpus: plan.limits.cpus,
    };
    let attempt = CgroupSite::find(&plan.cgroup)?.cell(&plan.id, &limits)?;
    let mut reasons: Vec<String> = attempt.tried.iter().map(ToString::to_string).collect();
    if let Some(cell) = &attempt.cell {
        reasons.extend(cell.unenforced().iter().map(ToString::to_string));
    }
    Ok((attempt.cell, reasons))
}

/// What no cgroup holds, as read back.
fn fallback(plan: &Plan, cgroup: Option<&CellCgroup>) -> Fallback {
    let enforced = cgroup.map(CellCgroup::enforced).unwrap_or_default();
    let all = &plan.fallback;
    Fallback {
        memory: all.memory.filter(|_| enforced.memory.is_none()),
        processes: all.processes.filter(|_| enforced.processes.is_none()),
        cpus: all.cpus.filter(|_| enforced.cpus.is_none()),
        why: None,
    }
}

/// Limits that were asked for and that no cgroup holds.
fn limits_without_cgroup(fallback: &Fallback) -> Vec<&'static str> {
    [
        ("memory", fallback.memory.is_some()),
        ("processes", fallback.processes.is_some()),
        ("cpus", fallback.cpus.is_some()),
    ]
    .into_iter()
    .filter_map(|(name, is_missing)| is_missing.then_some(name))
    .collect()
}

/// Ways to a cgroup that did not work are of interest only where one was wanted
/// and a limit is without it.
fn fallback_warning(fallback: &Fallback) -> Option<String> {
    let missing = limits_without_cgroup(fallback);
    let why = fallback.why.as_ref().filter(|_| !missing.is_empty())?;
    Some(of_fallback(&missing, why))
}

fn refuse_fallbacks(missing: &[&str], reasons: &[String]) -> Result<()> {
    if missing.is_empty() {
        return Ok(());
    }
    let why = if reasons.is_empty() {
        "--cgroup none".to_owned()
    } else {
        reasons.join("; ")
    };
    Err(SetupError::new(Step::Cgroup, format!("no cgroup holds this limit, and --strict refuses a fallback: {why}"))
        .on(missing.join(", "))
        .hint("start cellblock in a delegated cgroup (systemd-run --user --scope -p Delegate=yes …), leave --strict out, or set the limit to none"))
}
