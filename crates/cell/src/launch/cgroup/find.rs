//! Which cgroup the cell's can be made in.
//!
//! Only looks; nothing is changed here. A cgroup is *ours* when we may write it
//! and nobody else manages it. Where systemd runs, it manages every cgroup that
//! it has not delegated, and may take controllers away there at any time, and
//! with them the limits of cells.

use std::fs::{self, File};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use nix::unistd::Uid;

use super::dir::{Dir, contents};
use super::{LEAF, Source, parse};
use record::error::{Result, SetupError, Step};
use sys;

/// A cgroup that cells may be made in.
#[derive(Debug)]
pub(super) struct Parent {
    pub(super) dir: Dir,
    /// Its path below the cgroup2 mount; empty for the mount's root.
    pub(super) below: PathBuf,
    pub(super) source: Source,
}

/// Who asks, and on what kind of host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller {
    pub(super) uid: Uid,
    /// Whether systemd manages the cgroups (sd_booted(3)).
    pub(super) systemd: bool,
}

impl Caller {
    pub(super) fn current() -> Self {
        Self {
            uid: Uid::effective(),
            systemd: Path::new("/run/systemd/system").is_dir(),
        }
    }
}

/// Where a cgroup is: mount point, and path below it.
#[derive(Clone, Debug)]
pub(super) struct Location {
    pub(super) mount: PathBuf,
    pub(super) below: PathBuf,
}

impl Location {
    /// The cgroup that cellblock runs in.
    pub(super) fn own() -> Result<Self> {
        const MEMBERSHIP: &str = "/proc/self/cgroup";
        const MOUNTS: &str = "/proc/self/mountinfo";
        let cgroup = read(MEMBERSHIP)?;
        let cgroup = parse::membership(&cgroup).ok_or_else(|| {
            SetupError::new(Step::Cgroup, "this process is in no cgroup of version 2")
                .on(MEMBERSHIP)
                .hint("boot with systemd.unified_cgroup_hierarchy=1")
        })?;
        let mounts = parse::mounts(&read(MOUNTS)?);
        mounts
            .iter()
            .find_map(|mount| {
                mount.below(cgroup).map(|below| Self {
                    mount: mount.point.clone(),
                    below: below.to_owned(),
                })
            })
            .ok_or_else(|| {
                let message = if mounts.is_empty() {
                    "no cgroup v2 file system is mounted"
                } else {
                    "no mounted cgroup v2 file system shows the cgroup that cellblock runs in"
                };
                SetupError::new(Step::Cgroup, message)
                    .on(cgroup.display())
                    .hint(
                        "in a container, give it a cgroup namespace and a cgroup2 mount of its own",
                    )
            })
    }

    pub(super) fn path(&self) -> PathBuf {
        self.mount.join(&self.below)
    }

    pub(super) fn name(&self) -> Option<&str> {
        self.below.file_name()?.to_str()
    }

    /// Whether it is below a user's systemd.
    fn of_user_manager(&self) -> bool {
        self.below.components().any(|part| {
            let name = part.as_os_str().as_encoded_bytes();
            name.starts_with(b"user@") && name.ends_with(b".service")
        })
    }

    /// The cgroup above; `None` at the mount point.
    pub(super) fn parent(&self) -> Option<Self> {
        Some(Self {
            mount: self.mount.clone(),
            below: self.below.parent()?.to_owned(),
        })
    }
}

/// What can be told of the cgroup that cellblock runs in.
#[derive(Debug)]
pub(super) enum Standing {
    /// It, or the one above, is ours.
    Ours(Parent),
    /// We may write it, but the user's systemd may be managing it. Ask.
    Unclear(Parent),
}

/// The cgroup that cellblock runs in, or the one above.
pub(super) fn delegated(caller: Caller) -> Result<Standing> {
    let own = Location::own()?;
    if let Some(parent) = beside(&own, caller) {
        return Ok(Standing::Ours(parent));
    }
    let dir = Dir::open(own.path())?;
    let (source, clear) = match ours(&dir, &own, caller)? {
        Some(source) => (source, true),
        None => (Source::Delegated, false),
    };
    let parent = Parent {
        dir,
        below: own.below,
        source,
    };
    Ok(if clear {
        Standing::Ours(parent)
    } else {
        Standing::Unclear(parent)
    })
}

