//! New namespaces from inside, where a program would be root and reach kernel
//! code that it cannot reach otherwise.

use std::os::fd::AsRawFd as _;

use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

use crate::cells::prelude::*;
use crate::cells::raw::spawn;

pub(crate) const SUITE: Suite = Suite {
    name: "namespaces",
    covers: &[8, 16],
    attacks: ATTACKS,
    scenes: &[],
    actors: &[],
};

/// If the filter ever failed: the limit of zero nested user namespaces.
const NESTING_LIMIT: &[Weaker] = &[(&["seccomp"], With(&[Errno::ENOSPC]))];
/// If the filter ever failed: no capability in any namespace.
const NO_CAPABILITY: &[Weaker] = &[(&["seccomp"], With(&[Errno::EPERM]))];

const ATTACKS: &[Attack] = &[
    attack("unshare-user", || unshare(libc::CLONE_NEWUSER))
        .live(bare())
        .weaker(NESTING_LIMIT),
    // Here only seccomp refuses: the two layers are never given up together.
    attack("unshare-user-without-limit", || {
        unshare(libc::CLONE_NEWUSER)
    })
    .live(without(&["seccomp", "userns-limit"]))
    .options(&["--without", "userns-limit"]),
    attack("unshare-mount", || unshare(libc::CLONE_NEWNS))
        .live(naive())
        .weaker(NO_CAPABILITY),
    attack("unshare-pid", || unshare(libc::CLONE_NEWPID))
        .live(naive())
        .weaker(NO_CAPABILITY),
    attack("unshare-net", || unshare(libc::CLONE_NEWNET))
        .live(naive())
        .weaker(NO_CAPABILITY),
    attack("unshare-ipc", || unshare(libc::CLONE_NEWIPC))
        .live(naive())
        .weaker(NO_CAPABILITY),
    attack("unshare-uts", || unshare(libc::CLONE_NEWUTS))
        .live(naive())
        .weaker(NO_CAPABILITY),
    attack("unshare-cgroup", || unshare(libc::CLONE_NEWCGROUP))
        .live(naive())
        .weaker(NO_CAPABILITY),
    attack("unshare-time", || unshare(CLONE_NEWTIME))
        .live(naive().unless(&[Errno::EINVAL]))
        .weaker(NO_CAPABILITY),
    attack("clone-user", || clone(libc::CLONE_NEWUSER as u64))
        .live(bare())
        .weaker(NESTING_LIMIT),
    // clone(2) drops the upper half of its flags: a filter that compares all
    // of them lets this through.
    attack("clone-user-with-high-bits", || {
        clone(libc::CLONE_NEWUSER as u64 | 1 << 32)
    })
    .live(bare())
    .weaker(NESTING_LIMIT),
    attack("clone-net", || clone(libc::CLONE_NEWNET as u64))
        .live(naive())
        .weaker(NO_CAPABILITY),
    // The flags of clone3 lie behind a pointer, where no filter can look.
    attack("clone3-user", || clone3(libc::CLONE_NEWUSER as u64))
        .live(bare())
        .refused(&[Errno::ENOSYS])
        .weaker(NESTING_LIMIT),
    // ENOSYS also for a harmless one: libc then falls back to clone.
    attack("clone3-plain", || clone3(0))
        .live(bare())
        .refused(&[Errno::ENOSYS]),
    attack("setns", || {
        let own = nix::fcntl::open("/proc/self/ns/net", OFlag::O_RDONLY, Mode::empty())?;
        call!(SYS_setns, own.as_raw_fd(), 0).map(drop)
    })
    .live(naive())
    .weaker(NO_CAPABILITY),
    attack("setns-of-init", || {
        let init = call!(SYS_pidfd_open, 1, 0)?;
        call!(SYS_setns, init, libc::CLONE_NEWUTS).map(drop)
    })
    .live(naive())
    .weaker(NO_CAPABILITY),
];

const CLONE_NEWTIME: i32 = 0x80;

fn unshare(flags: i32) -> Attempt {
    call!(SYS_unshare, flags).map(drop)
}

fn clone(flags: u64) -> Attempt {
    spawn(libc::SYS_clone, &[Arg::from(flags | libc::SIGCHLD as u64)])
}

fn clone3(flags: u64) -> Attempt {
    /// The first version of the kernel's `struct clone_args`.
    #[repr(C)]
    #[derive(Default)]
    struct CloneArgs {
        flags: u64,
        pidfd: u64,
        child_tid: u64,
        parent_tid: u64,
        exit_signal: u64,
        stack: u64,
        stack_size: u64,
        tls: u64,
    }
    let args = CloneArgs {
        flags,
        exit_signal: libc::SIGCHLD as u64,
        ..CloneArgs::default()
    };
    let size = size_of::<CloneArgs>();
    spawn(libc::SYS_clone3, &[Arg::from(&args), Arg::from(size)])
}
