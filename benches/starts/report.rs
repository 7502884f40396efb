//! The figures, and how they compare.

use std::fmt::Write as _;

use serde::Serialize;

use crate::machine::Machine;
use crate::memory::Idle;
use crate::rows::{Base, Row};
use crate::stats::{Summary, median};
use crate::sustained::Sustained;

/// What is written.
#[derive(Serialize)]
pub(crate) struct Results {
    schema: &'static str,
    machine: Machine,
    rows: Vec<Measured>,
    pub(crate) idle: Vec<Idle>,
    pub(crate) sustained: Option<Sustained>,
}

/// One row. Times are in microseconds.
#[derive(Serialize)]
struct Measured {
    name: &'static str,
    about: &'static str,
    time: Summary,
    /// What it is compared with, and by how much it is longer.
    base: Option<&'static str>,
    median_ratio: Option<f64>,
    p99_ratio: Option<f64>,
    median_goal: Option<f64>,
    p99_goal: Option<f64>,
}

impl Results {
    pub(crate) fn of(machine: Machine, series: Vec<(&'static Row, Vec<f64>)>) -> Self {
        let base = |(row, times): &(&Row, Vec<f64>)| Some((row.measures?, median(times.clone())));
        let bases: Vec<(Base, f64)> = series.iter().filter_map(base).collect();
        let median_of = |wanted: Base| {
            let found = bases.iter().find(|(base, _)| *base == wanted);
            found.map(|(_, median)| *median)
        };
        let summaries: Vec<_> = (series.into_iter())
            .filter(|(_, times)| !times.is_empty())
            .map(|(row, times)| (row, Summary::of(times)))
            .collect();
        let measured = |(row, time): &(&'static Row, Summary)| {
            let base = row.against.and_then(median_of);
            Measured {
                name: row.name,
                about: row.about,
                time: time.clone(),
                base: row.against.map(Base::name),
                median_ratio: base.map(|base| time.median / base),
                p99_ratio: base.map(|base| time.p99 / base),
                median_goal: row.goal.map(|(median, _)| median),
                p99_goal: row.goal.and_then(|(_, p99)| p99),
            }
        };
        Self {
            schema: "cellblock.bench.starts.v1",
            machine,
            rows: summaries.iter().map(measured).collect(),
            idle: Vec::new(),
            sustained: None,
        }
    }

    /// The table of docs/PERFORMANCE.md.
    pub(crate) fn table(&self) -> String {
        let mut table =
            String::from("\n| | median | p99 | ratio | goal | |\n|---|---:|---:|---:|---:|---|\n");
        for row in &self.rows {
            let millis = |micros: f64| format!("{:.2} ms", micros / 1000.0);
            let base = row.base.unwrap_or_default();
            let times = |ratio: Option<f64>| {
                ratio.map_or_else(String::new, |ratio| format!("{ratio:.2} {base}"))
            };
            let mut goal = times(row.median_goal);
            let mut ratio = times(row.median_ratio);
            if let (Some(p99_goal), Some(p99)) = (row.p99_goal, row.p99_ratio) {
                let _ = write!(goal, ", p99 {p99_goal:.2}");
                let _ = write!(ratio, ", p99 {p99:.2}");
            }
            let verdict = match (row.is_met(row.median_ratio, row.median_goal))
                .zip(row.is_met(row.p99_ratio, row.p99_goal).or(Some(true)))
            {
                Some((true, true)) => "met",
                Some(_) => "missed",
                None => "",
            };
            let _ = writeln!(
                table,
                "| {} | {} | {} | {ratio} | {goal} | {verdict} |",
                row.about,
                millis(row.time.median),
                millis(row.time.p99),
            );
        }
        table.extend(self.sustained.iter().map(Sustained::line));
        table.extend(self.idle.iter().map(Idle::line));
        table
    }
}

impl Measured {
    fn is_met(&self, ratio: Option<f64>, goal: Option<f64>) -> Option<bool> {
        Some(ratio? <= goal?)
    }
}
