//! Where checkpoints are while the server lives.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::fcntl::{Flock, OFlag, open};
use nix::sys::stat::Mode;
use nix::unistd::{Uid, mkdtemp};
use record::error::{Result, SetupError, Step};

/// How the names of servers' directories begin.
const NAME: &str = "cellblock-checkpoints-";

/// How often a new directory is tried to be locked.
const ATTEMPTS: usize = 16;

/// A new directory of the server's own (mode 0700), which goes with this value.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    /// The directory, locked: what a server that was killed left behind is not.
    _lock: Flock<File>,
    /// Removes what is in it: large trees take time, and the server's loop has none.
    worker: Option<(Sender<PathBuf>, JoinHandle<()>)>,
}

impl Store {
    /// Makes the directory in `parent`.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create(parent: &Path) -> Result<Self> {
        let template = parent.join(format!("{NAME}XXXXXX"));
        for _ in 0..ATTEMPTS {
            let path = mkdtemp(&template).map_err(|errno| {
                SetupError::os(Step::Outputs, "mkdtemp", errno).on(template.display())
            })?;
            // A server that starts at this moment may have locked it to remove it.
            if let Some(lock) = lock_left(&path) {
                return Ok(Self {
                    path,
                    _lock: lock,
                    worker: None,
                });
            }
            let _ = std::fs::remove_dir(&path);
        }
        let message = "the new directory cannot be locked";
        Err(SetupError::new(Step::Outputs, message).on(template.display()))
    }

    /// Removes before long what servers of this user have left beside it, because they
    /// were killed. Nobody waits for it: what is left at the server's end is for the next.
    pub(crate) fn sweep(&self) {
        let Some(entries) = self.path.parent().map(std::fs::read_dir) else {
            return;
        };
        let is_store = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().as_bytes();
            name.starts_with(NAME.as_bytes()) && *path != self.path
        };
        let paths = entries.into_iter().flatten().flatten();
        let paths = paths.map(|entry| entry.path()).filter(is_store);
        let others: Vec<PathBuf> = paths.collect();
        if others.is_empty() {
            return;
        }
        let work = move || others.iter().for_each(|path| erase_left(path));
        // Without a thread, they stay until the next server.
        let _ = thread::Builder::new()
            .name("sweeper".to_owned())
            .spawn(work);
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes a directory in it before long. It is not an error if it does not exist.
    pub(crate) fn remove(&mut self, directory: PathBuf) {
        // Not before it is needed: by then, signals are blocked.
        if self.worker.is_none() {
            let (sender, waiting) = mpsc::channel::<PathBuf>();
            let work = move || waiting.iter().for_each(|path| erase(&path));
            let begun = thread::Builder::new()
                .name("remover".to_owned())
                .spawn(work);
            self.worker = begun.ok().map(|thread| (sender, thread));
        }
        match &self.worker {
            Some((sender, _)) => drop(sender.send(directory)),
            None => erase(&directory),
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.worker.take() {
            drop(sender);
            let _ = thread.join();
        }
        erase(&self.path);
    }
}

/// Removes a directory that no server has any more.
fn erase_left(directory: &Path) {
    // Held meanwhile, so that no server takes the directory for its own.
    if let Some(_lock) = lock_left(directory) {
        erase(directory);
    }
}

/// Locks a directory of this user's that no server has locked.
fn lock_left(path: &Path) -> Option<Flock<File>> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let directory = File::from(open(path, flags, Mode::empty()).ok()?);
    let found = directory.metadata().ok()?;
    if found.uid() != Uid::effective().as_raw() {
        return None;
    }
    let lock = sys::flock_within(directory, Some(Duration::ZERO)).ok()?;
    // It may have been removed just before.
    let there = std::fs::symlink_metadata(path).ok()?;
    ((there.dev(), there.ino()) == (found.dev(), found.ino())).then_some(lock)
}

/// Removes a directory with all that is in it, whatever its modes. What cannot be removed
/// stays: nobody waits for it.
fn erase(directory: &Path) {
    let (Some(parent), Some(name)) = (directory.parent(), directory.file_name()) else {
        return;
    };
    let name = std::ffi::CString::new(name.as_bytes());
    if let (Ok(parent), Ok(name)) = (File::open(parent), name) {
        let _ = sys::tree::erase(parent.as_fd(), &name);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::skip::skip;

    #[test]
    fn the_directory_is_private_and_goes_with_all_that_is_in_it() {
        let base = tempfile::tempdir().unwrap();
        let mut store = Store::create(base.path()).unwrap();
        let path = store.path().to_owned();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        for name in ["1", "2"] {
            let locked = path.join(name).join("workspace/locked");
            fs::create_dir_all(&locked).unwrap();
            fs::write(locked.join("file"), "content").unwrap();
            fs::set_permissions(&locked, fs::Permissions::from_mode(0o500)).unwrap();
        }
        store.remove(path.join("1"));
        store.remove(path.join("3"));
        drop(store);
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
    }

    #[test]
    fn only_what_servers_have_left_is_removed() {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        let alive = Store::create(base.path()).unwrap();
        let left = at("cellblock-checkpoints-left");
        fs::create_dir_all(left.join("1/workspace")).unwrap();
        fs::create_dir(at("other")).unwrap();
        std::os::unix::fs::symlink(at("other"), at("cellblock-checkpoints-link")).unwrap();
        let store = Store::create(base.path()).unwrap();
        store.sweep();
        // Nobody waits for the sweep.
        let end = std::time::Instant::now() + Duration::from_secs(60);
        while left.exists() {
            assert!(std::time::Instant::now() < end, "it is still there");
            thread::sleep(Duration::from_millis(1));
        }
        let path = store.path().to_owned();
        drop(store);
        assert!(!path.exists());
        // A server that begins may have locked it since it was listed.
        fs::create_dir(&left).unwrap();
        let lock = lock_left(&left).unwrap();
        erase_left(&left);
        assert!(left.exists());
        drop(lock);
        assert!(alive.path().exists() && at("other").exists());
        assert!(fs::symlink_metadata(at("cellblock-checkpoints-link")).is_ok());
    }

    #[test]
    fn what_another_user_has_left_stays() {
        if !Uid::effective().is_root() {
            return skip("only root can leave what is another user's");
        }
        let base = tempfile::tempdir().unwrap();
        let left = base.path().join("cellblock-checkpoints-left");
        fs::create_dir(&left).unwrap();
        nix::unistd::chown(&left, Some(Uid::from_raw(12345)), None).unwrap();
        erase_left(&left);
        assert!(left.exists());
        // The same directory goes once it is this user's.
        nix::unistd::chown(&left, Some(Uid::effective()), None).unwrap();
        erase_left(&left);
        assert!(!left.exists());
    }
}
