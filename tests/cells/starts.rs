//! How the cells of the tests were started, by their records: a cell that cannot be
//! started in the way in question is started in one go, and shows nothing about that way.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use record::Record;
use serde::{Deserialize, Serialize};

use super::start::Start;

/// The words of a record's warning before the reason why a cell was started in one go.
const REASONS: [&str; 2] = [
    "the cell was started without a template: ",
    "the cell has the state of no other one: ",
];
/// The words of the warning that each cell has whose state can be another one's.
const FIXED: &str = "is laid out without randomisation";

/// Counts of cells.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Starts {
    /// By the way in which they were started.
    cells: BTreeMap<String, usize>,
    /// Those that were started in one go, by the reason.
    reasons: BTreeMap<String, usize>,
    /// The tests with cells none of which was started in the way in question.
    without: BTreeSet<String>,
}

thread_local! {
    /// The cells of the test that runs: each with its start, and why it was made in one go.
    static CELLS: RefCell<Vec<(String, Option<String>)>> = const { RefCell::new(Vec::new()) };
}

/// Notes how the cell of a record was started.
pub(super) fn note(record: &Record) {
    let Some(start) = record.start else { return };
    let reason = record.warnings.iter().find_map(|warning| {
        let reason = REASONS.iter().find_map(|words| warning.strip_prefix(words));
        reason.map(str::to_owned)
    });
    let is_fixed = record
        .warnings
        .iter()
        .any(|warning| warning.contains(FIXED));
    let name = match (is_fixed, &reason) {
        (true, None) => Start::Carried.name().to_owned(),
        _ => format!("{start:?}").to_lowercase(),
    };
    CELLS.with_borrow_mut(|cells| cells.push((name, reason)));
}

impl Starts {
    /// Ends a test: its cells count.
    pub(super) fn end_of(&mut self, test: &str, wanted: Start) {
        let cells = CELLS.take();
        let is_as_wanted = |(name, _): &(String, _)| name == wanted.name();
        if !cells.is_empty() && !cells.iter().any(is_as_wanted) {
            self.without.insert(test.to_owned());
        }
        for (name, reason) in cells {
            *self.cells.entry(name).or_default() += 1;
            if let Some(reason) = reason {
                *self.reasons.entry(reason).or_default() += 1;
            }
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        for (name, count) in other.cells {
            *self.cells.entry(name).or_default() += count;
        }
        for (reason, count) in other.reasons {
            *self.reasons.entry(reason).or_default() += count;
        }
        self.without.extend(other.without);
    }

    /// The number of cells that were started in this way.
    pub(super) fn count(&self, start: Start) -> usize {
        self.cells.get(start.name()).copied().unwrap_or(0)
    }

    pub(super) fn print(&self, wanted: Start) {
        let cells = self
            .cells
            .iter()
            .map(|(name, count)| format!("{count} {name}"));
        println!("cells: {}", cells.collect::<Vec<_>>().join(", "));
        if wanted == Start::Cold {
            return;
        }
        for (reason, count) in &self.reasons {
            println!("{count} cells were started in one go: {reason}");
        }
        let without: Vec<&str> = self.without.iter().map(String::as_str).collect();
        println!(
            "not with --start {}: {} tests, none of whose cells can be started so: {}",
            wanted.name(),
            without.len(),
            without.join(" ")
        );
    }
}
