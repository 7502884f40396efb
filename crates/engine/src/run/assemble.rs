//! Makes the record from the observations.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use super::FilterPolicy;
use super::evidence;
use super::filter;
use super::isolation::isolation;
use super::limits;
use super::live::Facts;
use super::measures::{CgroupFacts, timing, usage};
use super::network;
use super::places;
use jail::launch::Running;
use languages::Driver;
use nix::errno::Errno;
use plan::Plan;
use record::error::{SetupError, Step};
use record::{Denied, Outcome, Record, SCHEMA, Usage};
use spec::{Command, Network, Spec};
use supervise::capture::{Capture, Captured};
use supervise::{Between, Execution, NetworkLog, Observed, Stream};
use verdict::evidence::{End, Evidence, Place, Reach, Stop};
use verdict::last_words;
use verdict::{self, Verdict, judge};
use workspace::Outputs;

/// All that a record is made of.
pub(super) struct Parts<'a> {
    pub(super) facts: &'a Facts<'a>,
    pub(super) cell: &'a Running,
    pub(super) cgroup: Option<CgroupFacts>,
    pub(super) observed: &'a Observed,
    /// Whether the cell goes on.
    pub(super) lives: bool,
    pub(super) execution: Execution,
    pub(super) outputs: Outputs,
    pub(super) warnings: Vec<String>,
    /// The most wall time that this execution had.
    pub(super) wall: Option<Duration>,
    pub(super) began_ns: u64,
    /// The execution's id.
    pub(super) id: String,
}

/// The record of an execution whose cell was launched.
#[inline(never)]
pub(super) fn record(parts: Parts<'_>) -> Record {
    let Parts {
        facts,
        cell,
        cgroup,
        observed,
        lives,
        mut execution,
        outputs,
        mut warnings,
        wall,
        began_ns,
        id,
    } = parts;
    let (spec, plan, driver) = (&*facts.spec, &*facts.plan, facts.driver);
    let filter = facts.filter.as_ref();
    let mut denied = denied(&execution.denials.counts, filter);
    let denied_to_interpreter = self::denied(&execution.denials.interpreters, filter);
    let mut log = execution.network.take();
    match (&mut log, observed.network.clone()) {
        (Some(log), Some(last)) => log.absorb(last),
        (log, last) => *log = log.take().or(last),
    }
    let end = match lives {
        // As one would have ended that ran the code alone.
        true => {
            let report = &execution.report;
            let raised = u8::from(report.error.is_some());
            End::Exited(report.status.unwrap_or(raised))
        }
        false => end(observed),
    };
    let usage = usage(&execution, observed, lives, cgroup.as_ref(), &cell.fallback);
    let measured = evidence::measure(plan, cell, cgroup.as_ref(), observed, &usage, driver);
    let stopped = execution
        .stopped
        .take()
        .or_else(|| observed.stopped.clone());
    execution.grace = execution.grace.or(observed.grace);
    // Results that do not reach the caller are no success. A file that is still being written when the
    // time for that is over may be whole.
    let unwritten = observed
        .unwritten
        .filter(|errno| *errno != Errno::ETIMEDOUT);
    let unwritten = unwritten.map(|errno| SetupError::os(Step::Outputs, "write", errno));
    let unwritten = unwritten.map(|error| error.on("the file that the output goes to"));
    let lost = outputs.error.or(unwritten);
    let [stdout, stderr] =
        std::mem::take(&mut execution.output).map(|capture| capture.map(Capture::finish));
    let texts = [&stdout, &stderr].map(|stream| stream.as_ref().map(|stream| &stream.text));
    let last_output = evidence::last_output(&end, texts);
    let mut verdict = judge(&Evidence {
        stopped: (stopped.clone()).or_else(|| lost.as_ref().map(|e| Stop::Internal(e.to_string()))),
        measured: measured.clone(),
        last_words: last_words::find(
            [&last_output[0], &last_output[1]],
            &end,
            measured.memory_short,
        ),
        end,
        stderr: last_output[1].clone(),
        denied: &denied,
        refused: log.as_ref().map_or(&[], |log| &log.refused),
        counts: (log.as_ref())
            .and_then(|log| log.counts)
            .unwrap_or_default(),
        error: execution.report.error.as_ref(),
        broken_syntax: execution.report.is_syntax,
        limits: &plan.limits,
        held: evidence::held(plan, cell),
        place: place(spec, plan, driver),
    });
    name_enclosing(&mut verdict, cgroup.as_ref());
    note_oddities(observed, &execution, &mut warnings);
    warnings.extend(between(&execution.between, filter));
    // Reports that come after an execution are in the next record, but do not explain its errors.
    if let (Some(log), Some(earlier)) = (&mut log, execution.between.network.take()) {
        let own = std::mem::replace(log, earlier);
        log.absorb(own);
    }
    let mut truncated = outputs.truncated;
    for (name, stream) in [("stdout", &stdout), ("stderr", &stderr)] {
        truncated.extend(
            stream
                .as_ref()
                .and_then(|s| s.truncation.clone())
                .map(|cut| (name.to_owned(), cut)),
        );
    }
    let (results, cut, order) = std::mem::take(&mut execution.report.results).finish();
    truncated.extend(cut.map(|cut| ("results".to_owned(), cut)));
    let limits = limits::Evidence {
        plan,
        cell,
        cgroup: cgroup.as_ref(),
        observed,
        stopped: stopped.as_ref(),
        grace: execution.grace,
        verdict: &verdict,
        measured: &measured,
        wall,
        truncated: &truncated,
        network: log.as_ref(),
    }
    .limits();
    let network = network::network(plan, log);
    denied.extend(network::denied(network.as_ref()));
    let timing = timing(&execution, cell, began_ns);
    Record {
        setup_error: observed
            .failure
            .clone()
            .map(|error| hints::complete(error, plan))
            .or(lost),
        // Without the digits that a division adds.
        execution_time: (usage.wall_ms * 1000.0).round() / 1e6,
        results,
        order,
        error: execution.report.error,
        files: outputs.files,
        files_skipped: outputs.skipped,
        truncated,
        denied,
        denied_to_interpreter,
        network,
        usage,
        limits,
        isolation: Some(isolation(
            spec,
            plan,
            cell,
            filter,
            cgroup.map(|c| c.record),
            places::places(spec, plan, &observed.scratch),
        )),
        start: Some(cell.start),
        template: cell.template,
        timing,
        warnings,
        started_at: time_of_day(began_ns),
        ..outline(Some(spec), verdict, stdout, stderr, id)
    }
}

