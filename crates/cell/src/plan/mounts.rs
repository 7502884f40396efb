//! The cell's file system, as a list that init walks.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::drivers::DIRECTORY;
use crate::probe::HostFacts;
use crate::rootfs::{Entry, EntryKind, Tree};
use crate::spec::{
    Bind, Bytes, DeviceNumber, Layer, Overlay, Place, Placed, ProcChoice, ReadOnlyFile, Scratch,
    Spec, TmpfsLimit, WORKSPACE,
};
use record::bytes::RawText;
use record::error::{Result, SetupError, Step};

use super::machine::Machine;
use super::names::NameFiles;
use super::scratch::ScratchDir;
use super::trust::{self, Trust};

/// One entry of the cell's file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Mount {
    /// Absolute path inside.
    pub target: PathBuf,
    /// What goes there.
    #[serde(flatten)]
    pub kind: MountKind,
    /// Whether `target` may be made: only below directories of the cell's own.
    pub create: bool,
}

/// What goes into a place of the cell's file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum MountKind {
    /// A new tmpfs; always `nosuid,nodev`.
    Tmpfs {
        /// `size=`, in bytes.
        size: Bytes,
        /// `nr_inodes=`.
        inodes: u64,
        /// `mode=`.
        mode: u32,
        /// Whether it becomes read-only once everything is in place.
        seal: Seal,
    },
    /// A piece of the host, with everything mounted beneath it.
    Bind {
        /// Which.
        source: Source,
        /// Whether the program may write there.
        writable: bool,
        /// Whether it is a device node, which `nodev` would make useless.
        device: bool,
    },
    /// A character device of the host's that the caller named.
    Device {
        /// Its path on the host.
        source: PathBuf,
        /// What the node must still be when it is opened.
        number: DeviceNumber,
    },
    /// A writable view of a host directory (overlayfs): changes go to a tmpfs of the cell's
    /// own, which has no name inside.
    Overlay {
        /// The directory.
        source: PathBuf,
        /// `size=` of the tmpfs, in bytes.
        size: Bytes,
        /// Its `nr_inodes=`.
        inodes: u64,
    },
    /// A file of the cell's own, which is made before, in place of one that is there.
    Cover {
        /// Its path inside.
        from: PathBuf,
    },
    /// `/proc` of the cell's pid namespace: processes only, strangers hidden.
    Proc,
    /// A whole `/proc` of which all but processes is covered, and a `/sys`: a machine of
    /// the cell's size.
    Machine(Box<Machine>),
    /// The host's `/proc`, read-only, where that layer was given up.
    HostProc,
    /// New pseudo-terminals.
    Devpts {
        /// `max=`: the kernel's own limit is one for all instances together.
        max: u32,
    },
    /// A directory. Where it is not made, it is there.
    Directory {
        /// Its permissions.
        mode: u32,
    },
    /// A file with this content.
    File {
        /// Its content.
        content: RawText,
    },
    /// The workspace once more, which is mounted before.
    Workspace,
    /// The certificates that the cell trusts, which are made when it starts.
    Certificates,
    /// The same certificates as a Java keystore.
    JavaCertificates,
    /// A symbolic link.
    Symlink {
        /// Its target.
        to: PathBuf,
    },
}

/// Whether a tmpfs becomes read-only once everything is in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Seal {
    /// It is cellblock's own scaffolding.
    ReadOnly,
    /// The program writes there.
    Writable,
}

/// Where a bind comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Source {
    /// A path that the caller or cellblock named.
    Host(PathBuf),
    /// A path in a rootfs, which is not trusted: no link in it is followed.
    Beneath {
        /// The rootfs.
        base: PathBuf,
        /// The path below it.
        path: PathBuf,
    },
}

const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
const DEVICE_LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

/// Pseudo-terminals of a cell: a terminal multiplexer with a few windows. The
/// host has 3072 for all cells together (`kernel.pty.max` less `pty.reserve`).
const PTYS: u32 = 16;

/// What `/proc` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcView {
    /// The cell's processes, and a machine of its size.
    Machine,
    /// The cell's processes.
    Processes,
    /// The host's processes and machine: the layer was given up.
    Host,
}

