//! The memory and processor time of a server at one moment.

use std::fmt;
use std::fs;
use std::time::Duration;

use serde::Serialize;

use crate::Result;
use crate::processes::{proportional, tree};
use crate::server::Server;

/// Memory and processor time.
#[derive(Serialize)]
pub(crate) struct Load {
    /// Bytes of the front end that are resident.
    pub(crate) front_end_resident: u64,
    /// Its proportional set size in bytes.
    front_end_proportional: u64,
    processes: usize,
    /// The proportional set sizes of all processes together, in bytes.
    pub(crate) all: u64,
    /// The processor time of all of them, and of those that have ended.
    pub(crate) processor: Duration,
}

impl Load {
    pub(crate) fn of(server: &Server) -> Result<Self> {
        let tree = tree(server.pid());
        Ok(Self {
            front_end_resident: resident(server.pid())?,
            front_end_proportional: proportional(server.pid()),
            processes: tree.len(),
            all: tree.iter().map(|pid| proportional(*pid)).sum(),
            processor: tree.iter().map(|pid| processor(*pid)).sum(),
        })
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        write!(
            f,
            "front end {:.1} MB resident, {:.1} MB proportional; all {} processes {:.1} MB",
            megabytes(self.front_end_resident),
            megabytes(self.front_end_proportional),
            self.processes,
            megabytes(self.all)
        )
    }
}

fn resident(pid: u32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number.ok_or("no VmRSS")?.parse::<u64>()? << 10)
}

/// The processor time of a process and of its children that were waited for. None if it has
/// ended: then it is in its parent's.
fn processor(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name of the program, in parentheses, may have spaces.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    // utime, stime, cutime and cstime are the fields 14 to 17; what follows the name begins with 3.
    let ticks = fields.split_whitespace().skip(11).take(4);
    let ticks: u64 = ticks.filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    // USER_HZ is 100 wherever there is Linux.
    Duration::from_millis(ticks * 10)
}
