//! Where and with what it was measured.

use std::fs;
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::scene::Scene;

/// The machine and the programs.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) kernel: String,
    pub(crate) cpu: String,
    pub(crate) cpus: usize,
    pub(crate) memory_mib: u64,
    /// One minute's, before the first launch: ratios hold better than times on
    /// a machine that does other things.
    pub(crate) load: String,
    pub(crate) uid: u32,
    /// Bytes of the binary.
    pub(crate) binary: u64,
    /// First line of each program's `--version`.
    pub(crate) versions: Vec<String>,
}

impl Machine {
    pub(crate) fn gather(scene: &Scene) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name));
            let value = line.and_then(|line| line.split_once(':'));
            value.map_or_else(String::new, |(_, value)| value.trim().to_owned())
        };
        let memory = field(&read("/proc/meminfo"), "MemTotal");
        let memory = memory.split(' ').next().unwrap_or_default();
        let cellblock = scene.cellblock.to_string_lossy();
        let programs = [&cellblock, "bwrap", "crun", "runc", "/usr/bin/python3"];
        Self {
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            cpu: field(&read("/proc/cpuinfo"), "model name"),
            cpus: std::thread::available_parallelism().map_or(1, Into::into),
            memory_mib: memory.parse::<u64>().unwrap_or(0) / 1024,
            load: read("/proc/loadavg").split(' ').next().unwrap_or("").into(),
            uid: scene.uid,
            binary: fs::metadata(&scene.cellblock).map_or(0, |m| m.len()),
            versions: programs.iter().filter_map(|name| version(name)).collect(),
        }
    }
}

fn version(program: &str) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().next().map(str::to_owned)
}
