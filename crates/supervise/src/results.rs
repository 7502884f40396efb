//! The results of one run, as its code adds, updates and clears them.
//!
//! All of it is hostile input. What is kept is capped in number and in bytes,
//! and no frame costs more than its own length: an update waits, one for each
//! name, until the results are taken, since a thousand results may have that
//! name.

use std::collections::BTreeMap;

use super::Stream;
use super::order::Order;
use record::json::length_in_json;
use record::{ResultItem, Shown, Truncation};
use spec::Bytes;

/// Results kept of one run; what comes after them is counted.
const COUNT_CAP: usize = 1000;

/// What an empty result takes in the record.
const OVERHEAD: usize = 64;

/// Why an update is missing.
const NO_ROOM: &str = "an update was left out: there is no more room for results (--results)";

/// What is kept of a run's results.
#[derive(Debug)]
pub struct Results {
    /// The most that `bytes` may be.
    cap: usize,
    kept: Vec<Measured>,
    /// Of `kept` and of the updates.
    bytes: usize,
    left_out: u64,
    /// The names that results in `kept` have.
    updates: BTreeMap<String, Option<Update>>,
    /// A clear waits for what is shown next.
    clear_waits: bool,
    order: Order,
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

impl Default for Results {
    fn default() -> Self {
        Self::within(Bytes(0))
    }
}

impl Results {
    /// No results yet, and at most this many bytes of them, as they stand in the
    /// record.
    pub(crate) fn within(cap: Bytes) -> Self {
        Self {
            cap: usize::try_from(cap.0).unwrap_or(usize::MAX),
            kept: Vec::new(),
            bytes: 0,
            left_out: 0,
            updates: BTreeMap::new(),
            clear_waits: false,
            order: Order::default(),
        }
    }

    /// The program wrote this much to a stream.
    pub(crate) fn wrote(&mut self, stream: Stream, count: u64) {
        if self.clear_waits && count > 0 {
            self.clear_now();
        }
        if count > 0 {
            self.order.wrote(stream, count);
        }
    }

    /// Adds a result of about `size` bytes and its notes; returns it when it was kept.
    pub(crate) fn add(
        &mut self,
        item: ResultItem,
        notes: Vec<String>,
        size: usize,
    ) -> Option<&ResultItem> {
        if self.clear_waits {
            self.clear_now();
        }
        self.push(Measured::new(item, notes, size))
    }

    fn push(&mut self, item: Measured) -> Option<&ResultItem> {
        if self.kept.len() == COUNT_CAP || self.bytes + item.size > self.cap {
            self.left_out += 1;
            return None;
        }
        if let Some(id) = &item.item.display_id {
            self.updates.entry(id.clone()).or_default();
        }
        self.bytes += item.size;
        self.order.result(self.kept.len());
        self.kept.push(item);
        self.kept.last().map(|kept| &kept.item)
    }

    /// Gives the results of the item's name new forms. A name that no kept result has
    /// is ignored. Returns the forms when they were kept.
    pub(crate) fn update(
        &mut self,
        item: ResultItem,
        notes: Vec<String>,
        size: usize,
    ) -> Option<&ResultItem> {
        let id = item.display_id.as_ref();
        let update = id.and_then(|id| self.updates.get_mut(id))?;
        let old = update.as_ref().and_then(|old| old.forms.as_ref());
        self.bytes -= old.map_or(0, |old| old.size);
        let item = Measured::new(item, notes, size);
        let fits = self.bytes + item.size <= self.cap;
        self.bytes += if fits { item.size } else { 0 };
        let update = update.insert(Update {
            before: self.kept.len(),
            forms: fits.then_some(item),
        });
        update.forms.as_ref().map(|forms| &forms.item)
    }

    /// Takes back what was displayed, now or before what is shown next.
    pub(crate) fn clear(&mut self, waits: bool) {
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
        let mut order = std::mem::take(&mut self.order);
        order.clear();
        *self = Self {
            order,
            ..Self::within(Bytes(self.cap as u64))
        };
        if let Some(main) = main {
            self.push(main);
        }
    }

