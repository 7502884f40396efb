//! What was fetched, by its content's digest: `$XDG_CACHE_HOME/cellblock`.
//!
//! A file gets its name here only once its digest has been checked, so what has
//! a name is whole. An interrupted build finds what it had already fetched, and
//! several builds share it.
//!
//! ```text
//! blobs/ab/ab12…   files by SHA-256
//! partial/ab12…    being fetched, locked by who does that; goes on where it ended
//! apt/…            package lists by suite and architecture, locked in use
//! scratch/         directories of builds that run
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::Flock;
use sha2::{Digest as _, Sha256};

use super::scratch::{Writer, failed, locked, make_directory};
use record::bytes::hex;
use record::error::{Result, SetupError, Step};

/// The cache's directory.
#[derive(Clone, Debug)]
pub(super) struct Cache {
    root: PathBuf,
}

impl Cache {
    /// The caller's cache, made when it is missing.
    ///
    /// # Errors
    /// There is no place for it, or it cannot be made.
    pub(super) fn open() -> Result<Self> {
        let absolute = |name: &str| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
        let base = base.ok_or_else(|| {
            SetupError::new(Step::Store, "there is no place for what is fetched")
                .hint("set XDG_CACHE_HOME or HOME to an absolute path")
        })?;
        Self::at(&base.join("cellblock"))
    }

    pub(super) fn at(root: &Path) -> Result<Self> {
        let cache = Self {
            root: root.to_owned(),
        };
        for name in ["blobs", "partial", "apt"] {
            let path = root.join(name);
            make_directory(&path)?;
            // For cells that root starts, which run as another uid.
            let mode = fs::Permissions::from_mode(0o755);
            fs::set_permissions(&path, mode).map_err(failed("chmod", &path))?;
        }
        Ok(cache)
    }

    pub(super) fn scratch(&self) -> PathBuf {
        self.root.join("scratch")
    }

    /// The directory with all files, for cells to read.
    pub(super) fn blobs(&self) -> PathBuf {
        self.root.join("blobs")
    }

    /// Where the file with this digest is, below [`Cache::blobs`].
    pub(super) fn relative(sha256: &str) -> PathBuf {
        let (folder, _) = sha256.split_at_checked(2).unwrap_or(("", ""));
        Path::new(folder).join(sha256)
    }

    /// The file with this digest, if it is here.
    pub(super) fn find(&self, sha256: &str) -> Option<PathBuf> {
        let path = self.blobs().join(Self::relative(sha256));
        path.is_file().then_some(path)
    }

