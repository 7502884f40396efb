//! One cell's cgroup, from its making to its removal.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, OFlag};
use nix::sys::stat::mkdirat;
use nix::unistd::Pid;

use super::dir::{Dir, MODE, keyed};
use super::enclosing::{Acted, Enclosing};
use super::find::CgroupParent;
use super::limits::{self, INIT};
use super::removal::{self, dispose, start_janitor};
use super::sweep::{Claimed, claim, sweep};
use super::{CgroupLimits, CgroupSource, Controller, PREFIX};
use record::CgroupRecord;
use record::error::{Result, SetupError, Step};
use spec::Bytes;
use sys::process::CpuTime;
use sys::survivor::Survivor;

/// How long [`CellCgroup::remove`] waits for killed processes to be gone.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often a directory is made again after a sweep mistook it for a stale one.
const ATTEMPTS: u32 = 16;

/// A cell's cgroup. Dropping it kills its processes and removes it.
#[derive(Debug)]
pub struct CellCgroup {
    parent: Dir,
    dir: Dir,
    name: CString,
    below: PathBuf,
    source: CgroupSource,
    controllers: Vec<Controller>,
    /// Its own limits, as they were set.
    held: CgroupLimits,
    enclosing: Enclosing,
    enforced: CgroupLimits,
    unenforced: Vec<SetupError>,
    cpu_stat: File,
    /// `None` when it could not be made, and after the removal.
    janitor: Option<Survivor>,
    removed: bool,
    /// Marks the cell's supervisor as alive for sweeps. Another supervisor's view has none.
    _lock: Option<Flock<File>>,
}

/// What a cell used. A value is `None` where its controller is not enabled, or the
/// kernel is too old to count it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupUsage {
    /// CPU time.
    pub cpu: Option<CpuTime>,
    /// The most memory at any one time (`memory.peak`, Linux 5.19).
    pub memory_peak: Option<Bytes>,
    /// The most processes and threads at any one time, without the cell's init
    /// (`pids.peak`, Linux 6.11).
    pub processes_peak: Option<u64>,
    /// Periods in which the CPU limit held processes back.
    pub throttled_periods: Option<u64>,
    /// How long it held them back, summed over CPUs.
    pub throttled: Option<Duration>,
    /// Processes killed because memory ran out.
    pub oom_kills: Option<u64>,
    /// How often the cell was killed as a whole for that (Linux 5.17).
    pub oom_group_kills: Option<u64>,
    /// How often a fork failed at the limit on processes.
    pub forks_refused: Option<u64>,
    /// Which of the limits of enclosing cgroups acted.
    pub acted: Acted,
}

impl CgroupUsage {
    /// What was counted since `before`. Peaks stay those of the cell's whole life.
    #[must_use]
    pub fn since(self, before: &Self) -> Self {
        let count = |now: Option<u64>, before: Option<u64>| {
            now.map(|now| now.saturating_sub(before.unwrap_or(0)))
        };
        Self {
            cpu: (self.cpu).map(|now| now.saturating_sub(before.cpu.unwrap_or_default())),
            memory_peak: self.memory_peak,
            processes_peak: self.processes_peak,
            throttled_periods: count(self.throttled_periods, before.throttled_periods),
            throttled: (self.throttled)
                .map(|now| now.saturating_sub(before.throttled.unwrap_or_default())),
            oom_kills: count(self.oom_kills, before.oom_kills),
            oom_group_kills: count(self.oom_group_kills, before.oom_group_kills),
            forks_refused: count(self.forks_refused, before.forks_refused),
            acted: self.acted,
        }
    }
}

impl CellCgroup {
    /// Makes the cell's cgroup in `parent`, whose children have `controllers`, and
    /// sets its limits.
    pub(super) fn create(
        parent: &CgroupParent,
        controllers: &[Controller],
        id: &str,
        limits: &CgroupLimits,
    ) -> Result<Self> {
        let CgroupParent { below, source, .. } = parent;
        let name = format!("{PREFIX}{id}");
        let below = below.join(&name);
        let c_name = CString::new(name.as_str())
            .map_err(|_| SetupError::new(Step::Cgroup, "an id with a NUL byte").on(id))?;
        let parent = parent.dir.try_clone()?;
        // Started first, so that the directory never exists without one. If that
        // fails, a later sweep does its work.
        let janitor = start_janitor(parent.as_fd(), c_name.clone()).ok();
        let (dir, lock) = make(&parent, &name)?;
        let usable =
            habitable(&dir, controllers).and_then(|()| dir.open_file("cpu.stat", OFlag::O_RDONLY));
        let cpu_stat = usable.inspect_err(|_| {
            let _ = dispose(parent.as_fd(), &c_name, PATIENCE);
        })?;
        let (held, mut unenforced) = limits::apply(&dir, controllers, limits);
        if held.cpus.is_some() {
            // Tried, and lifted until `throttle`.
            unenforced.extend(limits::set_cpus(&dir, None).err());
        }
        let enclosing = Enclosing::above(&parent);
        let enforced = enclosing.bound(held);
        Ok(Self {
            below,
            name: c_name,
            parent,
            dir,
            source: *source,
            controllers: controllers.to_vec(),
            held,
            enclosing,
            enforced,
            unenforced,
            cpu_stat,
            janitor,
            removed: false,
            _lock: Some(lock),
        })
    }

