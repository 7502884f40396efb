//! What the steps of one build share.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use nix::sys::stat::SFlag;

use super::adopt::adopt;
use crate::errors::failed;
use crate::files::{give_to, lock_directory, make_directory, make_empty, set_mode, walk};
use crate::job::Job;
use crate::packages::Cache;
use crate::store::{Draft, fresh_id};
use crate::tool::{Tool, cell_uid};
use archive::Budget;
use plan::rootfs::Manifest;
use record::error::{Result, Step};

/// The directories and the state of one build.
#[derive(Debug)]
pub(crate) struct BuildContext {
    pub(crate) job: Job,
    pub(crate) cache: Cache,
    scratch: Scratch,
    /// The uid outside of programs in cells.
    cell_uid: u32,
    /// Sizes of files by SHA-256, from the recipe's lock file: pip reports none.
    pub(crate) known_sizes: BTreeMap<String, u64>,
    /// Package lists that this build has updated.
    pub(crate) updated_lists: BTreeSet<String>,
}

impl BuildContext {
    /// # Errors
    /// There is no directory for the cache, or this host cannot run cells.
    pub(crate) fn open(is_quiet: bool) -> Result<Self> {
        let job = Job::begin(is_quiet)?;
        let cell_uid = cell_uid()?;
        let cache = Cache::open(cell_uid)?;
        Ok(Self {
            job,
            scratch: Scratch::new(&cache.scratch())?,
            cache,
            cell_uid,
            known_sizes: BTreeMap::new(),
            updated_lists: BTreeSet::new(),
        })
    }

    /// An empty directory that cells may write to, in place of the previous one of
    /// this name.
    pub(crate) fn directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.scratch.path.join(name);
        make_empty(&path)?;
        give_to(self.cell_uid, &path)?;
        Ok(path)
    }

    /// A directory with these files, which cells may read.
    pub(crate) fn directory_with<'a, P: AsRef<Path>>(
        &self,
        name: &str,
        files: impl IntoIterator<Item = (P, &'a [u8])>,
    ) -> Result<PathBuf> {
        let directory = self.directory(name)?;
        for (path, content) in files {
            let path = directory.join(path);
            make_directory(path.parent().unwrap_or(&directory))?;
            fs::write(&path, content).map_err(failed("write", &path))?;
            set_mode(&path, 0o755)?;
        }
        self.give_all(&directory)?;
        Ok(directory)
    }

    /// Gives a directory and everything in it to programs in cells.
    pub(crate) fn give_all(&self, directory: &Path) -> Result<()> {
        give_to(self.cell_uid, directory)?;
        walk(directory, &mut |path, kind| match kind {
            SFlag::S_IFDIR | SFlag::S_IFREG => give_to(self.cell_uid, &directory.join(path)),
            _ => Ok(()),
        })
    }

    /// Runs a tool that writes to an empty directory, and moves its files into
    /// the tree. Returns its standard output.
    pub(crate) fn install(&self, tree: &Path, tool: Tool) -> Result<String> {
        self.install_from(&self.directory("out")?, tree, tool)
    }

    /// The same with a directory for the output that has something in it already.
    pub(crate) fn install_from(&self, out: &Path, tree: &Path, tool: Tool) -> Result<String> {
        let printed = tool.out(out).run()?;
        adopt(out, tree)?;
        self.job.check()?;
        Ok(printed)
    }

    /// Gives a finished draft its name.
    pub(crate) fn commit(&self, draft: Draft, manifest: Manifest) -> Result<Manifest> {
        self.job.step("checking and storing");
        self.job.check()?;
        draft.commit(manifest, &Budget::new(Step::Store, u64::MAX))
    }

    /// Writes a file of cellblock's own to the tree.
    pub(crate) fn put(&self, tree: &Path, path: &str, content: &str) -> Result<()> {
        let out = self.directory("out")?;
        let file = out.join(path);
        make_directory(file.parent().unwrap_or(&out))?;
        fs::write(&file, content).map_err(failed("write", &file))?;
        adopt(&out, tree)
    }
}

/// A directory that is removed with its content when this is dropped.
#[derive(Debug)]
struct Scratch {
    path: PathBuf,
    /// Held while the directory is in use.
    _lock: Flock<File>,
}

impl Scratch {
    /// Makes a directory in `parent`, and removes those of builds that were killed.
    fn new(parent: &Path) -> Result<Self> {
        make_directory(parent)?;
        remove_unlocked(parent);
        let path = parent.join(fresh_id());
        let lock = lock_directory(&path)?;
        set_mode(&path, 0o755)?;
        Ok(Self { path, _lock: lock })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// The kernel releases the lock of a build that was killed.
fn remove_unlocked(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if let Ok(file) = File::open(entry.path())
            && let Ok(_lock) = Flock::lock(file, FlockArg::LockExclusiveNonblock)
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
