//! Fetched files by their content's digest: `$XDG_CACHE_HOME/cellblock`.
//!
//! A file gets its name only after its digest has been checked, so a named file is
//! complete. An interrupted build finds what it had fetched, and several builds
//! share the cache.
//!
//! ```text
//! blobs/ab/ab12…   files by SHA-256
//! partial/ab12…    downloads that are not complete, locked while one runs
//! apt/…            package lists by suite and architecture, locked while in use
//! scratch/         directories of running builds
//! ```

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use nix::fcntl::Flock;
use sha2::{Digest as _, Sha256};

use super::Download;
use crate::errors::{failed, store_error};
use crate::files::{give_to, lock_directory, make_directory, set_mode};
use record::bytes::hex;
use record::error::{Result, SetupError};

/// The cache's directory.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    root: PathBuf,
    /// The uid outside of cells that download.
    cell_uid: u32,
}

impl Cache {
    /// The caller's cache, made when it is missing.
    ///
    /// # Errors
    /// The environment names no place for it, or it cannot be made.
    pub(crate) fn open(cell_uid: u32) -> Result<Self> {
        let absolute = |name: &str| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
        let base = base.ok_or_else(|| {
            store_error("there is no directory for fetched files")
                .hint("set XDG_CACHE_HOME or HOME to an absolute path")
        })?;
        Self::at(&base.join("cellblock"), cell_uid)
    }

    fn at(root: &Path, cell_uid: u32) -> Result<Self> {
        for name in ["blobs", "partial", "apt"] {
            let path = root.join(name);
            make_directory(&path)?;
            // Cells that root starts run as another uid.
            set_mode(&path, 0o755)?;
        }
        Ok(Self {
            root: root.to_owned(),
            cell_uid,
        })
    }

    pub(crate) fn scratch(&self) -> PathBuf {
        self.root.join("scratch")
    }

    fn blob(&self, sha256: &str) -> PathBuf {
        let (folder, _) = sha256.split_at_checked(2).unwrap_or(("", ""));
        self.root.join("blobs").join(folder).join(sha256)
    }

    /// The file with this digest, if the cache has it.
    pub(crate) fn find(&self, sha256: &str) -> Option<PathBuf> {
        Some(self.blob(sha256)).filter(|path| path.is_file())
    }

    /// The file with this digest, which must have been fetched.
    ///
    /// # Errors
    /// The cache does not have it.
    pub(crate) fn require(&self, sha256: &str) -> Result<PathBuf> {
        self.find(sha256).ok_or_else(|| {
            let path = self.blob(sha256);
            failed("open", &path)(io::Error::from_raw_os_error(libc::ENOENT))
        })
    }

    /// Fetches a file that the cache lacks: `fetch` leaves it in the directory
    /// that it is given, as `file`. Waits while another build fetches the same.
    ///
    /// # Errors
    /// Those of `fetch`; or the file has another digest.
    pub(crate) fn fetch<E: From<SetupError>>(
        &self,
        download: &Download,
        fetch: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<(), E> {
        let partial = self.root.join("partial").join(&download.sha256);
        let _lock = lock_directory(&partial)?;
        if self.find(&download.sha256).is_some() {
            let _ = fs::remove_dir(&partial);
            return Ok(());
        }
        give_to(self.cell_uid, &partial)?;
        fetch(&partial)?;
        let kept = self.keep(&partial.join("file"), download);
        // Otherwise the next attempt would continue a wrong file.
        let removed = fs::remove_dir_all(&partial).map_err(failed("rmdir", &partial));
        Ok(kept.and(removed)?)
    }

    /// Moves a file that a cell wrote into the cache, if it has the digest.
    pub(crate) fn keep(&self, file: &Path, download: &Download) -> Result<()> {
        let Download { name, sha256, .. } = download;
        let found = digest(file)?;
        if found != *sha256 {
            return Err(
                store_error(format!("has SHA-256 {found}, but should have {sha256}"))
                    .on(name)
                    .hint(
                        "the mirror or a proxy sent another file: try again, or use another mirror",
                    ),
            );
        }
        let target = self.blob(sha256);
        if let Some(folder) = target.parent() {
            make_directory(folder)?;
        }
        set_mode(file, 0o644)?;
        fs::rename(file, &target).map_err(failed("rename", &target))
    }

    /// The directory that a tool keeps its own files in from one build to the
    /// next, locked until the lock is dropped.
    pub(crate) fn tool_directory(&self, name: &str) -> Result<(PathBuf, Flock<File>)> {
        let path = self.root.join("apt").join(name);
        let lock = lock_directory(&path)?;
        Ok((path, lock))
    }
}

/// The SHA-256 of a regular file that a cell wrote, in hexadecimal.
///
/// # Errors
/// It is not a regular file, or cannot be read.
fn digest(path: &Path) -> Result<String> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let mut file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)
        .map_err(failed("open", path))?;
    if !file.metadata().map_err(failed("fstat", path))?.is_file() {
        return Err(store_error("not a regular file").on(path.display()));
    }
    let mut hasher = Sha256::new();
    io::copy(&mut file, &mut hasher).map_err(failed("read", path))?;
    Ok(hex(&hasher.finalize()))
}

/// The SHA-256 of some bytes, in hexadecimal.
pub(crate) fn digest_of(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache() -> (tempfile::TempDir, Cache) {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::at(directory.path(), nix::unistd::geteuid().as_raw()).unwrap();
        (directory, cache)
    }

    fn download(sha256: &str) -> Download {
        Download {
            name: "x.deb".to_owned(),
            sha256: sha256.to_owned(),
            size: 0,
        }
    }

    #[test]
    fn only_a_file_with_the_digest_is_kept() {
        let (_directory, cache) = cache();
        let sha256 = digest_of(b"content");
        let wrong = cache.fetch(&download(&sha256), |path| {
            fs::write(path.join("file"), "contend").map_err(failed("write", path))
        });
        assert!(wrong.unwrap_err().to_string().contains(&sha256));
        assert_eq!(cache.find(&sha256), None);
        cache
            .fetch(&download(&sha256), |path| {
                assert!(!path.join("file").exists(), "a wrong file is not continued");
                fs::write(path.join("file"), "content").map_err(failed("write", path))
            })
            .unwrap();
        assert_eq!(fs::read(cache.find(&sha256).unwrap()).unwrap(), b"content");
        let again = cache.fetch(&download(&sha256), |_| -> Result<()> {
            panic!("the cache has it")
        });
        again.unwrap();
    }

    #[test]
    fn an_interrupted_fetch_continues() {
        let (_directory, cache) = cache();
        let sha256 = digest_of(b"content");
        let lost = cache.fetch(&download(&sha256), |path| {
            fs::write(path.join("file"), "cont").map_err(failed("write", path))?;
            Err(store_error("the network is gone"))
        });
        lost.unwrap_err();
        cache
            .fetch(&download(&sha256), |path| {
                assert_eq!(fs::read(path.join("file")).unwrap(), b"cont");
                fs::write(path.join("file"), "content").map_err(failed("write", path))
            })
            .unwrap();
        assert!(cache.find(&sha256).is_some());
    }

    #[test]
    fn a_link_that_a_cell_left_is_not_followed() {
        let (directory, cache) = cache();
        let secret = directory.path().join("secret");
        fs::write(&secret, "content").unwrap();
        let sha256 = digest_of(b"content");
        let linked = cache.fetch(&download(&sha256), |path| {
            std::os::unix::fs::symlink(&secret, path.join("file")).map_err(failed("link", path))
        });
        assert!(linked.is_err());
        assert_eq!(cache.find(&sha256), None);
    }
}
