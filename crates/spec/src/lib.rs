//! What the caller asks for.
//!
//! A [`Spec`] is complete and valid: every default has been filled in and every
//! value checked, without looking at the host.

#![forbid(unsafe_code)]
// Nothing that input, the kernel or a cell can influence may end in a panic.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hosts::NameChecks;
use hosts::Rules;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use descriptors::{Descriptor, PassedFd};
pub use devices::{Device, DeviceNumber};
pub use limits::{Limits, PartialLimits, TmpfsLimit};
pub use load::{load, load_for, read_descriptors};
pub use partial::Partial;
pub use places::{Place, Placed};
pub use record::quantity;
pub use record::units::{self, Bytes};
pub use record::unread::{self, Unread};
pub use request::{RemoteFile, RemoteRequest, Trust, UnreadRequest};
pub use resolve::{Ask, Mode};
pub use secret::{SecretHeader, SecretSource};
pub use user_limits::UserLimits;

use record::bytes::RawText;

pub mod counted;
pub mod descriptors;
pub mod devices;
pub mod language;
pub mod limits;
pub mod load;
pub mod mirrors;
pub mod network;
mod node;
pub mod partial;
pub mod places;
pub mod ports;
pub mod profiles;
pub mod read;
mod request;
pub mod resolve;
mod secret;
mod user_limits;
mod validate;

/// Where a cell's working files live inside it.
pub const WORKSPACE: &str = "/workspace";

/// The places that a program writes to, each a tmpfs of the cell's own unless a
/// bind covers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scratch {
    /// [`WORKSPACE`].
    Workspace,
    /// `/tmp`.
    Tmp,
    /// `/dev/shm`.
    Shm,
}

impl Scratch {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Workspace, Self::Tmp, Self::Shm];

    /// Where it is inside.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Workspace => WORKSPACE,
            Self::Tmp => "/tmp",
            Self::Shm => "/dev/shm",
        }
    }

    /// Its name in the limits of spec files and records, as in `limits.tmp.size`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Workspace => "workspace",
            Self::Tmp => "tmp",
            Self::Shm => "shm",
        }
    }
}

/// One run, completely described.
#[derive(Clone, Debug, Serialize)]
pub struct Spec {
    /// What runs.
    pub command: Command,
    /// Whether its interpreter is to serve several executions.
    #[serde(skip)]
    pub lasting: bool,
    /// Its share of what the kernel counts per user.
    #[serde(skip)]
    pub user_limits: UserLimits,
    /// The policy profile that the rest started from, by name or path.
    pub profile: String,
    /// The directory tree that the cell sees.
    pub rootfs: RootfsRef,
    /// The store of prepared rootfs; `None` for the usual one.
    pub store: Option<PathBuf>,
    /// Host name inside the cell.
    pub hostname: String,
    /// Working directory inside the cell.
    pub cwd: PathBuf,
    /// What `/proc` and `/sys` show.
    pub proc: ProcChoice,
    /// Whether cellblock adds no variable of its own.
    pub env_clear: bool,
    /// Variables that cellblock does not add.
    pub env_unset: BTreeSet<String>,
    /// The program's whole environment; nothing of the caller's is added.
    pub env: BTreeMap<String, RawText>,
    /// Host paths to show inside.
    pub binds: Vec<Bind>,
    /// Targets of optional binds whose source the host does not have.
    pub absent: Vec<PathBuf>,
    /// Writable views of host directories.
    pub overlays: Vec<Overlay>,
    /// Paths inside, in writable binds, that the program can neither change nor make.
    pub protect: BTreeSet<PathBuf>,
    /// What else is put into the file system.
    pub places: Vec<Place>,
    /// Character devices of the host's that the cell has.
    pub devices: Vec<Device>,
    /// Descriptors of the caller's that the program is to get.
    pub pass_fd: Vec<PassedFd>,
    /// What these descriptors refer to, once the caller's process has taken them.
    pub descriptors: Vec<Descriptor>,
    /// Files copied into `/workspace` before the start.
    pub files: Vec<InputFile>,
    /// Files made elsewhere, which the program cannot change.
    pub read_only_files: Vec<ReadOnlyFile>,
    /// The initial content of `/workspace`, before `files`.
    pub files_from: Option<FilesFrom>,
    /// Host directory that gets the files which the run created or modified.
    pub out: Option<PathBuf>,
    /// Host directory that keeps `/workspace` from one run to the next.
    pub workspace: Option<PathBuf>,
    /// Host directory that keeps `/tmp` from one run to the next.
    pub keep_tmp: Option<PathBuf>,
    /// How long to wait for a kept directory that another run is using; `None`
    /// for as long as it takes.
    pub workspace_wait: Option<Duration>,
    /// Bytes of created and modified files that the record holds.
    pub inline_files: Option<Bytes>,
    /// The network the program sees.
    pub network: Network,
    /// Bounds on resources.
    pub limits: Limits,
    /// Where limits on resources come from.
    pub cgroup: CgroupChoice,
    /// Refuse to run when a limit would need a fallback.
    pub strict: bool,
    /// Security layers that the caller gives up by name.
    pub without: BTreeSet<Layer>,
    /// Landlock settings.
    pub landlock: LandlockSpec,
    /// The seccomp policy, by name or path.
    pub seccomp: String,
    /// The uid and gid of the program inside.
    pub uid: u32,
    /// For a supervisor started by root: the unprivileged host uid and gid that
    /// the program runs as. `None` picks one that no other cell has.
    pub outer_uid: Option<u32>,
    /// Whether standard output and error are captured or passed through.
    pub stdio: Stdio,
    /// Where standard input comes from.
    pub stdin: Stdin,
}

