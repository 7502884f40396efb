//! CPU time of a cell without a cgroup.
//!
//! The kernel shows a process's time as long as the process exists, and then adds it
//! to its parent's, if the parent waits for it. A parent that ignores SIGCHLD does
//! not, and no process is charged for the time (wait(2)). So each process's last
//! known time is kept, and counts when the process is gone and no parent was charged.
//! The time that such a process uses after the last look is lost.

use std::collections::{BTreeMap, BTreeSet};

use nix::unistd::Pid;

use super::super::proc::{ProcFiles, Process, Times};
use sys::process::CpuTime;

/// Adds up what the processes of one cell use.
#[derive(Debug, Default)]
pub(super) struct CpuCount {
    last: BTreeMap<Pid, Times>,
    lost: CpuTime,
}

impl CpuCount {
    /// What all have used until now; `processes` begins with init, whose own time
    /// is the set-up's.
    pub(super) fn look(&mut self, processes: &[Process], files: &ProcFiles) -> CpuTime {
        // One that is missing may only have changed its parent while the others
        // were listed. Those that are gone are found out before the rest is read:
        // the kernel adds a process's time to its parent's before it removes it.
        let pids: BTreeSet<Pid> = processes.iter().map(|process| process.pid).collect();
        let is_gone = |pid: &Pid, last: &Times| {
            !pids.contains(pid)
                && Times::of(*pid, files).is_none_or(|now| now.started != last.started)
        };
        let mut gone = CpuTime::default();
        self.last.retain(|pid, last| {
            let is_gone = is_gone(pid, last);
            if is_gone {
                gone = gone + last.own + last.waited;
            }
            !is_gone
        });
        let init = processes.first().map(|process| process.pid);
        let unlisted: Vec<Pid> = (self.last.keys().copied())
            .filter(|pid| !pids.contains(pid))
            .collect();
        let mut waited = CpuTime::default();
        // Parents before children: a child that ends in between is missed until the
        // next look, and never counted twice.
        let listed = processes.iter().map(|process| process.pid);
        for pid in listed.chain(unlisted) {
            let Some(mut now) = Times::of(pid, files) else {
                // Gone since: the next look finds out what became of its time.
                continue;
            };
            if Some(pid) == init {
                now.own = CpuTime::default();
            }
            let before = self.last.insert(pid, now);
            let same = before.filter(|before| before.started == now.started);
            let before = same.map_or(CpuTime::default(), |before| before.waited);
            waited = waited + now.waited.saturating_sub(before);
        }
        self.lost = self.lost + gone.saturating_sub(waited);
        let all = self.last.values();
        all.fold(self.lost, |sum, used| sum + used.own + used.waited)
    }

    /// The part of it that no process shows any more.
    pub(super) fn lost(&self) -> CpuTime {
        self.lost
    }
}
