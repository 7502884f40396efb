//! One call from a spec to its record: the flow of `lib.rs` in one place.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use crate::child::{Content, Filter};
use crate::drivers::frames::Request;
use crate::drivers::{self, Driver};
use crate::launch::cgroup::{self, CellCgroup};
use crate::launch::{idmap, launch};
use crate::plan::{Fallback, Plan, ProgramRequest};
use crate::probe::{Filters, HostFacts};
use crate::rootfs::{Lease, Tree};
use crate::spec::{Command, Layer, Network, Spec};
use crate::supervise::outputs::OutDir;
use crate::supervise::{BlockedSignals, Channel, Observer, Parent, watch};
use record::bytes::RawText;
use record::error::{Result, SetupError, Step};
use record::{FileChange, Record};

mod assemble;
mod conversation;
mod events;
mod evidence;
mod filter;
mod inputs;
mod isolation;
mod limits;
mod measures;
mod outputs;
mod results;
mod sockets;

use conversation::Conversation;
pub use events::Events;
use events::Teller;
pub use filter::Policy as FilterPolicy;
pub use filter::instructions;
use inputs::Trees;

/// A spec resolved against this host, and what the launch needs besides.
#[derive(Debug)]
pub struct Resolved {
    /// Everything that a launch will do.
    pub plan: Plan,
    /// What the host can do.
    pub host: HostFacts,
    /// The system call policy; `None` when given up.
    pub filter: Option<FilterPolicy>,
    /// What the caller should know of before anything runs.
    pub warnings: Vec<String>,
    driver: Option<&'static Driver>,
    /// Keeps a tree of the store from being removed.
    lease: Option<Arc<Lease>>,
}

/// Resolves `spec` against this host without changing anything.
///
/// # Errors
/// The step that cannot be done, and the way out.
pub fn resolve(spec: &Spec) -> Result<Resolved> {
    let host = HostFacts::gather()?;
    let needs = |call: &str| match call {
        "seccomp" => !spec.without.contains(&Layer::Seccomp),
        "setgroups" => host.uid == 0,
        "setns" | "socket" => spec.network == Network::None,
        // Made only where no cgroup holds the CPUs.
        "sched_setaffinity" => false,
        call => !call.starts_with("landlock") || !spec.without.contains(&Layer::Landlock),
    };
    match Filters::current().refusal(needs) {
        Some(error) => Err(error),
        None => resolve_on(spec, host),
    }
}

/// The same on a host whose filters do not matter: `doctor` tries each part.
pub fn resolve_on(spec: &Spec, host: HostFacts) -> Result<Resolved> {
    let driver = match &spec.command {
        Command::Run { language, .. } => Some(drivers::find(language)?),
        Command::Exec { .. } => None,
    };
    let preferred = driver.map(|driver| driver.rootfs);
    let tree = Tree::find(&spec.rootfs, spec.store.as_deref(), preferred)?;
    let program = program(spec, &tree, driver)?;
    let plan = Plan::new(spec, &host, &tree, program)?;
    let filter = plan
        .seccomp
        .as_deref()
        .map(FilterPolicy::find)
        .transpose()?;
    Ok(Resolved {
        warnings: sockets::warnings(spec, &plan),
        plan,
        host,
        filter,
        driver,
        lease: tree.lease,
    })
}

/// What is to be executed.
fn program(spec: &Spec, tree: &Tree, driver: Option<&'static Driver>) -> Result<ProgramRequest> {
    match (&spec.command, driver) {
        (Command::Run { code, args, .. }, Some(driver)) => {
            let interpreter = interpreter(tree, driver)?;
            let is_compiled = driver
                .compiled_file()
                .is_some_and(|path| tree.has_file(&path));
            Ok(ProgramRequest {
                program: interpreter.as_path().into(),
                argv: driver.argv(&interpreter, args, spec.limits.memory, is_compiled),
                channel: driver.has_channel(),
                files: driver.files_for(code),
            })
        }
        (Command::Exec { argv }, _) if !argv.is_empty() => Ok(ProgramRequest {
            program: argv[0].clone(),
            argv: argv.clone(),
            channel: false,
            files: Vec::new(),
        }),
        _ => Err(SetupError::new(Step::Spec, "no program to execute").on("argv")),
    }
}

