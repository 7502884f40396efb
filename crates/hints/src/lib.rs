//! The way out of a failure: a pure function of the error and of [`Facts`]
//! about the host.

#![forbid(unsafe_code)]
// Nothing that input, the kernel or a cell can influence may end in a panic.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

use nix::errno::Errno;

use plan::{MountKind, Plan, Source};
use record::error::{SetupError, Step};

mod container;
mod facts;
mod service;

use container::{Need, allow};
pub use facts::{Facts, own_service};

/// Whose path, file or place an error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concern {
    /// What every cell has.
    Cell,
    /// What this caller asked for.
    Caller,
}

/// Adds the way out to an error that has none.
pub fn complete(mut error: SetupError, plan: &Plan) -> SetupError {
    if error.hint.is_none() {
        let concern = concern(&error, plan);
        error.hint = hint(&error, concern, &Facts::gather());
    }
    error
}

/// Explains an error that occurred before there is a plan.
pub fn explain(mut error: SetupError) -> SetupError {
    if error.hint.is_none() && error.step >= Step::Clone {
        error.hint = hint(&error, Concern::Cell, &Facts::gather());
    }
    error
}

fn concern(error: &SetupError, plan: &Plan) -> Concern {
    let operand = error.operand.as_deref().map(Path::new);
    let is_callers_bind = |kind: &MountKind| {
        matches!(
            kind,
            MountKind::Bind {
                source: Source::Host(_),
                device: false,
                ..
            } | MountKind::Protected { .. }
        )
    };
    let of_every_cell = |mount: &plan::Mount| {
        Some(mount.target.as_path()) == operand && !is_callers_bind(&mount.kind)
    };
    if plan.mounts.iter().any(of_every_cell) {
        Concern::Cell
    } else {
        Concern::Caller
    }
}

/// The way out of `error`, if one is known: one sentence, lower case, without
/// a full stop.
pub fn hint(error: &SetupError, concern: Concern, facts: &Facts) -> Option<String> {
    let call = error.syscall.as_deref().unwrap_or("");
    let is_filtered = facts.filters.denial(call).is_some()
        || (matches!(error.step, Step::Network | Step::Egress) && error.errno == Some(libc::EAFNOSUPPORT))
        // Died of SIGSYS.
        || (error.errno.is_none() && error.step >= Step::Clone);
    if is_filtered && facts.filters.deny_anything() {
        return Some(for_filters(facts));
    }
    if error.step == Step::IdMap && error.syscall.is_none() {
        return Some(for_lone_root(facts));
    }
    let errno = error.errno.map(Errno::from_raw)?;
    let step = match error.step {
        Step::Network if call == "unshare" => Step::Clone,
        step => step,
    };
    let is_proc = match step {
        Step::Mount => error.operand.as_deref() == Some("/proc"),
        _ => call == "fsmount",
    };
    on_this_host(step, errno, is_proc, concern, facts)
        .or_else(|| on_any_host(step, errno, call).map(str::to_owned))
}

/// Failures whose reason is a fact about this host.
fn on_this_host(
    step: Step,
    errno: Errno,
    is_proc: bool,
    concern: Concern,
    facts: &Facts,
) -> Option<String> {
    const DENIED: [Errno; 2] = [Errno::EPERM, Errno::EACCES];
    let is_confined = facts.apparmor() || facts.apparmor_profile.is_some();
    match step {
        Step::Clone => match errno {
            Errno::EPERM if facts.userns_clone == Some(0) => Some(USERNS_CLONE.to_owned()),
            Errno::EPERM | Errno::ENOSYS if facts.filtered => Some(allow(facts, Need::Namespaces)),
            Errno::EPERM | Errno::EACCES if is_confined => Some(powerless(facts)),
            Errno::ENOSPC => Some(for_namespace_limits(facts)),
            _ => None,
        },
        Step::IdMap if errno == Errno::EROFS => Some(for_read_only_proc(facts)),
        Step::Landlock if errno == Errno::EOPNOTSUPP => Some(for_missing_landlock(facts)),
        Step::Landlock if errno == Errno::ENOSYS && facts.filtered => {
            Some(HIDDEN_LANDLOCK.to_owned())
        }
        Step::Seccomp if matches!(errno, Errno::EINVAL | Errno::ENOSYS) && facts.filtered => {
            Some(DENIED_SECCOMP.to_owned())
        }
        _ if !DENIED.contains(&errno) => None,
        Step::IdMap if facts.uid == 0 && !facts.apparmor() => Some(for_incapable_root(facts)),
        Step::Mount | Step::Nesting if is_proc => Some(for_proc(facts)),
        Step::Mount if concern == Concern::Caller => None,
        Step::IdMap
        | Step::Network
        | Step::Egress
        | Step::Hostname
        | Step::Ids
        | Step::Capabilities
        | Step::CgroupNamespace
        | Step::Mount
        | Step::Pivot => Some(powerless(facts)),
        _ => None,
    }
}

