//! Which CPUs a cell is bound to where no cgroup limits it.
//!
//! Every cell should get the CPUs that the fewest other cells hold, without a daemon
//! and without state that outlives a supervisor. An abstract Unix socket (unix(7)) is
//! such a claim: of all processes in a network namespace only one can bind a name, and
//! the kernel frees the name when the last descriptor is closed, however its holder
//! ended. A claim is
//! `cellblock-cpu-CPU-LEVEL`: a CPU that has `n` cells already gives its next
//! cell level `n`. Anyone may bind such a name, or be in another network
//! namespace; cells are then spread less evenly, and nothing worse.

use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, bind, socket};

use record::error::{Result, SetupError, Step};
use sys::process::allowed_cpus;

/// The most cells of one CPU that are counted; a bind is tried for each.
const LEVELS: usize = 16;

/// The CPUs of one cell.
#[derive(Debug)]
pub struct CpuShare {
    cpus: Vec<usize>,
    /// Held as long as the cell is.
    _claims: Vec<OwnedFd>,
}

impl CpuShare {
    /// Takes `wanted` of the CPUs that this process may use, or all of them if there
    /// are fewer: those with the fewest cells, beginning with the one that this process
    /// runs on, which the scheduler has just chosen for it.
    ///
    /// # Errors
    /// That of sched_getaffinity(2).
    pub(crate) fn take(wanted: usize) -> Result<Self> {
        let allowed =
            allowed_cpus().map_err(|e| SetupError::os(Step::Clone, "sched_getaffinity", e))?;
        let here = nix::sched::sched_getcpu().unwrap_or(0);
        let first = allowed.iter().position(|cpu| *cpu >= here).unwrap_or(0);
        let order: Vec<usize> = [&allowed[first..], &allowed[..first]].concat();
        Ok(Self::among(&order, wanted.max(1)))
    }

    fn among(order: &[usize], wanted: usize) -> Self {
        let (mut cpus, mut claims) = (Vec::new(), Vec::new());
        if wanted < order.len() {
            for (cpu, level) in (0..LEVELS).flat_map(|l| order.iter().map(move |cpu| (*cpu, l))) {
                if cpus.len() == wanted {
                    break;
                }
                if !cpus.contains(&cpu)
                    && let Ok(claim) = claim(cpu, level)
                {
                    cpus.push(cpu);
                    claims.push(claim);
                }
            }
        }
        // All CPUs are wanted, or all claims are taken, and one cell more makes no
        // difference.
        let others = order.iter().filter(|cpu| !cpus.contains(cpu));
        let missing: Vec<usize> = others.copied().take(wanted - cpus.len()).collect();
        cpus.extend(missing);
        cpus.sort_unstable();
        Self {
            cpus,
            _claims: claims,
        }
    }

    /// Their numbers, in rising order.
    pub fn cpus(&self) -> &[usize] {
        &self.cpus
    }
}

fn claim(cpu: usize, level: usize) -> nix::Result<OwnedFd> {
    let name = format!("cellblock-cpu-{cpu}-{level}");
    let claim = socket(
        AddressFamily::Unix,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    bind(claim.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes())?)?;
    Ok(claim)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that no machine has, so that cells that run meanwhile do not interfere.
    const CPUS: [usize; 3] = [70_001, 70_002, 70_003];

    #[test]
    fn cells_are_spread_and_leave_nothing() {
        let one = || CpuShare::among(&CPUS, 1);
        let cells = [one(), one(), one()];
        let mut taken: Vec<usize> = cells.iter().flat_map(|cell| cell.cpus().to_vec()).collect();
        taken.sort_unstable();
        assert_eq!(taken, CPUS);
        let [first, _second, _third] = cells;
        let two = CpuShare::among(&CPUS, 2);
        assert_eq!(two.cpus(), &CPUS[..2], "the next level");
        drop(first);
        assert_eq!(one().cpus(), &CPUS[..1], "what was freed");
        assert_eq!(CpuShare::among(&CPUS, 99).cpus(), CPUS);
        let crowd: Vec<CpuShare> = (0..LEVELS * 3 + 5).map(|_| one()).collect();
        assert!(crowd.iter().all(|cell| cell.cpus().len() == 1));
    }
}
