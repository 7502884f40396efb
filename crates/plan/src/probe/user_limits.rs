//! What the kernel allows this user (`/proc/sys/user`, getrlimit(2)).

use nix::sys::resource::{Resource, getrlimit};

use spec::UserLimits;

/// The limits of this process's user.
pub fn user_limits() -> UserLimits {
    UserLimits {
        inotify_instances: inotify("max_user_instances", "max_inotify_instances"),
        inotify_watches: inotify("max_user_watches", "max_inotify_watches"),
        pending_signals: soft(Resource::RLIMIT_SIGPENDING),
        message_queues: soft(Resource::RLIMIT_MSGQUEUE),
        locked_memory: soft(Resource::RLIMIT_MEMLOCK),
    }
}

/// The first is that of the initial user namespace, the second that of ours. The kernel has both
/// apply. A kernel without inotify has neither.
fn inotify(initial: &str, ours: &str) -> u64 {
    let initial = number(&format!("/proc/sys/fs/inotify/{initial}"));
    initial.min(number(&format!("/proc/sys/user/{ours}")))
}

fn number(path: &str) -> u64 {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.trim().parse().unwrap_or(u64::MAX)
}

/// When a user namespace is made, the kernel notes the maker's soft limit: above it, all that the
/// namespace holds counts as its owner's (user_namespaces(7)).
fn soft(resource: Resource) -> u64 {
    getrlimit(resource).map_or(u64::MAX, |(soft, _)| soft)
}
