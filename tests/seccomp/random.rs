//! Policies that no person would write, to try programs of every shape.

use plan::seccomp::{Arch, Policy};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use super::policies::assert_as_declared;

/// A group for one call.
fn group(call: &'static str) -> impl Strategy<Value = Value> {
    let plain = prop_oneof![Just("allow"), Just("deny"), Just("absent"), Just("kill")];
    let plain =
        plain.prop_map(move |action| json!({"action": action, "reason": "x", "calls": [call]}));
    let errno = prop_oneof![
        Just("EPERM"),
        Just("EACCES"),
        Just("EAFNOSUPPORT"),
        Just("ENOSYS")
    ];
    let action = prop_oneof![Just("allow_if"), Just("deny_if")];
    let alternative = proptest::collection::vec(condition(), 1..4);
    let when = proptest::collection::vec(alternative, 1..4);
    let checked = (action, errno, when).prop_map(move |(action, errno, when)| {
        json!({"action": action, "reason": "x", "calls": [call], "errno": errno, "when": when})
    });
    prop_oneof![6 => plain, 1 => checked]
}

fn condition() -> impl Strategy<Value = Value> {
    // Two arguments are enough to mix them, and keep the number of cases small.
    let mask = prop_oneof![Just(None), any::<u64>().prop_map(Some)];
    (0..2_u8, any::<bool>(), mask, any::<u64>()).prop_map(|(arg, wide, mask, value)| {
        let counts = if wide { u64::MAX } else { u64::from(u32::MAX) };
        let value = format!("{:#x}", value & counts & mask.unwrap_or(u64::MAX));
        let mut condition =
            json!({"arg": arg, "bits": if wide { 64 } else { 32 }, "value": value, "means": "x"});
        if let Some(mask) = mask {
            condition["mask"] = json!(format!("{:#x}", mask & counts));
        }
        condition
    })
}

fn policy() -> impl Strategy<Value = Value> {
    let essential = ["execve", "exit_group", "write"];
    let calls: Vec<_> = Arch::X86_64
        .calls()
        .map(|(_, call)| call)
        .filter(|call| !essential.contains(call))
        .map(|call| proptest::option::weighted(0.7, group(call)))
        .collect();
    calls.prop_map(move |groups| {
        let mut groups: Vec<Value> = groups.into_iter().flatten().collect();
        groups.push(json!({"action": "allow", "reason": "x", "calls": essential}));
        json!({"name": "random", "description": "x", "rules": groups})
    })
}

/// A case is a whole policy, tried call by call, and takes a second. Without the macro, in which
/// PROPTEST_CASES overrides what is chosen here.
#[test]
fn any_program_does_what_its_policy_says() {
    let usual = ProptestConfig::default();
    let config = ProptestConfig {
        cases: (usual.cases / 40).max(2),
        max_shrink_iters: 50,
        failure_persistence: None,
        ..usual
    };
    let run = TestRunner::new(config).run(&policy(), |policy| {
        assert_as_declared(&Policy::parse(&policy.to_string()).unwrap());
        Ok(())
    });
    run.unwrap();
}