/// Failures that mean the same on every host.
fn on_any_host(step: Step, errno: Errno, call: &str) -> Option<&'static str> {
    use Errno as E;
    Some(match (step, errno) {
        (Step::Clone, E::EOPNOTSUPP) => {
            "the cgroup has threads of other processes and takes no process of its own: give another one, or leave it out with --cgroup none"
        }
        (Step::Clone, E::EPERM) => {
            "the host refuses new user namespaces: they are impossible in a chroot, for a user that has no name in the outer one, and where a security module denies them"
        }
        (Step::Clone, E::ENOSYS) => "a sandbox around this one hides clone3: allow it there",
        (Step::Clone, E::EINVAL) => {
            "the kernel was built without a kind of namespace (CONFIG_USER_NS and its siblings): boot another one"
        }
        (Step::Clone, E::EUSERS) => {
            "too many user namespaces are nested already: start cellblock further out"
        }
        (Step::Clone, E::EAGAIN) => {
            "too many processes: the caller's limit (ulimit -u) or its cgroup's pids.max is reached"
        }
        (Step::Clone, E::EACCES) => {
            "the cgroup does not let this process in: give one that is delegated to you"
        }
        (Step::Clone, E::EBUSY) => {
            "the cgroup has controllers enabled for children and takes no processes: give its parent instead"
        }
        (Step::Mount, E::EOPNOTSUPP) if call == "fsetxattr" => {
            "changes of an overlay need extended attributes on tmpfs, which came with Linux 6.6: boot a newer kernel, or copy the directory in with --files-from"
        }
        (Step::Mount, E::EINVAL) if call == "fsmount" || call == "fsconfig" => {
            "the kernel makes no overlay of this directory: other file systems are mounted beneath it, or it is part of too many overlays already; name a directory on one file system, or copy it in with --files-from"
        }
        (Step::Mount, E::ENOENT) if call == "open_tree" => {
            "name a path that exists on the host, as SRC in --ro SRC[:DST] or --rw SRC[:DST]"
        }
        (Step::Mount, E::ENOENT | E::EROFS) => {
            "there is no such path in the rootfs or bind that holds the target, and cellblock creates none there: choose a target below /mnt, /workspace or a new top-level directory"
        }
        (Step::Mount, E::ELOOP) => {
            "a symbolic link is on the path, and none is followed below a rootfs or to what is protected: name the real path (for a path of the profile, --unprotect it and --protect the real one)"
        }
        (Step::Mount, E::EACCES) if call == "mkdirat" => {
            "a protected path is missing, and something has to be made in its place: show a directory with --rw in which you may do so, or give the path up with --unprotect"
        }
        (Step::Mount, E::EINVAL) if call == "move_mount" => {
            "a file and a directory cannot cover each other: choose another target"
        }
        (Step::Mount, E::ENOTDIR) => {
            "a file and a directory cannot cover each other: choose another target"
        }
        (Step::Mount, E::EACCES) => {
            "you need to be able to read the source and to search the directories above it"
        }
        (Step::Mount, E::ENODEV) => {
            "the kernel lacks this file system or has not loaded it: boot another one, or for --overlay run `modprobe overlay` as root, or copy the directory in with --files-from"
        }
        (Step::Stdio, _) if matches!(call, "open_tree" | "open") => {
            "the program could change the mode of this file of yours, and it cannot be opened anew by its name: pass it through a pipe (cat FILE | cellblock …)"
        }
        (Step::CopyIn, E::ENOSPC) => {
            "the workspace is too small for the files that go in: raise --workspace-size"
        }
        (Step::CopyIn, E::EEXIST) => "two files go to the same place: name another target",
        (Step::CopyIn, E::ENOTDIR) => {
            "one file's target lies below another file: name another target"
        }
        (Step::Pivot, E::EINVAL) => {
            "the host runs from its initial ramfs, which cannot be left by pivot_root: have it switch_root to a tmpfs first"
        }
        (Step::Nesting, E::EMFILE | E::ENFILE) => return on_any_step(errno),
        (Step::Seccomp, E::EMFILE) => {
            "cellblock was started with more open files than the cell may have: close some, or raise --open-files"
        }
        (Step::Nesting, _) => {
            "the limit on nested user namespaces could not be set or does not hold here; seccomp denies them as well, so the layer can be given up with --without userns-limit"
        }
        (Step::Seccomp, E::EBUSY) => {
            "another sandbox around this one listens to seccomp already: run cellblock outside of it"
        }
        (Step::Seccomp, E::EINVAL | E::ENOSYS) => {
            "the kernel was built without seccomp filters (CONFIG_SECCOMP_FILTER): boot another one"
        }
        (Step::Seccomp, E::EPERM | E::EACCES) => DENIED_SECCOMP,
        (Step::Seccomp, E::EOPNOTSUPP) => {
            "the kernel took the filter and does not apply it, as emulated kernels may: run cellblock on a Linux kernel of its own"
        }
        (Step::Landlock, E::ENOSYS) => {
            "the kernel was built without landlock (CONFIG_SECURITY_LANDLOCK): boot another one, or give the layer up with --without landlock"
        }
        (Step::Landlock, E::E2BIG) => "too many sandboxes are nested: landlock allows 16 layers",
        (Step::Landlock, E::ENOENT) => "a path that landlock should allow does not exist",
        (Step::Chdir, _) => "name a directory inside the cell with --cwd",
        (Step::Exec, E::ENOENT) => {
            "no such program in the cell, or its loader is missing there: the cell sees the rootfs, not the host's whole file system (use --ro to show more of it)"
        }
        (Step::Exec, E::EACCES) => {
            "the file is not executable, lies on a noexec mount, or landlock denies executing it (--no-exec)"
        }
        (Step::Exec, E::ENOEXEC) => {
            "the file is neither a program for this machine nor a script with a #! line"
        }
        (Step::Exec, E::E2BIG) => {
            "arguments and environment are too long together: pass the data as a file (--file)"
        }
        _ => return on_any_step(errno),
    })
}

