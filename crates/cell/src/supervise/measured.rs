//! What the supervisor measured of the limits. On this rest the outcome and every
//! `hit`; what the code says of itself is only quoted.

use std::time::Duration;

use super::verdict::FullTmpfs;
use crate::spec::Bytes;

/// Which limits a run came up against: `Some(true)` where a figure shows it,
/// `Some(false)` where one shows that it did not, `None` where nothing tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Measured {
    /// CPU time against its limit.
    pub cpu_time: Option<bool>,
    /// How much CPU time that was.
    pub cpu_used: Option<Duration>,
    /// Memory: the kernel killed for it, or the watchdog saw more than there may be.
    pub memory: Option<bool>,
    /// Whether so much was in use that the next allocation is refused: by
    /// RLIMIT_DATA, or by an interpreter that keeps within a heap of its own.
    pub memory_short: bool,
    /// The most memory that was seen in use.
    pub memory_peak: Option<Bytes>,
    /// Processes and threads.
    pub processes: Option<bool>,
    /// Whether the kernel counted that one was refused.
    pub forks_refused: bool,
    /// A file that ends where the limit on its size is.
    pub file_size: Option<bool>,
    /// The tmpfs that were seen without space or inodes.
    pub disks: Vec<FullTmpfs>,
}

impl Measured {
    /// The tmpfs that were full when all was over.
    pub(crate) fn full_at_end(&self) -> Vec<&FullTmpfs> {
        self.disks.iter().filter(|disk| disk.at_end).collect()
    }
}
