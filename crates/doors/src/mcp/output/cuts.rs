//! What of a record is shortened for an answer, and the names of the fields that are.

use std::collections::BTreeSet;

use record::stream::Text;
use record::words::{ends, readable};
use record::{CodeError, Record};

use super::{ENTRIES, Raised, Shown};

/// Bytes of a stream, of a result's text, and of all these texts.
const STREAM: usize = 10_000;
const TEXT: usize = 4_000;
const TEXTS: usize = 16_000;

/// The names of the fields that are not complete: in the record already, or in the answer only.
pub(super) struct Cuts<'a>(BTreeSet<&'a str>);

impl<'a> Cuts<'a> {
    /// Those of the record.
    pub(super) fn of(record: &'a Record) -> Self {
        Self(record.truncated.keys().map(String::as_str).collect())
    }

    pub(super) fn names(self) -> Vec<&'a str> {
        self.0.into_iter().collect()
    }

    /// Notes the lists of which an answer has only the first entries.
    pub(super) fn note_lists(&mut self, record: &Record) {
        let lengths = [
            ("files", record.files.len()),
            ("denied", record.denied.len()),
        ];
        let long = lengths.into_iter().filter(|(_, length)| *length > ENTRIES);
        self.0.extend(long.map(|(name, _)| name));
    }

    pub(super) fn stream(&mut self, name: &'static str, text: Option<&Text>) -> String {
        text.map_or_else(String::new, |text| {
            self.shortened(name, &text.to_string(), STREAM)
        })
    }

    /// The results, and the text of the main one.
    pub(super) fn results(&mut self, record: &Record) -> (Vec<Shown>, Option<String>) {
        let mut room = TEXTS;
        let mut results = Vec::new();
        let mut value = None;
        for item in record.results.iter().take(ENTRIES) {
            let text = readable(item).or(item.text.as_deref());
            let shown = text.map(|text| self.shortened("results", text, TEXT.min(room)));
            room = room.saturating_sub(shown.as_deref().map_or(0, str::len));
            if item.is_main_result {
                if shown.as_deref() != text {
                    self.0.insert("value");
                }
                value.clone_from(&shown);
            }
            results.push(Shown {
                is_main_result: item.is_main_result,
                text: shown,
                media_types: item.formats.keys().cloned().collect(),
            });
        }
        if record.results.len() > ENTRIES {
            self.0.insert("results");
        }
        (results, value)
    }

    pub(super) fn raised<'e>(&mut self, error: &'e CodeError) -> Raised<'e> {
        Raised {
            name: &error.name,
            message: self.shortened("error", &error.message, TEXT),
            line: error.line,
        }
    }

    /// The text; without its middle if it is long.
    fn shortened(&mut self, name: &'static str, text: &str, most: usize) -> String {
        match ends(text, most) {
            Some((head, gap, tail)) => {
                self.0.insert(name);
                format!("{head}[… {gap} left out …]{tail}")
            }
            None => text.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use record::{Denied, FileChange, ResultItem};
    use serde_json::{Value, json};

    use super::*;

    fn names(record: &Record) -> Vec<&str> {
        let mut cuts = Cuts::of(record);
        cuts.note_lists(record);
        let _ = cuts.results(record);
        let _ = cuts.stream("stdout", record.stdout.as_ref());
        let _ = record.error.as_ref().map(|error| cuts.raised(error));
        cuts.names()
    }

    #[test]
    fn every_cut_has_its_name() {
        let long = "x".repeat(STREAM + 1);
        let result = |text: &str| ResultItem {
            is_main_result: true,
            text: Some(text.to_owned()),
            ..ResultItem::default()
        };
        let mut record = Record {
            stdout: Some(Text::from("x".repeat(STREAM))),
            results: vec![result("x")],
            ..Record::default()
        };
        assert!(names(&record).is_empty());
        record.stdout = Some(Text::from(long.clone()));
        assert_eq!(names(&record), ["stdout"]);
        record.results = vec![result(&long)];
        record.error = Some(CodeError {
            message: long,
            ..CodeError::default()
        });
        let denied = json!({"kind": "syscall", "name": "x", "count": 1, "action": "EPERM"});
        let file = json!({"path": "x", "change": "created"});
        let many = |entry: Value| json!(vec![entry; ENTRIES + 1]);
        record.files = serde_json::from_value::<Vec<FileChange>>(many(file)).unwrap();
        record.denied = serde_json::from_value::<Vec<Denied>>(many(denied)).unwrap();
        let all = ["denied", "error", "files", "results", "stdout", "value"];
        assert_eq!(names(&record), all);
        record = Record {
            results: vec![result("x"); ENTRIES + 1],
            ..Record::default()
        };
        assert_eq!(names(&record), ["results"]);
    }
}
