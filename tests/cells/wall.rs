//! A memory cgroup around a test: it tells what a program really uses, and keeps
//! one that gets away from the host. Version 1, which a delegated cgroup of
//! cellblock's is not in the way of.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use super::{Check, fail};

/// More than any test here takes when nothing goes wrong.
const LIMIT: u64 = 900 << 20;

/// A cgroup of its own, removed in the end.
pub(crate) struct Wall(PathBuf);

impl Wall {
    /// A wall, where this host has the memory controller of version 1 and the
    /// tests may use it.
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

    /// Has `command` run within.
    pub(crate) fn around(&self, command: &mut Command) -> Check {
        let procs = fs::File::options()
            .write(true)
            .open(self.0.join("cgroup.procs"))?;
        // SAFETY: the closure makes one system call, on memory that it owns.
        unsafe { command.pre_exec(move || std::io::Write::write_all(&mut &procs, b"0")) };
        Ok(())
    }

    /// The most that was used, in bytes.
    pub(crate) fn peak(&self) -> Check<u64> {
        let text = fs::read_to_string(self.0.join("memory.max_usage_in_bytes"))?;
        text.trim().parse().map_err(fail)
    }
}

impl Drop for Wall {
    fn drop(&mut self) {
        // What was killed may still be on its way out.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}
