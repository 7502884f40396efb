//! Landlock: files and TCP ports (landlock(7)). Not UDP ports: the broker answers DNS queries at
//! whatever port they come from.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, NetPort, PathBeneath,
    PathFd, Ruleset, RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetError,
    Scope,
};
use sys::landlock::{LOG_SAME_EXEC_OFF, LOG_SUBDOMAINS_OFF, NEWEST_ABI, restrict_self};

/// Allows reading files beneath `directories` and connecting to `ports`, and nothing else.
/// Returns the ABI in use; 0 where Landlock is missing.
pub(super) fn restrict(directories: &[PathBuf], ports: &[u16]) -> io::Result<u32> {
    let abi = sys::landlock::abi().min(NEWEST_ABI);
    if abi == 0 {
        return Ok(0);
    }
    let ruleset: Option<OwnedFd> = (build(directories, ports, abi))
        .map_err(io::Error::other)?
        .into();
    let ruleset = ruleset.ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))?;
    // The broker has one thread.
    let flags = [LOG_SAME_EXEC_OFF, LOG_SUBDOMAINS_OFF];
    restrict_self(
        ruleset.as_fd(),
        flags.into_iter().filter(|flag| flag.since <= abi),
    )?;
    Ok(abi)
}

fn build(directories: &[PathBuf], ports: &[u16], abi: u32) -> Result<RulesetCreated, RulesetError> {
    let known = ABI::from(i32::try_from(abi).unwrap_or(0));
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(known))?;
    if abi >= 4 {
        ruleset = ruleset.handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp)?;
    }
    if abi >= 6 {
        ruleset = ruleset.scope(Scope::from_all(known))?;
    }
    let mut created = ruleset.create()?;
    for directory in directories {
        // One that is missing needs no rule.
        if let Ok(fd) = PathFd::new(directory) {
            created = created.add_rule(PathBeneath::new(fd, AccessFs::ReadFile))?;
        }
    }
    if abi >= 4 {
        for port in ports {
            created = created.add_rule(NetPort::new(*port, AccessNet::ConnectTcp))?;
        }
    }
    Ok(created)
}
