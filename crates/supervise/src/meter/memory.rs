//! Memory of a cell without a cgroup.
//!
//! The kernel's counters are read at every look. They count a shared page once for
//! each process, so a sum above the limit may be too high. Then a separate thread
//! reads the page tables, which takes time and waits for locks that the cell can
//! hold. The watcher's loop never waits for that thread. A figure that is late counts
//! as above the limit.

use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::unistd::Pid;

use super::super::proc::{Lines, ProcFiles, Process};
use sys::process::share_memory;

/// How long an exact figure may take, by the cell's own CPU time: meanwhile it can
/// turn shared pages into private ones, as fast as it writes memory. On a busy
/// host, reader and cell wait alike.
const EXACT_DEADLINE: Duration = Duration::from_millis(250);
/// The same by the clock, for a cell that sleeps on a lock.
const EXACT_WALL_DEADLINE: Duration = Duration::from_secs(2);
/// How long the thread may take to end after the cell.
const END_DEADLINE: Duration = Duration::from_secs(1);
const STACK: usize = 128 << 10;

/// Whether a cell is within its limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// It uses this much.
    Within(u64),
    /// More than the limit: this much at least, where that is known.
    Above(Option<u64>),
    /// The exact figure is not known yet.
    Unknown,
}

#[derive(Debug)]
pub(super) struct MemoryCount {
    limit: u64,
    exact: Option<Exact>,
}

impl MemoryCount {
    pub(super) const fn new(limit: u64) -> Self {
        Self { limit, exact: None }
    }

    /// Whether an exact figure is being read.
    pub(super) const fn waits(&self) -> bool {
        self.exact.is_some()
    }

    /// `processes` begins with init, which is cellblock's own; `tmpfs` is the size of the
    /// cell's files, and `cpu` the CPU time that it has used.
    pub(super) fn look(
        &mut self,
        processes: &[Process],
        tmpfs: u64,
        cpu: Duration,
        files: &ProcFiles,
    ) -> Found {
        let held = processes.iter().skip(1);
        let held: Vec<Of> = held
            .filter_map(|process| Of::process(process, files))
            .collect();
        let all = Held::sum(held.iter().map(|of| of.held));
        // One process counts none of its pages twice.
        let largest = held.iter().map(|of| of.held.own).max().unwrap_or(0);
        let certain = largest + all.beside + tmpfs;
        match self.exact.as_mut().and_then(Exact::answer) {
            Some(exact) => {
                self.exact = None;
                if exact > self.limit {
                    return Found::Above(Some(exact));
                }
            }
            None if certain > self.limit => return Found::Above(Some(certain)),
            None => {}
        }
        if all.with(tmpfs) <= self.limit {
            return Found::Within(all.with(tmpfs));
        }
        match &self.exact {
            Some(exact) if exact.is_late(cpu) => Found::Above(None),
            Some(_) => Found::Unknown,
            None => {
                self.exact = Exact::start(held, tmpfs, cpu).ok();
                match self.exact {
                    Some(_) => Found::Unknown,
                    // Without a thread, the limit holds all the same.
                    None => Found::Above(None),
                }
            }
        }
    }
}

/// What `processes` without the first, which is init, and a tmpfs hold by the kernel's
/// counters.
pub(super) fn in_use(processes: &[Process], tmpfs: u64, files: &ProcFiles) -> u64 {
    let others = processes.iter().skip(1);
    let held = others.filter_map(|process| Of::process(process, files));
    Held::sum(held.map(|of| of.held)).with(tmpfs)
}

/// What a process holds by its counters.
#[derive(Debug)]
struct Of {
    pid: Pid,
    parent: Pid,
    /// The thread that shows it: a leader that has ended shows nothing, though the
    /// others go on.
    thread: Pid,
    held: Held,
}

impl Of {
    fn process(process: &Process, files: &ProcFiles) -> Option<Self> {
        let mut threads = process.threads.clone();
        threads.sort_by_key(|thread| *thread != process.pid);
        let (thread, held) = threads
            .into_iter()
            .find_map(|thread| Some((thread, Held::resident(thread, files)?)))?;
        Some(Self {
            pid: process.pid,
            parent: process.parent,
            thread,
            held,
        })
    }
}

/// Bytes that a process holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    /// Private pages.
    own: u64,
    /// Mapped pages of tmpfs and shared memory.
    shared: u64,
    /// Page tables, swapped and huge pages.
    beside: u64,
}

impl Held {
    fn sum(all: impl Iterator<Item = Self>) -> Self {
        all.fold(Self::default(), |sum, held| Self {
            own: sum.own + held.own,
            shared: sum.shared + held.shared,
            beside: sum.beside + held.beside,
        })
    }

    /// With what is in tmpfs. Files there may be among the shared pages, so the
    /// larger of the two counts: no cell is ended for memory counted twice.
    fn with(self, tmpfs: u64) -> u64 {
        self.own + self.beside + self.shared.max(tmpfs)
    }

    /// By the kernel's counters (proc_pid_status(5)), which take no lock. What
    /// several processes share counts for each. A process that has ended holds
    /// nothing, and has no such lines.
    fn resident(thread: Pid, files: &ProcFiles) -> Option<Self> {
        let status = Lines::of(thread, files)?;
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
    fn proportional(self, thread: Pid) -> Self {
        let exact = Lines::read(format!("/proc/{thread}/smaps_rollup")).and_then(|rollup| {
            Some(Self {
                own: rollup.bytes("Pss_Anon:")?,
                shared: rollup.bytes("Pss_Shmem:")?,
                ..self
            })
        });
        exact
            .or_else(|| Self::resident(thread, &ProcFiles::default()))
            .unwrap_or_default()
    }
}

/// A thread that reads page tables.
#[derive(Debug)]
struct Exact {
    /// `None` once its answer was taken.
    thread: Option<JoinHandle<u64>>,
    since: Instant,
    /// The cell's CPU time then.
    cpu: Duration,
}

impl Exact {
    fn start(held: Vec<Of>, tmpfs: u64, cpu: Duration) -> std::io::Result<Self> {
        let thread = thread::Builder::new().stack_size(STACK).spawn(move || {
            // Between vfork and exec, a child has its parent's memory, not a copy.
            let own = held.iter().filter(|of| !share_memory(of.pid, of.parent));
            Held::sum(own.map(|of| of.held.proportional(of.thread))).with(tmpfs)
        })?;
        Ok(Self {
            thread: Some(thread),
            since: Instant::now(),
            cpu,
        })
    }

    /// The figure, once it has been read.
    fn answer(&mut self) -> Option<u64> {
        let thread = self.thread.take_if(|thread| thread.is_finished())?;
        thread.join().ok()
    }

    /// Whether it takes too long for a cell that has used `cpu` by now.
    fn is_late(&self, cpu: Duration) -> bool {
        cpu.saturating_sub(self.cpu) > EXACT_DEADLINE || self.since.elapsed() > EXACT_WALL_DEADLINE
    }
}

impl Drop for Exact {
    /// The next cell is started by a process with one thread. The processes are
    /// dead by now, so no lock of theirs is held for long.
    fn drop(&mut self) {
        let end = Instant::now() + END_DEADLINE;
        while let Some(thread) = self.thread.take() {
            if thread.is_finished() {
                let _ = thread.join();
            } else if Instant::now() < end {
                self.thread = Some(thread);
                thread::sleep(Duration::from_millis(1));
            }
        }
    }
}
