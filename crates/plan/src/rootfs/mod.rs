//! The directory tree that a cell sees.
//!
//! A [`Tree`] lists the top of a root file system: directories and files that
//! are bound read-only onto the cell's own root, and symbolic links that are
//! made again there. The cell's root itself is always a new tmpfs, so that
//! `/proc`, `/dev`, `/tmp` and the like never depend on the rootfs.
//!
//! This finds and reads prepared trees; the crate `rootfs_builder` makes them.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::fcntl::{OFlag, open};
use nix::sys::stat::{FileStat, Mode};
use serde::Serialize;

use record::error::{Result, SetupError, Step};
use spec::RootfsRef;
use sys::beneath::Beneath;

mod defaults;
mod host;
mod manifest;
mod packages;
mod store;

pub use manifest::{Base, FORMAT, Interpreter, MANIFEST, Manifest, Package, Recipe};
pub use store::{Lease, Prepared, Store, check_name, is_absent};

use manifest::Head;

/// The name of the listing of a prepared rootfs, beside its manifest.
pub const LISTING: &str = "manifest.listing";

/// Names at the top of a rootfs that the cell provides itself.
const PROVIDED: [&str; 8] = [
    "proc",
    "dev",
    "sys",
    "tmp",
    "run",
    "workspace",
    MANIFEST,
    LISTING,
];

/// The top of a root file system.
#[derive(Clone, Debug, Serialize)]
pub struct Tree {
    /// For the record: `host`, a directory, or `name@sha256:…`.
    pub label: String,
    /// The host directory that the entries are relative to.
    pub base: PathBuf,
    /// The entries that the cell sees.
    pub entries: Vec<Entry>,
    /// Whether the cell needs an `/etc/passwd` and the like of its own.
    pub needs_etc: bool,
    /// Interpreters that the rootfs's manifest names, by language.
    pub interpreters: BTreeMap<String, PathBuf>,
    /// Keeps a tree of the store from being removed while a cell runs on it.
    #[serde(skip)]
    pub lease: Option<Arc<Lease>>,
}

/// One piece of a [`Tree`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Path below the base, and below the cell's root.
    pub path: PathBuf,
    /// Its type.
    pub kind: EntryKind,
}

/// The type of an [`Entry`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A directory, bound with all below it.
    Directory,
    /// A regular file, bound.
    File,
    /// A symbolic link with this text, made again.
    Symlink(PathBuf),
}

impl Tree {
    /// Finds the tree that `wanted` names. `store` is `--store`; `usual` is the usual
    /// rootfs of the code's language, for [`RootfsRef::Auto`].
    ///
    /// # Errors
    /// The tree is missing, not a directory, or empty.
    pub fn find(wanted: &RootfsRef, store: Option<&Path>, usual: Option<&str>) -> Result<Self> {
        match wanted {
            RootfsRef::Host => Ok(host::tree()),
            RootfsRef::Dir(path) => directory(path),
            RootfsRef::Named(name) => Store::open(store)?.require(name).and_then(prepared),
            RootfsRef::Auto => {
                // Without a HOME there is no user store, so the host rootfs is used.
                let store = usual.and_then(|usual| Some((usual, Store::open(store).ok()?)));
                let found = store.map(|(usual, store)| store.find_default(usual));
                let found = found.transpose()?;
                found.flatten().map_or_else(|| Ok(host::tree()), prepared)
            }
        }
    }

    /// Whether this is the host's own.
    pub fn is_host(&self) -> bool {
        self.label == "host" && self.base == Path::new("/")
    }

    /// Whether `path`, absolute inside the cell, leads to something executable
    /// within the tree. Links are followed as they would be inside.
    pub fn has_program(&self, path: &Path) -> bool {
        self.mode_of_file(path)
            .is_some_and(|mode| mode & 0o111 != 0)
    }

    /// Whether `path`, absolute inside the cell, leads to a file in the tree.
    pub fn has_file(&self, path: &Path) -> bool {
        self.mode_of_file(path).is_some()
    }

    /// Prepares for files of the cell's own in `/etc`. Each covers a regular file of the
    /// tree. Where one is missing, what is in `/etc` is listed one by one instead of the
    /// directory, so that files can be made beside it.
    ///
    /// # Errors
    /// `/etc` cannot be read.
    pub fn open_etc(&mut self, names: &[&str]) -> Result<()> {
        let etc = Path::new("etc");
        let is_whole = |entry: &Entry| entry.path == etc && entry.kind == EntryKind::Directory;
        let Some(place) = self.entries.iter().position(is_whole) else {
            return Ok(());
        };
        let has_file = |name: &&str| {
            let entry = entry_at(&self.base, &etc.join(name));
            entry.is_some_and(|entry| entry.kind == EntryKind::File)
        };
        if names.iter().all(has_file) {
            return Ok(());
        }
        let path = self.base.join(etc);
        let fail = |e| SetupError::io(Step::Rootfs, "readdir", &e).on(path.display());
        self.entries.remove(place);
        for entry in fs::read_dir(&path).map_err(fail)? {
            let name = entry.map_err(fail)?.file_name();
            if !names.iter().any(|own| name == *own) {
                self.entries.extend(entry_at(&self.base, &etc.join(name)));
            }
        }
        self.entries.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(())
    }

