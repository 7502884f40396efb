//! Everything observed, as a record.

use std::collections::BTreeMap;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit};
use nix::sys::statvfs::fstatvfs;

use super::FilterPolicy;
use super::conversation::Said;
use crate::error::{SetupError, Step};
use crate::launch::Running;
use crate::launch::cgroup::{CellCgroup, CgroupUsage, Enforced};
use crate::plan::{Plan, Rlimit, RlimitKind};
use crate::record::{
    CgroupRecord, Denied, IdRecord, Isolation, LimitRecord, Outcome, Record, SCHEMA, Timing,
    Truncation, Usage,
};
use crate::spec::{Command, Limits, Spec, TmpfsLimit, WORKSPACE};
use crate::supervise::Observed;
use crate::supervise::capture::{Capture, Captured};
use crate::supervise::outputs::Outputs;
use crate::supervise::verdict::{End, Evidence, Exhausted, FullTmpfs, Stop, Verdict, judge};

/// What the cell's cgroup said before it was removed.
#[derive(Debug)]
pub(super) struct CgroupFacts {
    usage: CgroupUsage,
    enforced: Enforced,
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
        began_ns,
    } = parts;
    let denied = denied(&observed, filter);
    let full = full_tmpfs(&observed, &plan.limits);
    let usage = usage(&observed, cgroup.as_ref());
    // Results that do not reach the caller are no success.
    let lost = outputs.error;
    let verdict = judge(&Evidence {
        end: end(&observed),
        stopped: observed
            .stopped
            .clone()
            .or_else(|| lost.as_ref().map(|e| Stop::Internal(e.to_string()))),
        oom_kills: cgroup.as_ref().and_then(|c| c.usage.oom_kills).unwrap_or(0),
        pids_limit_hits: refused_forks(&observed, cell, cgroup.as_ref()),
        full: full.clone(),
        denied: &denied,
        error: said.error.as_ref(),
        broken_syntax: said.is_syntax,
        limits: &plan.limits,
    });
    note_oddities(&observed, &mut warnings);
    warnings.extend(said.notes);
    let mut truncated = outputs.truncated;
    let [stdout, stderr] =
        std::mem::take(&mut observed.output).map(|capture| capture.map(Capture::finish));
    for (name, stream) in [("stdout", &stdout), ("stderr", &stderr)] {
        truncated.extend(
            stream
                .as_ref()
                .and_then(|s| s.truncation.clone())
                .map(|cut| (name.to_owned(), cut)),
        );
    }
    if said.results_total > said.results.len() as u64 {
        let cut = Truncation {
            total: said.results_total,
            kept: said.results.len() as u64,
            part: "head".into(),
            head: None,
        };
        truncated.insert("results".to_owned(), cut);
    }
    let hits = Hits {
        verdict: &verdict,
        observed: &observed,
        cgroup: cgroup.as_ref(),
        full: &full,
        truncated: &truncated,
    };
    let limits = limits(plan, cell, cgroup.as_ref(), &hits);
    let timing = timing(&observed, cell, said.started_ns, began_ns);
    Record {
        setup_error: observed
            .failure
            .clone()
            .map(|error| crate::hints::complete(error, plan))
            .or(lost),
        execution_time: usage.wall_ms / 1000.0,
        results: said.results,
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

/// The record of a call whose cell was never launched.
pub(super) fn not_set_up(spec: Option<&Spec>, error: SetupError) -> Record {
    let limits = spec.map_or_else(unlimited, |spec| spec.limits.clone());
    let verdict = judge(&Evidence {
        end: End::NotStarted(error.clone()),
        stopped: None,
        oom_kills: 0,
        pids_limit_hits: None,
        full: Vec::new(),
        denied: &[],
        error: None,
        broken_syntax: false,
        limits: &limits,
    });
    Record {
        setup_error: Some(error),
        ..outline(spec, verdict, None, None, String::new())
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

fn note_oddities(observed: &Observed, warnings: &mut Vec<String>) {
    if observed.unkillable {
        warnings.push("a process of the cell could not be killed for now: it waits in the kernel, and goes when that ends".to_owned());
    }
    if observed.channel_broken {
        warnings.push("the driver's channel carried something that is not the protocol: results may be missing".to_owned());
    }
}

fn denied(observed: &Observed, filter: Option<&FilterPolicy>) -> Vec<Denied> {
    let entry = |(number, count): (&i64, &u64)| {
        let known = filter.and_then(|f| f.compiled().denial(i32::try_from(*number).ok()?));
        Denied {
            kind: "syscall".to_owned(),
            name: known.map_or_else(|| number.to_string(), |denial| denial.name.to_owned()),
            count: *count,
            action: known.map_or_else(
                || "EPERM".to_owned(),
                |denial| format!("{:?}", nix::errno::Errno::from_raw(denial.errno)),
            ),
            reason: known.map(|denial| denial.reason.clone().into_owned()),
        }
    };
    observed.denials.counts().iter().map(entry).collect()
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

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

fn between_ms(from_ns: u64, to_ns: u64) -> f64 {
    to_ns.saturating_sub(from_ns) as f64 / 1e6
}

fn usage(observed: &Observed, cgroup: Option<&CgroupFacts>) -> Usage {
    let wall_ms = if observed.began_ns == 0 {
        0.0
    } else {
        between_ms(observed.began_ns, observed.ended_ns)
    };
    let reaped = observed.reaped;
    let group = cgroup.map(|c| &c.usage);
    let cpu = group.and_then(|usage| usage.cpu);
    Usage {
        wall_ms,
        cpu_user_ms: cpu.map(|c| c.user).or(reaped.map(|r| r.user)).map(millis),
        cpu_system_ms: cpu
            .map(|c| c.system)
            .or(reaped.map(|r| r.system))
            .map(millis),
        memory_peak_bytes: group
            .and_then(|usage| usage.memory_peak.map(|bytes| bytes.0))
            .or_else(|| observed.watched.memory.max(reaped.map(|r| r.max_rss))),
        processes_peak: group
            .and_then(|usage| usage.processes_peak)
            .or(observed.watched.processes),
        throttled_ms: group.and_then(|usage| usage.throttled).map(millis),
        by: if cpu.is_some() { "cgroup" } else { "rusage" }.to_owned(),
    }
}

fn timing(observed: &Observed, cell: &Running, started_ns: Option<u64>, began_ns: u64) -> Timing {
    let now = crate::sys::process::monotonic_ns();
    let executed = observed.began_ns;
    let code_from = started_ns.filter(|at| *at >= executed).unwrap_or(executed);
    let ran = executed != 0;
    Timing {
        setup_ms: between_ms(began_ns, if ran { executed } else { observed.ended_ns }),
        interpreter_ms: started_ns
            .filter(|_| ran)
            .map(|at| between_ms(executed, at)),
        code_ms: if ran {
            between_ms(code_from, observed.ended_ns)
        } else {
            0.0
        },
        teardown_ms: between_ms(observed.ended_ns, now),
        steps: steps(cell, began_ns),
    }
}

/// How long each step of the set-up took: until the next one began.
fn steps(cell: &Running, began_ns: u64) -> BTreeMap<String, f64> {
    let name = |step: Step| {
        serde_json::to_value(step)
            .ok()
            .and_then(|v| v.as_str().map(str::to_owned))
    };
    let mut entered: Vec<(u64, Step)> = Step::ALL
        .iter()
        .filter_map(|step| Some((cell.progress.began_ns(*step)?, *step)))
        .collect();
    entered.sort_unstable();
    let mut steps = BTreeMap::new();
    if let Some((first, _)) = entered.first() {
        steps.insert("prepare".to_owned(), between_ms(began_ns, *first));
    }
    for pair in entered.windows(2) {
        if let ([(from, step), (to, _)], true) = (pair, true)
            && let Some(name) = name(*step)
        {
            steps.insert(name, between_ms(*from, *to));
        }
    }
    steps
}

struct Hits<'a> {
    verdict: &'a Verdict,
    observed: &'a Observed,
    cgroup: Option<&'a CgroupFacts>,
    full: &'a [FullTmpfs],
    truncated: &'a BTreeMap<String, Truncation>,
}

impl Hits<'_> {
    fn tmpfs(&self, name: &str) -> bool {
        self.full.iter().any(|full| full.name == name)
    }

    fn forks_refused(&self) -> bool {
        self.cgroup
            .and_then(|c| c.usage.forks_refused)
            .is_some_and(|count| count > 0)
    }

    fn throttled(&self) -> bool {
        self.cgroup
            .and_then(|c| c.usage.throttled)
            .is_some_and(|time| time > Duration::ZERO)
    }
}

fn limits(
    plan: &Plan,
    cell: &Running,
    cgroup: Option<&CgroupFacts>,
    hits: &Hits<'_>,
) -> BTreeMap<String, LimitRecord> {
    let asked = &plan.limits;
    let stopped = hits.observed.stopped.as_ref();
    let enforced = cgroup.map(|c| c.enforced).unwrap_or_default();
    let fallback = &cell.fallback;
    let held = |kind| {
        plan.rlimits
            .iter()
            .find(|limit| limit.resource == kind)
            .map(effective)
    };
    let mut all = BTreeMap::new();
    let mut add =
        |name: &str, unit: &str, requested: f64, holds: Option<f64>, by: &str, hit: bool| {
            let by = if holds.is_some() { by } else { "none" };
            let record = LimitRecord {
                requested,
                enforced: holds,
                unit: unit.to_owned(),
                by: by.to_owned(),
                hit,
            };
            all.insert(name.to_owned(), record);
        };
    if let Some(wall) = asked.wall.map(millis) {
        add(
            "wall",
            "ms",
            wall,
            Some(wall),
            "timer",
            matches!(stopped, Some(Stop::WallTimeout(_))),
        );
    }
    if let Some(cpu) = asked.cpu_time.map(millis) {
        let hit = matches!(stopped, Some(Stop::CpuTimeout(_)));
        let by = if cgroup.is_some() {
            "cgroup+watchdog"
        } else {
            "rlimit+watchdog"
        };
        add("cpu_time", "ms", cpu, Some(cpu), by, hit);
    }
    if let Some(cpus) = asked.cpus {
        match fallback.cpus {
            Some(bound) => add("cpus", "cpus", cpus, Some(bound as f64), "affinity", false),
            None => add(
                "cpus",
                "cpus",
                cpus,
                enforced.cpus,
                "cgroup",
                hits.throttled(),
            ),
        }
    }
    if let Some(memory) = asked.memory.map(|bytes| bytes.0 as f64) {
        let hit = hits.verdict.outcome == Outcome::Memory;
        match fallback.memory {
            Some(bytes) => add(
                "memory",
                "bytes",
                memory,
                Some(bytes.0 as f64),
                "rlimit+watchdog",
                hit,
            ),
            None => add(
                "memory",
                "bytes",
                memory,
                enforced.memory.map(|b| b.0 as f64),
                "cgroup",
                hit,
            ),
        }
    }
    if let Some(processes) = asked.processes.map(|count| count as f64) {
        let hit = hits.forks_refused() || hits.verdict.outcome == Outcome::Processes;
        match fallback.processes {
            Some(count) => add(
                "processes",
                "count",
                processes,
                Some(count as f64),
                "rlimit",
                hit,
            ),
            None => add(
                "processes",
                "count",
                processes,
                enforced.processes.map(|n| n as f64),
                "cgroup",
                hit,
            ),
        }
    }
    if let Some(files) = asked.open_files.map(|count| count as f64) {
        add(
            "open_files",
            "count",
            files,
            held(RlimitKind::Nofile),
            "rlimit",
            false,
        );
    }
    if let Some(size) = asked.file_size.map(|bytes| bytes.0 as f64) {
        let hit = hits
            .observed
            .status
            .is_some_and(|s| libc::WIFSIGNALED(s) && libc::WTERMSIG(s) == libc::SIGXFSZ);
        add(
            "file_size",
            "bytes",
            size,
            held(RlimitKind::Fsize),
            "rlimit",
            hit,
        );
    }
    if hits.observed.output.iter().any(Option::is_some) || cell.output.iter().any(Option::is_some) {
        let cap = asked.output.0 as f64;
        let hit = ["stdout", "stderr"]
            .iter()
            .any(|stream| hits.truncated.contains_key(*stream));
        add("output", "bytes", cap, Some(cap), "capture", hit);
    }
    let places = [
        ("workspace", WORKSPACE, asked.workspace),
        ("tmp", "/tmp", asked.tmp),
        ("shm", "/dev/shm", asked.shm),
    ];
    for ((name, place, limit), directory) in places.iter().zip(&hits.observed.directories) {
        let fs = fstatvfs(directory).ok();
        let size = fs.map(|fs| fs.blocks() as f64 * fs.fragment_size() as f64);
        add(
            &format!("{name}_size"),
            "bytes",
            limit.size.0 as f64,
            size,
            "tmpfs",
            hits.tmpfs(place),
        );
        let inodes = fs.map(|fs| fs.files() as f64);
        add(
            &format!("{name}_inodes"),
            "count",
            limit.inodes as f64,
            inodes,
            "tmpfs",
            hits.tmpfs(place),
        );
    }
    all
}

/// What the program has: the limit asked for, or a lower one of the caller's
/// own, which init cannot raise.
fn effective(limit: &Rlimit) -> f64 {
    let resource = match limit.resource {
        RlimitKind::Fsize => Resource::RLIMIT_FSIZE,
        _ => Resource::RLIMIT_NOFILE,
    };
    getrlimit(resource).map_or(limit.value, |(_, hard)| limit.value.min(hard)) as f64
}

fn isolation(
    plan: &Plan,
    filter: Option<&FilterPolicy>,
    cgroup: Option<CgroupRecord>,
) -> Isolation {
    let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect();
    let mut nested = Vec::new();
    nested.extend(plan.userns_limit.then(|| "limit".to_owned()));
    nested.extend(filter.map(|_| "seccomp".to_owned()));
    let landlock_scopes = plan.landlock.as_ref().map_or_else(Vec::new, |rules| {
        let all = [
            ("fs", true),
            ("tcp", rules.tcp.is_some()),
            ("ioctl_dev", rules.abi >= 5),
            ("abstract_unix_socket", rules.scoped),
            ("signal", rules.scoped),
        ];
        all.iter()
            .filter(|(_, on)| *on)
            .map(|(name, _)| (*name).to_owned())
            .collect()
    });
    let own_proc = !plan.given_up.contains(&crate::spec::Layer::Proc);
    Isolation {
        namespaces: plan
            .namespaces
            .iter()
            .map(|namespace| namespace.name().to_owned())
            .collect(),
        uid: IdRecord {
            inside: plan.ids.inner_uid,
            outside: plan.ids.outer_uid,
        },
        gid: IdRecord {
            inside: plan.ids.inner_gid,
            outside: plan.ids.outer_gid,
        },
        capabilities: names(&[]),
        no_new_privs: true,
        landlock_abi: plan.landlock.as_ref().map(|rules| rules.abi),
        landlock_scopes,
        seccomp: filter.map(|policy| policy.compiled().identity()),
        nested_userns: nested,
        network: if plan.has(crate::plan::Namespace::Net) {
            "none"
        } else {
            "host"
        }
        .to_owned(),
        proc: if own_proc { "own" } else { "host" }.to_owned(),
        rootfs: plan.rootfs.clone(),
        profile: plan.profile.clone(),
        cgroup,
        given_up: plan
            .given_up
            .iter()
            .map(|layer| layer.name().to_owned())
            .collect(),
    }
}
