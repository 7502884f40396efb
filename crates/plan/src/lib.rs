//! A spec resolved against this host: pure data that describes everything that a
//! launch will do.

#![forbid(unsafe_code)]
// Nothing that input, the kernel or a cell can influence may end in a panic.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::resource::Resource;
use serde::Serialize;

use crate::probe::HostFacts;
use crate::rootfs::Tree;
use languages::node;
use record::bytes::RawText;
use record::error::{Result, SetupError, Step};
use spec::limits::RESERVE;
use spec::{
    Bytes, CgroupChoice, Descriptor, FilesFrom, InputFile, Layer, Limits, Network, Overlay,
    Scratch, Spec, Stdio, TmpfsLimit,
};

mod arguments;
mod devices;
mod egress;
mod ids;
mod key;
mod landlock;
pub mod machine;
mod mounts;
mod names;
mod namespaces;
pub mod probe;
mod program;
mod protect;
mod rlimits;
pub mod rootfs;
mod scratch;
pub mod seccomp;
mod template;
mod trust;

pub use egress::{EgressPlan, NAME_SERVERS};
pub use ids::Ids;
pub use key::PlanKey;
pub use landlock::{Access, LandlockPlan, LandlockRule, TCP_ABI, UDP_ABI};
pub use mounts::{Mount, MountKind, Seal, Source};
pub use namespaces::Namespace;
pub use program::{Program, Request as ProgramRequest};
pub use protect::{PLACEHOLDERS, Protected, with_protection};
pub use rlimits::Rlimit;
pub use scratch::{ScratchDir, Storage};
pub use trust::{Trust, host_bundle};

/// Everything that a launch will do.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// Unique to this execution.
    pub id: String,
    /// Namespaces of the cell's own.
    pub namespaces: Vec<Namespace>,
    /// Uids and gids.
    pub ids: Ids,
    /// Host name inside.
    pub hostname: String,
    /// What leads to allowed hosts, if there are any.
    pub egress: Option<EgressPlan>,
    /// Whom the cell trusts, where TLS ends in the broker.
    pub trust: Option<Trust>,
    /// What it may reach.
    pub network: Network,
    /// The cell's file system, in the order of mounting.
    pub mounts: Vec<Mount>,
    /// What the places are that the program writes to.
    pub scratch: Vec<ScratchDir>,
    /// Where the caller's tmpfs are.
    pub tmpfs: Vec<PathBuf>,
    /// Writable views of host directories, in the order of their mounts.
    pub overlays: Vec<Overlay>,
    /// Paths in writable binds that the program can neither change nor make.
    pub protected: Vec<Protected>,
    /// Files copied into `/workspace`.
    pub files: Vec<InputFile>,
    /// The initial content of `/workspace`, before `files`.
    pub files_from: Option<FilesFrom>,
    /// Bounds on resources. A cgroup holds memory, processes and CPUs where there is
    /// one; the supervisor watches times and output.
    pub limits: Limits,
    /// Where the cgroup comes from.
    pub cgroup: CgroupChoice,
    /// Limits set by setrlimit(2) in any case.
    pub rlimits: Vec<Rlimit>,
    /// Those that are higher where a cgroup holds the memory.
    pub counted_rlimits: Vec<Rlimit>,
    /// Limits set only where no cgroup holds them.
    pub fallback: Fallback,
    /// Limits of the cell's user namespace; `None` when given up.
    pub userns_limits: Option<UsernsLimits>,
    /// Landlock rules; `None` when given up.
    pub landlock: Option<LandlockPlan>,
    /// The seccomp policy; `None` when given up.
    pub seccomp: Option<String>,
    /// Descriptors of the caller's that the program gets.
    pub descriptors: Vec<Descriptor>,
    /// What is executed.
    pub program: Program,
    /// What the supervisor does with streams and files.
    pub watch: Watch,
    /// What the rootfs is called in the record.
    pub rootfs: String,
    /// Refuse to run when a limit would need a fallback.
    pub strict: bool,
}

/// Limits of the user namespace (user_namespaces(7)), for all that is in it together. It allows no
/// user namespaces inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct UsernsLimits {
    /// inotify(7) instances.
    pub inotify_instances: u64,
    /// inotify(7) watches.
    pub inotify_watches: u64,
}

