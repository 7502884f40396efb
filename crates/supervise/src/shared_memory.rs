//! Memory that no process shows, in a cell without a memory cgroup: shared anonymous mappings,
//! and System V segments, messages and semaphores.
//!
//! An object of shared memory keeps its pages when they are in no process's page tables any more.
//! Nothing shows an unprivileged user how many those are. But the size is known at the call that
//! makes the object, in registers, and never grows. So the filter reports these calls, and each
//! counts in full from then on; one for which the limit has no room gets ENOMEM.
//!
//! A mapping counts until a [`survey`] finds that no process maps its object. What belongs to no
//! process (System V) counts for as long as the cell exists.
//!
//! What comes from the cell is bounded: calls by their [pace](super::turn), grants by
//! [`MOST_GRANTS`], calls that wait by [`MOST_WAITING`], surveys by a tenth of a CPU.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::unistd::Pid;

use spec::Bytes;
use sys::memory::PAGE;
use sys::seccomp::{Deferred, Waiting};

pub(crate) mod survey;

use survey::{Question, Survey};

/// The most mappings that are counted one by one. Programs have a few.
const MOST_GRANTS: usize = 4096;
/// The most calls that wait for a survey. Each takes a descriptor.
const MOST_WAITING: usize = 64;
/// How long a call waits for a survey that finds no quiet moment.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the kernel takes for a semaphore: less than these bytes.
const SEMAPHORE: u64 = 128;
/// What it takes for each thread that may undo what it did to a set (semop(2), `SEM_UNDO`): these bytes, and
/// two for each semaphore.
const UNDO: u64 = 128;
/// The most threads of a cell without a limit on them.
const MOST_THREADS: u64 = 32768;
/// A queue holds as many messages as bytes, 16384 (`MSGMNB`, also of a new namespace). Of the
/// smallest ones each takes 64 bytes, and a word for a security module.
const QUEUE: u64 = 2 << 20;

/// Counts what such calls make, against the cell's limit on memory.
#[derive(Debug)]
pub struct SharedMemory {
    limit: Bytes,
    /// The most threads that there may be.
    threads: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What is never given back.
    lasting: u64,
    mapped: Vec<Grant>,
    /// The number of the last grant.
    last: u64,
    /// What the cell had in use beside all this at the last look.
    beside: u64,
    waiting: Vec<Asked>,
    /// The numbers of calls that were denied after they had waited.
    denied: Vec<i64>,
}

/// A mapping that was let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Grant {
    number: u64,
    bytes: u64,
    /// The thread, which may not have come to make the object yet; `None` once it is known to be
    /// past that.
    thread: Option<Pid>,
}

/// A call that waits for a look, or a survey.
#[derive(Debug)]
struct Asked {
    call: Deferred,
    made: Made,
    since: Instant,
    /// Whether a survey was made since.
    is_surveyed: bool,
}

/// What a call makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Made {
    /// It opens what is there.
    Nothing,
    /// At most so many bytes, in an object that is there for as long as it is mapped.
    Mapped(u64),
    /// At most so many bytes, which belong to no process.
    Lasting(u64),
    /// Huge pages, which are the host's.
    Huge,
}

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Given {
    Done,
    Denied,
}

impl SharedMemory {
    /// For a cell with this limit, and one on its threads.
    pub fn within(limit: Bytes, threads: Option<u64>) -> Self {
        Self {
            limit,
            threads: threads.unwrap_or(MOST_THREADS),
            state: Mutex::default(),
        }
    }

