//! What changes a store: trees begun, named, removed and swept.

use std::collections::BTreeSet;
use std::ffi::{CString, OsString};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use nix::fcntl::{Flock, FlockArg};

use super::lock::{flock, try_lock};
use super::{Store, TREES, check_name, entries, fresh_id, is_absent};
use crate::rootfs::draft::Draft;
use record::error::{Result, SetupError, Step};
use sys::tree::erase;

/// The file of a store that is locked while names and trees are matched.
const LOCK: &str = ".lock";

/// The start of a tree's name while it is being removed. No name of a rootfs
/// begins with a dot.
const GONE: &str = ".gone-";

impl Store {
    /// Begins a tree that will get the name `name`. Trees that nobody needs any
    /// more are removed first.
    ///
    /// # Errors
    /// The name is no name, the store cannot be written, or another process is
    /// making a tree of this name.
    pub fn begin(&self, name: &str) -> Result<Draft> {
        check_name(name)?;
        let trees = self.path.join(TREES);
        make_directory(&trees).map_err(|e| self.failed("mkdir", &e, &trees))?;
        // Others may look, whatever the caller's umask.
        for path in [&self.path, &trees] {
            let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o755));
        }
        self.sweep()?;
        let lock = self.lock()?;
        if self.is_being_made(name)? {
            return Err(SetupError::new(
                Step::Store,
                "another process is making a rootfs of this name",
            )
            .on(name)
            .hint("wait for it to end, or choose another name or --store"));
        }
        let draft = Draft::create(self, name, &trees);
        drop(lock);
        draft
    }

    /// Removes the rootfs with this name. Cells that run on it keep it: its tree
    /// goes with the first call that changes the store after they have ended.
    ///
    /// # Errors
    /// There is none in this store, or it cannot be removed.
    pub fn remove(&self, name: &str) -> Result<()> {
        check_name(name)?;
        let link = self.path.join(name);
        let kind = match fs::symlink_metadata(&link) {
            Ok(found) => found.file_type(),
            Err(e) if is_absent(&e) => return Err(self.not_here(name)),
            Err(e) => return Err(self.failed("stat", &e, &link)),
        };
        let lock = self.lock()?;
        if !kind.is_dir() {
            fs::remove_file(&link).map_err(|e| self.failed("unlink", &e, &link))?;
        } else {
            // Put here by hand.
            let trees = self.path.join(TREES);
            make_directory(&trees).map_err(|e| self.failed("mkdir", &e, &trees))?;
            let gone = trees.join(format!("{GONE}{}", fresh_id()));
            fs::rename(&link, &gone).map_err(|e| self.failed("rename", &e, &link))?;
        }
        drop(lock);
        self.sweep()
    }

    /// Removes every tree that has no name, is not being made, and has no cell.
    ///
    /// # Errors
    /// The store cannot be read or written.
    pub fn sweep(&self) -> Result<()> {
        let trees = self.path.join(TREES);
        if fs::symlink_metadata(&trees).is_err_and(|e| is_absent(&e)) {
            return Ok(());
        }
        let lock = self.lock()?;
        let named = self.named_trees()?;
        let mut gone = Vec::new();
        for tree in entries(&trees).map_err(|e| self.failed("readdir", &e, &trees))? {
            if named.contains(&tree) {
                continue;
            }
            let path = trees.join(&tree);
            let Some(held) = try_lock(&path, FlockArg::LockExclusiveNonblock)
                .map_err(|e| self.failed("flock", &e, &path))?
            else {
                continue;
            };
            // A name of its own says that this is not being made.
            let name = OsString::from(format!("{GONE}{}", fresh_id()));
            let to = trees.join(&name);
            fs::rename(&path, &to).map_err(|e| self.failed("rename", &e, &path))?;
            gone.push((name, held));
        }
        drop(lock);
        let dir = File::open(&trees).map_err(|e| self.failed("open", &e, &trees))?;
        for (name, held) in gone {
            let path = trees.join(&name);
            let name = CString::new(name.into_vec()).unwrap_or_default();
            erase(&dir, &name).map_err(|e| self.failed("unlink", &e.into(), &path))?;
            drop(held);
        }
        Ok(())
    }

    /// Gives the tree `.trees/tree` the name `name`, in one step, whatever had
    /// it before.
    pub(in crate::rootfs) fn name_tree(&self, name: &str, tree: &str) -> Result<()> {
        let _lock = self.lock()?;
        let link = self.path.join(name);
        // A tree that was put there by hand: a link cannot take its place.
        if fs::symlink_metadata(&link).is_ok_and(|found| found.is_dir()) {
            let gone = self.path.join(TREES).join(format!("{GONE}{}", fresh_id()));
            fs::rename(&link, &gone).map_err(|e| self.failed("rename", &e, &link))?;
        }
        let fresh = self.path.join(format!(".{tree}"));
        let target = Path::new(TREES).join(tree);
        std::os::unix::fs::symlink(target, &fresh)
            .map_err(|e| self.failed("symlink", &e, &fresh))?;
        fs::rename(&fresh, &link).map_err(|e| {
            let _ = fs::remove_file(&fresh);
            self.failed("rename", &e, &link)
        })?;
        File::open(&self.path)
            .and_then(|dir| dir.sync_all())
            .map_err(|e| self.failed("fsync", &e, &self.path))
    }

    /// The names in `.trees` that a link of the store leads to.
    fn named_trees(&self) -> Result<BTreeSet<OsString>> {
        let names = entries(&self.path).map_err(|e| self.failed("readdir", &e, &self.path))?;
        let targets = names
            .iter()
            .filter(|name| name.to_str().is_some_and(|name| check_name(name).is_ok()))
            .filter_map(|name| fs::read_link(self.path.join(name)).ok());
        let inside = targets.filter_map(|target| {
            let tree = target.strip_prefix(TREES).ok()?;
            Some(tree.as_os_str().to_owned())
        });
        Ok(inside.collect())
    }

    /// Whether a draft of this name is held by a process. With [`Store::lock`].
    fn is_being_made(&self, name: &str) -> Result<bool> {
        let trees = self.path.join(TREES);
        let named = self.named_trees()?;
        for tree in entries(&trees).map_err(|e| self.failed("readdir", &e, &trees))? {
            let is_of_name = tree
                .to_str()
                .and_then(|tree| tree.rsplit_once('.'))
                .is_some_and(|(of, _)| of == name);
            if !is_of_name || named.contains(&tree) {
                continue;
            }
            let path = trees.join(&tree);
            // A cell that still runs on an old tree shares its lock.
            if try_lock(&path, FlockArg::LockSharedNonblock)
                .map_err(|e| self.failed("flock", &e, &path))?
                .is_none()
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Waits for the store's own lock, which nobody holds for long.
    fn lock(&self) -> Result<Flock<File>> {
        let path = self.path.join(LOCK);
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o644)
            .open(&path)
            .map_err(|e| self.failed("open", &e, &path))?;
        flock(file, FlockArg::LockExclusive).map_err(|e| self.failed("flock", &e.into(), &path))
    }

    fn not_here(&self, name: &str) -> SetupError {
        let error = SetupError::new(
            Step::Store,
            format!("there is no such rootfs in {}", self.path.display()),
        )
        .on(name);
        match &self.behind {
            Some(system) if fs::symlink_metadata(system.join(name)).is_ok() => error.hint(format!(
                "the one in {0} is the administrator's: `cellblock rootfs remove --store {0} {name}`",
                system.display()
            )),
            _ => error.hint("`cellblock rootfs list` says what there is"),
        }
    }
}

fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(path)
}
