//! How much a running cell uses, and whether that is too much.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use nix::unistd::{Pid, SysconfVar, sysconf};

use super::proc::{ProcFiles, Process, descendants};
use cgroup::CellCgroup;
use jail::launch::Running;
use plan::Plan;
use sys::process::{CpuTime, cpu_clock};
use verdict::evidence::Stop;

mod cpu;
mod memory;

use crate::SharedMemory;
use cpu::CpuCount;
use memory::{Found, Look, MemoryCount};

/// How often a cell without a cgroup is checked.
const INTERVAL: Duration = Duration::from_millis(20);
/// How often, while an exact figure is being read, or a call waits for a look.
pub(crate) const SHORT_INTERVAL: Duration = Duration::from_millis(5);
/// A resting cell that uses no CPU time is checked less and less often, down to once in
/// [`INTERVAL`] times two to this power.
const RESTS: u32 = 5;
/// The most processes that are checked, so that a fork bomb without a
/// limit on processes cannot keep the supervisor busy.
const MAX_PROCESSES: usize = 4096;
/// No CPU limit is checked more often than this.
const CPU_INTERVAL: Duration = Duration::from_millis(5);

/// The highest figures of a cell without a cgroup.
#[derive(Clone, Copy, Debug, Default)]
pub struct Peaks {
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Processes and threads.
    pub processes: Option<u64>,
    /// CPU time of all.
    pub cpu: CpuTime,
    /// CPU time of processes that no parent waited for, which is part of it.
    pub lost_cpu: CpuTime,
}

/// What a cell uses at one moment.
#[derive(Clone, Copy, Debug)]
pub struct InUse {
    /// Bytes of memory; without a cgroup, shared pages count for each process.
    pub memory: Option<u64>,
    /// CPU time of its life.
    pub cpu: CpuTime,
    /// Processes and threads, without init.
    pub processes: u64,
}

/// Measures a cell's use, by its cgroup or else through `/proc`.
#[derive(Debug)]
pub(crate) struct Meter {
    init: Pid,
    /// Whether no cgroup counts processes.
    counts: bool,
    files: ProcFiles,
    cpu: CpuCount,
    cpu_time: Option<Duration>,
    cpu_left: Option<Duration>,
    memory: Option<MemoryCount>,
    cpus: u32,
    /// The processes of the last look, and the CPU time that each had used just before it.
    /// `None` where the process was not known by then.
    clocks: Vec<(Pid, Option<Duration>)>,
    /// What the cell's tmpfs held then.
    tmpfs: u64,
    /// Whether the cell executes nothing.
    is_resting: bool,
    /// CPU time at the last check.
    seen_used: Duration,
    /// Checks of a resting cell since it last used CPU time.
    quiet: u32,
}

impl Meter {
    /// A meter for `cell`.
    pub(crate) fn new(cell: &Running, plan: &Plan) -> Self {
        let cpus = sysconf(SysconfVar::_NPROCESSORS_ONLN)
            .ok()
            .flatten()
            .and_then(|n| u32::try_from(n).ok());
        let limit = cell.fallback.memory.map(|bytes| bytes.0);
        Self {
            init: cell.init.pid,
            counts: cell.cgroup.is_none() || cell.fallback.processes.is_some(),
            files: ProcFiles::default(),
            cpu: CpuCount::default(),
            cpu_time: plan.limits.cpu_time,
            cpu_left: plan.limits.cpu_time,
            memory: limit.map(MemoryCount::new),
            cpus: cpus.unwrap_or(1).max(1),
            clocks: Vec::new(),
            tmpfs: 0,
            is_resting: false,
            seen_used: Duration::ZERO,
            quiet: 0,
        }
    }

    /// Notes whether the cell executes nothing from here on.
    pub(crate) fn rest(&mut self, is_resting: bool) {
        (self.is_resting, self.quiet) = (is_resting, 0);
    }

