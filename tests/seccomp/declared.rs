//! The answer of a policy to a call, read from the policy itself and not from the
//! program.

use std::collections::BTreeSet;

use plan::seccomp::{Alternative, Arch, Policy, Rule, Unheld, Verdict, Width};

use super::machine::Data;

pub(crate) const ALLOW: u32 = 0x7fff_0000;
pub(crate) const NOTIFY: u32 = 0x7fc0_0000;
pub(crate) const KILL: u32 = 0x8000_0000;
pub(crate) const ENOSYS: u32 = 0x0005_0000 | 38;
const EPERM: u32 = 0x0005_0000 | 1;

/// The architecture of a program, and the limits that it stands in for.
pub(crate) type Variant = (Arch, Unheld);

/// What the policy says about the call with this number.
pub(crate) fn rule(policy: &Policy, (arch, unheld): Variant, nr: u32) -> Option<&Rule> {
    arch.name(nr).and_then(|name| policy.rule_for(name, unheld))
}

/// The answer to a call that this rule of a policy declares.
pub(crate) fn answer(rule: Option<&Rule>, (arch, _): Variant, notify: bool, data: &Data) -> u32 {
    let x32 = arch == Arch::X86_64 && (0x4000_0000..0x8000_0000).contains(&data.nr);
    if data.arch != arch.audit() || x32 {
        return KILL;
    }
    let Some(rule) = rule else {
        return ENOSYS;
    };
    let allowed = match &rule.verdict {
        Verdict::Allow => true,
        Verdict::AllowIf { when, .. } => any(when, data),
        Verdict::Deny { .. } | Verdict::Answer => false,
        Verdict::DenyIf { when, .. } => !any(when, data),
        Verdict::Count { when } => !when.is_empty() && !any(when, data),
        Verdict::OwnIds => return of_owner(arch, data),
        Verdict::Absent => return ENOSYS,
        Verdict::Kill => return KILL,
    };
    match rule.verdict.denies_with() {
        _ if allowed => ALLOW,
        Some(_) if notify => NOTIFY,
        Some(errno) => 0x0005_0000 | errno as u32,
        None => unreachable!("what is not allowed is denied with something"),
    }
}

/// Of a cell whose uid is 1000.
fn of_owner(arch: Arch, data: &Data) -> u32 {
    let first = if arch.name(data.nr) == Some("fchownat") {
        2
    } else {
        1
    };
    let ids = &data.args[first..first + 2];
    let is_own = |id: &u64| [1000, u32::MAX].contains(&(*id as u32));
    if ids.iter().all(is_own) { ALLOW } else { EPERM }
}

fn any(when: &[Alternative], data: &Data) -> bool {
    when.iter().any(|alternative| {
        alternative.iter().all(|condition| {
            let counts = match condition.bits {
                Width::Bits32 => 0xffff_ffff,
                Width::Bits64 => u64::MAX,
            };
            let mask = condition.mask.unwrap_or(counts);
            data.args[usize::from(condition.arg)] & mask == condition.value
        })
    })
}

/// Arguments on both sides of every condition of a rule: the value, its
/// neighbours, and each of them with other bits set where none should count.
pub(crate) fn arguments(rule: Option<&Rule>) -> Vec<[u64; 6]> {
    let when: &[Alternative] = match rule.map(|rule| &rule.verdict) {
        Some(
            Verdict::AllowIf { when, .. } | Verdict::DenyIf { when, .. } | Verdict::Count { when },
        ) => when,
        _ => &[],
    };
    let mut values: [BTreeSet<u64>; 6] = Default::default();
    if matches!(
        rule,
        Some(Rule {
            verdict: Verdict::OwnIds,
            ..
        })
    ) {
        for ids in &mut values[1..4] {
            ids.extend([999, 1000, 1 << 32 | 1000, u64::from(u32::MAX), 1 << 31]);
        }
    }
    for condition in when.iter().flatten() {
        let mask = condition.mask.unwrap_or(u64::MAX);
        let value = condition.value;
        let near = [
            value,
            value | !mask,
            value ^ (mask & mask.wrapping_neg()),
            value ^ mask,
            !value,
            value + 1,
        ];
        for value in near {
            let high = [0, 1 << 32, 0xdead_beef << 32, u64::MAX << 32];
            values[usize::from(condition.arg)].extend(high.map(|high| value | high));
            values[usize::from(condition.arg)].insert(value & 0xffff_ffff);
        }
    }
    let mut all = vec![[0; 6], [u64::MAX; 6]];
    for (index, values) in values.iter().enumerate() {
        let others = all.clone();
        all.extend(values.iter().flat_map(|value| {
            others.iter().map(move |arguments| {
                let mut arguments = *arguments;
                arguments[index] = *value;
                arguments
            })
        }));
    }
    all
}

/// Call numbers to test: all that exist, those near a boundary, and samples of the
/// rest.
pub(crate) fn numbers() -> impl Iterator<Item = u32> {
    let borders = [
        0x3fff_ffff,
        0x7fff_ffff,
        0x8000_0000,
        0xbfff_ffff,
        0xc000_0000,
        u32::MAX,
    ];
    (0..600)
        .chain(0x4000_0000..0x4000_0000 + 600)
        .chain(borders)
        .chain((0..32).map(|bit| 1 << bit))
}
