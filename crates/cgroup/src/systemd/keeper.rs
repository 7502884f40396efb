//! The process that keeps the scope between runs.
//!
//! systemd removes a scope when its last process has ended, and making one takes
//! longer than a whole run. So the first run starts a keeper, which asks for the
//! scope itself: no scope depends on a process that the caller may kill at any
//! moment. The keeper ends when there has been no cell for [`IDLE`], and the scope
//! with it.
//!
//! It is a copy of the process that found no scope, detached from it: a session of
//! its own, no descriptors but `/dev/null`, no privileges, and not dumpable, so that
//! no other process of the user can read its memory.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid, chdir, dup, pipe2, setgroups, setresgid, setresuid, setsid};

use super::super::dir::Dir;
use super::super::find::writable;
use super::super::location::Location;
use super::super::{LEAF, PREFIX, enable};
use super::dbus::{Failure, failure};
use super::manager::Manager;
use super::{AGAIN, UNIT};
use record::error::{Result, SetupError, Step};

/// The keeper's own cgroup in the scope.
const KEEPER: &str = "keeper";
/// How long the scope is kept without a cell or a supervisor in it.
const IDLE: Duration = Duration::from_secs(10);
/// How often the keeper checks that.
const PERIOD: Duration = Duration::from_secs(1);
/// How long systemd gets to make the scope. Longer than any run waits for it: if the
/// keeper ended while its request is being carried out, the scope would never have a
/// process, and so never be removed.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often the keeper checks whether systemd has moved it.
const SOON: Duration = Duration::from_millis(2);
const UNIT_EXISTS: &str = "org.freedesktop.systemd1.UnitExists";
/// `nobody`, which owns nothing.
const NOBODY: u32 = 65534;

/// Starts a keeper and waits until its scope is ready.
pub(super) fn start(uid: Uid, deadline: Instant) -> Result<()> {
    let (report, write_end) = pipe2(OFlag::O_CLOEXEC).map_err(failed("pipe2"))?;
    sys::cgroup::spawn_detached(uid, write_end, keep).map_err(failed("clone3"))?;
    let left = deadline.saturating_duration_since(Instant::now());
    let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
    let mut ready = [PollFd::new(report.as_fd(), PollFlags::POLLIN)];
    // No handler is installed, so no signal interrupts this.
    if poll(&mut ready, left).map_err(failed("poll"))? == 0 {
        return Err(failure("systemd did not answer in time").on(UNIT));
    }
    let mut text = Vec::new();
    File::from(report)
        .read_to_end(&mut text)
        .map_err(|error| SetupError::io(Step::Cgroup, "read", &error).on(UNIT))?;
    record::json::from_slice(&text)
        .unwrap_or_else(|_| Err(failure("the process that keeps the scope died").on(UNIT)))
}

fn failed(call: &str) -> impl FnOnce(Errno) -> SetupError {
    move |errno| SetupError::os(Step::Cgroup, call, errno).on(UNIT)
}

/// The keeper's life.
fn keep(uid: Uid, report: OwnedFd, closed: nix::Result<()>) {
    let ready = detach(closed).and_then(|()| ready(uid));
    let outcome = ready.as_ref().map(drop);
    let text = serde_json::to_vec(&outcome).unwrap_or_default();
    // The run that waits may have ended meanwhile.
    let _ = File::from(report).write_all(&text);
    if let Ok(scope) = ready {
        remove_abandoned(uid, &scope);
        drop_privileges(uid);
        wait_until_idle(&scope);
    }
}

/// Drops everything inherited from the process that this is a copy of.
fn detach(closed: nix::Result<()>) -> Result<()> {
    closed.map_err(failed("close_range"))?;
    setsid().map_err(failed("setsid"))?;
    prctl::set_dumpable(false).map_err(failed("prctl"))?;
    let _ = prctl::set_name(c"cellblock-scope");
    // systemd and users end it with SIGTERM, which a supervisor blocks. SIGPIPE would
    // end it when the run that waits was killed.
    let blocked = SigSet::from(Signal::SIGPIPE);
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&blocked), None).map_err(failed("sigprocmask"))?;
    sys::process::default_signal_dispositions();
    chdir("/").map_err(failed("chdir"))?;
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

/// Makes the scope, and its cgroups for supervisors and keeper.
fn ready(uid: Uid) -> Result<Dir> {
    let scope = enter(uid)?;
    writable(&scope)?;
    scope.ensure_child(LEAF)?;
    // The scope's own cgroup can enable no controllers while it has processes.
    scope.ensure_child(KEEPER)?.write("cgroup.procs", "0")?;
    enable::controllers(&scope)?;
    Ok(scope)
}

/// Moves this process into the scope: a new one, or one that has lost its keeper.
fn enter(uid: Uid) -> Result<Dir> {
    let pid = std::process::id();
    let deadline = Instant::now() + PATIENCE;
    let mut manager = Manager::connect(uid, deadline)?;
    loop {
        match manager.start_scope(UNIT, pid) {
            Ok(()) => break,
            Err(Failure::Refused { name, error }) => {
                if name != UNIT_EXISTS || Instant::now() >= deadline {
                    return Err(error);
                }
                if manager.attach(UNIT, "/", pid).is_ok() {
                    break;
                }
                // The old scope is being removed, and its name free soon.
            }
            Err(Failure::Unreachable(error)) => {
                // The request may still be carried out.
                thread::sleep(deadline.saturating_duration_since(Instant::now()));
                return Err(error);
            }
        }
        thread::sleep(AGAIN);
    }
    loop {
        let own = Location::own()?;
        if own.name() == Some(UNIT) {
            return Dir::open(own.path());
        }
        if Instant::now() >= deadline {
            let message = format!("systemd made {UNIT} and did not move cellblock there");
            return Err(failure(message).on(own.path().display()));
        }
        thread::sleep(SOON);
    }
}

/// Stops scopes of ours that never had a process: version 0.1.0 made one for each
/// run, and left it when the run was killed early. systemd removes a scope by itself
/// only when its last process ends.
fn remove_abandoned(uid: Uid, scope: &Dir) {
    let units = if uid.is_root() {
        "/run/systemd/transient".to_owned()
    } else {
        format!("/run/user/{uid}/systemd/transient")
    };
    let beside = scope.path().parent().unwrap_or(Path::new("/"));
    let Ok(units) = fs::read_dir(units) else {
        return;
    };
    let names = units
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    for unit in names.filter(|name| name.starts_with(PREFIX) && name.ends_with(".scope")) {
        // One without a cgroup has no process either.
        if !Dir::open(beside.join(&unit)).is_ok_and(|dir| dir.is_populated())
            && let Ok(mut manager) = Manager::connect(uid, Instant::now() + PATIENCE)
        {
            let _ = manager.stop(&unit);
        }
    }
}

/// From here on, the keeper only reads files of its scope.
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
    let supervisors = scope.child(LEAF);
    supervisors.is_ok_and(|leaf| leaf.is_populated()) || !scope.cells().is_empty()
}
