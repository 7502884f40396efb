//! `cellblock plan`.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal as _};

use serde::Serialize;

use super::print;
use super::run::{lend, load};
use crate::cli::Options;
use crate::show::{self, Style};
use engine::run;
use plan::Plan;
use plan::probe::HostFacts;
use record::error::{Result, SetupError, Step};
use record::terminal;
use spec::{Layer, Mode, Partial, Spec};
use sys::inherited::Inherited;

/// What `cellblock plan` prints.
#[derive(Serialize)]
struct PlanDocument<'a> {
    schema: &'static str,
    /// The policy profile.
    profile: &'a str,
    /// Security layers that the caller gives up.
    given_up: &'a BTreeSet<Layer>,
    plan: &'a Plan,
    host: &'a HostFacts,
    seccomp: Option<String>,
}

/// Prints what `run` or `exec` with these options would do.
///
/// # Errors
/// The request cannot be read, or a step cannot be done on this host.
#[inline(never)]
pub(super) fn print_plan(
    mode: Mode,
    options: &Options,
    flags: Result<Partial>,
    inherited: &mut Inherited,
) -> Result<u8> {
    let mut spec = load(mode, options, flags?)?;
    lend(&mut spec, &run::Passed::default(), inherited)?;
    let resolved = run::resolve(&spec).map_err(hints::explain)?;
    let document = PlanDocument {
        schema: "cellblock.plan.v1",
        profile: &spec.profile,
        given_up: &spec.without,
        plan: &resolved.plan,
        host: &resolved.host,
        seccomp: resolved
            .filter
            .as_ref()
            .map(|policy| policy.compiled().identity()),
    };
    if io::stdout().is_terminal() && !options.outputs.prints() {
        let Spec {
            profile, without, ..
        } = &spec;
        let text = show::render_plan(&resolved.plan, profile, without, Style::of_stdout());
        return print(text.as_bytes()).map(|()| 0);
    }
    let text = serde_json::to_string_pretty(&document).map_err(|e| {
        SetupError::new(
            Step::Outputs,
            format!("the plan cannot be shown as JSON: {e}"),
        )
        .hint("JSON holds UTF-8 only; the launch itself takes any path")
    })?;
    let text = terminal::json_for_stdout(text + "\n");
    print(text.as_bytes()).map(|()| 0)
}
