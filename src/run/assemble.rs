//! Everything observed, as a record.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use nix::sys::statvfs::fstatvfs;

use super::FilterPolicy;
use super::conversation::Said;
use super::filter;
use super::isolation::isolation;
use super::limits;
use super::measures::{timing, usage};
use crate::drivers::Driver;
use crate::error::SetupError;
use crate::launch::Running;
use crate::launch::cgroup::{CellCgroup, CgroupUsage, Enforced};
use crate::plan::Plan;
use crate::record::{CgroupRecord, Denied, Outcome, Record, SCHEMA, Timing, Usage};
use crate::spec::{Command, Limits, Network, Spec, TmpfsLimit, WORKSPACE};
use crate::supervise::Observed;
use crate::supervise::capture::{Capture, Captured};
use crate::supervise::outputs::Outputs;
use crate::supervise::verdict::{End, Evidence, Exhausted, FullTmpfs, Place, Stop, Verdict, judge};

/// What the cell's cgroup said before it was removed.
#[derive(Debug)]
pub(super) struct CgroupFacts {
    pub(super) usage: CgroupUsage,
    pub(super) enforced: Enforced,
    record: CgroupRecord,
}

impl CgroupFacts {
    pub(super) fn of(cgroup: &CellCgroup) -> Self {
        Self {
            usage: cgroup.usage(),
            enforced: cgroup.enforced(),
            record: cgroup.record(),
        }
    }
}

/// All that a record is made of.
pub(super) struct Parts<'a> {
    pub(super) spec: &'a Spec,
    pub(super) plan: &'a Plan,
    pub(super) filter: Option<&'a FilterPolicy>,
    pub(super) cell: &'a Running,
    pub(super) cgroup: Option<CgroupFacts>,
    pub(super) observed: Observed,
    pub(super) outputs: Outputs,
    pub(super) said: Said,
    pub(super) warnings: Vec<String>,
    pub(super) driver: Option<&'static Driver>,
    pub(super) began_ns: u64,
}

/// The record of a call whose cell was launched.
pub(super) fn record(parts: Parts<'_>) -> Record {
    let Parts {
        spec,
        plan,
        filter,
        cell,
        cgroup,
        mut observed,
        outputs,
        said,
        mut warnings,
        driver,
        began_ns,
    } = parts;
    let denied = denied(&observed, filter);
    let blamed = blamed(&denied, driver);
    let full = full_tmpfs(&observed, &plan.limits);
    let usage = usage(&observed, cgroup.as_ref());
    // Results that do not reach the caller are no success.
    let lost = outputs.error;
    let [stdout, stderr] =
        std::mem::take(&mut observed.output).map(|capture| capture.map(Capture::finish));
    let mut verdict = judge(&Evidence {
        end: end(&observed),
        stopped: observed
            .stopped
            .clone()
            .or_else(|| lost.as_ref().map(|e| Stop::Internal(e.to_string()))),
        oom_kills: cgroup.as_ref().and_then(|c| c.usage.oom_kills).unwrap_or(0),
        pids_limit_hits: refused_forks(&observed, cell, cgroup.as_ref()),
        aborted_for_memory: [&stdout, &stderr].into_iter().flatten().any(|stream| {
            driver
                .iter()
                .flat_map(|driver| driver.out_of_memory)
                .any(|words| stream.text.mentions(words))
        }),
        full: full.clone(),
        denied: &blamed,
        error: said.error.as_ref(),
        broken_syntax: said.is_syntax,
        limits: &plan.limits,
        place: place(spec, plan),
    });
    name_enclosing(&mut verdict, cgroup.as_ref());
    note_oddities(&observed, &said, &mut warnings);
    let mut truncated = outputs.truncated;
    for (name, stream) in [("stdout", &stdout), ("stderr", &stderr)] {
        truncated.extend(
            stream
                .as_ref()
                .and_then(|s| s.truncation.clone())
                .map(|cut| (name.to_owned(), cut)),
        );
    }
    let (results, cut) = said.results.finish();
    truncated.extend(cut.map(|cut| ("results".to_owned(), cut)));
    let limits = limits::Evidence {
        plan,
        cell,
        cgroup: cgroup.as_ref(),
        observed: &observed,
        verdict: &verdict,
        full: &full,
        truncated: &truncated,
    }
    .limits();
    let timing = timing(&observed, cell, said.started_ns, began_ns);
    Record {
        setup_error: observed
            .failure
            .clone()
            .map(|error| crate::hints::complete(error, plan))
            .or(lost),
        execution_time: usage.wall_ms / 1000.0,
        results,
        error: said.error,
        files: outputs.files,
        files_skipped: outputs.skipped,
        truncated,
        denied,
        usage,
        limits,
        isolation: Some(isolation(plan, filter, cgroup.map(|c| c.record))),
        timing,
        warnings,
        ..outline(Some(spec), verdict, stdout, stderr, plan.id.clone())
    }
}

/// What was denied to the code, rather than to the interpreter for itself.
fn blamed(denied: &[Denied], driver: Option<&Driver>) -> Vec<Denied> {
    let probes = driver.map_or(&[][..], |driver| driver.probes);
    let is_codes = |denied: &&Denied| !probes.contains(&denied.name.as_str());
    denied.iter().filter(is_codes).cloned().collect()
}

