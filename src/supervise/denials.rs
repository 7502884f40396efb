//! System calls that the filter denied.

use std::collections::{BTreeMap, BTreeSet};
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
    probes: BTreeSet<i64>,
    counts: BTreeMap<i64, u64>,
    interpreters: BTreeMap<i64, u64>,
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

    /// Counts these apart for as long as the interpreter has not begun with the
    /// code: it tries them by itself at every start, and does without.
    ///
    /// The word that the code has begun comes from the cell. The shim sends it
    /// before it hands over to the code, so code can neither delay nor take it
    /// back; an interpreter that never says it never ran the code. What could be
    /// hidden that way is a call of this list, which is denied all the same.
    #[must_use]
    pub fn with_probes(mut self, probes: impl IntoIterator<Item = i64>) -> Self {
        self.probes.extend(probes);
        self
    }

    /// How often each system call was denied to the code.
    pub fn counts(&self) -> &BTreeMap<i64, u64> {
        &self.counts
    }

    /// How often each was denied to the interpreter, before it began with the code.
    pub fn interpreters(&self) -> &BTreeMap<i64, u64> {
        &self.interpreters
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
    /// `first` the number of a call that is denied to the code for the first time.
    /// `has_begun` says whether the interpreter has begun with the code.
    pub fn answer(
        &mut self,
        listener: BorrowedFd<'_>,
        has_begun: bool,
        mut first: impl FnMut(i64),
    ) -> bool {
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
                    if self.count(number, has_begun) {
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

    /// Says whether it is the code's first of its number.
    fn count(&mut self, number: i64, has_begun: bool) -> bool {
        let is_interpreters = !has_begun && self.probes.contains(&number);
        let counts = match is_interpreters {
            true => &mut self.interpreters,
            false => &mut self.counts,
        };
        let count = counts.entry(number).or_default();
        *count += 1;
        let is_first = *count == 1 && !is_interpreters;
        self.total += 1;
        let pause = self.total > PROMPT && self.total.is_multiple_of(BATCH);
        self.resume = pause.then(|| Instant::now() + PAUSE);
        is_first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_the_interpreters_until_the_code_begins() {
        let mut denials = Denials::default().with_probes([425]);
        let calls = [
            (425, false),
            (101, false),
            (425, false),
            (425, true),
            (425, true),
        ];
        let first: Vec<bool> = (calls.into_iter())
            .map(|(number, has_begun)| denials.count(number, has_begun))
            .collect();
        assert_eq!(first, [false, true, false, true, false]);
        assert_eq!(denials.counts(), &BTreeMap::from([(101, 1), (425, 2)]));
        assert_eq!(denials.interpreters(), &BTreeMap::from([(425, 2)]));
    }
}
