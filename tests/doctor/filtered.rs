//! Hosts whose system call filters are in the way, as service managers and
//! containers install them: `exec` fails and names the cause, `doctor` names the
//! same, and once the calls that they name are let through, both work.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output};

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Length, SeccompCmpOp as Op, SeccompCondition,
    SeccompFilter, SeccompRule, apply_filter,
};

use super::{Findings, NOBODY, Program, is_root};
use crate::skip::skip;

/// A call, and which of its arguments must have which bits to be denied.
type Denied = (&'static str, Option<(u8, u64, u64)>);

/// The rules of a filter.
struct Filter {
    action: SeccompAction,
    calls: Vec<Denied>,
}

/// Calls by name, whatever their arguments.
fn named(action: SeccompAction, names: &[&'static str]) -> Filter {
    Filter {
        action,
        calls: names.iter().map(|name| (*name, None)).collect(),
    }
}

const ENOSYS: SeccompAction = SeccompAction::Errno(libc::ENOSYS as u32);
const EPERM: SeccompAction = SeccompAction::Errno(libc::EPERM as u32);
const EAFNOSUPPORT: SeccompAction = SeccompAction::Errno(libc::EAFNOSUPPORT as u32);
const KILL: SeccompAction = SeccompAction::KillProcess;

const MOUNT: [&str; 12] = [
    "chroot",
    "fsconfig",
    "fsmount",
    "fsopen",
    "fspick",
    "mount",
    "mount_setattr",
    "move_mount",
    "open_tree",
    "pivot_root",
    "umount2",
    "swapon",
];
/// Calls that services commonly deny as well.
const BEYOND_SERVICES: [&str; 6] = [
    "landlock_create_ruleset",
    "landlock_add_rule",
    "landlock_restrict_self",
    "sethostname",
    "setdomainname",
    "seccomp",
];

fn restrict_suid_sgid() -> Vec<Filter> {
    let set_user_id = Filter {
        action: EPERM,
        calls: vec![("fchmod", Some((1, 0o4000, 0o4000)))],
    };
    vec![named(ENOSYS, &["openat2"]), set_user_id]
}

fn restrict_namespaces() -> Vec<Filter> {
    const NEW_USER: u64 = libc::CLONE_NEWUSER as u64;
    let flags = Filter {
        action: EPERM,
        calls: vec![
            ("setns", Some((1, u64::MAX, 0))),
            ("unshare", Some((0, NEW_USER, NEW_USER))),
        ],
    };
    vec![named(ENOSYS, &["clone3"]), flags]
}

fn protect_host_name() -> Vec<Filter> {
    vec![named(EPERM, &["sethostname", "setdomainname"])]
}

fn restrict_families() -> Vec<Filter> {
    let inet = (0, u64::MAX, libc::AF_INET as u64);
    vec![Filter {
        action: EAFNOSUPPORT,
        calls: vec![("socket", Some(inet))],
    }]
}

fn docker() -> Vec<Filter> {
    let with_admin = ["unshare", "setns", "sethostname", "setdomainname"];
    vec![
        named(ENOSYS, &["clone3"]),
        named(EPERM, &with_admin),
        named(EPERM, &MOUNT),
    ]
}

fn everything() -> Vec<Filter> {
    let mut all = restrict_suid_sgid();
    all.extend(restrict_namespaces());
    all.extend(protect_host_name());
    all.extend(restrict_families());
    all.push(named(KILL, &MOUNT));
    all.push(named(KILL, &BEYOND_SERVICES));
    all
}

/// Name, filters, and calls that must be named.
type Host = (&'static str, fn() -> Vec<Filter>, &'static [&'static str]);

const HOSTS: [Host; 10] = [
    ("set-user-ID bits", restrict_suid_sgid, &["openat2"]),
    ("namespaces", restrict_namespaces, &["clone3", "unshare"]),
    ("host name", protect_host_name, &["sethostname"]),
    ("address families", restrict_families, &["AF_INET"]),
    (
        "mounts, killed",
        || vec![named(KILL, &MOUNT)],
        &["fsopen", "pivot_root"],
    ),
    (
        "mounts, EPERM",
        || vec![named(EPERM, &MOUNT)],
        &["fsopen", "pivot_root"],
    ),
    (
        "services' list, killed",
        || vec![named(KILL, &MOUNT), named(KILL, &BEYOND_SERVICES)],
        &["landlock_create_ruleset", "seccomp", "open_tree"],
    ),
    (
        "landlock, EPERM",
        || vec![named(EPERM, &BEYOND_SERVICES[..3])],
        &["landlock_create_ruleset"],
    ),
    (
        "a container's",
        docker,
        &["clone3", "unshare", "move_mount"],
    ),
    (
        "everything at once",
        everything,
        &[
            "clone3", "openat2", "fsopen", "seccomp", "AF_INET", "unshare",
        ],
    ),
];

fn number(name: &str) -> i64 {
    match name {
        "chroot" => libc::SYS_chroot,
        "clone3" => libc::SYS_clone3,
        "fchmod" => libc::SYS_fchmod,
        "fsconfig" => libc::SYS_fsconfig,
        "fsmount" => libc::SYS_fsmount,
        "fsopen" => libc::SYS_fsopen,
        "fspick" => libc::SYS_fspick,
        "landlock_add_rule" => libc::SYS_landlock_add_rule,
        "landlock_create_ruleset" => libc::SYS_landlock_create_ruleset,
        "landlock_restrict_self" => libc::SYS_landlock_restrict_self,
        "mount" => libc::SYS_mount,
        "mount_setattr" => libc::SYS_mount_setattr,
        "move_mount" => libc::SYS_move_mount,
        "open_tree" => libc::SYS_open_tree,
        "openat2" => libc::SYS_openat2,
        "pivot_root" => libc::SYS_pivot_root,
        "seccomp" => libc::SYS_seccomp,
        "setdomainname" => libc::SYS_setdomainname,
        "sethostname" => libc::SYS_sethostname,
        "setns" => libc::SYS_setns,
        "socket" => libc::SYS_socket,
        "swapon" => libc::SYS_swapon,
        "umount2" => libc::SYS_umount2,
        "unshare" => libc::SYS_unshare,
        other => panic!("{other}"),
    }
}

/// The filters' programs, with the calls in `allowed` let through.
fn programs(filters: Vec<Filter>, allowed: &[String]) -> Vec<BpfProgram> {
    let lets_through = |name: &str| {
        let name = if name == "socket" { "AF_INET" } else { name };
        allowed.iter().any(|known| known == name)
    };
    let compile = |filter: Filter| {
        let calls = filter.calls.iter().filter(|(name, _)| !lets_through(name));
        let rules: BTreeMap<i64, Vec<SeccompRule>> = calls
            .map(|(name, argument)| {
                let rule = argument.map(|(index, mask, value)| {
                    let condition =
                        SeccompCondition::new(index, Length::Dword, Op::MaskedEq(mask), value);
                    SeccompRule::new(vec![condition.unwrap()]).unwrap()
                });
                (number(name), rule.into_iter().collect())
            })
            .collect();
        if rules.is_empty() {
            return None;
        }
        let arch = std::env::consts::ARCH.try_into().unwrap();
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, filter.action, arch).unwrap();
        Some(filter.try_into().unwrap())
    };
    filters.into_iter().filter_map(compile).collect()
}

fn run_under(program: &Program, args: &[&str], filters: Vec<BpfProgram>) -> Output {
    let mut command = Command::new(program.path());
    command.args(args).current_dir("/");
    if is_root() {
        let nobody: u32 = NOBODY.parse().unwrap();
        command.uid(nobody).gid(nobody);
    }
    // SAFETY: the child makes system calls on memory that was prepared before.
    unsafe {
        command.pre_exec(move || {
            for filter in &filters {
                apply_filter(filter).map_err(|_| std::io::Error::last_os_error())?;
            }
            Ok(())
        });
    }
    command.output().unwrap()
}

/// The calls that the findings name as denied, as a hint lists them.
fn denied_by(findings: &Findings) -> Vec<String> {
    let filters = &findings.report.host.facts.filters;
    let calls = filters.denied.iter().map(|call| call.name.clone());
    let unshare = filters.namespaces.then(|| "unshare".to_owned());
    calls
        .chain(unshare)
        .chain(filters.families.clone())
        .collect()
}

#[test]
fn what_filters_deny_is_named_all_at_once_and_letting_it_through_is_enough() {
    let program = Program::new();
    if !Findings::of(&run_under(&program, &["doctor", "--json"], Vec::new()))
        .report
        .works
    {
        return skip("no cell works here without these filters");
    }
    for (name, filters, expected) in HOSTS {
        let doctor = run_under(&program, &["doctor", "--json"], programs(filters(), &[]));
        let findings = Findings::of(&doctor);
        findings.assert_sound();
        assert!(!findings.report.works, "{name}");
        let denied = denied_by(&findings);
        for call in expected {
            assert!(
                denied.iter().any(|known| known == call),
                "{name}: {denied:?}"
            );
        }
        let fixes = &findings.check("system-calls").fixes;
        // In a container, the fix is an option of its engine.
        let is_whole = |fix: &str| {
            fix.contains(&format!("denies {}:", denied.join(", "))) || fix.contains("container")
        };
        assert!(fixes.len() == 1 && is_whole(&fixes[0]), "{name}: {fixes:?}");
        assert!(
            fixes[0].contains("--security-opt seccomp=unconfined"),
            "{name}: {fixes:?}"
        );

        // The error is about one of them, and its hint is the same fix.
        let failed = run_under(&program, &["exec", "--", "true"], programs(filters(), &[]));
        assert_eq!(failed.status.code(), Some(125), "{name}: {failed:?}");
        let stderr = String::from_utf8_lossy(&failed.stderr);
        let error = stderr.split_once("hint: ").map(|(error, _)| error);
        assert!(
            error.is_some_and(|error| denied.iter().any(|call| error.contains(call))),
            "{name}: {stderr}"
        );
        assert!(stderr.contains(&fixes[0]), "{name}: {stderr}");

        let through = || programs(filters(), &denied);
        let works = run_under(&program, &["exec", "--", "true"], through());
        assert!(works.status.success(), "{name}: {denied:?}: {works:?}");
        let findings = Findings::of(&run_under(&program, &["doctor", "--json"], through()));
        assert!(findings.report.works, "{name}: {:?}", findings.report);
    }
}

/// Doctor does not report a layer that is given up.
#[test]
fn without_landlock_its_calls_may_be_denied() {
    let program = Program::new();
    let kill = || programs(vec![named(KILL, &BEYOND_SERVICES[..3])], &[]);
    let refused = run_under(&program, &["exec", "--", "true"], kill());
    assert_eq!(refused.status.code(), Some(125), "{refused:?}");
    let args = ["exec", "--without", "landlock", "--", "true"];
    let works = run_under(&program, &args, kill());
    let usual = run_under(&program, &args, Vec::new());
    assert_eq!(works.status.code(), usual.status.code(), "{works:?}");
}
