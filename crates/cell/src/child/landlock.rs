//! Applying Landlock's rules (landlock(7)).

use std::os::fd::OwnedFd;
use std::path::Path;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, PathBeneath,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, open, openat2};
use nix::sys::stat::Mode;

use super::fail::{Call, Fail, Site};
use super::mounts;
use super::report::Reporter;
use crate::plan::{Access, LandlockPlan, Plan};
use crate::spec::TcpRule;
use record::error::Step;

/// Confines init, and with it the program. Every right is a hard requirement, so the
/// record claims only what the kernel has accepted.
pub(super) fn restrict(plan: &Plan, report: &Reporter<'_>) -> Result<(), Fail> {
    let Some(rules) = &plan.landlock else {
        return Ok(());
    };
    let site = report.enter(Step::Landlock);
    #[cfg(test)]
    if super::is_left_out("landlock") {
        return Ok(());
    }
    enforce(build(rules, site)?, site)
}

/// Confines the init of a copy, and returns the ruleset that its program is to apply to
/// itself: being no child of init's, it gets a domain of its own. Signals do not leave a
/// domain that is scoped, so init's is not.
pub(super) fn restrict_apart(plan: &Plan, report: &Reporter<'_>) -> Result<Option<OwnedFd>, Fail> {
    let Some(rules) = &plan.landlock else {
        return Ok(None);
    };
    let site = report.enter(Step::Landlock);
    let theirs: Option<OwnedFd> = build(rules, site)?.into();
    let theirs = theirs.ok_or_else(|| site.failed(Call::Landlock, Errno::EOPNOTSUPP))?;
    let own = LandlockPlan {
        scoped: false,
        ..rules.clone()
    };
    enforce(build(&own, site)?, site)?;
    Ok(Some(theirs))
}

fn build(rules: &LandlockPlan, site: Site) -> Result<RulesetCreated, Fail> {
    let failed = |e: RulesetError| site.failed(Call::Landlock, errno_of(&e));
    let ruleset = create(rules).map_err(failed)?;
    let ruleset = add_paths(ruleset, rules, site)?;
    add_ports(ruleset, rules).map_err(failed)
}

fn enforce(ruleset: RulesetCreated, site: Site) -> Result<(), Fail> {
    let status = ruleset
        .no_new_privs(false)
        .restrict_self()
        .map_err(|e| site.failed(Call::Landlock, errno_of(&e)))?;
    match status.ruleset {
        RulesetStatus::FullyEnforced => Ok(()),
        _ => Err(site.failed(Call::Landlock, Errno::EOPNOTSUPP)),
    }
}

/// Shows that Landlock denies something that no rule allows, if the plan has that. No file of
/// proc(5) shows a domain, so a process in one has to try.
pub(super) fn prove(plan: &Plan) -> Result<(), Fail> {
    #[cfg(test)]
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
    if rules.tcp.is_some() {
        ruleset = ruleset.handle_access(AccessNet::from_all(abi))?;
    }
    if rules.scoped {
        ruleset = ruleset.scope(Scope::from_all(abi))?;
    }
    ruleset.create()
}

fn add_paths(
    mut ruleset: RulesetCreated,
    rules: &LandlockPlan,
    site: Site,
) -> Result<RulesetCreated, Fail> {
    let abi = abi(rules);
    for (index, rule) in rules.rules.iter().enumerate() {
        let failed = |errno| site.on(index).failed(Call::Landlock, errno);
        let place = place(&rule.path).map_err(failed)?;
        let directory = mounts::is_directory(&place).map_err(failed)?;
        let mut access = rights(rule.access, abi);
        if !directory {
            access &= AccessFs::from_file(abi);
        }
        ruleset = ruleset
            .add_rule(PathBeneath::new(place, access))
            .map_err(|e| failed(errno_of(&e)))?;
    }
    Ok(ruleset)
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

fn add_ports(
    mut ruleset: RulesetCreated,
    rules: &LandlockPlan,
) -> Result<RulesetCreated, RulesetError> {
    let Some(TcpRule::Ports { connect, bind }) = &rules.tcp else {
        return Ok(ruleset);
    };
    for port in connect {
        ruleset = ruleset.add_rule(NetPort::new(*port, AccessNet::ConnectTcp))?;
    }
    for port in bind {
        ruleset = ruleset.add_rule(NetPort::new(*port, AccessNet::BindTcp))?;
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
