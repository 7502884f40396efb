//! Directories that last as long as a test.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::Check;

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
