//! Taking away what init and program must not have.

use std::os::fd::OwnedFd;

use caps::CapSet;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::stat::Mode;
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};
use nix::sys::uio::pread;
use nix::unistd::Pid;

use super::fail::{At, Call, Fail, Site};
use super::report::Reporter;
use plan::{Namespace, Plan};
use record::error::Step;
use sys::process::close_together;

/// Limits this user namespace to its share of what the kernel also counts for its owner, and to
/// no namespaces of its own, and proves it. Seccomp denies the latter as well; this holds where a
/// filter has a hole.
pub(super) fn limit_user_namespace(plan: &Plan, report: &Reporter<'_>) -> Result<(), Fail> {
    let Some(limits) = plan.userns_limits else {
        return Ok(());
    };
    let site = report.enter(Step::Nesting);
    let no_namespaces = Setting {
        name: "max_user_namespaces",
        value: 0,
    };
    let mut opened = Vec::with_capacity(4);
    let proc = match settings_of_caller(&no_namespaces, &mut opened) {
        Some(proc) => proc,
        None => {
            let own = own_settings().at(site, Call::Fsmount)?;
            no_namespaces
                .write(&own, &mut opened)
                .at(site, Call::Write)?;
            own
        }
    };
    for (name, value) in [
        ("max_inotify_instances", limits.inotify_instances),
        ("max_inotify_watches", limits.inotify_watches),
    ] {
        match (Setting { name, value }).write(&proc, &mut opened) {
            // A kernel without inotify.
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(errno) => return Err(site.failed(Call::Write, errno)),
        }
    }
    opened.push(proc);
    close_together(opened);
    match sys::process::try_nested_userns() {
        // ENOSPC is the limit's. Where only root may make user namespaces, the kernel
        // checks that first: EPERM by Debian's setting, EACCES by AppArmor's.
        Err(Errno::ENOSPC | Errno::EPERM | Errno::EACCES) => Ok(()),
        Err(errno) => Err(site.failed(Call::Unshare, errno)),
        Ok(()) => Err(site.failed(Call::Unshare, Errno::EEXIST)),
    }
}

/// A limit of the writer's user namespace (proc_sys_user(5)).
struct Setting {
    name: &'static str,
    value: u64,
}

impl Setting {
    /// Sets it below this `/proc`, and reads it back. The file goes to `opened`.
    fn write(&self, proc: &OwnedFd, opened: &mut Vec<OwnedFd>) -> nix::Result<()> {
        let path = format!("sys/user/{}", self.name);
        let flags = OFlag::O_RDWR | OFlag::O_CLOEXEC;
        let file = openat(proc, path.as_str(), flags, Mode::empty())?;
        let value = self.value.to_string();
        nix::unistd::write(&file, value.as_bytes())?;
        let mut found = [0; 32];
        let length = pread(&file, &mut found, 0)?;
        opened.push(file);
        match found[..length].trim_ascii() == value.as_bytes() {
            true => Ok(()),
            false => Err(Errno::EIO),
        }
    }
}

/// The caller's `/proc`, if this setting could be written there: in containers its settings often
/// are read-only.
fn settings_of_caller(setting: &Setting, opened: &mut Vec<OwnedFd>) -> Option<OwnedFd> {
    let here = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let proc = openat(AT_FDCWD, "/proc", here, Mode::empty()).ok()?;
    let is_proc = fstatfs(&proc).is_ok_and(|fs| fs.filesystem_type() == PROC_SUPER_MAGIC);
    (is_proc && setting.write(&proc, opened).is_ok()).then_some(proc)
}

/// A new `/proc` with settings; the cell's own shows processes only. It is never
/// attached anywhere and goes with its descriptor. The kernel mounts it only while
/// the caller's `/proc` is visible, so before the root changes: newer kernels (7.3)
/// do not accept one with processes only instead.
fn own_settings() -> nix::Result<OwnedFd> {
    sys::mount::FsContext::open(c"proc")?.mount(0)
}

/// Without a cgroup, a limit on CPUs is a binding to certain CPUs, which the
/// supervisor has chosen.
pub(super) fn bind_to_cpus(cpus: &[usize], report: &Reporter<'_>) -> Result<(), Fail> {
    if cpus.is_empty() {
        return Ok(());
    }
    let site = report.enter(Step::Rlimits);
    let mut chosen = CpuSet::new();
    for cpu in cpus {
        chosen.set(*cpu).at(site, Call::Affinity)?;
    }
    sched_setaffinity(Pid::from_raw(0), &chosen).at(site, Call::Affinity)
}

/// Empties all capability sets, also the bounding set, so that no executed program
/// regains a capability.
pub(super) fn drop_capabilities(plan: &Plan, report: &Reporter<'_>) -> Result<(), Fail> {
    // Without a user namespace of its own, a process has no capabilities to drop.
    if !plan.has(Namespace::User) {
        return Ok(());
    }
    let site = report.enter(Step::Capabilities);
    // While CAP_SETPCAP is still effective. Uid 0 of this user namespace must mean nothing,
    // whether the cell has it or not.
    sys::process::lock_securebits().at(site, Call::Prctl)?;
    // The bounding set by number, so that it loses capabilities that no library knows, too.
    sys::process::empty_bounding_set().at(Site::new(Step::Capabilities), Call::Prctl)?;
    caps::clear(None, CapSet::Ambient).map_err(|_| site.failed(Call::Capset, Errno::last()))?;
    sys::process::empty_capability_sets().at(site, Call::Capset)?;
    match caps::read(None, CapSet::Permitted) {
        Ok(left) if left.is_empty() => Ok(()),
        _ => Err(site.failed(Call::Capset, Errno::EPERM)),
    }
}

/// Leaves a template's program what it takes to enter the namespaces of its copies, in
/// its own user namespace, and nothing else.
pub(super) fn keep_forking(report: &Reporter<'_>) -> Result<(), Fail> {
    /// CAP_SYS_ADMIN (capabilities(7)).
    const SYS_ADMIN: u32 = 21;
    let site = report.enter(Step::Capabilities);
    sys::process::keep_only_capability(SYS_ADMIN).at(site, Call::Capset)
}

/// No program that is executed gains privileges (prctl(2)).
pub(super) fn set_no_new_privs(report: &Reporter<'_>) -> Result<(), Fail> {
    let site = report.enter(Step::NoNewPrivs);
    #[cfg(debug_assertions)]
    if super::is_left_out("no-new-privs") {
        return Ok(());
    }
    nix::sys::prctl::set_no_new_privs().at(site, Call::Prctl)
}
