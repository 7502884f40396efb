//! Directories for one build: gone with it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::geteuid;

use record::error::{Result, SetupError, Step};

/// A directory that is removed with all that is in it when this is dropped.
#[derive(Debug)]
pub(super) struct Scratch {
    path: PathBuf,
    /// Locked for as long as the directory is in use.
    _lock: Flock<File>,
}

static COUNT: AtomicU32 = AtomicU32::new(0);

impl Scratch {
    /// Makes a directory in `parent`, and removes those there that builds left
    /// which were killed.
    ///
    /// # Errors
    /// What cannot be made, by its path.
    pub(super) fn new(parent: &Path) -> Result<Self> {
        make_directory(parent)?;
        sweep(parent);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("{}-{count}", std::process::id()));
        // One of a killed process that had the same number.
        let _ = fs::remove_dir_all(&path);
        fs::DirBuilder::new()
            .mode(0o755)
            .create(&path)
            .map_err(failed("mkdir", &path))?;
        let lock = locked(&path)?;
        Ok(Self { path, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// An empty directory in it that `writer`'s cells may write to.
    pub(super) fn writable(&self, name: &str, writer: Writer) -> Result<PathBuf> {
        let path = self.path.join(name);
        match fs::remove_dir_all(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                return Err(failed("rmdir", &path)(e));
            }
            _ => {}
        }
        fs::create_dir(&path).map_err(failed("mkdir", &path))?;
        writer.give(&path)?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Directories that nobody holds the lock of belong to no living build.
fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        let Ok(file) = File::open(entry.path()) else {
            continue;
        };
        if let Ok(_lock) = Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Whom a cell's files belong to, seen from outside.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writer(pub(super) u32);

impl Writer {
    /// Makes it the owner of `path`: for cells that root starts.
    pub(super) fn give(self, path: &Path) -> Result<()> {
        if geteuid().as_raw() == self.0 {
            return Ok(());
        }
        chown(path, Some(self.0), Some(self.0)).map_err(failed("chown", path))
    }
}

/// A directory, locked; waits for whoever has it locked.
pub(super) fn locked(path: &Path) -> Result<Flock<File>> {
    let mut file = File::open(path).map_err(failed("open", path))?;
    loop {
        match Flock::lock(file, FlockArg::LockExclusive) {
            Ok(lock) => return Ok(lock),
            Err((again, Errno::EINTR)) => file = again,
            Err((_, errno)) => return Err(failed("flock", path)(errno.into())),
        }
    }
}

/// Makes a directory and those above it.
pub(super) fn make_directory(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(failed("mkdir", path))
}

/// An I/O error of this module's kind, with its path.
pub(super) fn failed<'a>(call: &'a str, path: &'a Path) -> impl Fn(io::Error) -> SetupError + 'a {
    move |e| {
        let error = SetupError::io(Step::Store, call, &e).on(path.display());
        match e.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => error.hint(
                "free some space, or choose other places with --store and XDG_CACHE_HOME; what was fetched is kept, and the same command goes on from there",
            ),
            io::ErrorKind::PermissionDenied => error.hint(
                "choose places that you may write with --store and XDG_CACHE_HOME",
            ),
            _ => error,
        }
    }
}
