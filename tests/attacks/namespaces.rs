//! New namespaces from inside, where a program would be root and reach kernel
//! code that it cannot reach otherwise.

use nix::errno::Errno;
use nix::libc;

use crate::cells::attack::{bare, naive};
use crate::cells::raw::{Arg, call, spawn};
use crate::cells::{Attack, Attempt, Suite, attack};
use crate::cells::attack::Refusal::With;

pub(crate) const SUITE: Suite = Suite {
    name: "namespaces",
    covers: &[8, 16],
    attacks: ATTACKS,
    scenes: &[],
    actors: &[],
};

const ATTACKS: &[Attack] = &[
    attack("unshare-user", || unshare(libc::CLONE_NEWUSER))
        .live(bare())
        // The namespace's own limit of zero, should the filter ever fail.
        .weaker(&[
            (&["seccomp"], With(&[Errno::ENOSPC])),
        ]),
    attack("unshare-user-with-high-bits", || {
        call!(SYS_unshare, libc::CLONE_NEWUSER as u64 | 1 << 32).map(drop)
    })
    // The kernel does not truncate this one: EINVAL if it ever got there.
    .live(bare().behind(Errno::EINVAL)),
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
    attack("unshare-time", || unshare(0x80))
        .live(naive().unless(&[Errno::EINVAL]))
        .weaker(NO_CAPABILITY),
    attack("clone-user", || clone(libc::CLONE_NEWUSER as u64))
        .live(bare())
        .weaker(&[(&["seccomp"], With(&[Errno::ENOSPC]))]),
    // clone(2) drops the upper half of its flags, so a filter must, too.
    attack("clone-user-with-high-bits", || {
        clone(libc::CLONE_NEWUSER as u64 | 1 << 32)
    })
    .live(bare()),
    attack("clone-net", || clone(libc::CLONE_NEWNET as u64))
        .live(naive())
        .weaker(NO_CAPABILITY),
    // Its flags lie behind a pointer: no filter can look at them.
    attack("clone3-user", || clone3(libc::CLONE_NEWUSER as u64))
        .live(bare())
        .refused(&[Errno::ENOSYS])
        .weaker(&[(&["seccomp"], With(&[Errno::ENOSPC]))]),
    attack("clone3", || clone3(0))
        .live(bare())
        .refused(&[Errno::ENOSYS]),
    attack("setns", || {
        let own = nix::fcntl::open(
            "/proc/self/ns/net",
            nix::fcntl::OFlag::O_RDONLY,
            nix::sys::stat::Mode::empty(),
        )?;
        call!(SYS_setns, std::os::fd::AsRawFd::as_raw_fd(&own), 0).map(drop)
    })
    .live(naive())
    .weaker(NO_CAPABILITY),
    attack("setns-by-pidfd", || {
        let own = call!(SYS_pidfd_open, std::process::id(), 0)?;
        call!(SYS_setns, own, libc::CLONE_NEWUTS).map(drop)
    })
    .live(naive())
    .weaker(NO_CAPABILITY),
];

/// The program has no capability in any namespace.
const NO_CAPABILITY: &[crate::cells::attack::Weaker] = &[(&["seccomp"], With(&[Errno::EPERM]))];

fn unshare(flags: i32) -> Attempt {
    call!(SYS_unshare, flags).map(drop)
}

fn clone(flags: u64) -> Attempt {
    spawn(
        libc::SYS_clone,
        &[Arg::from(flags | libc::SIGCHLD as u64)],
    )
}

fn clone3(flags: u64) -> Attempt {
    /// The first version of `struct clone_args`.
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
    spawn(
        libc::SYS_clone3,
        &[Arg::from(&args), Arg::from(size_of::<CloneArgs>())],
    )
}
