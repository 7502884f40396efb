//! The kernel's settings in `/proc` and `/sys`: some name programs that the
//! kernel runs on the host as root.

use crate::cells::prelude::*;

pub(crate) const SUITE: Suite = Suite {
    name: "kernel-settings",
    covers: &[7],
    attacks: ATTACKS,
    scenes: &[],
    actors: &[],
};

/// The cell's own `/proc` has none of them. When the host's is shown
/// instead, its files belong to another user.
const NOT_THERE: &[Errno] = &[Errno::ENOENT];
const NOT_YOURS: &[Weaker] = &[
    (&["proc"], With(&[Errno::EACCES])),
    (&["proc", "landlock"], With(&[Errno::EACCES])),
];

/// Opening the file for writing proves it; nothing is written.
const ATTACKS: &[Attack] = &[
    setting("core-pattern", || write("/proc/sys/kernel/core_pattern")).live(root()),
    setting("modprobe", || write("/proc/sys/kernel/modprobe"))
        .live(root().unless(&[Errno::ENOENT]))
        .weaker(&[]),
    setting("sysrq-trigger", || write("/proc/sysrq-trigger"))
        .live(root().unless(&[Errno::ENOENT]))
        // Covered, where the kernel has it.
        .refused(&[Errno::EACCES, Errno::ENOENT])
        .weaker(&[]),
    setting("binfmt-misc", || write("/proc/sys/fs/binfmt_misc/register"))
        .live(root().unless(&[Errno::ENOENT]))
        .weaker(&[]),
    setting("panic", || write("/proc/sys/kernel/panic")).live(root()),
    // The program must not raise the limit that forbids nested user namespaces.
    setting("user-namespaces", || {
        write("/proc/sys/user/max_user_namespaces")
    })
    .live(naive()),
    setting("ip-forward", || write("/proc/sys/net/ipv4/ip_forward")).live(naive()),
    setting("oom-score-of-init", || write("/proc/1/oom_score_adj"))
        .live(naive())
        .refused(NOT_THERE)
        .weaker(&[]),
    setting("uevent-helper", || write("/sys/kernel/uevent_helper"))
        .live(root().unless(&[Errno::ENOENT]))
        .weaker(&[]),
    setting("power-state", || write("/sys/power/state"))
        .live(root().unless(&[Errno::ENOENT]))
        .weaker(&[]),
];

const fn setting(name: &'static str, attempt: fn() -> Attempt) -> Attack {
    attack(name, attempt).refused(NOT_THERE).weaker(NOT_YOURS)
}

fn write(path: &str) -> Attempt {
    open(path, libc::O_WRONLY)
}
