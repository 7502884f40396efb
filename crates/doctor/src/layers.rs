//! The kernel, Landlock and seccomp.

use carry::Refusal;
use engine::run::{Resolved, instructions};
use hints::{self, Facts};
use jail::child::Filter;
use plan::probe::{DeniedCall, HostFacts};
use plan::seccomp::{Unheld, precompiled};
use plan::{Access, LandlockPlan, LandlockRule, TCP_ABI, UDP_ABI};
use record::error::{Result, SetupError, Step};
use spec::PortRule;
use sys::landlock::NEWEST_ABI;

use super::report::{Check, Checks};
use super::{bare, try_until};

pub(super) fn kernel(host: &Result<HostFacts>) -> Check {
    match host {
        Ok(host) => Check::works("kernel", host.release.clone()),
        Err(error) => Check::fails("kernel", error.clone(), &Facts::default()),
    }
}

/// Whether filters around this process let through what a cell is made of.
pub(super) fn system_calls(checks: &mut Checks<'_>) {
    const NAME: &str = "system-calls";
    checks.add_after(NAME, &["kernel"], |facts| {
        let filters = &facts.filters;
        let list = |is_wanted: fn(&DeniedCall) -> bool, how: &str| {
            let calls = filters.denied.iter().filter(|call| is_wanted(call));
            let names: Vec<&str> = calls.map(|call| call.name.as_str()).collect();
            (!names.is_empty()).then(|| format!("{how} {}", names.join(", ")))
        };
        let families = filters.families.join(", ");
        let denied: Vec<String> = [
            list(|call| call.errno.is_none(), "killed for"),
            list(|call| call.errno.is_some(), "denied"),
            (!families.is_empty()).then(|| format!("no sockets of {families}")),
        ]
        .into_iter()
        .flatten()
        .collect();
        if denied.is_empty() {
            let detail = match facts.filtered {
                true => "no filter is in the way",
                false => "",
            };
            return Check::works(NAME, detail);
        }
        let fix = hints::for_filters(facts);
        match filters.refusal(|_| true) {
            Some(error) => Check {
                detail: format!("a filter around this process: {}", denied.join("; ")),
                fixes: vec![fix],
                ..Check::fails(NAME, error, facts)
            },
            None => Check::degraded(NAME, denied.join("; "), vec![fix]),
        }
    });
}

/// Whether the state of contexts can be carried to other cells.
pub(super) fn carried_state(checks: &mut Checks<'_>) {
    const NAME: &str = "carried-state";
    // A filter that kills would kill this process.
    let kills = |facts: &Facts| facts.filters.denied.iter().any(|call| call.errno.is_none());
    checks.add_after(NAME, &["kernel"], |facts| match kills(facts) {
        true => Check::degraded(NAME, "not tried, since a filter kills", Vec::new()),
        false => match sys::trace::try_on_child() {
            Ok(()) => Check::works(NAME, ""),
            Err(errno) => {
                let refusal = Refusal::of_stop(errno);
                let error = SetupError::os(Step::State, "ptrace", errno);
                Check {
                    detail: format!(
                        "{refusal}: contexts are forked, rewound and suspended by replay only"
                    ),
                    ..Check::absent(NAME, error, refusal.hint().to_owned())
                }
            }
        },
    });
}

/// Whether interpreters that compile at run time can.
pub(super) fn executable_memory(checks: &mut Checks<'_>) {
    const NAME: &str = "executable-memory";
    checks.add_after(NAME, &["kernel"], |facts| {
        if sys::process::can_write_and_execute() {
            return Check::works(NAME, "");
        }
        let detail =
            "memory cannot be writable and executable at once: JavaScript and Java do not start";
        Check::degraded(NAME, detail, vec![hints::for_executable_memory(facts)])
    });
}

/// What Landlock lacks below an ABI, and the kernel that has it (landlock(7)).
const LANDLOCK: [(u32, &str, &str); 5] = [
    (2, "moving files between directories", "5.19"),
    (3, "truncation", "6.2"),
    (4, "TCP ports", "6.7"),
    (5, "device ioctls", "6.10"),
    (6, "abstract sockets and signals", "6.12"),
];