/// Mechanisms for limits that no cgroup holds.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Fallback {
    /// RLIMIT_DATA and a watchdog over the cell's memory.
    pub memory: Option<Bytes>,
    /// RLIMIT_NPROC, which counts per user namespace; init is not counted.
    pub processes: Option<u64>,
    /// The number of CPUs that the cell is bound to.
    pub cpus: Option<usize>,
    /// Why no cgroup holds them, where one was wanted.
    #[serde(skip)]
    pub why: Option<String>,
}

impl Fallback {
    /// For a cell without any cgroup.
    fn of(limits: &Limits) -> Self {
        Self {
            memory: limits.memory,
            processes: limits.processes,
            cpus: limits.cpus.map(|cpus| cpus.ceil() as usize),
            why: None,
        }
    }

    /// As limits of processes (setrlimit(2)) that may map `reserve` beyond the memory. Programs that
    /// they start may raise that.
    fn rlimits(&self, reserve: Option<Bytes>) -> impl Iterator<Item = Rlimit> + use<> {
        let data = self.memory.zip(reserve).map(|(memory, reserve)| Rlimit {
            resource: Resource::RLIMIT_DATA,
            soft: memory.0.saturating_add(reserve.0),
            hard: memory.0.saturating_add(RESERVE.0),
        });
        // Init counts as well.
        let processes =
            (self.processes).map(|count| Rlimit::fixed(Resource::RLIMIT_NPROC, count + 1));
        data.into_iter().chain(processes)
    }

    /// The limits in whose place the seccomp policy refuses calls.
    pub const fn unheld(&self) -> seccomp::Unheld {
        seccomp::Unheld {
            memory: self.memory.is_some(),
            cpus: self.cpus.is_some(),
        }
    }
}

/// What the supervisor does with streams and files.
#[derive(Clone, Debug, Serialize)]
pub struct Watch {
    /// Whether stdout and stderr are captured.
    pub stdio: Stdio,
    /// Where changed files go.
    pub out: Option<PathBuf>,
    /// How long to wait for a kept directory that another run is using; `None`
    /// for as long as it takes.
    pub kept_wait: Option<Duration>,
    /// Bytes of changed files that the record holds.
    pub inline_files: Option<Bytes>,
}

impl Plan {
    /// The program's uid outside the cell.
    pub const fn outer_uid(&self) -> u32 {
        self.ids.outer_uid
    }

    /// Resolves `spec` for this host.
    ///
    /// # Errors
    /// When the host lacks something that the spec does not give up.
    pub fn new(
        spec: &Spec,
        host: &HostFacts,
        tree: &Tree,
        mut program: program::Request,
    ) -> Result<Self> {
        egress::keep_secrets_out(spec)?;
        devices::check(spec, host)?;
        keep_network(spec)?;
        let scratch = scratch::choose(spec)?;
        let names = names::NameFiles::of(&spec.network, &host.names);
        let mut files = std::mem::take(&mut program.files);
        add_files_for_any(spec, &mut files);
        let mut mounts = mounts::plan(spec, host, tree, files, &names, &scratch)?;
        let protected = protect::choose(spec, host)?;
        protect::add(&protected, &mut mounts);
        Ok(Self {
            id: new_id(host.pid),
            namespaces: namespaces::of(spec),
            ids: Ids::choose(spec.uid, spec.outer_uid, host)?,
            hostname: spec.hostname.clone(),
            network: spec.network.clone(),
            egress: match &spec.network {
                Network::Hosts(egress) => Some(EgressPlan::new(egress)),
                Network::None | Network::Host => None,
            },
            trust: trust::Trust::of(&spec.network),
            overlays: overlays_of(&mounts),
            mounts,
            protected,
            tmpfs: spec.tmpfs().map(|(path, _)| path.to_owned()).collect(),
            scratch,
            files: spec.files.clone(),
            files_from: spec.files_from.clone(),
            cgroup: spec.cgroup.clone(),
            rlimits: rlimits::plan(&spec.limits, &spec.user_limits),
            counted_rlimits: rlimits::counted(&spec.limits),
            fallback: Fallback::of(&spec.limits),
            limits: spec.limits.clone(),
            userns_limits: (!spec.without.contains(&Layer::UsernsLimit)).then_some(UsernsLimits {
                inotify_instances: spec.user_limits.inotify_instances,
                inotify_watches: spec.user_limits.inotify_watches,
            }),
            landlock: landlock::plan(spec, host, tree)?,
            seccomp: seccomp_policy(spec),
            descriptors: spec.descriptors.clone(),
            program: Program::new(spec, host, program),
            watch: Watch {
                stdio: spec.stdio,
                out: spec.out.clone(),
                kept_wait: spec.workspace_wait,
                inline_files: spec.inline_files,
            },
            rootfs: tree.label.clone(),
            strict: spec.strict,
        })
    }

