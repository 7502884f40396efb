//! CPU time of a cell without a cgroup.
//!
//! A process's time is the kernel's to tell as long as the process is there, and
//! then its parent's, if the parent waits for it. A parent that ignores SIGCHLD
//! does not, and no process is charged for the time (wait(2)). So what each process
//! had when it was last seen is kept, and counts when it is gone and no one has
//! got it. What such a process uses after it was last seen is lost.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::time::Duration;

use nix::unistd::Pid;

use super::processes::Process;
use sys::process::CpuTime;

/// USER_HZ is 100 wherever Linux runs (time(7)).
const TICK: Duration = Duration::from_millis(10);

/// Ticks in user mode and in the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks([u64; 2]);

impl Ticks {
    fn plus(self, other: Self) -> Self {
        Self([0, 1].map(|mode| self.0[mode] + other.0[mode]))
    }

    fn minus(self, other: Self) -> Self {
        Self([0, 1].map(|mode| self.0[mode].saturating_sub(other.0[mode])))
    }

    fn time(self) -> CpuTime {
        let [user, system] = self
            .0
            .map(|ticks| TICK.saturating_mul(u32::try_from(ticks).unwrap_or(u32::MAX)));
        CpuTime { user, system }
    }
}

/// What a process has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Used {
    /// When it started, which tells apart two processes of one pid.
    started: u64,
    own: Ticks,
    /// Of children that it waited for, and theirs.
    waited: Ticks,
}

impl Used {
    /// From proc_pid_stat(5).
    fn of(pid: Pid) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(stat: &str) -> Option<Self> {
        // The name, in parentheses, may hold anything.
        let (_, fields) = stat.rsplit_once(')')?;
        // Fields are counted from 1, and the first of these is the third.
        let mut fields = fields.split_ascii_whitespace().skip(14 - 3);
        let mut next = || fields.next()?.parse::<u64>().ok();
        let own = Ticks([next()?, next()?]);
        let waited = Ticks([next()?, next()?]);
        let started = fields.nth(22 - 18)?.parse().ok()?;
        Some(Self {
            started,
            own,
            waited,
        })
    }
}

/// Adds up what the processes of one cell use.
#[derive(Debug, Default)]
pub(super) struct CpuCount {
    last: HashMap<Pid, Used>,
    lost: Ticks,
}

impl CpuCount {
    /// What all have used until now; `processes` begins with init, whose own time
    /// is the set-up's.
    pub(super) fn look(&mut self, processes: &[Process]) -> CpuTime {
        // One that is missing may only have changed its parent while the others
        // were listed. Those that are gone are found out before the rest is read:
        // the kernel adds a process's time to its parent's before it removes it.
        let pids: HashSet<Pid> = processes.iter().map(|process| process.pid).collect();
        let listed = |pid: &Pid| pids.contains(pid);
        let is_gone = |pid: &Pid, used: &Used| {
            !listed(pid) && Used::of(*pid).is_none_or(|now| now.started != used.started)
        };
        let gone: Vec<Pid> = self
            .last
            .iter()
            .filter(|(pid, used)| is_gone(pid, used))
            .map(|(pid, _)| *pid)
            .collect();
        let gone = gone.iter().filter_map(|pid| self.last.remove(pid));
        let gone = gone.fold(Ticks::default(), |sum, used| {
            sum.plus(used.own).plus(used.waited)
        });
        let init = processes.first().map(|process| process.pid);
        let known: Vec<Pid> = self.last.keys().copied().collect();
        let others = known.iter().filter(|pid| !listed(pid));
        let mut waited = Ticks::default();
        for pid in processes.iter().map(|process| &process.pid).chain(others) {
            let Some(mut now) = Used::of(*pid) else {
                // Gone since: the next look finds out what became of its time.
                continue;
            };
            if Some(*pid) == init {
                now.own = Ticks::default();
            }
            let before = self.last.insert(*pid, now);
            let same = before.filter(|before| before.started == now.started);
            waited = waited.plus(
                now.waited
                    .minus(same.map_or(Ticks::default(), |b| b.waited)),
            );
        }
        self.lost = self.lost.plus(gone.minus(waited));
        let all = self
            .last
            .values()
            .fold(self.lost, |sum, used| sum.plus(used.own).plus(used.waited));
        all.time()
    }

    /// The part of it that no process shows any more.
    pub(super) fn lost(&self) -> CpuTime {
        self.lost.time()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_read_whatever_the_name() {
        let stat = "7 (a) b 1 2 (x)) S 1 7 7 0 -1 0 0 0 0 0 11 12 13 14 20 0 1 0 99 4096";
        let used = Used::parse(stat).unwrap();
        assert_eq!((used.own, used.waited), (Ticks([11, 12]), Ticks([13, 14])));
        assert_eq!(used.started, 99);
        assert_eq!(Used::parse("7 (a) S 1"), None);
        assert!(Used::of(Pid::this()).is_some());
    }
}
