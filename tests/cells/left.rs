//! Checks that nothing is left of a cell.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

use record::Outcome;

use super::process::was_started_here;
use super::{Check, Stage, fail};

/// A word in the argument list of every process of a cell: of cellblock, of init, which
/// is its clone, and of the program and its forks.
pub(crate) struct Marker {
    word: String,
    mounts: usize,
}

impl Marker {
    pub(crate) fn new() -> Check<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        Ok(Self {
            word: format!("marker-{}-{count}-", std::process::id()),
            mounts: mounts()?,
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

    /// Nothing of the cell is there any more.
    pub(crate) fn nothing_left(&self) -> Check {
        self.gone_within(Duration::ZERO, true)
    }

    /// The same when no supervisor was left to wait for the end: the kernel ends the
    /// processes, and the survivor or the next call removes their cgroup.
    pub(crate) fn nothing_left_unattended(&self, stage: &Stage) -> Check {
        self.gone_within(stage.patience(), false)?;
        stage.exec(["/bin/true"]).run()?.ended(Outcome::Ok)?;
        self.gone_within(stage.patience(), true)
    }

    fn gone_within(&self, grace: Duration, cgroups_too: bool) -> Check {
        let start = Instant::now();
        loop {
            let processes = self.processes()?;
            let cgroups = if cgroups_too { cgroups() } else { Vec::new() };
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

/// The supervisor's pid, which ends the name of a cell's cgroup.
pub(crate) fn supervisor_of(cgroup: &Path) -> Option<u32> {
    Some(maker_of(cgroup)?.1)
}

/// When a cell's cgroup was made, and the pid of its supervisor, by its name.
fn maker_of(cgroup: &Path) -> Option<(SystemTime, u32)> {
    let name = cgroup.file_name()?.to_str()?.strip_prefix("cellblock-")?;
    let (time, pid) = name.split_once('-')?;
    let since_1970 = Duration::from_nanos(u64::from_str_radix(time, 16).ok()?);
    Some((
        SystemTime::UNIX_EPOCH + since_1970,
        u32::from_str_radix(pid, 16).ok()?,
    ))
}

/// Cgroups, in every hierarchy, of cells that this harness started.
fn cgroups() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut todo = vec![Path::new("/sys/fs/cgroup").to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            match maker_of(&entry.path()) {
                Some((time, pid)) if was_started_here(pid, time) => found.push(entry.path()),
                Some(_) => {}
                None => todo.push(entry.path()),
            }
        }
    }
    found
}
