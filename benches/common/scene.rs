//! Who measures, and with which binary.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use nix::unistd::Uid;
use tempfile::TempDir;

use crate::{Result, plain};

/// What all rows share.
pub(crate) struct Scene {
    /// The binary, where the plain user can execute it.
    pub(crate) cellblock: PathBuf,
    /// The user that everything measured runs as.
    pub(crate) uid: u32,
    /// A directory of that user's.
    pub(crate) scratch: TempDir,
    _bin: TempDir,
}

impl Scene {
    pub(crate) fn prepare() -> Result<Self> {
        let uid = plain::user();
        let bin = directory()?;
        let cellblock = plain::binary(bin.path())?;
        let scratch = directory()?;
        if Uid::effective().is_root() {
            std::os::unix::fs::chown(scratch.path(), Some(uid), Some(uid))?;
        }
        Ok(Self {
            cellblock,
            uid,
            scratch,
            _bin: bin,
        })
    }

    /// cellblock, which will run as that user.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.cellblock);
        command
            .current_dir("/")
            .env("XDG_RUNTIME_DIR", self.scratch.path());
        if Uid::effective().is_root() {
            command.uid(self.uid).gid(self.uid);
        }
        command
    }
}

/// A new directory that everybody can enter.
fn directory() -> Result<TempDir> {
    let directory = tempfile::Builder::new().prefix("bench-").tempdir()?;
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755))?;
    Ok(directory)
}
