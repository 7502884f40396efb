//! Hosts whose mounts, ids or limits are in the way: `exec` and `doctor` name the
//! cause and a command, and after that command a cell works.

use std::process::Output;

use super::{Findings, Program, available, is_root, run};
use crate::skip::skip;

/// The commands that a hint gives.
fn commands(hint: &str) -> Vec<String> {
    hint.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

fn hint_of(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    stderr
        .split_once("hint: ")
        .unwrap_or_else(|| panic!("{stderr}"))
        .1
        .to_owned()
}

/// What the host lacks, and the command that repairs it.
const HOSTS: [(&str, &str); 4] = [
    (
        "mount -o remount,bind,ro /proc",
        "mount -o remount,bind,rw /proc",
    ),
    (
        "echo 0 >/proc/sys/user/max_user_namespaces",
        "sysctl -w user.max_user_namespaces=10000",
    ),
    (
        "echo 0 >/proc/sys/user/max_ipc_namespaces; echo 0 >/proc/sys/user/max_net_namespaces",
        "sysctl -w user.max_ipc_namespaces=10000 user.max_net_namespaces=10000",
    ),
    (
        "echo 1 >/proc/sys/user/max_mnt_namespaces",
        "sysctl -w user.max_mnt_namespaces=10000",
    ),
];

#[test]
fn the_command_of_a_hint_is_enough() {
    if !available("unshare") || !available("sysctl") {
        return;
    }
    let program = Program::new();
    let exec = ["exec", "--", "true"];
    if !program.behind("", &exec).status.success() {
        return skip("no cell works in a user namespace here");
    }
    for (worse, command) in HOSTS {
        let hint = hint_of(&program.behind(worse, &exec));
        assert_eq!(commands(&hint)[..1], [command], "{worse}: {hint}");
        let doctor = program.behind(worse, &["doctor", "--json"]);
        let findings = Findings::of(&doctor);
        findings.assert_sound();
        let fixes = findings.report.checks.iter().flat_map(|check| &check.fixes);
        assert!(
            fixes.into_iter().any(|fix| fix.contains(command)),
            "{worse}: {doctor:?}"
        );
        let repaired = program.behind(&format!("{worse}\n{command} >/dev/null"), &exec);
        assert!(repaired.status.success(), "{worse}: {repaired:?}");
    }
}

#[test]
fn root_without_other_ids_is_told_how_to_get_some() {
    if !is_root() || !available("unshare") {
        return skip("only root can make such a user namespace");
    }
    let program = Program::new();
    let exec = [program.path(), "exec", "--", "true"];
    let lone = [&["unshare", "--user", "--map-root-user"], &exec[..]].concat();
    let failed = run(&lone);
    let stderr = String::from_utf8_lossy(&failed.stderr);
    assert!(stderr.contains("the only id here is root's"), "{stderr}");
    let hint = hint_of(&failed);
    let command = commands(&hint).swap_remove(0);
    let doctor = [
        &["unshare", "--user", "--map-root-user"][..],
        &[program.path(), "doctor", "--json"],
    ];
    let findings = Findings::of(&run(&doctor.concat()));
    assert!(
        findings.check("plan").fixes[0].contains(&command),
        "{command}"
    );
    let words: Vec<&str> = command.split(' ').chain(exec).collect();
    let repaired = run(&words);
    assert!(repaired.status.success(), "{command}: {repaired:?}");
}
