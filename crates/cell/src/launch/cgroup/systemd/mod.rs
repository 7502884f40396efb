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
//! Being moved is one call to the manager; a scope for each run would be a unit
//! and a job for each, at several times the price, and would stay for ever when a
//! run is killed while systemd makes it. The first run starts the [`keeper`], which
//! asks for the scope; there is no daemon.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::Uid;
use serde::{Deserialize, Serialize};

use super::dir::Dir;
use super::find::{Location, Parent, writable};
use super::{Controller, LEAF, Source};
use record::error::{Result, SetupError, Step};

use apart::apart;
use bus::{Manager, Trouble};

mod apart;
mod bus;
mod keeper;
mod stay;

/// The scope of a user's cells.
const UNIT: &str = "cellblock.scope";
/// How long systemd gets to answer, and how long to answer everything: a run
/// waits for those that began before it.
const PATIENCE: Duration = Duration::from_secs(20);
/// For what the child does besides.
const MARGIN: Duration = Duration::from_millis(500);

/// Where cells can be made by systemd's leave.
#[derive(Debug, Serialize, Deserialize)]
enum Place {
    /// In the unit that this process runs in.
    Here,
    /// In the user's scope, where this process is now.
    Scope,
}

/// The cgroup `own`, which this process runs in and may write, if systemd has
/// delegated it; else that of the user's scope, into which this process is moved.
pub(super) fn obtain(uid: Uid, source: Source, own: Option<Parent>) -> Result<Parent> {
    let location = Location::own()?;
    worthwhile(&location.mount)?;
    let may_leave = stay::may_leave(&location, uid);
    if own.is_none() {
        may_leave.clone()?;
        if move_self(&location.mount, uid).is_ok() {
            return moved(source);
        }
    }
    let perhaps_here = own.is_some().then_some(&*location.below);
    let pid = std::process::id();
    let place = apart(PATIENCE + MARGIN, || {
        if perhaps_here.is_none() && !uid.is_root() && attach_at_once(uid, pid).is_ok() {
            return Ok(Place::Scope);
        }
        let mut manager = Manager::connect(uid, PATIENCE)?;
        if perhaps_here.is_some_and(|below| is_delegated(&mut manager, below)) {
            return Ok(Place::Here);
        }
        may_leave?;
        enter(&mut manager, uid, pid)
    })
    .map_err(|error| match error.operand {
        None => error.on(UNIT),
        Some(_) => error,
    })?;
    match (place, own) {
        (Place::Here, Some(own)) => Ok(own),
        _ => moved(source),
    }
}

/// Moves this process into the scope without asking anybody, which root may do.
fn move_self(mount: &Path, uid: Uid) -> Result<()> {
    let scope = stay::destination(uid).join(UNIT);
    Dir::open(mount.join(scope).join(LEAF))?.write("cgroup.procs", "0")
}

/// Has `pid` moved into the scope by the system's manager, to which the scope is a
/// part of the delegated unit that the user's manager runs in. The user's own
/// would have to ask it, too, which takes longer.
fn attach_at_once(uid: Uid, pid: u32) -> Result<()> {
    let unit = format!("user@{uid}.service");
    let scope = stay::destination(uid).join(UNIT).join(LEAF);
    let below = scope
        .components()
        .skip_while(|part| part.as_os_str() != &*unit)
        .skip(1);
    let below = Path::new("/").join(below.collect::<PathBuf>());
    let mut system = Manager::connect(Uid::from_raw(0), PATIENCE)?;
    Ok(system.attach(&unit, &below.to_string_lossy(), pid)?)
}

fn is_delegated(manager: &mut Manager, below: &Path) -> bool {
    let cgroup = Path::new("/").join(below);
    cgroup
        .to_str()
        .is_some_and(|cgroup| manager.delegates(cgroup).unwrap_or(false))
}

/// Has `pid` moved into the scope, and makes the scope first where it is missing.
fn enter(manager: &mut Manager, uid: Uid, pid: u32) -> Result<Place> {
    if attach(manager, pid)? {
        return Ok(Place::Scope);
    }
    // Of all that find no scope, one makes it. Killed by `apart` in due course,
    // should the lock's owner be stopped.
    let _lock = lock(uid)?;
    if !attach(manager, pid)? {
        keeper::start(uid)?;
        manager.attach(UNIT, &format!("/{LEAF}"), pid)?;
    }
    Ok(Place::Scope)
}

/// Whether `pid` could be moved; not without a scope that is ready.
fn attach(manager: &mut Manager, pid: u32) -> Result<bool> {
    match manager.attach(UNIT, &format!("/{LEAF}"), pid) {
        Ok(()) => Ok(true),
        Err(Trouble::Refused { .. }) => Ok(false),
        Err(unreachable) => Err(unreachable.into()),
    }
}

/// The lock on making the scope.
fn lock(uid: Uid) -> Result<Flock<File>> {
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
    let mut file = file;
    loop {
        match Flock::lock(file, FlockArg::LockExclusive) {
            Ok(lock) => return Ok(lock),
            Err((back, Errno::EINTR)) => file = back,
            Err((_, errno)) => return Err(failed("flock", &errno.into())),
        }
    }
}

/// The cgroup of the scope, which this process must be in by now.
fn moved(source: Source) -> Result<Parent> {
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
    Ok(Parent {
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
