//! The results, as a table in Markdown.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::series::{Measured, Row};
use crate::supervisor::Supervisor;

/// Name and version of the results' format.
pub(crate) const SCHEMA: &str = "cellblock.bench.launch.v2";

/// All that was measured.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) schema: String,
    pub(crate) machine: Machine,
    /// The commit of the reference.
    pub(crate) reference: String,
    pub(crate) calls: Vec<Measured>,
    pub(crate) supervisor: Supervisor,
}

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.machine)?;
        writeln!(f, "The reference is {}.\n", self.reference)?;
        writeln!(
            f,
            "| call | by | median, ms | p99, ms | CPU time, ms | by two launchers, a second | this build takes |"
        )?;
        writeln!(f, "|---|---|---|---|---|---|---|")?;
        for Measured { name, rows } in &self.calls {
            for (index, row) in rows.iter().enumerate() {
                let name = if index == 0 { name } else { "" };
                write_row(f, name, row, &rows[0])?;
            }
        }
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let of = &self.supervisor;
        writeln!(
            f,
            "\nThe supervisor's own memory is at most {:.1} MiB for `exec --json -- /bin/true`, {:.1} MiB \
             while text floods its output, {:.1} MiB on both streams, {:.1} MiB with NULs and {:.1} MiB \
             with bytes that are no text. The flood runs at {:.2} GB/s, into a pipe that is only read at \
             {:.2} GB/s.",
            mib(of.idle_bytes),
            mib(of.flood_bytes),
            mib(of.flood_both_bytes),
            mib(of.flood_nul_bytes),
            mib(of.flood_invalid_bytes),
            of.flood_rate / 1e9,
            of.pipe_rate / 1e9,
        )
    }
}

fn write_row(f: &mut fmt::Formatter<'_>, name: &str, row: &Row, this: &Row) -> fmt::Result {
    let ratio = match row.by == this.by {
        true => String::new(),
        false => format!("{:.2} ×", this.time.median / row.time.median),
    };
    let rate = match row.rate {
        0.0 => String::new(),
        rate => format!("{rate:.0}"),
    };
    writeln!(
        f,
        "| {name} | {} | {:.2} | {:.2} | {:.2} | {rate} | {ratio} |",
        row.by,
        row.time.median / 1000.0,
        row.time.p99 / 1000.0,
        row.cpu.median / 1000.0,
    )
}
