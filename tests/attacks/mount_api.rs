//! Kernel code that user namespaces exposed to unprivileged users and that had flaws
//! there: file system contexts, overlay mounts, packet filters.

use std::fs;

use crate::cells::prelude::*;

pub(crate) const SUITE: Suite = Suite {
    name: "mount-api",
    covers: &[9],
    attacks: ATTACKS,
    scenes: &[],
    actors: &[],
};

/// If the filter ever failed: no capability.
const NO_CAPABILITY: &[Weaker] = &[(&["seccomp"], With(&[Errno::EPERM]))];

const ATTACKS: &[Attack] = &[
    attack("fsopen", || call!(SYS_fsopen, c"tmpfs", 0).map(drop))
        .live(naive())
        .weaker(NO_CAPABILITY),
    attack("fspick", || {
        call!(SYS_fspick, libc::AT_FDCWD, c"/tmp", 0).map(drop)
    })
    .live(naive())
    .weaker(NO_CAPABILITY),
    // There is no context to configure: the kernel looks for one only behind
    // the filter.
    attack("fsconfig", || {
        const SET_FLAG: u32 = 0;
        call!(SYS_fsconfig, -1, SET_FLAG, c"ro", Arg::NULL, 0).map(drop)
    })
    .live(bare().behind(Errno::EINVAL)),
    attack("fsmount", || call!(SYS_fsmount, -1, 0, 0).map(drop))
        .live(naive().behind(Errno::EBADF))
        .weaker(NO_CAPABILITY),
    attack("overlay", overlay)
        .live(naive())
        .weaker(NO_CAPABILITY),
    attack("nf-tables", || netlink(libc::NETLINK_NETFILTER))
        .live(bare().unless(&[Errno::EPROTONOSUPPORT]))
        .refused(&[Errno::EAFNOSUPPORT]),
    attack("xfrm", || netlink(libc::NETLINK_XFRM))
        .live(bare().unless(&[Errno::EPROTONOSUPPORT]))
        .refused(&[Errno::EAFNOSUPPORT]),
];

fn netlink(protocol: i32) -> Attempt {
    call!(SYS_socket, libc::AF_NETLINK, libc::SOCK_RAW, protocol).map(drop)
}

fn overlay() -> Attempt {
    for dir in ["/tmp/lower", "/tmp/upper", "/tmp/work", "/tmp/merged"] {
        fs::create_dir(dir).map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)))?;
    }
    let options = c"lowerdir=/tmp/lower,upperdir=/tmp/upper,workdir=/tmp/work";
    call!(
        SYS_mount,
        c"overlay",
        c"/tmp/merged",
        c"overlay",
        0,
        options
    )
    .map(drop)
}
