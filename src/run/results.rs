//! The results of one run, as its code adds, updates and clears them.
//!
//! All of it is hostile input. What is kept is capped in number and in bytes,
//! and no frame costs more than its own length: an update waits, one for each
//! name, until the results are taken, since a thousand results may have that
//! name.

use std::collections::HashMap;

use serde_json::Value;

use crate::record::{ResultItem, Truncation};

/// Results kept of one run; what comes after them is counted.
const COUNT_CAP: usize = 1000;
/// Bytes of them, as they stand in the record.
const BYTES_CAP: usize = 64 << 20;

/// Why an update is missing.
const NO_ROOM: &str =
    "an update was left out: the results of one run are limited to 67108864 bytes";

/// What is kept of a run's results.
#[derive(Debug, Default)]
pub(super) struct Results {
    kept: Vec<Measured>,
    /// Of `kept` and of the updates.
    bytes: usize,
    left_out: u64,
    /// The names that results in `kept` have.
    updates: HashMap<String, Option<Update>>,
    /// A clear waits for the next result.
    clear_waits: bool,
}

/// A result, and about how many bytes it takes in the record.
#[derive(Debug)]
struct Measured {
    item: ResultItem,
    size: usize,
}

/// The last forms for the results of a name.
#[derive(Debug)]
struct Update {
    /// Results from this one on came later.
    before: usize,
    /// `None` when there was no room for it.
    forms: Option<Measured>,
}

impl Results {
    /// Adds a result; gives it back when it was kept.
    pub(super) fn add(&mut self, item: ResultItem, notes: Vec<String>) -> Option<&ResultItem> {
        if self.clear_waits {
            self.clear_now();
        }
        self.push(Measured::new(item, notes))
    }

    fn push(&mut self, item: Measured) -> Option<&ResultItem> {
        if self.kept.len() == COUNT_CAP || self.bytes + item.size > BYTES_CAP {
            self.left_out += 1;
            return None;
        }
        if let Some(id) = &item.item.display_id {
            self.updates.entry(id.clone()).or_default();
        }
        self.bytes += item.size;
        self.kept.push(item);
        self.kept.last().map(|kept| &kept.item)
    }

    /// Gives the results of the item's name new forms. A name that no kept
    /// result has is nobody's. Gives the forms back when they were kept.
    pub(super) fn update(&mut self, item: ResultItem, notes: Vec<String>) -> Option<&ResultItem> {
        let id = item.display_id.as_ref();
        let update = id.and_then(|id| self.updates.get_mut(id))?;
        let old = update.as_ref().and_then(|old| old.forms.as_ref());
        self.bytes -= old.map_or(0, |old| old.size);
        let item = Measured::new(item, notes);
        let fits = self.bytes + item.size <= BYTES_CAP;
        self.bytes += if fits { item.size } else { 0 };
        let update = update.insert(Update {
            before: self.kept.len(),
            forms: fits.then_some(item),
        });
        update.forms.as_ref().map(|forms| &forms.item)
    }

    /// Takes back what was displayed, now or before the next result.
    pub(super) fn clear(&mut self, waits: bool) {
        if waits {
            self.clear_waits = true;
        } else {
            self.clear_now();
        }
    }

    /// Leaves the last main result, which is not displayed but the code's value.
    fn clear_now(&mut self) {
        let main = self.kept.iter().rposition(|kept| kept.item.is_main_result);
        let main = main.map(|at| {
            self.apply_update(at);
            self.kept.swap_remove(at)
        });
        *self = Self::default();
        if let Some(main) = main {
            self.push(main);
        }
    }

    /// The results in order, and what was cut.
    pub(super) fn finish(mut self) -> (Vec<ResultItem>, Option<Truncation>) {
        for at in 0..self.kept.len() {
            self.apply_update(at);
        }
        let kept = self.kept.len() as u64;
        let cut = (self.left_out > 0).then(|| Truncation {
            total: kept + self.left_out,
            kept,
            part: "head".into(),
            head: None,
        });
        (self.kept.into_iter().map(|kept| kept.item).collect(), cut)
    }

    fn apply_update(&mut self, at: usize) {
        let Measured { item, size } = &mut self.kept[at];
        let id = item.display_id.as_ref();
        let update = id.and_then(|id| self.updates.get(id)?.as_ref());
        let Some(update) = update.filter(|update| at < update.before) else {
            return;
        };
        match &update.forms {
            // There may be many of one name.
            Some(new) if self.bytes - *size + new.size <= BYTES_CAP => {
                self.bytes = self.bytes - *size + new.size;
                *size = new.size;
                *item = ResultItem {
                    is_main_result: item.is_main_result,
                    ..new.item.clone()
                };
            }
            _ => item.notes.push(NO_ROOM.to_owned()),
        }
    }
}

impl Measured {
    fn new(mut item: ResultItem, notes: Vec<String>) -> Self {
        item.notes.extend(notes);
        let size = size(&item);
        Self { item, size }
    }
}

