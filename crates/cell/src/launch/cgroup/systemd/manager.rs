//! The calls to a systemd manager (org.freedesktop.systemd1(5)).

use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use nix::sys::socket::UnixAddr;
use nix::unistd::Uid;

use super::dbus::{Connection, Failure, Message, Method, Value};
use record::error::{Result, SetupError, Step};

const WAY_OUT: &str = "log in as this user, or `loginctl enable-linger`; or start cellblock in a unit with Delegate=yes";
const NAME: &str = "org.freedesktop.systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";

/// Why a call failed.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The manager refuses.
    Refused {
        /// The D-Bus name of its error.
        name: String,
        /// The same in words.
        error: SetupError,
    },
    /// The manager did not answer, so it is unknown whether it did what was asked.
    Unreachable(SetupError),
}

impl Trouble {
    /// Whether a unit of this name exists already.
    pub(super) fn is_unit_exists(&self) -> bool {
        let Self::Refused { name, .. } = self else {
            return false;
        };
        name == "org.freedesktop.systemd1.UnitExists"
    }
}

impl From<Trouble> for SetupError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Refused { error, .. } | Trouble::Unreachable(error) => error,
        }
    }
}

type Answer<T> = std::result::Result<T, Trouble>;

/// The manager of a user's units, or for root of the system's.
pub(super) struct Manager {
    bus: Connection,
    path: PathBuf,
}

impl Manager {
    /// Connects; every call ends by `deadline`.
    pub(super) fn connect(uid: Uid, deadline: Instant) -> Result<Self> {
        let (path, address) = address(uid)?;
        let bus = Connection::open(&address, Uid::effective().as_raw(), deadline)
            .map_err(|error| explain(&error).on(path.display()))?;
        require_same_pid_namespace(&bus).map_err(|error| error.on(path.display()))?;
        Ok(Self { bus, path })
    }

    /// Moves the process `pid` into the cgroup `below` (`/` or `/name`) of the
    /// delegated `unit` (`AttachProcessesToUnit`, systemd 238). A user's manager
    /// has the system's do it where it lacks the permission itself.
    pub(super) fn attach(&mut self, unit: &str, below: &str, pid: u32) -> Answer<()> {
        let pids = Value::Array("u", vec![Value::U32(pid)]);
        let arguments = [Value::Str(unit), Value::Str(below), pids];
        self.call("AttachProcessesToUnit", &arguments).map(drop)
    }

    /// Makes the delegated scope `unit` with the process `pid` in it, and waits
    /// until it exists.
    pub(super) fn start_scope(&mut self, unit: &str, pid: u32) -> Answer<()> {
        let property = |name, value| {
            let value = Value::Variant(Box::new(value));
            Value::Struct(vec![Value::Str(name), value])
        };
        let properties = vec![
            property("Description", Value::Str("cellblock's cells")),
            property("PIDs", Value::Array("u", vec![Value::U32(pid)])),
            property("Delegate", Value::Bool(true)),
            // Gone when its last process is, also after a failure.
            property("CollectMode", Value::Str("inactive-or-failed")),
            // The default is meant for one program. Each cell has its own limit,
            // and the limit of the user's slice still applies.
            property("TasksMax", Value::U64(u64::MAX)),
        ];
        let rule = "type='signal',interface='org.freedesktop.systemd1.Manager',member='JobRemoved'";
        self.bus
            .add_match(rule)
            .map_err(|failure| trouble(failure, &self.path))?;
        let arguments = [
            Value::Str(unit),
            Value::Str("fail"),
            Value::Array("(sv)", properties),
            Value::Array("(sa(sv))", Vec::new()),
        ];
        // The job ends after this reply.
        self.call("StartTransientUnit", &arguments)?;
        loop {
            let signal = self.bus.signal();
            let signal = signal.map_err(|error| trouble(error.into(), &self.path))?;
            match job_result(&signal, unit) {
                None => {}
                Some("done") => return Ok(()),
                Some(other) => {
                    let message = format!("the job that starts {unit} ended as {other}");
                    return Err(Trouble::Refused {
                        name: String::new(),
                        error: failure(message).on(self.path.display()),
                    });
                }
            }
        }
    }

    /// Whether the unit that `cgroup` belongs to (a path from the root of the
    /// hierarchy) has `Delegate=`. An error means no: there may be no such unit.
    /// Asked by cgroup, since in another pid namespace a pid names another process.
    pub(super) fn delegates(&mut self, cgroup: &str) -> bool {
        self.unit_delegates(cgroup).unwrap_or(false)
    }

