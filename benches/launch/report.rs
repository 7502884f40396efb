//! The results: as a table, and as JSON that a later run is compared with.

use std::fmt::{self, Write as _};
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::chart::chart;
use crate::machine::Machine;
use crate::series::{Launch, PerSecond, RunAdds, Steps, Supervisor};
use crate::subjects::{BWRAP, BWRAP_FEW, CELLBLOCK, CRUN, RUNC};

/// Name and version of the results' format.
pub(crate) const SCHEMA: &str = "cellblock.bench.launch.v1";

/// All that was measured.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) schema: String,
    pub(crate) machine: Machine,
    pub(crate) launch: Vec<Launch>,
    pub(crate) per_second: Vec<PerSecond>,
    pub(crate) run: RunAdds,
    pub(crate) supervisor: Supervisor,
}

/// A figure to compare, most with a target.
struct Goal {
    name: &'static str,
    got: f64,
    bound: Bound,
    unit: &'static str,
}

enum Bound {
    AtMost(f64),
    AtLeast(f64),
    /// For information only.
    None,
}

impl Goal {
    fn verdict(&self) -> String {
        let (sign, bound, met) = match self.bound {
            Bound::AtMost(bound) => ('≤', bound, self.got <= bound),
            Bound::AtLeast(bound) => ('≥', bound, self.got >= bound),
            Bound::None => return String::new(),
        };
        format!("{sign} {bound} {}", if met { "met" } else { "MISSED" })
    }
}

impl Results {
    /// Earlier results, if there are any in this format.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        let results: Self = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
        (results.schema == SCHEMA).then_some(results)
    }

    /// The median of `other` in those of `name`, in this run.
    fn ratio(&self, name: &str, other: &str) -> Option<f64> {
        let median = |name| Some(self.launch.iter().find(|l| l.name == name)?.time.median);
        Some(median(name)? / median(other)?)
    }

    fn goals(&self) -> Vec<Goal> {
        let mut goals = Vec::new();
        let mut add = |name, got: Option<f64>, bound, unit| {
            goals.extend(got.map(|got| Goal {
                name,
                got,
                bound,
                unit,
            }));
        };
        let at_most = Bound::AtMost;
        let at_least = Bound::AtLeast;
        let mib = |bytes: u64| Some(bytes as f64 / f64::from(1 << 20));
        add(
            "exec / bwrap, the same mounts",
            self.ratio(CELLBLOCK, BWRAP),
            at_most(0.8),
            "",
        );
        add(
            "exec / bwrap, few mounts",
            self.ratio(CELLBLOCK, BWRAP_FEW),
            Bound::None,
            "",
        );
        add(
            "crun / exec",
            self.ratio(CRUN, CELLBLOCK),
            at_least(5.0),
            "",
        );
        add(
            "runc / exec",
            self.ratio(RUNC, CELLBLOCK),
            at_least(10.0),
            "",
        );
        add("run adds", Some(self.run.adds / 1000.0), at_most(2.5), "ms");
        let supervisor = &self.supervisor;
        for (name, bytes) in [
            ("supervisor's memory, idle", supervisor.idle_bytes),
            ("supervisor's memory, flooded", supervisor.flood_bytes),
            ("the same, on both streams", supervisor.flood_both_bytes),
            ("the same, by NULs", supervisor.flood_nul_bytes),
            ("the same, by no text", supervisor.flood_invalid_bytes),
        ] {
            add(name, mib(bytes), at_most(4.0), "MiB");
        }
        let flood = supervisor.flood_rate / 1e9;
        add("flood", Some(flood), at_least(1.0), "GB/s");
        goals
    }

    pub(crate) fn table(&self, earlier: Option<&Self>) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.write_table(&mut text, earlier);
        text
    }

    fn write_table(&self, out: &mut String, earlier: Option<&Self>) -> fmt::Result {
        write!(out, "{}", self.machine)?;
        self.write_launches(out)?;
        writeln!(out, "\n{}", chart(&self.launch))?;
        writeln!(out, "launches per second   one   two launchers at once")?;
        for rate in &self.per_second {
            writeln!(
                out,
                "  {:<15} {:>7.0} {:>7.0}",
                rate.name, rate.one, rate.two
            )?;
        }
        if let Some(steps) = self.launch.iter().find_map(|l| l.steps.as_ref()) {
            writeln!(out, "\nexec, by its records, medians in µs")?;
            write_steps(out, steps)?;
        }
        let run = &self.run;
        writeln!(
            out,
            "\npython3 -I -c 'print(1)'  {:.2} ms, run --json {:.2} ms, adds {:.2} ms; µs",
            run.interpreter.median / 1000.0,
            run.run.median / 1000.0,
            run.adds / 1000.0
        )?;
        write_steps(out, &run.steps)?;
        writeln!(
            out,
            "\na pipe that is only read: {:.2} GB/s",
            self.supervisor.pipe_rate / 1e9
        )?;
        self.write_goals(out, earlier)
    }

    fn write_launches(&self, out: &mut String) -> fmt::Result {
        writeln!(
            out,
            "\n/bin/true, µs    median     p10     p99     min    runs"
        )?;
        for launch in &self.launch {
            let time = &launch.time;
            writeln!(
                out,
                "  {:<13} {:>8.0} {:>7.0} {:>7.0} {:>7.0} {:>7}  {}",
                launch.name, time.median, time.p10, time.p99, time.min, time.runs, launch.about
            )?;
        }
        Ok(())
    }

    fn write_goals(&self, out: &mut String, earlier: Option<&Self>) -> fmt::Result {
        writeln!(
            out,
            "\n  {:<31} {:>7} {:<5} {:>7}  goal",
            "", "now", "", "before"
        )?;
        let before = earlier.map(Self::goals).unwrap_or_default();
        for goal in self.goals() {
            let was = before.iter().find(|was| was.name == goal.name);
            let was = was.map_or_else(|| "-".to_owned(), |was| format!("{:.2}", was.got));
            writeln!(
                out,
                "  {:<31} {:>7.2} {:<5} {was:>7}  {}",
                goal.name,
                goal.got,
                goal.unit,
                goal.verdict()
            )?;
        }
        Ok(())
    }
}

fn write_steps(out: &mut String, steps: &Steps) -> fmt::Result {
    write!(out, "  setup {:.0}", steps.setup)?;
    if let Some(interpreter) = steps.interpreter {
        write!(out, ", interpreter {interpreter:.0}")?;
    }
    writeln!(
        out,
        ", code {:.0}, teardown {:.0}",
        steps.code, steps.teardown
    )?;
    let mut by_cost: Vec<(&String, f64)> = steps.steps.iter().map(|(n, v)| (n, *v)).collect();
    by_cost.sort_by(|a, b| b.1.total_cmp(&a.1));
    let words: Vec<String> = by_cost.iter().map(|(n, v)| format!("{n} {v:.0}")).collect();
    for line in words.chunks(7) {
        writeln!(out, "  {}", line.join(", "))?;
    }
    Ok(())
}
