//! Where checkpoints are while the server lives.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use nix::unistd::mkdtemp;
use record::error::{Result, SetupError, Step};

/// A new directory of the server's own (mode 0700), which goes with this value.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    /// Removes what is in it: large trees take time, and the server's loop has none.
    worker: Option<(Sender<PathBuf>, JoinHandle<()>)>,
}

impl Store {
    /// Makes the directory in `parent`.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create(parent: &Path) -> Result<Self> {
        let template = parent.join("cellblock-checkpoints-XXXXXX");
        let path = mkdtemp(&template).map_err(|errno| {
            SetupError::os(Step::Outputs, "mkdtemp", errno).on(template.display())
        })?;
        Ok(Self { path, worker: None })
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
            let work = move || waiting.iter().for_each(|directory| erase(&directory));
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
}
