use std::collections::{BTreeMap, BTreeSet};

use super::facts::Service;
use super::*;
use plan::probe::{DeniedCall, Filters};

fn failure(step: Step, call: &str, errno: Errno, operand: &str) -> SetupError {
    SetupError::os(step, call, errno).on(operand)
}

/// Hosts that differ in what advice fits.
fn hosts() -> Vec<(&'static str, Facts)> {
    let plain = Facts {
        uid: 1000,
        executable: Some("/usr/local/bin/cellblock".into()),
        systemd: true,
        ..Facts::default()
    };
    let container = |name: &str| Facts {
        container: Some(name.to_owned()),
        filtered: true,
        proc_covers: ["/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/sys"]
            .map(Into::into)
            .to_vec(),
        systemd: false,
        ..plain.clone()
    };
    let denied = |name: &str, errno: Option<&str>| DeniedCall {
        name: name.to_owned(),
        errno: errno.map(str::to_owned),
    };
    let filtered = Facts {
        filtered: true,
        filters: Filters {
            denied: vec![denied("openat2", Some("ENOSYS")), denied("fsopen", None)],
            set_user_id: true,
            ..Filters::default()
        },
        ..plain.clone()
    };
    let service = Service {
        unit: "agent.service".to_owned(),
        of_user: false,
        transient: false,
        dynamic_user: false,
    };
    let limits = [("net", 0), ("pid", 5000), ("user", 0)];
    let limits = limits.map(|(kind, limit)| (format!("user.max_{kind}_namespaces"), limit));
    let modules = ["capability", "yama", "apparmor"].map(str::to_owned);
    let but = |change: &dyn Fn(&mut Facts)| {
        let mut facts = plain.clone();
        change(&mut facts);
        facts
    };
    vec![
        ("root", but(&|facts| facts.uid = 0)),
        ("debian", but(&|facts| facts.userns_clone = Some(0))),
        ("ubuntu", but(&|facts| facts.apparmor_restricts = Some(1))),
        (
            "confined",
            but(&|facts| facts.apparmor_profile = Some("web-server".to_owned())),
        ),
        (
            "limited",
            but(&|facts| facts.namespace_limits = limits.clone().into()),
        ),
        (
            "no-landlock",
            but(&|facts| facts.security_modules = Some(modules.to_vec())),
        ),
        ("docker", container("docker")),
        ("podman", container("podman")),
        ("kubernetes", container("kubernetes")),
        ("unknown", container("lxc")),
        ("sandbox", but(&|facts| facts.filtered = true)),
        ("filtered", filtered.clone()),
        (
            "service",
            Facts {
                service: Some(service),
                ..filtered
            },
        ),
        ("plain", plain.clone()),
    ]
}

fn host(name: &str) -> Facts {
    hosts().into_iter().find(|(n, _)| *n == name).unwrap().1
}

/// Every failure that a step may report, as far as advice tells them apart.
fn every_advice() -> Vec<(Step, Errno, String)> {
    let mut all = Vec::new();
    for &step in Step::ALL {
        for number in 1..134 {
            let errno = Errno::from_raw(number);
            if errno == Errno::UnknownErrno {
                continue;
            }
            for (_, facts) in hosts() {
                for concern in [Concern::Cell, Concern::Caller] {
                    for (call, operand) in [("open_tree", "/usr"), ("fsmount", "/proc"), ("", "")] {
                        let error = failure(step, call, errno, operand);
                        let text = hint(&error, concern, &facts);
                        all.extend(text.map(|text| (step, errno, text)));
                    }
                }
            }
        }
    }
    all
}

/// Host, step, system call, errno, operand, whose it is; words of the advice.
type Row = (
    &'static str,
    Step,
    &'static str,
    Errno,
    &'static str,
    Concern,
    &'static [&'static str],
);

