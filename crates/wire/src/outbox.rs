//! What waits to be written.

use std::collections::VecDeque;
use std::time::Instant;

use nix::errno::Errno;

/// The most that is written before others get their turn.
const TURN: usize = 256 << 10;
/// Buffers larger than this are given back when they are empty.
const USUAL: usize = 256 << 10;

/// Bytes that the reader has had no room for.
#[derive(Debug)]
pub struct Outbox {
    bytes: VecDeque<u8>,
    /// Since when the reader has taken nothing.
    pub since: Instant,
}

impl Outbox {
    /// Nothing to write yet.
    pub fn new(now: Instant) -> Self {
        Self {
            bytes: VecDeque::new(),
            since: now,
        }
    }

    /// The bytes that wait.
    #[expect(clippy::len_without_is_empty, reason = "no caller needs it")]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Adds a line.
    pub fn push_line(&mut self, line: &str, now: Instant) {
        if self.bytes.is_empty() {
            self.since = now;
        }
        self.bytes.extend(line.as_bytes());
        self.bytes.push_back(b'\n');
    }

    /// Writes as much as the reader has room for, for a turn.
    ///
    /// # Errors
    /// Why nothing can be written any more.
    pub fn flush(
        &mut self,
        now: Instant,
        write: impl Fn(&[u8]) -> Result<usize, Errno>,
    ) -> Result<(), Errno> {
        let mut turn = TURN;
        while turn > 0 && !self.bytes.is_empty() {
            let (next, _) = self.bytes.as_slices();
            match write(&next[..next.len().min(turn)]) {
                Ok(count) => {
                    self.bytes.drain(..count);
                    self.since = now;
                    turn -= count;
                }
                Err(Errno::EAGAIN) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        if self.bytes.is_empty() && self.bytes.capacity() > USUAL {
            self.bytes = VecDeque::new();
        }
        Ok(())
    }
}
