//! How much a running cell uses, and whether that is too much.

use std::fs;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use nix::unistd::{Pid, SysconfVar, sysconf};

use super::verdict::Stop;
use crate::launch::Running;
use crate::launch::cgroup::CellCgroup;
use crate::plan::Plan;

/// How often a watchdog looks at memory. What a process can allocate in this
/// time is bounded by RLIMIT_DATA and the sizes of its tmpfs.
const MEMORY_INTERVAL: Duration = Duration::from_millis(20);
/// No CPU limit is checked more often than this.
const CPU_INTERVAL: Duration = Duration::from_millis(5);
/// More processes than this are not looked at, so that a fork bomb without a
/// limit on processes cannot keep the supervisor busy.
const MAX_PROCESSES: usize = 4096;

/// The most that a watchdog has seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Peaks {
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Processes.
    pub processes: Option<u64>,
}

/// Measures a cell's use, by its cgroup or else through `/proc`.
#[derive(Debug)]
pub struct Meter<'a> {
    cgroup: Option<&'a CellCgroup>,
    init: Pid,
    /// Whether no cgroup counts processes.
    counts: bool,
    cpu_time: Option<Duration>,
    memory: Option<u64>,
    cpu_left: Option<Duration>,
    cpus: u32,
}

impl<'a> Meter<'a> {
    /// A meter for `cell`.
    pub fn new(cell: &'a Running, plan: &Plan) -> Self {
        let cpus = sysconf(SysconfVar::_NPROCESSORS_ONLN)
            .ok()
            .flatten()
            .and_then(|n| u32::try_from(n).ok());
        Self {
            cgroup: cell.cgroup.as_ref(),
            init: cell.pid,
            counts: cell.cgroup.is_none() || cell.fallback.processes.is_some(),
            cpu_time: plan.watch.cpu_time,
            memory: cell.fallback.memory.map(|bytes| bytes.0),
            cpu_left: plan.watch.cpu_time,
            cpus: cpus.unwrap_or(1).max(1),
        }
    }

    /// When to look next. The CPU limit cannot be reached before its rest,
    /// shared by all CPUs, is over.
    pub fn next_check(&self, now: Instant) -> Option<Instant> {
        let cpu = self
            .cpu_left
            .map(|left| (left / self.cpus).max(CPU_INTERVAL));
        let memory = self.memory.map(|_| MEMORY_INTERVAL);
        [cpu, memory]
            .into_iter()
            .flatten()
            .min()
            .map(|wait| now + wait)
    }

    /// Looks, and says which limit is exceeded.
    pub fn check(&mut self, tmpfs: &[OwnedFd], peaks: &mut Peaks) -> Option<Stop> {
        let processes = if self.counts || self.memory.is_some() {
            self.processes()
        } else {
            Vec::new()
        };
        if self.counts {
            // Init, the first of them, is cellblock's own.
            let count = processes.len().saturating_sub(1) as u64;
            peaks.processes = peaks.processes.max(Some(count));
        }
        if let Some(limit) = self.cpu_time {
            let used = self.cpu_used(&processes);
            self.cpu_left = Some(limit.saturating_sub(used));
            if used >= limit {
                return Some(Stop::CpuTimeout(limit));
            }
        }
        if let Some(limit) = self.memory {
            let tmpfs = tmpfs.iter().map(tmpfs_used).sum();
            let used = memory_used(&processes, tmpfs, limit);
            peaks.memory = peaks.memory.max(Some(used));
            if used > limit {
                return Some(Stop::MemoryWatchdog);
            }
        }
        None
    }

    fn cpu_used(&self, processes: &[Pid]) -> Duration {
        if let Some(used) = self.cgroup.and_then(|cgroup| cgroup.cpu_used().ok()) {
            return used.total();
        }
        // Init's own time is the set-up's; that of what it reaped is the program's.
        let init = processes.iter().take(1).filter_map(|pid| cpu_of(*pid, 2));
        let others = processes.iter().skip(1).filter_map(|pid| cpu_of(*pid, 0));
        init.chain(others).sum()
    }

    /// Init and all that descends from it. Orphans become init's children, so
    /// nothing of the cell is missing.
    fn processes(&self) -> Vec<Pid> {
        let mut found = vec![self.init];
        let mut next = 0;
        while next < found.len() && found.len() < MAX_PROCESSES {
            found.extend(children_of(found[next]));
            next += 1;
        }
        found
    }
}

/// Children of all threads of `pid` (proc_pid_task_children(5)).
fn children_of(pid: Pid) -> Vec<Pid> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let lists = tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| {
            list.split_ascii_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .map(Pid::from_raw)
                .collect::<Vec<_>>()
        })
        .collect()
}

/// CPU time of a process and of its children that it has waited for, without the
/// first so many of: own in user mode, own in the kernel, theirs, theirs.
fn cpu_of(pid: Pid, without: usize) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    // utime, stime, cutime, cstime: fields 14 to 17, counted from the third.
    let ticks: u64 = fields
        .split_ascii_whitespace()
        .skip(11)
        .take(4)
        .skip(without)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    // USER_HZ is 100 wherever Linux runs (time(7)).
    Some(Duration::from_millis(ticks * 10))
}

/// Bytes that the processes hold, pages of their own and shared ones.
#[derive(Clone, Copy, Default)]
struct Held {
    own: u64,
    shared: u64,
}

impl Held {
    fn sum(all: impl Iterator<Item = Self>) -> Self {
        all.fold(Self::default(), |sum, held| Self {
            own: sum.own + held.own,
            shared: sum.shared + held.shared,
        })
    }

    /// With what is in tmpfs. Files there may be among the shared pages, so the
    /// larger of the two counts: no cell is ended for memory counted twice.
    fn with(self, tmpfs: u64) -> u64 {
        self.own + self.shared.max(tmpfs)
    }
}

/// Counting shared pages once takes the kernel longer, so it is done only when
/// the quick count is above `limit`.
fn memory_used(processes: &[Pid], tmpfs: u64, limit: u64) -> u64 {
    // Init is cellblock's own.
    let cell = || processes.iter().skip(1);
    let quick = Held::sum(cell().filter_map(|pid| resident(*pid))).with(tmpfs);
    if quick <= limit {
        return quick;
    }
    let exact = |pid: &Pid| proportional(*pid).or_else(|| resident(*pid));
    Held::sum(cell().filter_map(exact)).with(tmpfs)
}

fn resident(pid: Pid) -> Option<Held> {
    held(&format!("/proc/{pid}/status"), "RssAnon:", "RssShmem:")
}

fn proportional(pid: Pid) -> Option<Held> {
    held(
        &format!("/proc/{pid}/smaps_rollup"),
        "Pss_Anon:",
        "Pss_Shmem:",
    )
}

/// Reads two lines that give KiB (proc_pid_status(5), proc_pid_smaps(5)). A
/// process that has ended holds nothing and has neither.
fn held(path: &str, own: &str, shared: &str) -> Option<Held> {
    let text = fs::read_to_string(path).ok()?;
    let bytes = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        let kib: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
        Some(kib * 1024)
    };
    Some(Held {
        own: bytes(own)?,
        shared: bytes(shared)?,
    })
}

fn tmpfs_used(directory: &OwnedFd) -> u64 {
    nix::sys::statvfs::fstatvfs(directory).map_or(0, |fs| {
        (fs.blocks() - fs.blocks_free()) * fs.fragment_size()
    })
}
