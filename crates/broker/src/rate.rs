//! Bounds on how often something happens.

use std::time::Instant;

/// A limit on how often something happens in a second; a burst may have twice as many.
pub(crate) struct Rate {
    per_second: f64,
    tokens: f64,
    filled: Instant,
}

impl Rate {
    pub(crate) fn new(per_second: u32) -> Self {
        let per_second = f64::from(per_second);
        Self {
            per_second,
            tokens: 2.0 * per_second,
            filled: Instant::now(),
        }
    }

    /// Whether it may happen now; if so, it is counted.
    pub(crate) fn take(&mut self) -> bool {
        let now = Instant::now();
        let new = now.duration_since(self.filled).as_secs_f64() * self.per_second;
        self.filled = now;
        self.tokens = (self.tokens + new).min(2.0 * self.per_second);
        let allowed = self.tokens >= 1.0;
        if allowed {
            self.tokens -= 1.0;
        }
        allowed
    }
}
