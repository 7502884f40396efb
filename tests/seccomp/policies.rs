//! The policies as files, and the programs that they become.

use plan::seccomp::{Arch, BUILTIN, Errno, Policy, Unheld, Verdict, compile, precompiled};
use record::error::Step;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use serde_json::{Value, json};

use super::declared::{self, ALLOW, ENOSYS};
use super::machine::{self, Data};

fn builtin() -> impl Iterator<Item = Policy> {
    BUILTIN
        .iter()
        .map(|(name, _)| Policy::builtin(name).unwrap())
}

/// Asserts that the policy's program answers as the policy declares, for every
/// call number and for arguments on both sides of every condition.
pub(crate) fn assert_as_declared(policy: &Policy) {
    let combinations = match policy.fallbacks.first_key_value() {
        Some(_) => &Unheld::ALL[..],
        None => &Unheld::ALL[..1],
    };
    let variants = Arch::ALL
        .into_iter()
        .flat_map(|arch| combinations.iter().map(move |unheld| (arch, *unheld)));
    for ((arch, unheld), notify) in variants.flat_map(|v| [(v, false), (v, true)]) {
        let program = compile(policy, arch, notify, unheld).unwrap().program;
        machine::check(&program);
        for nr in declared::numbers() {
            let rule = declared::rule(policy, (arch, unheld), nr);
            for args in declared::arguments(rule) {
                let data = Data {
                    nr,
                    arch: arch.audit(),
                    args,
                };
                let (got, wanted) = (
                    machine::run(&program, &data),
                    declared::answer(rule, (arch, unheld), notify, &data),
                );
                assert_eq!(
                    got,
                    wanted,
                    "{arch:?} {unheld:?} {:?} {data:x?}",
                    arch.name(nr)
                );
            }
        }
    }
}

#[test]
fn programs_do_what_their_policies_say() {
    builtin().for_each(|policy| assert_as_declared(&policy));
}

#[test]
fn another_architecture_is_killed_whatever_it_calls() {
    const I386: u32 = 0x4000_0003;
    for policy in builtin() {
        for arch in Arch::ALL {
            let program = compile(&policy, arch, false, Unheld::default())
                .unwrap()
                .program;
            let others = Arch::ALL.into_iter().filter(|other| *other != arch);
            for other in others.map(Arch::audit).chain([I386, 0, u32::MAX]) {
                for nr in declared::numbers() {
                    let data = Data {
                        nr,
                        arch: other,
                        args: [0; 6],
                    };
                    assert_eq!(machine::run(&program, &data), declared::KILL);
                }
            }
        }
    }
}

#[test]
fn built_in_policies_are_what_the_files_say_now() {
    for (policy, (name, description)) in builtin().zip(BUILTIN) {
        assert_eq!((&*policy.name, &*policy.description), (*name, *description));
        for notify in [false, true] {
            for unheld in Unheld::ALL {
                let fresh = compile(&policy, Arch::NATIVE, notify, unheld).unwrap();
                assert_eq!(precompiled(name, notify, unheld), Some(&fresh));
                assert_eq!(fresh.digest.len(), 64);
            }
        }
    }
    assert_eq!(
        precompiled("no-such-policy", false, Unheld::default()),
        None
    );
}

#[test]
fn every_name_is_a_call_of_this_very_name_somewhere() {
    for policy in builtin() {
        for call in policy.rules.keys() {
            let of = |arch: Arch| arch.number(call).and_then(|number| arch.name(number));
            assert!(
                Arch::ALL.into_iter().any(|arch| of(arch) == Some(call)),
                "{call}"
            );
        }
    }
    // Where the two architectures differ.
    assert_eq!(Arch::X86_64.number("open"), Some(2));
    assert_eq!(Arch::Aarch64.number("open"), None);
    assert_eq!(Arch::X86_64.number("newfstatat"), Some(262));
    assert_eq!(Arch::Aarch64.number("newfstatat"), Some(79));
    assert_eq!(Arch::Aarch64.name(79), Some("newfstatat"));
}

