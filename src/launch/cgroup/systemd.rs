//! A delegated scope from systemd (org.freedesktop.systemd1(5), systemd.scope(5)).
//!
//! cellblock asks its user's manager, or for root the system's, to make a scope
//! and to put cellblock into it, unless the unit that it runs in is delegated
//! already. systemd removes the scope when it is empty.
//!
//! The conversation takes place in a child of its own: whatever the other side
//! of the socket does, it costs no more than [`PATIENCE`], and nothing of it
//! stays in the process that makes cells.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::{Uid, pipe2};
use rustbus::connection::{self, Timeout};
use rustbus::message_builder::MarshalledMessage;
use rustbus::wire::ObjectPath;
use rustbus::wire::unmarshal::traits::Variant;
use rustbus::{Marshal, MessageBuilder, MessageType, RpcConn, Signature, standard_messages};
use rustbus_nix::sys::socket::UnixAddr;
use serde::{Deserialize, Serialize};

use super::dir::Dir;
use super::find::{Location, Parent, writable};
use super::{Controller, PREFIX, Source};
use crate::error::{Result, SetupError, Step};
use crate::sys;

/// How long systemd gets to make the scope.
const PATIENCE: Duration = Duration::from_secs(5);

const WAY_OUT: &str = "log in as this user, or `loginctl enable-linger`; or start cellblock in a unit with Delegate=yes";

/// The value of one of a unit's properties.
#[derive(Marshal, Signature)]
enum Property {
    Text(String),
    Flag(bool),
    Pids(Vec<u32>),
}

/// Where cells can be made by systemd's leave.
#[derive(Debug, Serialize, Deserialize)]
enum Place {
    /// In the unit that this process runs in.
    Here,
    /// In a new scope, where this process is now.
    Scope,
}

/// The cgroup `own`, which this process runs in and may write, if systemd has
/// delegated it; else that of a new scope, into which this process is moved.
pub(super) fn obtain(uid: Uid, source: Source, id: &str, own: Option<Parent>) -> Result<Parent> {
    worthwhile(&Location::own()?.mount)?;
    let unit = format!("{PREFIX}{id}.scope");
    match (apart(&unit, uid, own.is_some())?, own) {
        (Place::Here, Some(own)) => Ok(own),
        _ => moved(&unit, source),
    }
}