/// Failures that any step may meet.
fn on_any_step(errno: Errno) -> Option<&'static str> {
    match errno {
        Errno::ENOMEM => Some("the host or the cell's cgroup has no memory left: raise --memory"),
        Errno::EMFILE | Errno::ENFILE => {
            Some("too many open files: close some, or raise the limit (ulimit -n)")
        }
        _ => None,
    }
}

const USERNS_CLONE: &str = "unprivileged user namespaces are switched off: `sysctl -w kernel.unprivileged_userns_clone=1`, and the same line in /etc/sysctl.d for the next boot";
const HIDDEN_LANDLOCK: &str = "a sandbox around this one hides landlock: allow its system calls there, or give the layer up with --without landlock";
const DENIED_SECCOMP: &str =
    "a sandbox around this one allows no system call filter: allow seccomp there";
const APPARMOR: &str = "apparmor takes the capabilities out of unprivileged user namespaces on this host: install the profile that `cellblock doctor` prints";

/// All calls that the filters around this process deny, and how to allow them.
pub fn for_filters(facts: &Facts) -> String {
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
    // Denied by its flags, and so not in the list of names.
    let unshare = facts.filters.namespaces.then_some("unshare");
    let denied: Vec<&str> = calls.chain(unshare).chain(sockets).collect();
    format!(
        "a system call filter around this process denies {}: start cellblock outside of it, or have them allowed there (docker: `--security-opt seccomp=unconfined`)",
        denied.join(", ")
    )
}

/// The value that limits on namespaces should be raised to.
const PLENTY: u64 = 10_000;
/// Limits below this are taken to be set on purpose.
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

/// How to set `lines` in the service around this process; `otherwise` outside of one.
fn in_service(facts: &Facts, lines: &[&str], otherwise: &str) -> String {
    match &facts.service {
        Some(service) => service::set(service, lines),
        None => otherwise.to_owned(),
    }
}

fn for_incapable_root(facts: &Facts) -> String {
    const LINE: &str = "CapabilityBoundingSet=CAP_SETUID CAP_SETGID CAP_SETFCAP";
    const OTHERWISE: &str =
        "give cellblock these capabilities, or start it as an unprivileged user";
    format!(
        "root without CAP_SETUID, CAP_SETGID and CAP_SETFCAP may not map other ids: {}",
        in_service(facts, &[LINE], OTHERWISE)
    )
}

/// Ids are mapped by writing to `/proc`.
fn for_read_only_proc(facts: &Facts) -> String {
    const OTHERWISE: &str = "`mount -o remount,bind,rw /proc` before cellblock starts, or start the container without a read-only one";
    format!(
        "/proc is mounted read-only, and a cell's ids are written there: {}",
        in_service(facts, &["ReadOnlyPaths="], OTHERWISE)
    )
}

/// Root of a user namespace with no other ids can give none to a cell.
fn for_lone_root(facts: &Facts) -> String {
    const OTHERWISE: &str = "start cellblock outside of it, or make it as an unprivileged user (`setpriv --reuid=65534 --regid=65534 --clear-groups unshare --user --map-root-user`)";
    format!(
        "code in a cell never runs as root, and this user namespace has no other id: {}",
        in_service(facts, &["PrivateUsers=no"], OTHERWISE)
    )
}

