//! What processes have used.

use std::ops::Add;
use std::time::Duration;

/// CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// In user mode.
    pub user: Duration,
    /// In the kernel.
    pub system: Duration,
}

impl CpuTime {
    /// Both.
    pub fn total(self) -> Duration {
        self.user + self.system
    }

    /// What is left of each without `other`'s.
    pub fn saturating_sub(self, other: Self) -> Self {
        Self {
            user: self.user.saturating_sub(other.user),
            system: self.system.saturating_sub(other.system),
        }
    }
}

impl Add for CpuTime {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            user: self.user + other.user,
            system: self.system + other.system,
        }
    }
}

/// What init knows of the processes that it has waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessCount {
    /// Processes that were there when the program ended or was ended, itself
    /// included.
    pub at_end: u32,
    /// Processes and threads that were ever started.
    pub started: Option<u32>,
}

/// CPU time and memory of waited-for children (getrusage(2)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChildUsage {
    /// Time in user mode.
    pub user: Duration,
    /// Time in the kernel.
    pub system: Duration,
    /// The largest resident set of any one of them, in bytes.
    pub max_rss: u64,
    /// How many there were.
    pub count: ProcessCount,
}

/// What all children waited for so far, and theirs, have used.
pub fn children_usage() -> ChildUsage {
    // SAFETY: rusage is plain data for which all zeroes is valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is valid for writing; RUSAGE_CHILDREN cannot fail.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    let duration = |t: libc::timeval| {
        Duration::from_secs(t.tv_sec as u64) + Duration::from_micros(t.tv_usec as u64)
    };
    ChildUsage {
        user: duration(usage.ru_utime),
        system: duration(usage.ru_stime),
        max_rss: usage.ru_maxrss as u64 * 1024,
        count: ProcessCount::default(),
    }
}
