//! A tree in the making.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::errno::Errno;
use nix::fcntl::Flock;

use super::digest;
use super::manifest::{FORMAT, Manifest};
use super::settle::settle;
use super::store::{Store, create_locked, fresh_id};
use super::{FILE, LISTING};
use record::error::{Result, SetupError, Step};
use sys::tree::erase;

/// A tree that is being made, held by a lock. Dropped without
/// [`Draft::commit`], it is removed; left behind by a process that was killed,
/// the next call that changes the store removes it.
#[derive(Debug)]
pub struct Draft {
    store: Store,
    name: String,
    /// The tree's name among the trees.
    tree: String,
    path: PathBuf,
    is_named: bool,
    _held: Flock<File>,
}

impl Draft {
    pub(super) fn create(store: &Store, name: &str, trees: &Path) -> Result<Self> {
        let tree = format!("{name}.{}", fresh_id());
        let path = trees.join(&tree);
        let held = create_locked(&path).map_err(|e| store.failed("mkdir", &e, &path))?;
        Ok(Self {
            store: store.clone(),
            name: name.to_owned(),
            tree,
            path,
            is_named: false,
            _held: held,
        })
    }

    /// The directory to fill: the top of the rootfs.
    pub fn tree(&self) -> &Path {
        &self.path
    }

    /// The name that it will get.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Gives the tree its name, in one step and for good: modes and owners are
    /// settled, everything is listed, digested and on the disk before. What had
    /// the name stays for the cells that run on it, and is then removed.
    ///
    /// Of `manifest`, recipe, base, interpreters and packages count; the rest is
    /// filled in, and the whole returned.
    ///
    /// # Errors
    /// What could not be done; the draft is removed then.
    pub fn commit(mut self, manifest: Manifest) -> Result<Manifest> {
        // A builder may have shut it.
        fs::set_permissions(&self.path, fs::Permissions::from_mode(0o700))
            .map_err(|e| self.store.failed("chmod", &e, &self.path))?;
        settle(&self.path).map_err(|e| self.complete(e))?;
        self.forget_description()?;
        let listing = digest::list(&self.path).map_err(|e| self.complete(e))?;
        let manifest = Manifest {
            format: FORMAT.to_owned(),
            name: self.name.clone(),
            digest: listing.digest(),
            size_bytes: listing.size(),
            files: listing.files(),
            built: built(std::env::var("SOURCE_DATE_EPOCH").ok().as_deref())?,
            ..manifest
        };
        self.write(LISTING, &listing.to_text())?;
        self.write(FILE, manifest.to_text()?.as_bytes())?;
        self.sync()?;
        self.store.name_tree(&self.name, &self.tree)?;
        self.is_named = true;
        let store = self.store.clone();
        drop(self);
        // The new tree stands; what is left of the old one is no failure of this.
        let _ = store.sweep();
        Ok(manifest)
    }

    /// Removes what a source or a base has in the place of manifest and listing:
    /// that would describe another tree.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn forget_description(&self) -> Result<()> {
        [FILE, LISTING]
            .into_iter()
            .try_for_each(|name| self.make_way(name))
    }

    fn make_way(&self, name: &str) -> Result<()> {
        let path = self.path.join(name);
        let failed = |call: &str, e: &io::Error| self.store.failed(call, e, &path);
        match fs::symlink_metadata(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(failed("stat", &e)),
            Ok(found) if found.is_dir() => {
                let top = File::open(&self.path).map_err(|e| failed("open", &e))?;
                let name = CString::new(name).unwrap_or_default();
                erase(&top, &name).map_err(|e| failed("unlink", &e.into()))
            }
            Ok(_) => fs::remove_file(&path).map_err(|e| failed("unlink", &e)),
        }
    }

    fn write(&self, name: &str, content: &[u8]) -> Result<()> {
        let path = self.path.join(name);
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o644)
            .open(&path)
            .and_then(|mut file| file.write_all(content))
            .map_err(|e| self.store.failed("write", &e, &path))
    }

    /// All of its file system at once: to wait for each of some ten thousand
    /// files takes minutes.
    fn sync(&self) -> Result<()> {
        let failed = |e: &io::Error| self.store.failed("syncfs", e, &self.path);
        let top = File::open(&self.path).map_err(|e| failed(&e))?;
        sys::process::sync_file_system(&top).map_err(|e| failed(&e.into()))
    }

    /// An error beneath the tree, with the tree's own hints.
    fn complete(&self, error: SetupError) -> SetupError {
        match error.errno.map(Errno::from_raw) {
            Some(errno) if error.hint.is_none() => SetupError {
                hint: self.store.failed("", &errno.into(), &self.path).hint,
                ..error
            },
            _ => error,
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if self.is_named {
            return;
        }
        let Some(trees) = self.path.parent() else {
            return;
        };
        // What cannot be removed now, the next sweep finds.
        if let (Ok(trees), Ok(tree)) = (File::open(trees), CString::new(self.tree.as_str())) {
            let _ = erase(&trees, &tree);
        }
    }
}

/// When a tree counts as built: the time that `SOURCE_DATE_EPOCH` says, or now.
fn built(epoch: Option<&str>) -> Result<String> {
    let time = match epoch {
        None => SystemTime::now(),
        Some(text) => {
            let seconds = text.parse().ok().map(Duration::from_secs);
            // The last second of the year 9999: RFC 3339 ends there.
            let seconds = seconds.filter(|seconds| seconds.as_secs() <= 253_402_300_799);
            let time = seconds.map(|seconds| SystemTime::UNIX_EPOCH + seconds);
            time.ok_or_else(|| {
                SetupError::new(Step::Store, "is not a number of seconds since 1970")
                    .on(format!("SOURCE_DATE_EPOCH={text}"))
                    .hint("unset it to use the present time")
            })?
        }
    };
    Ok(humantime::format_rfc3339_seconds(time).to_string())
}