/// The attack catalogue names these; a policy that allows one by mistake must not count
/// as sound.
#[test]
fn dangerous_calls_are_denied_by_every_built_in_policy() {
    let dangerous = [
        "mount",
        "umount2",
        "pivot_root",
        "chroot",
        "move_mount",
        "open_tree",
        "open_tree_attr",
        "mount_setattr",
        "fsopen",
        "fsconfig",
        "fsmount",
        "fspick",
        "unshare",
        "setns",
        "ptrace",
        "process_vm_readv",
        "process_vm_writev",
        "kcmp",
        "pidfd_getfd",
        "bpf",
        "perf_event_open",
        "userfaultfd",
        "io_uring_setup",
        "io_uring_enter",
        "io_uring_register",
        "keyctl",
        "add_key",
        "request_key",
        "kexec_load",
        "kexec_file_load",
        "init_module",
        "finit_module",
        "delete_module",
        "swapon",
        "swapoff",
        "reboot",
        "quotactl",
        "quotactl_fd",
        "open_by_handle_at",
        "name_to_handle_at",
        "syslog",
        "acct",
        "settimeofday",
        "clock_settime",
        "clock_adjtime",
        "adjtimex",
        "iopl",
        "ioperm",
        "modify_ldt",
        "lookup_dcookie",
        "vhangup",
        "nfsservctl",
        "fanotify_init",
    ];
    for policy in builtin() {
        for arch in Arch::ALL {
            let compiled = compile(&policy, arch, true, Unheld::default()).unwrap();
            let is_debugger = |call: &&str| ["ptrace", "process_vm_readv"].contains(call);
            for call in dangerous {
                if policy.name == "debug" && is_debugger(&call) {
                    continue;
                }
                let Some(nr) = arch.number(call) else {
                    continue;
                };
                let data = Data {
                    nr,
                    arch: arch.audit(),
                    args: [u64::MAX; 6],
                };
                assert_eq!(
                    machine::run(&compiled.program, &data),
                    declared::NOTIFY,
                    "{call}"
                );
                let denial = compiled.denial(nr as i32).unwrap();
                assert_eq!((denial.name, denial.errno), (call, 1));
                assert!(!denial.reason.is_empty());
            }
        }
    }
}

#[test]
fn only_calls_that_can_be_denied_have_a_denial() {
    let compiled = precompiled("default", true, Unheld::default()).unwrap();
    let denial = |call| compiled.denial(Arch::NATIVE.number(call).unwrap() as i32);
    assert_eq!(denial("socket").map(|denial| denial.errno), Some(97));
    assert_eq!(denial("clone").map(|denial| denial.name), Some("clone"));
    assert_eq!(denial("read"), None);
    assert_eq!(denial("clone3"), None);
    assert_eq!(compiled.denial(-1), None);
}

#[test]
fn strict_executes_nothing_that_is_in_no_directory() {
    let (default, strict) = (
        Policy::builtin("default").unwrap(),
        Policy::builtin("strict").unwrap(),
    );
    for call in ["memfd_create", "execveat"] {
        assert!(!matches!(
            default.rules.get(call).unwrap().verdict,
            Verdict::Deny { .. }
        ));
        assert!(matches!(
            strict.rules.get(call).unwrap().verdict,
            Verdict::Deny { .. }
        ));
    }
    assert_eq!(
        strict.rules.get("read"),
        default.rules.get("read"),
        "what is not overridden is inherited"
    );
}