fn size(item: &ResultItem) -> usize {
    let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let value = |value: &Value| {
        let written = || value.to_string().len();
        value.as_str().map_or_else(written, str::len)
    };
    let json = |json: &Option<Value>| json.as_ref().map_or(0, value);
    let formats = item
        .formats
        .iter()
        .map(|(name, form)| name.len() + value(form));
    text(&item.text)
        + text(&item.display_id)
        + json(&item.chart)
        + json(&item.data)
        + json(&item.metadata)
        + item.notes.iter().map(String::len).sum::<usize>()
        + formats.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn item(text: &str, id: Option<&str>) -> ResultItem {
        ResultItem {
            text: Some(text.to_owned()),
            display_id: id.map(str::to_owned),
            ..ResultItem::default()
        }
    }

    fn main(text: &str, id: Option<&str>) -> ResultItem {
        ResultItem {
            is_main_result: true,
            ..item(text, id)
        }
    }

    fn large(bytes: usize, id: &str) -> ResultItem {
        ResultItem {
            chart: Some(json!("x".repeat(bytes))),
            ..item("large", Some(id))
        }
    }

    fn texts(results: Results) -> Vec<String> {
        let (kept, _) = results.finish();
        kept.into_iter().filter_map(|item| item.text).collect()
    }

    #[test]
    fn an_update_replaces_what_came_before_it() {
        let mut results = Results::default();
        results.update(item("too early", Some("a")), Vec::new());
        results.add(item("1", Some("a")), Vec::new());
        results.add(item("2", None), Vec::new());
        results.add(main("3", Some("a")), Vec::new());
        results.update(item("gone", Some("a")), Vec::new());
        results.update(item("new", Some("a")), vec!["why".to_owned()]);
        results.update(item("nobody's", Some("b")), Vec::new());
        results.add(item("later", Some("a")), Vec::new());
        let (kept, cut) = results.finish();
        let shown: Vec<_> = (kept.iter())
            .map(|item| (item.text.as_deref(), item.is_main_result, item.notes.len()))
            .collect();
        let expected = [
            (Some("new"), false, 1),
            (Some("2"), false, 0),
            (Some("new"), true, 1),
            (Some("later"), false, 0),
        ];
        assert_eq!((shown.as_slice(), cut), (&expected[..], None));
    }

    #[test]
    fn a_clear_leaves_the_main_result() {
        let mut results = Results::default();
        results.add(item("1", None), Vec::new());
        results.add(main("2", Some("a")), Vec::new());
        results.update(item("3", Some("a")), Vec::new());
        results.clear(false);
        results.add(item("4", None), Vec::new());
        results.update(item("5", Some("a")), Vec::new());
        assert_eq!(texts(results), ["5", "4"]);
    }

    #[test]
    fn a_clear_may_wait_for_the_next_result() {
        let mut results = Results::default();
        results.add(item("1", None), Vec::new());
        results.clear(true);
        assert_eq!(results.kept.len(), 1);
        results.add(item("2", None), Vec::new());
        results.add(item("3", None), Vec::new());
        assert_eq!(texts(results), ["2", "3"]);
    }

    #[test]
    fn what_is_too_much_is_counted() {
        let mut results = Results::default();
        for _ in 0..COUNT_CAP + 5 {
            results.add(item("x", None), Vec::new());
        }
        let (kept, cut) = results.finish();
        let cut = cut.unwrap();
        assert_eq!((kept.len(), cut.kept, cut.total), (1000, 1000, 1005));

        let mut results = Results::default();
        for _ in 0..9 {
            results.add(large(BYTES_CAP / 8 - 1000, "a"), Vec::new());
        }
        let cut = results.finish().1.unwrap();
        assert_eq!((cut.kept, cut.total), (8, 9));
    }

    #[test]
    fn updates_of_many_stay_within_the_cap() {
        let mut results = Results::default();
        for _ in 0..COUNT_CAP {
            results.add(item("x", Some("a")), Vec::new());
        }
        results.update(large(BYTES_CAP / 8, "a"), Vec::new());
        let (kept, _) = results.finish();
        let bytes: usize = kept.iter().map(size).sum();
        assert!(bytes < BYTES_CAP + COUNT_CAP * NO_ROOM.len(), "{bytes}");
        let updated = kept.iter().filter(|item| item.chart.is_some()).count();
        assert!((5..8).contains(&updated), "{updated}");
        assert_eq!(kept.last().unwrap().notes, [NO_ROOM]);
    }

    #[test]
    fn an_update_without_room_is_said() {
        let mut results = Results::default();
        results.add(large(BYTES_CAP / 2, "a"), Vec::new());
        results.update(large(BYTES_CAP / 2, "a"), Vec::new());
        results.update(item("small", Some("a")), Vec::new());
        assert_eq!(texts(results), ["small"]);
    }
}
