//! A sandbox as one writes it in an afternoon: every namespace, and root inside.
//! Attacks that need privileges over a namespace are shown to be live in it.

use std::fs;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::wait::WaitStatus;
use nix::unistd::{getgid, getuid};

use super::{Check, fail, raw};

/// Runs `inside` as pid 1 and root of namespaces of its own, with a tmpfs on
/// `/tmp` and its own `/proc`. Returns its exit status.
pub(crate) fn sandbox(inside: impl FnOnce() -> i32) -> Check<i32> {
    let (uid, gid) = (getuid(), getgid());
    unshare(
        CloneFlags::CLONE_NEWUSER
            | CloneFlags::CLONE_NEWNS
            | CloneFlags::CLONE_NEWPID
            | CloneFlags::CLONE_NEWNET
            | CloneFlags::CLONE_NEWIPC
            | CloneFlags::CLONE_NEWUTS
            | CloneFlags::CLONE_NEWCGROUP,
    )?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {gid} 1"))?;
    let ended = raw::in_child(|| match mounts() {
        // Pid 1 is special, so the attacker is its child.
        Ok(()) => match raw::in_child(inside) {
            Ok(WaitStatus::Exited(_, status)) => status,
            _ => 99,
        },
        Err(_) => 98,
    })?;
    match ended {
        WaitStatus::Exited(_, 98) => Err(fail("the naive sandbox cannot mount")),
        WaitStatus::Exited(_, status) => Ok(status),
        other => Err(fail(format!("the naive sandbox ended with {other:?}"))),
    }
}

fn mounts() -> nix::Result<()> {
    const NO_DATA: Option<&str> = None;
    mount(
        NO_DATA,
        "/",
        NO_DATA,
        MsFlags::MS_REC | MsFlags::MS_PRIVATE,
        NO_DATA,
    )?;
    mount(
        Some("tmpfs"),
        "/tmp",
        Some("tmpfs"),
        MsFlags::empty(),
        NO_DATA,
    )?;
    mount(
        Some("proc"),
        "/proc",
        Some("proc"),
        MsFlags::empty(),
        NO_DATA,
    )
}