    /// A view for another supervisor of the same cell. Dropping it has no effect on the cgroup.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn view(&self) -> Result<Self> {
        let failed = |e: io::Error| SetupError::io(Step::Cgroup, "dup", &e);
        Ok(Self {
            parent: self.parent.try_clone()?,
            dir: self.dir.reopen()?,
            name: self.name.clone(),
            below: self.below.clone(),
            source: self.source,
            controllers: self.controllers.clone(),
            held: self.held,
            enclosing: Enclosing::above(&self.parent),
            enforced: self.enforced,
            unenforced: self.unenforced.clone(),
            cpu_stat: self.cpu_stat.try_clone().map_err(failed)?,
            janitor: None,
            removed: true,
            _lock: None,
        })
    }

    /// Its descriptors.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let own = [self.parent.as_fd(), self.dir.as_fd(), self.cpu_stat.as_fd()];
        own.into_iter().chain(self.enclosing.descriptors())
    }

    /// The directory, for `CLONE_INTO_CGROUP`. Every copy that a child gets must
    /// be closed there: it holds the lock that marks the cell as alive.
    pub fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// The directory's path; for messages.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Moves a process in. What it had allocated stays charged to where it was.
    ///
    /// # Errors
    /// Writing `cgroup.procs` fails.
    pub fn take_in(&self, pid: Pid) -> Result<()> {
        self.dir.write("cgroup.procs", &pid.to_string())
    }

    /// Begins to limit the CPUs. With a hundredth of a CPU, setting a cell up would
    /// miss its deadline, so this limit begins with the program. The program may run
    /// already: the limit is a rate, which a moment without it changes little.
    ///
    /// # Errors
    /// When `cpu.max` cannot be written, as it could when the cell was made, or reads back
    /// as something else.
    pub fn throttle(&self) -> Result<()> {
        match self.held.cpus {
            Some(cpus) => limits::set_cpus(&self.dir, Some(cpus)),
            None => Ok(()),
        }
    }

    /// The limits that hold: the least of the cell's own, as read back, and of those
    /// above it. `None` where none was asked for, or the cell's own does not hold.
    pub fn enforced(&self) -> CgroupLimits {
        self.enforced
    }

    /// Why each other limit that was asked for does not hold.
    pub fn unenforced(&self) -> &[SetupError] {
        &self.unenforced
    }

    /// Checks that a process is in the cgroup, and that its limits still are what was set. The
    /// limit on CPUs is set later, and is read back then ([`Self::throttle`]).
    ///
    /// # Errors
    /// The first check that fails.
    pub fn verify(&self, process: Pid) -> Result<()> {
        const PROCESSES: &str = "cgroup.procs";
        let pid = process.to_string();
        if !self.dir.read(PROCESSES)?.lines().any(|line| line == pid) {
            let message = format!("process {pid} is not in the cell's cgroup");
            let path = self.dir.path().join(PROCESSES);
            return Err(SetupError::new(Step::Cgroup, message).on(path.display()));
        }
        let memory = self.held.memory.map(|bytes| bytes.0);
        let limits = [
            ("memory.max", memory),
            ("memory.oom.group", memory.map(|_| 1)),
            ("pids.max", self.held.processes.map(|count| count + INIT)),
            ("cgroup.max.descendants", Some(0)),
        ];
        for (file, wanted) in limits {
            let Some(wanted) = wanted.map(|number: u64| number.to_string()) else {
                continue;
            };
            let found = self.dir.read(file)?;
            if found.trim() != wanted {
                return Err(limits::differs(&self.dir, file, found.trim(), &wanted));
            }
        }
        Ok(())
    }

    /// Its entry in the record.
    pub fn record(&self) -> CgroupRecord {
        CgroupRecord {
            path: format!("/{}", self.below.display()),
            source: self.source.name().to_owned(),
            controllers: self
                .controllers
                .iter()
                .map(|c| c.name().to_owned())
                .collect(),
        }
    }

    /// Kills every process in it at once.
    ///
    /// # Errors
    /// The system call's; `ENOENT` before Linux 5.14.
    pub fn kill(&self) -> io::Result<()> {
        Ok(removal::kill(&self.dir)?)
    }

    /// CPU time so far. Cheap: one system call.
    ///
    /// # Errors
    /// When `cpu.stat` cannot be read, or holds something else.
    pub fn cpu_used(&self) -> io::Result<CpuTime> {
        cpu_time(&self.cpu_stat()?).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Bytes of memory in use, where the controller counts them.
    pub fn memory_in_use(&self) -> Option<u64> {
        self.dir.number("memory.current")
    }

    /// What the cell used; to be read before [`Self::remove`].
    pub fn usage(&self) -> CgroupUsage {
        let cpu = self.cpu_stat().unwrap_or_default();
        let read = |name| self.dir.read(name).unwrap_or_default();
        let memory = read("memory.events");
        let oom_kills = keyed(&memory, "oom_kill");
        let refused = keyed(&read("pids.events"), "max");
        let acted = self
            .enclosing
            .acted(&self.dir, oom_kills.unwrap_or(0), refused);
        CgroupUsage {
            cpu: cpu_time(&cpu),
            memory_peak: self.dir.number("memory.peak").map(Bytes),
            processes_peak: (self.dir.number("pids.peak")).map(|peak| peak.saturating_sub(INIT)),
            throttled_periods: keyed(&cpu, "nr_throttled"),
            throttled: keyed(&cpu, "throttled_usec").map(Duration::from_micros),
            oom_kills,
            oom_group_kills: keyed(&memory, "oom_group_kill"),
            forks_refused: match &acted.processes {
                // Counted there, and for others as well: at least one.
                Some(_) => refused.map(|count| count.max(1)),
                None => refused,
            },
            acted,
        }
    }

    /// Removes the cgroups beside it whose supervisors are dead.
    pub fn sweep_beside(&self) {
        sweep(&self.parent);
    }

    /// Kills its last processes, waits until they are gone and removes it.
    ///
    /// # Errors
    /// `ETIMEDOUT` when a process cannot be killed for now.
    pub fn remove(mut self) -> Result<()> {
        match self.removed {
            true => Ok(()),
            false => self.dispose(),
        }
    }

    fn dispose(&mut self) -> Result<()> {
        self.removed = true;
        let janitor = self.janitor.take();
        dispose(self.parent.as_fd(), &self.name, PATIENCE).map_err(|errno| {
            // The janitor tries again when the supervisor is gone.
            if let Some(janitor) = janitor {
                janitor.stay();
            }
            let error = SetupError::os(Step::Cgroup, "rmdir", errno).on(self.dir.path().display());
            match errno {
                Errno::ETIMEDOUT => error
                    .hint("a process in it cannot be killed for now; a later cellblock removes it"),
                _ => error,
            }
        })
    }

    fn cpu_stat(&self) -> io::Result<String> {
        let mut text = [0; 1024];
        let length = self.cpu_stat.read_at(&mut text, 0)?;
        Ok(String::from_utf8_lossy(&text[..length]).into_owned())
    }
}

