//! The process that keeps the scope between runs.
//!
//! systemd removes a scope when its last process has ended, and making one takes
//! longer than a whole run. So the first run starts a keeper, which asks for the
//! scope itself: no scope depends on a process that the caller may kill at any
//! moment. It ends when there has been no cell for [`IDLE`], and the scope with it.
//!
//! The keeper is a copy of the process that found no scope, detached from it: a
//! session of its own, no descriptors but `/dev/null`, no privileges, not
//! dumpable, so that no other process of the user can read its memory.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use nix::dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{Gid, Uid, chdir, dup, getpid, pipe2, setgroups, setresgid, setresuid, setsid};

use super::super::dir::Dir;
use super::super::find::{Location, writable};
use super::super::{LEAF, PREFIX, enable};
use super::UNIT;
use super::bus::Manager;
use record::error::{Result, SetupError, Step};
use sys;

/// The keeper's own cgroup in the scope.
const KEEPER: &str = "keeper";
/// How long the scope is kept without a cell or a supervisor in it.
const IDLE: Duration = Duration::from_secs(10);
/// How often that is looked at.
const PERIOD: Duration = Duration::from_secs(1);
/// How long systemd gets to make the scope. Longer than any run waits for it: a
/// keeper that ended while its request is under way would leave a scope that
/// never becomes populated, and so never goes.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often the manager is asked again while an old scope is on its way out.
const AGAIN: Duration = Duration::from_millis(20);
/// `nobody`, which owns nothing.
const NOBODY: u32 = 65534;

type Outcome = std::result::Result<(), SetupError>;

/// Starts a keeper and waits until its scope is ready.
pub(super) fn start(uid: Uid) -> Result<()> {
    let failed = |call| move |errno| SetupError::os(Step::Cgroup, call, errno);
    let (report, write_end) = pipe2(OFlag::O_CLOEXEC).map_err(failed("pipe2"))?;
    sys::cgroup::fork_apart(move || {
        keep(uid, write_end);
        0
    })
    .map_err(failed("clone3"))?;
    let mut text = Vec::new();
    File::from(report)
        .read_to_end(&mut text)
        .map_err(|error| SetupError::io(Step::Cgroup, "read", &error))?;
    serde_json::from_slice::<Outcome>(&text).unwrap_or_else(|_| {
        Err(SetupError::new(
            Step::Cgroup,
            "the process that keeps the scope died",
        ))
    })
}

/// The keeper's life.
fn keep(uid: Uid, report: OwnedFd) {
    let ready = detach(report.as_fd()).and_then(|()| ready(uid));
    let outcome = ready.as_ref().map(drop).map_err(Clone::clone);
    let text = serde_json::to_vec(&outcome).unwrap_or_default();
    // The run that waits may have ended meanwhile.
    let _ = File::from(report).write_all(&text);
    if let Ok(scope) = ready {
        remove_abandoned(uid, &scope);
        drop_privileges(uid);
        wait_until_idle(&scope);
    }
}

/// Leaves everything behind that came from the process that this is a copy of.
fn detach(report: BorrowedFd<'_>) -> Result<()> {
    let failed = |call| move |errno| SetupError::os(Step::Cgroup, call, errno);
    setsid().map_err(failed("setsid"))?;
    prctl::set_dumpable(false).map_err(failed("prctl"))?;
    let _ = prctl::set_name(c"cellblock-scope");
    // systemd and users end it with SIGTERM, which a supervisor blocks.
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)
        .map_err(failed("sigprocmask"))?;
    sys::process::default_signal_dispositions();
    chdir("/").map_err(failed("chdir"))?;
    // SAFETY: this copy goes from here to its end without running anybody's
    // destructors (see `fork_apart`), and uses nothing that it did not open itself.
    unsafe { sys::process::close_all_but(report) }.map_err(failed("close_range"))?;
    let null = open("/dev/null", OFlag::O_RDWR, Mode::empty());
    let null = null.map_err(|errno| failed("open")(errno).on("/dev/null"))?;
    // Takes the lowest numbers that are free, up to 2.
    let mut copies = vec![null];
    while copies.len() < 3 {
        copies.push(dup(&copies[0]).map_err(failed("dup"))?);
    }
    copies.into_iter().for_each(std::mem::forget);
    Ok(())
}

