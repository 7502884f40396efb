//! The part of the record that shows how the program was confined.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The security layers in force.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Isolation {
    /// The cell's own namespaces.
    pub namespaces: Vec<String>,
    /// The program's uid.
    pub uid: IdRecord,
    /// The program's gid.
    pub gid: IdRecord,
    /// The program's capabilities: always empty.
    pub capabilities: Vec<String>,
    /// Whether `no_new_privs` is set.
    pub no_new_privs: bool,
    /// The Landlock ABI in force; null when Landlock was given up.
    pub landlock_abi: Option<u32>,
    /// What Landlock restricts: `fs`, `tcp`, `udp`, `ioctl_dev`, `abstract_unix_socket`,
    /// `signal`.
    pub landlock_scopes: Vec<String>,
    /// How the program was restricted (landlock_restrict_self(2)): `log_same_exec_off` and
    /// `log_subdomains_off` keep its denials out of the host's audit log (ABI 7), `tsync` holds
    /// all threads (ABI 8).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub landlock_flags: Vec<String>,
    /// The system call policy and its digest, `name@sha256:…`; null when given up.
    pub seccomp: Option<String>,
    /// Resource limits of each process (setrlimit(2)).
    #[serde(default)]
    pub rlimits: Vec<RlimitRecord>,
    /// How nested user namespaces are prevented: `limit`, `seccomp`.
    pub nested_userns: Vec<String>,
    /// inotify(7) instances that all processes together can have; absent when the limits of the
    /// user namespace were given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inotify_instances: Option<u64>,
    /// inotify(7) watches that all processes together can have; absent when the limits of the
    /// user namespace were given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inotify_watches: Option<u64>,
    /// The network: `none`, `hosts` (those that were allowed by name) or `host`.
    pub network: String,
    /// `/proc`: `machine` for the cell's processes, memory and CPUs,
    /// `processes` for its processes only, or `host` when that layer was given up.
    pub proc: String,
    /// The rootfs: `host`, or a directory, or `name@sha256:…`.
    pub rootfs: String,
    /// What the caller added to the file system, in the order of its paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<PlaceRecord>,
    /// The caller's descriptors that the program has, besides its standard streams.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub descriptors: Vec<DescriptorRecord>,
    /// Whether the program's standard streams are a terminal of the cell's own, whose output is
    /// `stdout`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub terminal: bool,
    /// The policy profile.
    pub profile: String,
    /// The cgroup; null without one.
    pub cgroup: Option<CgroupRecord>,
    /// Layers that the caller gave up by name; `name-checks` for the check of names in
    /// connections.
    pub given_up: Vec<String>,
}

/// Something that the caller added to the cell's file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlaceRecord {
    /// Its path inside.
    pub path: String,
    /// `bind`, `overlay`, `tmpfs`, `directory`, `symlink`, `file`, `device`, or `absent` for an
    /// optional bind of what the host does not have.
    pub kind: String,
    /// Whether the program may write there.
    pub writable: bool,
    /// The size of a tmpfs in bytes, as its file system states it, also of the one that holds
    /// the changes of an overlay; null for everything else, and where it could not be read.
    pub size: Option<u64>,
    /// What a device node stands for, as `major:minor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
}

/// A descriptor of the caller's that the program has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DescriptorRecord {
    /// Its number inside.
    pub number: i32,
    /// `file`, `pipe`, `socket`, `device` or `event`.
    pub kind: String,
    /// Of a file `named`, `unnamed` or `memory`; of a pipe `named` or `unnamed`; of a socket
    /// its family and state, such as `unix connected`; of a device `major:minor`; of an event
    /// `eventfd` or `timerfd`.
    pub class: String,
    /// `read`, `write`, `read+write`, or `append`.
    pub mode: String,
}

/// A resource limit (getrlimit(2)), in the resource's own unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RlimitRecord {
    /// Its name, such as `RLIMIT_STACK`.
    pub resource: String,
    /// The limit in force; null when unlimited.
    pub soft: Option<u64>,
    /// The value up to which the program may raise it; null when unlimited.
    pub hard: Option<u64>,
}

/// An id inside and outside the cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IdRecord {
    /// In the cell's user namespace.
    pub inside: u32,
    /// In the supervisor's.
    pub outside: u32,
}

/// The cell's cgroup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CgroupRecord {
    /// Path below the cgroup2 mount.
    pub path: String,
    /// Where it comes from: `given`, `delegated`, `systemd-user`, `systemd-system` or `root`.
    pub source: String,
    /// The controllers in force.
    pub controllers: Vec<String>,
}
