//! What one call costs, counted and not timed: system calls, mounts, page faults, memory.
//!
//! The bounds are in `tests/budget.toml`. They are the same for every machine: mounts that depend on
//! the host, binds of its files and covers of its `/proc`, are counted beside them. A call is traced
//! (ptrace(2)) with all processes that are cellblock's own, until they execute another program.

#![cfg(all(target_os = "linux", target_env = "gnu"))]

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use serde::Deserialize;
use serde_json::Value;

/// A call that is above its budget is counted again: a machine that is busy makes the supervisor
/// look at the cell once more, every 20 ms.
const ATTEMPTS: usize = 8;
/// System calls of the supervisor and of init for each bind, beside its mount: one less from Linux
/// 6.15 on.
const CALLS_OF_BIND: u64 = 4;
/// Those for each bind of something in `/etc` or `/var/lib`, besides: it is looked at before, and so
/// is what leads there.
const CALLS_OF_PACKAGE: u64 = 2;

/// What one call takes.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    /// System calls of all own processes, without those counted as mounts.
    calls: u64,
    /// Calls of mount(2) and move_mount(2).
    mounts: u64,
    /// Minor page faults of the process that the caller started.
    faults: u64,
    /// Its anonymous memory at its end, in KiB: heap and stack.
    memory_kib: u64,
}

/// The most that one call may take.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Budget {
    /// The arguments.
    call: Vec<String>,
    /// Beside those for binds.
    calls: u64,
    /// Beside binds and covers of entries of `/proc`.
    mounts: u64,
    /// Of a release build.
    faults: u64,
    /// Of a release build.
    memory_kib: u64,
}

/// `CELLBLOCK_BUDGET` names an executable that was built for release; then page faults and memory
/// are bounded as well.
#[test]
fn no_call_costs_more_than_its_budget() {
    let text = fs::read_to_string("tests/budget.toml").unwrap();
    let budgets: BTreeMap<String, Budget> = toml::from_str(&text).unwrap();
    let release = std::env::var_os("CELLBLOCK_BUDGET").map(PathBuf::from);
    let own = || PathBuf::from(env!("CARGO_BIN_EXE_cellblock"));
    let executable = release.clone().unwrap_or_else(own);
    let covers = covers();
    let mut above = Vec::new();
    for (name, budget) in &budgets {
        let ([binds, packages], covers) = match budget.mounts {
            0 => ([0, 0], 0),
            _ => (binds(&executable, &budget.call), covers),
        };
        let bounds = |counted: Counted| {
            let calls = budget.calls + CALLS_OF_BIND * binds + CALLS_OF_PACKAGE * packages;
            let mounts = budget.mounts + binds + covers;
            let mut bounds = vec![
                ("system calls", counted.calls, calls),
                ("mounts", counted.mounts, mounts),
            ];
            if release.is_some() {
                bounds.push(("page faults", counted.faults, budget.faults));
                bounds.push(("KiB of memory", counted.memory_kib, budget.memory_kib));
            }
            bounds.retain(|(_, found, most)| found > most);
            bounds
        };
        let mut exceeded = Vec::new();
        for _ in 0..ATTEMPTS {
            let counted = Call::start(&executable, &budget.call)
                .unwrap()
                .count()
                .unwrap();
            println!("{name}: {counted:?}");
            exceeded = bounds(counted);
            if exceeded.is_empty() {
                break;
            }
        }
        above.extend(exceeded.into_iter().map(|(what, found, most)| {
            format!("{name}: {found} {what}, and the budget is {most}")
        }));
    }
    assert!(
        above.is_empty(),
        "a call costs more than it did:\n{}\nIf what it buys is worth that, raise the number in \
         tests/budget.toml in the same commit.",
        above.join("\n")
    );
}

/// The entries at the top of this host's `/proc` that a cell covers.
fn covers() -> u64 {
    let needs_cover = |entry: &fs::DirEntry| {
        // A process, which may be gone by now.
        if entry.file_name().as_bytes().iter().all(u8::is_ascii_digit) {
            return false;
        }
        let stat = entry.metadata().unwrap();
        // Only the host's root can open it.
        let is_closed = stat.is_file() && stat.mode() & 0o077 == 0 && stat.len() == 0;
        !stat.is_symlink() && !is_closed
    };
    let entries = fs::read_dir("/proc").unwrap().map(Result::unwrap);
    entries.filter(needs_cover).count() as u64
}

/// What this host gives a cell of that call, and how much of it is in `/etc` and `/var/lib`.
fn binds(executable: &Path, call: &[String]) -> [u64; 2] {
    let plan = Command::new(executable).arg("plan").args(call).output();
    let plan: Value = serde_json::from_slice(&plan.unwrap().stdout).unwrap();
    let mounts = plan["plan"]["mounts"].as_array().unwrap().iter();
    let targets = mounts
        .filter(|mount| mount["kind"] == "bind")
        .filter_map(|mount| mount["target"].as_str());
    let is_package = |target: &&str| target.starts_with("/etc/") || target.starts_with("/var/lib/");
    [
        targets.clone().count() as u64,
        targets.filter(is_package).count() as u64,
    ]
}

