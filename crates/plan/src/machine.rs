//! The machine that a cell shows in `/proc` and `/sys`: one of the cell's size.
//!
//! Libraries read these files for the memory and the CPUs that they may use, and tools
//! such as ps(1), free(1) and top(1) need them. Their content is the cell's own: its
//! limits, and what the program knows anyway (the processor's model, by CPUID; the
//! kernel's release, by uname(2); the time since boot, by clock_gettime(2)). They are
//! written when the cell is made and do not change.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

use crate::probe::HostFacts;
use spec::{Bytes, Spec};

/// Where the prepared files are, read-only; they are bound from here to their places.
pub const PREPARED: &str = "/run/cellblock/machine";
/// A file that nobody may open, in place of a file that the cell does not show.
pub const DENIED_FILE: &str = "denied/file";
/// A directory that nobody may open.
pub const DENIED_DIRECTORY: &str = "denied/directory";
/// The one setting that the kernel answers itself: each reading is another number.
pub const UUID: &str = "proc/sys/kernel/random/uuid";
/// The id of this boot of the kernel; each cell gets a random one.
pub const BOOT_ID: &str = "proc/sys/kernel/random/boot_id";
/// Settings of the kernel that are copied: programs act on them, and they are the same
/// on most hosts.
pub const COPIED: [&str; 6] = [
    "proc/sys/kernel/cap_last_cap",
    "proc/sys/kernel/ngroups_max",
    "proc/sys/kernel/pid_max",
    "proc/sys/fs/nr_open",
    "proc/sys/vm/max_map_count",
    "proc/sys/vm/overcommit_memory",
];

/// A machine of the cell's size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// Its memory.
    pub memory: Bytes,
    /// Whether the memory is a limit, and not just all that the host has.
    pub memory_limited: bool,
    /// Its CPUs.
    pub cpus: usize,
    /// CPU time in microseconds per 100 ms of the clock; `None` without a
    /// limit.
    pub cpu_quota: Option<u64>,
    /// The most processes and threads; `None` without a limit.
    pub processes: Option<u64>,
    /// Its host name.
    pub hostname: String,
    /// The kernel's release and version (uname(2)).
    pub kernel: (String, String),
    /// What `/proc/cpuinfo` says of each processor, without its number.
    pub processor: String,
}

/// What differs from cell to cell.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Time since boot (CLOCK_BOOTTIME).
    pub uptime: Duration,
    /// Time since 1970 (CLOCK_REALTIME).
    pub now: Duration,
}

/// A file: its path below [`PREPARED`], and its content.
pub type Prepared = (String, String);

impl Machine {
    pub(super) fn of(spec: &Spec, host: &HostFacts) -> Self {
        let limits = &spec.limits;
        let cpus = limits.cpus.map_or(host.cpus, |cpus| cpus.ceil() as usize);
        Self {
            memory: limits.memory.unwrap_or(Bytes(host.memory)),
            memory_limited: limits.memory.is_some(),
            cpus: cpus.clamp(1, host.cpus.max(1)),
            cpu_quota: limits.cpus.map(|cpus| (cpus * 100_000.0) as u64),
            processes: limits.processes,
            hostname: spec.hostname.clone(),
            kernel: (host.release.clone(), host.version.clone()),
            processor: host.processor.clone(),
        }
    }

    /// What its files take of a tmpfs at most: pages, and inodes with one for each link.
    pub(super) fn room(&self) -> (u64, u64) {
        let cpus = self.cpus as u64;
        let processor = self.processor.len() as u64 + 256;
        let pages = (cpus * processor).div_ceil(4096) + cpus.div_ceil(32);
        (pages + 64 + 2 * cpus, cpus * 8 + 128)
    }

    /// All files, each after others of its directory.
    pub fn files(&self, moment: Moment) -> Vec<Prepared> {
        let mut files = Files(Vec::with_capacity(64));
        self.proc(&mut files, moment);
        self.settings(&mut files);
        self.cpus(&mut files);
        self.cgroup(&mut files);
        files.0
    }

    fn proc(&self, files: &mut Files, moment: Moment) {
        let (release, version) = &self.kernel;
        files.add("proc/meminfo", self.meminfo());
        files.add("proc/cpuinfo", self.cpuinfo());
        files.add("proc/stat", self.stat(moment));
        let up = moment.uptime.as_secs_f64();
        let idle = up * self.cpus as f64;
        files.line("proc/uptime", format!("{up:.2} {idle:.2}"));
        files.line("proc/loadavg", "0.00 0.00 0.00 1/1 2");
        files.line(
            "proc/version",
            format!("Linux version {release} (cellblock) {version}"),
        );
        files.line(
            "proc/swaps",
            "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority",
        );
        let kinds = ["tmpfs", "proc", "devpts"].map(|kind| format!("nodev\t{kind}\n"));
        files.add("proc/filesystems", kinds.concat());
        files.add("proc/vmstat", self.vmstat());
        files.add("proc/diskstats", String::new());
        let controllers = ["cpu", "memory", "pids"].map(|name| format!("{name}\t0\t1\t1\n"));
        files.add(
            "proc/cgroups",
            format!(
                "#subsys_name\thierarchy\tnum_cgroups\tenabled\n{}",
                controllers.concat()
            ),
        );
    }

