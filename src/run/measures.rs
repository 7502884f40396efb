//! What a cell used, and where the time went.

use std::collections::BTreeMap;
use std::time::Duration;

use super::assemble::CgroupFacts;
use crate::error::Step;
use crate::launch::Running;
use crate::record::{Timing, Usage};
use crate::supervise::Observed;

pub(super) fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

fn between_ms(from_ns: u64, to_ns: u64) -> f64 {
    to_ns.saturating_sub(from_ns) as f64 / 1e6
}

pub(super) fn usage(observed: &Observed, cgroup: Option<&CgroupFacts>) -> Usage {
    let wall_ms = if observed.began_ns == 0 {
        0.0
    } else {
        between_ms(observed.began_ns, observed.ended_ns)
    };
    let reaped = observed.reaped.or(observed.used_so_far);
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
            .or_else(|| {
                observed
                    .watched
                    .memory
                    .max(reaped.map(|r| r.max_rss).filter(|peak| *peak > 0))
            }),
        processes_peak: group
            .and_then(|usage| usage.processes_peak)
            .or(observed.watched.processes),
        throttled_ms: group.and_then(|usage| usage.throttled).map(millis),
        by: if cpu.is_some() { "cgroup" } else { "rusage" }.to_owned(),
    }
}

pub(super) fn timing(
    observed: &Observed,
    cell: &Running,
    started_ns: Option<u64>,
    began_ns: u64,
) -> Timing {
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
        grace_ms: observed
            .grace
            .map(|grace| between_ms(grace.began_ns, observed.ended_ns)),
        teardown_ms: between_ms(observed.ended_ns, now),
        steps: steps(cell, began_ns),
    }
}

/// How long each step of the set-up took, until the program was executed.
fn steps(cell: &Running, began_ns: u64) -> BTreeMap<String, f64> {
    let name = |step: Step| {
        serde_json::to_value(step)
            .ok()
            .and_then(|v| v.as_str().map(str::to_owned))
    };
    let entered = |step: &Step| cell.progress.began_ns(*step);
    let mut steps = BTreeMap::new();
    if let Some(first) = Step::ALL.iter().filter_map(entered).min() {
        steps.insert("prepare".to_owned(), between_ms(began_ns, first));
    }
    for step in Step::ALL.iter().filter(|step| entered(step).is_some()) {
        let spent = cell.progress.spent_ns(*step);
        // The last one, which is not over.
        if let (1.., Some(name)) = (spent, name(*step)) {
            steps.insert(name, spent as f64 / 1e6);
        }
    }
    steps
}
