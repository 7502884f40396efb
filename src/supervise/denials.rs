//! System calls that the filter denied.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

use super::turn::Turn;
use crate::sys::seccomp;

/// Different numbers that are counted. A program can call any number, and each one
/// counted takes memory and a line of the record.
const NUMBERS: usize = 512;

/// Counts denied system calls by number.
#[derive(Debug, Default)]
pub struct Denials {
    errnos: BTreeMap<i64, Errno>,
    counts: BTreeMap<i64, u64>,
    uncounted: u64,
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

    /// How many calls were denied whose numbers are not among them.
    pub const fn uncounted(&self) -> u64 {
        self.uncounted
    }

    /// Answers what is waiting, within a turn; false when there will be nothing
    /// more. Tells `first` the number of a call that is denied for the first time.
    pub fn answer(
        &mut self,
        listener: BorrowedFd<'_>,
        turn: &mut Turn,
        mut first: impl FnMut(i64),
    ) -> bool {
        loop {
            // The kernel has no answer for NOTIF_RECV other than to wait, so poll(2)
            // is asked before each. A caller that dies in between does not make it
            // wait: its request still counts, and the answer is ENOENT.
            let mut ready = [PollFd::new(listener, PollFlags::POLLIN)];
            let waiting = poll(&mut ready, PollTimeout::ZERO).is_ok_and(|count| count > 0);
            let events = ready[0].revents().unwrap_or(PollFlags::empty());
            if !waiting || !events.contains(PollFlags::POLLIN) {
                return !events.intersects(PollFlags::POLLHUP | PollFlags::POLLERR);
            }
            let errno_of = |number| self.errnos.get(&number).copied().unwrap_or(Errno::EPERM);
            match seccomp::deny_next(listener, errno_of) {
                Ok(number) => {
                    if self.count(number) {
                        first(number);
                    }
                }
                Err(Errno::ENOENT | Errno::EINTR | Errno::EAGAIN) => {}
                Err(_) => return false,
            }
            if !turn.goes_on(0) {
                return true;
            }
        }
    }

    /// Says whether it is the first of this number.
    fn count(&mut self, number: i64) -> bool {
        if self.counts.len() >= NUMBERS && !self.counts.contains_key(&number) {
            self.uncounted += 1;
            return false;
        }
        let count = self.counts.entry(number).or_default();
        *count += 1;
        *count == 1
    }
}