/// How to allow memory that is writable and executable at once.
pub fn for_executable_memory(facts: &Facts) -> String {
    const OTHERWISE: &str = "start cellblock outside of the sandbox that denies it";
    let way_out = in_service(facts, &["MemoryDenyWriteExecute=no"], OTHERWISE);
    format!("for these languages, {way_out}")
}

/// How to get writable cgroups where they are mounted read-only.
pub fn for_read_only_cgroups(facts: &Facts) -> Option<String> {
    const REMOUNT: &str = "cgroups are mounted read-only: `mount -o remount,bind,rw /sys/fs/cgroup` before cellblock starts";
    if !facts.cgroup_read_only {
        return None;
    }
    Some(match &facts.service {
        Some(service) => format!(
            "cgroups are read-only in the service {}; {}",
            service.unit,
            service::set(service, &["ProtectControlGroups=no", "Delegate=yes"])
        ),
        None => container::writable_cgroups(facts).unwrap_or_else(|| REMOUNT.to_owned()),
    })
}

/// How to give power to user namespaces that can be made and have none.
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
    let covers = facts.proc_covers.iter().take(SHOWN);
    let covers: Vec<String> = covers.map(|path| path.display().to_string()).collect();
    let more = match facts.proc_covers.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let way_out = match &facts.service {
        Some(service) => service::set(service, &service::uncover_proc(facts)),
        None => allow(facts, Need::Proc),
    };
    format!(
        "parts of the host's /proc are covered ({}{more}), so the kernel allows no new one; {way_out}, or give these layers up with --without proc --without userns-limit",
        covers.join(", ")
    )
}

/// The obstacle that the check `name` of `doctor` would meet, for a check that cannot
/// be tried.
pub fn foreseen(name: &str, facts: &Facts) -> Option<String> {
    match name {
        "id-maps" if facts.proc_read_only => Some(for_read_only_proc(facts)),
        "capabilities" if facts.apparmor() || facts.apparmor_profile.is_some() => {
            Some(powerless(facts))
        }
        "proc" if !facts.proc_covers.is_empty() => Some(for_proc(facts)),
        _ => None,
    }
}

/// The kernel has landlock, and it was not enabled at boot.
fn for_missing_landlock(facts: &Facts) -> String {
    let list = match &facts.security_modules {
        Some(others) => {
            let others = others.iter().map(String::as_str);
            let modules = ["landlock"].into_iter().chain(others);
            let modules = modules.filter(|name| *name != "capability");
            modules.collect::<Vec<_>>().join(",")
        }
        None => "landlock,…".to_owned(),
    };
    format!(
        "landlock is switched off: add `lsm={list}` to the kernel command line and boot again, or give the layer up with --without landlock"
    )
}

/// How to get controllers that a cell's cgroup lacks.
pub fn for_controllers(missing: &[&str], facts: &Facts) -> Option<String> {
    let among = |list: &[String], between: &str| {
        let names = list.iter().map(String::as_str);
        let names: Vec<&str> = names.filter(|name| missing.contains(name)).collect();
        (!names.is_empty()).then(|| names.join(between))
    };
    if let Some(disabled) = among(&facts.cgroup_disabled, ",") {
        return Some(format!(
            "`{disabled}` was disabled at boot: take cgroup_disable out of the kernel command line and put `cgroup_enable={disabled}` there"
        ));
    }
    let old = among(&facts.cgroup_v1, ", ")?;
    let boot = if facts.systemd {
        "systemd.unified_cgroup_hierarchy=1"
    } else {
        "cgroup_no_v1=all"
    };
    Some(format!(
        "cgroup v1 has {old} on this host: add `{boot}` to the kernel command line and boot again, so that version 2 gets them"
    ))
}

/// An AppArmor profile that lets this executable use user namespaces, for
/// [`APPARMOR_FILE`]; `None` where AppArmor is not in the way.
pub fn apparmor_profile(facts: &Facts) -> Option<String> {
    let path = facts.executable.as_deref().filter(|_| facts.apparmor())?;
    Some(format!(
        "abi <abi/4.0>,\ninclude <tunables/global>\n\nprofile cellblock {} flags=(unconfined) {{\n  userns,\n\n  include if exists <local/cellblock>\n}}\n",
        apparmor_path(path)
    ))
}

/// Whether a piece of advice is to install that profile.
pub fn asks_for_profile(advice: &str) -> bool {
    advice == APPARMOR
}

/// Where AppArmor looks for a profile of cellblock's.
pub const APPARMOR_FILE: &str = "/etc/apparmor.d/cellblock";

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
