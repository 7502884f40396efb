//! The limits of a cell's cgroup: set, then read back.
//!
//! A write that fails is no error here. What counts is the value that the kernel
//! shows afterwards, and each limit that does not hold comes with its reason, so that
//! the launcher can fall back, or refuse under `--strict`.

use std::fs;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::PathBuf;

use cgroups_rs::MaxValue;
use cgroups_rs::cpu::CpuController;
use cgroups_rs::memory::MemController;
use cgroups_rs::pid::PidController;
use nix::unistd::{SysconfVar, sysconf};

use super::dir::Dir;
use super::{CgroupLimits, Controller};
use record::error::{Result, SetupError, Step};
use spec::Bytes;

/// The cell's init counts as a process and is not the program's.
pub(super) const INIT: u64 = 1;

/// The shortest quota that the kernel takes, in µs.
const QUOTA_MIN: f64 = 1000.0;
/// The usual period of `cpu.max`, in µs; and the longest, for small fractions.
const PERIODS: [u32; 2] = [100_000, 1_000_000];

/// Sets `limits` on `cell`, which has `controllers`, and returns those that hold,
/// and why the rest does not.
pub(super) fn apply(
    cell: &Dir,
    controllers: &[Controller],
    limits: &CgroupLimits,
) -> (CgroupLimits, Vec<SetupError>) {
    let cell = Limited { cell, controllers };
    let mut unenforced = Vec::new();
    // A cell needs no cgroups of its own, and without any it can be removed.
    unenforced.extend(cell.cell.write("cgroup.max.descendants", "0").err());
    unenforced.extend(cell.refuse_huge_pages());
    let mut keep = |error| unenforced.push(error);
    let held = CgroupLimits {
        memory: (limits.memory).and_then(|bytes| cell.memory(bytes).map_err(&mut keep).ok()),
        processes: (limits.processes)
            .and_then(|count| cell.processes(count).map_err(&mut keep).ok()),
        cpus: (limits.cpus).and_then(|cpus| cell.cpus(cpus).map_err(&mut keep).ok()),
    };
    if controllers.contains(&Controller::Memory) {
        // Running out kills the cell as a whole, never one process of it.
        unenforced.extend(cell.cell.write("memory.oom.group", "1").err());
    }
    (held, unenforced)
}

/// A cgroup whose limits are being set.
struct Limited<'a> {
    cell: &'a Dir,
    controllers: &'a [Controller],
}

impl Limited<'_> {
    fn memory(&self, bytes: Bytes) -> Result<Bytes> {
        const SWAP: &str = "memory.swap.max";
        let controller = MemController::new(self.path(Controller::Memory)?, true);
        let page = sysconf(SysconfVar::PAGE_SIZE)
            .ok()
            .flatten()
            .and_then(|size| u64::try_from(size).ok())
            .unwrap_or(4096);
        let rounded = bytes.0 / page * page;
        let written = controller.set_limit(i64::try_from(bytes.0).unwrap_or(i64::MAX));
        self.require("memory.max", &rounded.to_string(), written)?;
        let written = controller.set_memswap_limit(0);
        // Without swap accounting the file is missing, and only a host without swap
        // keeps the program to its limit.
        let has_no_swap =
            || fs::read_to_string("/proc/swaps").is_ok_and(|swaps| swaps.lines().count() <= 1);
        if self.cell.read(SWAP).is_ok() || !has_no_swap() {
            self.require(SWAP, "0", written)?;
        }
        Ok(Bytes(rounded))
    }

    fn processes(&self, count: u64) -> Result<u64> {
        let controller = PidController::new(self.path(Controller::Pids)?, true);
        let wanted = count.saturating_add(INIT);
        let value = MaxValue::Value(i64::try_from(wanted).unwrap_or(i64::MAX));
        let written = controller.set_pid_max(value);
        self.require("pids.max", &wanted.to_string(), written)?;
        Ok(count)
    }

    fn cpus(&self, cpus: f64) -> Result<f64> {
        let controller = CpuController::new(self.path(Controller::Cpu)?, true);
        let (quota, period) = quota(cpus).ok_or_else(|| {
            SetupError::new(
                Step::Cgroup,
                "too small a share of a CPU for the kernel, which takes 0.001 and more",
            )
            .on(cpus)
        })?;
        let written = controller.set_cfs_quota_and_period(i64::try_from(quota).ok(), Some(period));
        self.require("cpu.max", &format!("{quota} {period}"), written)?;
        #[allow(clippy::cast_precision_loss, reason = "both are far below 2^52")]
        Ok(quota as f64 / period as f64)
    }

    /// Takes huge pages away, which the memory controller does not count, where a
    /// controller for them is enabled: 0 for `hugetlb.SIZE.max`, and for
    /// reservations, so that mmap(2) fails instead of the first access.
    fn refuse_huge_pages(&self) -> Vec<SetupError> {
        let names = self.cell.names();
        names
            .iter()
            .filter(|name| name.starts_with("hugetlb.") && name.ends_with(".max"))
            .filter_map(|name| self.cell.write(name, "0").err())
            .collect()
    }

    /// The path for cgroups-rs, by the open descriptor: wherever the hierarchy is
    /// mounted, and whatever the cgroup's path leads to by now.
    fn path(&self, controller: Controller) -> Result<PathBuf> {
        if self.controllers.contains(&controller) {
            return Ok(format!("/proc/self/fd/{}", self.cell.as_fd().as_raw_fd()).into());
        }
        let name = controller.name();
        Err(SetupError::new(
            Step::Cgroup,
            format!("the {name} controller is not available here"),
        )
        .on(self.cell.path().display())
        .hint(format!(
            "have `{name}` delegated, too (systemd: Delegate=yes)"
        )))
    }

    /// Whether `file` has the `value` that was `written` to it.
    fn require(
        &self,
        file: &str,
        value: &str,
        written: cgroups_rs::error::Result<()>,
    ) -> Result<()> {
        if self.cell.read(file).is_ok_and(|held| held.trim() == value) {
            return Ok(());
        }
        let cause = written.as_ref().err().and_then(std::error::Error::source);
        let error = match cause.and_then(|cause| cause.downcast_ref::<std::io::Error>()) {
            Some(error) => SetupError::io(Step::Cgroup, "write", error),
            None => SetupError::new(Step::Cgroup, "the kernel did not take the value"),
        };
        Err(error.on(format!(
            "{} = {value}",
            self.cell.path().join(file).display()
        )))
    }
}

/// Sets `cpu.max` for `cpus`, or for no limit.
pub(super) fn set_cpus(cell: &Dir, cpus: Option<f64>) -> Result<()> {
    const CPU_MAX: &str = "cpu.max";
    let (value, shown) = match cpus.and_then(quota) {
        Some((quota, period)) => (format!("{quota} {period}"), None),
        // The period stays what it was.
        None => ("max".to_owned(), Some("max ")),
    };
    cell.write(CPU_MAX, &value)?;
    let found = cell.read(CPU_MAX)?;
    let is_set = shown.map_or(found.trim() == value, |shown| found.starts_with(shown));
    match is_set {
        true => Ok(()),
        false => Err(differs(cell, CPU_MAX, found.trim(), &value)),
    }
}

/// A limit that is not what it was set to.
pub(super) fn differs(cell: &Dir, file: &str, found: &str, wanted: &str) -> SetupError {
    let message = format!("is {found:?}, although {wanted:?} was written");
    SetupError::new(Step::Cgroup, message).on(cell.path().join(file).display())
}

/// Quota and period, in µs, that come closest to `cpus`.
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
