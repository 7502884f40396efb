//! The cell's file system, as a list that init walks.

mod callers;
mod etc;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::probe::HostFacts;
use crate::rootfs::{EntryKind, Tree};
use languages::DIRECTORY;
use record::bytes::RawText;
use record::error::Result;
use spec::{Bytes, DeviceNumber, Layer, ProcChoice, ReadOnlyFile, Scratch, Spec, TmpfsLimit};

use crate::machine::Machine;
use crate::names::NameFiles;
use crate::scratch::ScratchDir;
use crate::trust::Trust;

/// One entry of the cell's file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mount {
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
pub enum MountKind {
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
        /// Whether it is a directory, where that has been looked up.
        #[serde(skip)]
        is_directory: Option<bool>,
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
        /// Whether it can be executed.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        executable: bool,
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
        /// Whether it can be executed.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        executable: bool,
    },
    /// What is there in a writable bind, read-only; where nothing is, an empty directory that
    /// is made on the host for as long as cells need it. The directories that lead to it cannot be
    /// renamed.
    Protected {
        /// The bind's path inside.
        bind: PathBuf,
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

impl MountKind {
    /// Whether it is a device node of the host's.
    pub fn is_device(&self) -> bool {
        matches!(self, Self::Bind { device: true, .. } | Self::Device { .. })
    }
}

/// Whether a tmpfs becomes read-only once everything is in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Seal {
    /// It is cellblock's own scaffolding.
    ReadOnly,
    /// The program writes there.
    Writable,
}

/// Where a bind comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
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

/// A link to `/tmp`, unless the caller puts something there.
const VAR_TMP: &str = "/var/tmp";

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
pub(crate) fn plan(
    spec: &Spec,
    host: &HostFacts,
    tree: &Tree,
    files: Vec<(PathBuf, RawText)>,
    names: &NameFiles,
    scratch: &[ScratchDir],
) -> Result<Vec<Mount>> {
    let mut list = List::default();
    let proc = match proc_view(spec, host) {
        ProcView::Machine => MountKind::Machine(Box::new(Machine::of(spec, host))),
        ProcView::Processes => MountKind::Proc,
        ProcView::Host => MountKind::HostProc,
    };
    list.root(&files, &spec.read_only_files, &proc);
    list.tree(tree);
    if tree.needs_etc {
        list.etc(spec, names);
    }
    list.system(host, proc, scratch);
    list.var_tmp(tree);
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
                content,
                executable: false,
            },
        );
    }
    list.callers(spec)?;
    Ok(list.0)
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

    fn bind(
        &mut self,
        target: impl Into<PathBuf>,
        source: Source,
        device: bool,
        is_directory: bool,
    ) {
        self.own(
            target,
            MountKind::Bind {
                source,
                writable: false,
                device,
                is_directory: Some(is_directory),
            },
        );
    }

    /// The root holds directories, links, the driver's and the machine's files, and nothing
    /// that the program writes: its size is what goes in and some slack.
    fn root(&mut self, files: &[(PathBuf, RawText)], callers: &[ReadOnlyFile], proc: &MountKind) {
        let (pages, inodes) = match proc {
            MountKind::Machine(machine) => machine.room(),
            _ => (0, 0),
        };
        let all = files.iter().map(|(_, content)| content);
        let all = all.chain(callers.iter().map(|file| &file.content));
        let content: u64 = all
            .map(|content| (content.as_bytes().len() as u64).next_multiple_of(4096))
            .sum();
        let limit = TmpfsLimit {
            // Certificates may take one.
            size: Bytes(content + pages * 4096 + 2 * Bytes::MIB),
            inodes: inodes + 1024,
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
                    let is_directory = entry.kind == EntryKind::Directory;
                    self.bind(target, source, false, is_directory);
                }
            }
        }
    }

    /// `/var/tmp` is `/tmp` (hier(7)), where the tree has no `/var` of its own.
    fn var_tmp(&mut self, tree: &Tree) {
        if !tree
            .entries
            .iter()
            .any(|entry| entry.path == Path::new("var"))
        {
            let to = Scratch::Tmp.path().into();
            self.own(VAR_TMP, MountKind::Symlink { to });
        }
    }

    fn system(&mut self, host: &HostFacts, proc: MountKind, scratch: &[ScratchDir]) {
        self.own("/proc", proc);
        self.directory("/dev");
        for name in DEVICES {
            let path = Path::new("/dev").join(name);
            self.bind(path.clone(), Source::Host(path), true, false);
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
}
