//! Taking away what init and program must not have.

use std::os::fd::OwnedFd;

use caps::CapSet;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::stat::Mode;
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};
use nix::unistd::Pid;

use super::attempt;
use super::fail::{Call, CallSite, Fail};
use super::report::Reporter;
use crate::plan::{Namespace, Plan};
use record::error::Step;
use sys;

/// What all processes of this user namespace may have together. The kernel counts
/// it against the one who made the namespace as well, who has 128 instances and,
/// on a small machine, 8192 watches: a program that takes all there is must leave
/// most to the caller, to other cells, or to root's daemons.
const SHARES: [(&str, &[u8]); 2] = [
    ("sys/user/max_inotify_instances", b"4"),
    ("sys/user/max_inotify_watches", b"1024"),
];

/// Allows this user namespace no namespaces of its own, and proves it. Seccomp
/// denies them as well; this holds where a filter has a hole.
pub(super) fn forbid_nested_userns(plan: &Plan, report: &Reporter<'_>) -> Result<(), Fail> {
    if !plan.userns_limit {
        return Ok(());
    }
    report.enter(Step::Nesting);
    let write = CallSite::new(Step::Nesting, Call::Write);
    let proc = match settings_of_caller() {
        Some(proc) => proc,
        None => {
            own_settings().map_err(|e| CallSite::new(Step::Nesting, Call::Fsmount).failed(e))?
        }
    };
    set(&proc, "sys/user/max_user_namespaces", b"0").map_err(|e| write.failed(e))?;
    for (setting, value) in SHARES {
        match set(&proc, setting, value) {
            // A kernel without inotify has none to share.
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(errno) => return Err(write.failed(errno)),
        }
    }
    match sys::process::try_nested_userns() {
        // The limit. Where only root may make user namespaces on the host, that is
        // what the kernel looks at first: EPERM by Debian's setting, EACCES by
        // AppArmor's.
        Err(Errno::ENOSPC | Errno::EPERM | Errno::EACCES) => Ok(()),
        Err(errno) => Err(CallSite::new(Step::Nesting, Call::Unshare).failed(errno)),
        Ok(()) => Err(CallSite::new(Step::Nesting, Call::Unshare).failed(Errno::EEXIST)),
    }
}

/// The caller's `/proc`, where it holds settings that may be written: the kernel
/// applies what is written there to the writer's user namespace. Containers
/// often have these settings read-only.
fn settings_of_caller() -> Option<OwnedFd> {
    let here = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let proc = open("/proc", here, Mode::empty()).ok()?;
    let is_proc = fstatfs(&proc).is_ok_and(|fs| fs.filesystem_type() == PROC_SUPER_MAGIC);
    let limit = "sys/user/max_user_namespaces";
    let writable = is_proc
        && openat(
            &proc,
            limit,
            OFlag::O_WRONLY | OFlag::O_CLOEXEC,
            Mode::empty(),
        )
        .is_ok();
    writable.then_some(proc)
}

/// A `/proc` with settings, since the cell's own shows processes only. It is
/// never attached anywhere and goes with its descriptor. The kernel gives it only
/// while the caller's `/proc` is in sight, that is before the root changes: on
/// newer kernels (7.3) one of processes only does not vouch for it.
fn own_settings() -> nix::Result<OwnedFd> {
    sys::mount::FsContext::open(c"proc")?.mount(0)
}

fn set(proc: &OwnedFd, setting: &str, value: &[u8]) -> nix::Result<()> {
    let flags = OFlag::O_WRONLY | OFlag::O_CLOEXEC;
    let file = openat(proc, setting, flags, Mode::empty())?;
    nix::unistd::write(&file, value).map(drop)
}

/// Without a cgroup, a limit on CPUs is a binding to certain CPUs, which the
/// supervisor has chosen.
pub(super) fn bind_to_cpus(cpus: &[usize], report: &Reporter<'_>) -> Result<(), Fail> {
    if cpus.is_empty() {
        return Ok(());
    }
    report.enter(Step::Rlimits);
    let site = CallSite::new(Step::Rlimits, Call::Affinity);
    let mut chosen = CpuSet::new();
    for cpu in cpus {
        attempt(site, || chosen.set(*cpu))?;
    }
    attempt(site, || sched_setaffinity(Pid::from_raw(0), &chosen))
}

/// Empties all capability sets, the bounding set among them, so that nothing
/// which is executed can regain one.
pub(super) fn drop_capabilities(plan: &Plan, report: &Reporter<'_>) -> Result<(), Fail> {
    // Without a user namespace of its own, a process has no capabilities to drop.
    if !plan.has(Namespace::User) {
        return Ok(());
    }
    report.enter(Step::Capabilities);
    let site = CallSite::new(Step::Capabilities, Call::Capset);
    // The bounding set first, while CAP_SETPCAP is still effective; by number,
    // so that capabilities which no library has heard of go as well.
    attempt(
        CallSite::new(Step::Capabilities, Call::Prctl),
        sys::process::empty_bounding_set,
    )?;
    caps::clear(None, CapSet::Ambient).map_err(|_| site.failed(Errno::last()))?;
    attempt(site, sys::process::empty_capability_sets)?;
    match caps::read(None, CapSet::Permitted) {
        Ok(left) if left.is_empty() => Ok(()),
        _ => Err(site.failed(Errno::EPERM)),
    }
}

/// No program that is executed gains privileges (prctl(2)).
pub(super) fn set_no_new_privs(report: &Reporter<'_>) -> Result<(), Fail> {
    report.enter(Step::NoNewPrivs);
    attempt(
        CallSite::new(Step::NoNewPrivs, Call::Prctl),
        nix::sys::prctl::set_no_new_privs,
    )
}
