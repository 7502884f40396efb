//! What is left to read when all processes of a cell are dead.

use std::time::{Duration, Instant};

use super::super::capture::Capture;
use super::super::turn::Turn;
use super::super::{Observed, Stream};
use super::Watcher;
use super::channel::{ChannelState, read_channel};
use record::error::{Result, SetupError, Step};

/// What is left in pipes when nobody writes any more is read for no longer.
const DRAIN_DEADLINE: Duration = Duration::from_millis(100);
/// Bytes of output from which on the supervisor's own memory counts.
const HEAVY: u64 = 256 << 10;

impl Watcher<'_> {
    /// Takes what is left in pipes whose writers are all dead.
    pub(in crate::supervise) fn finish(mut self) -> Result<Observed> {
        self.listener = None;
        for stream in Stream::ALL {
            let until = Instant::now() + DRAIN_DEADLINE;
            while self.output_open[stream as usize]
                && self.read_output(stream)
                && Instant::now() < until
            {}
        }
        // A program that ends right after a flood leaves it in the pipes.
        if self.seen.stopped.is_none() && self.seen.failure.is_none() {
            self.seen.stopped = self.too_much_output();
        }
        self.drain_frames();
        let kept = self.seen.output.iter().flatten().map(Capture::total);
        if kept.sum::<u64>() > HEAVY {
            // What watched makes room for what writes the record.
            sys::text::let_go();
        }
        if let Some(observer) = self.observer {
            // A stream whose writer could not be killed has not ended.
            for stream in Stream::ALL {
                observer.ended(stream);
            }
            observer.pass_on();
        }
        self.seen.disks.look(&self.seen.scratch);
        if self.seen.ended_ns == 0 {
            self.seen.ended_ns = sys::process::monotonic_ns();
        }
        if self.seen.failure.is_none() && self.seen.began_ns == 0 && self.seen.stopped.is_none() {
            self.seen.failure = Some(self.silent_death());
        }
        Ok(self.seen)
    }

    /// A pipe holds a megabyte at most, unless somebody still writes to it.
    fn drain_frames(&mut self) {
        let (Some(end), Some(channel)) = (&self.cell.channel, &mut self.channel) else {
            return;
        };
        let until = Instant::now() + DRAIN_DEADLINE;
        while self.channel_open && Instant::now() < until {
            let mut drained = true;
            let more = || {
                drained = false;
                true
            };
            let mut turn = Turn::begin();
            match read_channel(&end.from, &mut **channel, &mut turn, more) {
                ChannelState::Closed => self.channel_open = false,
                ChannelState::Broken => {
                    self.seen.channel_broken = true;
                    return;
                }
                ChannelState::Open if drained => return,
                ChannelState::Open => {}
            }
        }
    }

    /// Init died without a word: the shared page knows during which step.
    fn silent_death(&self) -> SetupError {
        let step = self.cell.progress.step().unwrap_or(Step::Clone);
        SetupError::new(step, "the cell's init was killed")
            .hint("too little memory for the files that go in, or someone killed it")
    }
}