/// The parent of the cgroup that cellblock runs in, when cells can be made there
/// without moving any process: an earlier cellblock left us in its leaf, or
/// somebody else arranged a delegated cgroup in the same way.
fn beside(own: &Location, caller: Caller) -> Option<Parent> {
    let above = own.parent()?;
    let in_leaf = own.name() == Some(LEAF);
    // The root of a systemd manager is delegated, but to that manager.
    if own.name() == Some("init.scope") {
        return None;
    }
    let dir = Dir::open(above.path()).ok()?;
    let source = match ours(&dir, &above, caller).ok()? {
        Some(source) => source,
        // Only a cellblock makes the leaf, and only in what was ours.
        None if in_leaf => Source::Delegated,
        None => return None,
    };
    // For root without systemd nothing says where a delegation begins, and a
    // cell must not get out of the limits that its caller is under.
    let shared = source == Source::Delegated
        && dir
            .read("cgroup.subtree_control")
            .is_ok_and(|enabled| !enabled.trim().is_empty());
    (in_leaf || shared).then_some(Parent {
        dir,
        below: above.below,
        source,
    })
}

/// The directory that the caller gave.
pub(super) fn given(path: &Path, caller: Caller) -> Result<Parent> {
    let hint = "give a cgroup v2 directory that is delegated to you, and start cellblock below it";
    let dir = Dir::open(path.to_owned()).map_err(|error| error.hint(hint))?;
    writable(&dir).map_err(|error| error.hint(hint))?;
    let path = fs::canonicalize(path)
        .map_err(|error| SetupError::io(Step::Cgroup, "realpath", &error).on(path.display()))?;
    let mount = parse::mounts(&read("/proc/self/mountinfo")?)
        .into_iter()
        .map(|mount| mount.point)
        .filter(|point| path.starts_with(point))
        .max_by_key(|point| point.as_os_str().len())
        .unwrap_or_else(|| PathBuf::from("/"));
    if !caller.uid.is_root() {
        reachable(&mount, &path).map_err(|error| error.hint(hint))?;
    }
    let below = path.strip_prefix(&mount).unwrap_or(&path).to_owned();
    Ok(Parent {
        dir,
        below,
        source: Source::Given,
    })
}

/// Whether a process may be put from our own cgroup into `target`: that takes
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

/// Why `dir` is ours; `None` when we may write it and only the user's systemd
/// can tell whether it is managing it.
fn ours(dir: &Dir, location: &Location, caller: Caller) -> Result<Option<Source>> {
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
            Source::Root
        } else {
            Source::Delegated
        }));
    }
    if marked(dir)? {
        return Ok(Some(Source::Delegated));
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
    Ok((!location.of_user_manager()).then_some(Source::Delegated))
}

/// Whether systemd marked `dir` as delegated: `trusted.` is what the system
/// manager sets and only root can read, `user.` came with systemd 251.
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

/// Whether cgroups can be made in `dir`, processes put there and controllers
/// enabled.
pub(super) fn writable(dir: &Dir) -> Result<()> {
    [".", "cgroup.procs", "cgroup.subtree_control"]
        .into_iter()
        .try_for_each(|name| dir.may_write(name))
}

fn read(path: &str) -> Result<Vec<u8>> {
    File::open(path)
        .and_then(contents)
        .map_err(|error| SetupError::io(Step::Cgroup, "read", &error).on(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(below: &str) -> Location {
        Location {
            mount: "/sys/fs/cgroup".into(),
            below: below.into(),
        }
    }

    #[test]
    fn a_location_knows_its_name_and_what_is_above() {
        let leaf = location("a.slice/b.scope/cellblock-supervisors");
        assert_eq!(leaf.name(), Some(LEAF));
        let above = leaf.parent().unwrap();
        assert_eq!(above.path(), Path::new("/sys/fs/cgroup/a.slice/b.scope"));
        let top = location("a.slice").parent().unwrap();
        assert_eq!(top.path(), Path::new("/sys/fs/cgroup"));
        // Nothing above the mount is to be had.
        assert!(location("").parent().is_none());
        assert_eq!(location("").name(), None);
    }

    #[test]
    fn what_a_users_systemd_manages_is_told_by_the_path() {
        for (below, expected) in [
            (
                "user.slice/user-1000.slice/user@1000.service/app.slice/x.scope",
                true,
            ),
            ("user.slice/user-1000.slice/user@1000.service", true),
            ("user.slice/user-1000.slice/session-2.scope", false),
            ("system.slice/platform.service/main", false),
            ("", false),
        ] {
            assert_eq!(location(below).of_user_manager(), expected, "{below}");
        }
    }
}
