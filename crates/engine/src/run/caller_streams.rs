//! Standard streams that the program shares with the caller.
//!
//! Whether a pipe blocks is a setting of both: code that switches it, as Node does, would leave the
//! caller's shell with reads that fail.

use nix::fcntl::{FcntlArg, OFlag, fcntl};

use plan::Plan;
use spec::{Stdin, Stdio};
use sys::process::standard_streams;

/// Which of the caller's streams block; `None` for one that the program does not get.
pub(super) struct CallerStreams([Option<OFlag>; 3]);

impl CallerStreams {
    pub(super) fn of(plan: &Plan) -> Self {
        let shares_output = plan.watch.stdio == Stdio::Inherit;
        let shares_input = shares_output || plan.watch.stdio == Stdio::Capture;
        let input = shares_input && matches!(plan.program.stdin, Stdin::Inherit);
        let shared = [input, shares_output, shares_output];
        let mut streams = standard_streams().into_iter().zip(shared);
        Self(std::array::from_fn(|_| {
            let (stream, is_shared) = streams.next()?;
            is_shared.then(|| flags(stream)).flatten()
        }))
    }

    /// Lets those block again that did, and those not that did not.
    pub(super) fn restore(&self) {
        for (stream, before) in standard_streams().into_iter().zip(self.0) {
            let Some((before, now)) = before.zip(flags(stream)) else {
                continue;
            };
            if (before ^ now).contains(OFlag::O_NONBLOCK) {
                let _ = fcntl(stream, FcntlArg::F_SETFL(now ^ OFlag::O_NONBLOCK));
            }
        }
    }
}

fn flags(stream: std::os::fd::BorrowedFd<'_>) -> Option<OFlag> {
    fcntl(stream, FcntlArg::F_GETFL)
        .ok()
        .map(OFlag::from_bits_retain)
}