/// The driver's interpreter inside `tree`.
pub fn interpreter(tree: &Tree, driver: &Driver) -> Result<PathBuf> {
    let named = tree.interpreters.get(driver.name).map(PathBuf::as_path);
    let usual = driver.interpreters.iter().map(Path::new);
    let found = named
        .into_iter()
        .chain(usual)
        .find(|path| tree.has_program(path));
    found.map(Into::into).ok_or_else(|| {
        SetupError::new(
            Step::Interpreter,
            format!("no {} in the rootfs `{}`", driver.name, tree.label),
        )
        .on(driver.interpreters.join(", "))
        .hint(format!(
            "install {} there, or name a directory that has it with --rootfs",
            driver.name
        ))
    })
}

/// Executes `spec` and says what happened. `began` is when the call began.
pub fn execute(spec: &Spec, began: Instant) -> Record {
    execute_tied(spec, began, Tie::default())
}

/// What connects a call to its caller while it goes on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tie<'a> {
    /// Is told what happens, all but the end.
    pub events: Option<&'a Events>,
    /// The process whose end ends the cell.
    pub parent: Option<&'a Parent>,
}

/// The same as [`execute`], with a tie to the caller.
pub fn execute_tied(spec: &Spec, began: Instant, tie: Tie<'_>) -> Record {
    let began_ns = sys::process::monotonic_ns() - began.elapsed().as_nanos() as u64;
    match resolve(spec).and_then(|resolved| run(spec, resolved, began_ns, tie)) {
        Ok(record) => record,
        Err(error) => assemble::not_set_up(Some(spec), crate::hints::explain(error)),
    }
}

/// The record of a call that never came to a spec.
pub fn refused(error: SetupError) -> Record {
    assemble::not_set_up(None, error)
}

fn run(spec: &Spec, resolved: Resolved, began_ns: u64, tie: Tie<'_>) -> Result<Record> {
    let Resolved {
        plan,
        filter,
        warnings: foreseen,
        driver,
        lease: _lease,
        ..
    } = resolved;
    let Trees {
        stages,
        kept,
        warnings: left_out,
    } = Trees::read(&plan)?;
    let mapped = idmap::map_binds(&plan)?;
    let signals = BlockedSignals::block()?;
    let (inputs, baseline) = inputs::open(&plan.files, &stages)?;
    let out = plan.watch.out.as_deref().map(OutDir::open).transpose()?;
    outputs::refuse_same(out.as_ref(), &kept)?;
    // Hints name the service, which this process may leave for a cgroup.
    crate::hints::own_service();
    let (cgroup, reasons) = prepare_cgroup(&plan)?;
    let fallback = fallback(&plan, cgroup.as_ref());
    let missing = limits_without_cgroup(&fallback);
    if let Some(error) = refuse_deadly_affinity(&fallback) {
        return Err(error);
    }
    if spec.strict {
        refuse_fallbacks(&missing, &reasons)?;
    }
    let mut warnings = foreseen;
    warnings.extend(fallback_warning(&missing, &reasons));
    let filter = filter
        .map(|policy| policy.without(fallback.unheld()))
        .transpose()?;
    let teller = tie
        .events
        .map(|events| Teller::new(events, spec, &plan, filter.as_ref()));
    let mut conversation = conversation(spec, driver, teller.as_ref())?;
    let program = filter.as_ref().map(|policy| Filter {
        program: policy.instructions(),
        notify: true,
    });
    let content = Content {
        inputs,
        stages,
        mapped,
    };
    let mut cell = launch(&plan, program.as_ref(), content, cgroup, fallback)
        .map_err(|error| crate::hints::complete(error, &plan))?;
    // Now, while init sets the cell up and nothing is to be watched yet.
    if let Some(cgroup) = &cell.cgroup {
        cgroup.sweep_beside();
    }
    let channel = conversation
        .as_mut()
        .map(|conversation| conversation as &mut dyn Channel);
    let denials = filter
        .as_ref()
        .map(|policy| policy.denials(driver.map_or(&[][..], |driver| driver.probes)))
        .unwrap_or_default();
    let observer = teller.as_ref().map(|teller| teller as &dyn Observer);
    let observed = watch(
        &cell,
        &plan,
        denials,
        signals.fd(),
        channel,
        observer,
        tie.parent,
    );
    let cgroup_facts = cell.cgroup.as_ref().map(assemble::CgroupFacts::of);
    if let Some(cgroup) = cell.cgroup.take()
        && let Err(error) = cgroup.remove()
    {
        warnings.push(error.to_string());
    }
    let observed = observed?;
    warnings.extend(left_out);
    warnings.extend(outputs::not_listed(&plan).filter(|_| observed.failure.is_none()));
    let tell = |file: &FileChange| {
        if let Some(teller) = &teller {
            teller.file(file);
        }
    };
    let outputs = outputs::gather(&plan, &observed, &baseline, out.as_ref(), &kept, &tell);
    if let Some(trouble) = tie.events.and_then(Events::trouble) {
        warnings.push(format!("events are missing: {trouble}"));
    }
    Ok(assemble::record(assemble::Parts {
        spec,
        plan: &plan,
        filter: filter.as_ref(),
        cell: &cell,
        cgroup: cgroup_facts,
        observed,
        outputs,
        said: conversation.map(Conversation::finish).unwrap_or_default(),
        warnings,
        driver,
        began_ns,
    }))
}

