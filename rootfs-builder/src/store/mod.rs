//! The writing side of the store: trees are begun, named, removed, and deleted once
//! unused. [`plan::rootfs::Store`] has the layout and finds trees.

use std::collections::BTreeSet;
use std::ffi::{CString, OsString};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::errors::{failed, store_error};
use crate::files::set_mode;
use plan::rootfs::{Manifest, Store, check_name, is_absent};
use record::error::{Result, SetupError, Step};
use sys::tree::erase;

mod defaults;
mod draft;
mod settle;

pub use defaults::{choose_default, withdraw_default};
pub(crate) use draft::Draft;

/// The directory of a store that has the trees.
const TREES: &str = ".trees";

/// The file of a store that is locked while names and trees are compared.
const LOCK: &str = ".lock";

/// The start of a tree's name while it is being deleted. Names of rootfs do not
/// start with a dot.
const DELETED: &str = ".gone-";

/// A name of the store and its rootfs.
#[derive(Debug)]
pub struct Listed {
    /// The name.
    pub name: String,
    /// Its path in the store.
    pub path: PathBuf,
    /// The manifest of its tree, or why the tree cannot be used.
    pub manifest: Result<Manifest>,
}

/// Every name of the store, in order.
pub fn list(store: &Store) -> Vec<Listed> {
    let describe = |(name, path): (String, PathBuf)| Listed {
        manifest: manifest_at(&path),
        name,
        path,
    };
    store.names().into_iter().map(describe).collect()
}

/// The manifest of the rootfs at `path`, which must have one.
///
/// # Errors
/// It has none, or one that this version does not read.
pub(crate) fn manifest_at(path: &Path) -> Result<Manifest> {
    let broken = |message: &str| {
        SetupError::new(Step::Rootfs, message)
            .on(path.display())
            .hint("remove it, and build or import it again")
    };
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => return Err(broken("it is not a directory")),
        Err(_) => return Err(broken("its tree is missing or you may not read it")),
    }
    Manifest::read(path)?.ok_or_else(|| broken("it has no manifest"))
}

/// Begins a tree that will get the name `name`, after deleting unused trees.
///
/// # Errors
/// The name is invalid, the store cannot be written, or another process is making
/// a tree of this name.
pub(crate) fn begin(store: &Store, name: &str) -> Result<Draft> {
    check_name(name)?;
    let trees = make_trees(store)?;
    // Other users may read the store, whatever the caller's umask.
    for path in [store.path(), &trees] {
        let _ = set_mode(path, 0o755);
    }
    sweep(store)?;
    let _lock = lock(store)?;
    if is_being_made(store, name)? {
        return Err(
            store_error("another process is making a rootfs of this name")
                .on(name)
                .hint("wait until it ends, or choose another name or --store"),
        );
    }
    Draft::create(store, name, &trees)
}

/// Removes the rootfs with this name. Cells that run on it keep it: the first call
/// that changes the store after they have ended deletes its tree.
///
/// # Errors
/// It is not in this store, or cannot be removed.
pub fn remove(store: &Store, name: &str) -> Result<()> {
    check_name(name)?;
    let link = store.path().join(name);
    let metadata = match fs::symlink_metadata(&link) {
        Err(e) if is_absent(&e) => return Err(not_found(store, name)),
        other => other.map_err(failed("stat", &link))?,
    };
    let locked = lock(store)?;
    if metadata.is_dir() {
        move_away(store, &link)?;
    } else {
        fs::remove_file(&link).map_err(failed("unlink", &link))?;
    }
    drop(locked);
    sweep(store)
}

/// Deletes every tree that has no name, is not being made, and has no cell.
///
/// # Errors
/// The store cannot be read or written.
fn sweep(store: &Store) -> Result<()> {
    let trees = store.path().join(TREES);
    if fs::symlink_metadata(&trees).is_err_and(|e| is_absent(&e)) {
        return Ok(());
    }
    let locked = lock(store)?;
    let named = named_trees(store)?;
    let mut unused = Vec::new();
    for tree in entries(&trees)? {
        if named.contains(&tree) {
            continue;
        }
        let path = trees.join(&tree);
        if let Some(held) = try_lock(&path, FlockArg::LockExclusiveNonblock)? {
            // Another process must not take it for a tree in the making.
            let name = OsString::from(format!("{DELETED}{}", fresh_id()));
            let to = trees.join(&name);
            fs::rename(&path, &to).map_err(failed("rename", &path))?;
            unused.push((name, held));
        }
    }
    drop(locked);
    let dir = File::open(&trees).map_err(failed("open", &trees))?;
    for (name, _held) in unused {
        let path = trees.join(&name);
        let name = CString::new(name.into_vec()).unwrap_or_default();
        erase(&dir, &name).map_err(failed("unlink", &path))?;
    }
    Ok(())
}

