//! Bounds on what may be true after a mix, whatever its verbs did.

use std::time::Duration;

use record::{LimitRecord, Outcome};

use super::verbs::{Forgery, Verb};
use crate::cells::cell::{Cell, Run};
use crate::cells::prelude::{Check, Stage, fail};

/// The limits of a mix's cell.
pub(super) struct Bounds {
    wall: Duration,
    cpu_time: Duration,
    memory: u64,
    processes: u64,
    output: u64,
    tmpfs: u64,
}

const MIB: u64 = 1 << 20;

impl Bounds {
    pub(super) fn standard(stage: &Stage) -> Self {
        Self {
            wall: stage.within(2_500),
            cpu_time: stage.within(2_000),
            memory: 160 * MIB,
            processes: 24,
            output: 64 << 10,
            tmpfs: 16 * MIB,
        }
    }

    pub(super) fn apply<'s>(&self, cell: Cell<'s>) -> Cell<'s> {
        let tmpfs = self.tmpfs.to_string();
        let milliseconds = |time: Duration| format!("{}ms", time.as_millis());
        cell.limit("wall", &milliseconds(self.wall))
            .limit("cpu-time", &milliseconds(self.cpu_time))
            .limit("memory", &self.memory.to_string())
            .limit("processes", &self.processes.to_string())
            .limit("output", &self.output.to_string())
            .limit("workspace-size", &tmpfs)
            .limit("tmp-size", &tmpfs)
            .limit("shm-size", &tmpfs)
    }

    pub(super) fn check(&self, mix: &[Verb], run: &Run) -> Check {
        let all = [
            self.outcome_follows(mix, run),
            self.hits_follow(mix, run),
            self.measures_are_bounded(mix, run),
        ];
        let wrong: Vec<String> = all.into_iter().filter_map(Result::err).collect();
        match wrong.as_slice() {
            [] => Ok(()),
            wrong => Err(fail(format!("{}: {}", wrong.join("; "), run.json))),
        }
    }

    /// The outcome names a limit only if it was measured.
    fn outcome_follows(&self, mix: &[Verb], run: &Run) -> Result<(), String> {
        let record = &run.record;
        let usage = &record.usage;
        let cpu = usage.cpu_user_ms.unwrap_or(0.0) + usage.cpu_system_ms.unwrap_or(0.0);
        let reached = |used: f64, limit: Duration| used >= limit.as_secs_f64() * 1000.0 * 0.98;
        let may = match record.outcome {
            Outcome::Timeout => reached(usage.wall_ms, self.wall) || reached(cpu, self.cpu_time),
            Outcome::Memory => may_reach_memory(mix),
            Outcome::Processes => mix.iter().any(|verb| matches!(verb, Verb::Fork(..))),
            Outcome::Disk => may_fill(mix),
            Outcome::Signal => {
                may_reach_memory(mix) || mix.iter().any(|verb| matches!(verb, Verb::Kill(..)))
            }
            Outcome::Exit => true,
            Outcome::Error => {
                mix.iter()
                    .any(|verb| matches!(verb, Verb::Raise(_) | Verb::Forge(Forgery::MemoryError)))
                    || may_reach_memory(mix)
            }
            Outcome::Ok => {
                !mix.iter()
                    .any(|verb| matches!(verb, Verb::Forever | Verb::Raise(_)))
                    || cut_short(mix)
            }
            _ => false,
        };
        holds(may, || {
            format!("{:?} cannot follow from {mix:?}", record.outcome)
        })
    }

    /// `hit` is true only where something came near the limit.
    fn hits_follow(&self, mix: &[Verb], run: &Run) -> Result<(), String> {
        for (name, limit) in &run.record.limits {
            let may = match name.as_str() {
                "wall" => run.record.outcome == Outcome::Timeout,
                "cpu_time" => run.record.outcome == Outcome::Timeout,
                "memory" => may_reach_memory(mix),
                "processes" => mix.iter().any(|verb| matches!(verb, Verb::Fork(..))),
                "results" => mix
                    .iter()
                    .any(|verb| matches!(verb, Verb::Forge(Forgery::Endless))),
                "output" => mix.iter().any(|verb| matches!(verb, Verb::Flood(_))),
                "workspace_size" | "tmp_size" | "shm_size" => may_fill(mix),
                _ => false,
            };
            holds(may || !is_hit(limit), || {
                format!("{name} cannot be hit by {mix:?}")
            })?;
        }
        Ok(())
    }

    fn measures_are_bounded(&self, mix: &[Verb], run: &Run) -> Result<(), String> {
        let record = &run.record;
        let usage = &record.usage;
        let peak = usage.memory_peak_bytes.unwrap_or(0);
        // What a cell can take between two checks of the watchdog.
        let memory = self.memory * 4 + self.tmpfs * 3;
        holds(peak <= memory, || format!("{peak} bytes at the peak"))?;
        let most = usage.processes_peak.unwrap_or(0);
        holds(most <= self.processes + 1, || format!("{most} processes"))?;
        for stream in [&record.stdout, &record.stderr].into_iter().flatten() {
            let length = stream.to_string().len() as u64;
            // Lossy text takes three bytes for one.
            holds(length <= 3 * self.output + 200, || {
                format!("{length} bytes of output")
            })?;
        }
        let written: u64 = mix.iter().map(|verb| written_by(*verb)).sum();
        let total = record.truncated.get("stdout").map_or(0, |cut| cut.total);
        // Children that were forked with a full buffer write it as well.
        holds(total <= written * (1 + forks(mix)) + 4096, || {
            format!("{total} bytes seen of {written}")
        })?;
        let files: u64 = record.files.iter().filter_map(|file| file.size).sum();
        holds(files <= self.tmpfs * 2, || {
            format!("{files} bytes of files")
        })?;
        let wanted: u64 = mix.iter().map(|verb| denied_by(*verb)).sum();
        let denied: u64 = record
            .denied
            .iter()
            .filter(|d| d.name == "ptrace")
            .map(|d| d.count)
            .sum();
        holds(denied <= wanted * (1 + forks(mix)), || {
            format!("{denied} of {wanted} denials")
        })
    }
}

fn holds(is_so: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(otherwise()) }
}

fn is_hit(limit: &LimitRecord) -> bool {
    limit.hit == Some(true)
}

fn may_reach_memory(mix: &[Verb]) -> bool {
    mix.iter().any(|verb| {
        matches!(
            verb,
            Verb::Allocate(_) | Verb::Share(_) | Verb::Write(..) | Verb::Fork(..)
        )
    })
}

fn may_fill(mix: &[Verb]) -> bool {
    mix.iter().any(|verb| matches!(verb, Verb::Write(..)))
}

/// Whether a verb ends the program, with success, before those behind it.
fn cut_short(mix: &[Verb]) -> bool {
    mix.iter().any(|verb| matches!(verb, Verb::Exit(0)))
}

fn written_by(verb: Verb) -> u64 {
    match verb {
        Verb::Flood(kib) => u64::from(kib + 1) * 1024,
        _ => 0,
    }
}

fn denied_by(verb: Verb) -> u64 {
    match verb {
        Verb::Denied(count) => count.into(),
        _ => 0,
    }
}

fn forks(mix: &[Verb]) -> u64 {
    mix.iter()
        .map(|verb| match verb {
            Verb::Fork(count, _) => u64::from(*count),
            _ => 0,
        })
        .sum()
}