fn conversation<'a>(
    spec: &Spec,
    driver: Option<&Driver>,
    teller: Option<&'a Teller<'a>>,
) -> Result<Option<Conversation<'a>>> {
    match (&spec.command, driver) {
        (
            Command::Run {
                code, name, args, ..
            },
            Some(driver),
        ) if driver.has_channel() => {
            let directory = Path::new(crate::spec::WORKSPACE);
            let request = Request {
                code,
                name,
                directory,
                args: args as &[RawText],
                memory: spec.limits.memory,
                parts: driver.parts(),
            };
            let results = spec.limits.results;
            Ok(Some(Conversation::new(request.encode()?, results, teller)))
        }
        _ => Ok(None),
    }
}

/// The cell's cgroup, and why there is none or a lesser one.
fn prepare_cgroup(plan: &Plan) -> Result<(Option<CellCgroup>, Vec<String>)> {
    let limits = &plan.limits;
    let prepared = cgroup::prepare(&cgroup::Request {
        choice: &plan.cgroup,
        memory: limits.memory,
        processes: limits.processes,
        cpus: limits.cpus,
        id: &plan.id,
    })?;
    let mut reasons: Vec<String> = prepared.tried.iter().map(ToString::to_string).collect();
    if let Some(cell) = &prepared.cell {
        reasons.extend(cell.unenforced().iter().map(ToString::to_string));
    }
    Ok((prepared.cell, reasons))
}

/// What no cgroup holds, as read back.
fn fallback(plan: &Plan, cgroup: Option<&CellCgroup>) -> Fallback {
    let enforced = cgroup.map(CellCgroup::enforced).unwrap_or_default();
    let mut fallback = plan.fallback.clone();
    if enforced.memory.is_some() {
        fallback.memory = None;
    }
    if enforced.processes.is_some() {
        fallback.processes = None;
    }
    if enforced.cpus.is_some() {
        fallback.cpus = None;
    }
    fallback
}

/// A filter that kills for what holds `--cpus` without a cgroup.
fn refuse_deadly_affinity(fallback: &Fallback) -> Option<SetupError> {
    fallback.cpus?;
    Filters::current().refusal(|call| call == "sched_setaffinity")
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
            // The way that was tried last asks the least; doctor tells of all.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_limit_without_its_cgroup_is_worth_a_warning() {
        let reasons = [
            "delegated: EACCES".to_owned(),
            "systemd-user: ENOENT".to_owned(),
        ];
        // Another way gave a cgroup that holds everything.
        assert_eq!(fallback_warning(&[], &reasons), None);
        // `--cgroup none`.
        assert_eq!(fallback_warning(&["memory"], &[]), None);
        assert_eq!(
            fallback_warning(&["memory", "cpus"], &reasons).as_deref(),
            Some(
                "no cgroup limits memory, cpus, so a fallback does: systemd-user: ENOENT; `cellblock doctor` says how to get one"
            )
        );
    }
}