/// Makes the scope, and in it what cells need.
fn ready(uid: Uid) -> Result<Dir> {
    enter(uid)?;
    let own = Location::own()?;
    if own.name() != Some(UNIT) {
        return Err(SetupError::new(
            Step::Cgroup,
            format!("systemd made {UNIT} and did not move the process there that asked"),
        )
        .on(own.path().display()));
    }
    let scope = Dir::open(own.path())?;
    writable(&scope)?;
    for name in [KEEPER, LEAF] {
        match mkdirat(&scope, name, Mode::from_bits_truncate(0o755)) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(scope.error("mkdirat", name, errno)),
        }
    }
    // Away from the scope's own cgroup, which could enable no controllers else.
    scope.child(KEEPER)?.write("cgroup.procs", "0")?;
    enable::controllers(&scope)?;
    Ok(scope)
}

/// Gets this process into the scope: a new one, or one that is there without a
/// keeper.
fn enter(uid: Uid) -> Result<()> {
    let pid = getpid().as_raw() as u32;
    let deadline = Instant::now() + PATIENCE;
    let mut manager = Manager::connect(uid, PATIENCE)?;
    loop {
        let trouble = match manager.start_scope(UNIT, pid) {
            Ok(()) => return Ok(()),
            Err(trouble) if trouble.is_unit_exists() => trouble,
            Err(trouble) => {
                // The request may be under way all the same.
                if trouble.is_unreachable() {
                    thread::sleep(PATIENCE);
                }
                return Err(trouble.into());
            }
        };
        if manager.attach(UNIT, "/", pid).is_ok() {
            return Ok(());
        }
        // It is on its way out, and its name soon free.
        if Instant::now() >= deadline {
            return Err(trouble.into());
        }
        thread::sleep(AGAIN);
    }
}

/// Stops scopes of ours that have no process and never had one: version 0.1.0
/// made one for each run, and left it when the run was killed early. systemd
/// removes a scope by itself only when its last process ends.
fn remove_abandoned(uid: Uid, scope: &Dir) {
    let Ok(mut manager) = Manager::connect(uid, PATIENCE) else {
        return;
    };
    let units = manager.active(&format!("{PREFIX}*.scope"));
    let beside = scope.path().parent().unwrap_or(Path::new("/"));
    for unit in units.unwrap_or_default() {
        // One without a cgroup has no process either.
        let populated = Dir::open(beside.join(&unit))
            .and_then(|dir| dir.read("cgroup.events"))
            .is_ok_and(|events| events.contains("populated 1"));
        if !populated {
            let _ = manager.stop(&unit);
        }
    }
}

/// From here on, the keeper only reads the names in its scope.
fn drop_privileges(uid: Uid) {
    if uid.is_root() {
        let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
        let _ = setgroups(&[]);
        let _ = setresgid(group, group, group);
        let _ = setresuid(user, user, user);
    }
    let _ = prctl::set_no_new_privs();
    let _ = prctl::set_dumpable(false);
}

fn wait_until_idle(scope: &Dir) {
    let mut used = Instant::now();
    while used.elapsed() < IDLE {
        thread::sleep(PERIOD);
        if in_use(scope) {
            used = Instant::now();
        }
    }
}

/// Whether there is a supervisor or a cell. What cannot be read is not in use:
/// then the scope itself is gone.
fn in_use(scope: &Dir) -> bool {
    let supervised = scope
        .child(LEAF)
        .and_then(|leaf| leaf.read("cgroup.events"))
        .is_ok_and(|events| events.contains("populated 1"));
    supervised || has_cells(scope)
}

fn has_cells(scope: &Dir) -> bool {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let Ok(mut entries) = dir::Dir::openat(scope, c".", flags, Mode::empty()) else {
        return false;
    };
    entries
        .iter()
        .filter_map(std::result::Result::ok)
        .any(|entry| {
            let name = entry.file_name().to_bytes();
            name.starts_with(PREFIX.as_bytes()) && name != LEAF.as_bytes()
        })
}
