//! A delegated scope from systemd (org.freedesktop.systemd1(5), systemd.scope(5)).
//!
//! cellblock asks its user's manager, or for root the system's, for one scope
//! that all runs of the user share, and has itself moved there, unless the unit
//! that it runs in is delegated already.
//!
//! ```text
//! cellblock.scope
//! ├── keeper                 keeps the scope for a while without a run
//! ├── cellblock-supervisors  every cellblock of this user
//! └── cellblock-ID           one cell, with its limits
//! ```
//!
//! Being moved is one call to the manager. A scope for each run would be a unit
//! and a job for each, at several times the price, and would stay for ever when a
//! run is killed while systemd makes it. The first run starts the [`keeper`], which
//! asks for the scope; no daemon is needed.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::Flock;
use nix::unistd::Uid;

use super::dir::Dir;
use super::find::{CgroupParent, writable};
use super::location::Location;
use super::{CgroupSource, Controller, LEAF};
use record::error::{Result, SetupError, Step};

use dbus::Failure;
use manager::Manager;

mod dbus;
mod keeper;
mod manager;
mod stay;

/// The scope of a user's cells.
const UNIT: &str = "cellblock.scope";
/// How long systemd gets to answer everything: a run waits for those that began
/// before it.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often a manager is asked again.
const AGAIN: Duration = Duration::from_millis(20);

/// The cgroup `own`, which this process runs in and may write, if systemd has
/// delegated it; else that of the user's scope, into which this process is moved.
pub(super) fn obtain(
    uid: Uid,
    source: CgroupSource,
    own: Option<CgroupParent>,
) -> Result<CgroupParent> {
    let location = Location::own()?;
    worthwhile(&location.mount)?;
    let may_leave = stay::may_leave(&location, uid);
    let deadline = Instant::now() + PATIENCE;
    if let Some(own) = own {
        let mut manager = Manager::connect(uid, deadline)?;
        if is_delegated(&mut manager, &own.below) {
            return Ok(own);
        }
        may_leave?;
        enter(&mut manager, uid, deadline)?;
    } else {
        may_leave?;
        let moved = move_self(&location.mount, uid).is_ok()
            || (!uid.is_root() && attach_at_once(uid, deadline).is_ok());
        if !moved {
            enter(&mut Manager::connect(uid, deadline)?, uid, deadline)?;
        }
    }
    scope(source)
}

/// Moves this process into the scope without systemd, which only root may do.
fn move_self(mount: &Path, uid: Uid) -> Result<()> {
    let scope = stay::destination(uid).join(UNIT);
    Dir::open(mount.join(scope).join(LEAF))?.write("cgroup.procs", "0")
}

/// Has the system's manager move this process into the scope, which to that
/// manager is a part of the delegated unit that the user's manager runs in. The
/// user's own manager would have to ask it as well, which takes longer.
fn attach_at_once(uid: Uid, deadline: Instant) -> Result<()> {
    let unit = format!("user@{uid}.service");
    let scope = stay::destination(uid).join(UNIT).join(LEAF);
    let below = scope
        .components()
        .skip_while(|part| part.as_os_str() != &*unit)
        .skip(1);
    let below = Path::new("/").join(below.collect::<PathBuf>());
    let mut system = Manager::connect(Uid::from_raw(0), deadline)?;
    Ok(system.attach(&unit, &below.to_string_lossy(), std::process::id())?)
}

fn is_delegated(manager: &mut Manager, below: &Path) -> bool {
    let cgroup = Path::new("/").join(below);
    let cgroup = cgroup.to_str();
    cgroup.and_then(|cgroup| manager.delegates(cgroup)) == Some(true)
}

/// Has this process moved into the scope, which is made first where it is missing.
fn enter(manager: &mut Manager, uid: Uid, deadline: Instant) -> Result<()> {
    let leaf = format!("/{LEAF}");
    let pid = std::process::id();
    let mut attach = || match manager.attach(UNIT, &leaf, pid) {
        Ok(()) => Ok(true),
        // There is no scope, or it is not ready.
        Err(Failure::Refused { .. }) => Ok(false),
        Err(unreachable) => Err(SetupError::from(unreachable)),
    };
    if attach()? {
        return Ok(());
    }
    // Of all runs that find no scope, one makes it.
    let _lock = lock(uid, deadline)?;
    if attach()? {
        return Ok(());
    }
    keeper::start(uid, deadline)?;
    Ok(manager.attach(UNIT, &leaf, pid)?)
}

/// The lock on making the scope.
fn lock(uid: Uid, deadline: Instant) -> Result<Flock<File>> {
    let path = if uid.is_root() {
        PathBuf::from("/run/cellblock.lock")
    } else {
        PathBuf::from(format!("/run/user/{uid}/cellblock.lock"))
    };
    let failed =
        |call, error: &std::io::Error| SetupError::io(Step::Cgroup, call, error).on(path.display());
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&path)
        .map_err(|error| failed("open", &error))?;
    // Its holder may be stopped.
    let left = deadline.saturating_duration_since(Instant::now());
    sys::flock_within(file, Some(left)).map_err(|errno| failed("flock", &errno.into()))
}

/// The cgroup of the scope, which this process must be in by now.
fn scope(source: CgroupSource) -> Result<CgroupParent> {
    let own = Location::own()?;
    let scope = own
        .parent()
        .filter(|scope| own.name() == Some(LEAF) && scope.name() == Some(UNIT));
    let Some(scope) = scope else {
        return Err(SetupError::new(
            Step::Cgroup,
            format!("systemd has {UNIT} and did not move cellblock there"),
        )
        .on(own.path().display())
        .hint("start cellblock itself with `systemd-run --scope -p Delegate=yes`"));
    };
    let dir = Dir::open(scope.path())?;
    writable(&dir)?;
    Ok(CgroupParent {
        dir,
        below: scope.below,
        source,
    })
}

/// Whether a scope would have any controller: with the old layout, they are all
/// in cgroup v1, and asking systemd would gain nothing.
fn worthwhile(mount: &Path) -> Result<()> {
    let root = Dir::open(mount.to_owned())?;
    let controllers = root.read("cgroup.controllers")?;
    if Controller::in_list(&controllers).is_empty() {
        return Err(SetupError::new(
            Step::Cgroup,
            "the controllers are in cgroup v1, which systemd cannot delegate safely",
        )
        .on(mount.display())
        .hint("boot with systemd.unified_cgroup_hierarchy=1"));
    }
    Ok(())
}