    /// Answers a call, or leaves it waiting for a survey.
    pub(crate) fn answer(&self, call: Waiting<'_>) -> Result<Given, Errno> {
        let made = Made::by(call.number(), |index| call.argument(index), self.threads);
        let bytes = match made {
            Made::Nothing => return call.go_on().map(|()| Given::Done),
            Made::Mapped(bytes) | Made::Lasting(bytes) => bytes,
            Made::Huge => u64::MAX,
        };
        let thread = call.thread();
        let mut state = self.state();
        state.has_passed(thread);
        // A call that was interrupted while it waited is made anew.
        let before = state.take_asked(thread).filter(|asked| asked.made == made);
        let is_answered = before.as_ref().is_some_and(Asked::is_answered);
        // Close to the limit, what was in use at the last look is not good enough.
        let is_clear = state.used().saturating_add(bytes) <= self.limit.0 / 8 * 7;
        if (is_clear || is_answered) && state.take(made, thread, self.limit) {
            drop(state);
            return call.go_on().map(|()| Given::Done);
        }
        // Without all mappings there would be room.
        let can_fit = state.lasting.saturating_add(bytes) <= self.limit.0;
        if can_fit
            && !is_answered
            && state.waiting.len() < MOST_WAITING
            && let Ok(deferred) = call.to_deferred()
        {
            state.waiting.push(Asked {
                call: deferred,
                made,
                since: before.map_or_else(Instant::now, |asked| asked.since),
                is_surveyed: false,
            });
            return Ok(Given::Done);
        }
        drop(state);
        call.answer(Err(Errno::ENOMEM)).map(|()| Given::Denied)
    }

    /// Bytes that count.
    pub(crate) fn sum(&self) -> u64 {
        self.state().sum()
    }

    /// Those of them that are never given back.
    pub(crate) fn lasting(&self) -> u64 {
        self.state().lasting
    }

    /// Whether calls wait for a look, or a survey.
    pub(crate) fn has_waiting(&self) -> bool {
        let state = self.state();
        state.waiting.iter().any(|asked| !asked.is_answered())
    }

    /// What a survey is to find out; `None` where nothing can be given back.
    pub(crate) fn question(&self, init: Pid) -> Option<Question> {
        let state = self.state();
        (!state.mapped.is_empty()).then(|| Question {
            init,
            grants: (state.mapped.iter())
                .map(|grant| (grant.number, grant.thread))
                .collect(),
            asked: Instant::now(),
        })
    }

    /// Gives back what a survey did not find.
    pub(crate) fn settle(&self, survey: &Survey) {
        let mut state = self.state();
        state.forget(survey);
        for asked in &mut state.waiting {
            asked.is_surveyed |= asked.since <= survey.asked;
        }
    }

    /// Notes what the cell has in use `beside` all this, and answers the calls that waited for that
    /// or for a survey.
    pub(crate) fn look(&self, beside: u64) {
        let mut state = self.state();
        state.beside = beside;
        for asked in std::mem::take(&mut state.waiting) {
            let call = asked.call.waiting();
            let number = call.number();
            if call.still_waits().is_err() {
                // To stop a cell interrupts its calls. This one gets its answer when it is made
                // anew, unless its thread has ended.
                if asked.since.elapsed() < 2 * PATIENCE {
                    state.waiting.push(asked);
                }
            } else if state.take(asked.made, call.thread(), self.limit) {
                // One whose caller is gone is given back by a survey.
                let _ = call.go_on();
            } else if asked.is_answered() || state.mapped.is_empty() {
                let _ = call.answer(Err(Errno::ENOMEM));
                state.denied.push(number);
            } else {
                state.waiting.push(asked);
            }
        }
    }

