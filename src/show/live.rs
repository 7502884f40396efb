//! What a run at a terminal shows: output and results as they come, then the end in a few lines.

use std::path::PathBuf;

use super::page::{Page, Style, Tone};
use super::{file_facts, result, status};
use engine::run::Viewer;
use record::Record;
use record::event::{Chunk, What};
use record::order::{self, What as Piece};
use record::words::{is_of_fallback, times};

/// The view of one run.
#[derive(Debug)]
pub struct Live {
    style: Style,
    /// Whether any event came.
    has_begun: bool,
    /// Whether the last line has no end yet, such as that of a prompt.
    is_open: bool,
    /// stdout and stderr.
    streams: [Stream; 2],
    /// Whether something is shown that the code could take back.
    may_clear: bool,
}

/// What was shown of a stream.
#[derive(Debug, Default)]
struct Stream {
    bytes: u64,
    /// A carriage return at the end, which may belong to a line end.
    held: bool,
}

impl Live {
    /// A view of which nothing is shown yet.
    pub fn new(style: Style) -> Self {
        Self {
            style,
            has_begun: false,
            is_open: false,
            streams: Default::default(),
            may_clear: false,
        }
    }

    /// What is left to show of `record`: what no event brought, what became of files, and one line on how
    /// it ended. `plots` are the files that pictures were written to.
    pub fn end(&mut self, record: &Record, plots: &[PathBuf]) -> String {
        let mut page = Page::new(self.style);
        match self.has_begun {
            true => self.rest(&mut page, record),
            false => self.pieces(&mut page, record),
        }
        self.close_line(&mut page);
        if let Some(error) = &record.error {
            page.block("", &error.text(), None);
        }
        changes(&mut page, record, plots);
        denials(&mut page, record);
        for warning in record.warnings.iter().filter(|text| !is_of_fallback(text)) {
            page.put(Tone::Caution, "warning: ");
            page.prose(9, 2, warning);
        }
        // Apart from the lines above, which are the program's own.
        page.put(Tone::Faint, "── ");
        status(&mut page, record);
        page.into_text()
    }

    /// All output of a record of which no events came.
    fn pieces(&mut self, page: &mut Page, record: &Record) {
        let mut is_cleared = false;
        for piece in order::pieces(record) {
            match piece.what {
                _ if piece.is_cleared => is_cleared = true,
                Piece::Stdout(text) | Piece::Stderr(text) => page.block("", &text, None),
                Piece::Result(_, item) => result::result(page, "", item, None),
            }
        }
        if is_cleared {
            note(page, "[cleared output is in the record]");
        }
    }

    /// What the record has of the streams behind what was shown: the end of one that was cut.
    fn rest(&mut self, page: &mut Page, record: &Record) {
        for (index, name) in ["stdout", "stderr"].into_iter().enumerate() {
            let (shown, held) = (self.streams[index].bytes, self.streams[index].held);
            if held {
                self.streams[index].held = false;
                self.is_open = true;
                page.text("\r");
            }
            if let Some(text) = order::rest(record, name, shown) {
                self.close_line(page);
                page.block("", &text, None);
            }
        }
    }

    fn wrote(&mut self, page: &mut Page, index: usize, chunk: &Chunk<'_>) {
        let stream = &mut self.streams[index];
        stream.bytes += match &chunk.base64 {
            Some(base64) => (base64.trim_end_matches('=').len() * 3 / 4) as u64,
            None => chunk.text.len() as u64,
        };
        let mut text = String::new();
        if std::mem::take(&mut stream.held) {
            text.push('\r');
        }
        text.push_str(chunk.text);
        if text.ends_with('\r') && !chunk.cut {
            text.pop();
            stream.held = true;
        }
        let text = text.replace("\r\n", "\n");
        page.text(&text);
        if let Some(last) = text.chars().next_back() {
            self.is_open = last != '\n';
            self.may_clear = true;
        }
        if chunk.cut {
            self.close_line(page);
            let name = ["stdout", "stderr"][index];
            note(
                page,
                &format!("[more {name} is left out: the limit is reached]"),
            );
        }
    }

    fn close_line(&mut self, page: &mut Page) {
        if std::mem::take(&mut self.is_open) {
            page.end_line();
        }
    }
}

impl Viewer for Live {
    fn tell(&mut self, what: &What<'_>) -> String {
        self.has_begun = true;
        let mut page = Page::new(self.style);
        match what {
            What::Stdout(chunk) => self.wrote(&mut page, 0, chunk),
            What::Stderr(chunk) => self.wrote(&mut page, 1, chunk),
            What::Result { result: item } | What::DisplayUpdate { result: item } => {
                self.close_line(&mut page);
                result::result(&mut page, "", item, None);
                self.may_clear = true;
            }
            What::Clear { .. } if std::mem::take(&mut self.may_clear) => {
                self.close_line(&mut page);
                note(&mut page, "[the code has cleared what is above]");
            }
            What::Cut {
                kind: kind @ ("result" | "display_update"),
            } => {
                self.close_line(&mut page);
                note(
                    &mut page,
                    &format!("[no more {kind}s are shown]").replace('_', " "),
                );
            }
            _ => {}
        }
        page.into_text()
    }
}