    fn unit_delegates(&mut self, cgroup: &str) -> Option<bool> {
        let reply = self.call("GetUnitByControlGroup", &[Value::Str(cgroup)]);
        let reply = reply.ok()?;
        let object = reply.values().text()?;
        // The object's name is the unit's, with the dot escaped.
        let (_, kind) = object.rsplit_once("_2e")?;
        let interface = match kind {
            "scope" => "org.freedesktop.systemd1.Scope",
            "service" => "org.freedesktop.systemd1.Service",
            _ => return None,
        };
        let get = Method {
            destination: NAME,
            object,
            interface: "org.freedesktop.DBus.Properties",
            name: "Get",
        };
        let arguments = [Value::Str(interface), Value::Str("Delegate")];
        let reply = self.bus.call(get, &arguments).ok()?;
        let mut variant = reply.values();
        Some(variant.signature()? == "b" && variant.u32()? == 1)
    }

    /// Stops `unit`.
    pub(super) fn stop(&mut self, unit: &str) -> Answer<()> {
        let arguments = [Value::Str(unit), Value::Str("fail")];
        self.call("StopUnit", &arguments).map(drop)
    }

    fn call(&mut self, name: &str, arguments: &[Value<'_>]) -> Answer<Message> {
        let method = Method {
            destination: NAME,
            object: "/org/freedesktop/systemd1",
            interface: MANAGER,
            name,
        };
        self.bus
            .call(method, arguments)
            .map_err(|failure| trouble(failure, &self.path))
    }
}

/// Whether the manager means the same process by a pid as this one. It looks pids up
/// in its own pid namespace, where ours would name another process.
///
/// systemd listens on the bus's socket for the bus. Seen from a pid namespace
/// below its own it has no pid; seen from one above, it has a pid there as well.
fn require_same_pid_namespace(bus: &Connection) -> Result<()> {
    let peer = bus
        .peer_pid()
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

/// The result of the job on `unit`, if `signal` announces its end.
fn job_result<'a>(signal: &'a Message, unit: &str) -> Option<&'a str> {
    if signal.member != "JobRemoved" {
        return None;
    }
    let mut values = signal.values();
    let _id = values.u32()?;
    let _job = values.text()?;
    (values.text()? == unit).then(|| values.text())?
}

/// The socket of the bus that the manager of `uid` listens on.
fn address(uid: Uid) -> Result<(PathBuf, UnixAddr)> {
    let path = PathBuf::from(if uid.is_root() {
        "/run/dbus/system_bus_socket".to_owned()
    } else {
        format!("/run/user/{uid}/bus")
    });
    if !path.exists() && !uid.is_root() {
        const VARIABLE: &str = "DBUS_SESSION_BUS_ADDRESS";
        let given = std::env::var(VARIABLE).ok();
        return match given.as_deref().and_then(parse_address) {
            Some(address) => Ok((format!("${VARIABLE}").into(), address)),
            None => Err(
                failure("this user has no bus, and so no user manager to ask for a scope")
                    .on(path.display()),
            ),
        };
    }
    match UnixAddr::new(&path) {
        Ok(address) => Ok((path, address)),
        Err(errno) => Err(SetupError::os(Step::Cgroup, "connect", errno).on(path.display())),
    }
}

/// The first Unix socket of a server address (D-Bus specification).
fn parse_address(text: &str) -> Option<UnixAddr> {
    let keys = text.split(';').find_map(|one| one.strip_prefix("unix:"))?;
    keys.split(',')
        .find_map(|pair| match pair.split_once('=')? {
            ("path", path) => UnixAddr::new(path).ok(),
            ("abstract", name) => UnixAddr::new_abstract(name.as_bytes()).ok(),
            _ => None,
        })
}

fn trouble(failed: Failure, path: &Path) -> Trouble {
    match failed {
        Failure::Refused { name, message } => {
            let error = failure(format!("systemd refuses: {name}: {message}"));
            Trouble::Refused {
                name,
                error: error.on(path.display()),
            }
        }
        Failure::Connection(error) => Trouble::Unreachable(explain(&error).on(path.display())),
    }
}

pub(super) fn failure(message: impl Into<String>) -> SetupError {
    SetupError::new(Step::Cgroup, message).hint(WAY_OUT)
}

fn explain(error: &io::Error) -> SetupError {
    match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            failure("systemd did not answer in time")
        }
        io::ErrorKind::UnexpectedEof => failure("the bus hung up"),
        io::ErrorKind::InvalidData => failure("the bus sent a malformed message"),
        io::ErrorKind::PermissionDenied if error.raw_os_error().is_none() => {
            failure("the bus does not accept this user")
        }
        _ => SetupError::io(Step::Cgroup, "connect", error).hint(WAY_OUT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_a_bus_is_read() {
        let path = |text| parse_address(text)?.path().map(Path::to_owned);
        assert_eq!(path("unix:path=/run/bus"), Some("/run/bus".into()));
        assert_eq!(
            path("tcp:host=x;unix:guid=1,path=/run/bus"),
            Some("/run/bus".into())
        );
        let name = parse_address("unix:abstract=/tmp/x,guid=1").unwrap();
        assert_eq!(name.as_abstract(), Some(b"/tmp/x".as_slice()));
        assert_eq!(parse_address("unixexec:path=/bin/x"), None);
        assert_eq!(parse_address(""), None);
    }
}
