//! Limits set by setrlimit(2) in every cell.

use nix::sys::resource::Resource;
use serde::Serialize;

use crate::spec::{Bytes, Limits};

/// One resource limit (setrlimit(2)), in the resource's own unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Rlimit {
    /// Which.
    pub resource: RlimitKind,
    /// What holds.
    pub soft: u64,
    /// How far the program may raise it.
    pub hard: u64,
}

impl Rlimit {
    /// A limit that the program cannot raise.
    pub const fn fixed(resource: RlimitKind, value: u64) -> Self {
        Self {
            resource,
            soft: value,
            hard: value,
        }
    }

    /// What a process gets whose own hard limit is `hard`: nobody in a cell may
    /// raise one.
    #[must_use]
    pub fn within(self, hard: u64) -> Self {
        let hard = self.hard.min(hard);
        Self {
            soft: self.soft.min(hard),
            hard,
            ..self
        }
    }
}

/// The resources that cellblock limits (getrlimit(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RlimitKind {
    /// Bytes of a core file.
    Core,
    /// Seconds of CPU time of one process.
    Cpu,
    /// Bytes of private writable memory of one process.
    Data,
    /// Bytes of one file.
    Fsize,
    /// Bytes of memory that one process locks.
    Memlock,
    /// Bytes in POSIX message queues of the user namespace.
    Msgqueue,
    /// 20 minus the lowest nice value.
    Nice,
    /// Descriptors of one process.
    Nofile,
    /// Processes and threads in the user namespace.
    Nproc,
    /// The highest real-time priority.
    Rtprio,
    /// Queued signals of the user namespace.
    Sigpending,
    /// Bytes of a process's main stack.
    Stack,
}

impl RlimitKind {
    /// Its number, as setrlimit(2) takes it.
    pub const fn number(self) -> Resource {
        match self {
            Self::Core => Resource::RLIMIT_CORE,
            Self::Cpu => Resource::RLIMIT_CPU,
            Self::Data => Resource::RLIMIT_DATA,
            Self::Fsize => Resource::RLIMIT_FSIZE,
            Self::Memlock => Resource::RLIMIT_MEMLOCK,
            Self::Msgqueue => Resource::RLIMIT_MSGQUEUE,
            Self::Nice => Resource::RLIMIT_NICE,
            Self::Nofile => Resource::RLIMIT_NOFILE,
            Self::Nproc => Resource::RLIMIT_NPROC,
            Self::Rtprio => Resource::RLIMIT_RTPRIO,
            Self::Sigpending => Resource::RLIMIT_SIGPENDING,
            Self::Stack => Resource::RLIMIT_STACK,
        }
    }
}

/// With 0, the kernel still runs the host's core handler where `core_pattern`
/// names one; 1 alone means none at all (core(5)).
const CORE: u64 = 1;
/// Queued real-time signals and POSIX timers. The kernel counts them against the
/// caller as well, whose own limit is several thousand.
const SIGPENDING: u64 = 256;
/// One queue of the default size. Counted against the caller as well, who has
/// room for about ten by default.
const MSGQUEUE: u64 = 128 << 10;
/// What libraries lock for keys; it was the kernel's default for long.
const MEMLOCK: u64 = 64 << 10;
/// The usual default, whatever the caller's is.
const STACK: u64 = Bytes::MIB * 8;

/// The limits of every process in the cell.
pub(super) fn plan(limits: &Limits) -> Vec<Rlimit> {
    use RlimitKind as Kind;
    let asked = [
        // One second above: the supervisor's own count, which covers all
        // processes, is meant to bind first.
        limits.cpu_time.map(|t| (Kind::Cpu, t.as_secs() + 2)),
        limits.file_size.map(|size| (Kind::Fsize, size.0)),
        limits.open_files.map(|count| (Kind::Nofile, count)),
    ];
    let fixed = [
        (Kind::Core, CORE),
        (Kind::Memlock, MEMLOCK),
        (Kind::Msgqueue, MSGQUEUE),
        (Kind::Nice, 0),
        (Kind::Rtprio, 0),
        (Kind::Sigpending, SIGPENDING),
    ];
    let all = fixed.into_iter().chain(asked.into_iter().flatten());
    all.map(|(resource, value)| Rlimit::fixed(resource, value))
        .chain([stack(limits)])
        .collect()
}

/// Programs that recurse deeply raise theirs: up to what memory there is.
fn stack(limits: &Limits) -> Rlimit {
    let memory = limits.memory.map_or(libc::RLIM_INFINITY, |memory| memory.0);
    Rlimit {
        resource: RlimitKind::Stack,
        soft: STACK,
        hard: memory.max(STACK),
    }
}
