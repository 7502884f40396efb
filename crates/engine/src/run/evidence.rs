//! The measurements of a run, for its verdict and its limits.

use std::time::Duration;

use nix::sys::resource::Resource;

use super::measures::{CgroupFacts, Counted};
use jail::launch::Running;
use languages::Driver;
use plan::Plan;
use record::Usage;
use record::stream::Text;
use spec::Bytes;
use supervise::Observed;
use supervise::disks::{Shortage, hold_file_of};
use verdict::evidence::Measured;
use verdict::evidence::{End, Exhausted, FilesIn, FullTmpfs, Held, Stop};

/// Bytes of a stream's end among which last words are: Node lets a stack trace
/// follow them.
const LAST_OUTPUT: usize = 16 << 10;

/// Compares the measurements with the limits.
pub(super) fn measure(
    plan: &Plan,
    cell: &Running,
    cgroup: Option<&CgroupFacts>,
    observed: &Observed,
    usage: &Usage,
    driver: Option<&Driver>,
) -> Measured {
    let limits = &plan.limits;
    let cpu_used = cpu_used(usage);
    let reached_cpu = |limit: Duration| {
        let stopped = matches!(observed.stopped, Some(Stop::CpuTimeout(_)));
        Some(stopped || cpu_used? >= limit)
    };
    let file_size = limits.file_size.filter(|size| size.0 > 0);
    let forks_refused = cgroup.and_then(|c| c.usage.forks_refused);
    let memory_peak = usage.memory_peak_bytes.map(Bytes);
    Measured {
        cpu_time: limits.cpu_time.and_then(reached_cpu),
        cpu_used,
        memory: limits
            .memory
            .and_then(|limit| memory(limit, cell, cgroup, observed)),
        memory_short: (limits.memory.zip(memory_peak))
            .is_some_and(|(limit, peak)| peak >= refused_at(limit, cell, driver)),
        memory_peak,
        processes: limits
            .processes
            .and_then(|_| processes(cell, forks_refused, observed)),
        forks_refused: forks_refused.is_some_and(|count| count > 0),
        // No such file is no evidence: it may be deleted, or elsewhere.
        file_size: file_size
            .and_then(|size| hold_file_of(&observed.scratch, size.0).then_some(true)),
        disks: full_tmpfs(observed, plan),
        files: (observed.disks.0.iter().zip(plan.own_scratch()))
            .map(|(disk, scratch)| FilesIn {
                name: scratch.name.path().to_owned(),
                used: Bytes(disk.used),
                most: Bytes(disk.most),
                size: scratch.limit.size,
            })
            .collect(),
    }
}

/// What each process may have.
pub(super) fn held(plan: &Plan, cell: &Running) -> Held {
    let of = |resource| {
        plan.rlimits(&cell.fallback, plan.program.reserve)
            .find(|limit| limit.resource == resource)
            .map(|limit| cell.in_force(limit).soft)
    };
    Held {
        data: of(Resource::RLIMIT_DATA).map(Bytes),
        address_space: of(Resource::RLIMIT_AS).map(Bytes),
        open_files: of(Resource::RLIMIT_NOFILE),
        memory_by_cgroup: plan.limits.memory.is_some() && cell.fallback.memory.is_none(),
    }
}

fn cpu_used(usage: &Usage) -> Option<Duration> {
    let both = usage.cpu_user_ms? + usage.cpu_system_ms?;
    Duration::try_from_secs_f64(both / 1000.0).ok()
}

fn memory(
    limit: Bytes,
    cell: &Running,
    cgroup: Option<&CgroupFacts>,
    observed: &Observed,
) -> Option<bool> {
    let killed = cgroup.and_then(|c| c.usage.oom_kills);
    let watched = observed.watched.memory.is_some_and(|seen| seen >= limit.0);
    let stopped = matches!(observed.stopped, Some(Stop::MemoryWatchdog));
    match cell.fallback.memory {
        _ if stopped || watched || killed.is_some_and(|count| count > 0) => Some(true),
        // Nothing counts what RLIMIT_DATA refuses, and it is never in use.
        Some(_) => None,
        None => killed.map(|_| false),
    }
}

/// The use of memory from which on it is plausible that more was refused. Peaks
/// are measured a little low: in the fallback by polling, and a heap is full
/// before each of its pages was touched.
fn refused_at(limit: Bytes, cell: &Running, driver: Option<&Driver>) -> Bytes {
    let kernel = match cell.fallback.memory {
        Some(limit) => Bytes(limit.0 / 8 * 7),
        None => limit,
    };
    let heap = driver.and_then(|driver| driver.heap.as_ref());
    heap.map_or(kernel, |heap| kernel.min(Bytes(heap.full_at(limit.0))))
}

/// Without a cgroup nothing counts refusals. But the limit was reached when that many
/// were seen at one time, and not reached when fewer were ever started.
fn processes(cell: &Running, refused: Option<u64>, observed: &Observed) -> Option<bool> {
    match cell.fallback.processes {
        Some(limit) => Counted::of(observed).reached(limit),
        None => refused.map(|count| count > 0),
    }
}

/// Which of the cell's own tmpfs had nothing left, and of what.
fn full_tmpfs(observed: &Observed, plan: &Plan) -> Vec<FullTmpfs> {
    let mut full = Vec::new();
    for (disk, scratch) in observed.disks.0.iter().zip(plan.own_scratch()) {
        let Shortage { space, inodes } = disk.ever;
        let limit = scratch.limit;
        let kinds = [
            (space, disk.now.space, Exhausted::Space(limit.size)),
            (inodes, disk.now.inodes, Exhausted::Inodes(limit.inodes)),
        ];
        full.extend((kinds.into_iter()).filter(|(ever, ..)| *ever).map(
            |(_, at_end, exhausted)| FullTmpfs {
                name: scratch.name.path().to_owned(),
                exhausted,
                at_end,
            },
        ));
    }
    full
}

/// The ends of stdout and stderr, where last words are. Of a run that did not fail
/// they are not needed.
pub(super) fn last_output(end: &End, streams: [Option<&Text>; 2]) -> [String; 2] {
    streams.map(|stream| match end {
        End::Exited(0) | End::NotStarted(_) => String::new(),
        _ => stream.map_or_else(String::new, |text| text.end(LAST_OUTPUT)),
    })
}
