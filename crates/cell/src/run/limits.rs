//! Each limit: what was asked, what holds, and by what.

use std::collections::BTreeMap;
use std::time::Duration;

use nix::sys::resource::getrlimit;
use nix::sys::statvfs::fstatvfs;

use super::assemble::CgroupFacts;
use super::measures::millis;
use crate::launch::Running;
use crate::plan::{Plan, Rlimit, RlimitKind, ScratchDir};
use crate::supervise::verdict::{Exhausted, Stop, Verdict};
use crate::supervise::{Measured, Observed};
use record::{Enforced, LimitRecord, Outcome, Truncation};
use sys::process::allowed_cpus;

/// What tells which limits hold, and which ones the run came up against.
pub(super) struct Evidence<'a> {
    pub(super) plan: &'a Plan,
    pub(super) cell: &'a Running,
    pub(super) cgroup: Option<&'a CgroupFacts>,
    pub(super) observed: &'a Observed,
    pub(super) verdict: &'a Verdict,
    pub(super) measured: &'a Measured,
    pub(super) truncated: &'a BTreeMap<String, Truncation>,
}

/// A limit's name in the record, and the limit.
type Row = (String, LimitRecord);

/// Whether a limit was hit is null where nothing tells.
fn row(
    name: &str,
    unit: &str,
    requested: f64,
    enforced: Option<f64>,
    by: &str,
    hit: impl Into<Option<bool>>,
) -> Row {
    let by = if enforced.is_some() { by } else { "none" };
    let record = LimitRecord {
        requested,
        enforced: enforced.map(Enforced::Exactly),
        unit: unit.to_owned(),
        by: by.to_owned(),
        hit: hit.into(),
    };
    (name.to_owned(), record)
}

/// The same, of a mechanism that a program can get past.
fn best_effort((name, record): Row) -> Row {
    let enforced = Some(Enforced::BEST_EFFORT);
    (name, LimitRecord { enforced, ..record })
}

