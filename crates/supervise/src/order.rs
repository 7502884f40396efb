//! The order in which output and results were seen.

use super::Stream;
use record::Shown;

/// Steps that are kept apart. Later output counts for the last step of its stream.
const CAP: usize = 2000;

/// What was seen so far.
#[derive(Debug, Default)]
pub(super) struct Order {
    shown: Vec<Shown>,
    /// The last step of each stream since the last clear.
    last: [Option<usize>; 2],
}

impl Order {
    pub(super) fn wrote(&mut self, stream: Stream, count: u64) {
        let last = self.last[stream as usize];
        let joins = |at: &usize| at + 1 == self.shown.len() || self.shown.len() >= CAP;
        let at = last.filter(joins).unwrap_or_else(|| {
            self.shown.push(match stream {
                Stream::Stdout => Shown::Stdout { bytes: 0 },
                Stream::Stderr => Shown::Stderr { bytes: 0 },
            });
            self.shown.len() - 1
        });
        self.last[stream as usize] = Some(at);
        if let Some(Shown::Stdout { bytes } | Shown::Stderr { bytes }) = self.shown.get_mut(at) {
            *bytes += count;
        }
    }

    pub(super) fn result(&mut self, index: usize) {
        let index = index as u64;
        self.shown.push(Shown::Result { index });
    }

    /// Nothing of what was shown so far is to be seen; how much was printed stays known.
    pub(super) fn clear(&mut self) {
        let (mut stdout, mut stderr) = (0, 0);
        for shown in self.shown.drain(..) {
            match shown {
                Shown::Stdout { bytes } => stdout += bytes,
                Shown::Stderr { bytes } => stderr += bytes,
                Shown::Result { .. } | Shown::Clear => {}
            }
        }
        self.last = [None; 2];
        self.shown
            .extend((stdout > 0).then_some(Shown::Stdout { bytes: stdout }));
        self.shown
            .extend((stderr > 0).then_some(Shown::Stderr { bytes: stderr }));
        self.shown.push(Shown::Clear);
    }

    /// The steps; none where no result has a place among them.
    pub(super) fn finish(self) -> Vec<Shown> {
        let is_output =
            |shown: &Shown| matches!(shown, Shown::Stdout { .. } | Shown::Stderr { .. });
        match self.shown.iter().all(is_output) {
            true => Vec::new(),
            false => self.shown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Shown::{Clear, Result, Stderr, Stdout};

    #[test]
    fn output_is_counted_between_results() {
        let mut order = Order::default();
        order.wrote(Stream::Stdout, 3);
        order.wrote(Stream::Stdout, 4);
        order.wrote(Stream::Stderr, 1);
        assert_eq!(order.finish(), []);
        let mut order = Order::default();
        order.wrote(Stream::Stdout, 3);
        order.wrote(Stream::Stdout, 4);
        order.result(0);
        order.wrote(Stream::Stdout, 1);
        order.wrote(Stream::Stderr, 2);
        order.wrote(Stream::Stdout, 1);
        let stdout = |bytes| Stdout { bytes };
        let before = [
            stdout(7),
            Result { index: 0 },
            stdout(1),
            Stderr { bytes: 2 },
            stdout(1),
        ];
        assert_eq!(order.shown, before);
        order.clear();
        order.wrote(Stream::Stdout, 5);
        assert_eq!(
            order.finish(),
            [stdout(9), Stderr { bytes: 2 }, Clear, stdout(5)]
        );
    }

    #[test]
    fn steps_have_a_bound() {
        let mut order = Order::default();
        for _ in 0..2 * CAP {
            order.wrote(Stream::Stdout, 1);
            order.wrote(Stream::Stderr, 1);
        }
        order.result(0);
        let steps = order.finish();
        assert_eq!(steps.len(), CAP + 1);
        // Half of the first steps are of stdout; all its later output is in the last one.
        let bytes = (2 * CAP - CAP / 2 + 1) as u64;
        assert_eq!(steps[CAP - 2], Stdout { bytes });
    }
}
