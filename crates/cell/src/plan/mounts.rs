//! The cell's file system, as a list that init walks.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::drivers::DIRECTORY;
use crate::probe::HostFacts;
use crate::rootfs::{Entry, EntryKind, Tree};
use crate::spec::{Bytes, Layer, ProcChoice, Scratch, Spec, TmpfsLimit};
use record::bytes::RawText;

use super::ids::INNER_ID;
use super::machine::Machine;
use super::names::NameFiles;
use super::scratch::ScratchDir;

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
    /// A directory.
    Directory {
        /// Its permissions.
        mode: u32,
    },
    /// A file with this content.
    File {
        /// Its content.
        content: RawText,
    },
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
) -> Vec<Mount> {
    let mut list = List::default();
    list.root(files);
    list.tree(tree);
    if tree.needs_etc {
        list.etc(&spec.hostname, names);
    }
    list.system(spec, host, scratch);
    list.names(tree, names);
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
    list.binds(spec);
    list.0
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
    fn root(&mut self, files: &[(PathBuf, RawText)]) {
        let content: u64 = files
            .iter()
            .map(|(_, c)| (c.as_bytes().len() as u64).next_multiple_of(4096))
            .sum();
        let limit = TmpfsLimit {
            size: Bytes(content + Bytes::MIB),
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
    fn etc(&mut self, hostname: &str, names: &NameFiles) {
        let known = names.hosts.as_deref().unwrap_or_default();
        let files = [
            (
                "passwd",
                format!(
                    "root:x:0:0:root:/:/bin/sh\ncell:x:{INNER_ID}:{INNER_ID}:cell:/tmp:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"
                ),
            ),
            (
                "group",
                format!("root:x:0:\ncell:x:{INNER_ID}:\nnogroup:x:65534:\n"),
            ),
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

    /// The caller's binds come last and may cover anything before them. Places
    /// for them are made only in cellblock's own tmpfs: never in a rootfs or in
    /// another bind.
    fn binds(&mut self, spec: &Spec) {
        for bind in &spec.binds {
            let create = self.is_own(&bind.target);
            let kind = MountKind::Bind {
                source: Source::Host(bind.source.clone()),
                writable: bind.writable,
                device: false,
            };
            self.0.push(Mount {
                target: bind.target.clone(),
                kind,
                create,
            });
        }
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
                        | MountKind::Symlink { .. }
                )
            })
            .filter(|mount| target.starts_with(&mount.target) && target != mount.target)
            .max_by_key(|mount| mount.target.components().count())
            .is_some_and(|mount| matches!(mount.kind, MountKind::Tmpfs { .. }))
    }
}
