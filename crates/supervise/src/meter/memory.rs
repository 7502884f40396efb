//! Memory of a cell without a cgroup.
//!
//! The kernel's counters are read at every look. They count a shared page once for
//! each process, so a sum above the limit may be too high. Then a separate thread
//! reads the page tables, which takes time and waits for locks that the cell can
//! hold. The watcher's loop never waits for that thread. A figure that is late counts
//! as above the limit.

use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

use super::super::proc::{Lines, ProcFiles, Process};
use crate::SharedMemory;
use crate::shared_memory::survey::{Question, Survey};
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
/// A survey for calls that wait is followed by this many times its length in rest.
const SURVEY_REST: u32 = 9;

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
    /// Before that, no survey is made for calls that wait.
    next_survey: Option<Instant>,
}

/// What is known of a cell at a look.
pub(super) struct Look<'l> {
    /// Begins with init, which is cellblock's own.
    pub(super) processes: &'l [Process],
    /// The size of the cell's files.
    pub(super) tmpfs: u64,
    /// The CPU time that it has used.
    pub(super) cpu: Duration,
    pub(super) files: &'l ProcFiles,
    /// Counts what no process shows, if anything does.
    pub(super) shared: Option<&'l SharedMemory>,
}

impl Look<'_> {
    /// Files and shared memory.
    fn objects(&self) -> u64 {
        self.tmpfs + self.shared.map_or(0, SharedMemory::sum)
    }

    /// What is there of them for certain.
    fn certain(&self) -> u64 {
        self.tmpfs + self.shared.map_or(0, SharedMemory::lasting)
    }

    fn question(&self) -> Option<Question> {
        let init = self.processes.first()?.pid;
        self.shared?.question(init)
    }
}

impl MemoryCount {
    pub(super) const fn new(limit: u64) -> Self {
        Self {
            limit,
            exact: None,
            next_survey: None,
        }
    }

    /// Whether an exact figure is being read.
    pub(super) const fn waits(&self) -> bool {
        self.exact.is_some()
    }

    /// Whether the cell has to be stopped, so that a survey can be made.
    pub(super) fn needs_quiet(&self) -> bool {
        (self.exact.as_ref()).is_some_and(|exact| exact.surveys && Question::is_long(exact.since))
    }

    pub(super) fn look(&mut self, look: &Look<'_>) -> Found {
        let held = look.processes.iter().skip(1);
        let held: Vec<Of> = held
            .filter_map(|process| Of::process(process, look.files))
            .collect();
        let all = Held::sum(held.iter().map(|of| of.held));
        // One process counts none of its pages twice.
        let largest = held.iter().map(|of| of.held.own).max().unwrap_or(0);
        let certain = largest + all.beside + look.certain();
        match self.take_exact(look) {
            Some(exact) if exact.with(look.objects()) > self.limit => {
                return Found::Above(Some(exact.with(look.objects())));
            }
            None if certain > self.limit => return Found::Above(Some(certain)),
            _ => {}
        }
        if let Some(shared) = look.shared {
            shared.look(all.own + all.beside + look.tmpfs);
        }
        let used = all.with(look.objects());
        if used <= self.limit {
            self.survey_for_waiting(look);
            return Found::Within(used);
        }
        match &self.exact {
            Some(exact) if exact.is_late(look.cpu) => Found::Above(None),
            Some(_) => Found::Unknown,
            None => {
                let room = self.limit.saturating_sub(look.certain());
                self.exact = Exact::start(Some((held, room)), look.question(), look.cpu).ok();
                match self.exact {
                    Some(_) => Found::Unknown,
                    // Without a thread, the limit holds all the same.
                    None => Found::Above(None),
                }
            }
        }
    }

    /// The exact figure, once it has been read. What a survey did not find counts no more.
    fn take_exact(&mut self, look: &Look<'_>) -> Option<Held> {
        let exact = self.exact.as_mut()?;
        let answer = exact.answer()?;
        self.exact = None;
        self.next_survey = Some(Instant::now() + answer.spent * SURVEY_REST);
        if let (Some(shared), Some(survey)) = (look.shared, answer.survey) {
            shared.settle(&survey);
        }
        answer.held
    }

    fn survey_for_waiting(&mut self, look: &Look<'_>) {
        let is_asked = look.shared.is_some_and(SharedMemory::has_waiting);
        let rests = self.next_survey.is_some_and(|next| next > Instant::now());
        if is_asked && !rests && self.exact.is_none() {
            self.exact = Exact::start(None, look.question(), look.cpu).ok();
        }
    }
}

/// What `processes` without the first, which is init, hold by the kernel's counters, with files
/// and shared memory (`objects`).
pub(super) fn in_use(processes: &[Process], objects: u64, files: &ProcFiles) -> u64 {
    let others = processes.iter().skip(1);
    let held = others.filter_map(|process| Of::process(process, files));
    Held::sum(held.map(|of| of.held)).with(objects)
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

    /// With what files and counted shared memory may take. These are among the shared pages,
    /// so the larger of the two counts: no cell is ended for memory counted twice.
    fn with(self, objects: u64) -> u64 {
        self.own + self.beside + self.shared.max(objects)
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

/// A thread that reads page tables and maps.
#[derive(Debug)]
struct Exact {
    /// `None` once its answer was taken.
    thread: Option<JoinHandle<Answer>>,
    /// Whether it makes a survey.
    surveys: bool,
    since: Instant,
    /// The cell's CPU time then.
    cpu: Duration,
}

/// What such a thread has found out.
#[derive(Debug)]
struct Answer {
    held: Option<Held>,
    survey: Option<Survey>,
    /// CPU time.
    spent: Duration,
}

impl Exact {
    /// Reads what these processes `held`, if any, and answers the `question`, if there is one, and
    /// if that can make a difference: if they have no more than the room that is theirs.
    fn start(
        held: Option<(Vec<Of>, u64)>,
        question: Option<Question>,
        cpu: Duration,
    ) -> std::io::Result<Self> {
        let surveys = question.is_some();
        let thread = thread::Builder::new().stack_size(STACK).spawn(move || {
            let mut is_above = false;
            let held = held.map(|(held, room)| {
                // Between vfork and exec, a child has its parent's memory, not a copy.
                let own = held.iter().filter(|of| !share_memory(of.pid, of.parent));
                let held = Held::sum(own.map(|of| of.held.proportional(of.thread)));
                is_above = held.own + held.beside > room;
                held
            });
            let survey = question
                .filter(|_| !is_above)
                .and_then(|question| question.answer(EXACT_DEADLINE));
            let spent = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
            Answer {
                held,
                survey,
                spent: spent.map_or(Duration::ZERO, Duration::from),
            }
        })?;
        Ok(Self {
            thread: Some(thread),
            surveys,
            since: Instant::now(),
            cpu,
        })
    }

    /// What it has found out, once it has.
    fn answer(&mut self) -> Option<Answer> {
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
