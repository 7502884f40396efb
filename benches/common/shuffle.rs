//! The order of a round.

/// A small generator for shuffling (xorshift64).
pub(crate) struct Shuffle(u64);

impl Shuffle {
    /// The same order in each run.
    pub(crate) fn new() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn of(&mut self, order: &mut [usize]) {
        for last in (1..order.len()).rev() {
            order.swap(last, (self.next() % (last as u64 + 1)) as usize);
        }
    }
}
