//! The surroundings of all measurements: users, directories, the binary, the plan.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::unistd::Uid;
use serde_json::Value;
use tempfile::TempDir;

use crate::Result;
use crate::worker::Worker;
use crate::{plain, reference};

/// See the module's documentation.
pub(crate) struct Scene {
    /// The binary, where the plain user can execute it.
    pub(crate) cellblock: PathBuf,
    /// The one that it is compared with, beside it.
    pub(crate) reference: PathBuf,
    /// The plain user's directory, in memory where possible.
    pub(crate) scratch: TempDir,
    /// What `cellblock plan exec -- /bin/true` prints.
    pub(crate) plan: Value,
    /// The users that the workers run as.
    pub(crate) uid: u32,
    /// Two, that run as the plain user.
    pub(crate) workers: [Worker; 2],
    /// One more that sees cgroup v2 alone, which crun 1.8 insists on; only root
    /// can arrange that.
    pub(crate) unified: Option<Worker>,
    _bin: TempDir,
}

impl Scene {
    pub(crate) fn prepare() -> Result<Self> {
        let uid = plain::user();
        let bin = open_directory(&std::env::temp_dir(), uid)?;
        let cellblock = plain::binary(bin.path())?;
        let reference = bin.path().join("reference");
        std::fs::copy(reference::executable()?, &reference)?;
        let shm = Path::new("/dev/shm");
        let temp = std::env::temp_dir();
        let scratch = open_directory(if shm.is_dir() { shm } else { &temp }, uid)?;
        let planned = Command::new(&cellblock)
            .args(["plan", "exec", "--", "/bin/true"])
            .current_dir("/")
            .env_clear()
            .output()?;
        let plan = serde_json::from_slice(&planned.stdout)
            .map_err(|error| format!("cellblock plan: {error}"))?;
        Ok(Self {
            cellblock,
            reference,
            scratch,
            plan,
            uid,
            workers: [Worker::start(uid, false)?, Worker::start(uid, false)?],
            unified: (Uid::effective().is_root())
                .then(|| Worker::start(uid, true))
                .transpose()?,
            _bin: bin,
        })
    }

    /// A path in the scratch directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }
}

/// A new directory below `parent` that `uid` owns and everybody can enter.
fn open_directory(parent: &Path, uid: u32) -> Result<TempDir> {
    let directory = tempfile::Builder::new()
        .prefix("launch-")
        .permissions(Permissions::from_mode(0o755))
        .tempdir_in(parent)?;
    chown(directory.path(), Some(uid), Some(uid))?;
    Ok(directory)
}
