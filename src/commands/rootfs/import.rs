//! `cellblock rootfs import`: what it tells while it works, and at its end.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::interpreters;
use super::text::{eprint_line, print, print_json};
use archive::Report;
use cell::rootfs::{Manifest, Store};
use record::bytes::RawText;
use record::error::Result;
use record::terminal::line;
use record::words;
use rootfs_builder::import::{self, Request};

/// Lines about what an import left out; the rest is counted, or in the JSON.
const MOST_LINES: usize = 20;

/// Time between two lines of progress.
const PROGRESS: Duration = Duration::from_millis(200);

/// What `rootfs import --json` prints.
#[derive(Serialize)]
struct ImportDocument<'a> {
    manifest: &'a Manifest,
    left_out: Vec<LeftOut>,
    left_out_in_all: u64,
    stripped: u64,
}

#[derive(Serialize)]
struct LeftOut {
    path: RawText,
    reason: String,
}

pub(super) fn import(store: &Store, request: &Request, json: bool) -> Result<u8> {
    let mut progress = Progress::new();
    let imported = import::import(store, request, &mut |doing, report| {
        progress.tell(doing, report);
    });
    progress.end();
    let imported = imported?;
    let (manifest, report) = (&imported.manifest, imported.report);
    if json {
        return print_json(&ImportDocument {
            manifest,
            left_out_in_all: report.skipped_in_all,
            stripped: report.stripped,
            left_out: report
                .skipped
                .into_iter()
                .map(|skipped| LeftOut {
                    path: skipped.path,
                    reason: skipped.reason,
                })
                .collect(),
        });
    }
    for skipped in report.skipped.iter().take(MOST_LINES) {
        eprint_line(&format!("left out: {} {}", skipped.path, skipped.reason));
    }
    let more = report.skipped_in_all.saturating_sub(MOST_LINES as u64);
    if more > 0 {
        eprint_line(&format!("left out: {more} more; --json lists them"));
    }
    let found = match interpreters(manifest) {
        found if found.is_empty() => "no interpreter".to_owned(),
        found => found.join(", "),
    };
    print(&format!(
        "{}: {} in {} files, {found}\n",
        manifest.label(),
        words::bytes(manifest.size_bytes),
        manifest.files
    ))
}

/// Tells on standard error what is being done: on a terminal in one line that
/// changes, otherwise in a line when something else begins.
struct Progress {
    is_terminal: bool,
    last: Option<(String, Instant)>,
}

impl Progress {
    fn new() -> Self {
        Self {
            is_terminal: io::stderr().is_terminal(),
            last: None,
        }
    }

    fn tell(&mut self, doing: &str, report: &Report) {
        let is_new = self.last.as_ref().is_none_or(|(last, _)| last != doing);
        let is_time = self
            .last
            .as_ref()
            .is_none_or(|(_, at)| at.elapsed() >= PROGRESS);
        let shows_more = self.is_terminal && is_time;
        if !(is_new || shows_more) {
            return;
        }
        self.last = Some((doing.to_owned(), Instant::now()));
        if self.is_terminal {
            let done = words::bytes(report.bytes);
            let doing = line(doing);
            let _ = write!(io::stderr(), "\r\x1b[K{doing}: {done}");
        } else {
            eprint_line(doing);
        }
    }

    fn end(&self) {
        if self.is_terminal && self.last.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
