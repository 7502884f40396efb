//! How much of the supervisor's time the sources in a cell may take.
//!
//! Every source of events (a stream, the driver's frames, processes beside the program,
//! denied calls, the broker's reports) is read within a [`Turn`], so that however much one of
//! them has, the others, signals and limits come next. A source that goes on for ever is
//! slowed down by its [`Pace`]: the time that the supervisor spends is not charged to the
//! cell, so a program that floods pays by waiting.

use std::time::{Duration, Instant};

/// Time of one turn. There are six sources, and the limits must be checked every 20 ms.
const TIME: Duration = Duration::from_millis(2);
/// Bytes of one turn.
const BYTES: usize = 4 << 20;

/// What one source may take before it is the next one's turn.
#[derive(Debug)]
pub struct Turn {
    began: Instant,
    bytes: usize,
}

impl Turn {
    /// A turn that begins now.
    pub fn begin() -> Self {
        Self {
            began: Instant::now(),
            bytes: BYTES,
        }
    }

    /// Charges `bytes` to the turn; returns whether any of it is left.
    pub fn goes_on(&mut self, bytes: usize) -> bool {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.bytes > 0 && self.began.elapsed() < TIME
    }
}

/// What a source may take over all its turns.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Time that is left before it is slowed down.
    prompt: Duration,
    /// From then on, each turn is followed by this many times its length in rest.
    rest: u32,
    resume: Option<Instant>,
}

impl Default for Pace {
    fn default() -> Self {
        Self::of_bytes()
    }
}

impl Pace {
    /// For bytes, some of which a program may have many of in good faith: a quarter
    /// of a CPU at most, after a second.
    pub(crate) fn of_bytes() -> Self {
        Self::new(Duration::from_secs(1), 3)
    }

    /// For calls, which cost the supervisor more than the program: a tenth of a CPU
    /// at most, after a tenth of a second.
    pub(crate) fn of_calls() -> Self {
        Self::new(Duration::from_millis(100), 9)
    }

    fn new(prompt: Duration, rest: u32) -> Self {
        Self {
            prompt,
            rest,
            resume: None,
        }
    }

    /// Until when the source rests, if it does.
    pub(crate) fn resumes_at(&self) -> Option<Instant> {
        self.resume.filter(|resume| *resume > Instant::now())
    }

    /// Takes a turn, and notes what it took.
    pub(crate) fn turn<T>(&mut self, take: impl FnOnce(&mut Turn) -> T) -> T {
        let mut turn = Turn::begin();
        let taken = take(&mut turn);
        // What is beyond is time that other processes had the CPU.
        let took = turn.began.elapsed().min(2 * TIME);
        self.prompt = self.prompt.saturating_sub(took);
        let rests = self.prompt.is_zero();
        self.resume = rests.then(|| Instant::now() + took * self.rest);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_ends_by_its_bytes_and_by_its_time() {
        let mut turn = Turn::begin();
        assert!(!turn.goes_on(BYTES));
        let mut turn = Turn::begin();
        while turn.goes_on(1) {}
        assert!(turn.began.elapsed() >= TIME);
    }

    #[test]
    fn a_source_rests_when_it_has_had_its_time() {
        let mut pace = Pace::new(2 * TIME, 100_000);
        pace.turn(|_| ());
        assert_eq!(pace.resumes_at(), None);
        pace.turn(|_| std::thread::sleep(2 * TIME));
        assert!(pace.resumes_at().is_some());
    }
}