impl Spec {
    /// Where the caller has something mounted.
    pub fn mount_points(&self) -> impl Iterator<Item = &Path> {
        let binds = self.binds.iter().map(|bind| bind.target.as_path());
        let overlays = self.overlays.iter().map(|overlay| overlay.target.as_path());
        binds
            .chain(overlays)
            .chain(self.tmpfs().map(|(path, _)| path))
    }

    /// The tmpfs that the caller adds.
    pub fn tmpfs(&self) -> impl Iterator<Item = (&Path, TmpfsLimit)> {
        self.places.iter().filter_map(|place| match place.what {
            Placed::Tmpfs { limit } => Some((place.path.as_path(), limit)),
            Placed::Directory | Placed::Symlink { .. } | Placed::Workspace => None,
        })
    }

    /// The language of the code; `None` for a program.
    pub fn language(&self) -> Option<&str> {
        match &self.command {
            Command::Run { language, .. } => Some(language),
            Command::Exec { .. } => None,
        }
    }
}

/// What runs in the cell.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Command {
    /// A program with its arguments (`cellblock exec`).
    Exec {
        /// Program name or path inside the cell, then its arguments.
        argv: Vec<RawText>,
        /// Its name for itself, where that is another.
        #[serde(skip_serializing_if = "Option::is_none")]
        argv0: Option<RawText>,
    },
    /// Code for an interpreter (`cellblock run`).
    Run {
        /// Name of a driver, such as `python`.
        language: String,
        /// The code itself.
        code: RawText,
        /// What the code is called in tracebacks, such as `main.py`.
        name: String,
        /// Arguments that the code sees.
        args: Vec<RawText>,
    },
}

/// The directory tree that a cell sees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RootfsRef {
    /// For `run`, the one that the code's language prefers, where the store has
    /// it; otherwise the host's.
    Auto,
    /// The host's `/usr` and what it needs, without its secrets.
    Host,
    /// A directory of the host's.
    Dir(PathBuf),
    /// A prepared rootfs of the store, by name.
    Named(String),
}

/// A host path shown inside the cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Bind {
    /// Absolute path on the host.
    pub source: PathBuf,
    /// Absolute path inside.
    pub target: PathBuf,
    /// Whether the program may write there.
    pub writable: bool,
    /// Whether the cell does without where the host has no such path.
    pub optional: bool,
}

/// A writable view of a host directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Overlay {
    /// Absolute path on the host.
    pub source: PathBuf,
    /// Absolute path inside.
    pub target: PathBuf,
    /// The bounds of what the program changes there.
    #[serde(flatten)]
    pub limit: TmpfsLimit,
}

/// A file outside of `/workspace`.
#[derive(Clone, Debug, Serialize)]
pub struct ReadOnlyFile {
    /// Absolute path inside.
    pub path: PathBuf,
    /// What it holds.
    pub content: RawText,
    /// Whether it can be executed.
    pub executable: bool,
}

