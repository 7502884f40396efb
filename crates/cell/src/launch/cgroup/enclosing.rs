//! The cgroups above a cell's, whose limits count for it as well.
//!
//! A cell gets no more than the least limit on its path to the root. When one
//! acts, the kernel counts that where the limit is, so the counters are read
//! before and after.

use std::path::{Path, PathBuf};

use super::dir::Dir;
use super::limits::{Enforced, INIT};
use super::parse;
use crate::spec::Bytes;

/// More levels than any hierarchy has, should a walk go astray.
const MOST: usize = 64;

/// The limited cgroups above a cell's, nearest first.
#[derive(Debug)]
pub(super) struct Enclosing(Vec<Level>);

#[derive(Debug)]
struct Level {
    dir: Dir,
    limits: Enforced,
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
    /// Whose `memory.max` it was that had processes killed.
    pub memory: Option<PathBuf>,
    /// Whose `pids.max` it was that made forks fail.
    pub processes: Option<PathBuf>,
}

impl Enclosing {
    /// The limited cgroups from `parent` up to the root that is visible.
    pub(super) fn above(parent: &Dir) -> Self {
        let mut levels = Vec::new();
        let mut next = parent.child(".").ok();
        for _ in 0..MOST {
            let Some(dir) = next else { break };
            next = dir.above();
            let limits = limits(&dir);
            if limits != Enforced::default() {
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

    /// What is left of `own` limits.
    pub(super) fn bound(&self, own: Enforced) -> Enforced {
        self.0.iter().fold(own, |held, level| Enforced {
            memory: least(held.memory, level.limits.memory),
            processes: least(held.processes, level.limits.processes),
            cpus: least(held.cpus, level.limits.cpus),
        })
    }

    /// Which limits acted on `cell`, in which `killed` processes were killed for
    /// memory and `refused` forks failed.
    pub(super) fn acted(&self, cell: &Dir, killed: u64, refused: Option<u64>) -> Acted {
        let counted = || self.0.iter().map(|level| (level, level.since()));
        let own = Counters::read(cell);
        let memory = (killed > 0 && own.ooms == 0)
            .then(|| counted().find(|(_, since)| since.ooms > 0))
            .flatten()
            .map(|(level, _)| level.path());
        let limit = read(cell, "pids.max");
        let below_own = match (read(cell, "pids.peak"), limit) {
            (Some(peak), Some(limit)) => peak < limit,
            _ => refused == Some(0),
        };
        // Before Linux 6.11 the failure is counted in the cell, whosever limit it
        // was; since then, where the limit is, for all that are below it. There,
        // only a limit that is narrower than the cell's own is taken for it.
        let narrower = |level: &Level| {
            let held = level.limits.processes;
            held.is_some_and(|held| limit.is_none_or(|own| held + INIT < own))
        };
        let processes = below_own
            .then(|| {
                counted()
                    .filter(|(level, _)| narrower(level))
                    .find(|(_, since)| since.forks > 0 || refused > Some(0))
            })
            .flatten()
            .map(|(level, _)| level.path());
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
            parse::keyed(&text, key).unwrap_or(0)
        };
        Self {
            ooms: count("memory.events.local", "oom"),
            forks: count("pids.events", "max"),
        }
    }
}

fn limits(dir: &Dir) -> Enforced {
    let cpu = dir.read("cpu.max").unwrap_or_default();
    Enforced {
        memory: read(dir, "memory.max").map(Bytes),
        processes: read(dir, "pids.max").map(|count| count.saturating_sub(INIT)),
        #[allow(clippy::cast_precision_loss, reason = "microseconds, far below 2^52")]
        cpus: parse::cpu_max(&cpu).map(|(quota, period)| quota as f64 / period as f64),
    }
}

fn read(dir: &Dir, file: &str) -> Option<u64> {
    parse::number(&dir.read(file).ok()?)
}

/// The lesser of two limits; none where the cell has none of its own.
fn least<T: PartialOrd>(own: Option<T>, above: Option<T>) -> Option<T> {
    match (own, above) {
        (Some(own), Some(above)) if above < own => Some(above),
        (own, _) => own,
    }
}
