//! System calls that the filter reports: denied, or answered with the cell's own values.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::time::{ClockId, clock_gettime};

use super::shared_memory::{Given, SharedMemory};
use super::turn::Turn;
use spec::Bytes;
use sys::seccomp::Waiting;

/// How many different numbers are counted. A program can call any number, and each
/// takes memory and a line of the record.
pub(super) const NUMBERS: usize = 512;

/// Answers reported system calls, and counts what is denied by number. A clone shares the
/// answers.
#[derive(Clone, Debug, Default)]
pub struct Denials {
    answers: Arc<Answers>,
    /// How often each system call was denied to the code.
    pub counts: BTreeMap<i64, u64>,
    /// How often each was denied to the interpreter, before it began with the code.
    pub interpreters: BTreeMap<i64, u64>,
    /// How many calls were denied whose numbers are not among them.
    pub uncounted: u64,
}

#[derive(Debug, Default)]
struct Answers {
    errnos: BTreeMap<i64, Errno>,
    probes: BTreeSet<i64>,
    system: Option<System>,
    counted: Option<Counted>,
}

/// Calls that happen as far as the limit on memory has room for what they make.
#[derive(Debug)]
pub struct Counted {
    /// Their numbers.
    pub numbers: BTreeSet<i64>,
    /// Counts what they make; `None` where that needs not be counted.
    pub memory: Option<SharedMemory>,
}

/// What sysinfo(2) reports.
#[derive(Clone, Copy, Debug)]
pub struct System {
    /// The number of the call.
    pub number: i64,
    /// The cell's memory.
    pub memory: Bytes,
}

impl Denials {
    /// Answers each of these system calls with its own error number, and every
    /// other with EPERM.
    ///
    /// `probes` are counted apart until the interpreter begins with the code: it tries
    /// them at every start, and does without them. The report that the code has begun
    /// comes from the cell. The shim sends it before it hands over to the code, so code
    /// can neither delay nor undo it; an interpreter that never sends it never ran the
    /// code. A call that is hidden this way is one of this list, and is denied all the
    /// same.
    ///
    /// With a `system`, its call succeeds. It is denied where the caller's memory cannot be
    /// written to. What is `counted` is denied where there is no room.
    pub fn answering(
        errnos: impl IntoIterator<Item = (i64, Errno)>,
        probes: impl IntoIterator<Item = i64>,
        system: Option<System>,
        counted: Option<Counted>,
    ) -> Self {
        Self {
            answers: Arc::new(Answers {
                errnos: errnos.into_iter().collect(),
                probes: probes.into_iter().collect(),
                system,
                counted,
            }),
            ..Self::default()
        }
    }

    /// What counts shared memory, where it is counted.
    pub(crate) fn shared_memory(&self) -> Option<&SharedMemory> {
        self.answers.counted.as_ref()?.memory.as_ref()
    }

    /// Counts the calls that were denied after they had waited, as [`Self::answer`] does.
    pub(crate) fn count_late(&mut self, has_begun: bool, mut first: impl FnMut(i64)) {
        let late = self.shared_memory().map(SharedMemory::take_denied);
        for number in late.unwrap_or_default() {
            if self.count(number, has_begun) {
                first(number);
            }
        }
    }

    /// Answers the waiting calls, within a turn; false when no more can come. Calls
    /// `first` with the number of a call that is denied to the code for the first
    /// time. `has_begun` is whether the interpreter has begun with the code.
    pub(crate) fn answer(
        &mut self,
        listener: BorrowedFd<'_>,
        has_begun: bool,
        turn: &mut Turn,
        mut first: impl FnMut(i64),
    ) -> bool {
        loop {
            // NOTIF_RECV waits where no call does, so poll(2) comes before each. A
            // process that dies in between does not make it wait: its request still
            // counts, and the answer is ENOENT.
            let mut ready = [PollFd::new(listener, PollFlags::POLLIN)];
            let waiting = poll(&mut ready, PollTimeout::ZERO).is_ok_and(|count| count > 0);
            let events = ready[0].revents().unwrap_or(PollFlags::empty());
            if !waiting || !events.contains(PollFlags::POLLIN) {
                return !events.intersects(PollFlags::POLLHUP | PollFlags::POLLERR);
            }
            match Waiting::next(listener).and_then(|call| self.answers.give(call)) {
                Ok(None) => {}
                Ok(Some(number)) => {
                    if self.count(number, has_begun) {
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

    /// Returns whether it is the code's first call of its number.
    fn count(&mut self, number: i64, has_begun: bool) -> bool {
        let is_interpreters = !has_begun && self.answers.probes.contains(&number);
        if is_interpreters {
            *self.interpreters.entry(number).or_default() += 1;
            return false;
        }
        if self.counts.len() >= NUMBERS && !self.counts.contains_key(&number) {
            self.uncounted += 1;
            return false;
        }
        let count = self.counts.entry(number).or_default();
        *count += 1;
        *count == 1
    }
}

impl Answers {
    /// Answers a call; returns its number when it is denied.
    fn give(&self, call: Waiting<'_>) -> Result<Option<i64>, Errno> {
        let number = call.number();
        let system = self.system.filter(|system| system.number == number);
        if let Some(system) = system {
            let filled = call.write(0, &system.info());
            // EFAULT is the kernel's own answer to an address that is wrong. After ENOENT the
            // caller is gone, and no call was denied.
            if matches!(filled, Ok(()) | Err(Errno::EFAULT | Errno::ENOENT)) {
                return call.answer(filled).map(|()| None);
            }
        }
        let counted = self.counted.as_ref();
        if let Some(counted) = counted.filter(|counted| counted.numbers.contains(&number)) {
            return match &counted.memory {
                Some(memory) => memory
                    .answer(call)
                    .map(|given| (given == Given::Denied).then_some(number)),
                None => call.go_on().map(|()| None),
            };
        }
        let errno = self.errnos.get(&number).copied().unwrap_or(Errno::EPERM);
        call.answer(Err(errno)).map(|()| Some(number))
    }
}

impl System {
    /// Free memory, load and processes are as in the cell's `/proc`.
    fn info(self) -> Vec<u8> {
        let uptime = clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from);
        sys::sysinfo::of_machine(self.memory.0, uptime).to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_the_interpreters_until_the_code_begins() {
        let mut denials = Denials::answering([], [425], None, None);
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
        assert_eq!(denials.counts, BTreeMap::from([(101, 1), (425, 2)]));
        assert_eq!(denials.interpreters, BTreeMap::from([(425, 2)]));
    }
}
