//! Limits of what the kernel counts per user, whatever the namespace.

use serde::Serialize;

/// What cells can use of it. The kernel charges a cell's use to the user who started it, too:
/// what one cell takes, the user's other cells and programs lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct UserLimits {
    /// inotify(7) instances.
    pub inotify_instances: u64,
    /// inotify(7) watches.
    pub inotify_watches: u64,
    /// Queued real-time signals, and POSIX timers (`RLIMIT_SIGPENDING`).
    pub pending_signals: u64,
    /// Bytes of POSIX message queues (`RLIMIT_MSGQUEUE`).
    pub message_queues: u64,
    /// Bytes of locked shared memory, and what libraries lock for keys (`RLIMIT_MEMLOCK`).
    pub locked_memory: u64,
}

impl UserLimits {
    /// The most that a cell gets: a small part of the usual limits, so that some runs of a user
    /// find room beside each other. One message queue of the default size fits.
    pub const OF_A_CELL: Self = Self {
        inotify_instances: 4,
        inotify_watches: 1024,
        pending_signals: 256,
        message_queues: 128 << 10,
        locked_memory: 64 << 10,
    };

    /// The share of each of at most `cells` at once. Half of what the user has stays for the
    /// server itself and for the user's other programs.
    #[must_use]
    pub fn divided(&self, cells: usize) -> Self {
        let divisor = 2 * (cells as u64).max(1);
        let share = |of: fn(&Self) -> u64| of(&Self::OF_A_CELL).min(of(self) / divisor);
        Self {
            inotify_instances: share(|limits| limits.inotify_instances),
            inotify_watches: share(|limits| limits.inotify_watches),
            pending_signals: share(|limits| limits.pending_signals),
            message_queues: share(|limits| limits.message_queues),
            locked_memory: share(|limits| limits.locked_memory),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: UserLimits = UserLimits {
        inotify_instances: 128,
        inotify_watches: 8192,
        pending_signals: 3900,
        message_queues: 819_200,
        locked_memory: 8 << 20,
    };

    #[test]
    fn shares_never_add_up_to_more_than_half() {
        for cells in [1, 3, 16, 64, 65, 1000, usize::MAX / 4] {
            let share = USUAL.divided(cells);
            for (of_one, of_all) in [
                (share.inotify_instances, USUAL.inotify_instances),
                (share.inotify_watches, USUAL.inotify_watches),
                (share.pending_signals, USUAL.pending_signals),
                (share.message_queues, USUAL.message_queues),
                (share.locked_memory, USUAL.locked_memory),
            ] {
                let sum = u128::from(of_one) * cells as u128;
                assert!(sum <= u128::from(of_all / 2), "{cells}: {share:?}");
            }
        }
    }

    #[test]
    fn a_share_is_no_more_than_a_single_run_has() {
        assert_eq!(USUAL.divided(0), USUAL.divided(1));
        let plenty = UserLimits {
            inotify_instances: u64::MAX,
            inotify_watches: u64::MAX,
            pending_signals: u64::MAX,
            message_queues: u64::MAX,
            locked_memory: u64::MAX,
        };
        assert_eq!(plenty.divided(64), UserLimits::OF_A_CELL);
        assert_eq!(USUAL.divided(64).inotify_instances, 1);
    }
}
