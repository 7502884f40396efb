//! Each limit: what was asked, what holds, and by what.

use std::collections::BTreeMap;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit};
use nix::sys::statvfs::fstatvfs;

use super::assemble::CgroupFacts;
use super::measures::millis;
use crate::launch::Running;
use crate::plan::{Plan, Rlimit, RlimitKind};
use crate::record::{LimitRecord, Outcome, Truncation};
use crate::spec::WORKSPACE;
use crate::supervise::Observed;
use crate::supervise::verdict::{FullTmpfs, Stop, Verdict};

/// What tells which limits hold, and which ones the run came up against.
pub(super) struct Evidence<'a> {
    pub(super) plan: &'a Plan,
    pub(super) cell: &'a Running,
    pub(super) cgroup: Option<&'a CgroupFacts>,
    pub(super) observed: &'a Observed,
    pub(super) verdict: &'a Verdict,
    pub(super) full: &'a [FullTmpfs],
    pub(super) truncated: &'a BTreeMap<String, Truncation>,
}

/// A limit's name in the record, and the limit.
type Row = (String, LimitRecord);

fn row(name: &str, unit: &str, requested: f64, enforced: Option<f64>, by: &str, hit: bool) -> Row {
    let by = if enforced.is_some() { by } else { "none" };
    let record = LimitRecord {
        requested,
        enforced,
        unit: unit.to_owned(),
        by: by.to_owned(),
        hit,
    };
    (name.to_owned(), record)
}

impl Evidence<'_> {
    /// Every limit that was asked for.
    pub(super) fn limits(&self) -> BTreeMap<String, LimitRecord> {
        [
            self.wall(),
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
        .collect()
    }

    fn wall(&self) -> Option<Row> {
        let wall = self.plan.limits.wall.map(millis)?;
        let hit = matches!(self.observed.stopped, Some(Stop::WallTimeout(_)));
        Some(row("wall", "ms", wall, Some(wall), "timer", hit))
    }

    fn cpu_time(&self) -> Option<Row> {
        let cpu = self.plan.limits.cpu_time.map(millis)?;
        let hit = matches!(self.observed.stopped, Some(Stop::CpuTimeout(_)));
        let by = if self.cgroup.is_some() {
            "cgroup+watchdog"
        } else {
            "rlimit+watchdog"
        };
        Some(row("cpu_time", "ms", cpu, Some(cpu), by, hit))
    }

    fn cpus(&self) -> Option<Row> {
        let cpus = self.plan.limits.cpus?;
        Some(match self.cell.fallback.cpus {
            Some(bound) => row("cpus", "cpus", cpus, Some(bound as f64), "affinity", false),
            None => {
                let holds = self.cgroup.and_then(|c| c.enforced.cpus);
                let throttled = self.cgroup.and_then(|c| c.usage.throttled);
                let hit = throttled.is_some_and(|time| time > Duration::ZERO);
                row("cpus", "cpus", cpus, holds, "cgroup", hit)
            }
        })
    }

    fn memory(&self) -> Option<Row> {
        let memory = self.plan.limits.memory?.0 as f64;
        let hit = self.verdict.outcome == Outcome::Memory;
        Some(match self.cell.fallback.memory {
            Some(bytes) => row(
                "memory",
                "bytes",
                memory,
                Some(bytes.0 as f64),
                "rlimit+watchdog",
                hit,
            ),
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
        let refused = self
            .cgroup
            .and_then(|c| c.usage.forks_refused)
            .is_some_and(|count| count > 0);
        // Without a cgroup nothing counts what was refused.
        let peak = self.observed.watched.processes;
        let reached = peak.is_some_and(|peak| peak as f64 >= processes);
        let hit = refused || reached || self.verdict.outcome == Outcome::Processes;
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
            false,
        ))
    }

    fn file_size(&self) -> Option<Row> {
        let size = self.plan.limits.file_size?.0 as f64;
        let signal = self
            .observed
            .status
            .filter(|s| libc::WIFSIGNALED(*s))
            .map(|s| libc::WTERMSIG(s));
        let hit = signal == Some(libc::SIGXFSZ);
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
        let asked = &self.plan.limits;
        let places = [
            ("workspace", WORKSPACE, asked.workspace),
            ("tmp", "/tmp", asked.tmp),
            ("shm", "/dev/shm", asked.shm),
        ];
        places.into_iter().zip(&self.observed.directories).flat_map(
            |((name, place, limit), directory)| {
                let fs = fstatvfs(directory).ok();
                let size = fs.map(|fs| fs.blocks() as f64 * fs.fragment_size() as f64);
                let inodes = fs.map(|fs| fs.files() as f64);
                let hit = self.full.iter().any(|full| full.name == place);
                [
                    row(
                        &format!("{name}_size"),
                        "bytes",
                        limit.size.0 as f64,
                        size,
                        "tmpfs",
                        hit,
                    ),
                    row(
                        &format!("{name}_inodes"),
                        "count",
                        limit.inodes as f64,
                        inodes,
                        "tmpfs",
                        hit,
                    ),
                ]
            },
        )
    }

    fn rlimit(&self, kind: RlimitKind) -> Option<f64> {
        self.plan
            .rlimits
            .iter()
            .find(|limit| limit.resource == kind)
            .map(effective)
    }
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
