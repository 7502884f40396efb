//! One call from a spec to its record: the flow of `lib.rs` in one place.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Instant;

use crate::child::{Content, Filter};
use crate::drivers::Driver;
use crate::drivers::frames::Request as DriverRequest;
use crate::launch::cgroup::{CellCgroup, CgroupLimits, CgroupSite};
use crate::launch::{Launch, idmap};
use crate::plan::{Fallback, Plan};
use crate::probe::Filters;
use crate::spec::{Command, Spec};
use crate::supervise::{
    Blank, BlockedSignals, Cancel, Cell, Denials, Ended, Observer, Parent, Program, Request,
};
use crate::workspace::inputs::{self, Staged};
use crate::workspace::{OutDir, outputs};
use record::bytes::RawText;
use record::error::{Result, SetupError, Step};
use record::{FileChange, Record, Start};

mod assemble;
mod events;
mod evidence;
mod filter;
mod isolation;
mod limits;
mod measures;
mod resolve;
mod sockets;
#[cfg(test)]
mod tests;

use events::EventEmitter;
pub use events::Events;
pub use filter::Policy as FilterPolicy;
pub(crate) use filter::instructions;
use measures::CgroupFacts;
pub use resolve::{Resolved, resolve};
pub(crate) use resolve::{interpreter, resolve_on};

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
}

/// Executes `spec` and returns the record. `began` is when the call began.
pub fn execute(spec: &Spec, began: Instant) -> Record {
    execute_for(Caller::default(), spec, began)
}

/// The same as [`execute`], for a caller that stays in touch.
pub fn execute_for(caller: Caller<'_>, spec: &Spec, began: Instant) -> Record {
    let began_ns = sys::process::monotonic_ns() - began.elapsed().as_nanos() as u64;
    match resolve(spec).and_then(|resolved| run(caller, spec, resolved, began_ns)) {
        Ok(record) => record,
        Err(error) => assemble::not_set_up(Some(spec), crate::hints::explain(error)),
    }
}

/// The record of a call whose request could not be read.
pub fn refused(error: SetupError) -> Record {
    assemble::not_set_up(None, error)
}

fn run(caller: Caller<'_>, spec: &Spec, resolved: Resolved, began_ns: u64) -> Result<Record> {
    let Resolved {
        plan,
        filter,
        mut warnings,
        driver,
        lease: _lease,
        ..
    } = resolved;
    let Staged {
        stages,
        kept,
        warnings: left_out,
    } = Staged::read(&plan)?;
    let mapped = idmap::map_binds(&plan)?;
    let signals = BlockedSignals::block()?;
    let (mut inputs, mut baseline) = inputs::open(&plan.files, &stages)?;
    let out = plan.watch.out.as_deref().map(OutDir::open).transpose()?;
    outputs::refuse_same(out.as_ref(), &kept)?;
    // Hints name the service, which this process may leave for a cgroup.
    crate::hints::own_service();
    let (cgroup, fallback) = hold_limits(&plan, &mut warnings)?;
    let filter = filter
        .map(|policy| policy.without(fallback.unheld()))
        .transpose()?;
    let program = filter.as_ref().map(|policy| Filter {
        program: instructions(policy.compiled()),
        notify: true,
    });
    let start = match caller.start {
        CellStart::Cold => Start::Cold,
        CellStart::Blank => Start::Blank,
    };
    let is_blank = start == Start::Blank;
    let emitter = (caller.events)
        .map(|events| EventEmitter::new(events, spec, &plan, filter.as_ref(), start));
    let request = Request {
        execution: ONLY,
        message: driver_request(spec, driver)?,
        is_last: true,
        results: spec.limits.results,
        observer: emitter.as_ref().map(|emitter| emitter as &dyn Observer),
    };
    let blank_inputs = if is_blank {
        std::mem::take(&mut inputs)
    } else {
        Vec::new()
    };
    let content = Content {
        inputs,
        stages,
        mapped,
    };
    let launch = Launch {
        plan: &plan,
        filter: program.as_ref(),
        content,
        cgroup,
        fallback,
        until: Step::Exec,
        holds: is_blank,
    };
    let cancel = Cancel {
        signals: Some(&signals),
        parent: caller.parent,
    };
    let denials = denials(filter.as_ref(), driver);
    let started = match start {
        Start::Blank => start_in_blank(launch, &blank_inputs, denials, cancel),
        _ => Cell::start(launch, denials, cancel),
    };
    let mut cell = started.map_err(|error| crate::hints::complete(error, &plan))?;
    // Now, while init sets the cell up and nothing is to be watched yet.
    cell.sweep_cgroups();
    let execution = cell.execute(request)?;
    let Ended { mut cell, observed } = cell.end()?;
    let cgroup = cell.cgroup.as_ref().map(CgroupFacts::of);
    let removed = cell.cgroup.take().map_or(Ok(()), CellCgroup::remove);
    warnings.extend(removed.err().map(|error| error.to_string()));
    warnings.extend(left_out);
    warnings.extend(outputs::not_listed(&plan).filter(|_| observed.failure.is_none()));
    let on_file = |file: &FileChange| {
        if let Some(emitter) = &emitter {
            emitter.file(file);
        }
    };
    let collection = outputs::Collection {
        plan: &plan,
        scratch: &observed.scratch,
        began_ns: execution.began_ns,
        was_set_up: observed.failure.is_none(),
        out: out.as_ref(),
        kept: &kept,
        report: &on_file,
    };
    let outputs = outputs::gather(&collection, &mut baseline);
    if let Some(trouble) = caller.events.and_then(Events::trouble) {
        warnings.push(format!("events are missing: {trouble}"));
    }
    Ok(assemble::record(assemble::Parts {
        spec,
        plan: &plan,
        filter: filter.as_ref(),
        cell: &cell,
        cgroup,
        observed,
        execution,
        outputs,
        warnings,
        driver,
        began_ns,
    }))
}

