//! The calls to a systemd manager (org.freedesktop.systemd1(5)).

use std::path::PathBuf;
use std::time::Instant;

use nix::sys::socket::UnixAddr;
use nix::unistd::Uid;

use super::dbus::{Connection, Failure, Message, Method, Writer, failure};
use record::error::{Result, SetupError, Step};

const NAME: &str = "org.freedesktop.systemd1";

type Answer<T> = std::result::Result<T, Failure>;

/// The manager of a user's units, or for root of the system's.
pub(super) struct Manager(Connection);

impl Manager {
    /// Connects; every call ends by `deadline`.
    pub(super) fn connect(uid: Uid, deadline: Instant) -> Result<Self> {
        let (path, address) = address(uid)?;
        let bus = path.display().to_string();
        let connection = Connection::open(path, &address, Uid::effective().as_raw(), deadline)?;
        require_same_pid_namespace(&connection).map_err(|error| error.on(bus))?;
        Ok(Self(connection))
    }

    /// Moves the process `pid` into the cgroup `below` (`/` or `/name`) of the
    /// delegated `unit` (`AttachProcessesToUnit`, systemd 238). A user's manager
    /// has the system's do it where it lacks the permission itself.
    pub(super) fn attach(&mut self, unit: &str, below: &str, pid: u32) -> Answer<()> {
        self.call("AttachProcessesToUnit", "ssau", |arguments| {
            arguments.text(unit);
            arguments.text(below);
            arguments.array(4, |pids| pids.u32(pid));
        })
        .map(drop)
    }

    /// Asks for the delegated scope `unit` with the process `pid` in it, which is
    /// moved there soon.
    pub(super) fn start_scope(&mut self, unit: &str, pid: u32) -> Answer<()> {
        self.call("StartTransientUnit", "ssa(sv)a(sa(sv))", |arguments| {
            arguments.text(unit);
            arguments.text("fail");
            arguments.array(8, |properties| {
                properties.property("Description", "s", |value| value.text("cellblock's cells"));
                properties.property("PIDs", "au", |value| value.array(4, |pids| pids.u32(pid)));
                properties.property("Delegate", "b", |value| value.u32(1));
                // Gone when its last process is, also after a failure.
                properties.property("CollectMode", "s", |value| {
                    value.text("inactive-or-failed");
                });
                // The default is meant for one program. Each cell has its own limit,
                // and the limit of the user's slice still applies.
                properties.property("TasksMax", "t", |value| value.u64(u64::MAX));
            });
            arguments.array(8, |_auxiliary_units| ());
        })
        .map(drop)
    }

    /// Whether the unit that `cgroup` belongs to (a path from the root of the
    /// hierarchy) has `Delegate=`; `None` after an error, which means no: there may be
    /// no such unit.
    /// Asked by cgroup, since in another pid namespace a pid names another process.
    pub(super) fn delegates(&mut self, cgroup: &str) -> Option<bool> {
        let reply = self.call("GetUnitByControlGroup", "s", |arguments| {
            arguments.text(cgroup);
        });
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
            signature: "ss",
        };
        let reply = self.0.call(get, |arguments| {
            arguments.text(interface);
            arguments.text("Delegate");
        });
        let reply = reply.ok()?;
        let mut variant = reply.values();
        Some(variant.signature()? == "b" && variant.u32()? == 1)
    }

    /// Stops `unit`.
    pub(super) fn stop(&mut self, unit: &str) -> Answer<()> {
        self.call("StopUnit", "ss", |arguments| {
            arguments.text(unit);
            arguments.text("fail");
        })
        .map(drop)
    }

    fn call(
        &mut self,
        name: &str,
        signature: &str,
        arguments: impl FnOnce(&mut Writer),
    ) -> Answer<Message> {
        let method = Method {
            destination: NAME,
            object: "/org/freedesktop/systemd1",
            interface: "org.freedesktop.systemd1.Manager",
            name,
            signature,
        };
        self.0.call(method, arguments)
    }
}

/// Whether the manager means the same process by a pid as this one. It looks pids up
/// in its own pid namespace, where ours would name another process.
///
/// systemd listens on the bus's socket for the bus. Seen from a pid namespace
/// below its own it has no pid; seen from one above, it has a pid there as well.
fn require_same_pid_namespace(bus: &Connection) -> Result<()> {
    let peer = bus.peer_pid()?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_a_bus_is_read() {
        let path = |text| parse_address(text)?.path().map(PathBuf::from);
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
