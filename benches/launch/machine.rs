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
    /// Processes that wanted to run at once in the minute before the first launch.
    pub(crate) load: f64,
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
        let cellblock = scene.cellblock.to_string_lossy();
        let programs = [&cellblock, "bwrap", "crun", "runc", "/usr/bin/python3"];
        Self {
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            cpu: field(&read("/proc/cpuinfo"), "model name"),
            cpus: std::thread::available_parallelism().map_or(1, Into::into),
            memory_mib: (first_number(&memory) / 1024.0) as u64,
            load: first_number(&read("/proc/loadavg")),
            uid: scene.uid,
            binary: fs::metadata(&scene.cellblock).map_or(0, |m| m.len()),
            versions: programs.iter().filter_map(|name| version(name)).collect(),
        }
    }

    /// Whether others kept a good part of the machine busy.
    pub(crate) fn is_busy(&self) -> bool {
        self.load > self.cpus as f64 / 2.0
    }
}

/// The number that `text` begins with, if it does.
fn first_number(text: &str) -> f64 {
    let word = text.split_ascii_whitespace().next();
    word.and_then(|word| word.parse().ok()).unwrap_or_default()
}

fn version(program: &str) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().next().map(str::to_owned)
}
