//! Calls of the executable, with a store of their own.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A directory with a store, and room for sources.
pub(crate) struct Place {
    base: tempfile::TempDir,
}

/// How a call ended.
pub(crate) struct Ended {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    pub(crate) fn of(output: &Output) -> Self {
        Self {
            status: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.status, 0, "{}", self.stderr);
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {}", self.stdout))
    }

    /// That it failed for this reason, with a way out, in one message.
    #[track_caller]
    pub(crate) fn assert_refused(&self, reason: &str) {
        assert_eq!(self.status, 125, "{}{}", self.stdout, self.stderr);
        assert!(self.stderr.contains(reason), "{}", self.stderr);
        let messages = self.stderr.matches("cellblock: ").count();
        assert_eq!(messages, 1, "{}", self.stderr);
    }
}

impl Place {
    pub(crate) fn new() -> Self {
        // A store waits for its disk, which other programs keep busy.
        let base = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let base = base.unwrap();
        fs::create_dir(base.path().join("outside")).unwrap();
        fs::write(base.path().join("outside/kept"), "kept").unwrap();
        Self { base }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.base.path().join(name)
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.path("store")
    }

    /// The command `cellblock WORDS… --store STORE`.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, words: &[S]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cellblock"));
        command.args(&words[..words.len().min(2)]);
        command.arg("--store").arg(self.store());
        command.args(&words[words.len().min(2)..]);
        command.env_remove("CELLBLOCK_STORE").stdin(Stdio::null());
        command
    }

    pub(crate) fn rootfs<S: AsRef<OsStr>>(&self, words: &[S]) -> Ended {
        let words: Vec<&OsStr> = [OsStr::new("rootfs")]
            .into_iter()
            .chain(words.iter().map(AsRef::as_ref))
            .collect();
        Ended::of(&self.command(&words).output().unwrap())
    }

    pub(crate) fn import(&self, name: &str, source: &Path) -> Ended {
        let words = ["import", "--json", name].map(OsStr::new);
        let words: Vec<&OsStr> = words.into_iter().chain([source.as_os_str()]).collect();
        self.rootfs(&words)
    }

    /// How a call ends, and the most memory and disk space that it takes meanwhile, in
    /// bytes: files of drafts, and files without a name.
    pub(crate) fn watch(&self, command: &mut Command) -> (Ended, u64, u64) {
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let process = Path::new("/proc").join(child.id().to_string());
        let (mut memory, mut disk) = (0, 0);
        let mut next_look = Instant::now();
        while child.try_wait().unwrap().is_none() {
            memory = memory.max(peak_memory(&process).unwrap_or(0));
            let begun = Instant::now();
            if begun >= next_look {
                let trees = taken(&self.store().join(".trees"));
                disk = disk.max(unnamed(&process).unwrap_or(0) + trees);
                // A look at many files takes time, of which the call needs most.
                next_look = Instant::now() + begun.elapsed() * 9;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        (Ended::of(&child.wait_with_output().unwrap()), memory, disk)
    }

    /// A program in a cell on the rootfs `name`.
    pub(crate) fn exec(&self, name: &str, script: &str) -> Ended {
        let command = &mut Command::new(env!("CARGO_BIN_EXE_cellblock"));
        command.arg("exec").arg("--store").arg(self.store());
        command.args(["--rootfs", name, "--", "/bin/bash", "-c", script]);
        Ended::of(&command.stdin(Stdio::null()).output().unwrap())
    }

    /// A file of the rootfs `name`, from outside.
    pub(crate) fn tree(&self, name: &str, path: &str) -> PathBuf {
        self.store().join(name).join(path)
    }

    /// The entries of the store that are not names: trees, drafts.
    pub(crate) fn trees(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.store().join(".trees")) else {
            return Vec::new();
        };
        let names = entries.map(|e| e.unwrap().file_name().into_string().unwrap());
        names.collect()
    }

    #[track_caller]
    pub(crate) fn assert_intact(&self) {
        let kept = fs::read_to_string(self.path("outside/kept")).unwrap();
        assert_eq!(kept, "kept");
        assert_eq!(fs::read_dir(self.path("outside")).unwrap().count(), 1);
    }

    #[track_caller]
    pub(crate) fn assert_empty(&self) {
        assert_eq!(
            self.rootfs(&["list", "--json"]).json(),
            serde_json::json!([])
        );
        assert_eq!(self.trees(), [""; 0]);
    }
}

/// The most memory that a process had at once.
fn peak_memory(process: &Path) -> Option<u64> {
    let status = fs::read_to_string(process.join("status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes << 10)
}

/// What the open files of a process take that have no name.
fn unnamed(process: &Path) -> Option<u64> {
    let open = fs::read_dir(process.join("fd")).ok()?;
    let files = open.filter_map(|entry| fs::metadata(entry.ok()?.path()).ok());
    let files = files.filter(|file| file.is_file() && file.nlink() == 0);
    Some(files.map(|file| file.blocks() * 512).sum())
}

/// What the files below a directory take.
fn taken(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() => taken(&entry.path()),
        found => found.map_or(0, |found| found.blocks() * 512),
    });
    sizes.sum()
}