/// A second opinion on the whole: seccompiler alone can express a policy that only
/// allows and ignores.
#[test]
fn a_policy_of_two_actions_equals_plain_seccompiler() {
    let mut json: Value =
        serde_json::from_str(include_str!("../../policies/seccomp/default.json")).unwrap();
    let groups = json["rules"].as_array_mut().unwrap();
    groups.retain(|group| group["action"] == "allow" || group["action"] == "allow_if");
    for group in groups
        .iter_mut()
        .filter(|group| group["action"] == "allow_if")
    {
        group["errno"] = json!("ENOSYS");
    }
    let policy = Policy::parse(&json.to_string()).unwrap();
    for (arch, target) in [
        (Arch::X86_64, TargetArch::x86_64),
        (Arch::Aarch64, TargetArch::aarch64),
    ] {
        let ours = compile(&policy, arch, false, Unheld::default())
            .unwrap()
            .program;
        let plain = plain(&policy, arch, target);
        let mut steps = [0, 0];
        for nr in
            declared::numbers().filter(|nr| arch.audit() != Arch::X86_64.audit() || nr >> 30 != 1)
        {
            let rule = declared::rule(&policy, (arch, Unheld::default()), nr);
            for args in declared::arguments(rule) {
                let data = Data {
                    nr,
                    arch: arch.audit(),
                    args,
                };
                assert_eq!(
                    machine::run(&ours, &data),
                    machine::run(&plain, &data),
                    "{data:x?}"
                );
            }
        }
        for nr in 0..470 {
            let walks = [&*ours, &plain].map(|program| machine::walk(program, arch.audit(), nr));
            assert_eq!(walks[0].0, walks[1].0, "what the kernel can cache");
            steps = [steps[0] + walks[0].1, steps[1] + walks[1].1];
        }
        // Loading costs a fixed amount, one unit per instruction, and the walk.
        assert!(
            ours.len() * 7 < plain.len(),
            "{} against {}",
            ours.len(),
            plain.len()
        );
        assert!(steps[0] * 20 < steps[1], "{steps:?}");
    }
}

fn plain(policy: &Policy, arch: Arch, target: TargetArch) -> Vec<plan::seccomp::Insn> {
    let rules = policy.rules.iter().filter_map(|(call, rule)| {
        let alternatives = match &rule.verdict {
            Verdict::AllowIf { when, .. } => when.as_slice(),
            _ => &[],
        };
        let rule = |alternative: &Vec<_>| {
            SeccompRule::new(alternative.iter().map(condition).collect()).unwrap()
        };
        Some((
            i64::from(arch.number(call)?),
            alternatives.iter().map(rule).collect(),
        ))
    });
    let absent = SeccompAction::Errno(38);
    let filter = SeccompFilter::new(rules.collect(), absent, SeccompAction::Allow, target).unwrap();
    BpfProgram::try_from(filter)
        .unwrap()
        .into_iter()
        .map(Into::into)
        .collect()
}

fn condition(condition: &plan::seccomp::Condition) -> SeccompCondition {
    let operator = condition
        .mask
        .map_or(SeccompCmpOp::Eq, SeccompCmpOp::MaskedEq);
    SeccompCondition::new(
        condition.arg,
        SeccompCmpArgLen::Dword,
        operator,
        condition.value,
    )
    .unwrap()
}

#[test]
fn calls_that_argue_about_nothing_are_cached_by_the_kernel() {
    for policy in builtin() {
        for arch in Arch::ALL {
            let program = compile(&policy, arch, true, Unheld::default())
                .unwrap()
                .program;
            for (nr, call) in arch.calls() {
                let verdict = policy.rules.get(call).map(|rule| &rule.verdict);
                let wanted = match verdict {
                    Some(Verdict::AllowIf { .. } | Verdict::DenyIf { .. } | Verdict::OwnIds) => {
                        None
                    }
                    Some(Verdict::Allow) => Some(ALLOW),
                    Some(Verdict::Deny { .. } | Verdict::Answer) => Some(declared::NOTIFY),
                    _ => Some(ENOSYS),
                };
                assert_eq!(
                    machine::walk(&program, arch.audit(), nr).0,
                    wanted,
                    "{call}"
                );
            }
        }
    }
}

