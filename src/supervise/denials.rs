//! System calls that the filter denied.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::sys::seccomp;

/// Answers given without delay. A program that goes on asking would otherwise
/// keep the supervisor busy, whose CPU time is not the cell's.
const PROMPT: u64 = 1000;
/// Answers per [`PAUSE`] from there on.
const BATCH: u64 = 20;
const PAUSE: Duration = Duration::from_millis(10);

/// Counts denied system calls by number.
#[derive(Debug, Default)]
pub struct Denials {
    errnos: BTreeMap<i64, Errno>,
    counts: BTreeMap<i64, u64>,
    total: u64,
    resume: Option<Instant>,
}

impl Denials {
    /// Answers each of these system calls with its own error number, and every
    /// other with EPERM.
    pub fn answering(errnos: impl IntoIterator<Item = (i64, Errno)>) -> Self {
        Self {
            errnos: errnos.into_iter().collect(),
            ..Self::default()
        }
    }

    /// How often each system call was denied.
    pub fn counts(&self) -> &BTreeMap<i64, u64> {
        &self.counts
    }

    /// Whether the next call may be answered now.
    pub fn may_answer(&self) -> bool {
        self.resume.is_none_or(|resume| resume <= Instant::now())
    }

    /// When it may be, if not now.
    pub fn resumes_at(&self) -> Option<Instant> {
        self.resume.filter(|resume| *resume > Instant::now())
    }

    /// Answers what is waiting; false when there will be nothing more. Tells
    /// `first` the number of a call that is denied for the first time.
    pub fn answer(&mut self, listener: BorrowedFd<'_>, mut first: impl FnMut(i64)) -> bool {
        loop {
            let mut ready = [PollFd::new(listener, PollFlags::POLLIN)];
            let waiting = poll(&mut ready, PollTimeout::ZERO).is_ok_and(|count| count > 0);
            let events = ready[0].revents().unwrap_or(PollFlags::empty());
            if !waiting || !events.contains(PollFlags::POLLIN) {
                return !events.intersects(PollFlags::POLLHUP | PollFlags::POLLERR);
            }
            let errno_of = |number| self.errnos.get(&number).copied().unwrap_or(Errno::EPERM);
            match seccomp::deny_next(listener, errno_of) {
                Ok(number) => {
                    if self.count(number) == 1 {
                        first(number);
                    }
                }
                Err(Errno::ENOENT | Errno::EINTR | Errno::EAGAIN) => {}
                Err(_) => return false,
            }
            if self.resume.is_some() {
                return true;
            }
        }
    }

    fn count(&mut self, number: i64) -> u64 {
        let count = self.counts.entry(number).or_default();
        *count += 1;
        let count = *count;
        self.total += 1;
        let pause = self.total > PROMPT && self.total.is_multiple_of(BATCH);
        self.resume = pause.then(|| Instant::now() + PAUSE);
        count
    }
}
