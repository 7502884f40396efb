//! The kernel, Landlock and seccomp.

use crate::child::Filter;
use crate::error::{Result, SetupError, Step};
use crate::hints::Facts;
use crate::launch::rehearse;
use crate::plan::seccomp::{Unheld, precompiled};
use crate::plan::{Access, LandlockPlan, LandlockRule};
use crate::probe::HostFacts;
use crate::run::{Resolved, instructions};
use crate::spec::TcpRule;

use super::bare;
use super::report::{Check, Checks};

/// What kernels newer than the oldest that works add for cells.
const ADDITIONS: [((u32, u32), &str); 7] = [
    ((5, 19), "memory.peak, landlock for renames"),
    ((6, 2), "landlock for truncation"),
    ((6, 7), "landlock for TCP ports"),
    ((6, 10), "landlock for device ioctls"),
    ((6, 11), "pids.peak"),
    ((6, 12), "landlock for abstract sockets and signals"),
    ((6, 15), "landlock in the audit log"),
];

pub(super) fn kernel(host: &Result<HostFacts>) -> Check {
    match host {
        Ok(host) => Check::works("kernel", kernel_in_words(host)),
        Err(error) => Check::fails("kernel", error.clone(), &Facts::default()),
    }
}

fn kernel_in_words(host: &HostFacts) -> String {
    let newer: Vec<String> = ADDITIONS
        .iter()
        .filter(|(version, _)| *version > host.kernel)
        .map(|((major, minor), what)| format!("{major}.{minor} adds {what}"))
        .collect();
    if newer.is_empty() {
        host.release.clone()
    } else {
        format!("{}; {}", host.release, newer.join("; "))
    }
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
        let abi = match crate::sys::landlock::query() {
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
    const TCP: u32 = 4;
    let nothing = TcpRule::Ports {
        connect: Vec::new(),
        bind: Vec::new(),
    };
    let mut plan = bare(resolved);
    plan.landlock = Some(LandlockPlan {
        rules: vec![LandlockRule {
            path: "/dev".into(),
            access: Access::Devices,
        }],
        tcp: (whole.abi >= TCP).then_some(nothing),
        ..whole.clone()
    });
    rehearse(&plan, None, Step::Landlock)
}

fn landlock_of(abi: u32) -> Check {
    let lacking: Vec<_> = LANDLOCK.iter().filter(|(since, ..)| *since > abi).collect();
    let Some((_, _, newest)) = lacking.last() else {
        return Check::works("landlock", format!("ABI {abi}"));
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
        program: instructions(compiled),
        notify,
    };
    rehearse(&bare(resolved), Some(&filter), Step::Seccomp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Status;

    #[test]
    fn what_an_abi_lacks_is_named() {
        for (abi, status, words) in [
            (1, Status::Degraded, "moving files"),
            (3, Status::Degraded, "TCP ports (ABI 4)"),
            (4, Status::Degraded, "device ioctls (ABI 5)"),
            (5, Status::Degraded, "abstract sockets and signals (ABI 6)"),
            (6, Status::Works, "ABI 6"),
            (9, Status::Works, "ABI 9"),
        ] {
            let check = landlock_of(abi);
            assert_eq!(check.status, status, "{abi}");
            assert!(check.detail.contains(words), "{}", check.detail);
            assert_eq!(check.fixes.is_empty(), status == Status::Works);
        }
        assert!(!landlock_of(4).detail.contains("TCP"));
        assert_eq!(landlock_of(1).fixes, ["boot Linux 6.12 or later"]);
    }

    #[test]
    fn a_kernel_is_told_what_it_misses() {
        let host = |kernel, release: &str| HostFacts {
            cpus: 1,
            release: release.into(),
            kernel,
            uid: 0,
            gid: 0,
            pid: 1,
            landlock_abi: 2,
            id_map: Vec::new(),
        };
        let words = kernel_in_words(&host((6, 1), "6.1.0"));
        assert!(
            words.starts_with("6.1.0; 6.2 adds landlock for truncation"),
            "{words}"
        );
        assert!(!words.contains("5.19"), "{words}");
        assert_eq!(kernel_in_words(&host((7, 3), "7.3")), "7.3");
    }
}