/// One row per line.
#[rustfmt::skip]
const TABLE: &[Row] = {
    use Concern::{Caller, Cell};
    use Errno as E;
    use Step as S;
    &[
        ("confined", S::Clone, "clone3", E::EACCES, "", Cell, &["`web-server`", "userns"]),
        ("confined", S::Hostname, "sethostname", E::EPERM, "cell", Cell, &["`web-server`"]),
        ("plain", S::Clone, "clone3", E::EOPNOTSUPP, "", Cell, &["--cgroup none"]),
        ("debian", S::Clone, "clone3", E::EPERM, "", Cell, &["sysctl -w kernel.unprivileged_userns_clone=1"]),
        ("ubuntu", S::Clone, "clone3", E::EPERM, "", Cell, &["apparmor", "cellblock doctor"]),
        ("ubuntu", S::Clone, "clone3", E::EACCES, "", Cell, &["apparmor", "cellblock doctor"]),
        ("docker", S::Clone, "clone3", E::EPERM, "", Cell, &["docker", "seccomp=unconfined"]),
        ("docker", S::Clone, "clone3", E::ENOSYS, "", Cell, &["docker", "seccomp=unconfined"]),
        ("podman", S::Clone, "clone3", E::EPERM, "", Cell, &["podman", "seccomp=unconfined"]),
        ("kubernetes", S::Clone, "clone3", E::EPERM, "", Cell, &["seccompProfile"]),
        ("sandbox", S::Clone, "clone3", E::ENOSYS, "", Cell, &["outside of it"]),
        ("plain", S::Clone, "clone3", E::ENOSYS, "", Cell, &["hides clone3"]),
        ("plain", S::Clone, "clone3", E::EPERM, "", Cell, &["chroot"]),
        ("plain", S::Clone, "clone3", E::EACCES, "", Cell, &["cgroup"]),
        ("plain", S::Clone, "clone3", E::EBUSY, "", Cell, &["its parent"]),
        ("plain", S::Clone, "clone3", E::EINVAL, "", Cell, &["CONFIG_USER_NS"]),
        ("plain", S::Clone, "clone3", E::EUSERS, "", Cell, &["nested"]),
        ("plain", S::Clone, "clone3", E::EAGAIN, "", Cell, &["ulimit -u"]),
        ("plain", S::Clone, "clone3", E::ENOSPC, "", Cell, &["is reached"]),
        ("limited", S::Clone, "clone3", E::ENOSPC, "", Cell, &["sysctl -w user.max_net_namespaces=10000 user.max_user_namespaces=10000`"]),
        ("root", S::IdMap, "write", E::EPERM, "/proc/7/uid_map", Cell, &["CAP_SETUID"]),
        ("ubuntu", S::IdMap, "write", E::EACCES, "/proc/7/uid_map", Cell, &["apparmor"]),
        ("plain", S::IdMap, "write", E::EPERM, "/proc/7/uid_map", Cell, &["security module"]),
        ("ubuntu", S::Network, "ioctl", E::EPERM, "", Cell, &["apparmor"]),
        ("plain", S::IdMap, "write", E::EROFS, "/proc/7/uid_map", Cell, &["mount -o remount,bind,rw /proc"]),
        ("service", S::IdMap, "write", E::EROFS, "/proc/7/uid_map", Cell, &["`ReadOnlyPaths=`"]),
        ("service", S::Mount, "openat2", E::ENOSYS, "/", Cell, &["agent.service", "systemctl edit agent.service", "`SystemCallFilter=openat2 fsopen`", "`RestrictSUIDSGID=no`"]),
        ("filtered", S::Mount, "openat2", E::ENOSYS, "/", Cell, &["denies openat2, fsopen", "seccomp=unconfined"]),
        ("filtered", S::Network, "socket", E::EAFNOSUPPORT, "AF_INET", Cell, &["denies openat2"]),
        ("plain", S::Network, "ioctl", E::EACCES, "", Cell, &["security module"]),
        ("filtered", S::Egress, "socket", E::EAFNOSUPPORT, "", Cell, &["denies openat2"]),
        ("plain", S::Egress, "sendto", E::EPERM, "", Cell, &["security module"]),
        ("plain", S::Egress, "bind", E::EACCES, "", Cell, &["security module"]),
        ("ubuntu", S::Hostname, "sethostname", E::EPERM, "cell", Cell, &["apparmor"]),
        ("plain", S::Hostname, "sethostname", E::EACCES, "cell", Cell, &["security module"]),
        ("plain", S::Ids, "setgroups", E::EPERM, "", Cell, &["security module"]),
        ("plain", S::Ids, "setresuid", E::EACCES, "", Cell, &["security module"]),
        ("plain", S::Capabilities, "capset", E::EPERM, "", Cell, &["security module"]),
        ("plain", S::Capabilities, "capset", E::EACCES, "", Cell, &["security module"]),
        ("plain", S::CgroupNamespace, "unshare", E::EPERM, "", Cell, &["security module"]),
        ("plain", S::CgroupNamespace, "unshare", E::EACCES, "", Cell, &["security module"]),
        ("docker", S::Mount, "fsmount", E::EPERM, "/proc", Cell, &["/proc/acpi, /proc/kcore, /proc/keys and 1 more", "systempaths=unconfined", "--without proc"]),
        ("podman", S::Mount, "fsmount", E::EPERM, "/proc", Cell, &["unmask=ALL"]),
        ("kubernetes", S::Mount, "fsmount", E::EPERM, "/proc", Cell, &["procMount"]),
        ("plain", S::Mount, "fsmount", E::EACCES, "/proc", Cell, &["security module"]),
        ("ubuntu", S::Mount, "open_tree", E::EACCES, "/usr", Cell, &["apparmor"]),
        ("docker", S::Mount, "move_mount", E::EACCES, "/tmp", Cell, &["apparmor=unconfined"]),
        ("plain", S::Mount, "open_tree", E::EACCES, "/srv/data", Caller, &["read the source"]),
        ("plain", S::Mount, "open_tree", E::ENOENT, "/srv/data", Caller, &["--ro SRC[:DST]"]),
        ("plain", S::Mount, "openat2", E::ENOENT, "/usr/x", Caller, &["no such path"]),
        ("plain", S::Mount, "mkdirat", E::EROFS, "/usr/x", Caller, &["no such path"]),
        ("plain", S::Mount, "openat2", E::ELOOP, "/usr/x", Caller, &["symbolic link"]),
        ("plain", S::Mount, "move_mount", E::ENOTDIR, "/usr/x", Caller, &["cover each other"]),
        ("plain", S::Mount, "move_mount", E::EINVAL, "/usr/x", Caller, &["cover each other"]),
        ("plain", S::Mount, "fsopen", E::ENODEV, "/dev/pts", Cell, &["lacks this file system"]),
        ("plain", S::Mount, "fsopen", E::ENODEV, "/data", Cell, &["`modprobe overlay`", "--files-from"]),
        ("plain", S::Stdio, "open_tree", E::ENOENT, "standard input", Caller, &["through a pipe"]),
        ("plain", S::CopyIn, "sendfile", E::ENOSPC, "a", Caller, &["--workspace-size"]),
        ("plain", S::CopyIn, "openat2", E::EEXIST, "a", Caller, &["another target"]),
        ("plain", S::CopyIn, "openat2", E::ENOTDIR, "a/b", Caller, &["below another file"]),
        ("plain", S::Pivot, "pivot_root", E::EINVAL, "", Cell, &["initial ramfs"]),
        ("ubuntu", S::Pivot, "pivot_root", E::EPERM, "", Cell, &["apparmor"]),
        ("docker", S::Pivot, "pivot_root", E::EACCES, "", Cell, &["apparmor=unconfined"]),
        ("docker", S::Nesting, "fsmount", E::EPERM, "", Cell, &["systempaths"]),
        ("plain", S::Nesting, "unshare", E::EEXIST, "", Cell, &["--without userns-limit"]),
        ("plain", S::Nesting, "fsopen", E::EMFILE, "", Cell, &["ulimit -n"]),
        ("plain", S::Seccomp, "seccomp", E::EMFILE, "", Cell, &["--open-files"]),
        ("plain", S::Seccomp, "seccomp", E::EBUSY, "", Cell, &["listens"]),
        ("plain", S::Seccomp, "seccomp", E::EINVAL, "", Cell, &["CONFIG_SECCOMP_FILTER"]),
        ("plain", S::Seccomp, "seccomp", E::ENOSYS, "", Cell, &["CONFIG_SECCOMP_FILTER"]),
        ("docker", S::Seccomp, "seccomp", E::EPERM, "", Cell, &["allow seccomp there"]),
        ("docker", S::Seccomp, "seccomp", E::EACCES, "", Cell, &["allow seccomp there"]),
        ("plain", S::Seccomp, "seccomp", E::EOPNOTSUPP, "", Cell, &["emulated"]),
        ("no-landlock", S::Landlock, "landlock_create_ruleset", E::EOPNOTSUPP, "", Cell, &["`lsm=landlock,yama,apparmor`"]),
        ("plain", S::Landlock, "landlock_create_ruleset", E::EOPNOTSUPP, "", Cell, &["`lsm=landlock,…`"]),
        ("plain", S::Landlock, "landlock_create_ruleset", E::ENOSYS, "", Cell, &["CONFIG_SECURITY_LANDLOCK"]),
        ("docker", S::Landlock, "landlock_create_ruleset", E::ENOSYS, "", Cell, &["hides landlock"]),
        ("plain", S::Landlock, "landlock_restrict_self", E::E2BIG, "", Cell, &["16 layers"]),
        ("plain", S::Landlock, "landlock_restrict_self", E::ENOENT, "/x", Caller, &["does not exist"]),
        ("plain", S::Chdir, "chdir", E::ENOENT, "/x", Caller, &["--cwd"]),
        ("plain", S::Exec, "execve", E::ENOENT, "x", Caller, &["--ro"]),
        ("plain", S::Exec, "execve", E::EACCES, "x", Caller, &["--no-exec"]),
        ("docker", S::Mount, "mkdirat", E::EACCES, "/workspace/.envrc", Caller, &["--unprotect"]),
        ("plain", S::Exec, "execve", E::ENOEXEC, "x", Caller, &["#!"]),
        ("plain", S::Exec, "execve", E::E2BIG, "x", Caller, &["--file"]),
    ]
};

