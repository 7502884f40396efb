//! What is left of a cell: nothing, if all is well.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::{Check, fail};

/// A word in the argument list of everything that a cell consists of: of
/// cellblock itself, of init, which is its clone, and of the program and its
/// forks.
pub(crate) struct Marker {
    word: String,
    mounts: usize,
    cgroups: Vec<PathBuf>,
}

impl Marker {
    pub(crate) fn new() -> Check<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        Ok(Self {
            word: format!("marker-{}-{count}-", std::process::id()),
            mounts: mounts()?,
            cgroups: cgroups(),
        })
    }

    pub(crate) fn word(&self) -> &str {
        &self.word
    }

    /// The processes that carry the word and are not dead yet.
    pub(crate) fn processes(&self) -> Check<Vec<String>> {
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc")?.flatten() {
            let path = entry.path();
            let Ok(arguments) = fs::read(path.join("cmdline")) else {
                continue;
            };
            let arguments = String::from_utf8_lossy(&arguments).replace('\0', " ");
            if arguments.contains(&self.word) {
                found.push(format!("{} ({arguments})", path.display()));
            }
        }
        Ok(found)
    }

    /// Nothing of the cell is there any more: at once, or within `grace` where
    /// nobody was left to wait for the end.
    pub(crate) fn nothing_left(&self, grace: Duration) -> Check {
        let start = Instant::now();
        loop {
            let processes = self.processes()?;
            let cgroups: Vec<PathBuf> = cgroups()
                .into_iter()
                .filter(|path| !self.cgroups.contains(path))
                .collect();
            let mounts = mounts()?;
            if processes.is_empty() && cgroups.is_empty() && mounts <= self.mounts {
                return Ok(());
            }
            if start.elapsed() >= grace {
                return Err(fail(format!(
                    "left behind: processes {processes:?}, cgroups {cgroups:?}, {} mounts more",
                    mounts.saturating_sub(self.mounts)
                )));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn mounts() -> Check<usize> {
    Ok(fs::read_to_string("/proc/self/mountinfo")?.lines().count())
}

/// Cgroups that cellblock made, in every hierarchy.
fn cgroups() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut todo = vec![Path::new("/sys/fs/cgroup").to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            if entry
                .file_name()
                .to_string_lossy()
                .starts_with("cellblock-")
            {
                found.push(entry.path());
            } else {
                todo.push(entry.path());
            }
        }
    }
    found
}