    fn mode_of_file(&self, path: &Path) -> Option<u32> {
        self.status_of_file(path).map(|status| status.st_mode)
    }

    /// What the kernel knows of the file that `path`, absolute inside the cell, leads to.
    pub fn status_of_file(&self, path: &Path) -> Option<FileStat> {
        let relative = path.strip_prefix("/").unwrap_or(path);
        let covered = |entry: &Entry| relative.starts_with(&entry.path);
        if !self.entries.iter().any(covered) {
            return None;
        }
        let base = open_directory(&self.base).ok()?;
        let file = Beneath::new(&base).as_root().find(relative).ok()?;
        let status = nix::sys::stat::fstat(&file).ok()?;
        (status.st_mode & libc::S_IFMT == libc::S_IFREG).then_some(status)
    }
}

fn prepared(found: Prepared) -> Result<Tree> {
    let tree = directory(&found.path)?;
    Ok(Tree {
        lease: Some(Arc::new(found.lease)),
        ..tree
    })
}

fn directory(path: &Path) -> Result<Tree> {
    let fail = |syscall: &str, e: &std::io::Error| {
        SetupError::io(Step::Rootfs, syscall, e)
            .on(path.display())
            .hint("name a directory that holds a root file system and that you may read")
    };
    let base = fs::canonicalize(path).map_err(|e| fail("realpath", &e))?;
    let mut entries = Vec::new();
    for entry in fs::read_dir(&base).map_err(|e| fail("readdir", &e))? {
        let entry = entry.map_err(|e| fail("readdir", &e))?;
        let name = entry.file_name();
        if PROVIDED.iter().any(|provided| name == *provided) {
            continue;
        }
        let kind = entry.file_type().map_err(|e| fail("stat", &e))?;
        entries.extend(classify(&base, PathBuf::from(name), kind));
    }
    if entries.is_empty() {
        return Err(SetupError::new(
            Step::Rootfs,
            "this directory has nothing that a cell could use",
        )
        .on(path.display())
        .hint("a rootfs has at least usr/ or bin/ with the programs to run"));
    }
    entries.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    let manifest = Head::read(&base)?;
    let label = manifest
        .as_ref()
        .map_or_else(|| path.display().to_string(), Head::label);
    let interpreters = manifest.map_or_else(BTreeMap::new, |manifest| {
        let path = |(language, interpreter): (String, Interpreter)| (language, interpreter.path);
        manifest.interpreters.into_iter().map(path).collect()
    });
    Ok(Tree {
        label,
        base,
        entries,
        needs_etc: false,
        interpreters,
        lease: None,
    })
}

/// `None` for device nodes, sockets and FIFOs, which are of no use at the top.
fn classify(base: &Path, path: PathBuf, kind: fs::FileType) -> Option<Entry> {
    let kind = if kind.is_dir() {
        EntryKind::Directory
    } else if kind.is_file() {
        EntryKind::File
    } else if kind.is_symlink() {
        EntryKind::Symlink(fs::read_link(base.join(&path)).ok()?)
    } else {
        return None;
    };
    Some(Entry { path, kind })
}

/// The entry at `path` below `base`, if it exists and a cell can use it.
fn entry_at(base: &Path, path: &Path) -> Option<Entry> {
    let kind = fs::symlink_metadata(base.join(path)).ok()?.file_type();
    classify(base, path.to_owned(), kind)
}

/// [`entry_at`] for a path that is a link or missing on most hosts: then it takes one call.
fn link_at(base: &Path, path: &Path) -> Option<Entry> {
    match fs::read_link(base.join(path)) {
        Ok(to) => Some(Entry {
            path: path.to_owned(),
            kind: EntryKind::Symlink(to),
        }),
        Err(error) if is_absent(&error) => None,
        Err(_) => entry_at(base, path),
    }
}

/// Finds `path` below the directory `base` without following any link: links of a
/// hostile rootfs must not lead outside.
///
/// # Errors
/// The error number of openat2(2); ELOOP for a symbolic link.
pub fn open_beneath(base: &Path, path: &Path) -> nix::Result<OwnedFd> {
    Beneath::new(&open_directory(base)?).find(path)
}

fn open_directory(path: &Path) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    open(path, flags, Mode::empty())
}