#[test]
fn advice_fits_the_host() {
    for (name, step, call, errno, operand, concern, words) in TABLE {
        let error = failure(*step, call, *errno, operand);
        let text = hint(&error, *concern, &host(name)).unwrap_or_default();
        for word in *words {
            assert!(
                text.contains(word),
                "{name}: {error}: {text:?} lacks {word:?}"
            );
        }
    }
}

/// Steps that have one piece of advice for whatever error they meet.
const WHATEVER: [Step; 3] = [Step::Nesting, Step::Chdir, Step::Stdio];

#[test]
fn every_advice_is_in_the_table() {
    let tabled: BTreeSet<(Step, i32)> = TABLE.iter().map(|row| (row.1, row.3 as i32)).collect();
    for (step, errno, text) in every_advice() {
        let known = tabled.contains(&(step, errno as i32))
            || WHATEVER.contains(&step)
            || on_any_step(errno).is_some_and(|general| general == text);
        assert!(known, "{step:?} {errno:?}: {text}");
    }
}

#[test]
fn advice_is_lower_case_without_a_full_stop() {
    for (step, errno, text) in every_advice() {
        let first = text.chars().next().unwrap();
        assert!(!first.is_uppercase(), "{step:?} {errno:?}: {text}");
        assert!(
            !text.ends_with('.') && !text.contains(". "),
            "{step:?} {errno:?}: {text}"
        );
        assert!(
            !text.contains("  ") && !text.contains('\n'),
            "{step:?} {errno:?}: {text}"
        );
        assert_eq!(
            text.matches('`').count() % 2,
            0,
            "{step:?} {errno:?}: {text}"
        );
    }
}