/// The cgroup of `unit`, which this process must be in by now.
fn moved(unit: &str, source: Source) -> Result<Parent> {
    let own = Location::own()?;
    if own.name() != Some(unit) {
        return Err(SetupError::new(
            Step::Cgroup,
            format!("systemd made {unit} and did not move cellblock there"),
        )
        .on(own.path().display())
        .hint("start cellblock itself with `systemd-run --scope -p Delegate=yes`"));
    }
    let dir = Dir::open(own.path())?;
    writable(&dir)?;
    Ok(Parent {
        dir,
        below: own.below,
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

/// Has a child ask, and waits for what it reports.
fn apart(unit: &str, uid: Uid, perhaps_here: bool) -> Result<Place> {
    let failed = |call| move |errno| SetupError::os(Step::Cgroup, call, errno);
    let pid = std::process::id();
    let (report, write_end) = pipe2(OFlag::O_CLOEXEC).map_err(failed("pipe2"))?;
    let write_end = File::from(write_end);
    let child = sys::cgroup::fork_apart(|| {
        // Not a moment longer than the supervisor.
        let tied = set_pdeathsig(Signal::SIGKILL);
        let outcome = tied
            .map_err(failed("prctl"))
            .and_then(|()| converse(unit, pid, uid, perhaps_here));
        let said = serde_json::to_vec(&outcome).unwrap_or_default();
        i32::from((&write_end).write_all(&said).is_err())
    })
    .map_err(failed("clone3"))?;
    drop(write_end);
    let mut ended = [PollFd::new(child.as_fd(), PollFlags::POLLIN)];
    let deadline = Instant::now() + PATIENCE + Duration::from_millis(500);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        match poll(&mut ended, left) {
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(failed("poll")(errno)),
            Ok(_) => break,
        }
    }
    // The reply is short enough for the pipe to hold it.
    let _ = sys::process::pidfd_send_signal(child.as_fd(), Signal::SIGKILL);
    while waitid(Id::PIDFd(child.as_fd()), WaitPidFlag::WEXITED) == Err(Errno::EINTR) {}
    let mut said = Vec::new();
    File::from(report)
        .read_to_end(&mut said)
        .map_err(|error| SetupError::io(Step::Cgroup, "read", &error))?;
    serde_json::from_slice(&said)
        .unwrap_or_else(|_| Err(failure("systemd did not answer in time").on(unit)))
}

/// Asks the manager of `uid` to make `unit` with `pid` in it; if it is `perhaps`
/// in a delegated unit, only after asking about that.
fn converse(unit: &str, pid: u32, uid: Uid, perhaps: bool) -> Result<Place> {
    let (path, address) = bus(uid)?;
    let on = |error: SetupError| error.on(path.display());
    let end = Instant::now() + PATIENCE;
    let left = || Timeout::Duration(end.saturating_duration_since(Instant::now()));
    let trouble = |error: connection::Error| on(explain(error));

    let mut bus = RpcConn::connect_to_path(address, left()).map_err(trouble)?;
    let mut ask = |mut message: MarshalledMessage| {
        let serial = send(&mut bus, &mut message, left()).map_err(trouble)?;
        let reply = bus.wait_response(serial, left()).map_err(trouble)?;
        match reply.typ {
            MessageType::Error => Err(on(refusal(&reply))),
            _ => Ok(reply),
        }
    };
    if perhaps && delegated(&mut ask, pid).unwrap_or(false) {
        return Ok(Place::Here);
    }
    ask(standard_messages::add_match(
        "type='signal',interface='org.freedesktop.systemd1.Manager',member='JobRemoved'",
    ))?;
    ask(start(unit, pid).map_err(on)?)?;
    loop {
        let signal = bus.wait_signal(left()).map_err(trouble)?;
        match job_result(&signal, unit).as_deref() {
            None => {}
            Some("done") => return Ok(Place::Scope),
            Some(other) => {
                let message = format!("the job that starts {unit} ended as {other}");
                return Err(on(failure(&message)));
            }
        }
    }
}

/// Whether the unit that `pid` belongs to has `Delegate=`. An error is as good as
/// a no: there may be no such unit.
fn delegated(
    ask: &mut impl FnMut(MarshalledMessage) -> Result<MarshalledMessage>,
    pid: u32,
) -> Result<bool> {
    let call = manager("GetUnitByPID", pid)?;
    let reply = ask(call)?;
    let Ok(unit) = reply.body.parser().get::<ObjectPath<String>>() else {
        return Ok(false);
    };
    let interface = if unit.as_ref().ends_with("_2escope") {
        "org.freedesktop.systemd1.Scope"
    } else if unit.as_ref().ends_with("_2eservice") {
        "org.freedesktop.systemd1.Service"
    } else {
        return Ok(false);
    };
    let mut call = MessageBuilder::new()
        .call("Get")
        .with_interface("org.freedesktop.DBus.Properties")
        .on(unit.as_ref())
        .at("org.freedesktop.systemd1")
        .build();
    call.body
        .push_param2(interface, "Delegate")
        .map_err(|error| failure(&error.to_string()))?;
    let reply = ask(call)?;
    let value = reply.body.parser().get::<Variant<'_, '_>>();
    Ok(value.is_ok_and(|value| value.get() == Ok(true)))
}

/// The result of the job on `unit`, when `signal` tells of its end.
fn job_result(signal: &MarshalledMessage, unit: &str) -> Option<String> {
    if signal.dynheader.member.as_deref() != Some("JobRemoved") {
        return None;
    }
    // Id, object path, unit, result.
    let mut body = signal.body.parser();
    let _: u32 = body.get().ok()?;
    let _: ObjectPath<String> = body.get().ok()?;
    let of: String = body.get().ok()?;
    let result = body.get().ok()?;
    (of == unit).then_some(result)
}

/// The call of StartTransientUnit.
fn start(unit: &str, pid: u32) -> Result<MarshalledMessage> {
    let text = |value: &str| Property::Text(value.to_owned());
    let properties = vec![
        ("Description", text("cellblock")),
        ("PIDs", Property::Pids(vec![pid])),
        ("Delegate", Property::Flag(true)),
        // Gone when its last process is, also after a failure.
        ("CollectMode", text("inactive-or-failed")),
    ];
    let auxiliary: Vec<(&str, Vec<(&str, Property)>)> = Vec::new();
    let mut call = manager("StartTransientUnit", unit)?;
    call.body
        .push_param3("fail", properties, auxiliary)
        .map_err(|error| failure(&error.to_string()))?;
    Ok(call)
}

/// A call of the manager's `method`, with its first argument.
fn manager(method: &str, argument: impl Marshal) -> Result<MarshalledMessage> {
    let mut call = MessageBuilder::new()
        .call(method)
        .with_interface("org.freedesktop.systemd1.Manager")
        .on("/org/freedesktop/systemd1")
        .at("org.freedesktop.systemd1")
        .build();
    call.body
        .push_param(argument)
        .map_err(|error| failure(&error.to_string()))?;
    Ok(call)
}

/// What an error reply says.
fn refusal(reply: &MarshalledMessage) -> SetupError {
    let name = reply.dynheader.error_name.as_deref().unwrap_or("an error");
    let text: String = reply.body.parser().get().unwrap_or_default();
    failure(&format!("systemd refuses: {name}: {text}"))
}

fn send(
    bus: &mut RpcConn,
    message: &mut MarshalledMessage,
    left: Timeout,
) -> Result<u32, connection::Error> {
    bus.send_message(message)?
        .write(left)
        .map_err(connection::ll_conn::force_finish_on_error)
}

/// Where the bus is that the manager of `uid` listens on.
fn bus(uid: Uid) -> Result<(PathBuf, UnixAddr)> {
    let path = PathBuf::from(if uid.is_root() {
        "/run/dbus/system_bus_socket".to_owned()
    } else {
        format!("/run/user/{uid}/bus")
    });
    let known =
        UnixAddr::new(&path).map_err(|error| failure(&error.to_string()).on(path.display()))?;
    if path.exists() || uid.is_root() {
        return Ok((path, known));
    }
    match rustbus::get_session_bus_path() {
        Ok(address) => Ok(("$DBUS_SESSION_BUS_ADDRESS".into(), address)),
        Err(_) => Err(
            failure("this user has no bus, and so no user manager to ask for a scope")
                .on(path.display()),
        ),
    }
}

fn failure(message: &str) -> SetupError {
    SetupError::new(Step::Cgroup, message).hint(WAY_OUT)
}

fn explain(error: connection::Error) -> SetupError {
    match error {
        connection::Error::IoError(error) => {
            SetupError::io(Step::Cgroup, "connect", &error).hint(WAY_OUT)
        }
        connection::Error::NixError(errno) => {
            SetupError::os(Step::Cgroup, "connect", Errno::from_raw(errno as i32)).hint(WAY_OUT)
        }
        connection::Error::TimedOut => failure("systemd did not answer in time"),
        other => {
            let text = other.to_string();
            failure(&format!("the bus does not work: {}", text.to_lowercase()))
        }
    }
}
