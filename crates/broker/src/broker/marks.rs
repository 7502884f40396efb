//! Marks, by which the supervisor learns how far the reports have come.

use crate::report::Mark;

/// The most turns that a mark waits for, so that a busy cell does not delay it further.
const MOST_TURNS: u32 = 64;

/// The marks that were asked for.
#[derive(Default)]
pub(super) struct Marks {
    asked: u64,
    given: u64,
    /// Turns since the first of them was asked for.
    turns: u32,
}

impl Marks {
    pub(super) fn ask(&mut self, count: usize) {
        self.asked += count as u64;
    }

    pub(super) fn is_asked(&self) -> bool {
        self.given < self.asked
    }

    /// Notes that a turn of the loop has ended. `worked` is whether connections had something to do
    /// in it. Returns a mark that is due: everything that came before it has been handled.
    pub(super) fn turn(&mut self, worked: bool) -> Option<Mark> {
        if !self.is_asked() {
            return None;
        }
        self.turns += 1;
        if worked && self.turns < MOST_TURNS {
            return None;
        }
        self.turns = 0;
        self.given = self.asked;
        Some(Mark { number: self.given })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_waits_for_what_came_before_it_but_not_for_ever() {
        let mut marks = Marks::default();
        assert_eq!(marks.turn(false), None);
        marks.ask(1);
        assert_eq!(marks.turn(true), None);
        marks.ask(1);
        assert_eq!(marks.turn(false), Some(Mark { number: 2 }));
        assert!(!marks.is_asked());
        marks.ask(1);
        let turns = (1..).find(|_| marks.turn(true).is_some());
        assert_eq!(turns, Some(MOST_TURNS));
    }
}
