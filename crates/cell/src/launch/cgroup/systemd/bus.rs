//! The conversation with a systemd manager over D-Bus
//! (org.freedesktop.systemd1(5)).

use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::unistd::Uid;
use rustbus::connection::{self, Timeout};
use rustbus::message_builder::MarshalledMessage;
use rustbus::wire::ObjectPath;
use rustbus::wire::unmarshal::traits::Variant;
use rustbus::{
    Marshal, MessageBuilder, MessageType, RpcConn, Signature, Unmarshal, standard_messages,
};
use rustbus_nix::sys::socket::UnixAddr;

use record::error::{Result, SetupError, Step};
use sys;

const WAY_OUT: &str = "log in as this user, or `loginctl enable-linger`; or start cellblock in a unit with Delegate=yes";
const NAME: &str = "org.freedesktop.systemd1";
const UNIT_EXISTS: &str = "org.freedesktop.systemd1.UnitExists";

/// The value of one of a unit's properties.
#[derive(Marshal, Signature)]
enum Property {
    Text(String),
    Flag(bool),
    Pids(Vec<u32>),
    Number(u64),
}

/// One unit in the reply of `ListUnitsByPatterns`.
#[derive(Unmarshal, Signature)]
#[allow(
    dead_code,
    reason = "the fields are the reply's, of which the name is used"
)]
struct Listed<'a> {
    name: &'a str,
    description: &'a str,
    load_state: &'a str,
    active_state: &'a str,
    sub_state: &'a str,
    followed: &'a str,
    object: ObjectPath<&'a str>,
    job: u32,
    job_type: &'a str,
    job_object: ObjectPath<&'a str>,
}

/// Why a call was not done.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The manager says no.
    Refused {
        /// The D-Bus name of its error.
        name: String,
        /// The same in words.
        error: SetupError,
    },
    /// It could not be asked.
    Unreachable(SetupError),
}

impl Trouble {
    /// Whether a unit of this name is there already.
    pub(super) fn is_unit_exists(&self) -> bool {
        matches!(self, Self::Refused { name, .. } if name == UNIT_EXISTS)
    }

    /// Whether it is unknown what became of the request.
    pub(super) fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable(_))
    }
}

impl From<Trouble> for SetupError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Refused { error, .. } | Trouble::Unreachable(error) => error,
        }
    }
}

/// The manager of a user's units, or for root of the system's.
pub(super) struct Manager {
    bus: RpcConn,
    path: PathBuf,
    end: Instant,
}

impl Manager {
    /// Connects; every call must be over within `patience` from now.
    pub(super) fn connect(uid: Uid, patience: Duration) -> Result<Self> {
        let (path, address) = address(uid)?;
        let on = |error: SetupError| error.on(path.display());
        let end = Instant::now() + patience;
        let bus = RpcConn::connect_to_path(address, Timeout::Duration(patience))
            .map_err(|error| on(explain(error)))?;
        same_pid_namespace(&bus).map_err(on)?;
        Ok(Self { bus, path, end })
    }

    /// Moves the process `pid` into the cgroup `below` (`/` or `/name`) of the
    /// delegated `unit` (`AttachProcessesToUnit`, systemd 238). A user's manager
    /// has the system's do it where it lacks the permission itself.
    pub(super) fn attach(
        &mut self,
        unit: &str,
        below: &str,
        pid: u32,
    ) -> std::result::Result<(), Trouble> {
        let mut call = self.method("AttachProcessesToUnit");
        self.push(call.body.push_param3(unit, below, vec![pid]))?;
        self.ask(call).map(drop)
    }

    /// Makes the delegated scope `unit` with the process `pid` in it, and waits
    /// until it is there.
    pub(super) fn start_scope(&mut self, unit: &str, pid: u32) -> std::result::Result<(), Trouble> {
        let text = |value: &str| Property::Text(value.to_owned());
        let properties = vec![
            ("Description", text("cellblock's cells")),
            ("PIDs", Property::Pids(vec![pid])),
            ("Delegate", Property::Flag(true)),
            // Gone when its last process is, also after a failure.
            ("CollectMode", text("inactive-or-failed")),
            // The default is meant for one program. Each cell has its own limit,
            // and that of the user's slice goes on.
            ("TasksMax", Property::Number(u64::MAX)),
        ];
        let auxiliary: Vec<(&str, Vec<(&str, Property)>)> = Vec::new();
        self.ask(standard_messages::add_match(
            "type='signal',interface='org.freedesktop.systemd1.Manager',member='JobRemoved'",
        ))?;
        let mut call = self.method("StartTransientUnit");
        self.push(call.body.push_param4(unit, "fail", properties, auxiliary))?;
        self.ask(call)?;
        loop {
            let signal = self.bus.wait_signal(left(self.end));
            let signal = signal.map_err(|error| self.unreachable(error))?;
            match job_result(&signal, unit).as_deref() {
                None => {}
                Some("done") => return Ok(()),
                Some(other) => {
                    let message = format!("the job that starts {unit} ended as {other}");
                    return Err(self.refused(String::new(), failure(&message)));
                }
            }
        }
    }

