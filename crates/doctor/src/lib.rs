//! What this host supports, what is missing, and the fix for each.
//!
//! Nothing is inferred from settings. Each step of a cell's set-up is taken for
//! real, by the code that every launch uses, in a cell that has nothing else and is
//! thrown away. Settings are only read to explain a failure.

#![forbid(unsafe_code)]
// Nothing that input, the kernel or a cell can influence may end in a panic.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{self, IsTerminal, Write};
use std::rc::Rc;

use engine::run::{self, Resolved};
use hints::Facts;
use jail::child::{Content, Filter};
use jail::launch::{Launch, Role};
use plan::probe::HostFacts;
use plan::{Fallback, Plan};
use record::error::{Result, SetupError, Step};
use record::terminal;
use spec::{self, Ask, Layer, Mode, Partial, Spec, Stdin, Stdio};
use supervise::{Cancel, Cell, Denials, Request};

mod cell;
mod layers;
mod report;
mod resources;
mod trials;
mod view;

pub use report::{CgroupFindings, Check, Host, Limits, Paste, Report, SCHEMA, Status, Tried};

/// Tries everything and prints the findings. The status is 0 when a cell with
/// every security layer works, and 1 otherwise.
///
/// # Errors
/// Only when the findings cannot be printed.
#[inline(never)]
pub fn run(json: bool) -> Result<u8> {
    let report = examine();
    let mut stdout = io::stdout();
    let text = if json {
        let mut text = serde_json::to_string_pretty(&report).map_err(|e| {
            SetupError::new(Step::Outputs, format!("the findings do not serialise: {e}"))
        })?;
        text.push('\n');
        terminal::json_for_stdout(text)
    } else {
        view::text(&report, wants_colour(&stdout))
    };
    stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
        .map_err(|e| SetupError::io(Step::Outputs, "write", &e).on("standard output"))?;
    Ok(u8::from(!report.works))
}

fn wants_colour(stdout: &io::Stdout) -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    stdout.is_terminal() && !is_set("NO_COLOR") && !dumb
}

/// Tries everything that a cell is made of.
pub fn examine() -> Report {
    let facts = Facts::gather();
    let mut checks = report::Checks::new(&facts);
    let host = HostFacts::gather();
    checks.add(layers::kernel(&host));
    layers::system_calls(&mut checks);
    let plan = checks.after("plan", &["kernel"], || {
        let host = host?;
        // Landlock gets a verdict of its own, and must not hide the others'.
        let missing = host.landlock_abi == 0;
        run::resolve_on(&spec(missing.then_some(Layer::Landlock))?, host)
    });
    trials::all(&mut checks, plan.as_ref());
    layers::landlock(&mut checks, plan.as_ref());
    layers::seccomp(&mut checks, plan.as_ref());
    let cgroup = resources::cgroup(&mut checks);
    resources::interpreters(&mut checks);
    layers::executable_memory(&mut checks);
    layers::carried_state(&mut checks);
    cell::whole(&mut checks, spec(None));
    let list = checks.into_list();
    Report::new(facts, list, cgroup)
}

/// What the whole-cell check runs: the default profile, nothing given up.
fn spec(without: Option<Layer>) -> Result<Spec> {
    let ask = Ask {
        mode: Mode::Exec,
        cwd: "/".as_ref(),
        stdio: Stdio::Capture,
        lends: false,
    };
    let partial = Partial {
        argv: Some(vec!["true".into()]),
        without: without.into_iter().collect(),
        ..Partial::default()
    };
    let mut spec = spec::load(&ask, None, None, partial)?;
    spec.stdin = Stdin::Null;
    Ok(spec)
}

/// A resolved cell without anything in it, for trials to add to.
fn bare(resolved: &Resolved) -> Plan {
    let mut plan = resolved.plan.clone();
    plan.namespaces.clear();
    plan.egress = None;
    plan.mounts.clear();
    plan.scratch.clear();
    plan.tmpfs.clear();
    plan.files.clear();
    plan.program.cwd = "/".into();
    plan.userns_limits = None;
    plan.landlock = None;
    plan.seccomp = None;
    plan
}

/// Sets up what `plan` holds, until the step `until` is taken, in a cell that is
/// thrown away.
fn try_until(plan: &Plan, filter: Option<&Filter>, until: Step) -> Result<()> {
    let launch = Launch {
        role: Role::Program,
        plan: Rc::new(plan.clone()),
        filter,
        content: Content::default(),
        cgroup: None,
        fallback: Fallback::default(),
        until,
        holds: false,
    };
    let mut cell = Cell::start(launch, Denials::default(), Cancel::default())?;
    cell.execute(Request {
        is_last: true,
        ..Request::default()
    })?;
    let observed = cell.end()?;
    observed.failure.map_or(Ok(()), Err)
}