impl Drop for CellCgroup {
    fn drop(&mut self) {
        if !self.removed {
            // A failure has no consequence; the removal and the sweep try again.
            let _ = self.dispose();
        }
    }
}

fn cpu_time(cpu_stat: &str) -> Option<CpuTime> {
    let time = |key| keyed(cpu_stat, key).map(Duration::from_micros);
    Some(CpuTime {
        user: time("user_usec")?,
        system: time("system_usec")?,
    })
}

/// Whether `dir` takes processes: among threaded cgroups, which never have the
/// memory controller, a new one takes none.
fn habitable(dir: &Dir, controllers: &[Controller]) -> Result<()> {
    const TYPE: &str = "cgroup.type";
    if controllers.contains(&Controller::Memory) || dir.read(TYPE)?.trim() == "domain" {
        return Ok(());
    }
    Err(SetupError::new(
        Step::Cgroup,
        "a cgroup among threaded ones takes no processes",
    )
    .on(dir.path().join(TYPE).display())
    .hint("start cellblock in a cgroup of type `domain`"))
}

/// Makes and locks the directory `name`. Between the two a sweep can lock it, and
/// will remove it; then it is made again.
fn make(parent: &Dir, name: &str) -> Result<Claimed> {
    for attempt in 0..ATTEMPTS {
        match mkdirat(parent, name, MODE) {
            Ok(()) => {}
            // The sweep may not have removed it yet.
            Err(Errno::EEXIST) if attempt > 0 => {}
            Err(errno) => return Err(parent.error("mkdirat", name, errno)),
        }
        match claim(parent, name)? {
            Some(claimed) => return Ok(claimed),
            // Let the sweep finish.
            None => thread::sleep(Duration::from_millis(1)),
        }
    }
    Err(
        SetupError::new(Step::Cgroup, format!("a sweep removed it {ATTEMPTS} times"))
            .on(parent.path().join(name).display()),
    )
}
