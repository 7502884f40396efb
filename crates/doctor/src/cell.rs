//! A whole cell, as a caller would have it.

use std::time::Instant;

use engine::run;
use record::error::{Result, SetupError, Step};
use record::{Outcome, Record};
use spec::Spec;

use super::report::{Check, Checks};

const NAME: &str = "cell";

/// Runs a program in a cell with every layer.
pub(super) fn whole(checks: &mut Checks<'_>, spec: Result<Spec>) {
    let began = Instant::now();
    checks.add_after(NAME, &["plan"], |facts| {
        let record = match spec {
            Ok(spec) => run::execute(&spec, began),
            Err(error) => run::refused(error),
        };
        if record.outcome == Outcome::Ok {
            return Check::works(NAME, in_words(&record));
        }
        let error = record.setup_error.clone().unwrap_or_else(|| {
            let why = record.context.as_deref().unwrap_or("it did not run");
            SetupError::new(Step::Exec, why.trim_end_matches('.')).on("true")
        });
        Check::fails(NAME, error, facts)
    });
    checks.explain_by_parts();
}

fn in_words(record: &Record) -> String {
    let by = |name: &str| {
        let limit = record.limits.get(name);
        format!(
            "{name} by {}",
            limit.map_or("none", |limit| limit.by.as_str())
        )
    };
    let limits: Vec<String> = ["memory", "processes", "cpus"].map(by).into();
    let whole = record.timing.setup_ms + record.timing.code_ms + record.timing.teardown_ms;
    format!("every security layer, {whole:.1} ms; {}", limits.join(", "))
}