fn note(page: &mut Page, text: &str) {
    page.put(Tone::Faint, text);
    page.end_line();
}

/// Files that the run changed, and those that its pictures were written to.
fn changes(page: &mut Page, record: &Record, plots: &[PathBuf]) {
    for file in &record.files {
        page.put(Tone::Faint, &file.change.to_string());
        page.put(Tone::Plain, " ");
        page.put(Tone::Plain, &file.path.to_lossy());
        let facts = file_facts(file);
        if !facts.is_empty() {
            page.put(Tone::Faint, &format!(" ({})", facts.join(", ")));
        }
        page.end_line();
    }
    for path in plots {
        page.put(Tone::Faint, "picture ");
        page.put(Tone::Plain, &path.display().to_string());
        page.end_line();
    }
}

/// What the policy denied, for which the code may only have seen an error number.
fn denials(page: &mut Page, record: &Record) {
    for denied in &record.denied {
        page.put(Tone::Caution, "denied ");
        let reason = (denied.reason.as_ref()).map_or_else(String::new, |text| format!(": {text}"));
        let facts = format!("{}, {}", denied.action, times(denied.count));
        page.prose(7, 2, &format!("{} ({facts}){reason}", denied.name));
    }
}

/// A record as [`Live`] shows it that got no events.
pub fn render_run(record: &Record, style: Style) -> String {
    Live::new(style).end(record, &[])
}

/// The limits of a record that programs can get past because there is no cgroup, if that is worth a word to
/// a person.
pub fn best_effort(record: &Record) -> Option<String> {
    record.warnings.iter().find(|text| is_of_fallback(text))?;
    let names = ["memory", "processes", "cpus"];
    let is_weak = |name: &&str| {
        let limit = record.limits.get(*name);
        limit.is_some_and(|limit| limit.enforced == Some(record::Enforced::BEST_EFFORT))
    };
    let weak: Vec<&str> = names.into_iter().filter(is_weak).collect();
    let (names, verb) = match &*weak {
        [] => return None,
        [name] => ((*name).to_owned(), "is"),
        [first @ .., last] => (format!("{} and {last}", first.join(", ")), "are"),
    };
    Some(format!(
        "{names} {verb} limited with best effort only here; `cellblock doctor` shows how to get a firm limit"
    ))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use record::{Enforced, LimitRecord, ResultItem, Truncation};

    use super::*;

    fn stdout(live: &mut Live, text: &str, cut: bool) -> String {
        let chunk = Chunk {
            text,
            base64: None,
            cut,
        };
        live.tell(&What::Stdout(chunk))
    }

    #[test]
    fn what_was_shown_is_not_shown_again() {
        let mut live = Live::new(Style::PLAIN);
        assert_eq!(stdout(&mut live, "a", false), "a");
        let item = ResultItem {
            text: Some("1".to_owned()),
            ..ResultItem::default()
        };
        // A result begins a line.
        assert_eq!(live.tell(&What::Result { result: &item }), "\n1\n");
        assert_eq!(stdout(&mut live, "b\r", false), "b");
        assert_eq!(stdout(&mut live, "\nc", false), "\nc");
        let cleared = "\n[the code has cleared what is above]\n";
        assert_eq!(live.tell(&What::Clear { wait: false }), cleared);
        assert_eq!(live.tell(&What::Clear { wait: false }), "");
        let record = Record {
            stdout: Some("ab\r\nc".to_owned().into()),
            results: vec![item],
            ..Record::default()
        };
        assert!(live.end(&record, &[]).starts_with("── "));
    }

    #[test]
    fn the_end_of_output_that_was_cut_follows() {
        let mut live = Live::new(Style::PLAIN);
        let shown = stdout(&mut live, "0123", true);
        assert_eq!(
            shown,
            "0123\n[more stdout is left out: the limit is reached]\n"
        );
        let mut record = Record {
            stdout: Some(format!("01{}89", record::stream::cut_line(6)).into()),
            ..Record::default()
        };
        let cut = Truncation {
            total: 10,
            kept: 4,
            part: "head+tail".to_owned(),
            head: Some(2),
        };
        record.truncated.insert("stdout".to_owned(), cut);
        assert!(live.end(&record, &[]).starts_with("89\n── "));
    }

    #[test]
    fn limits_that_are_best_effort_are_named_once() {
        let limit = |enforced| LimitRecord {
            requested: 1.0,
            enforced: Some(enforced),
            unit: "bytes".to_owned(),
            by: "watchdog".to_owned(),
            hit: None,
        };
        let mut record = Record {
            limits: BTreeMap::from([
                ("memory".to_owned(), limit(Enforced::BEST_EFFORT)),
                ("processes".to_owned(), limit(Enforced::Exactly(1.0))),
            ]),
            ..Record::default()
        };
        assert_eq!(best_effort(&record), None);
        record.warnings = vec![record::words::of_fallback(&["memory"], "no cgroup")];
        let words = best_effort(&record).unwrap();
        assert!(
            words.starts_with("memory is limited with best effort"),
            "{words}"
        );
        assert!(words.contains("`cellblock doctor`"), "{words}");
        assert!(!render_run(&record, Style::PLAIN).contains("warning"));
    }
}
