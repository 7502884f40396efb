//! The limits of a cell's cgroup: set, then read back.
//!
//! A write that fails is no error here. What counts is what the kernel says
//! afterwards, and each limit that does not hold comes with its reason, so that
//! the launcher can fall back, or refuse under `--strict`.

use std::fmt;
use std::fs;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::PathBuf;

use cgroups_rs::cpu::CpuController;
use cgroups_rs::memory::MemController;
use cgroups_rs::pid::PidController;
use cgroups_rs::{Cgroup, Hierarchy, MaxValue, Subsystem};
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use nix::unistd::{SysconfVar, sysconf};

use super::dir::Dir;
use super::{Controller, Request, parse};
use crate::spec::Bytes;
use record::error::{Result, SetupError, Step};

/// The cell's init counts as a process and is not the program's.
pub(super) const INIT: u64 = 1;

/// The shortest quota that the kernel takes, in µs.
const QUOTA_MIN: f64 = 1000.0;
/// The usual period of `cpu.max`, in µs; and the longest, for small fractions.
const PERIODS: [u32; 2] = [100_000, 1_000_000];

/// What holds in the cell's cgroup: the least of its own limit, as read back, and
/// of those above it. `None` where nothing was asked for, or where the cell's own
/// does not hold.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Enforced {
    /// `memory.max`, with swap off: the request, rounded down to whole pages.
    pub memory: Option<Bytes>,
    /// `pids.max` less one for the cell's init: what the program may have.
    pub processes: Option<u64>,
    /// `cpu.max`: quota by period.
    pub cpus: Option<f64>,
}

/// Sets the limits of `cell`, which has `controllers`, and says what holds and
/// why the rest does not.
pub(super) fn apply(
    cell: &Dir,
    controllers: &[Controller],
    request: &Request<'_>,
) -> (Enforced, Vec<SetupError>) {
    let cgroup = Cgroup::load(Box::new(Opened::new(cell, controllers)), "");
    let mut unenforced = Vec::new();
    // A cell has no use for cgroups of its own, and without any it can be removed.
    unenforced.extend(cell.write("cgroup.max.descendants", "0").err());
    unenforced.extend(refuse_huge_pages(cell));
    let enforced = Enforced {
        memory: held(&mut unenforced, request.memory, |bytes| {
            memory(cell, cgroup.controller_of(), bytes)
        }),
        processes: held(&mut unenforced, request.processes, |count| {
            processes(cell, cgroup.controller_of(), count)
        }),
        cpus: held(&mut unenforced, request.cpus, |cpus| {
            cpu(cell, cgroup.controller_of(), cpus)
        }),
    };
    if controllers.contains(&Controller::Memory) {
        // Running out kills the cell as a whole, never one process of it.
        unenforced.extend(cell.write("memory.oom.group", "1").err());
    }
    (enforced, unenforced)
}

/// The value that holds; or `None`, and the reason among `unenforced`.
fn held<T>(
    unenforced: &mut Vec<SetupError>,
    asked: Option<T>,
    set: impl FnOnce(T) -> Result<T>,
) -> Option<T> {
    set(asked?).map_err(|error| unenforced.push(error)).ok()
}

fn memory(cell: &Dir, controller: Option<&MemController>, bytes: Bytes) -> Result<Bytes> {
    const MAX: &str = "memory.max";
    const SWAP: &str = "memory.swap.max";
    let controller = controller.ok_or_else(|| missing(cell, Controller::Memory))?;
    let set = controller.set_limit(i64::try_from(bytes.0).unwrap_or(i64::MAX));
    let page = sysconf(SysconfVar::PAGE_SIZE)
        .ok()
        .flatten()
        .and_then(|size| u64::try_from(size).ok())
        .unwrap_or(4096);
    let held = parse::number(&cell.read(MAX)?).filter(|held| *held == bytes.0 / page * page);
    let held = held.ok_or_else(|| refused(cell, MAX, bytes.0, set.err()))?;

    // Without swap accounting the file is missing, and only a host without swap
    // keeps the program to its limit.
    let set = controller.set_memswap_limit(0);
    let swapless = match cell.read(SWAP) {
        Ok(text) => parse::number(&text) == Some(0),
        Err(_) => fs::read_to_string("/proc/swaps").is_ok_and(|swaps| swaps.lines().count() <= 1),
    };
    if !swapless {
        return Err(refused(cell, SWAP, 0, set.err()));
    }
    Ok(Bytes(held))
}

fn processes(cell: &Dir, controller: Option<&PidController>, count: u64) -> Result<u64> {
    const MAX: &str = "pids.max";
    let controller = controller.ok_or_else(|| missing(cell, Controller::Pids))?;
    let wanted = count.saturating_add(INIT);
    let set = controller.set_pid_max(MaxValue::Value(i64::try_from(wanted).unwrap_or(i64::MAX)));
    match parse::number(&cell.read(MAX)?) {
        Some(held) if held == wanted => Ok(held - INIT),
        _ => Err(refused(cell, MAX, wanted, set.err())),
    }
}