/// A file copied into the cell before the start.
#[derive(Clone, Debug, Serialize)]
pub struct InputFile {
    /// Where its content comes from.
    pub source: FileSource,
    /// Path relative to `/workspace`, without `..`.
    pub target: PathBuf,
    /// Whether it can be executed, whatever its source says.
    pub executable: bool,
}

/// Where an input file's content comes from.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FileSource {
    /// A file of the host's.
    Host(PathBuf),
    /// Given with the spec.
    Inline(RawText),
}

/// Where a tree of files comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FilesFrom {
    /// A tar archive on the caller's standard input.
    Stdin,
    /// A directory or a tar archive of the host's.
    Path(PathBuf),
}

/// The network that the program sees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// A network namespace of its own with only loopback.
    None,
    /// Likewise, and a broker outside carries connections to these hosts.
    Hosts(Egress),
    /// The host's network namespace: an opt-out that the record names.
    Host,
}

/// What a cell may reach through the broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Egress {
    /// The hosts.
    pub rules: Rules,
    /// Whether names inside of connections must be the ones connected to.
    pub check_names: NameChecks,
    /// Fields that the broker puts into requests.
    pub secrets: Vec<SecretHeader>,
}

/// What `/proc` and `/sys` show besides the cell's processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProcChoice {
    /// A machine of the cell's size: its memory, CPUs and limits.
    Machine,
    /// Nothing.
    Processes,
}

/// What happens when a stream exceeds its cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnOutput {
    /// Keep the head and the tail, count the rest; the program goes on.
    Truncate,
    /// End the cell with outcome `output`.
    Kill,
}

/// Where limits on resources come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CgroupChoice {
    /// The first that works: the one cellblock runs in when it is delegated, a
    /// transient systemd scope, none.
    Auto,
    /// This directory, in which cellblock may make cgroups of its own.
    Path(PathBuf),
    /// None: fallbacks only.
    None,
}

/// A security layer that a caller may give up by name (`--without`).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Layer {
    /// The system call filter.
    Seccomp,
    /// Landlock, wholly.
    Landlock,
    /// The limit of zero nested user namespaces (seccomp still denies them).
    UsernsLimit,
    /// A `/proc` of the cell's own; without it, the host's is shown read-only.
    Proc,
}

impl Layer {
    /// Every layer, in the order of `--help`.
    pub const ALL: [Self; 4] = [Self::Seccomp, Self::Landlock, Self::UsernsLimit, Self::Proc];

    /// The name used on the command line and in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Seccomp => "seccomp",
            Self::Landlock => "landlock",
            Self::UsernsLimit => "userns-limit",
            Self::Proc => "proc",
        }
    }
}

/// Landlock settings (landlock(7)).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LandlockSpec {
    /// The lowest ABI that will do; the best that the kernel has is used.
    pub min_abi: u32,
    /// Pretend that the kernel has no newer ABI than this; for tests.
    pub max_abi: Option<u32>,
    /// Whether files below writable places may be executed.
    pub exec_writable: bool,
    /// TCP ports that the program may use.
    pub tcp: PortRule,
    /// UDP ports that the program may use.
    pub udp: PortRule,
}

/// Ports of a protocol under Landlock: TCP's from ABI 4 on (Linux 6.7), UDP's from ABI 10 on
/// (Linux 7.2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PortRule {
    /// Landlock does not handle the protocol; the network namespace bounds it.
    Any,
    /// Only these ports; empty lists deny all, loopback too.
    Ports {
        /// Ports that may be connected to, or that datagrams may be sent to.
        connect: Vec<u16>,
        /// Ports that may be bound.
        bind: Vec<u16>,
    },
}

/// Where a program's standard input comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stdin {
    /// The caller's.
    Inherit,
    /// `/dev/null`: the caller's was read for the code or for files.
    Null,
    /// This text, which fits into a pipe.
    Inline(RawText),
}

/// What the program's standard streams are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stdio {
    /// stdout and stderr go into the record; stdin is passed through.
    Capture,
    /// All three are the caller's own.
    Inherit,
    /// All three are a terminal of the cell's own. The caller's terminal shows it, and what
    /// it shows goes into the record.
    Terminal,
}

#[cfg(test)]
mod tests;
