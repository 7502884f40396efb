//! The way out of a failure: a pure function of the error and of [`Facts`]
//! about the host.

use std::path::Path;

use nix::errno::Errno;

use crate::plan::{MountKind, Plan, Source};
use record::error::{SetupError, Step};

mod container;
mod facts;
mod service;

use container::{Need, allow};
pub(crate) use facts::{Facts, own_service};

/// Whose path, file or place an error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Concern {
    /// What every cell has.
    Cell,
    /// What this caller asked for.
    Caller,
}

/// Adds the way out to an error that has none.
pub(crate) fn complete(mut error: SetupError, plan: &Plan) -> SetupError {
    if error.hint.is_none() {
        let concern = concern(&error, plan);
        error.hint = hint(&error, concern, &Facts::gather());
    }
    error
}

/// The same for an error from before there is a plan.
pub fn explain(mut error: SetupError) -> SetupError {
    if error.hint.is_none() && error.step >= Step::Clone {
        error.hint = hint(&error, Concern::Cell, &Facts::gather());
    }
    error
}

fn concern(error: &SetupError, plan: &Plan) -> Concern {
    let operand = error.operand.as_deref().map(Path::new);
    let of_every_cell = |mount: &crate::plan::Mount| {
        Some(mount.target.as_path()) == operand && !is_callers_bind(&mount.kind)
    };
    if plan.mounts.iter().any(of_every_cell) {
        Concern::Cell
    } else {
        Concern::Caller
    }
}

const fn is_callers_bind(kind: &MountKind) -> bool {
    matches!(
        kind,
        MountKind::Bind {
            source: Source::Host(_),
            device: false,
            ..
        }
    )
}

/// The way out of `error`, if one is known: one sentence, lower case, without
/// a full stop.
pub(crate) fn hint(error: &SetupError, concern: Concern, facts: &Facts) -> Option<String> {
    let call = error.syscall.as_deref().unwrap_or("");
    let is_filtered = facts.filters.denial(call).is_some()
        || (error.step == Step::Network && error.errno == Some(libc::EAFNOSUPPORT))
        // Died of SIGSYS.
        || (error.errno.is_none() && error.step >= Step::Clone);
    if is_filtered && facts.filters.deny_anything() {
        return Some(for_filters(facts));
    }
    if error.step == Step::IdMap && error.syscall.is_none() {
        return Some(for_lone_root(facts));
    }
    let errno = error.errno.map(Errno::from_raw)?;
    match error.step {
        Step::Clone => for_clone(errno, facts),
        Step::Network if call == "unshare" => for_clone(errno, facts),
        Step::IdMap => for_id_map(errno, facts),
        Step::Network | Step::Hostname | Step::Ids | Step::Capabilities | Step::CgroupNamespace => {
            denied(errno).then(|| powerless(facts))
        }
        Step::Mount if error.operand.as_deref() == Some("/proc") && denied(errno) => {
            Some(for_proc(facts))
        }
        Step::Mount if concern == Concern::Cell && denied(errno) => Some(powerless(facts)),
        Step::Mount => for_mount(errno, call).map(str::to_owned),
        Step::Pivot => for_pivot(errno, facts),
        Step::Nesting if call == "fsmount" && denied(errno) => Some(for_proc(facts)),
        Step::Nesting => Some(NESTING.to_owned()),
        Step::Stdio if matches!(call, "open_tree" | "open") => Some(STREAM.to_owned()),
        Step::Seccomp => for_seccomp(errno, facts),
        Step::Landlock => for_landlock(errno, facts),
        step => for_request(step, errno).map(str::to_owned),
    }
    .or_else(|| anywhere(errno).map(str::to_owned))
}

const fn denied(errno: Errno) -> bool {
    matches!(errno, Errno::EPERM | Errno::EACCES)
}

