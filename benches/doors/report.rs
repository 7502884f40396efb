//! The figures, and how they compare.

use std::fmt::Write as _;

use serde::Serialize;

use crate::hostile::Hostile;
use crate::machine::Machine;
use crate::many::Many;
use crate::rows::Row;
use crate::stats::Summary;
use crate::sustained::Sustained;

/// What is written.
#[derive(Serialize)]
pub(crate) struct Results {
    schema: &'static str,
    machine: Machine,
    rows: Vec<Measured>,
    pub(crate) sustained: Option<Sustained>,
    pub(crate) many: Option<Many>,
    pub(crate) hostile: Option<Hostile>,
}

/// One row. Times are in microseconds.
#[derive(Serialize)]
struct Measured {
    name: &'static str,
    about: &'static str,
    time: Summary,
    /// The ratios of the median and of the 99th percentile to P's median.
    median_ratio: f64,
    p99_ratio: f64,
    goal: Option<f64>,
}

impl Results {
    /// Of series of times; the first is P's.
    pub(crate) fn of(machine: Machine, series: Vec<(&'static Row, Vec<f64>)>) -> Self {
        let summary = |(row, times): (_, Vec<f64>)| (row, Summary::of(times));
        let summaries: Vec<(&Row, _)> = series.into_iter().map(summary).collect();
        let base = summaries.first().map_or(f64::NAN, |(_, time)| time.median);
        let measured = |(row, time): (&'static Row, Summary)| Measured {
            name: row.name,
            about: row.about,
            median_ratio: time.median / base,
            p99_ratio: time.p99 / base,
            goal: row.goal,
            time,
        };
        Self {
            schema: "cellblock.bench.doors.v1",
            machine,
            rows: summaries.into_iter().map(measured).collect(),
            sustained: None,
            many: None,
            hostile: None,
        }
    }

    /// The tables of docs/PERFORMANCE.md.
    pub(crate) fn tables(&self) -> String {
        let mut table = match self.rows.is_empty() {
            true => String::new(),
            false => {
                "\n| | median | p99 | ratio | p99 | goal | |\n|---|---:|---:|---:|---:|---:|---|\n"
                    .to_owned()
            }
        };
        for row in &self.rows {
            let goal = match row.goal {
                None => " | ".to_owned(),
                Some(goal) if row.median_ratio <= goal => format!("{goal:.2} P | met"),
                Some(goal) => format!("{goal:.2} P | missed"),
            };
            let _ = writeln!(
                table,
                "| {} | {:.2} ms | {:.2} ms | {:.2} P | {:.2} P | {goal} |",
                row.about,
                row.time.median / 1e3,
                row.time.p99 / 1e3,
                row.median_ratio,
                row.p99_ratio,
            );
        }
        table.extend(self.sustained.iter().map(Sustained::table));
        table.extend(self.many.iter().map(Many::table));
        table.extend(self.hostile.iter().map(Hostile::table));
        table
    }
}