pub(super) fn landlock(checks: &mut Checks<'_>, resolved: Option<&Resolved>) {
    checks.add_after("landlock", &["plan", "no-new-privs"], |facts| {
        let refused = |errno| {
            let error = SetupError::os(Step::Landlock, "landlock_create_ruleset", errno);
            Check::fails("landlock", error, facts)
        };
        // One that kills would kill this process.
        let denials = facts.filters.denied.iter();
        if let Some(call) = denials.rev().find(|call| call.name.starts_with("landlock")) {
            return Check::fails("landlock", call.error(), facts);
        }
        let abi = match sys::landlock::query() {
            Ok(abi) => abi,
            Err(errno) => return refused(errno),
        };
        let Some(whole) = resolved.and_then(|r| r.plan.landlock.as_ref()) else {
            return refused(nix::errno::Errno::EOPNOTSUPP);
        };
        match resolved.map_or(Ok(()), |resolved| try_landlock(resolved, whole)) {
            Ok(()) => landlock_of(abi),
            Err(error) => Check::fails("landlock", error, facts),
        }
    });
}

/// Applies everything that this ABI knows, and sees it deny what no rule allows.
fn try_landlock(resolved: &Resolved, whole: &LandlockPlan) -> Result<()> {
    let nothing = |since: u32| {
        (whole.abi >= since).then(|| PortRule::Ports {
            connect: Vec::new(),
            bind: Vec::new(),
        })
    };
    let mut plan = bare(resolved);
    plan.landlock = Some(LandlockPlan {
        rules: vec![LandlockRule {
            path: "/dev".into(),
            access: Access::Devices,
            is_node: false,
        }],
        tcp: nothing(TCP_ABI),
        udp: nothing(UDP_ABI),
        ..whole.clone()
    });
    try_until(&plan, None, Step::Landlock)
}

/// By the kernel's ABI, of which cells use no more than cellblock knows.
fn landlock_of(kernel: u32) -> Check {
    let abi = kernel.min(NEWEST_ABI);
    let lacking: Vec<_> = LANDLOCK.iter().filter(|(since, ..)| *since > abi).collect();
    let Some((_, _, newest)) = lacking.last() else {
        let detail = match kernel > abi {
            true => format!("ABI {abi}, and the kernel has ABI {kernel}"),
            false => format!("ABI {abi}"),
        };
        return Check::works("landlock", detail);
    };
    let what: Vec<String> = lacking
        .iter()
        .map(|(since, what, _)| format!("{what} (ABI {since})"))
        .collect();
    Check::degraded(
        "landlock",
        format!("ABI {abi}: no rules for {}", what.join(", ")),
        vec![format!("boot Linux {newest} or later")],
    )
}

/// The filter by itself, and with the supervisor listening.
pub(super) fn seccomp(checks: &mut Checks<'_>, resolved: Option<&Resolved>) {
    for (name, notify) in [("seccomp", false), ("seccomp-notify", true)] {
        checks.add_after(name, &["plan", "no-new-privs"], |facts| {
            match resolved.map_or(Ok(()), |resolved| try_filter(resolved, notify)) {
                Ok(()) => Check::works(name, "the default policy denies what it should"),
                Err(error) => Check::fails(name, error, facts),
            }
        });
    }
}

fn try_filter(resolved: &Resolved, notify: bool) -> Result<()> {
    let wanted = resolved.plan.seccomp.as_deref().unwrap_or_default();
    let compiled = precompiled(wanted, notify, Unheld::default())
        .ok_or_else(|| SetupError::new(Step::Seccomp, "no such system call policy").on(wanted))?;
    let filter = Filter {
        program: instructions(compiled, resolved.plan.ids.inner_uid),
        notify,
    };
    try_until(&bare(resolved), Some(&filter), Step::Seccomp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Status;

    #[test]
    fn what_an_abi_lacks_is_named() {
        for (abi, status, words) in [
            (1, Status::Degraded, "moving files"),
            (3, Status::Degraded, "TCP ports (ABI 4)"),
            (4, Status::Degraded, "device ioctls (ABI 5)"),
            (5, Status::Degraded, "abstract sockets and signals (ABI 6)"),
            (6, Status::Works, "ABI 6"),
            (9, Status::Works, "ABI 9"),
            (12, Status::Works, "ABI 11, and the kernel has ABI 12"),
        ] {
            let check = landlock_of(abi);
            assert_eq!(check.status, status, "{abi}");
            assert!(check.detail.contains(words), "{}", check.detail);
            assert_eq!(check.fixes.is_empty(), status == Status::Works);
        }
        assert!(!landlock_of(4).detail.contains("TCP"));
        assert_eq!(landlock_of(1).fixes, ["boot Linux 6.12 or later"]);
    }
}
