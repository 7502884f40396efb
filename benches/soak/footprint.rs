//! What a server has of the machine, at one moment.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::server::Server;

/// Sums over the front end and all processes below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Footprint {
    pub(crate) processes: usize,
    descriptors: usize,
    /// Proportional set sizes of those whose memory may be read, in KiB.
    pub(crate) memory: u64,
    /// That of the front end alone.
    front_end: u64,
    /// Cgroups of cells that have no process, of all servers on this machine.
    empty_cgroups: usize,
    mounts: usize,
    files: usize,
    /// How many processes are how deep in the tree, and their descriptors.
    by_depth: BTreeMap<usize, (usize, usize)>,
    /// Descriptors by the depth of their process and what they refer to.
    by_kind: BTreeMap<(usize, String), usize>,
}

impl Footprint {
    pub(crate) fn of(server: &Server) -> Self {
        let mut found = Self {
            front_end: memory(server.pid()),
            empty_cgroups: empty_cgroups(Path::new("/sys/fs/cgroup"), 0),
            mounts: lines(&format!("/proc/{}/mountinfo", server.pid())),
            files: entries(server.directory.path()) + entries(Path::new("/dev/shm")),
            ..Self::default()
        };
        let mut todo = vec![(server.pid(), 0)];
        while let Some((pid, depth)) = todo.pop() {
            found.processes += 1;
            let kinds = descriptors(pid);
            let open = kinds.len();
            for kind in kinds {
                *found.by_kind.entry((depth, kind)).or_default() += 1;
            }
            found.descriptors += open;
            let (processes, descriptors) = found.by_depth.entry(depth).or_default();
            *processes += 1;
            *descriptors += open;
            found.memory += memory(pid);
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
            let children = children.unwrap_or_default();
            let children = children
                .split_whitespace()
                .filter_map(|pid| pid.parse().ok());
            todo.extend(children.map(|pid| (pid, depth + 1)));
        }
        found
    }

    /// Waits for what it was `before`, as what has ended goes by and by; the last one.
    pub(crate) fn settled(server: &Server, before: &Self) -> Self {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let now = Self::of(server);
            if now.left(before).is_empty() || Instant::now() > until {
                return now;
            }
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    /// What is more than it was `before`, in words, but for memory: an allocator keeps what
    /// was once needed.
    pub(crate) fn left(&self, before: &Self) -> Vec<String> {
        let other_kinds = &before.by_kind;
        let counts = [
            ("processes", self.processes, before.processes),
            ("descriptors", self.descriptors, before.descriptors),
            ("empty cgroups", self.empty_cgroups, before.empty_cgroups),
            ("mounts", self.mounts, before.mounts),
            ("files", self.files, before.files),
        ];
        (counts.iter())
            .filter(|(_, now, before)| now > before)
            .map(|(what, now, before)| match *what {
                "descriptors" => {
                    let more = self.more_kinds_than(other_kinds);
                    format!("{what}: {now}, before {before}; more: {more}")
                }
                _ => format!("{what}: {now}, before {before}"),
            })
            .collect()
    }

    /// The descriptors that are more than these, with the depth of their process.
    fn more_kinds_than(&self, before: &BTreeMap<(usize, String), usize>) -> String {
        let more = self.by_kind.iter().filter_map(|(kind, now)| {
            let before = before.get(kind).copied().unwrap_or(0);
            (*now > before).then(|| format!("{}: {} {before} to {now}", kind.0, kind.1))
        });
        more.collect::<Vec<_>>().join(", ")
    }

    /// The same for memory, after work that needed no more than the work `before`.
    pub(crate) fn grown(&self, before: &Self) -> Vec<String> {
        let memory = [
            ("memory", self.memory, before.memory),
            ("memory of the front end", self.front_end, before.front_end),
        ];
        (memory.iter())
            .filter(|(_, now, before)| *now > before + before / 8 + 2048)
            .map(|(what, now, before)| format!("{what}: {now} KiB, before {before} KiB"))
            .collect()
    }
}

impl fmt::Display for Footprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} processes {:?}, {} descriptors, {} KiB (front end {}), {} empty cgroups, {} mounts, {} files",
            self.processes,
            self.by_depth.values().collect::<Vec<_>>(),
            self.descriptors,
            self.memory,
            self.front_end,
            self.empty_cgroups,
            self.mounts,
            self.files
        )
    }
}

/// Files of `/proc` that a supervisor keeps open after it has first read them, at most.
const KEPT: usize = 12;

/// What the descriptors of a process refer to, without what is different in each, and without
/// the files that a supervisor keeps open, however many it has opened by now.
fn descriptors(pid: u32) -> Vec<String> {
    let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return Vec::new();
    };
    let targets = (open.flatten()).map(|entry| {
        let target = fs::read_link(entry.path()).unwrap_or_default();
        let target = target.to_string_lossy();
        target.chars().filter(|c| !c.is_ascii_digit()).collect()
    });
    let (figures, mut rest): (Vec<String>, Vec<String>) =
        targets.partition(|target: &String| target.starts_with("/proc/"));
    rest.extend(figures.into_iter().skip(KEPT));
    rest
}

fn memory(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn lines(path: &str) -> usize {
    fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

/// Everything below a directory.
fn entries(path: &Path) -> usize {
    let Ok(inside) = fs::read_dir(path) else {
        return 0;
    };
    let below = inside.flatten().map(|entry| {
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        1 + if is_directory {
            entries(&entry.path())
        } else {
            0
        }
    });
    below.sum()
}

fn empty_cgroups(path: &Path, depth: usize) -> usize {
    let Ok(inside) = fs::read_dir(path) else {
        return 0;
    };
    let directories = inside
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let below = directories.map(|entry| {
        let is_cells = entry
            .file_name()
            .to_string_lossy()
            .starts_with("cellblock-");
        let members = fs::read_to_string(entry.path().join("cgroup.procs"));
        let is_empty = is_cells && members.is_ok_and(|members| members.is_empty());
        usize::from(is_empty)
            + if depth < 6 {
                empty_cgroups(&entry.path(), depth + 1)
            } else {
                0
            }
    });
    below.sum()
}
