//! `cellblock doctor` on this host, and on hosts that lack something by real means: as
//! an unprivileged user in namespaces of its own, and in a cell.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use doctor::{Check, Report, SCHEMA, Status};

use crate::skip::skip;

mod filtered;
mod repaired;

/// Every check, in order.
const NAMES: [&str; 35] = [
    "kernel",
    "system-calls",
    "plan",
    "user-namespace",
    "id-maps",
    "capabilities",
    "pid-namespace",
    "mount-namespace",
    "network-namespace",
    "egress",
    "ipc-namespace",
    "uts-namespace",
    "cgroup-namespace",
    "tmpfs",
    "binds",
    "devices",
    "proc",
    "devpts",
    "pivot-root",
    "nesting-limit",
    "dropped-capabilities",
    "no-new-privs",
    "landlock",
    "seccomp",
    "seccomp-notify",
    "cgroup",
    "interpreter-python",
    "interpreter-javascript",
    "interpreter-typescript",
    "interpreter-r",
    "interpreter-java",
    "interpreter-bash",
    "executable-memory",
    "carried-state",
    "cell",
];

/// An id that no user has.
const NOBODY: &str = "4242";

/// The program, where every user can reach it.
struct Program {
    _directory: tempfile::TempDir,
    path: PathBuf,
}

impl Program {
    fn new() -> Self {
        let directory = tempfile::Builder::new()
            .permissions(Permissions::from_mode(0o755))
            .tempdir()
            .unwrap();
        let path = directory.path().join("cellblock");
        // Copied by another process: a child that another test forks meanwhile would
        // hold the copy open for writing, and the copy could not be executed.
        let copied = Command::new("cp")
            .arg(env!("CARGO_BIN_EXE_cellblock"))
            .arg(&path)
            .status();
        assert!(copied.unwrap().success());
        Self {
            _directory: directory,
            path,
        }
    }

    fn path(&self) -> &str {
        self.path.to_str().unwrap()
    }

    /// Runs it with `args` behind `before`, as a user without privileges.
    fn as_nobody(&self, before: &[&str], args: &[&str]) -> Output {
        let mut words = Vec::new();
        if is_root() {
            words.extend(["setpriv", "--reuid", NOBODY, "--regid", NOBODY]);
            words.push("--clear-groups");
        }
        words.extend(before);
        words.push(self.path());
        words.extend(args);
        run(&words)
    }

    /// Runs it with `args` after `script` has taken something from the host, as root of
    /// new user and mount namespaces.
    fn behind(&self, script: &str, args: &[&str]) -> Output {
        let script = format!("set -e; {script}\nexec \"$@\"");
        let before = ["unshare", "--user", "--map-root-user", "--mount"];
        let before = [&before[..], &["sh", "-c", &script, "sh"]].concat();
        self.as_nobody(&before, args)
    }

    /// The findings of `doctor` after `script` has taken something from the host, as
    /// root of new user and mount namespaces.
    fn on_a_worse_host(&self, script: &str) -> Findings {
        let script = format!("set -e; {script}; exec \"$@\"");
        let before = ["unshare", "--user", "--map-root-user", "--mount", "--net"];
        let before = [&before[..], &["sh", "-c", &script, "sh"]].concat();
        Findings::of(&self.as_nobody(&before, &["doctor", "--json"]))
    }
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

fn run(words: &[&str]) -> Output {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).current_dir("/");
    command.output().unwrap()
}

struct Findings {
    report: Report,
    json: serde_json::Value,
    status: Option<i32>,
}

impl Findings {
    fn of(output: &Output) -> Self {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let json = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {stderr}"));
        Self {
            report: serde_json::from_slice(&output.stdout).unwrap(),
            json,
            status: output.status.code(),
        }
    }

    fn check(&self, name: &str) -> &Check {
        let found = self.report.checks.iter().find(|check| check.name == name);
        found.unwrap_or_else(|| panic!("no check {name}"))
    }

    fn assert_status(&self, status: Status, names: &[&str]) {
        for name in names {
            let check = self.check(name);
            assert_eq!(check.status, status, "{check:?}");
        }
    }

    /// `name` failed with this errno, and its hint contains `words`.
    fn assert_fails(&self, name: &str, errno: &str, words: &[&str]) {
        let check = self.check(name);
        assert_eq!(check.status, Status::Fails, "{check:?}");
        let error = check.error.as_ref().unwrap();
        assert_eq!(error.errno_name.as_deref(), Some(errno), "{check:?}");
        for word in words {
            assert!(
                check.fixes.iter().any(|fix| fix.contains(word)),
                "{check:?} lacks {word}"
            );
        }
        assert_eq!(self.status, Some(1));
        assert!(!self.report.works);
    }