/// One cause has one sentence, whichever step meets it; apart from these, no two
/// steps say the same.
#[test]
fn only_shared_causes_share_a_sentence() {
    let causes = [
        "apparmor takes",
        "apparmor confines",
        "a security module of this host",
        "and its security profile denies",
        "parts of the host's /proc are covered",
        "filters of the service",
        "a system call filter around this process",
    ];
    let mut steps: BTreeMap<String, BTreeSet<Step>> = BTreeMap::new();
    for (step, errno, text) in every_advice() {
        if on_any_step(errno).is_none_or(|general| general != text) {
            steps.entry(text).or_default().insert(step);
        }
    }
    for (text, steps) in steps {
        let shared = causes.iter().any(|cause| text.contains(cause));
        assert!(shared || steps.len() == 1, "{steps:?} share {text:?}");
    }
}

#[test]
fn what_is_unknown_gets_no_advice() {
    let facts = host("plain");
    let silent = SetupError::new(Step::Clone, "killed");
    assert_eq!(hint(&silent, Concern::Cell, &facts), None);
    let odd = failure(Step::Clone, "clone3", Errno::EXDEV, "");
    assert_eq!(hint(&odd, Concern::Cell, &facts), None);
}

#[test]
fn controllers_come_back_by_the_boot_line() {
    let facts = |systemd, v1: &[&str], disabled: &[&str]| Facts {
        systemd,
        cgroup_v1: v1.iter().map(ToString::to_string).collect(),
        cgroup_disabled: disabled.iter().map(ToString::to_string).collect(),
        ..Facts::default()
    };
    let hybrid = for_controllers(&["memory", "pids"], &facts(true, &["cpu", "memory"], &[]));
    assert_eq!(
        hybrid.unwrap(),
        "cgroup v1 has memory on this host: add `systemd.unified_cgroup_hierarchy=1` to the kernel command line and boot again, so that version 2 gets them"
    );
    let plain = for_controllers(&["memory"], &facts(false, &["memory"], &[])).unwrap();
    assert!(plain.contains("cgroup_no_v1=all"), "{plain}");
    let disabled = for_controllers(&["memory"], &facts(true, &["memory"], &["memory"])).unwrap();
    assert!(disabled.contains("cgroup_enable=memory"), "{disabled}");
    assert_eq!(
        for_controllers(&["pids"], &facts(true, &["memory"], &[])),
        None
    );
}

#[test]
fn the_profile_names_this_executable() {
    let mut facts = host("ubuntu");
    let profile = apparmor_profile(&facts).unwrap();
    assert!(
        profile.contains(
            "profile cellblock \"/usr/local/bin/cellblock\" flags=(unconfined) {\n  userns,\n"
        ),
        "{profile}"
    );
    facts.executable = Some("/opt/a b/c[1]*\"/cellblock".into());
    let profile = apparmor_profile(&facts).unwrap();
    assert!(
        profile.contains(r#""/opt/a b/c\[1\]\*\"/cellblock""#),
        "{profile}"
    );
    assert_eq!(apparmor_profile(&host("plain")), None);
}
