//! The server under test.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::unistd::Uid;
use tempfile::TempDir;

use crate::client::Client;
use crate::{Args, Result, plain};

pub(crate) struct Server {
    child: Child,
    /// All its files: the socket, checkpoints, what it writes to its runtime directory.
    pub(crate) directory: TempDir,
    _bin: TempDir,
}

impl Server {
    pub(crate) fn start(args: &Args, options: &[String]) -> Result<Self> {
        let (bin, directory) = (directory()?, directory()?);
        let mut command = Command::new(plain::binary(bin.path())?);
        if Uid::effective().is_root() && !args.as_root {
            let user = plain::user();
            chown(directory.path(), Some(user), Some(user))?;
            command.uid(user).gid(user);
        }
        let listen = format!("unix:{}", directory.path().join("socket").display());
        command
            .args(["serve", "--rootfs", "host", "--listen", &listen])
            .args(options)
            .current_dir("/")
            .env("XDG_RUNTIME_DIR", directory.path())
            .env("TMPDIR", directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let server = Self {
            child: command.spawn()?,
            directory,
            _bin: bin,
        };
        let until = Instant::now() + Duration::from_secs(60);
        while let Err(error) = Client::connect(&server.socket()) {
            if Instant::now() > until {
                return Err(format!("the server does not listen: {error}").into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A new directory that every user can enter.
fn directory() -> Result<TempDir> {
    let directory = tempfile::Builder::new().prefix("soak-").tempdir()?;
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755))?;
    Ok(directory)
}