/// The kernel mounts a whole `/proc` for a user namespace only where all of the caller's
/// is visible; elsewhere a cell gets processes only.
pub(crate) fn proc_view(spec: &Spec, host: &HostFacts) -> ProcView {
    match spec.proc {
        _ if spec.without.contains(&Layer::Proc) => ProcView::Host,
        ProcChoice::Machine if !host.proc_covered => ProcView::Machine,
        _ => ProcView::Processes,
    }
}

/// All of the cell's file system. `files` are the driver's, below [`DIRECTORY`].
pub(super) fn plan(
    spec: &Spec,
    host: &HostFacts,
    tree: &Tree,
    files: &[(PathBuf, RawText)],
    names: &NameFiles,
    scratch: &[ScratchDir],
) -> Result<Vec<Mount>> {
    let mut list = List::default();
    list.root(files, &spec.read_only_files);
    list.tree(tree);
    if tree.needs_etc {
        list.etc(spec, names);
    }
    list.system(spec, host, scratch);
    list.names(tree, names);
    if Trust::of(&spec.network).is_some() {
        list.certificates(tree);
    }
    let parents = files.iter().filter_map(|(path, _)| path.parent());
    let packages: BTreeSet<_> = parents
        .filter(|path| *path != Path::new(DIRECTORY))
        .collect();
    for package in packages {
        list.directory(package);
    }
    for (path, content) in files {
        list.own(
            path,
            MountKind::File {
                content: content.clone(),
            },
        );
    }
    list.callers(spec)?;
    Ok(list.0)
}

