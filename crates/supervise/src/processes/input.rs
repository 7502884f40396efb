//! The input of a process.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::unistd::write;

/// The most that is written before other things get their turn.
const TURN: usize = 64 << 10;

/// The supervisor's end of a process's input, and what waits for room there.
#[derive(Debug)]
pub(super) struct Input {
    fd: OwnedFd,
    /// Each with the order that brought it, which is answered when it has been written.
    waiting: VecDeque<(u64, Vec<u8>)>,
    /// How much of the first one was written.
    written: usize,
    /// Whether the input ends after what waits.
    closes: bool,
    /// Whether the process has stopped reading.
    is_broken: bool,
}

impl Input {
    pub(super) fn new(fd: OwnedFd) -> Self {
        Self {
            fd,
            waiting: VecDeque::new(),
            written: 0,
            closes: false,
            is_broken: false,
        }
    }

    /// Whether more may be added.
    pub(super) fn is_open(&self) -> bool {
        !self.closes && !self.is_broken
    }

    pub(super) fn add(&mut self, order: u64, bytes: Vec<u8>) {
        self.waiting.push_back((order, bytes));
    }

    /// Ends the input, after what waits.
    pub(super) fn close(&mut self) {
        self.closes = true;
    }

    /// The descriptor to poll for writing, if something waits.
    pub(super) fn waits_for(&self) -> Option<BorrowedFd<'_>> {
        (!self.waiting.is_empty()).then(|| self.fd.as_fd())
    }

    /// Whether it must be closed now.
    pub(super) fn is_over(&self) -> bool {
        self.is_broken || (self.closes && self.waiting.is_empty())
    }

    /// Writes what there is room for, for a turn; returns the orders that are done.
    pub(super) fn write(&mut self) -> impl Iterator<Item = u64> + use<> {
        let mut done = Vec::new();
        let mut turn = TURN;
        while let Some((order, bytes)) = self.waiting.front() {
            let rest = &bytes[self.written..];
            if rest.is_empty() {
                done.push(*order);
                self.waiting.pop_front();
                self.written = 0;
                continue;
            }
            if turn == 0 {
                break;
            }
            match write(&self.fd, &rest[..rest.len().min(turn)]) {
                Ok(count) => {
                    self.written += count;
                    turn -= count;
                }
                Err(Errno::EAGAIN) => break,
                Err(Errno::EINTR) => {}
                Err(_) => {
                    self.is_broken = true;
                    break;
                }
            }
        }
        done.into_iter()
    }

    /// The orders that are not done.
    pub(super) fn into_orders(self) -> impl Iterator<Item = u64> {
        self.waiting.into_iter().map(|(order, _)| order)
    }
}

#[cfg(test)]
mod tests {
    use nix::fcntl::OFlag;
    use nix::unistd::{pipe2, read};

    use super::*;

    fn done(input: &mut Input) -> Vec<u64> {
        input.write().collect()
    }

    #[test]
    fn an_order_is_done_when_all_of_it_was_taken() {
        let (from, to) = pipe2(OFlag::O_NONBLOCK | OFlag::O_CLOEXEC).unwrap();
        let mut input = Input::new(to);
        input.add(1, b"one".to_vec());
        input.add(2, Vec::new());
        input.add(3, vec![b'x'; 1 << 20]);
        assert_eq!(done(&mut input), [1, 2]);
        input.close();
        assert!(!input.is_open() && !input.is_over());
        let (mut taken, mut buffer) = (0, vec![0; 64 << 10]);
        while taken < 3 + (1 << 20) {
            taken += read(&from, &mut buffer).unwrap();
            let finished = done(&mut input);
            assert!(finished.is_empty() || finished == [3]);
        }
        assert!(input.is_over());
    }

    #[test]
    fn without_a_reader_it_is_over() {
        let (from, to) = pipe2(OFlag::O_NONBLOCK | OFlag::O_CLOEXEC).unwrap();
        let mut input = Input::new(to);
        drop(from);
        input.add(7, b"x".to_vec());
        assert!(done(&mut input).is_empty());
        assert!(input.is_over());
        assert_eq!(input.into_orders().collect::<Vec<_>>(), [7]);
    }
}
