//! Resource use and timing of a cell.

use std::collections::BTreeMap;
use std::time::Duration;

use cgroup::{CellCgroup, CgroupLimits, CgroupUsage};
use jail::launch::Running;
use plan::Fallback;
use record::error::Step;
use record::{CgroupRecord, Timing, Usage};
use supervise::{Execution, Observed};
use sys::process::CpuTime;

/// The figures of the cell's cgroup before it was removed.
#[derive(Debug)]
pub(super) struct CgroupFacts {
    pub(super) usage: CgroupUsage,
    pub(super) enforced: CgroupLimits,
    pub(super) record: CgroupRecord,
}

impl CgroupFacts {
    /// The figures of an execution before which the cgroup had counted `before`. Peaks
    /// are those of the cell.
    pub(super) fn of(cgroup: &CellCgroup, before: &CgroupUsage) -> Self {
        Self {
            usage: cgroup.usage().since(before),
            enforced: cgroup.enforced(),
            record: cgroup.record(),
        }
    }
}

/// Milliseconds, to the microsecond: what two readings of a clock differ by is no more exact.
pub(super) fn millis(duration: Duration) -> f64 {
    millis_of_ns(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

fn millis_of_ns(ns: u64) -> f64 {
    (ns / 1000) as f64 / 1000.0
}

fn between_ms(from_ns: u64, to_ns: u64) -> f64 {
    millis_of_ns(to_ns.saturating_sub(from_ns))
}

/// Processes and threads at one time, where no cgroup counts them.
pub(super) struct Counted {
    /// The number that was seen.
    least: Option<u64>,
    /// The number that was started.
    started: Option<u64>,
}

impl Counted {
    pub(super) fn of(observed: &Observed) -> Self {
        let count = observed.reaped.map(|reaped| reaped.count);
        let at_end = count.map(|count| u64::from(count.at_end));
        Self {
            least: observed.watched.processes.max(at_end),
            started: count.and_then(|count| count.started).map(u64::from),
        }
    }

    /// Whether there were `limit` at one time; `None` when they came and went
    /// unseen.
    pub(super) fn reached(&self, limit: u64) -> Option<bool> {
        if self.least.is_some_and(|least| least >= limit) {
            return Some(true);
        }
        let too_few = self.started.is_some_and(|started| started < limit);
        too_few.then_some(false)
    }

    /// The most at one time, where what was seen is all that there can have been.
    fn peak(&self, limit: Option<u64>) -> Option<u64> {
        let most = self.started.into_iter().chain(limit).min();
        self.least
            .filter(|least| most.is_some_and(|most| *least >= most))
    }
}

pub(super) fn usage(
    execution: &Execution,
    observed: &Observed,
    lives: bool,
    cgroup: Option<&CgroupFacts>,
    fallback: &Fallback,
) -> Usage {
    let wall_ms = if execution.began_ns == 0 {
        0.0
    } else {
        between_ms(execution.began_ns, execution.ended_ns)
    };
    let reaped = observed.reaped.or(observed.used_so_far);
    let group = cgroup.map(|c| &c.usage);
    let counted = group.and_then(|usage| usage.cpu);
    let resident = reaped.map(|r| r.max_rss).filter(|peak| *peak > 0);
    let watched = &observed.watched;
    // The reaped processes and those that nothing waited for; or the last value that was
    // seen, when more processes ended with the cell.
    let uncounted = |reaped: Duration, lost: Duration, seen: Duration| seen.max(reaped + lost);
    let seen = match reaped {
        Some(reaped) => Some(CpuTime {
            user: uncounted(reaped.user, watched.lost_cpu.user, watched.cpu.user),
            system: uncounted(reaped.system, watched.lost_cpu.system, watched.cpu.system),
        }),
        None => lives.then_some(watched.cpu),
    };
    let seen = seen.map(|used| used.saturating_sub(execution.cpu_before));
    let cpu = counted.or(seen);
    Usage {
        wall_ms,
        cpu_user_ms: cpu.map(|used| millis(used.user)),
        cpu_system_ms: cpu.map(|used| millis(used.system)),
        memory_peak_bytes: group
            .and_then(|usage| usage.memory_peak.map(|bytes| bytes.0))
            .or_else(|| watched.memory.max(resident)),
        processes_peak: group
            .and_then(|usage| usage.processes_peak)
            .or_else(|| Counted::of(observed).peak(fallback.processes)),
        throttled_ms: group.and_then(|usage| usage.throttled).map(millis),
        by: if counted.is_some() {
            "cgroup"
        } else {
            "rusage"
        }
        .to_owned(),
    }
}

pub(super) fn timing(execution: &Execution, cell: &Running, began_ns: u64) -> Timing {
    let now = sys::process::monotonic_ns();
    let (executed, ended) = (execution.began_ns, execution.ended_ns);
    let started_ns = execution.report.started_ns;
    let code_from = started_ns.filter(|at| *at >= executed).unwrap_or(executed);
    let ran = executed != 0;
    Timing {
        setup_ms: between_ms(began_ns, if ran { executed } else { ended }),
        interpreter_ms: started_ns
            .filter(|_| ran)
            .map(|at| between_ms(executed, at)),
        code_ms: if ran {
            between_ms(code_from, ended)
        } else {
            0.0
        },
        grace_ms: (execution.grace).map(|grace| between_ms(grace.began_ns, ended)),
        teardown_ms: between_ms(ended, now),
        steps: steps(
            cell,
            [began_ns, if ran { executed } else { ended }, ended, now],
        ),
    }
}

/// What all of the call's time went into, without a gap: until init began, each step of the
/// set-up, the program, and what followed. `begun` is when the program was executed, or when the
/// set-up failed.
fn steps(cell: &Running, [began_ns, begun, ended, now]: [u64; 4]) -> BTreeMap<String, f64> {
    let name = |step: Step| {
        serde_json::to_value(step)
            .ok()
            .and_then(|v| v.as_str().map(str::to_owned))
    };
    // Those of an earlier execution's cell are not this one's.
    let entered = |step: &Step| {
        let began = cell.progress.began_ns(*step);
        began.filter(|at| *at >= began_ns)
    };
    let first = Step::ALL.iter().filter_map(entered).min();
    let mut steps = BTreeMap::from([
        (
            "prepare".to_owned(),
            between_ms(began_ns, first.unwrap_or(begun)),
        ),
        ("program".to_owned(), between_ms(begun, ended)),
        ("teardown".to_owned(), between_ms(ended, now)),
    ]);
    // From its execution on, the program runs beside init's next steps.
    let is_before = |step: &&Step| entered(step).is_some_and(|at| at < begun);
    for step in Step::ALL.iter().filter(is_before) {
        let mut spent = cell.progress.spent_ns(*step);
        if cell.progress.step() == Some(*step) {
            // The one that failed.
            spent += begun.saturating_sub(cell.progress.since_ns());
        }
        if let (1.., Some(name)) = (spent, name(*step)) {
            steps.insert(name, millis_of_ns(spent));
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_is_neither_hit_nor_missed() {
        let counted = |least, started| Counted {
            least: Some(least),
            started,
        };
        let few = counted(3, Some(5));
        assert_eq!((few.reached(8), few.peak(Some(8))), (Some(false), None));
        let all = counted(5, Some(5));
        assert_eq!((all.reached(8), all.peak(Some(8))), (Some(false), Some(5)));
        let unseen = counted(2, Some(60));
        assert_eq!((unseen.reached(8), unseen.peak(Some(8))), (None, None));
        let many = counted(1, None);
        assert_eq!((many.reached(8), many.peak(Some(8))), (None, None));
        let full = counted(8, None);
        assert_eq!((full.reached(8), full.peak(Some(8))), (Some(true), Some(8)));
    }
}
