//! The namespaces of a cell.

use serde::Serialize;

use spec::{Network, Spec};

/// A kind of namespace (namespaces(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Namespace {
    /// user_namespaces(7)
    User,
    /// pid_namespaces(7)
    Pid,
    /// mount_namespaces(7)
    Mount,
    /// network_namespaces(7)
    Net,
    /// ipc_namespaces(7)
    Ipc,
    /// uts_namespaces(7)
    Uts,
    /// cgroup_namespaces(7)
    Cgroup,
}

impl Namespace {
    /// Its name below `/proc/PID/ns`.
    pub const fn file(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Pid => "pid",
            Self::Mount => "mnt",
            Self::Net => "net",
            Self::Ipc => "ipc",
            Self::Uts => "uts",
            Self::Cgroup => "cgroup",
        }
    }
}

/// Those that a cell has of its own.
pub(super) fn of(spec: &Spec) -> Vec<Namespace> {
    use Namespace::{Cgroup, Ipc, Mount, Net, Pid, User, Uts};
    let mut all = vec![User, Pid, Mount, Net, Ipc, Uts, Cgroup];
    if spec.network == Network::Host {
        all.retain(|namespace| *namespace != Net);
    }
    all
}