/// A sound policy, changed by `change`, must be refused with these words.
fn assert_refused(change: impl Fn(&mut Value), message: &str, hint: Option<&str>) {
    let mut policy = json!({
        "name": "own", "description": "a test", "rules": [
            {"action": "allow", "reason": "to run", "calls": ["execve", "exit_group", "write"]},
            {"action": "allow_if", "reason": "a test", "calls": ["ioctl"],
             "when": [[{"arg": 1, "bits": 32, "value": "0x5401", "means": "TCGETS"}]]},
        ],
    });
    Policy::parse(&policy.to_string()).unwrap();
    change(&mut policy);
    let error = Policy::parse(&policy.to_string()).unwrap_err();
    assert_eq!(error.step, Step::Spec);
    assert!(error.to_string().contains(message), "{error}");
    assert_eq!(error.hint.as_deref(), hint, "{error}");
}

#[test]
fn unsound_policies_are_refused_with_the_way_out() {
    let call =
        |name: &'static str| move |policy: &mut Value| policy["rules"][0]["calls"][2] = json!(name);
    assert_refused(
        call("wriet"),
        "rules[0]: there is no system call \"wriet\"",
        Some("did you mean \"write\"?"),
    );
    assert_refused(call("#"), "rules[0]: there is no system call \"#\"", None);
    assert_refused(
        call("read"),
        "write: must be allowed",
        Some("cellblock itself needs it to start the program, or to say why it cannot"),
    );
    assert_refused(call("ioctl"), "rules[1]: ioctl has a rule already", None);
    assert_refused(
        |policy: &mut Value| policy["rules"][0]["action"] = json!("answer"),
        "rules[0]: cellblock cannot answer ",
        Some("\"answer\" goes with: sysinfo"),
    );
    assert_refused(
        |policy: &mut Value| policy["rules"][0]["action"] = json!("count"),
        "rules[0]: cellblock cannot count the memory of ",
        Some("\"count\" goes with: mmap, msgget, semget, shmget"),
    );
    let rule = |key: &'static str, value: Value| {
        move |policy: &mut Value| policy["rules"][1][key] = value.clone()
    };
    assert_refused(
        rule("reason", json!(" ")),
        "rules[1]: a rule needs a reason",
        None,
    );
    assert_refused(
        rule("calls", json!([])),
        "rules[1]: a rule needs calls",
        None,
    );
    assert_refused(
        rule("action", json!("allow")),
        "\"when\" goes with allow_if, deny_if and count",
        None,
    );
    assert_refused(
        rule("when", json!([])),
        "\"when\" goes with allow_if, deny_if and count",
        None,
    );
    assert_refused(
        rule("when", json!([[]])),
        "rules[1].when[0]: an alternative needs conditions",
        None,
    );
    assert_refused(rule("whne", json!([])), "unknown field `whne`", None);
    assert_refused(rule("action", json!("log")), "unknown variant `log`", None);
    let errno = |policy: &mut Value| policy["rules"][0]["errno"] = json!("EPERM");
    assert_refused(
        errno,
        "rules[0]: \"errno\" goes with deny, deny_if and allow_if only",
        None,
    );
    let condition = |key: &'static str, value: Value| {
        move |policy: &mut Value| policy["rules"][1]["when"][0][0][key] = value.clone()
    };
    assert_refused(
        condition("arg", json!(6)),
        "rules[1].when[0]: argument 6 does not exist",
        None,
    );
    assert_refused(
        condition("bits", json!(16)),
        "bits 16: either 32 or 64",
        None,
    );
    assert_refused(
        condition("value", json!("5401")),
        "\"5401\" is not hexadecimal",
        None,
    );
    assert_refused(
        condition("value", json!("0x100005401")),
        "0x100005401 has bits outside of 0xffffffff: it never holds",
        None,
    );
    assert_refused(
        condition("value", json!("0x7ec01d5e")),
        "0x7ec01d5e is reserved",
        None,
    );
    assert_refused(
        condition("mask", json!("0x1ffffffff")),
        "the mask 0x1ffffffff has bits that do not count",
        Some("write \"bits\": 64"),
    );
    let top =
        |key: &'static str, value: Value| move |policy: &mut Value| policy[key] = value.clone();
    assert_refused(
        top("extends", json!("defualt")),
        "defualt: there is no such seccomp policy",
        Some("one of: default, debug, no-unix-sockets, strict"),
    );
    assert_refused(
        top("name", json!("../x")),
        "\"../x\" is not a policy name",
        Some("use 1 to 64 lower case letters, digits and hyphens"),
    );
}