    /// As the cell begins: its programs have taken nothing yet.
    fn meminfo(&self) -> String {
        let total = self.memory.0 / 1024;
        let mut text = String::new();
        for (name, size) in [
            ("MemTotal", total),
            ("MemFree", total),
            ("MemAvailable", total),
            ("Buffers", 0),
            ("Cached", 0),
            ("SwapCached", 0),
            ("Active", 0),
            ("Inactive", 0),
            ("SwapTotal", 0),
            ("SwapFree", 0),
            ("Dirty", 0),
            ("Writeback", 0),
            ("AnonPages", 0),
            ("Mapped", 0),
            ("Shmem", 0),
            ("Slab", 0),
            ("SReclaimable", 0),
            ("SUnreclaim", 0),
            ("CommitLimit", total),
            ("Committed_AS", 0),
        ] {
            let name = format!("{name}:");
            let _ = writeln!(text, "{name:<15} {size:>8} kB");
        }
        text
    }

    fn vmstat(&self) -> String {
        let free = self.memory.0 / 4096;
        format!("nr_free_pages {free}\npgpgin 0\npgpgout 0\npswpin 0\npswpout 0\n")
    }

    fn cpuinfo(&self) -> String {
        let mut text = String::new();
        for number in 0..self.cpus {
            let _ = writeln!(text, "processor\t: {number}");
            text.push_str(&self.processor);
            // Only x86 describes the topology here.
            if self.processor.contains("flags") {
                let cpus = self.cpus;
                let _ = write!(
                    text,
                    "physical id\t: 0\nsiblings\t: {cpus}\ncore id\t\t: {number}\n\
                     cpu cores\t: {cpus}\napicid\t\t: {number}\n"
                );
            }
            text.push('\n');
        }
        text
    }

    fn stat(&self, moment: Moment) -> String {
        // In hundredths of a second.
        let idle = moment.uptime.as_millis() as u64 / 10;
        let all = idle * self.cpus as u64;
        let mut text = format!("cpu  0 0 0 {all} 0 0 0 0 0 0\n");
        for number in 0..self.cpus {
            let _ = writeln!(text, "cpu{number} 0 0 0 {idle} 0 0 0 0 0 0");
        }
        let boot = moment.now.saturating_sub(moment.uptime).as_secs();
        let _ = write!(
            text,
            "intr 0\nctxt 0\nbtime {boot}\nprocesses 2\nprocs_running 1\nprocs_blocked 0\n"
        );
        text
    }

    fn settings(&self, files: &mut Files) {
        let (release, version) = &self.kernel;
        files.line("proc/sys/kernel/ostype", "Linux");
        files.line("proc/sys/kernel/osrelease", release);
        files.line("proc/sys/kernel/version", version);
        files.line("proc/sys/kernel/hostname", &self.hostname);
        files.line("proc/sys/kernel/domainname", "(none)");
        let threads = self.processes.unwrap_or(1 << 22);
        files.line("proc/sys/kernel/threads-max", threads);
        files.line("proc/sys/kernel/random/entropy_avail", 256);
        files.line("proc/sys/kernel/random/poolsize", 256);
        files.add(UUID, String::new());
        files.line("proc/sys/net/core/somaxconn", 4096);
        files.line("proc/sys/fs/file-max", i64::MAX);
    }

    fn cpus(&self, files: &mut Files) {
        let all = range(self.cpus);
        for name in ["online", "possible", "present"] {
            files.line(format!("sys/devices/system/cpu/{name}"), &all);
        }
        for number in 0..self.cpus {
            let topology = format!("sys/devices/system/cpu/cpu{number}/topology");
            files.line(format!("{topology}/core_id"), number);
            files.line(format!("{topology}/physical_package_id"), 0);
            files.line(format!("{topology}/thread_siblings_list"), number);
            files.line(format!("{topology}/core_siblings_list"), &all);
            // hwloc, and so every MPI, reads the masks and not the lists.
            files.line(
                format!("{topology}/thread_siblings"),
                mask(self.cpus, |cpu| cpu == number),
            );
            files.line(
                format!("{topology}/core_siblings"),
                mask(self.cpus, |_| true),
            );
        }
    }