/// The record of a call whose cell was never launched.
pub(super) fn not_set_up(spec: Option<&Spec>, error: SetupError) -> Record {
    let verdict = verdict::not_set_up(&error);
    Record {
        setup_error: Some(error),
        ..outline(spec, verdict, None, None, id_without_cell())
    }
}

/// The record of an execution that was cancelled before it began.
pub(super) fn cancelled(spec: &Spec) -> Record {
    outline(
        Some(spec),
        verdict::cancelled_early(),
        None,
        None,
        id_without_cell(),
    )
}

fn id_without_cell() -> String {
    plan::new_id(std::process::id())
}

/// The time of day (RFC 3339) at a time of the monotonic clock.
fn time_of_day(ns: u64) -> String {
    let since = Duration::from_nanos(sys::process::monotonic_ns().saturating_sub(ns));
    let now = SystemTime::now();
    humantime::format_rfc3339_millis(now.checked_sub(since).unwrap_or(now)).to_string()
}

fn place<'a>(spec: &Spec, plan: &'a Plan, driver: Option<&'a Driver>) -> Place<'a> {
    Place {
        driver,
        rootfs: &plan.rootfs,
        reach: match spec.network {
            Network::None => Reach::Nothing,
            Network::Hosts(_) => Reach::Hosts,
            Network::Host => Reach::All,
        },
        is_root: plan.ids.inner_uid == 0,
    }
}

/// A record with how it ended and what it wrote, and nothing else yet.
fn outline(
    spec: Option<&Spec>,
    verdict: Verdict,
    stdout: Option<Captured>,
    stderr: Option<Captured>,
    id: String,
) -> Record {
    let (language, argv) = match spec.map(|spec| &spec.command) {
        Some(Command::Run { language, .. }) => (Some(language.clone()), None),
        Some(Command::Exec { argv, .. }) => (None, Some(argv.clone())),
        None => (None, None),
    };
    let split =
        |stream: Option<Captured>| stream.map_or((None, None), |s| (Some(s.text), s.base64));
    let (stdout, stdout_base64) = split(stdout);
    let (stderr, stderr_base64) = split(stderr);
    Record {
        schema: SCHEMA.to_owned(),
        id,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started_at: time_of_day(sys::process::monotonic_ns()),
        language,
        argv,
        outcome: verdict.outcome,
        exit_code: verdict.exit_code,
        signal: verdict.signal,
        is_error: verdict.is_error,
        error_category: verdict.error_category,
        is_retryable: verdict.is_retryable,
        context: verdict.context,
        operator_hint: verdict.operator_hint,
        stdout,
        stderr,
        stdout_base64,
        stderr_base64,
        usage: Usage {
            by: "none".to_owned(),
            ..Usage::default()
        },
        ..Record::default()
    }
}