/// A call that is being traced.
struct Call {
    root: Pid,
    executable: PathBuf,
    /// Whether each process is cellblock's own.
    processes: BTreeMap<Pid, bool>,
    /// Processes that stopped before their parent reported them.
    early: Vec<Pid>,
    counted: Counted,
}

impl Call {
    fn start(executable: &Path, arguments: &[String]) -> io::Result<Self> {
        // It waits until it is traced.
        let wait = "read -r _ && exec \"$@\" </dev/null";
        let mut child = Command::new("/bin/sh")
            .args(["-c", wait, "sh"])
            .arg(executable)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        let root = Pid::from_raw(child.id() as i32);
        let options = Options::PTRACE_O_TRACESYSGOOD
            | Options::PTRACE_O_TRACEFORK
            | Options::PTRACE_O_TRACEVFORK
            | Options::PTRACE_O_TRACECLONE
            | Options::PTRACE_O_TRACEEXEC
            | Options::PTRACE_O_TRACEEXIT
            | Options::PTRACE_O_EXITKILL;
        ptrace::seize(root, options)?;
        let input = child.stdin.take();
        input.ok_or(io::ErrorKind::BrokenPipe)?.write_all(b"\n")?;
        Ok(Self {
            root,
            executable: executable.canonicalize()?,
            processes: BTreeMap::from([(root, false)]),
            early: Vec::new(),
            counted: Counted::default(),
        })
    }

    /// Follows all processes to their ends.
    fn count(mut self) -> nix::Result<Counted> {
        loop {
            match waitpid(None::<Pid>, Some(WaitPidFlag::__WALL)) {
                Ok(status) => self.follow(status)?,
                Err(Errno::ECHILD) => break,
                Err(errno) => return Err(errno),
            }
        }
        assert!(self.counted.calls > 0, "nothing was traced");
        Ok(self.counted)
    }

    fn follow(&mut self, status: WaitStatus) -> nix::Result<()> {
        match status {
            WaitStatus::PtraceSyscall(pid) => {
                self.called(pid)?;
                self.resume(pid, None);
            }
            WaitStatus::PtraceEvent(pid, _, event) => self.event(pid, event)?,
            WaitStatus::Stopped(pid, signal) => self.resume(pid, Some(signal)),
            WaitStatus::Exited(pid, status) => {
                self.processes.remove(&pid);
                assert!(pid != self.root || status == 0, "the call failed: {status}");
            }
            WaitStatus::Signaled(pid, ..) => {
                self.processes.remove(&pid);
            }
            _ => {}
        }
        Ok(())
    }

    fn event(&mut self, pid: Pid, event: i32) -> nix::Result<()> {
        match event {
            libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => {
                let child = Pid::from_raw(ptrace::getevent(pid)? as i32);
                let is_own = self.processes.get(&pid).copied().unwrap_or_default();
                self.processes.insert(child, is_own);
                if let Some(place) = self.early.iter().position(|early| *early == child) {
                    self.early.swap_remove(place);
                    self.resume(child, None);
                }
            }
            // The shell becomes cellblock, and init's child the program.
            libc::PTRACE_EVENT_EXEC => {
                let executes = fs::read_link(format!("/proc/{pid}/exe"));
                let is_own = executes.is_ok_and(|executable| executable == self.executable);
                self.processes.insert(pid, is_own);
            }
            libc::PTRACE_EVENT_EXIT if pid == self.root => self.look(pid),
            _ if !self.processes.contains_key(&pid) => {
                self.early.push(pid);
                return Ok(());
            }
            _ => {}
        }
        self.resume(pid, None);
        Ok(())
    }

    fn called(&mut self, pid: Pid) -> nix::Result<()> {
        let info = match ptrace::syscall_info(pid) {
            Err(Errno::ESRCH) => return Ok(()),
            info => info?,
        };
        if info.op != libc::PTRACE_SYSCALL_INFO_ENTRY || !self.processes[&pid] {
            return Ok(());
        }
        // SAFETY: the kernel has filled this part, as `op` says.
        let call = unsafe { info.u.entry };
        match call.nr as i64 {
            libc::SYS_mount | libc::SYS_move_mount => self.counted.mounts += 1,
            // The standard library's own check of each close, in debug builds.
            libc::SYS_fcntl if call.args[1] == libc::F_GETFD as u64 => {}
            _ => self.counted.calls += 1,
        }
        Ok(())
    }

    /// Looks at a process that is about to end.
    fn look(&mut self, pid: Pid) {
        let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap();
        let stat = read("stat");
        // After the name, which may hold spaces: state, seven more, and then the faults.
        let fields = stat.rsplit(')').next().unwrap().split_whitespace();
        self.counted.faults = fields.skip(7).flat_map(str::parse).next().unwrap();
        let status = read("status");
        let anonymous = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"));
        let anonymous = anonymous.unwrap().trim().trim_end_matches(" kB");
        self.counted.memory_kib = anonymous.parse().unwrap();
    }

    /// One that is gone needs nothing.
    fn resume(&self, pid: Pid, signal: Option<Signal>) {
        let _ = match self.processes.get(&pid) {
            Some(true) => ptrace::syscall(pid, signal),
            _ => ptrace::cont(pid, signal),
        };
    }
}
