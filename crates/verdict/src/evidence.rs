//! The evidence on which a verdict rests.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::Counts;
use languages::Driver;
use record::error::SetupError;
use record::{Category, CodeError, Denied, RefusedHost};
use spec::{Bytes, Limits};

/// Everything known about how a cell ended.
#[derive(Clone, Debug)]
pub struct Evidence<'a> {
    /// How the program ended.
    pub end: End,
    /// What cellblock ended the cell for, if it did.
    pub stopped: Option<Stop>,
    /// What was measured of the limits.
    pub measured: Measured,
    /// What the interpreter, or a tool, wrote that it lacked, and in which words.
    /// The code can write the same.
    pub last_words: Option<(Category, &'static str)>,
    /// The end of what the program wrote to stderr.
    pub stderr: String,
    /// What the policy denied to the code.
    pub denied: &'a [Denied],
    /// Names and hosts that the broker refused.
    pub refused: &'a [RefusedHost],
    /// What the kernel refused in the cell's network, where hosts are allowed.
    pub counts: Counts,
    /// The exception that the driver reported.
    pub error: Option<&'a CodeError>,
    /// Whether the driver found that the code does not parse.
    pub broken_syntax: bool,
    /// The limits that were asked for.
    pub limits: &'a Limits,
    /// The limits of each process, where they were cellblock's to choose.
    pub held: Held,
    /// Where the code ran.
    pub place: Place<'a>,
}

/// What each process of a cell may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Bytes of private writable mappings (`RLIMIT_DATA`).
    pub data: Option<Bytes>,
    /// Bytes of address space (`RLIMIT_AS`).
    pub address_space: Option<Bytes>,
    /// Open descriptors (`RLIMIT_NOFILE`).
    pub open_files: Option<u64>,
    /// Whether a cgroup holds the memory.
    pub memory_by_cgroup: bool,
}

/// Where the code ran.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place<'a> {
    /// The language's driver; `None` for a program.
    pub driver: Option<&'a Driver>,
    /// The rootfs, as in the record.
    pub rootfs: &'a str,
    /// What its network reaches.
    pub reach: Reach,
    /// Whether its uid inside is 0.
    pub is_root: bool,
}

/// What the network of a cell reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// Loopback only.
    #[default]
    Nothing,
    /// Hosts that were allowed.
    Hosts,
    /// What the host reaches.
    All,
}

/// How the program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It never began.
    NotStarted(SetupError),
    /// It ended by itself with this status.
    Exited(u8),
    /// This signal ended it.
    Signaled(i32),
}

/// What cellblock ended a cell for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It ran longer than this.
    WallTimeout(Duration),
    /// It used more CPU time than this.
    CpuTimeout(Duration),
    /// It wrote more than it may.
    OutputLimit {
        /// `stdout` or `stderr`.
        stream: &'static str,
        /// How much it may write.
        cap: Bytes,
    },
    /// The caller sent cellblock this signal, or had it sent to the program.
    Cancelled(i32),
    /// The process that started cellblock ended, and was to take the cell along.
    ParentEnded,
    /// It used more memory than it may, as seen by polling.
    MemoryWatchdog,
    /// It made further reports of its driver impossible.
    ChannelBroken,
    /// cellblock failed in this way.
    Internal(String),
}

impl Stop {
    /// The signal that warns a program with a time of grace of its end;
    /// `None` where it would only make matters worse, or where nothing is left to
    /// wait for.
    pub fn warning(&self) -> Option<Signal> {
        match self {
            Self::Cancelled(signal) => Signal::try_from(*signal).ok(),
            Self::WallTimeout(_)
            | Self::CpuTimeout(_)
            | Self::OutputLimit { .. }
            | Self::ParentEnded => Some(Signal::SIGTERM),
            Self::MemoryWatchdog | Self::ChannelBroken | Self::Internal(_) => None,
        }
    }

    /// Whether a cell can go on when the execution has stopped.
    pub const fn is_of_one_execution(&self) -> bool {
        const SIGINT: i32 = Signal::SIGINT as i32;
        matches!(
            self,
            Self::WallTimeout(_) | Self::OutputLimit { .. } | Self::Cancelled(SIGINT)
        )
    }
}

/// A tmpfs of the cell that was full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FullTmpfs {
    /// Where the cell sees it, such as `/workspace`.
    pub name: String,
    /// What it had none left of.
    pub exhausted: Exhausted,
    /// Whether that was so when all was over, and not only before.
    pub at_end: bool,
}

/// Files in a tmpfs, which are memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilesIn {
    /// Where the cell sees it, such as `/workspace`.
    pub name: String,
    /// Bytes of content at the last reading.
    pub used: Bytes,
    /// The most at any reading.
    pub most: Bytes,
    /// How many it can hold.
    pub size: Bytes,
}

impl FilesIn {
    /// Whether it held seven eighths of what it can: a larger write than it has room for is refused
    /// before it is full.
    pub fn was_nearly_full(&self) -> bool {
        self.size.0 > 0 && self.most.0 >= self.size.0 / 8 * 7
    }
}

/// What a tmpfs has none left of, and how much it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exhausted {
    /// Room for content.
    Space(Bytes),
    /// Room for files and directories.
    Inodes(u64),
}

/// The limits that a run hit, as measured; `None` where nothing measures it. The outcome
/// and every `hit` rest on this; the code's own reports are only quoted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// CPU time against its limit.
    pub cpu_time: Option<bool>,
    /// The CPU time used.
    pub cpu_used: Option<Duration>,
    /// Memory: the kernel killed a process for it, or the watchdog measured more.
    pub memory: Option<bool>,
    /// Whether the next allocation would be refused: by RLIMIT_DATA, or by an
    /// interpreter that limits its own heap.
    pub memory_short: bool,
    /// The most memory in use, as measured.
    pub memory_peak: Option<Bytes>,
    /// Processes and threads.
    pub processes: Option<bool>,
    /// Whether the kernel counted a refused one.
    pub forks_refused: bool,
    /// A file as large as the limit allows.
    pub file_size: Option<bool>,
    /// The tmpfs that were out of space or inodes at a reading.
    pub disks: Vec<FullTmpfs>,
    /// What each of the cell's own tmpfs held.
    pub files: Vec<FilesIn>,
}

impl Measured {
    /// The tmpfs that were full at the end.
    pub fn full_at_end(&self) -> Vec<&FullTmpfs> {
        self.disks.iter().filter(|disk| disk.at_end).collect()
    }
}