/// How the program of a cell that is gone ended.
fn end(observed: &Observed) -> End {
    match (&observed.failure, observed.status) {
        (Some(error), _) => End::NotStarted(error.clone()),
        (None, Some(status)) if libc::WIFEXITED(status) => {
            End::Exited(u8::try_from(libc::WEXITSTATUS(status)).unwrap_or(u8::MAX))
        }
        (None, Some(status)) => End::Signaled(libc::WTERMSIG(status)),
        // Init was killed before it could say how the program ended.
        (None, None) => (observed.waited_with).map_or(End::Signaled(libc::SIGKILL), End::Exited),
    }
}

/// Says that it was the limit of another cgroup than the cell's that acted, and
/// whose.
fn name_enclosing(verdict: &mut Verdict, cgroup: Option<&CgroupFacts>) {
    let Some(CgroupFacts {
        usage, enforced, ..
    }) = cgroup
    else {
        return;
    };
    let (path, limit) = match verdict.outcome {
        Outcome::Memory => (&usage.acted.memory, enforced.memory.map(|bytes| bytes.0)),
        Outcome::Processes => (&usage.acted.processes, enforced.processes),
        _ => return,
    };
    if let (Some(path), Some(limit), Some(context)) = (path, limit, &mut verdict.context) {
        let _ = write!(
            context,
            " (the limit that acted is that of the cgroup that cellblock runs in, {}: {limit})",
            path.display()
        );
    }
}

fn note_oddities(observed: &Observed, execution: &Execution, warnings: &mut Vec<String>) {
    if observed.unkillable {
        warnings.push(
            "a process of the cell could not be killed yet: it is in uninterruptible sleep"
                .to_owned(),
        );
    }
    if let (None, None, Some(_)) = (
        observed.failure.as_ref(),
        observed.reaped,
        observed.used_so_far,
    ) {
        warnings.push("the cell's end was not counted in time: usage is what had been measured when the end began".to_owned());
    }
    if let Some(errno) = observed.unwritten {
        warnings.push(format!(
            "the file that the output goes to could not be written, so the rest of it is missing: {errno}"
        ));
    }
    let uncounted = execution.denials.uncounted;
    if uncounted > 0 {
        warnings.push(format!(
            "{uncounted} more calls were denied, of numbers that are not listed"
        ));
    }
    if execution.report.foreign > 0 {
        warnings.push(format!(
            "{} results of an earlier execution's threads are left out: let the code wait for its threads",
            execution.report.foreign
        ));
    }
    if execution.report.is_broken {
        warnings.push("the driver's channel carried something that is not the protocol: results may be missing".to_owned());
    } else if execution.report.is_cut_short {
        warnings.push(
            "the driver's channel ended within a frame: a result or an error is missing".to_owned(),
        );
    }
}

/// What counts for no execution.
fn between(between: &Between, policy: Option<&FilterPolicy>) -> Vec<String> {
    const WHEN: &str = "after the execution before had ended";
    const MOST_NAMED: usize = 20;
    let mut warnings = Vec::new();
    for (stream, written) in Stream::ALL.into_iter().zip(between.written) {
        if written > 0 {
            let name = stream.name();
            warnings.push(format!(
                "{written} bytes are left out that were written to {name} {WHEN}: let the code wait for its threads and processes"
            ));
        }
    }
    let listed = denied(&between.denied, policy);
    let (named, rest) = listed.split_at(listed.len().min(MOST_NAMED));
    let mut calls: Vec<String> = (named.iter())
        .map(|denied| format!("{} ({})", denied.name, denied.count))
        .collect();
    let others = (rest.iter()).fold(between.denied_unlisted, |sum, denied| {
        sum.saturating_add(denied.count)
    });
    if others > 0 {
        calls.push(format!("others ({others})"));
    }
    if !calls.is_empty() {
        warnings.push(format!(
            "system calls were denied {WHEN}: {}",
            calls.join(", ")
        ));
    }
    let network = between.network.as_ref();
    for (count, what) in [
        (network.map_or(0, |log| log.ended), "connections ended"),
        (
            network.map_or(0, NetworkLog::refusals),
            "names and hosts were refused",
        ),
    ] {
        if count > 0 {
            warnings.push(format!("{count} of the {what} {WHEN}"));
        }
    }
    warnings
}

fn denied(counts: &BTreeMap<i64, u64>, policy: Option<&FilterPolicy>) -> Vec<Denied> {
    (counts.iter())
        .map(|(number, count)| filter::denied(policy, *number, *count))
        .collect()
}