    /// The limits in the words of cgroup v2, also where another mechanism holds them.
    fn cgroup(&self, files: &mut Files) {
        let or_max = |limit: Option<u64>| limit.map_or("max".to_owned(), |n| n.to_string());
        let memory = or_max(self.memory_limited.then_some(self.memory.0));
        files.line("sys/fs/cgroup/cgroup.controllers", "cpu memory pids");
        files.line("sys/fs/cgroup/memory.max", &memory);
        files.line("sys/fs/cgroup/memory.high", "max");
        files.line("sys/fs/cgroup/memory.swap.max", 0);
        let quota = or_max(self.cpu_quota);
        files.line("sys/fs/cgroup/cpu.max", format!("{quota} 100000"));
        files.line("sys/fs/cgroup/pids.max", or_max(self.processes));
    }
}

struct Files(Vec<Prepared>);

impl Files {
    fn add(&mut self, path: impl Into<String>, content: String) {
        self.0.push((path.into(), content));
    }

    fn line(&mut self, path: impl Into<String>, value: impl ToString) {
        self.add(path, value.to_string() + "\n");
    }
}

/// A list of CPUs as sysfs writes it.
fn range(cpus: usize) -> String {
    match cpus {
        0 | 1 => "0".to_owned(),
        more => format!("0-{}", more - 1),
    }
}

/// A set of the first `cpus` CPUs as sysfs writes it: hexadecimal, in groups of 32, the last
/// CPUs first.
fn mask(cpus: usize, has: impl Fn(usize) -> bool) -> String {
    let digit = |first: usize| {
        let bits = (0..4).filter(|bit| first + bit < cpus && has(first + bit));
        bits.fold(0_u32, |digit, bit| digit | 1 << bit)
    };
    let mut text = String::new();
    for first in (0..cpus.max(1)).step_by(4).rev() {
        let _ = write!(text, "{:x}", digit(first));
        if first > 0 && first % 32 == 0 {
            text.push(',');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(cpus: usize) -> Machine {
        Machine {
            memory: Bytes(512 * Bytes::MIB),
            memory_limited: true,
            cpus,
            cpu_quota: Some(150_000),
            processes: Some(64),
            hostname: "cell".to_owned(),
            kernel: ("6.1.0".to_owned(), "#1 SMP".to_owned()),
            processor: "model name\t: A\nflags\t\t: fpu sse\n".to_owned(),
        }
    }

    fn file(machine: &Machine, path: &str) -> String {
        let moment = Moment {
            uptime: Duration::from_secs(1000),
            now: Duration::from_secs(1_700_000_000),
        };
        let mut files = machine.files(moment).into_iter();
        let found = files.find(|(name, _)| name == path);
        found.unwrap_or_else(|| panic!("{path} is missing")).1
    }

    #[test]
    fn the_size_is_the_cells() {
        let two = machine(2);
        assert!(file(&two, "proc/meminfo").starts_with("MemTotal:         524288 kB\n"));
        assert_eq!(file(&two, "proc/cpuinfo").matches("processor").count(), 2);
        assert_eq!(file(&two, "sys/devices/system/cpu/online"), "0-1\n");
        assert_eq!(file(&machine(1), "sys/devices/system/cpu/online"), "0\n");
        assert_eq!(file(&two, "sys/fs/cgroup/memory.max"), "536870912\n");
        assert_eq!(file(&two, "sys/fs/cgroup/cpu.max"), "150000 100000\n");
        assert_eq!(file(&two, "sys/fs/cgroup/pids.max"), "64\n");
    }

    #[test]
    fn masks_of_cpus_are_those_of_sysfs() {
        let of = |cpus: usize, cpu: usize, name: &str| {
            file(
                &machine(cpus),
                &format!("sys/devices/system/cpu/cpu{cpu}/topology/{name}"),
            )
        };
        assert_eq!(of(1, 0, "core_siblings"), "1\n");
        assert_eq!(of(2, 1, "thread_siblings"), "2\n");
        assert_eq!(of(6, 5, "core_siblings"), "3f\n");
        assert_eq!(of(6, 1, "thread_siblings"), "02\n");
        assert_eq!(of(40, 0, "core_siblings"), "ff,ffffffff\n");
        assert_eq!(of(40, 33, "thread_siblings"), "02,00000000\n");
        assert_eq!(of(64, 32, "thread_siblings"), "00000001,00000000\n");
    }

    #[test]
    fn times_are_consistent() {
        let two = machine(2);
        assert_eq!(file(&two, "proc/uptime"), "1000.00 2000.00\n");
        let stat = file(&two, "proc/stat");
        assert!(stat.contains("\nbtime 1699999000\n"), "{stat}");
        assert!(stat.starts_with("cpu  0 0 0 200000 "), "{stat}");
    }
}
