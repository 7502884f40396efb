//! A tree in the making.

use std::ffi::CString;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::fcntl::{Flock, FlockArg};

use super::settle::settle;
use super::{fresh_id, name_tree, open_directory, sweep};
use crate::errors::{failed, store_error};
use crate::files::set_mode;
use crate::listing::{self, Listing};
use archive::Budget;
use plan::rootfs::{FORMAT, LISTING, MANIFEST, Manifest, Store};
use record::error::Result;
use sys::tree::erase;

/// A tree that is being made, held by a lock. Dropped without [`Draft::commit`], it
/// is deleted; if the process is killed, the next call that changes the store
/// deletes it.
#[derive(Debug)]
pub(crate) struct Draft {
    store: Store,
    name: String,
    /// The tree's name among the trees.
    tree: String,
    path: PathBuf,
    is_named: bool,
    _lock: Flock<File>,
}

impl Draft {
    /// Makes an empty tree. The caller holds the store's lock, so that no other
    /// process takes the tree for an unused one before it is locked.
    pub(super) fn create(store: &Store, name: &str, trees: &Path) -> Result<Self> {
        let tree = format!("{name}.{}", fresh_id());
        let path = trees.join(&tree);
        // Other users get access after owners and modes are settled.
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(failed("mkdir", &path))?;
        let directory = open_directory(&path).map_err(failed("open", &path))?;
        let lock = sys::flock(directory, FlockArg::LockExclusiveNonblock);
        Ok(Self {
            _lock: lock.map_err(failed("flock", &path))?,
            store: store.clone(),
            name: name.to_owned(),
            tree,
            path,
            is_named: false,
        })
    }

    /// The directory to fill: the top of the rootfs.
    pub(crate) fn tree(&self) -> &Path {
        &self.path
    }

    /// Settles, lists and syncs the tree, and then gives it its name in one step.
    /// Cells keep the tree that had the name before; it is deleted once they end.
    ///
    /// Of `manifest`, the caller sets recipe, base, interpreters and packages; the
    /// complete one is returned. The listing takes of `budget`.
    ///
    /// # Errors
    /// A step fails; the draft is deleted then.
    pub(crate) fn commit(mut self, manifest: Manifest, budget: &Budget) -> Result<Manifest> {
        // A tool may have shut the top.
        set_mode(&self.path, 0o700)?;
        settle(&self.path)?;
        self.remove_description()?;
        let listing = listing::of_tree(&self.path)?;
        let manifest = Manifest {
            format: FORMAT.to_owned(),
            name: self.name.clone(),
            digest: self.write_listing(&listing, budget)?,
            size_bytes: listing.size(),
            files: listing.files(),
            built: built(std::env::var("SOURCE_DATE_EPOCH").ok().as_deref())?,
            ..manifest
        };
        self.write(MANIFEST, manifest.to_text()?.as_bytes())?;
        self.sync()?;
        name_tree(&self.store, &self.name, &self.tree)?;
        self.is_named = true;
        let store = self.store.clone();
        drop(self);
        // The new tree is in place, whether or not the old one can be deleted.
        let _ = sweep(&store);
        Ok(manifest)
    }

    /// Removes the manifest and listing of a source or base: they describe another
    /// tree.
    ///
    /// # Errors
    /// They cannot be removed.
    pub(crate) fn remove_description(&self) -> Result<()> {
        let top = File::open(&self.path).map_err(failed("open", &self.path))?;
        for name in [MANIFEST, LISTING] {
            let path = self.path.join(name);
            let name = CString::new(name).unwrap_or_default();
            erase(&top, &name).map_err(failed("unlink", &path))?;
        }
        Ok(())
    }

    fn write(&self, name: &str, content: &[u8]) -> Result<()> {
        let path = self.path.join(name);
        let mut file = self.begin_file(name)?;
        file.write_all(content).map_err(failed("write", &path))
    }

    /// Writes the listing, and returns its digest.
    fn write_listing(&self, listing: &Listing, budget: &Budget) -> Result<String> {
        let path = self.path.join(LISTING);
        let mut file = BufWriter::new(self.begin_file(LISTING)?);
        let digest = listing.each_line(&mut |line| {
            budget.take_disk(line.len() as u64)?;
            file.write_all(line).map_err(failed("write", &path))
        })?;
        file.flush().map_err(failed("write", &path))?;
        Ok(digest)
    }

    fn begin_file(&self, name: &str) -> Result<File> {
        let path = self.path.join(name);
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o644).open(&path);
        file.map_err(failed("open", &path))
    }

    /// Syncs the whole file system: to wait for each of ten thousand files takes
    /// minutes.
    fn sync(&self) -> Result<()> {
        let top = File::open(&self.path).map_err(failed("open", &self.path))?;
        sys::process::sync_file_system(&top).map_err(failed("syncfs", &self.path))
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
        // The next sweep deletes what cannot be deleted now.
        if let (Ok(trees), Ok(tree)) = (File::open(trees), CString::new(self.tree.as_str())) {
            let _ = erase(&trees, &tree);
        }
    }
}

/// The time of the build: `SOURCE_DATE_EPOCH`, or now.
fn built(epoch: Option<&str>) -> Result<String> {
    // The last second of the year 9999, where RFC 3339 ends.
    const LAST: u64 = 253_402_300_799;
    let time = match epoch {
        None => SystemTime::now(),
        Some(text) => {
            let seconds = text.parse().ok().filter(|seconds| *seconds <= LAST);
            let seconds = seconds.ok_or_else(|| {
                store_error("is not a number of seconds since 1970")
                    .on(format!("SOURCE_DATE_EPOCH={text}"))
                    .hint("unset it to use the present time")
            })?;
            SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
        }
    };
    Ok(humantime::format_rfc3339_seconds(time).to_string())
}