/// Something of the caller's.
enum Callers<'s> {
    Bind(&'s Bind),
    Overlay(&'s Overlay),
    Place(&'s Place),
    File(&'s ReadOnlyFile),
}

impl Callers<'_> {
    fn target(&self) -> &Path {
        match self {
            Self::Bind(bind) => &bind.target,
            Self::Overlay(overlay) => &overlay.target,
            Self::Place(place) => &place.path,
            Self::File(file) => &file.path,
        }
    }
}

#[derive(Default)]
struct List(Vec<Mount>);

impl List {
    fn own(&mut self, target: impl Into<PathBuf>, kind: MountKind) {
        self.0.push(Mount {
            target: target.into(),
            kind,
            create: true,
        });
    }

    fn tmpfs(&mut self, target: &str, limit: TmpfsLimit, mode: u32, seal: Seal) {
        let TmpfsLimit { size, inodes } = limit;
        self.own(
            target,
            MountKind::Tmpfs {
                size,
                inodes,
                mode,
                seal,
            },
        );
    }

    fn directory(&mut self, target: impl Into<PathBuf>) {
        self.own(target, MountKind::Directory { mode: 0o755 });
    }

    fn bind(&mut self, target: impl Into<PathBuf>, source: Source, device: bool) {
        self.own(
            target,
            MountKind::Bind {
                source,
                writable: false,
                device,
            },
        );
    }

    /// The root holds directories, links and the driver's files, and nothing
    /// that the program writes: its size is what goes in and some slack.
    fn root(&mut self, files: &[(PathBuf, RawText)], callers: &[ReadOnlyFile]) {
        let all = files.iter().map(|(_, content)| content);
        let all = all.chain(callers.iter().map(|file| &file.content));
        let content: u64 = all
            .map(|content| (content.as_bytes().len() as u64).next_multiple_of(4096))
            .sum();
        let limit = TmpfsLimit {
            // Certificates may take one.
            size: Bytes(content + 2 * Bytes::MIB),
            inodes: 1024,
        };
        self.tmpfs("/", limit, 0o755, Seal::ReadOnly);
    }

    fn tree(&mut self, tree: &Tree) {
        for entry in &tree.entries {
            let target = Path::new("/").join(&entry.path);
            match &entry.kind {
                EntryKind::Symlink(to) => self.own(target, MountKind::Symlink { to: to.clone() }),
                EntryKind::Directory | EntryKind::File => {
                    // The host itself is trusted not to lead astray.
                    let source = match tree.base.parent() {
                        None => Source::Host(target.clone()),
                        Some(_) => Source::Beneath {
                            base: tree.base.clone(),
                            path: entry.path.clone(),
                        },
                    };
                    self.bind(target, source, false);
                }
            }
        }
    }

    /// The little of `/etc` that programs expect and that no host's own should
    /// stand for.
    fn etc(&mut self, spec: &Spec, names: &NameFiles) {
        let (hostname, uid) = (&spec.hostname, spec.uid);
        let own = |line: String| if uid == 0 { String::new() } else { line };
        let user = own(format!("cell:x:{uid}:{uid}:cell:/tmp:/bin/sh\n"));
        let group = own(format!("cell:x:{uid}:\n"));
        let known = names.hosts.as_deref().unwrap_or_default();
        let files = [
            (
                "passwd",
                format!(
                    "root:x:0:0:root:/:/bin/sh\n{user}nobody:x:65534:65534:nobody:/:/bin/false\n"
                ),
            ),
            ("group", format!("root:x:0:\n{group}nogroup:x:65534:\n")),
            (
                "hosts",
                format!("127.0.0.1 localhost {hostname}\n::1 localhost\n{known}"),
            ),
            ("hostname", format!("{hostname}\n")),
            (
                "nsswitch.conf",
                "passwd: files\ngroup: files\nhosts: files dns\n".to_owned(),
            ),
        ];
        for (name, content) in files {
            self.own(
                Path::new("/etc").join(name),
                MountKind::File {
                    content: content.into(),
                },
            );
        }
    }

    /// The files by which names are resolved. In a rootfs with an `/etc` of its own, a
    /// file can only be covered ([`Tree::open_etc`]).
    fn names(&mut self, tree: &Tree, names: &NameFiles) {
        let is_whole = |entry: &Entry| entry.path == Path::new("etc");
        let is_covered = tree.entries.iter().any(is_whole);
        for (name, content) in names.files() {
            if name == "hosts" && tree.needs_etc {
                continue;
            }
            let target = Path::new("/etc").join(name);
            let kind = MountKind::File {
                content: content.into(),
            };
            if !is_covered {
                self.own(target, kind);
                continue;
            }
            let from = Path::new(DIRECTORY).join("etc").join(name);
            self.own(from.clone(), kind);
            self.0.push(Mount {
                target,
                kind: MountKind::Cover { from },
                create: false,
            });
        }
    }

    /// The bundle of certificates, in the place of each that the tree has.
    fn certificates(&mut self, tree: &Tree) {
        self.own(trust::BUNDLE, MountKind::Certificates);
        for target in trust::bundles(tree) {
            self.cover(target, trust::BUNDLE);
        }
        let mut stores = trust::java_stores(tree).peekable();
        if stores.peek().is_some() {
            self.own(trust::JAVA_STORE, MountKind::JavaCertificates);
        }
        for target in stores {
            self.cover(target, trust::JAVA_STORE);
        }
    }

    /// Mounts a file of the cell's own over one of the tree.
    fn cover(&mut self, target: &Path, from: &str) {
        self.0.push(Mount {
            target: target.to_owned(),
            kind: MountKind::Cover { from: from.into() },
            create: false,
        });
    }

    fn system(&mut self, spec: &Spec, host: &HostFacts, scratch: &[ScratchDir]) {
        let proc = match proc_view(spec, host) {
            ProcView::Machine => MountKind::Machine(Box::new(Machine::of(spec, host))),
            ProcView::Processes => MountKind::Proc,
            ProcView::Host => MountKind::HostProc,
        };
        self.own("/proc", proc);
        self.directory("/dev");
        for name in DEVICES {
            let path = Path::new("/dev").join(name);
            self.bind(path.clone(), Source::Host(path), true);
        }
        for (name, to) in DEVICE_LINKS {
            self.own(
                Path::new("/dev").join(name),
                MountKind::Symlink { to: to.into() },
            );
        }
        for device in &host.devices {
            self.own(
                device.path.clone(),
                MountKind::Device {
                    source: device.path.clone(),
                    number: device.number,
                },
            );
        }
        self.own("/dev/pts", MountKind::Devpts { max: PTYS });
        // A tmpfs beneath a bind would only be hidden.
        for own in scratch.iter().filter(|scratch| scratch.is_own()) {
            let mode = match own.name {
                Scratch::Workspace => 0o755,
                Scratch::Tmp | Scratch::Shm => 0o1777,
            };
            self.tmpfs(own.name.path(), own.limit, mode, Seal::Writable);
        }
        self.directory(DIRECTORY);
    }

    /// What the caller adds comes last and may cover anything before it; what lies
    /// beneath another comes after that, in whatever order they were given. Places are
    /// made only in cellblock's own tmpfs: never in a rootfs or in a bind.
    fn callers(&mut self, spec: &Spec) -> Result<()> {
        let binds = spec.binds.iter().map(Callers::Bind);
        let places = spec.places.iter().map(Callers::Place);
        let files = spec.read_only_files.iter().map(Callers::File);
        let overlays = spec.overlays.iter().map(Callers::Overlay);
        let all = binds.chain(overlays).chain(places).chain(files);
        let mut all: Vec<Callers<'_>> = all.collect();
        all.sort_by_key(|callers| callers.target().components().count());
        for (index, callers) in all.into_iter().enumerate() {
            let target = callers.target().to_owned();
            let create = self.is_own(&target);
            let kind = match callers {
                Callers::Bind(bind) => MountKind::Bind {
                    source: Source::Host(bind.source.clone()),
                    writable: bind.writable,
                    device: false,
                },
                Callers::Overlay(overlay) => MountKind::Overlay {
                    source: overlay.source.clone(),
                    size: overlay.limit.size,
                    inodes: overlay.limit.inodes,
                },
                Callers::Place(place) => match &place.what {
                    Placed::Tmpfs { limit } => MountKind::Tmpfs {
                        size: limit.size,
                        inodes: limit.inodes,
                        mode: 0o755,
                        seal: Seal::Writable,
                    },
                    Placed::Directory => MountKind::Directory { mode: 0o755 },
                    Placed::Symlink { to } => {
                        self.link(target, to)?;
                        continue;
                    }
                    // A link where it can be one: a bind would be another mount, across
                    // which nothing can be renamed.
                    Placed::Workspace if self.can_make(&target) => MountKind::Symlink {
                        to: WORKSPACE.into(),
                    },
                    Placed::Workspace => MountKind::Workspace,
                },
                Callers::File(file) => {
                    self.file(target, &file.content, index);
                    continue;
                }
            };
            self.0.push(Mount {
                target,
                kind,
                create,
            });
        }
        Ok(())
    }

    /// A link of the caller's, in place of one of the rootfs.
    fn link(&mut self, target: PathBuf, to: &Path) -> Result<()> {
        if !self.can_make(&target) {
            let message = "is in a rootfs or a bind, and no link can be made there";
            return Err(SetupError::new(Step::Spec, message)
                .on(format!("--symlink {}:{}", to.display(), target.display()))
                .hint("bind what it is to lead to at this path, with --ro SRC:DST"));
        }
        self.own(target, MountKind::Symlink { to: to.to_owned() });
        Ok(())
    }

    /// A file of the caller's. In a rootfs or a bind, one that is there is covered.
    fn file(&mut self, target: PathBuf, content: &RawText, index: usize) {
        let kind = MountKind::File {
            content: content.clone(),
        };
        if self.can_make(&target) {
            self.own(target, kind);
            return;
        }
        let from = Path::new(DIRECTORY).join("files").join(index.to_string());
        self.own(from.clone(), kind);
        self.0.push(Mount {
            target,
            kind: MountKind::Cover { from },
            create: false,
        });
    }

    /// Whether a file or link of the caller's can be made at `target`, once a file or
    /// link that cellblock would make there is left out.
    fn can_make(&mut self, target: &Path) -> bool {
        self.0.retain(|mount| {
            let is_made = matches!(
                mount.kind,
                MountKind::File { .. } | MountKind::Symlink { .. }
            );
            !(is_made && mount.target == target)
        });
        self.is_own(target) && self.0.iter().all(|mount| mount.target != target)
    }

    /// Whether the innermost mount that holds `target` is a tmpfs of the cell's.
    fn is_own(&self, target: &Path) -> bool {
        self.0
            .iter()
            .rev()
            .filter(|mount| {
                !matches!(
                    mount.kind,
                    MountKind::Directory { .. }
                        | MountKind::File { .. }
                        | MountKind::Certificates
                        | MountKind::JavaCertificates
                        | MountKind::Symlink { .. }
                )
            })
            .filter(|mount| target.starts_with(&mount.target) && target != mount.target)
            .max_by_key(|mount| mount.target.components().count())
            .is_some_and(|mount| matches!(mount.kind, MountKind::Tmpfs { .. }))
    }
}