/// Gives the tree `.trees/TREE` the name `name` in one step, whatever had it before.
fn name_tree(store: &Store, name: &str, tree: &str) -> Result<()> {
    let _lock = lock(store)?;
    let link = store.path().join(name);
    if fs::symlink_metadata(&link).is_ok_and(|found| found.is_dir()) {
        move_away(store, &link)?;
    }
    let fresh = store.path().join(format!(".{tree}"));
    std::os::unix::fs::symlink(Path::new(TREES).join(tree), &fresh)
        .map_err(failed("symlink", &fresh))?;
    fs::rename(&fresh, &link).map_err(|e| {
        let _ = fs::remove_file(&fresh);
        failed("rename", &link)(e)
    })?;
    File::open(store.path())
        .and_then(|dir| dir.sync_all())
        .map_err(failed("fsync", store.path()))
}

/// Moves a tree that the user put into the store by hand, where a link belongs, to
/// the trees that are deleted.
fn move_away(store: &Store, tree: &Path) -> Result<()> {
    let to = make_trees(store)?.join(format!("{DELETED}{}", fresh_id()));
    fs::rename(tree, to).map_err(failed("rename", tree))
}

fn make_trees(store: &Store) -> Result<PathBuf> {
    let trees = store.path().join(TREES);
    DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(&trees)
        .map_err(failed("mkdir", &trees))?;
    Ok(trees)
}

/// The names in `.trees` that a name of the store leads to.
fn named_trees(store: &Store) -> Result<BTreeSet<OsString>> {
    let names = entries(store.path())?.into_iter();
    let names = names.filter(|name| name.to_str().is_some_and(|name| check_name(name).is_ok()));
    let targets = names.filter_map(|name| fs::read_link(store.path().join(name)).ok());
    let trees = targets.filter_map(|target| {
        let tree = target.strip_prefix(TREES).ok()?;
        Some(tree.as_os_str().to_owned())
    });
    Ok(trees.collect())
}

/// Whether a process holds a draft of this name. The caller holds the store's lock.
fn is_being_made(store: &Store, name: &str) -> Result<bool> {
    let trees = store.path().join(TREES);
    let named = named_trees(store)?;
    for tree in entries(&trees)? {
        let parts = tree.to_str().and_then(|tree| tree.rsplit_once('.'));
        let is_of_name = parts.is_some_and(|(of, _)| of == name);
        if !is_of_name || named.contains(&tree) {
            continue;
        }
        // Cells that still run on an old tree share its lock.
        if try_lock(&trees.join(&tree), FlockArg::LockSharedNonblock)?.is_none() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Waits for the store's own lock, which processes hold briefly.
fn lock(store: &Store) -> Result<Flock<File>> {
    let path = store.path().join(LOCK);
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o644)
        .open(&path)
        .map_err(failed("open", &path))?;
    sys::flock(file, FlockArg::LockExclusive).map_err(failed("flock", &path))
}

/// Locks a tree; `None` when another process holds its lock, or it is gone.
fn try_lock(tree: &Path, how: FlockArg) -> Result<Option<Flock<File>>> {
    let file = match open_directory(tree) {
        Err(e) if is_absent(&e) => return Ok(None),
        // A draft may be shut even to its owner.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            set_mode(tree, 0o700)?;
            open_directory(tree).map_err(failed("open", tree))?
        }
        other => other.map_err(failed("open", tree))?,
    };
    match sys::flock(file, how) {
        Err(Errno::EWOULDBLOCK) => Ok(None),
        other => other.map(Some).map_err(failed("flock", tree)),
    }
}

fn open_directory(path: &Path) -> io::Result<File> {
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

fn not_found(store: &Store, name: &str) -> SetupError {
    let error = store_error(format!(
        "there is no such rootfs in {}",
        store.path().display()
    ))
    .on(name);
    match store.system() {
        Some(system) if fs::symlink_metadata(system.join(name)).is_ok() => error.hint(format!(
            "the administrator's store has it: `cellblock rootfs remove --store {} {name}`",
            system.display()
        )),
        _ => error.hint("`cellblock rootfs list` prints the names"),
    }
}

/// The names in a directory; none if it is missing.
fn entries(path: &Path) -> Result<Vec<OsString>> {
    let found = match fs::read_dir(path) {
        Err(e) if is_absent(&e) => return Ok(Vec::new()),
        other => other.map_err(failed("readdir", path))?,
    };
    let names = found.map(|entry| entry.map(|entry| entry.file_name()));
    names
        .collect::<io::Result<_>>()
        .map_err(failed("readdir", path))
}

/// Sixteen hexadecimal digits that no other directory has.
pub(crate) fn fresh_id() -> String {
    format!("{:016x}", RandomState::new().hash_one(std::process::id()))
}

#[cfg(test)]
mod tests;