    /// The numbers of calls that were denied after they had waited.
    pub(crate) fn take_denied(&self) -> Vec<i64> {
        std::mem::take(&mut self.state().denied)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Asked {
    /// Whether nothing is left to wait for.
    fn is_answered(&self) -> bool {
        self.is_surveyed || self.since.elapsed() > PATIENCE
    }
}

impl State {
    /// The call with which this thread waited.
    fn take_asked(&mut self, thread: Pid) -> Option<Asked> {
        let mut all = self.waiting.iter();
        let place = all.position(|asked| asked.call.waiting().thread() == thread)?;
        Some(self.waiting.swap_remove(place))
    }

    fn used(&self) -> u64 {
        self.sum().saturating_add(self.beside)
    }

    fn sum(&self) -> u64 {
        let mapped = self.mapped.iter().map(|grant| grant.bytes);
        mapped.fold(self.lasting, u64::saturating_add)
    }

    /// Counts what a call of `thread` makes; false where the limit has no room for it.
    fn take(&mut self, made: Made, thread: Pid, limit: Bytes) -> bool {
        let (Made::Mapped(bytes) | Made::Lasting(bytes)) = made else {
            return made == Made::Nothing;
        };
        if self.used().saturating_add(bytes) > limit.0 {
            return false;
        }
        match made {
            Made::Mapped(_) if self.mapped.len() >= MOST_GRANTS => return false,
            Made::Mapped(_) => {
                self.last += 1;
                self.mapped.push(Grant {
                    number: self.last,
                    bytes,
                    thread: Some(thread),
                });
            }
            _ => self.lasting += bytes,
        }
        true
    }

    /// `thread` makes another call, so what it asked for before has been made, or never will be.
    fn has_passed(&mut self, thread: Pid) {
        for grant in &mut self.mapped {
            if grant.thread == Some(thread) {
                grant.thread = None;
            }
        }
    }

    /// Each object that is there was made by a call of its own. So of the calls whose threads are
    /// past them, at most as many objects are left as were found, and at most the largest ones.
    fn forget(&mut self, survey: &Survey) {
        let (mut past, mut kept): (Vec<Grant>, Vec<Grant>) =
            (self.mapped.drain(..)).partition(|grant| survey.past.contains(&grant.number));
        past.sort_by_key(|grant| std::cmp::Reverse(grant.bytes));
        past.truncate(survey.objects);
        kept.append(&mut past);
        self.mapped = kept;
    }
}

impl Made {
    /// By the call's number and what is in its registers, as the kernel reads them.
    fn by(number: i64, argument: impl Fn(usize) -> u64, threads: u64) -> Self {
        let lower = |index| argument(index) as i32;
        // Without IPC_CREAT and with a key, a call makes nothing.
        let opens = |flags: i32| lower(0) != libc::IPC_PRIVATE && flags & libc::IPC_CREAT == 0;
        match number {
            libc::SYS_mmap if lower(3) & libc::MAP_HUGETLB != 0 => Self::Huge,
            libc::SYS_mmap => Self::Mapped(object(argument(1))),
            libc::SYS_shmget if opens(lower(2)) => Self::Nothing,
            libc::SYS_shmget if lower(2) & libc::SHM_HUGETLB != 0 => Self::Huge,
            libc::SYS_shmget => Self::Lasting(object(argument(1))),
            libc::SYS_semget if opens(lower(2)) => Self::Nothing,
            libc::SYS_semget => {
                let count = u64::try_from(lower(1)).unwrap_or(0);
                let undo = threads.saturating_mul(UNDO + 2 * count);
                Self::Lasting((PAGE + count * SEMAPHORE).saturating_add(undo))
            }
            libc::SYS_msgget if opens(lower(1)) => Self::Nothing,
            libc::SYS_msgget => Self::Lasting(QUEUE),
            // No policy has others counted.
            _ => Self::Huge,
        }
    }
}

/// What an object of this length takes: its pages, and less than one for itself.
fn object(length: u64) -> u64 {
    let pages = length.checked_next_multiple_of(unit());
    pages.map_or(u64::MAX, |pages| pages.saturating_add(PAGE))
}

/// The pages that shared memory may consist of. Where the host has huge ones for it, the kernel
/// takes one for the smallest object.
fn unit() -> u64 {
    const SETTING: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
    const HUGE: u64 = 2 << 20;
    static UNIT: OnceLock<u64> = OnceLock::new();
    *UNIT.get_or_init(|| {
        let setting = std::fs::read_to_string(SETTING).unwrap_or_default();
        let is_huge = ["[always]", "[advise]", "[force]"]
            .iter()
            .any(|huge| setting.contains(huge));
        if is_huge { HUGE } else { PAGE }
    })
}

#[cfg(test)]
mod tests;
