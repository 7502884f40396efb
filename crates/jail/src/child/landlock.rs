//! Applying Landlock's rules (landlock(7)).

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, open, openat2};
use nix::sys::stat::Mode;

use super::fail::{At as _, Call, Fail, Site};
use super::report::Reporter;
use plan::{Access, LandlockPlan, Plan};
use record::error::Step;
use spec::PortRule;
use sys::process::close_together;

/// Confines init, and with it the program. Every right is a hard requirement, so the
/// record claims only what the kernel has accepted.
pub(super) fn restrict(plan: &Plan, report: &Reporter<'_>) -> Result<(), Fail> {
    let Some(rules) = &plan.landlock else {
        return Ok(());
    };
    let site = report.enter(Step::Landlock);
    #[cfg(debug_assertions)]
    if super::is_left_out("landlock") {
        return Ok(());
    }
    enforce(rules, build(rules, site)?, site)
}

/// Confines the init of a copy, and returns the ruleset that its program is to apply to
/// itself: being no child of init's, it gets a domain of its own. Signals do not leave a
/// domain that is scoped, so init's is not.
pub(super) fn restrict_apart(plan: &Plan, report: &Reporter<'_>) -> Result<Option<OwnedFd>, Fail> {
    let Some(rules) = &plan.landlock else {
        return Ok(None);
    };
    let site = report.enter(Step::Landlock);
    let theirs = build(rules, site)?;
    let own = LandlockPlan {
        scoped: false,
        ..rules.clone()
    };
    enforce(&own, build(&own, site)?, site)?;
    Ok(Some(theirs))
}

fn build(rules: &LandlockPlan, site: Site) -> Result<OwnedFd, Fail> {
    let failed = |e: RulesetError| site.failed(Call::Landlock, errno_of(&e));
    let ruleset = create(rules).map_err(failed)?;
    let ruleset: Option<OwnedFd> = add_ports(ruleset, rules).map_err(failed)?.into();
    let ruleset = ruleset.ok_or_else(|| site.failed(Call::Landlock, Errno::EOPNOTSUPP))?;
    add_paths(&ruleset, rules, site)?;
    Ok(ruleset)
}

fn enforce(rules: &LandlockPlan, ruleset: OwnedFd, site: Site) -> Result<(), Fail> {
    sys::landlock::restrict_self(ruleset.as_fd(), rules.flags()).at(site, Call::Landlock)
}

/// Shows that Landlock denies something that no rule allows, if the plan has that. No file of
/// proc(5) shows a domain, so a process in one has to try.
pub(super) fn prove(plan: &Plan) -> Result<(), Fail> {
    #[cfg(debug_assertions)]
    if super::is_left_out("proof") {
        return Ok(());
    }
    let Some(denied) = plan.landlock.as_ref().and_then(|rules| rules.denied(plan)) else {
        return Ok(());
    };
    match open(denied.path, denied.flags | OFlag::O_CLOEXEC, Mode::empty()) {
        Err(Errno::EACCES) => Ok(()),
        _ => Err(Site::new(Step::Landlock).failed(Call::Landlock, Errno::EOPNOTSUPP)),
    }
}

fn create(rules: &LandlockPlan) -> Result<RulesetCreated, RulesetError> {
    let abi = abi(rules);
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(abi))?;
    for (_, [connect, bind]) in ports(rules) {
        ruleset = ruleset.handle_access(connect | bind)?;
    }
    if rules.scoped {
        ruleset = ruleset.scope(Scope::from_all(abi))?;
    }
    ruleset.create()
}

fn add_paths(ruleset: &OwnedFd, rules: &LandlockPlan, site: Site) -> Result<(), Fail> {
    let abi = abi(rules);
    let mut places = Vec::with_capacity(rules.rules.len());
    for (index, rule) in rules.rules.iter().enumerate() {
        let failed = |errno| site.on(index).failed(Call::Landlock, errno);
        let place = place(&rule.path).map_err(failed)?;
        let allow = |access: BitFlags<AccessFs>| {
            sys::landlock::allow_beneath(ruleset.as_fd(), place.as_fd(), access.bits())
        };
        let access = rights(rule.access, abi);
        let of_file = access & AccessFs::from_file(abi);
        let allowed = match rule.is_node {
            true => allow(of_file),
            // Only a directory can have all of them.
            false => match allow(access) {
                Err(Errno::EINVAL) => allow(of_file),
                allowed => allowed,
            },
        };
        allowed.map_err(failed)?;
        places.push(place);
    }
    close_together(places);
    Ok(())
}

/// Names a place without opening it, which a file system that does not answer
/// could delay for ever. Not by the crate's `PathFd`: the standard library takes
/// `O_PATH` for an access mode where the C library is musl, and leaves it out.
pub(super) fn place(path: &Path) -> Result<OwnedFd, Errno> {
    openat2(
        AT_FDCWD,
        path,
        OpenHow::new().flags(OFlag::O_PATH | OFlag::O_CLOEXEC),
    )
}

/// The rules for ports, each with its protocol's rights to connect and to bind.
fn ports(rules: &LandlockPlan) -> impl Iterator<Item = (&PortRule, [AccessNet; 2])> {
    let tcp = (&rules.tcp, [AccessNet::ConnectTcp, AccessNet::BindTcp]);
    let udp = (&rules.udp, [AccessNet::ConnectSendUdp, AccessNet::BindUdp]);
    let all = [tcp, udp].into_iter();
    all.filter_map(|(rule, rights)| Some((rule.as_ref()?, rights)))
}

fn add_ports(
    mut ruleset: RulesetCreated,
    rules: &LandlockPlan,
) -> Result<RulesetCreated, RulesetError> {
    for (rule, [may_connect, may_bind]) in ports(rules) {
        let PortRule::Ports { connect, bind } = rule else {
            continue;
        };
        for port in connect {
            ruleset = ruleset.add_rule(NetPort::new(*port, may_connect))?;
        }
        // A socket that sends a datagram gets a port that the kernel chooses.
        let sends = may_bind == AccessNet::BindUdp && !connect.is_empty();
        for port in bind.iter().chain(sends.then_some(&0)) {
            ruleset = ruleset.add_rule(NetPort::new(*port, may_bind))?;
        }
    }
    Ok(ruleset)
}

fn rights(access: Access, abi: ABI) -> BitFlags<AccessFs> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let write = AccessFs::from_all(abi)
        & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev | AccessFs::Execute);
    match access {
        Access::Read => read,
        Access::ReadExecute => read | AccessFs::Execute,
        Access::Write => write,
        Access::WriteExecute => write | AccessFs::Execute,
        Access::DevicesRead => AccessFs::ReadFile.into(),
        Access::Devices => {
            (read | AccessFs::WriteFile | AccessFs::IoctlDev) & AccessFs::from_all(abi)
        }
    }
}

fn abi(rules: &LandlockPlan) -> ABI {
    ABI::from(i32::try_from(rules.abi).unwrap_or(0))
}

/// The crate's errors wrap the system's.
fn errno_of(error: &RulesetError) -> Errno {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        if let Some(number) = error
            .downcast_ref::<std::io::Error>()
            .and_then(std::io::Error::raw_os_error)
        {
            return Errno::from_raw(number);
        }
        source = error.source();
    }
    Errno::EOPNOTSUPP
}