    /// The results in order, what was cut, and their order among the output.
    pub fn finish(mut self) -> (Vec<ResultItem>, Option<Truncation>, Vec<Shown>) {
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
        let results = self.kept.into_iter().map(|kept| kept.item).collect();
        (results, cut, self.order.finish())
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
            Some(new) if self.bytes - *size + new.size <= self.cap => {
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
    /// `size` is that of the item without the notes.
    fn new(mut item: ResultItem, notes: Vec<String>, size: usize) -> Self {
        item.notes.extend(notes);
        let notes: usize = item.notes.iter().map(|note| length_in_json(note)).sum();
        let size = OVERHEAD + size + notes;
        Self { item, size }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::json::Json;

    const CAP: usize = 64 << 20;

    fn none() -> Results {
        Results::within(Bytes(CAP as u64))
    }

    fn size(item: &ResultItem) -> usize {
        serde_json::to_string(item).unwrap().len()
    }

    impl Results {
        fn take(&mut self, item: ResultItem) {
            let size = size(&item);
            self.add(item, Vec::new(), size);
        }

        fn replace(&mut self, item: ResultItem, notes: Vec<String>) {
            let size = size(&item);
            self.update(item, notes, size);
        }
    }

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
            chart: Some(Json::of(&"x".repeat(bytes).into())),
            ..item("large", Some(id))
        }
    }

    fn texts(results: Results) -> Vec<String> {
        let (kept, ..) = results.finish();
        kept.into_iter().filter_map(|item| item.text).collect()
    }

    #[test]
    fn an_update_replaces_what_came_before_it() {
        let mut results = none();
        results.replace(item("too early", Some("a")), Vec::new());
        results.take(item("1", Some("a")));
        results.take(item("2", None));
        results.take(main("3", Some("a")));
        results.replace(item("gone", Some("a")), Vec::new());
        results.replace(item("new", Some("a")), vec!["why".to_owned()]);
        results.replace(item("nobody's", Some("b")), Vec::new());
        results.take(item("later", Some("a")));
        let (kept, cut, _) = results.finish();
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
        let mut results = none();
        results.take(item("1", None));
        results.take(main("2", Some("a")));
        results.replace(item("3", Some("a")), Vec::new());
        results.clear(false);
        results.take(item("4", None));
        results.replace(item("5", Some("a")), Vec::new());
        assert_eq!(texts(results), ["5", "4"]);
    }

    #[test]
    fn a_clear_may_wait_for_the_next_result() {
        let mut results = none();
        results.take(item("1", None));
        results.clear(true);
        assert_eq!(results.kept.len(), 1);
        results.take(item("2", None));
        results.take(item("3", None));
        assert_eq!(texts(results), ["2", "3"]);
    }

    /// As notebooks do: whatever is shown next replaces it.
    #[test]
    fn a_clear_that_waits_ends_with_output_too() {
        let mut results = none();
        results.take(item("1", None));
        results.clear(true);
        results.wrote(Stream::Stdout, 2);
        results.take(item("2", None));
        let (kept, _, order) = results.finish();
        assert_eq!(kept.len(), 1);
        let expected = [
            Shown::Clear,
            Shown::Stdout { bytes: 2 },
            Shown::Result { index: 0 },
        ];
        assert_eq!(order, expected);
    }

    #[test]
    fn what_is_too_much_is_counted() {
        let mut results = none();
        for _ in 0..COUNT_CAP + 5 {
            results.take(item("x", None));
        }
        let (kept, cut, _) = results.finish();
        let cut = cut.unwrap();
        assert_eq!((kept.len(), cut.kept, cut.total), (1000, 1000, 1005));

        let mut results = none();
        for _ in 0..9 {
            results.take(large(CAP / 8 - 1000, "a"));
        }
        let cut = results.finish().1.unwrap();
        assert_eq!((cut.kept, cut.total), (8, 9));
    }

    #[test]
    fn updates_of_many_stay_within_the_cap() {
        let mut results = none();
        for _ in 0..COUNT_CAP {
            results.take(item("x", Some("a")));
        }
        results.replace(large(CAP / 8, "a"), Vec::new());
        let (kept, ..) = results.finish();
        let bytes: usize = kept.iter().map(size).sum();
        assert!(bytes < CAP + COUNT_CAP * NO_ROOM.len(), "{bytes}");
        let updated = kept.iter().filter(|item| item.chart.is_some()).count();
        assert!((5..8).contains(&updated), "{updated}");
        assert_eq!(kept.last().unwrap().notes, [NO_ROOM]);
    }

    #[test]
    fn an_update_without_room_is_said() {
        let mut results = none();
        results.take(large(CAP / 2, "a"));
        results.replace(large(CAP / 2, "a"), Vec::new());
        results.replace(item("small", Some("a")), Vec::new());
        assert_eq!(texts(results), ["small"]);
    }
}
