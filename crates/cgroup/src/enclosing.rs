//! The cgroups above a cell's, whose limits count for it as well.
//!
//! A cell gets no more than the least limit on its path to the root. When one
//! acts, the kernel counts that where the limit is, so the counters are read
//! before and after.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};

use super::CgroupLimits;
use super::dir::{Dir, keyed};
use super::limits::INIT;
use spec::Bytes;

/// The deepest hierarchy that is walked.
const MOST: usize = 64;

/// The limited cgroups above a cell's, nearest first.
#[derive(Debug)]
pub(super) struct Enclosing(Vec<Level>);

#[derive(Debug)]
struct Level {
    dir: Dir,
    limits: CgroupLimits,
    /// When the cell was made.
    before: Counters,
}

/// How often limits acted.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    /// `oom` in `memory.events.local`.
    ooms: u64,
    /// `max` in `pids.events`.
    forks: u64,
}

/// The cgroups above the cell's whose limits acted on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acted {
    /// The cgroup whose `memory.max` killed processes.
    pub memory: Option<PathBuf>,
    /// The cgroup whose `pids.max` made forks fail.
    pub processes: Option<PathBuf>,
}

impl Enclosing {
    /// Descriptors of their directories.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.iter().map(|level| level.dir.as_fd())
    }

    /// The limited cgroups from `parent` up to the root that is visible.
    pub(super) fn above(parent: &Dir) -> Self {
        let mut levels = Vec::new();
        let mut next = parent.try_clone().ok();
        for _ in 0..MOST {
            let Some(dir) = next else { break };
            next = dir.above();
            let limits = limits(&dir);
            if limits != CgroupLimits::default() {
                let before = Counters::read(&dir);
                levels.push(Level {
                    dir,
                    limits,
                    before,
                });
            }
        }
        Self(levels)
    }

    /// The lesser of each of the cell's `own` limits and those above it.
    pub(super) fn bound(&self, own: CgroupLimits) -> CgroupLimits {
        self.0.iter().fold(own, |held, level| CgroupLimits {
            memory: least(held.memory, level.limits.memory),
            processes: least(held.processes, level.limits.processes),
            cpus: least(held.cpus, level.limits.cpus),
        })
    }

    /// Which limits acted on `cell`, in which `killed` processes were killed for
    /// memory and `refused` forks failed.
    pub(super) fn acted(&self, cell: &Dir, killed: u64, refused: Option<u64>) -> Acted {
        let own = Counters::read(cell);
        let memory = (self.0.iter())
            .filter(|_| killed > 0 && own.ooms == 0)
            .find(|level| level.since().ooms > 0)
            .map(Level::path);
        let limit = cell.number("pids.max");
        let below_own = match (cell.number("pids.peak"), limit) {
            (Some(peak), Some(limit)) => peak < limit,
            _ => refused == Some(0),
        };
        // Before Linux 6.11 a failed fork is counted in the cell, whichever cgroup's
        // limit it met; since then at the limit, for all cgroups below it. There, only
        // a limit narrower than the cell's own can be the reason.
        let narrower = |level: &Level| {
            let held = level.limits.processes;
            held.is_some_and(|held| limit.is_none_or(|own| held + INIT < own))
        };
        let processes = (self.0.iter())
            .filter(|level| below_own && narrower(level))
            .find(|level| level.since().forks > 0 || refused > Some(0))
            .map(Level::path);
        Acted { memory, processes }
    }
}

impl Level {
    fn path(&self) -> PathBuf {
        // Without the `..`s that it was found by.
        let path = self.dir.path();
        std::fs::canonicalize(path).unwrap_or_else(|_| Path::new(path).to_owned())
    }

    fn since(&self) -> Counters {
        let now = Counters::read(&self.dir);
        Counters {
            ooms: now.ooms.saturating_sub(self.before.ooms),
            forks: now.forks.saturating_sub(self.before.forks),
        }
    }
}

impl Counters {
    fn read(dir: &Dir) -> Self {
        let count = |file, key| {
            let text = dir.read(file).unwrap_or_default();
            keyed(&text, key).unwrap_or(0)
        };
        Self {
            ooms: count("memory.events.local", "oom"),
            forks: count("pids.events", "max"),
        }
    }
}

fn limits(dir: &Dir) -> CgroupLimits {
    CgroupLimits {
        memory: dir.number("memory.max").map(Bytes),
        processes: dir
            .number("pids.max")
            .map(|count| count.saturating_sub(INIT)),
        #[allow(clippy::cast_precision_loss, reason = "microseconds, far below 2^52")]
        cpus: dir
            .cpu_max()
            .map(|(quota, period)| quota as f64 / period as f64),
    }
}

/// The lesser of two limits; none where the cell has no own limit.
fn least<T: PartialOrd>(own: Option<T>, above: Option<T>) -> Option<T> {
    match (own, above) {
        (Some(own), Some(above)) if above < own => Some(above),
        (own, _) => own,
    }
}
