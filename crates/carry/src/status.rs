//! What `/proc` says of a process, besides its memory and descriptors.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;

use nix::errno::Errno;
use nix::unistd::Pid;

use super::refusal::Refusal;

/// The longest file of `/proc` that is read here.
const LONGEST: u64 = 64 << 10;

/// Fields of `/proc/PID/status` (proc_pid_status(5)).
#[derive(Debug)]
pub(super) struct Status {
    threads: u64,
    pub(super) umask: u32,
    pending: u64,
    pub(super) ignored: u64,
    pub(super) caught: u64,
    /// Filters of seccomp(2); 0 before Linux 5.9, which does not say.
    pub(super) filters: u64,
    has_shadow_stack: bool,
}

impl Status {
    pub(super) fn of(pid: Pid) -> Result<Self, Refusal> {
        let text = read(pid, "status")?;
        let fields: BTreeMap<&str, &str> = (text.lines())
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name, value.trim()))
            .collect();
        let number = |name: &str, radix: u32| {
            let value = fields.get(name)?;
            u64::from_str_radix(value, radix).ok()
        };
        let needed = |name: &'static str, radix: u32| {
            number(name, radix).ok_or(Refusal::System("read", Errno::ENODATA))
        };
        let features = fields.get("x86_Thread_features");
        Ok(Self {
            threads: needed("Threads", 10)?,
            umask: needed("Umask", 8)? as u32,
            pending: needed("SigPnd", 16)? | needed("ShdPnd", 16)?,
            ignored: needed("SigIgn", 16)?,
            caught: needed("SigCgt", 16)?,
            filters: number("Seccomp_filters", 10).unwrap_or(0),
            has_shadow_stack: features.is_some_and(|names| names.contains("shstk")),
        })
    }

    /// Refuses what is not in the process's own memory and cannot be carried.
    pub(super) fn refuse_unfit(&self, pid: Pid) -> Result<(), Refusal> {
        const TRAP: u64 = 1 << (libc::SIGTRAP - 1);
        if is_undumpable(pid) {
            return Err(Refusal::Undumpable);
        }
        if self.threads != 1 {
            return Err(Refusal::Threads(self.threads));
        }
        if self.pending != 0 {
            return Err(Refusal::Signal);
        }
        // Making a call would set an ignored SIGTRAP back to its default.
        if self.ignored & TRAP != 0 {
            return Err(Refusal::Confined);
        }
        if self.has_shadow_stack {
            return Err(Refusal::Machine);
        }
        // Absent on kernels that have no such timers.
        match read(pid, "timers") {
            Ok(timers) if timers.is_empty() => Ok(()),
            Ok(_) => Err(Refusal::Timers),
            Err(Refusal::System(_, Errno::ENOENT)) => Ok(()),
            Err(refusal) => Err(refusal),
        }
    }
}

/// Whether the process is not dumpable (prctl(2)): then its files do not have its owner.
pub(super) fn is_undumpable(pid: Pid) -> bool {
    let owner = |name: &str| fs::metadata(format!("/proc/{pid}{name}")).map(|file| file.uid());
    matches!((owner(""), owner("/status")), (Ok(of_process), Ok(of_file)) if of_process != of_file)
}

/// Whether the process has executed a program since it was forked.
pub(super) fn has_executed(pid: Pid) -> bool {
    /// In the flags of proc_pid_stat(5).
    const PF_FORKNOEXEC: u64 = 1 << 6;
    let stat = read(pid, "stat").unwrap_or_default();
    // The name in parentheses may contain anything.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let flags = fields
        .split_whitespace()
        .nth(6)
        .and_then(|flags| flags.parse().ok());
    flags.is_some_and(|flags: u64| flags & PF_FORKNOEXEC == 0)
}

/// Refuses when the process has children, or its pid namespace has other processes: they
/// all descend from its init.
pub(super) fn refuse_others(pid: Pid, init: Option<Pid>) -> Result<(), Refusal> {
    if !children(pid)?.is_empty() {
        return Err(Refusal::Processes);
    }
    match init {
        Some(init) if children(init)? != [pid] => Err(Refusal::Processes),
        _ => Ok(()),
    }
}

fn children(pid: Pid) -> Result<Vec<Pid>, Refusal> {
    let text = match read(pid, &format!("task/{pid}/children")) {
        // A kernel without CONFIG_PROC_CHILDREN.
        Err(Refusal::System(_, Errno::ENOENT)) => return children_by_parent(pid),
        text => text?,
    };
    let pids = text.split_whitespace().filter_map(|pid| pid.parse().ok());
    Ok(pids.map(Pid::from_raw).collect())
}

/// The same from the parents of all processes.
fn children_by_parent(parent: Pid) -> Result<Vec<Pid>, Refusal> {
    let failed = |_| Refusal::System("readdir", Errno::EIO);
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let pid = Pid::from_raw(pid);
        // The name in parentheses may contain anything.
        let stat = read(pid, "stat").unwrap_or_default();
        let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        if fields.split_whitespace().nth(1) == Some(parent.to_string().as_str()) {
            found.push(pid);
        }
    }
    Ok(found)
}

/// Reads a file of the process's directory; what is not UTF-8 is replaced.
pub(super) fn read(pid: Pid, name: &str) -> Result<String, Refusal> {
    match read_start(pid, name)? {
        text if text.len() as u64 > LONGEST => Err(Refusal::TooMuch {
            what: "bytes in a file of /proc",
            most: LONGEST,
        }),
        text => Ok(text),
    }
}

/// Reads no more than the start of such a file.
pub(super) fn read_start(pid: Pid, name: &str) -> Result<String, Refusal> {
    let mut text = Vec::new();
    let opened = fs::File::open(format!("/proc/{pid}/{name}"));
    let read = opened.and_then(|file| file.take(LONGEST + 1).read_to_end(&mut text));
    match read {
        Ok(_) => Ok(String::from_utf8_lossy(&text).into_owned()),
        Err(error) => {
            let errno = error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
            Err(match errno {
                Errno::ESRCH => Refusal::Gone,
                errno => Refusal::System("read", errno),
            })
        }
    }
}