fn cpu(cell: &Dir, controller: Option<&CpuController>, cpus: f64) -> Result<f64> {
    const MAX: &str = "cpu.max";
    let controller = controller.ok_or_else(|| missing(cell, Controller::Cpu))?;
    let (quota, period) = quota(cpus).ok_or_else(|| {
        SetupError::new(
            Step::Cgroup,
            "too small a share of a CPU for the kernel, which takes 0.001 and more",
        )
        .on(cpus)
    })?;
    let set = controller.set_cfs_quota_and_period(i64::try_from(quota).ok(), Some(period));
    match parse::cpu_max(&cell.read(MAX)?) {
        #[allow(clippy::cast_precision_loss, reason = "both are far below 2^52")]
        Some(held) if held == (quota, period) => Ok(quota as f64 / period as f64),
        _ => Err(refused(cell, MAX, format!("{quota} {period}"), set.err())),
    }
}

/// Sets `cpu.max` for `cpus`, or for no limit.
pub(super) fn set_cpus(cell: &Dir, cpus: Option<f64>) -> Result<()> {
    let value = match cpus.and_then(quota) {
        Some((quota, period)) => format!("{quota} {period}"),
        None => "max".to_owned(),
    };
    cell.write("cpu.max", &value)
}

/// Takes huge pages away, which the memory controller does not count, where a
/// controller for them is in force: 0 for `hugetlb.SIZE.max`, and for what is
/// reserved, so that mmap(2) fails instead of the first access.
fn refuse_huge_pages(cell: &Dir) -> Vec<SetupError> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let Ok(mut entries) = nix::dir::Dir::openat(cell, c".", flags, Mode::empty()) else {
        return Vec::new();
    };
    entries
        .iter()
        .filter_map(std::result::Result::ok)
        .filter_map(|entry| entry.file_name().to_str().map(str::to_owned).ok())
        .filter(|name| name.starts_with("hugetlb.") && name.ends_with(".max"))
        .filter_map(|name| cell.write(&name, "0").err())
        .collect()
}

/// Quota and period, in µs, that come closest to so many CPUs.
fn quota(cpus: f64) -> Option<(u64, u64)> {
    PERIODS.into_iter().find_map(|period| {
        let quota = (cpus * f64::from(period)).round();
        // The upper bound is the kernel's, and keeps the conversion exact.
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "within bounds by the test before it"
        )]
        (QUOTA_MIN..=1e13)
            .contains(&quota)
            .then_some((quota as u64, u64::from(period)))
    })
}

fn missing(cell: &Dir, controller: Controller) -> SetupError {
    SetupError::new(
        Step::Cgroup,
        format!("the {} controller is not available here", controller.name()),
    )
    .on(cell.path().display())
    .hint(format!(
        "have `{}` delegated, too (systemd: Delegate=yes)",
        controller.name()
    ))
}

/// A limit that was written and does not read back.
fn refused(
    cell: &Dir,
    file: &str,
    value: impl fmt::Display,
    cause: Option<cgroups_rs::error::Error>,
) -> SetupError {
    let operand = format!("{} = {value}", cell.path().join(file).display());
    cause
        .as_ref()
        .and_then(std::error::Error::source)
        .and_then(|source| source.downcast_ref::<std::io::Error>())
        .map_or_else(
            || SetupError::new(Step::Cgroup, "the kernel did not take the value"),
            |error| SetupError::io(Step::Cgroup, "write", error),
        )
        .on(operand)
}

/// A hierarchy that is just the cell's own cgroup, reached through its open
/// descriptor: wherever it is mounted, and whatever its path leads to by now.
#[derive(Clone, Debug)]
struct Opened {
    root: PathBuf,
    controllers: Vec<Controller>,
}

impl Opened {
    fn new(cell: &Dir, controllers: &[Controller]) -> Self {
        Self {
            root: format!("/proc/self/fd/{}", cell.as_fd().as_raw_fd()).into(),
            controllers: controllers.to_vec(),
        }
    }
}

impl Hierarchy for Opened {
    fn subsystems(&self) -> Vec<Subsystem> {
        let root = || self.root.clone();
        self.controllers
            .iter()
            .map(|controller| match controller {
                Controller::Cpu => Subsystem::Cpu(CpuController::new(root(), true)),
                Controller::Memory => Subsystem::Mem(MemController::new(root(), true)),
                Controller::Pids => Subsystem::Pid(PidController::new(root(), true)),
            })
            .collect()
    }

    fn root(&self) -> PathBuf {
        self.root.clone()
    }

    fn root_control_group(&self) -> Cgroup {
        Cgroup::load(Box::new(self.clone()), "")
    }

    fn parent_control_group(&self, _path: &str) -> Cgroup {
        self.root_control_group()
    }

    fn v2(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_cpus_becomes_quota_and_period() {
        for (cpus, expected) in [
            (1.0, Some((100_000, 100_000))),
            (1.5, Some((150_000, 100_000))),
            (0.01, Some((1000, 100_000))),
            (0.005, Some((5000, 1_000_000))),
            (0.001, Some((1000, 1_000_000))),
            (0.0001, None),
            (256.0, Some((25_600_000, 100_000))),
            (0.0, None),
            (-1.0, None),
            (f64::NAN, None),
            (f64::INFINITY, None),
        ] {
            assert_eq!(quota(cpus), expected, "{cpus}");
        }
    }
}