#[test]
fn the_example_of_the_readme_is_sound() {
    let readme = include_str!("../../policies/README.md");
    let (_, example) = readme.split_once("```json\n").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    let policy = Policy::parse(example).unwrap();
    assert!(matches!(
        policy.rules.get("socket").unwrap().verdict,
        Verdict::Deny { .. }
    ));
    assert_eq!(policy.rules.get("read").unwrap().verdict, Verdict::Allow);
    assert_as_declared(&policy);
}

#[test]
fn a_filter_longer_than_the_kernel_takes_is_refused() {
    let when: Vec<Value> = (0..2000)
        .map(|value| json!([{"arg": 1, "bits": 64, "value": value, "means": "one of many"}]))
        .collect();
    let policy = json!({
        "name": "long", "description": "a test", "extends": "default", "rules": [
            {"action": "deny_if", "reason": "a test", "calls": ["ioctl"], "when": when},
        ],
    });
    let policy = Policy::parse(&policy.to_string()).unwrap();
    let error = compile(&policy, Arch::NATIVE, false, Unheld::default()).unwrap_err();
    assert!(error.message.ends_with("the kernel takes 4096"), "{error}");
}

#[test]
fn what_only_a_cgroup_counts_is_refused_or_counted_without() {
    let policy = Policy::builtin("default").unwrap();
    let [held, memory, cpus, _] = Unheld::ALL;
    let verdict = |call, unheld| &policy.rule_for(call, unheld).unwrap().verdict;
    let is_allowed = |call| match verdict(call, held) {
        Verdict::Allow => true,
        // Huge pages are refused in any case.
        Verdict::DenyIf { errno, .. } => *errno == Errno::ENOMEM,
        _ => false,
    };
    for call in ["memfd_create", "landlock_create_ruleset"] {
        assert!(is_allowed(call), "{call}");
        assert_eq!(verdict(call, memory), &Verdict::Absent, "{call}");
        assert_eq!(verdict(call, cpus), verdict(call, held), "{call}");
    }
    for call in ["mmap", "msgget", "semget", "shmget"] {
        assert!(is_allowed(call), "{call}");
        assert_ne!(verdict(call, memory), verdict(call, held), "{call}");
        let is_counted = matches!(verdict(call, memory), Verdict::Count { .. });
        assert!(is_counted, "{call}");
        assert_eq!(verdict(call, memory).denies_with(), Some(Errno::ENOMEM));
    }
    let call = "sched_setaffinity";
    assert_eq!(verdict(call, memory), &Verdict::Allow);
    assert_eq!(verdict(call, cpus), &Verdict::Absent);
    // A policy's own rule stands, with a cgroup and without.
    let own = json!({
        "name": "own", "description": "a test", "extends": "default",
        "rules": [{"action": "allow", "reason": "wanted", "calls": ["memfd_create"]}]
    });
    let own = Policy::parse(&own.to_string()).unwrap();
    let rule = own.rule_for("memfd_create", memory).unwrap();
    assert_eq!(rule.verdict, Verdict::Allow);
}

#[test]
fn debug_allows_debuggers_and_nothing_else() {
    let default = Policy::builtin("default").unwrap();
    let debug = Policy::builtin("debug").unwrap();
    assert_eq!(debug.fallbacks, default.fallbacks);
    for (call, rule) in &debug.rules {
        match *call {
            "ptrace" | "process_vm_readv" => {
                assert_eq!(rule.verdict, Verdict::Allow);
                let reason = &default.rules[call].reason;
                assert!(reason.contains("--seccomp debug"), "{reason}");
            }
            _ => assert_eq!(rule, &default.rules[call], "{call}"),
        }
    }
}

