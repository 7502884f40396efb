//! A memory cgroup around a test: it measures how much memory a program really uses,
//! and protects the host from one that gets out of hand. It is of version 1, which does
//! not interfere with a delegated cgroup of cellblock's.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use super::{Check, fail};

/// More than any test uses when all is well.
const LIMIT: u64 = 900 << 20;

/// A cgroup that is removed on drop.
pub(crate) struct Wall(PathBuf);

impl Wall {
    /// A new one, if this host has the memory controller of version 1 and the tests may
    /// use it.
    pub(crate) fn build(name: &str) -> Option<Self> {
        let path = PathBuf::from(format!(
            "/sys/fs/cgroup/memory/cellblock-test-{}-{name}",
            std::process::id()
        ));
        fs::create_dir(&path).ok()?;
        let wall = Self(path);
        fs::write(wall.0.join("memory.limit_in_bytes"), LIMIT.to_string()).ok()?;
        Some(wall)
    }

    /// Makes `command` run inside it.
    pub(crate) fn around(&self, command: &mut Command) -> Check {
        let procs = fs::File::options()
            .write(true)
            .open(self.0.join("cgroup.procs"))?;
        // SAFETY: the closure makes one system call, on memory that it owns.
        unsafe { command.pre_exec(move || std::io::Write::write_all(&mut &procs, b"0")) };
        Ok(())
    }

    /// The peak memory, in bytes.
    pub(crate) fn peak(&self) -> Check<u64> {
        let text = fs::read_to_string(self.0.join("memory.max_usage_in_bytes"))?;
        text.trim().parse().map_err(fail)
    }
}

impl Drop for Wall {
    fn drop(&mut self) {
        // Killed processes may still be exiting.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}