    /// When to check next. A CPU limit cannot be reached before all CPUs together could
    /// use the rest of it; figures from `/proc` need a fixed interval, and so do disks that are
    /// full for a moment.
    pub(crate) fn next_check(&self, now: Instant) -> Option<Instant> {
        let cpu = self
            .cpu_left
            .map(|left| (left / self.cpus).max(CPU_INTERVAL));
        let watched = self.counts || self.memory.is_some() || !self.is_resting;
        let waits = self.memory.as_ref().is_some_and(MemoryCount::waits);
        let usual = INTERVAL * (1 << self.quiet);
        let proc = watched.then_some(if waits { SHORT_INTERVAL } else { usual });
        [cpu, proc]
            .into_iter()
            .flatten()
            .min()
            .map(|wait| now + wait)
    }

    /// Checks the limits, and returns one that is exceeded.
    pub(crate) fn check(
        &mut self,
        cgroup: Option<&CellCgroup>,
        tmpfs: &[OwnedFd],
        shared: Option<&SharedMemory>,
        peaks: &mut Peaks,
    ) -> Option<Stop> {
        let is_counted = self.counts || self.memory.is_some();
        let tmpfs = match self.memory {
            Some(_) => tmpfs.iter().map(tmpfs_used).sum(),
            None => 0,
        };
        let waits = self.memory.as_ref().is_some_and(MemoryCount::waits)
            || shared.is_some_and(SharedMemory::has_waiting);
        if self.is_resting && !waits && tmpfs == self.tmpfs && self.was_idle() {
            self.quiet = (self.quiet + 1).min(RESTS);
            return None;
        }
        self.tmpfs = tmpfs;
        let processes = if is_counted { self.look() } else { Vec::new() };
        if self.counts {
            // Init, the first of them, is cellblock's own.
            let threads = |process: &Process| process.threads.len() as u64;
            let count = processes.iter().skip(1).map(threads).sum();
            peaks.processes = peaks.processes.max(Some(count));
        }
        let used = self.cpu_used(cgroup, &processes, peaks).total();
        let is_quiet = self.is_resting && used == self.seen_used && !waits;
        self.quiet = if is_quiet {
            (self.quiet + 1).min(RESTS)
        } else {
            0
        };
        self.seen_used = used;
        if let Some(limit) = self.cpu_time {
            self.cpu_left = Some(limit.saturating_sub(used));
            if used >= limit {
                return Some(Stop::CpuTimeout(limit));
            }
        }
        let memory = self.memory.as_mut()?;
        let look = Look {
            processes: &processes,
            tmpfs,
            cpu: used,
            files: &self.files,
            shared,
        };
        match memory.look(&look) {
            Found::Within(used) => {
                peaks.memory = peaks.memory.max(Some(used));
                None
            }
            Found::Above(used) => {
                peaks.memory = peaks.memory.max(used);
                Some(Stop::MemoryWatchdog)
            }
            Found::Unknown => None,
        }
    }

    /// Whether the cell has to be stopped for a moment, so that what it holds can be read.
    pub(crate) fn needs_quiet(&self) -> bool {
        (self.memory.as_ref()).is_some_and(MemoryCount::needs_quiet)
    }

    /// What the cell uses now.
    pub(crate) fn in_use(
        &mut self,
        cgroup: Option<&CellCgroup>,
        tmpfs: &[OwnedFd],
        shared: Option<&SharedMemory>,
        peaks: &mut Peaks,
    ) -> InUse {
        let processes = self.look();
        // No limit is checked here, so the next check looks again, even if nothing runs until then.
        self.clocks.clear();
        let tmpfs: u64 = tmpfs.iter().map(tmpfs_used).sum();
        let objects = tmpfs + shared.map_or(0, SharedMemory::sum);
        let counted = cgroup.and_then(CellCgroup::memory_in_use);
        InUse {
            memory: counted.or_else(|| Some(memory::in_use(&processes, objects, &self.files))),
            cpu: self.cpu_used(cgroup, &processes, peaks),
            processes: (processes.iter().skip(1))
                .map(|process| process.threads.len() as u64)
                .sum(),
        }
    }

    /// CPU time that the cell has used.
    pub(crate) fn cpu_used_so_far(
        &mut self,
        cgroup: Option<&CellCgroup>,
        peaks: &mut Peaks,
    ) -> CpuTime {
        let processes = match cgroup {
            Some(_) => Vec::new(),
            None if self.was_idle() => return peaks.cpu,
            None => self.look(),
        };
        self.cpu_used(cgroup, &processes, peaks)
    }