/// What clone3(2)'s error means for a cell.
fn for_clone(errno: Errno, facts: &Facts) -> Option<String> {
    let text = match errno {
        Errno::EPERM if facts.userns_clone == Some(0) => {
            "unprivileged user namespaces are switched off: `sysctl -w kernel.unprivileged_userns_clone=1`, and the same line in /etc/sysctl.d for the next boot"
        }
        Errno::EPERM | Errno::ENOSYS if facts.filtered => {
            return Some(allow(facts, Need::Namespaces));
        }
        Errno::EPERM | Errno::EACCES if facts.apparmor() || facts.apparmor_profile.is_some() => {
            return Some(powerless(facts));
        }
        Errno::EOPNOTSUPP => {
            "the cgroup has threads of other processes and takes no process of its own: give another one, or leave it out with --cgroup none"
        }
        Errno::EPERM => {
            "the host refuses new user namespaces: they are impossible in a chroot, for a user that has no name in the outer one, and where a security module denies them"
        }
        Errno::ENOSPC => return Some(for_namespace_limits(facts)),
        Errno::ENOSYS => "a sandbox around this one hides clone3: allow it there",
        Errno::EINVAL => {
            "the kernel was built without a kind of namespace (CONFIG_USER_NS and its siblings): boot another one"
        }
        Errno::EUSERS => "too many user namespaces are nested already: start cellblock further out",
        Errno::EAGAIN => {
            "too many processes: the caller's limit (ulimit -u) or its cgroup's pids.max is reached"
        }
        Errno::EACCES => {
            "the cgroup does not let this process in: give one that is delegated to you"
        }
        Errno::EBUSY => {
            "the cgroup has controllers enabled for children and takes no processes: give its parent instead"
        }
        _ => return None,
    };
    Some(text.to_owned())
}

/// All that the filters around this process deny, and what undoes it.
pub(crate) fn for_filters(facts: &Facts) -> String {
    if let Some(service) = &facts.service {
        let user = if service.dynamic_user {
            ", and name an account of its own with User="
        } else {
            ""
        };
        return format!(
            "filters of the service {} deny system calls that a cell is made of; {}{user}",
            service.unit,
            service::set(service, &service::allow_calls(facts))
        );
    }
    if facts.container.is_some() {
        return allow(facts, Need::Namespaces);
    }
    let calls = facts.filters.denied.iter().map(|call| call.name.as_str());
    let sockets = facts.filters.families.iter().map(String::as_str);
    // By its flags, and so not by its name.
    let unshare = facts.filters.namespaces.then_some("unshare");
    let denied: Vec<&str> = calls.chain(unshare).chain(sockets).collect();
    format!(
        "a system call filter around this process denies {}: start cellblock outside of it, or have them allowed there (docker: `--security-opt seccomp=unconfined`)",
        denied.join(", ")
    )
}

/// What the limits on namespaces are raised to.
const PLENTY: u64 = 10_000;
/// Limits below this are taken to be somebody's choice.
const FEW: u64 = 1_000;

fn for_namespace_limits(facts: &Facts) -> String {
    let low: Vec<String> = facts
        .namespace_limits
        .iter()
        .filter(|(_, limit)| **limit < FEW)
        .map(|(name, _)| format!("{name}={PLENTY}"))
        .collect();
    if low.is_empty() {
        return "a limit on namespaces is reached, here or in a user namespace further out: end what holds them (`lsns` lists it), or raise user.max_user_namespaces and its siblings there".to_owned();
    }
    format!(
        "too few namespaces are allowed: `sysctl -w {}`, and the same in /etc/sysctl.d for the next boot",
        low.join(" ")
    )
}

fn for_id_map(errno: Errno, facts: &Facts) -> Option<String> {
    match errno {
        Errno::EROFS => Some(for_read_only_proc(facts)),
        _ if !denied(errno) => None,
        _ if facts.apparmor() => Some(APPARMOR.to_owned()),
        _ if facts.uid == 0 => Some(match &facts.service {
            Some(service) => format!(
                "root without CAP_SETUID, CAP_SETGID and CAP_SETFCAP may not map other ids; {}",
                service::set(service, &["CapabilityBoundingSet=CAP_SETUID CAP_SETGID CAP_SETFCAP".to_owned()])
            ),
            None => "root without CAP_SETUID, CAP_SETGID and CAP_SETFCAP may not map other ids: give cellblock these capabilities, or start it as an unprivileged user".to_owned(),
        }),
        _ => Some(powerless(facts)),
    }
}

