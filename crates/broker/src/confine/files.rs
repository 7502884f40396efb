//! Landlock: files and TCP ports (landlock(7)).

use std::io;
use std::path::PathBuf;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, NetPort, PathBeneath,
    PathFd, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, Scope,
};

/// Allows reading files beneath `directories` and connecting to `ports`, and nothing else.
/// Returns the ABI in use; 0 where Landlock is missing.
pub(super) fn restrict(directories: &[PathBuf], ports: &[u16]) -> io::Result<u32> {
    // Newer ones have nothing that this crate knows.
    let abi = sys::landlock::abi().min(6);
    if abi == 0 {
        return Ok(0);
    }
    apply(directories, ports, abi).map_err(io::Error::other)?;
    Ok(abi)
}

fn apply(directories: &[PathBuf], ports: &[u16], abi: u32) -> Result<(), RulesetError> {
    let known = match abi {
        1 => ABI::V1,
        2 => ABI::V2,
        3 => ABI::V3,
        4 => ABI::V4,
        5 => ABI::V5,
        _ => ABI::V6,
    };
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(known))?;
    if abi >= 4 {
        ruleset = ruleset.handle_access(AccessNet::from_all(known))?;
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
    created.no_new_privs(false).restrict_self()?;
    Ok(())
}
