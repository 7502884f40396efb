//! Which cgroup the cell's can be made in.
//!
//! Looking changes nothing. A cgroup is *ours* when we may write it and nothing else
//! manages it. systemd manages every cgroup that it has not delegated, and may take
//! controllers away there at any time, and with them the limits of cells.

use std::fs;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use nix::unistd::Uid;

use super::dir::Dir;
use super::location::{Location, mount_point};
use super::{CgroupSource, LEAF};
use record::error::{Result, SetupError, Step};

/// A cgroup that cells may be made in.
#[derive(Debug)]
pub(super) struct CgroupParent {
    pub(super) dir: Dir,
    /// Its path below the cgroup2 mount; empty for the mount's root.
    pub(super) below: PathBuf,
    pub(super) source: CgroupSource,
}

/// The caller, and the kind of host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller {
    pub(super) uid: Uid,
    /// Whether systemd manages the cgroups.
    pub(super) systemd: bool,
}

/// Whether the cgroup that cellblock runs in is delegated to it.
#[derive(Debug)]
pub(super) enum Delegation {
    /// It is, or the cgroup above is.
    Certain(CgroupParent),
    /// We may write it, but the user's systemd may be managing it, and must be asked.
    Possible(CgroupParent),
}

/// The cgroup that cellblock runs in, or the one above.
pub(super) fn delegated(caller: Caller) -> Result<Delegation> {
    let own = Location::own()?;
    if let Some(parent) = beside(&own, caller) {
        return Ok(Delegation::Certain(parent));
    }
    let dir = Dir::open(own.path())?;
    let source = ours(&dir, &own, caller)?;
    let parent = CgroupParent {
        dir,
        below: own.below,
        source: source.unwrap_or(CgroupSource::Delegated),
    };
    Ok(match source {
        Some(_) => Delegation::Certain(parent),
        None => Delegation::Possible(parent),
    })
}

/// The parent of the cgroup that cellblock runs in, when cells can be made there
/// without moving any process: an earlier cellblock left us in its leaf, or
/// another manager arranged a delegated cgroup in the same way.
fn beside(own: &Location, caller: Caller) -> Option<CgroupParent> {
    let above = own.parent()?;
    let in_leaf = own.name() == Some(LEAF);
    // The root of a systemd manager is delegated, but to that manager.
    if own.name() == Some("init.scope") {
        return None;
    }
    let dir = Dir::open(above.path()).ok()?;
    let source = match ours(&dir, &above, caller).ok()? {
        Some(source) => source,
        // Only cellblock makes the leaf, and only in a cgroup that was ours.
        None if in_leaf => CgroupSource::Delegated,
        None => return None,
    };
    // For root without systemd nothing marks where a delegation begins, and a
    // cell must not escape its caller's limits.
    let shared = source == CgroupSource::Delegated
        && dir
            .read("cgroup.subtree_control")
            .is_ok_and(|enabled| !enabled.trim().is_empty());
    (in_leaf || shared).then_some(CgroupParent {
        dir,
        below: above.below,
        source,
    })
}

/// The directory that the caller gave.
pub(super) fn given(path: &Path, caller: Caller) -> Result<CgroupParent> {
    let hint = "give a cgroup v2 directory that is delegated to you, and start cellblock below it";
    let dir = Dir::open(path.to_owned()).map_err(|error| error.hint(hint))?;
    writable(&dir).map_err(|error| error.hint(hint))?;
    let path = fs::canonicalize(path)
        .map_err(|error| SetupError::io(Step::Cgroup, "realpath", &error).on(path.display()))?;
    let mount = mount_point(&path)?;
    if !caller.uid.is_root() {
        reachable(&mount, &path).map_err(|error| error.hint(hint))?;
    }
    let below = path.strip_prefix(&mount).unwrap_or(&path).to_owned();
    Ok(CgroupParent {
        dir,
        below,
        source: CgroupSource::Given,
    })
}

/// Whether a process may be moved from our own cgroup into `target`, which takes
/// write access to `cgroup.procs` of the lowest cgroup above both (cgroups(7)).
fn reachable(mount: &Path, target: &Path) -> Result<()> {
    let own = Location::own()?.path();
    let common: PathBuf = own
        .components()
        .zip(target.components())
        .take_while(|(a, b)| a == b)
        .map(|(part, _)| part)
        .collect();
    if !common.starts_with(mount) {
        return Ok(());
    }
    Dir::open(common)?.may_write("cgroup.procs")
}

/// How `dir` became ours; `None` when we may write it and only the user's systemd
/// knows whether it manages it.
fn ours(dir: &Dir, location: &Location, caller: Caller) -> Result<Option<CgroupSource>> {
    let start = match (caller.systemd, caller.uid.is_root()) {
        (true, true) => "start cellblock with `systemd-run --scope -p Delegate=yes`",
        (true, false) => "start cellblock with `systemd-run --user --scope -p Delegate=yes`",
        (false, _) => {
            "have the cgroup's owner delegate it: chown the directory, its cgroup.procs and its cgroup.subtree_control"
        }
    };
    writable(dir).map_err(|error| error.hint(start))?;
    if !caller.systemd {
        return Ok(Some(if caller.uid.is_root() {
            CgroupSource::Root
        } else {
            CgroupSource::Delegated
        }));
    }
    if marked(dir)? {
        return Ok(Some(CgroupSource::Delegated));
    }
    if caller.uid.is_root() {
        return Err(
            SetupError::new(Step::Cgroup, "systemd manages it and has not delegated it")
                .on(dir.path().display())
                .hint(start),
        );
    }
    // The system's systemd lets a user write only what it delegates. The user's
    // own does not mark what it delegates, and lets the user write everything.
    Ok((!location.of_user_manager()).then_some(CgroupSource::Delegated))
}

/// Whether systemd marked `dir` as delegated. The system manager sets `trusted.`,
/// which only root can read; `user.` came with systemd 251.
fn marked(dir: &Dir) -> Result<bool> {
    for name in [c"user.delegate", c"trusted.delegate"] {
        let marked = sys::cgroup::attribute_is_one(dir.as_fd(), name).map_err(|error| {
            SetupError::io(Step::Cgroup, "getxattr", &error).on(dir.path().display())
        })?;
        if marked {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether cgroups can be made in `dir`, processes moved there and controllers
/// enabled.
pub(super) fn writable(dir: &Dir) -> Result<()> {
    [".", "cgroup.procs", "cgroup.subtree_control"]
        .into_iter()
        .try_for_each(|name| dir.may_write(name))
}