/// Ids are mapped by writing to `/proc`.
fn for_read_only_proc(facts: &Facts) -> String {
    const WHY: &str = "/proc is mounted read-only, and a cell's ids are written there";
    match &facts.service {
        Some(service) => format!(
            "{WHY}; {}",
            service::set(service, &["ReadOnlyPaths=".to_owned()])
        ),
        None => format!(
            "{WHY}: `mount -o remount,bind,rw /proc` before cellblock starts, or start the container without a read-only one"
        ),
    }
}

/// Root of a user namespace that has no other ids has none to give to a cell.
fn for_lone_root(facts: &Facts) -> String {
    const WHY: &str = "code in a cell never runs as root, and this user namespace has no other id";
    match &facts.service {
        Some(service) => format!(
            "{WHY}; {}",
            service::set(service, &["PrivateUsers=no".to_owned()])
        ),
        None => format!(
            "{WHY}: start cellblock outside of it, or make it as an unprivileged user (`setpriv --reuid=65534 --regid=65534 --clear-groups unshare --user --map-root-user`)"
        ),
    }
}

/// What lets memory be writable and executable at once.
pub(crate) fn for_executable_memory(facts: &Facts) -> String {
    match &facts.service {
        Some(service) => format!(
            "for these languages, {}",
            service::set(service, &["MemoryDenyWriteExecute=no".to_owned()])
        ),
        None => {
            "for these languages, start cellblock outside of the sandbox that denies it".to_owned()
        }
    }
}

/// Where cgroups are mounted read-only, the way to writable ones.
pub(crate) fn for_read_only_cgroups(facts: &Facts) -> Option<String> {
    if !facts.cgroup_read_only {
        return None;
    }
    if let Some(service) = &facts.service {
        let lines = ["ProtectControlGroups=no", "Delegate=yes"].map(str::to_owned);
        return Some(format!(
            "cgroups are read-only in the service {}; {}",
            service.unit,
            service::set(service, &lines)
        ));
    }
    container::writable_cgroups(facts).or_else(|| {
        Some("cgroups are mounted read-only: `mount -o remount,bind,rw /sys/fs/cgroup` before cellblock starts".to_owned())
    })
}

/// A user namespace that can be made, and that has no power.
fn powerless(facts: &Facts) -> String {
    if facts.apparmor() {
        return APPARMOR.to_owned();
    }
    if facts.container.is_some() {
        return allow(facts, Need::Mounts);
    }
    if let Some(profile) = &facts.apparmor_profile {
        return format!(
            "apparmor confines cellblock by the profile `{profile}`: start it outside of that, or have the profile allow userns, capability and mount"
        );
    }
    "a security module of this host takes the capabilities of new user namespaces away: allow cellblock to use them there".to_owned()
}

/// A new `/proc` may show nothing that the one outside hides.
fn for_proc(facts: &Facts) -> String {
    if facts.proc_covers.is_empty() {
        return powerless(facts);
    }
    const SHOWN: usize = 3;
    let covers: Vec<String> = facts
        .proc_covers
        .iter()
        .take(SHOWN)
        .map(|path| path.display().to_string())
        .collect();
    let more = match facts.proc_covers.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let why = format!(
        "parts of the host's /proc are covered ({}{more}), so the kernel allows no new one",
        covers.join(", ")
    );
    let way_out = match &facts.service {
        Some(service) => service::set(service, &service::uncover_proc(facts)),
        None => allow(facts, Need::Proc),
    };
    format!("{why}; {way_out}, or give these layers up with --without proc --without userns-limit")
}

