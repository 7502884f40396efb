//! A cgroup v1 hierarchy mounted inside, whose `release_agent` the kernel runs
//! on the host (CVE-2022-0492).

use crate::cells::prelude::*;

pub(crate) const SUITE: Suite = Suite {
    name: "release-agent",
    covers: &[6],
    attacks: &[
        attack("mount-cgroup-v1", || mount(c"cgroup", c"memory"))
            // Hosts with version 2 alone have no such hierarchy to mount.
            .live(naive().unless(&[Errno::EBUSY, Errno::EPERM, Errno::ENODEV, Errno::EINVAL]))
            .weaker(NO_CAPABILITY),
        attack("mount-cgroup-v2", || mount(c"cgroup2", c""))
            .live(naive())
            .weaker(NO_CAPABILITY),
    ],
    scenes: &[],
    actors: &[],
};

const NO_CAPABILITY: &[Weaker] = &[(&["seccomp"], With(&[Errno::EPERM]))];

fn mount(kind: &std::ffi::CStr, options: &std::ffi::CStr) -> Attempt {
    call!(SYS_mount, c"none", c"/tmp", kind, 0, options).map(drop)
}