#[test]
fn an_owner_is_the_cells_own_whatever_its_uid() {
    let (denied, ignored) = (0x0005_0000 | 1, 0x0005_0000);
    for (policy, arch) in builtin().flat_map(|policy| Arch::ALL.map(|arch| (policy.clone(), arch)))
    {
        let compiled = compile(&policy, arch, true, Unheld::default()).unwrap();
        for id in [0_u32, 1000, 61234, u32::MAX - 1] {
            let program = compiled.program_for(id);
            machine::check(&program);
            let foreign = if id == 0 { ignored } else { denied };
            for call in ["chown", "fchown", "fchownat", "lchown"] {
                let Some(nr) = arch.number(call) else {
                    continue;
                };
                let of = |uid: u32, gid: u32| {
                    let first = if call == "fchownat" { 2 } else { 1 };
                    let mut args = [u64::MAX; 6];
                    // The kernel ignores the upper half, and so must the filter.
                    args[first] = u64::from(uid) | 7 << 32;
                    args[first + 1] = gid.into();
                    let arch = arch.audit();
                    machine::run(&program, &Data { nr, arch, args })
                };
                let none = u32::MAX;
                for (uid, gid) in [(id, id), (id, none), (none, id), (none, none)] {
                    assert_eq!(of(uid, gid), ALLOW, "{call} {uid} {gid} as {id}");
                }
                for (uid, gid) in [(id, 33), (33, id), (none, 33), (33, none), (33, 34)] {
                    assert_eq!(of(uid, gid), foreign, "{call} {uid} {gid} as {id}");
                }
            }
        }
    }
    let rule = json!({"action": "own_ids", "reason": "a test", "calls": ["chmod"]});
    assert_refused(
        move |policy| policy["rules"][1] = rule.clone(),
        "rules[1]: chmod sets no owner",
        Some("\"own_ids\" goes with: chown, fchown, fchownat, lchown"),
    );
}

#[test]
fn personality_of_gcl_is_for_policies_that_let_it_execute_what_it_writes() {
    let nr = Arch::NATIVE.number("personality").unwrap();
    for policy in builtin() {
        let program = compile(&policy, Arch::NATIVE, true, Unheld::default())
            .unwrap()
            .program;
        let of = |persona: u64| {
            let args = [persona, 0, 0, 0, 0, 0];
            machine::run(
                &program,
                &Data {
                    nr,
                    arch: Arch::NATIVE.audit(),
                    args,
                },
            )
        };
        let is_strict = policy.name == "strict";
        let gcl = if is_strict { declared::NOTIFY } else { ALLOW };
        for (persona, wanted) in [
            (0, ALLOW),
            (0x0004_0000, ALLOW),
            (0x0040_0000, gcl),
            (0x0044_0000, gcl),
            // ADDR_COMPAT_LAYOUT and MMAP_PAGE_ZERO.
            (0x0020_0000, declared::NOTIFY),
            (0x0010_0000, declared::NOTIFY),
        ] {
            assert_eq!(of(persona), wanted, "{} {persona:#x}", policy.name);
        }
    }
}

#[test]
fn every_error_of_the_kernels_can_be_named() {
    for number in (1..=133).filter(|number| ![41, 58].contains(number)) {
        let name = format!("{:?}", nix::errno::Errno::from_raw(number));
        let named: Errno = serde_json::from_value(json!(name)).unwrap();
        assert_eq!(named as i32, number);
    }
    for (alias, number) in [("EWOULDBLOCK", 11), ("EDEADLOCK", 35), ("ENOTSUP", 95)] {
        let named: Errno = serde_json::from_value(json!(alias)).unwrap();
        assert_eq!(named as i32, number);
    }
}
