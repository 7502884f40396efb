//! Locks (flock(2)) on the trees of a store: who needs one holds its lock.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use super::is_absent;

/// Keeps a tree from being removed for as long as it exists.
#[derive(Debug)]
pub struct Lease(Flock<File>);

impl Lease {
    /// Waits for whoever is making or removing the tree at `path`.
    pub(super) fn take(path: &Path) -> io::Result<Self> {
        let file = open_directory(path)?;
        Ok(Self(flock(file, FlockArg::LockShared)?))
    }

    /// Whether `link` leads to the tree.
    pub(super) fn is_of(&self, link: &Path) -> bool {
        let identity = |found: fs::Metadata| (found.dev(), found.ino());
        match (self.0.metadata(), fs::metadata(link)) {
            (Ok(own), Ok(found)) => identity(own) == identity(found),
            _ => false,
        }
    }
}

/// A new exclusively locked directory, which no sweep takes for a left-over one:
/// made while the store is locked.
pub(in crate::rootfs) fn create_locked(path: &Path) -> io::Result<Flock<File>> {
    // Nobody else comes in before owners and modes are settled.
    DirBuilder::new().mode(0o700).create(path)?;
    Ok(flock(
        open_directory(path)?,
        FlockArg::LockExclusiveNonblock,
    )?)
}

/// `None` when somebody else's lock is in the way, or the directory is gone.
pub(super) fn try_lock(path: &Path, how: FlockArg) -> io::Result<Option<Flock<File>>> {
    let file = match open_directory(path) {
        Err(e) if is_absent(&e) => return Ok(None),
        // A draft to which nobody may enter is no one's.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
            open_directory(path)?
        }
        other => other?,
    };
    match flock(file, how) {
        Ok(lock) => Ok(Some(lock)),
        Err(Errno::EWOULDBLOCK) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

pub(super) fn flock(file: File, how: FlockArg) -> nix::Result<Flock<File>> {
    let mut file = file;
    loop {
        match Flock::lock(file, how) {
            Ok(lock) => return Ok(lock),
            Err((again, Errno::EINTR)) => file = again,
            Err((_, errno)) => return Err(errno),
        }
    }
}

fn open_directory(path: &Path) -> io::Result<File> {
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}