    /// The limits of a process (setrlimit(2)) that may map `reserve` beyond the memory
    /// ([`Program::reserve`]), where no cgroup holds what is in `fallback`.
    pub fn rlimits<'p>(
        &'p self,
        fallback: &Fallback,
        reserve: Option<Bytes>,
    ) -> impl Iterator<Item = Rlimit> + use<'p> {
        let counted = match fallback.memory {
            None => &self.counted_rlimits[..],
            Some(_) => &[],
        };
        let in_force = |limit: &Rlimit| {
            let higher = counted
                .iter()
                .find(|other| other.resource == limit.resource);
            *higher.unwrap_or(limit)
        };
        self.rlimits
            .iter()
            .map(in_force)
            .chain(fallback.rlimits(reserve))
    }

    /// The cell's id, and what its rootfs is called.
    pub fn names(&self) -> (String, String) {
        (self.id.clone(), self.rootfs.clone())
    }

    /// The places that are tmpfs of the cell's own.
    pub fn own_scratch(&self) -> impl Iterator<Item = &ScratchDir> {
        self.scratch.iter().filter(|scratch| scratch.is_own())
    }

    /// Where all the tmpfs are that the program writes to: the cell's own scratch places,
    /// then the caller's. Init sends an open directory of each, in this order, and then one
    /// of what the program changes in each of `overlays`.
    pub fn writable_tmpfs(&self) -> impl Iterator<Item = &Path> {
        let own = self
            .own_scratch()
            .map(|scratch| Path::new(scratch.name.path()));
        own.chain(self.tmpfs.iter().map(PathBuf::as_path))
    }

    /// The place where the program works.
    pub fn workspace(&self) -> Option<&ScratchDir> {
        let mut all = self.scratch.iter();
        all.find(|scratch| scratch.name == Scratch::Workspace)
    }

    /// Whether the cell has a namespace of this kind of its own.
    pub fn has(&self, namespace: Namespace) -> bool {
        self.namespaces.contains(&namespace)
    }
}

/// Adds what any program may need below [`languages::DIRECTORY`], since any may start Node.
fn add_files_for_any(spec: &Spec, files: &mut Vec<(PathBuf, RawText)>) {
    let content = || node::WORKERS.content.to_vec().into();
    let workers = (spec.limits.memory).map(|_| (node::WORKERS.path.into(), content()));
    files.extend(workers);
}

/// In the order of mounting.
fn overlays_of(mounts: &[Mount]) -> Vec<Overlay> {
    let overlay = |mount: &Mount| match &mount.kind {
        MountKind::Overlay {
            source,
            size,
            inodes,
        } => Some(Overlay {
            source: source.clone(),
            target: mount.target.clone(),
            limit: TmpfsLimit {
                size: *size,
                inodes: *inodes,
            },
        }),
        _ => None,
    };
    mounts.iter().filter_map(overlay).collect()
}

/// Refuses sockets of the host's network in a cell with another: even a connected one can be
/// connected anew, to wherever the host may connect (connect(2), `AF_UNSPEC`).
fn keep_network(spec: &Spec) -> Result<()> {
    let mut all = spec.descriptors.iter();
    match all.find(|descriptor| descriptor.is_network) {
        Some(socket) if spec.network != Network::Host => {
            let class = &socket.record.class;
            let message = format!(
                "is a socket ({class}) that can be connected anew, to wherever the host may connect"
            );
            Err(SetupError::new(Step::Spec, message)
                .on(format!("--pass-fd for {}", socket.record.number))
                .hint("pass a Unix socket whose other end is connected to it, or give the cell the host's network with --net host"))
        }
        _ => Ok(()),
    }
}

/// Landlock alone does not keep a program from executing code that it wrote itself: a
/// memfd has no path. The policy `strict` has none.
fn seccomp_policy(spec: &Spec) -> Option<String> {
    if spec.without.contains(&Layer::Seccomp) {
        return None;
    }
    let no_exec = !spec.landlock.exec_writable;
    let usual = if no_exec && spec.seccomp == "default" {
        "strict"
    } else {
        &spec.seccomp
    };
    Some(usual.to_owned())
}

/// An id that is unique among this host's executions: pids are unique among living
/// supervisors, and one supervisor, whose `pid` this is, does not start twice in a nanosecond.
pub fn new_id(pid: u32) -> String {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos());
    format!("{now:x}-{pid:x}")
}
