//! Directories that last as long as a test.

use std::fs;
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::{Check, fail};

/// A directory that is removed with everything in it. Every user may look
/// into it, since a cell that root starts runs as another one.
pub(crate) struct Scratch(tempfile::TempDir);

impl Scratch {
    /// A new directory below `parent`.
    pub(crate) fn new(parent: &Path) -> Check<Self> {
        let dir = tempfile::Builder::new().prefix("t").tempdir_in(parent)?;
        chmod(dir.path(), 0o755)?;
        Ok(Self(dir))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// The path of something in it.
    pub(crate) fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file that everybody may read.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> Check<PathBuf> {
        let path = self.join(name);
        fs::write(&path, content)?;
        chmod(&path, 0o644)?;
        Ok(path)
    }

    /// Makes a directory with these permissions.
    pub(crate) fn dir(&self, name: &str, mode: u32) -> Check<PathBuf> {
        let path = self.join(name);
        fs::create_dir(&path)?;
        chmod(&path, mode)?;
        Ok(path)
    }
}

/// A file system of its own in a scratch directory, in which set-user-ID bits and
/// device nodes have their effect. Only root can mount it.
pub(crate) struct Mounted(Scratch);

impl Mounted {
    pub(crate) fn new(parent: &Path) -> Check<Self> {
        let scratch = Scratch::new(parent)?;
        mount(
            Some("scratch"),
            scratch.path(),
            Some("tmpfs"),
            MsFlags::empty(),
            Some("mode=755"),
        )
        .map_err(|errno| fail(format!("cannot mount a tmpfs: {errno}")))?;
        Ok(Self(scratch))
    }
}

impl Deref for Mounted {
    type Target = Scratch;

    fn deref(&self) -> &Scratch {
        &self.0
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = umount2(self.0.path(), MntFlags::MNT_DETACH);
    }
}

/// Sets permissions, whatever the umask.
pub(crate) fn chmod(path: &Path, mode: u32) -> Check {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    Ok(())
}

/// The names in a directory, sorted.
pub(crate) fn names(path: &Path) -> Check<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}