    /// Whether the unit that `cgroup` belongs to (a path from the root of the
    /// hierarchy) has `Delegate=`. An error is as good as a no: there may be no
    /// such unit. Asked by cgroup, for a pid can name another process there.
    pub(super) fn delegates(&mut self, cgroup: &str) -> std::result::Result<bool, Trouble> {
        let mut call = self.method("GetUnitByControlGroup");
        self.push(call.body.push_param(cgroup))?;
        let reply = self.ask(call)?;
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
            .at(NAME)
            .build();
        self.push(call.body.push_param2(interface, "Delegate"))?;
        let reply = self.ask(call)?;
        let value = reply.body.parser().get::<Variant<'_, '_>>();
        Ok(value.is_ok_and(|value| value.get() == Ok(true)))
    }

    /// The names of the active units that match `pattern`.
    pub(super) fn active(&mut self, pattern: &str) -> std::result::Result<Vec<String>, Trouble> {
        let mut call = self.method("ListUnitsByPatterns");
        self.push(call.body.push_param2(vec!["active"], vec![pattern]))?;
        let reply = self.ask(call)?;
        let units = reply.body.parser().get::<Vec<Listed<'_>>>();
        Ok(units
            .unwrap_or_default()
            .into_iter()
            .map(|unit| unit.name.to_owned())
            .collect())
    }

    /// Stops `unit`.
    pub(super) fn stop(&mut self, unit: &str) -> std::result::Result<(), Trouble> {
        let mut call = self.method("StopUnit");
        self.push(call.body.push_param2(unit, "fail"))?;
        self.ask(call).map(drop)
    }

    fn method(&self, name: &str) -> MarshalledMessage {
        MessageBuilder::new()
            .call(name)
            .with_interface("org.freedesktop.systemd1.Manager")
            .on("/org/freedesktop/systemd1")
            .at(NAME)
            .build()
    }

    fn push<E: std::fmt::Display>(
        &self,
        pushed: std::result::Result<(), E>,
    ) -> std::result::Result<(), Trouble> {
        pushed.map_err(|error| {
            Trouble::Unreachable(failure(&error.to_string()).on(self.path.display()))
        })
    }

    fn ask(
        &mut self,
        mut message: MarshalledMessage,
    ) -> std::result::Result<MarshalledMessage, Trouble> {
        let end = self.end;
        let reply = send(&mut self.bus, &mut message, left(end))
            .and_then(|serial| self.bus.wait_response(serial, left(end)))
            .map_err(|error| self.unreachable(error))?;
        if reply.typ != MessageType::Error {
            return Ok(reply);
        }
        let name = reply.dynheader.error_name.clone().unwrap_or_default();
        let text: String = reply.body.parser().get().unwrap_or_default();
        let error = failure(&format!("systemd refuses: {name}: {text}"));
        Err(self.refused(name, error))
    }

    fn refused(&self, name: String, error: SetupError) -> Trouble {
        Trouble::Refused {
            name,
            error: error.on(self.path.display()),
        }
    }

    fn unreachable(&self, error: connection::Error) -> Trouble {
        Trouble::Unreachable(explain(error).on(self.path.display()))
    }
}

/// Whether the manager means by a pid the process that we mean. It looks pids up
/// in its own pid namespace, where ours would name somebody else's process.
///
/// systemd listens on the bus's socket for the bus. Seen from a pid namespace
/// below its own it has no pid; seen from one above, it has one there, too.
fn same_pid_namespace(bus: &RpcConn) -> Result<()> {
    let peer = sys::net::peer_pid(bus.conn().as_raw_fd())
        .map_err(|errno| SetupError::os(Step::Cgroup, "getsockopt", errno))?;
    let status = std::fs::read_to_string(format!("/proc/{peer}/status")).unwrap_or_default();
    let depth = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))
        .map_or(0, |pids| pids.split_whitespace().count());
    if peer > 0 && depth == 1 {
        return Ok(());
    }
    Err(SetupError::new(
        Step::Cgroup,
        "systemd runs in another pid namespace and would take another process for cellblock",
    )
    .hint("start cellblock in a delegated cgroup, for example in a unit with Delegate=yes"))
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

fn left(end: Instant) -> Timeout {
    Timeout::Duration(end.saturating_duration_since(Instant::now()))
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
fn address(uid: Uid) -> Result<(PathBuf, UnixAddr)> {
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

pub(super) fn failure(message: &str) -> SetupError {
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