/// The record of a call whose cell was never launched.
pub(super) fn not_set_up(spec: Option<&Spec>, error: SetupError) -> Record {
    let limits = spec.map_or_else(unlimited, |spec| spec.limits.clone());
    let verdict = judge(&Evidence {
        end: End::NotStarted(error.clone()),
        stopped: None,
        oom_kills: 0,
        pids_limit_hits: None,
        aborted_for_memory: false,
        full: Vec::new(),
        denied: &[],
        error: None,
        broken_syntax: false,
        limits: &limits,
        place: Place::default(),
    });
    Record {
        setup_error: Some(error),
        ..outline(spec, verdict, None, None, String::new())
    }
}

fn place<'a>(spec: &'a Spec, plan: &'a Plan) -> Place<'a> {
    Place {
        language: match &spec.command {
            Command::Run { language, .. } => Some(language),
            Command::Exec { .. } => None,
        },
        rootfs: &plan.rootfs,
        has_network: spec.network != Network::None,
    }
}

fn unlimited() -> Limits {
    let none = TmpfsLimit {
        size: crate::spec::Bytes(0),
        inodes: 0,
    };
    Limits {
        wall: None,
        cpu_time: None,
        cpus: None,
        memory: None,
        processes: None,
        open_files: None,
        file_size: None,
        output: crate::spec::Bytes(0),
        on_output: crate::spec::OnOutput::Truncate,
        tmp: none,
        workspace: none,
        shm: none,
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
        Some(Command::Exec { argv }) => (None, Some(argv.clone())),
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
        language,
        argv,
        outcome: verdict.outcome,
        exit_code: verdict.exit_code,
        signal: verdict.signal,
        execution_time: 0.0,
        is_error: verdict.is_error,
        error_category: verdict.error_category,
        is_retryable: verdict.is_retryable,
        context: verdict.context,
        stdout,
        stderr,
        stdout_base64,
        stderr_base64,
        results: Vec::new(),
        error: None,
        files: Vec::new(),
        files_skipped: Vec::new(),
        truncated: BTreeMap::new(),
        denied: Vec::new(),
        usage: Usage {
            by: "none".to_owned(),
            ..Usage::default()
        },
        limits: BTreeMap::new(),
        isolation: None,
        timing: Timing::default(),
        setup_error: None,
        warnings: Vec::new(),
    }
}

fn end(observed: &Observed) -> End {
    match (&observed.failure, observed.status) {
        (Some(error), _) => End::NotStarted(error.clone()),
        (None, Some(status)) if libc::WIFEXITED(status) => {
            End::Exited(u8::try_from(libc::WEXITSTATUS(status)).unwrap_or(u8::MAX))
        }
        (None, Some(status)) => End::Signaled(libc::WTERMSIG(status)),
        // Init was killed before it could say how the program ended.
        (None, None) => End::Signaled(libc::SIGKILL),
    }
}

/// How often the limit on processes refused one. Without a cgroup nothing counts
/// that, but a watchdog that saw as many as are allowed tells as much.
fn refused_forks(observed: &Observed, cell: &Running, cgroup: Option<&CgroupFacts>) -> Option<u64> {
    match cell.fallback.processes {
        // Init is one of those that the watchdog sees.
        Some(limit) => observed
            .watched
            .processes
            .map(|seen| u64::from(seen > limit)),
        None => cgroup.and_then(|c| c.usage.forks_refused),
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

fn note_oddities(observed: &Observed, said: &Said, warnings: &mut Vec<String>) {
    if observed.unkillable {
        warnings.push("a process of the cell could not be killed for now: it waits in the kernel, and goes when that ends".to_owned());
    }
    if observed.channel_broken {
        warnings.push("the driver's channel carried something that is not the protocol: results may be missing".to_owned());
    } else if said.is_cut_short {
        warnings.push(
            "the driver's channel ended within a frame: a result or an error is missing".to_owned(),
        );
    }
}

fn denied(observed: &Observed, policy: Option<&FilterPolicy>) -> Vec<Denied> {
    let counts = observed.denials.counts().iter();
    counts
        .map(|(number, count)| filter::denied(policy, *number, *count))
        .collect()
}

/// Which of the tmpfs that the program writes to had nothing left at the end.
fn full_tmpfs(observed: &Observed, limits: &Limits) -> Vec<FullTmpfs> {
    let places = [
        (WORKSPACE, limits.workspace),
        ("/tmp", limits.tmp),
        ("/dev/shm", limits.shm),
    ];
    let exhausted = |(directory, (name, limit)): (&std::os::fd::OwnedFd, (&str, TmpfsLimit))| {
        let fs = fstatvfs(directory).ok()?;
        let exhausted = if fs.blocks_available() == 0 {
            Exhausted::Space(limit.size)
        } else if fs.files_free() == 0 {
            Exhausted::Inodes(limit.inodes)
        } else {
            return None;
        };
        Some(FullTmpfs {
            name: name.to_owned(),
            exhausted,
        })
    };
    observed
        .directories
        .iter()
        .zip(places)
        .filter_map(exhausted)
        .collect()
}