/// What will be in the way of the check `name` of `doctor`, which something else
/// keeps from being tried.
pub(crate) fn foreseen(name: &str, facts: &Facts) -> Option<String> {
    match name {
        "id-maps" if facts.proc_read_only => Some(for_read_only_proc(facts)),
        "capabilities" if facts.apparmor() || facts.apparmor_profile.is_some() => {
            Some(powerless(facts))
        }
        "proc" if !facts.proc_covers.is_empty() => Some(for_proc(facts)),
        _ => None,
    }
}

fn for_mount(errno: Errno, call: &str) -> Option<&'static str> {
    Some(match errno {
        Errno::ENOENT if call == "open_tree" => {
            "name a path that exists on the host, as SRC in --ro SRC[:DST] or --rw SRC[:DST]"
        }
        Errno::ENOENT | Errno::EROFS => {
            "there is no such place in the rootfs or bind that holds it, and cellblock makes none there: choose a target below /mnt, /workspace or a new top-level directory"
        }
        Errno::ELOOP => {
            "a symbolic link stands in the way, and none is followed below a rootfs: name the real path"
        }
        Errno::ENOTDIR => "a file and a directory cannot cover each other: choose another target",
        Errno::EACCES => {
            "you need to be able to read the source and to search the directories above it"
        }
        Errno::ENODEV => "the kernel lacks this file system: boot another one",
        _ => return None,
    })
}

fn for_pivot(errno: Errno, facts: &Facts) -> Option<String> {
    match errno {
        Errno::EINVAL => Some("the host runs from its initial ramfs, which cannot be left by pivot_root: have it switch_root to a tmpfs first".to_owned()),
        Errno::EPERM | Errno::EACCES => Some(powerless(facts)),
        _ => None,
    }
}

fn for_seccomp(errno: Errno, facts: &Facts) -> Option<String> {
    let text = match errno {
        Errno::EBUSY => {
            "another sandbox around this one listens to seccomp already: run cellblock outside of it"
        }
        Errno::EINVAL | Errno::ENOSYS if !facts.filtered => {
            "the kernel was built without seccomp filters (CONFIG_SECCOMP_FILTER): boot another one"
        }
        Errno::EPERM | Errno::EACCES | Errno::EINVAL | Errno::ENOSYS => {
            "a sandbox around this one allows no system call filter: allow seccomp there"
        }
        Errno::EOPNOTSUPP => {
            "the kernel took the filter and does not apply it, as emulated kernels may: run cellblock on a Linux kernel of its own"
        }
        _ => return None,
    };
    Some(text.to_owned())
}

/// What the error of landlock_create_ruleset(2) means.
pub(crate) fn for_landlock(errno: Errno, facts: &Facts) -> Option<String> {
    let text = match errno {
        Errno::EOPNOTSUPP => {
            let others = facts.security_modules.iter().flatten();
            let modules: Vec<&str> = ["landlock"]
                .into_iter()
                .chain(others.map(String::as_str))
                .filter(|name| *name != "capability")
                .collect();
            let list = match facts.security_modules {
                Some(_) => modules.join(","),
                None => "landlock,…".to_owned(),
            };
            return Some(format!(
                "landlock is switched off: add `lsm={list}` to the kernel command line and boot again, or give the layer up with --without landlock"
            ));
        }
        Errno::ENOSYS if facts.filtered => {
            "a sandbox around this one hides landlock: allow its system calls there, or give the layer up with --without landlock"
        }
        Errno::ENOSYS => {
            "the kernel was built without landlock (CONFIG_SECURITY_LANDLOCK): boot another one, or give the layer up with --without landlock"
        }
        Errno::E2BIG => "too many sandboxes are nested: landlock allows 16 layers",
        Errno::ENOENT => "a path that landlock should open up does not exist",
        _ => return None,
    };
    Some(text.to_owned())
}

