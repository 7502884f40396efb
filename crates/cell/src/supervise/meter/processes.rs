//! A cell's processes as `/proc` shows them. Nothing here waits for a lock that
//! the cell can hold.

use std::fs;
use std::path::Path;

use nix::unistd::Pid;

/// More processes than this are not looked at, so that a fork bomb without a
/// limit on processes cannot keep the supervisor busy.
const MAX_PROCESSES: usize = 4096;

/// A process of the cell.
#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) pid: Pid,
    pub(super) parent: Pid,
    /// Its threads, the leader among them, also when that has ended.
    pub(super) threads: Vec<Pid>,
}

/// Init and all that descends from it. Orphans become init's children, so
/// nothing of the cell is missing.
pub(super) fn below(init: Pid) -> Vec<Process> {
    let mut found = vec![Process::new(init, init)];
    let mut next = 0;
    while next < found.len() && found.len() < MAX_PROCESSES {
        let children = found[next].children();
        found.extend(children);
        next += 1;
    }
    found
}

impl Process {
    fn new(pid: Pid, parent: Pid) -> Self {
        let threads = fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|task| task.file_name().to_str()?.parse().ok())
            .map(Pid::from_raw)
            .collect();
        Self {
            pid,
            parent,
            threads,
        }
    }

    /// Children of all threads (proc_pid_task_children(5)).
    fn children(&self) -> Vec<Self> {
        let list = |thread: &Pid| {
            fs::read_to_string(format!("/proc/{}/task/{thread}/children", self.pid)).ok()
        };
        let lists: Vec<String> = self.threads.iter().filter_map(list).collect();
        lists
            .iter()
            .flat_map(|list| list.split_ascii_whitespace())
            .filter_map(|pid| pid.parse().ok())
            .map(|pid| Self::new(Pid::from_raw(pid), self.pid))
            .collect()
    }

    /// What it holds by its counters, and the thread that shows it: a leader that
    /// has ended shows nothing, though its threads go on.
    pub(super) fn memory(&self) -> Option<(Pid, Held)> {
        let of = |thread: Pid| Some((thread, Held::resident(thread)?));
        of(self.pid).or_else(|| {
            let others = self.threads.iter().filter(|thread| **thread != self.pid);
            others.copied().find_map(of)
        })
    }
}

/// Bytes that a process holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    /// Private pages.
    pub(super) own: u64,
    /// Mapped pages of tmpfs and shared memory.
    pub(super) shared: u64,
    /// Page tables, swapped and huge pages.
    pub(super) beside: u64,
}

impl Held {
    pub(super) fn sum(all: impl Iterator<Item = Self>) -> Self {
        all.fold(Self::default(), |sum, held| Self {
            own: sum.own + held.own,
            shared: sum.shared + held.shared,
            beside: sum.beside + held.beside,
        })
    }

    /// With what is in tmpfs. Files there may be among the shared pages, so the
    /// larger of the two counts: no cell is ended for memory counted twice.
    pub(super) fn with(self, tmpfs: u64) -> u64 {
        self.own + self.beside + self.shared.max(tmpfs)
    }

    /// By the kernel's counters (proc_pid_status(5)), which take no lock. What
    /// several processes share counts for each. A process that has ended holds
    /// nothing, and has no such lines.
    pub(super) fn resident(thread: Pid) -> Option<Self> {
        let status = Lines::read(format!("/proc/{thread}/status"))?;
        let beside = ["VmPTE:", "VmSwap:", "HugetlbPages:"];
        Some(Self {
            own: status.bytes("RssAnon:")?,
            shared: status.bytes("RssShmem:")?,
            beside: beside.iter().filter_map(|name| status.bytes(name)).sum(),
        })
    }

    /// With each shared page divided among those that share it
    /// (proc_pid_smaps(5)). The kernel goes through the page tables, and waits for
    /// a lock that the process may hold. A process that has ended since holds
    /// nothing.
    pub(super) fn proportional(self, thread: Pid) -> Self {
        let exact = Lines::read(format!("/proc/{thread}/smaps_rollup")).and_then(|rollup| {
            Some(Self {
                own: rollup.bytes("Pss_Anon:")?,
                shared: rollup.bytes("Pss_Shmem:")?,
                ..self
            })
        });
        exact.or_else(|| Self::resident(thread)).unwrap_or_default()
    }
}

/// A file of lines that give KiB.
struct Lines(String);

impl Lines {
    fn read(path: impl AsRef<Path>) -> Option<Self> {
        fs::read_to_string(path).ok().map(Self)
    }

    fn bytes(&self, name: &str) -> Option<u64> {
        let line = self.0.lines().find(|line| line.starts_with(name))?;
        let kib: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
        Some(kib * 1024)
    }
}