impl Evidence<'_> {
    /// Every limit that was asked for.
    pub(super) fn limits(&self) -> BTreeMap<String, LimitRecord> {
        [
            self.wall(),
            self.grace(),
            self.cpu_time(),
            self.cpus(),
            self.memory(),
            self.processes(),
        ]
        .into_iter()
        .chain([self.open_files(), self.file_size()])
        .chain([self.output(), self.results()])
        .flatten()
        .chain(self.tmpfs())
        .chain(self.binds())
        .collect()
    }

    fn wall(&self) -> Option<Row> {
        let wall = self.plan.limits.wall.map(millis)?;
        let hit = matches!(self.observed.stopped, Some(Stop::WallTimeout(_)));
        Some(row("wall", "ms", wall, Some(wall), "timer", hit))
    }

    fn grace(&self) -> Option<Row> {
        let grace = self.plan.limits.grace.map(millis)?;
        let hit = self.observed.grace.is_some_and(|grace| grace.used_up);
        Some(row("grace", "ms", grace, Some(grace), "timer", hit))
    }

    fn cpu_time(&self) -> Option<Row> {
        let cpu = self.plan.limits.cpu_time.map(millis)?;
        let hit = self.measured.cpu_time;
        // Nobody counts processes that end before the watchdog sees them, when
        // their parent does not wait for them.
        Some(match self.cgroup {
            Some(_) => row("cpu_time", "ms", cpu, Some(cpu), "cgroup+watchdog", hit),
            None => best_effort(row(
                "cpu_time",
                "ms",
                cpu,
                Some(cpu),
                "rlimit+watchdog",
                hit,
            )),
        })
    }

    fn cpus(&self) -> Option<Row> {
        let cpus = self.plan.limits.cpus?;
        Some(match &self.cell.cpus {
            Some(share) => {
                let bound = Some(share.cpus().len() as f64);
                let row = row("cpus", "cpus", cpus, bound, "affinity", None);
                // Without the filter, a program can choose others for itself.
                match self.plan.seccomp.as_deref() {
                    Some("default" | "strict") => row,
                    _ => best_effort(row),
                }
            }
            None => {
                // More CPUs than there are hold nobody back.
                let there = allowed_cpus().map_or(f64::MAX, |cpus| cpus.len() as f64);
                let holds = self.cgroup.and_then(|c| c.enforced.cpus);
                let holds = holds.map(|cpus| cpus.min(there));
                let throttled = self.cgroup.and_then(|c| c.usage.throttled);
                let hit = throttled.map(|time| time > Duration::ZERO);
                row("cpus", "cpus", cpus, holds, "cgroup", hit)
            }
        })
    }

    fn memory(&self) -> Option<Row> {
        let memory = self.plan.limits.memory?.0 as f64;
        let hit = match self.verdict.outcome {
            Outcome::Memory => Some(true),
            _ => self.measured.memory,
        };
        Some(match self.cell.fallback.memory {
            Some(_) => best_effort(row(
                "memory",
                "bytes",
                memory,
                Some(memory),
                "rlimit+watchdog",
                hit,
            )),
            None => {
                let holds = self.cgroup.and_then(|c| c.enforced.memory);
                row(
                    "memory",
                    "bytes",
                    memory,
                    holds.map(|bytes| bytes.0 as f64),
                    "cgroup",
                    hit,
                )
            }
        })
    }

    fn processes(&self) -> Option<Row> {
        let processes = self.plan.limits.processes? as f64;
        let hit = self.measured.processes;
        Some(match self.cell.fallback.processes {
            Some(count) => row(
                "processes",
                "count",
                processes,
                Some(count as f64),
                "rlimit",
                hit,
            ),
            None => {
                let holds = self.cgroup.and_then(|c| c.enforced.processes);
                row(
                    "processes",
                    "count",
                    processes,
                    holds.map(|count| count as f64),
                    "cgroup",
                    hit,
                )
            }
        })
    }

    fn open_files(&self) -> Option<Row> {
        let files = self.plan.limits.open_files? as f64;
        Some(row(
            "open_files",
            "count",
            files,
            self.rlimit(RlimitKind::Nofile),
            "rlimit",
            // The kernel counts no refusal, and descriptors are closed again.
            None,
        ))
    }

    fn file_size(&self) -> Option<Row> {
        let size = self.plan.limits.file_size?.0 as f64;
        let hit = self.measured.file_size;
        Some(row(
            "file_size",
            "bytes",
            size,
            self.rlimit(RlimitKind::Fsize),
            "rlimit",
            hit,
        ))
    }

    fn output(&self) -> Option<Row> {
        self.cell.output.iter().flatten().next()?;
        let cap = self.plan.limits.output.0 as f64;
        let hit = ["stdout", "stderr"]
            .iter()
            .any(|stream| self.truncated.contains_key(*stream));
        Some(row("output", "bytes", cap, Some(cap), "capture", hit))
    }

    fn results(&self) -> Option<Row> {
        self.cell.channel.as_ref()?;
        let cap = self.plan.limits.results.0 as f64;
        let hit = self.truncated.contains_key("results");
        Some(row("results", "bytes", cap, Some(cap), "capture", hit))
    }

    /// Sizes as the file systems themselves state them.
    fn tmpfs(&self) -> impl Iterator<Item = Row> {
        let own = self.plan.own_scratch().zip(&self.observed.scratch);
        own.flat_map(|(scratch, directory)| {
            let fs = fstatvfs(directory).ok();
            let size = fs.map(|fs| fs.blocks() as f64 * fs.fragment_size() as f64);
            let inodes = fs.map(|fs| fs.files() as f64);
            let [(size_name, asked_size), (inodes_name, asked_inodes)] = asked(scratch);
            let full = |of| self.was_full(scratch.name.path(), of);
            let no_space = full(Exhausted::Space(scratch.limit.size));
            let no_inodes = full(Exhausted::Inodes(scratch.limit.inodes));
            [
                row(&size_name, "bytes", asked_size, size, "tmpfs", no_space),
                row(
                    &inodes_name,
                    "count",
                    asked_inodes,
                    inodes,
                    "tmpfs",
                    no_inodes,
                ),
            ]
        })
    }

    /// Nothing of cellblock's bounds a bind; its own file system may.
    fn binds(&self) -> impl Iterator<Item = Row> {
        // Without a program there is nothing to tell about any place.
        let began = !self.observed.scratch.is_empty() || self.observed.status.is_some();
        let binds = (self.plan.scratch.iter()).filter(move |scratch| began && !scratch.is_own());
        binds.flat_map(|scratch| {
            let [(size_name, asked_size), (inodes_name, asked_inodes)] = asked(scratch);
            [
                unbounded(size_name, "bytes", asked_size),
                unbounded(inodes_name, "count", asked_inodes),
            ]
        })
    }

    /// Whether this place was seen without any of that left. What was not seen may
    /// have been: a disk that is full is soon emptied. But the pages of a tmpfs are
    /// part of the cgroup's memory, of which there was never as much.
    fn was_full(&self, place: &str, of: Exhausted) -> Option<bool> {
        let disks = &self.measured.disks;
        if disks
            .iter()
            .any(|disk| disk.name == place && disk.exhausted == of)
        {
            return Some(true);
        }
        let Exhausted::Space(size) = of else {
            return None;
        };
        let peak = self.cgroup.and_then(|c| c.usage.memory_peak)?;
        (peak < size).then_some(false)
    }

    fn rlimit(&self, kind: RlimitKind) -> Option<f64> {
        self.plan
            .rlimits
            .iter()
            .find(|limit| limit.resource == kind)
            .map(effective)
    }
}

/// The names of a place's two limits, and what was asked for.
fn asked(scratch: &ScratchDir) -> [(String, f64); 2] {
    let (name, limit) = (scratch.name.name(), scratch.limit);
    [
        (format!("{name}_size"), limit.size.0 as f64),
        (format!("{name}_inodes"), limit.inodes as f64),
    ]
}

/// A limit that does not hold because the place is a bind.
fn unbounded(name: String, unit: &str, requested: f64) -> Row {
    let record = LimitRecord {
        requested,
        enforced: None,
        unit: unit.to_owned(),
        by: "bind".to_owned(),
        hit: None,
    };
    (name, record)
}

/// What the program has: the limit asked for, or a lower one of the caller's
/// own, which init cannot raise.
fn effective(limit: &Rlimit) -> f64 {
    getrlimit(limit.resource.number()).map_or(limit.soft, |(_, hard)| limit.within(hard).soft)
        as f64
}