    /// Fetches a file that is not here yet: `fetch` is to leave it in the
    /// directory that it is given, as `file`. When another build is at it,
    /// waits for that one.
    ///
    /// # Errors
    /// Those of `fetch`; or what it left is not what was asked for.
    pub(super) fn fetch(
        &self,
        sha256: &str,
        name: &str,
        writer: Writer,
        fetch: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<()> {
        if self.find(sha256).is_some() {
            return Ok(());
        }
        let partial = self.root.join("partial").join(sha256);
        let _lock = lock(&partial)?;
        if self.find(sha256).is_some() {
            let _ = fs::remove_dir(&partial);
            return Ok(());
        }
        writer.give(&partial)?;
        fetch(&partial)?;
        let kept = self.keep(&partial.join("file"), sha256, name);
        if kept.is_err() {
            // What is wrong would be gone on with.
            let _ = fs::remove_dir_all(&partial);
        }
        kept?;
        fs::remove_dir_all(&partial).map_err(failed("rmdir", &partial))
    }

    /// Takes over a file that a cell left, if it has the digest.
    pub(super) fn keep(&self, file: &Path, sha256: &str, name: &str) -> Result<()> {
        let found = digest(file)?;
        if found != sha256 {
            return Err(SetupError::new(
                Step::Store,
                format!("has SHA-256 {found}, and {sha256} is wanted"),
            )
            .on(name)
            .hint("the mirror or a proxy gave another file: try again, or take another mirror"));
        }
        let target = self.blobs().join(Self::relative(sha256));
        if let Some(folder) = target.parent() {
            make_directory(folder)?;
        }
        let mode = fs::Permissions::from_mode(0o644);
        fs::set_permissions(file, mode).map_err(failed("chmod", file))?;
        fs::rename(file, &target).map_err(failed("rename", &target))
    }

    /// The directory of the lists for `key`, locked until the file is dropped.
    pub(super) fn lists(&self, key: &str) -> Result<(PathBuf, Flock<File>)> {
        let path = self.root.join("apt").join(key);
        let lock = lock(&path)?;
        Ok((path, lock))
    }
}

/// Makes a directory and locks it; waits for whoever has it locked.
fn lock(path: &Path) -> Result<Flock<File>> {
    loop {
        make_directory(path)?;
        let lock = locked(path)?;
        let held = lock.metadata().map_err(failed("fstat", path))?;
        // Whoever had it before may have removed it.
        if fs::metadata(path).is_ok_and(|there| there.ino() == held.ino()) {
            return Ok(lock);
        }
    }
}

/// The SHA-256 of a plain file that a cell left, in hexadecimal.
///
/// # Errors
/// It is no plain file, or cannot be read.
pub(super) fn digest(path: &Path) -> Result<String> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let mut file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)
        .map_err(failed("open", path))?;
    let plain = file.metadata().map_err(failed("fstat", path))?.is_file();
    if !plain {
        return Err(SetupError::new(Step::Store, "not a plain file").on(path.display()));
    }
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 18];
    loop {
        match file.read(&mut buffer).map_err(failed("read", path))? {
            0 => break,
            length => hasher.update(&buffer[..length]),
        }
    }
    Ok(hex(&hasher.finalize()))
}

/// The SHA-256 of some bytes, in hexadecimal.
pub(super) fn digest_of(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache() -> (tempfile::TempDir, Cache) {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::at(directory.path()).unwrap();
        (directory, cache)
    }

    fn own() -> Writer {
        Writer(nix::unistd::geteuid().as_raw())
    }

    #[test]
    fn only_what_has_the_digest_is_kept() {
        let (_directory, cache) = cache();
        let sha256 = digest_of(b"content");
        let wrong = cache.fetch(&sha256, "x.deb", own(), |path| {
            fs::write(path.join("file"), "contend").map_err(failed("write", path))
        });
        assert!(wrong.unwrap_err().to_string().contains(&sha256));
        assert_eq!(cache.find(&sha256), None);
        cache
            .fetch(&sha256, "x.deb", own(), |path| {
                assert!(
                    !path.join("file").exists(),
                    "a wrong file is not gone on with"
                );
                fs::write(path.join("file"), "content").map_err(failed("write", path))
            })
            .unwrap();
        assert_eq!(fs::read(cache.find(&sha256).unwrap()).unwrap(), b"content");
        let again = cache.fetch(&sha256, "x.deb", own(), |_| panic!("it is here"));
        again.unwrap();
    }

    #[test]
    fn an_interrupted_fetch_goes_on() {
        let (_directory, cache) = cache();
        let sha256 = digest_of(b"content");
        let lost = cache.fetch(&sha256, "x.deb", own(), |path| {
            fs::write(path.join("file"), "cont").map_err(failed("write", path))?;
            Err(SetupError::new(Step::Store, "the network is gone"))
        });
        lost.unwrap_err();
        cache
            .fetch(&sha256, "x.deb", own(), |path| {
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
        let linked = cache.fetch(&sha256, "x.deb", own(), |path| {
            std::os::unix::fs::symlink(&secret, path.join("file")).map_err(failed("link", path))
        });
        assert!(linked.is_err());
        assert_eq!(cache.find(&sha256), None);
    }
}
