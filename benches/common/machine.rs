//! The machine and the programs that were measured.

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

/// The machine and the programs.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) kernel: String,
    pub(crate) cpu: String,
    pub(crate) cpus: usize,
    pub(crate) memory_mib: u64,
    /// The load average of the minute before the first launch.
    pub(crate) load: f64,
    pub(crate) uid: u32,
    /// Bytes of the binary.
    pub(crate) binary: u64,
    /// First line of each program's `--version`.
    pub(crate) versions: Vec<String>,
}

impl Machine {
    /// For `cellblock` run as `uid` beside the programs that `others` names.
    pub(crate) fn gather(cellblock: &Path, uid: u32, others: &[&str]) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name));
            let value = line.and_then(|line| line.split_once(':'));
            value.map_or_else(String::new, |(_, value)| value.trim().to_owned())
        };
        let memory = field(&read("/proc/meminfo"), "MemTotal");
        let own = cellblock.to_string_lossy();
        let programs = [&*own].into_iter().chain(others.iter().copied());
        Self {
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            cpu: field(&read("/proc/cpuinfo"), "model name"),
            cpus: std::thread::available_parallelism().map_or(1, Into::into),
            memory_mib: (first_number(&memory) / 1024.0) as u64,
            load: first_number(&read("/proc/loadavg")),
            uid,
            binary: fs::metadata(cellblock).map_or(0, |m| m.len()),
            versions: programs.filter_map(version).collect(),
        }
    }

    /// Whether others kept a good part of the machine busy.
    fn is_busy(&self) -> bool {
        self.load > self.cpus as f64 / 2.0
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Linux {}, {} × {}, {} MiB, load {}, as uid {}",
            self.kernel, self.cpus, self.cpu, self.memory_mib, self.load, self.uid
        )?;
        let versions = self.versions.join("; ");
        writeln!(f, "{versions}; cellblock is {} bytes", self.binary)?;
        if self.is_busy() {
            writeln!(
                f,
                "NOTE: the machine is busy with other things; ratios suffer too, since \
                 what a launch waits for in the kernel takes longer then"
            )?;
        }
        Ok(())
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
