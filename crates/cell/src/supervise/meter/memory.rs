//! Memory of a cell without a cgroup.
//!
//! The kernel's counters are read at every look. They count a page once for each
//! process that has it, so a sum above the limit may be too high: then a thread
//! of its own reads the page tables, which takes time and waits for locks that
//! the cell can hold. The watcher's loop never waits for it. A figure that does
//! not come in time counts as above the limit.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::unistd::Pid;

use super::super::proc::{Lines, Process};
use sys::process::share_memory;

/// How long an exact figure may take, by the cell's own CPU time: meanwhile it can
/// turn shared pages into private ones, as fast as it writes memory. On a busy
/// host, reader and cell wait alike.
const EXACT_DEADLINE: Duration = Duration::from_millis(250);
/// The same by the clock, for a cell that sleeps on a lock.
const EXACT_WALL_DEADLINE: Duration = Duration::from_secs(2);
/// How long the thread gets to end with the cell.
const END_DEADLINE: Duration = Duration::from_secs(1);
const STACK: usize = 128 << 10;

/// Whether a cell is within its limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// It uses this much.
    Within(u64),
    /// More than the limit: this much at least, where that is known.
    Above(Option<u64>),
    /// The exact figure is not there yet.
    Unknown,
}

#[derive(Debug)]
pub(super) struct MemoryCount {
    limit: u64,
    exact: Option<Exact>,
    /// Since when an exact figure has been waited for, and the cell's CPU time then.
    since: Option<(Instant, Duration)>,
}

impl MemoryCount {
    pub(super) const fn new(limit: u64) -> Self {
        Self {
            limit,
            exact: None,
            since: None,
        }
    }

    /// Whether an exact figure is waited for.
    pub(super) const fn waits(&self) -> bool {
        self.since.is_some()
    }

    /// `processes` begins with init, which is cellblock's own; `tmpfs` is what the
    /// cell's files take, and `cpu` the CPU time that it has used.
    pub(super) fn look(&mut self, processes: &[Process], tmpfs: u64, cpu: Duration) -> Found {
        let held: Vec<Of> = processes.iter().skip(1).filter_map(Of::process).collect();
        let all = Held::sum(held.iter().map(|of| of.held));
        // What one process has, it has not counted twice.
        let largest = held.iter().map(|of| of.held.own).max().unwrap_or(0);
        let certain = largest + all.beside + tmpfs;
        match self.exact.as_ref().and_then(Exact::answer) {
            Some(exact) => {
                self.since = None;
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
        if let Some((since, then)) = self.since {
            let late =
                cpu.saturating_sub(then) > EXACT_DEADLINE || since.elapsed() > EXACT_WALL_DEADLINE;
            return if late {
                Found::Above(None)
            } else {
                Found::Unknown
            };
        }
        if !self.ask(held, tmpfs) {
            // No thread can be had, and the limit holds all the same.
            return Found::Above(None);
        }
        self.since = Some((Instant::now(), cpu));
        Found::Unknown
    }

    fn ask(&mut self, held: Vec<Of>, tmpfs: u64) -> bool {
        if self.exact.is_none() {
            self.exact = Exact::start().ok();
        }
        let exact = self.exact.as_ref();
        exact.is_some_and(|exact| exact.ask(Question { held, tmpfs }))
    }
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
    fn process(process: &Process) -> Option<Self> {
        let mut threads = process.threads.clone();
        threads.sort_by_key(|thread| *thread != process.pid);
        let (thread, held) = threads
            .into_iter()
            .find_map(|thread| Some((thread, Held::resident(thread)?)))?;
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
    fn resident(thread: Pid) -> Option<Self> {
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
    fn proportional(self, thread: Pid) -> Self {
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

#[derive(Debug)]
struct Question {
    held: Vec<Of>,
    tmpfs: u64,
}

impl Question {
    fn answer(self) -> u64 {
        // Between vfork and exec, a child has its parent's memory, not a copy.
        let own = self
            .held
            .iter()
            .filter(|of| !share_memory(of.pid, of.parent));
        Held::sum(own.map(|of| of.held.proportional(of.thread))).with(self.tmpfs)
    }
}

/// The thread that reads page tables.
#[derive(Debug)]
struct Exact {
    questions: Option<SyncSender<Question>>,
    answers: Receiver<u64>,
    thread: Option<JoinHandle<()>>,
}

impl Exact {
    fn start() -> std::io::Result<Self> {
        let (questions, asked) = sync_channel::<Question>(1);
        let (answer, answers) = sync_channel(1);
        let thread = thread::Builder::new().stack_size(STACK).spawn(move || {
            while let Ok(question) = asked.recv() {
                if answer.send(question.answer()).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self {
            questions: Some(questions),
            answers,
            thread: Some(thread),
        })
    }

    fn ask(&self, question: Question) -> bool {
        let questions = self.questions.as_ref();
        questions.is_some_and(|questions| questions.try_send(question).is_ok())
    }

    fn answer(&self) -> Option<u64> {
        self.answers.try_recv().ok()
    }
}

impl Drop for Exact {
    /// The next cell is started by a process with one thread. The processes are
    /// dead by now, so that no lock of theirs is held for long.
    fn drop(&mut self) {
        self.questions = None;
        let end = Instant::now() + END_DEADLINE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.answers.recv_timeout(left) {
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => return,
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