    /// The processes of the cell.
    fn look(&mut self) -> Vec<Process> {
        // Clocks first: what happens meanwhile shows as a difference from them.
        let before: Vec<_> = (self.clocks.iter())
            .map(|(pid, _)| (*pid, cpu_clock(*pid)))
            .collect();
        let processes: Vec<Process> = (descendants(self.init, &self.files))
            .take(MAX_PROCESSES)
            .collect();
        self.files.keep(&processes);
        let pids = processes.iter().map(|process| process.pid);
        let are_known = pids.clone().eq(before.iter().map(|(pid, _)| *pid));
        self.clocks = match are_known {
            true => before,
            false => pids.map(|pid| (pid, None)).collect(),
        };
        processes
    }

    /// Whether no process of the cell has run since the last look. Then no other has been
    /// started either, and none has used more of anything.
    fn was_idle(&self) -> bool {
        let stood_still =
            |(pid, used): &(Pid, Option<Duration>)| used.is_some() && cpu_clock(*pid) == *used;
        !self.clocks.is_empty() && self.clocks.iter().all(stood_still)
    }

    fn cpu_used(
        &mut self,
        cgroup: Option<&CellCgroup>,
        processes: &[Process],
        peaks: &mut Peaks,
    ) -> CpuTime {
        if let Some(cgroup) = cgroup {
            return cgroup.cpu_used().unwrap_or_default();
        }
        peaks.cpu = self.cpu.look(processes, &self.files);
        peaks.lost_cpu = self.cpu.lost();
        peaks.cpu
    }
}

fn tmpfs_used(directory: &OwnedFd) -> u64 {
    nix::sys::statvfs::fstatvfs(directory).map_or(0, |fs| {
        (fs.blocks() - fs.blocks_free()) * fs.fragment_size()
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A meter for a resting cell with this init.
    fn meter(init: &Child) -> Meter {
        Meter {
            init: Pid::from_raw(init.id() as i32),
            counts: true,
            files: ProcFiles::default(),
            cpu: CpuCount::default(),
            cpu_time: None,
            cpu_left: None,
            memory: None,
            cpus: 1,
            clocks: Vec::new(),
            tmpfs: 0,
            is_resting: true,
            seen_used: Duration::ZERO,
            quiet: 0,
        }
    }

    #[test]
    fn what_was_only_shown_is_checked_though_nothing_runs() {
        let script = "exec 3<&0; read first <&3 & read second";
        let mut init = Command::new("/bin/sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut meter = meter(&init);
        meter.memory = Some(MemoryCount::new(1));
        let mut peaks = Peaks::default();
        let until = Instant::now() + Duration::from_secs(60);
        let (mut shown, mut used) = (0, None);
        // Until all have come to rest.
        while shown < 3 && Instant::now() < until {
            let now = meter.in_use(None, &[], None, &mut peaks);
            let clock = cpu_clock(meter.init);
            shown = if now.processes == 1 && clock == used {
                shown + 1
            } else {
                0
            };
            used = clock;
            std::thread::sleep(Duration::from_millis(1));
        }
        let stop = meter.check(None, &[], None, &mut peaks);
        drop(init.stdin.take());
        init.wait().unwrap();
        assert_eq!(shown, 3);
        assert!(matches!(stop, Some(Stop::MemoryWatchdog)), "{stop:?}");
    }

    #[test]
    fn a_process_that_runs_is_not_idle() {
        let mut child = Command::new("/bin/sh")
            .args(["-c", "read first; read second"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut meter = meter(&child);
        let until = Instant::now() + Duration::from_secs(60);
        meter.look();
        assert!(!meter.was_idle(), "it was not known before");
        while !meter.was_idle() && Instant::now() < until {
            meter.look();
        }
        let mut peaks = Peaks::default();
        assert!(meter.check(None, &[], None, &mut peaks).is_none());
        assert!(meter.quiet > 0 && peaks.processes.is_none(), "it waits");

        let mut input = child.stdin.take().unwrap();
        input.write_all(b"x\n").unwrap();
        while meter.was_idle() && Instant::now() < until {}
        assert!(!meter.was_idle());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!meter.was_idle(), "it is gone");
    }
}