/// Controllers that a cell's cgroup lacks, and what can be done.
pub(crate) fn for_controllers(missing: &[&str], facts: &Facts) -> Option<String> {
    let among = |list: &[String]| -> Vec<String> {
        let of_list = list.iter().filter(|name| missing.contains(&name.as_str()));
        of_list.cloned().collect()
    };
    let disabled = among(&facts.cgroup_disabled);
    if !disabled.is_empty() {
        return Some(format!(
            "`{}` was disabled at boot: take cgroup_disable out of the kernel command line and put `cgroup_enable={}` there",
            disabled.join(","),
            disabled.join(",")
        ));
    }
    let old = among(&facts.cgroup_v1);
    if old.is_empty() {
        return None;
    }
    let boot = if facts.systemd {
        "systemd.unified_cgroup_hierarchy=1"
    } else {
        "cgroup_no_v1=all"
    };
    Some(format!(
        "cgroup v1 has {} on this host: add `{boot}` to the kernel command line and boot again, so that version 2 gets them",
        old.join(", ")
    ))
}

/// Failures that come from what the caller asked for.
fn for_request(step: Step, errno: Errno) -> Option<&'static str> {
    Some(match (step, errno) {
        (Step::CopyIn, Errno::ENOSPC) => {
            "the workspace is too small for the files that go in: raise --workspace-size"
        }
        (Step::CopyIn, Errno::EEXIST) => "two files go to the same place: name another target",
        (Step::CopyIn, Errno::ENOTDIR) => {
            "one file's target lies below another file: name another target"
        }
        (Step::Chdir, _) => "name a directory inside the cell with --cwd",
        (Step::Exec, Errno::ENOENT) => {
            "no such program in the cell, or its loader is missing there: the cell sees the rootfs, not the host's whole file system (use --ro to show more of it)"
        }
        (Step::Exec, Errno::EACCES) => {
            "the file is not executable, lies on a noexec mount, or landlock denies executing it (--no-exec)"
        }
        (Step::Exec, Errno::ENOEXEC) => {
            "the file is neither a program for this machine nor a script with a #! line"
        }
        (Step::Exec, Errno::E2BIG) => {
            "arguments and environment are too long together: pass the data as a file (--file)"
        }
        _ => return None,
    })
}

/// Failures that any step may meet.
fn anywhere(errno: Errno) -> Option<&'static str> {
    Some(match errno {
        Errno::ENOMEM => "the host or the cell's cgroup has no memory left: raise --memory",
        Errno::EMFILE | Errno::ENFILE => {
            "too many open files: close some, or raise the limit (ulimit -n)"
        }
        _ => return None,
    })
}

const STREAM: &str = "the program could change the mode of this file of yours, and it cannot be opened anew by its name: pass it through a pipe (cat FILE | cellblock …)";

const NESTING: &str = "the limit on nested user namespaces could not be set or does not hold here; seccomp denies them as well, so the layer can be given up with --without userns-limit";

const APPARMOR: &str = "apparmor takes the capabilities out of unprivileged user namespaces on this host: install the profile that `cellblock doctor` prints";

/// An AppArmor profile that lets this executable use user namespaces, for
/// [`APPARMOR_FILE`]; `None` where AppArmor is not in the way.
pub(crate) fn apparmor_profile(facts: &Facts) -> Option<String> {
    let path = facts.executable.as_deref().filter(|_| facts.apparmor())?;
    Some(format!(
        "abi <abi/4.0>,\ninclude <tunables/global>\n\nprofile cellblock {} flags=(unconfined) {{\n  userns,\n\n  include if exists <local/cellblock>\n}}\n",
        apparmor_path(path)
    ))
}

/// Whether a piece of advice is to install that profile.
pub(crate) fn asks_for_profile(advice: &str) -> bool {
    advice == APPARMOR
}

/// Where AppArmor looks for a profile of cellblock's.
pub(crate) const APPARMOR_FILE: &str = "/etc/apparmor.d/cellblock";

/// A path as a profile names it (apparmor.d(5)): quoted, what would be a
/// pattern or an end of the quotes escaped.
fn apparmor_path(path: &Path) -> String {
    let mut text = String::from("\"");
    for c in path.to_string_lossy().chars() {
        if "*?[]{}^\"\\@,".contains(c) {
            text.push('\\');
        }
        text.push(c);
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests;