    /// Facts that hold on every host.
    fn assert_sound(&self) {
        let report = &self.report;
        assert_eq!(report.schema, SCHEMA);
        let names: Vec<&str> = report.checks.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, NAMES);
        let schema = serde_json::to_value(schemars::schema_for!(Report)).unwrap();
        let valid = jsonschema::validate(&schema, &self.json);
        assert!(valid.is_ok(), "{valid:?}");
        for check in &report.checks {
            let bad = matches!(check.status, Status::Fails);
            let is_optional =
                check.name.starts_with("interpreter-") || check.name == "carried-state";
            assert!(check.status != Status::Absent || is_optional, "{check:?}");
            assert!(!bad || check.error.is_some(), "{check:?}");
            assert!(
                check.status != Status::Works || check.fixes.is_empty(),
                "{check:?}"
            );
            for fix in &check.fixes {
                assert!(
                    !fix.ends_with('.') && !fix.starts_with(char::is_uppercase),
                    "{fix}"
                );
            }
        }
        let well = |check: &Check| !matches!(check.status, Status::Fails | Status::Untried);
        assert_eq!(report.works, report.checks.iter().all(well));
        assert_eq!(self.status, Some(i32::from(!report.works)));
    }
}

fn available(tool: &str) -> bool {
    let found = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"]
        .iter()
        .any(|directory| Path::new(directory).join(tool).exists());
    if !found {
        skip(format_args!("there is no {tool} here"));
    }
    found
}

#[test]
fn the_verdict_is_what_a_caller_meets() {
    let program = Program::new();
    let findings = Findings::of(&run(&[program.path(), "doctor", "--json"]));
    findings.assert_sound();
    let exec = run(&[program.path(), "exec", "--", "true"]);
    assert_eq!(findings.report.works, exec.status.success(), "{exec:?}");
}

#[test]
fn a_user_without_privileges_is_told_of_its_own_ids() {
    let program = Program::new();
    let findings = Findings::of(&program.as_nobody(&[], &["doctor", "--json"]));
    findings.assert_sound();
    let uid = findings.report.host.facts.uid;
    assert_ne!(uid, 0);
    let exec = program.as_nobody(&[], &["exec", "--", "true"]);
    assert_eq!(findings.report.works, exec.status.success(), "{exec:?}");
    if findings.report.works {
        let detail = &findings.check("id-maps").detail;
        assert_eq!(*detail, format!("uid 1000 inside is {uid} outside"));
    }
}

#[test]
fn text_goes_to_a_pipe_without_colour() {
    let program = Program::new();
    let output = run(&[program.path(), "doctor"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains('\x1b'), "{text}");
    for name in NAMES {
        assert!(
            text.lines()
                .any(|line| line.split_whitespace().nth(1) == Some(name)),
            "{name}"
        );
    }
}

#[test]
fn a_limit_of_no_user_namespaces_is_named() {
    if !available("unshare") {
        return;
    }
    let program = Program::new();
    let findings = program.on_a_worse_host("echo 0 >/proc/sys/user/max_user_namespaces");
    findings.assert_sound();
    let fix = "sysctl -w user.max_user_namespaces=10000";
    findings.assert_fails("user-namespace", "ENOSPC", &[fix]);
    findings.assert_fails("cell", "ENOSPC", &[fix]);
    findings.assert_status(
        Status::Untried,
        &["id-maps", "proc", "nesting-limit", "network-namespace"],
    );
    findings.assert_status(
        Status::Works,
        &["no-new-privs", "landlock", "seccomp", "seccomp-notify"],
    );
}

#[test]
fn a_limit_of_one_kind_is_found_among_the_others() {
    if !available("unshare") {
        return;
    }
    let program = Program::new();
    let findings = program.on_a_worse_host("echo 0 >/proc/sys/user/max_net_namespaces");
    findings.assert_sound();
    let fix = "sysctl -w user.max_net_namespaces=10000`";
    findings.assert_fails("network-namespace", "ENOSPC", &[fix]);
    findings.assert_status(
        Status::Works,
        &["user-namespace", "pid-namespace", "proc", "pivot-root"],
    );
}

#[test]
fn a_covered_proc_is_found_and_the_way_out_works() {
    if !available("unshare") {
        return;
    }
    let program = Program::new();
    let cover = "mount --bind /dev/null /proc/version";
    let findings = program.on_a_worse_host(cover);
    findings.assert_sound();
    let words = ["/proc/version", "--without proc --without userns-limit"];
    findings.assert_fails("proc", "EPERM", &words);
    findings.assert_fails("cell", "EPERM", &words);
    // One masked file does not hide the settings; read-only settings are reached
    // through the cell's own `/proc`; without either there is no limit.
    findings.assert_status(
        Status::Works,
        &["tmpfs", "binds", "devpts", "nesting-limit"],
    );
    let read_only = "mount --rbind /proc/sys /proc/sys && mount -o remount,ro,bind /proc/sys";
    let findings = program.on_a_worse_host(read_only);
    findings.assert_fails(
        "nesting-limit",
        "EPERM",
        &["/proc/sys", "--without userns-limit"],
    );

    let with_fix = [
        "exec",
        "--without",
        "proc",
        "--without",
        "userns-limit",
        "--",
        "true",
    ];
    let output = program.behind(cover, &with_fix);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_sandbox_around_it_is_recognised() {
    let program = Program::new();
    let show = format!("{}:/mnt/cellblock", program.path());
    let inside = [
        "exec",
        "--ro",
        &show,
        "--",
        "/mnt/cellblock",
        "doctor",
        "--json",
    ];
    let output = program.as_nobody(&[], &inside);
    assert_ne!(output.status.code(), Some(125), "{output:?}");
    let findings = Findings::of(&output);
    findings.assert_sound();
    findings.assert_fails(
        "user-namespace",
        "ENOSYS",
        &["a system call filter around this process", "outside of it"],
    );
}