/// Starts a blank cell, and its program in it.
fn start_in_blank<'a>(
    launch: Launch<'a>,
    inputs: &'a [Option<OwnedFd>],
    denials: Denials,
    cancel: Cancel<'a>,
) -> Result<Cell<'a>> {
    let plan = launch.plan;
    let mut blank = Blank::start(launch, cancel)?;
    // What fails in there is in the record, as of any cell.
    if blank.settle()? {
        blank.verify()?;
    }
    blank.begin(Program {
        plan,
        inputs,
        denials,
        cancel,
    })
}

/// What is sent to the driver; empty where none is to be asked.
fn driver_request(spec: &Spec, driver: Option<&Driver>) -> Result<Vec<u8>> {
    match (&spec.command, driver) {
        (
            Command::Run {
                code, name, args, ..
            },
            Some(driver),
        ) if driver.has_channel() => DriverRequest {
            execution: ONLY,
            code,
            name,
            directory: Path::new(crate::spec::WORKSPACE),
            args: args as &[RawText],
            memory: spec.limits.memory.map(|limit| limit.0),
        }
        .encode(),
        _ => Ok(Vec::new()),
    }
}

fn denials(filter: Option<&FilterPolicy>, driver: Option<&Driver>) -> Denials {
    let probes = driver.map_or(&[][..], |driver| driver.probes);
    filter
        .map(|policy| policy.denials(probes))
        .unwrap_or_default()
}

/// Makes the cell's cgroup, and finds what no cgroup holds. A fallback for that is
/// worth a warning; it is an error where the caller refuses it, or where a filter
/// kills for it.
fn hold_limits(plan: &Plan, warnings: &mut Vec<String>) -> Result<(Option<CellCgroup>, Fallback)> {
    let (cgroup, reasons) = prepare_cgroup(plan)?;
    let fallback = fallback(plan, cgroup.as_ref());
    let missing = limits_without_cgroup(&fallback);
    if fallback.cpus.is_some()
        && let Some(error) = Filters::current().refusal(|call| call == "sched_setaffinity")
    {
        return Err(error);
    }
    if plan.strict {
        refuse_fallbacks(&missing, &reasons)?;
    }
    warnings.extend(fallback_warning(&missing, &reasons));
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
fn fallback_warning(missing: &[&str], reasons: &[String]) -> Option<String> {
    (!missing.is_empty() && !reasons.is_empty()).then(|| {
        format!(
            "no cgroup limits {}, so a fallback does: {}; `cellblock doctor` says how to get one",
            missing.join(", "),
            // The way that was tried last needs the least; doctor lists all.
            reasons.last().map_or("", String::as_str)
        )
    })
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
