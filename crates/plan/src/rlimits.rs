//! Limits set by setrlimit(2) in every cell.

use nix::sys::resource::Resource;
use serde::{Serialize, Serializer};

use spec::limits::{OPEN_FILES, OPEN_FILES_COUNTED};
use spec::quantity::AutoBound;
use spec::{Bytes, Limits, UserLimits};

/// One resource limit (setrlimit(2)), in the resource's own unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Rlimit {
    /// Which.
    #[serde(serialize_with = "by_name")]
    pub resource: Resource,
    /// What holds.
    pub soft: u64,
    /// How far the program may raise it.
    pub hard: u64,
}

impl Rlimit {
    /// A limit that the program cannot raise.
    pub(crate) const fn fixed(resource: Resource, value: u64) -> Self {
        Self {
            resource,
            soft: value,
            hard: value,
        }
    }

    /// What a process gets whose own hard limit is `hard`: no process in a cell may
    /// raise it.
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

fn by_name<S: Serializer>(resource: &Resource, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{resource:?}"))
}

/// With 0, the kernel still runs the host's core handler where `core_pattern`
/// names one; 1 alone means none at all (core(5)).
const CORE: u64 = 1;
/// The usual default, whatever the caller's is.
const STACK: u64 = Bytes::MIB * 8;

/// The limits of every process in the cell.
pub(super) fn plan(limits: &Limits, share: &UserLimits) -> Vec<Rlimit> {
    let asked = [
        // One second above: the supervisor's own count, which covers all
        // processes, is meant to bind first.
        limits
            .cpu_time
            .map(|t| (Resource::RLIMIT_CPU, t.as_secs() + 2)),
        limits
            .file_size
            .map(|size| (Resource::RLIMIT_FSIZE, size.0)),
        match limits.open_files {
            AutoBound::Auto => Some(OPEN_FILES),
            AutoBound::Given(count) => count,
        }
        .map(|count| (Resource::RLIMIT_NOFILE, count)),
        match limits.data {
            AutoBound::Auto => None,
            AutoBound::Given(size) => size.map(|size| (Resource::RLIMIT_DATA, size.0)),
        },
        limits
            .address_space
            .map(|size| (Resource::RLIMIT_AS, size.0)),
    ];
    let fixed = [
        (Resource::RLIMIT_CORE, CORE),
        (Resource::RLIMIT_MEMLOCK, share.locked_memory),
        (Resource::RLIMIT_MSGQUEUE, share.message_queues),
        (Resource::RLIMIT_NICE, 0),
        (Resource::RLIMIT_RTPRIO, 0),
        (Resource::RLIMIT_SIGPENDING, share.pending_signals),
    ];
    let all = fixed.into_iter().chain(asked.into_iter().flatten());
    all.map(|(resource, value)| Rlimit::fixed(resource, value))
        .chain([stack(limits)])
        .collect()
}

/// Those that are higher where a cgroup holds the memory: it counts what these bound otherwise.
pub(super) fn counted(limits: &Limits) -> Vec<Rlimit> {
    let Some(memory) = limits.memory else {
        return Vec::new();
    };
    let files = (limits.open_files == AutoBound::Auto)
        .then_some((Resource::RLIMIT_NOFILE, OPEN_FILES_COUNTED));
    [(Resource::RLIMIT_MEMLOCK, memory.0)]
        .into_iter()
        .chain(files)
        .map(|(resource, value)| Rlimit::fixed(resource, value))
        .collect()
}

/// Unless the caller bounds it, programs that recurse deeply raise theirs: up to what
/// memory there is.
fn stack(limits: &Limits) -> Rlimit {
    if let Some(size) = limits.stack {
        return Rlimit::fixed(Resource::RLIMIT_STACK, size.0);
    }
    let memory = limits.memory.map_or(libc::RLIM_INFINITY, |memory| memory.0);
    Rlimit {
        resource: Resource::RLIMIT_STACK,
        soft: STACK,
        hard: memory.max(STACK),
    }
}
