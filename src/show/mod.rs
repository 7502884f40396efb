//! A record for people: at a terminal, and as a page for a browser (`html`).
//!
//! Most of a record comes out of a cell, and a terminal obeys what is written
//! to it: everything goes through [`Page`], which lets no control character
//! pass.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use facts::{
    command_line, connection_rows, contents, cut_note, denied_rows, file_rows, isolation_pairs,
    limit_rows, network_notes, skipped_rows, usage_pairs,
};
use page::{Page, Tone};
use record::error::{Result, SetupError, Step};
use record::order::{self, What};
use record::words::{bytes, milliseconds};
use record::{FileChange, Outcome, Record, SCHEMA};
use result::result;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

pub use html::render as render_html;
pub use live::{Live, best_effort, render_run};
pub use page::Style;
pub use plan::render_plan;
pub use plots::plots;

mod chart;
mod facts;
mod html;
mod live;
mod page;
mod plan;
mod plots;
mod result;

/// Lines of one part that [`render`] shows.
const PART: Option<usize> = Some(40);
/// Lines of a file's content, and files whose content is shown.
const FILE: Option<usize> = Some(12);
const FILES: usize = 20;

/// Reads the record in the file `path`, or on standard input for `-`: as it is, in the answer of
/// `context run --json`, or in the last event.
///
/// # Errors
/// The file cannot be read, holds no record, or one of another format.
pub fn read(path: &Path) -> Result<Record> {
    let fail = |message: String| {
        SetupError::new(Step::Spec, message)
            .on(path.display())
            .hint("give it what cellblock printed with --json or wrote with --record")
    };
    let mut text = Vec::new();
    let read = match path.as_os_str() == "-" {
        true => io::stdin().read_to_end(&mut text),
        false => File::open(path).and_then(|mut file| file.read_to_end(&mut text)),
    };
    read.map_err(|error| SetupError::io(Step::Spec, "read", &error).on(path.display()))?;
    let text = String::from_utf8(text).map_err(|error| fail(format!("it is not JSON: {error}")))?;
    let text = within(&text);
    match schema(text)
        .map_err(|error| fail(format!("it is not JSON: {error}")))?
        .as_deref()
    {
        Some(SCHEMA) => serde_json::from_str(text)
            .map_err(|error| fail(format!("it is not a complete record: {error}"))),
        Some(other) if other.starts_with("cellblock.record.") => Err(fail(format!(
            "it has the format {other:?}, and this is for {SCHEMA:?}"
        ))
        .hint("use the version of cellblock that wrote it, or a newer one")),
        _ => Err(fail("it is JSON, but no record of cellblock's".to_owned())),
    }
}

/// The record in what `context run --json` prints, or in the last of events; otherwise the text itself.
fn within(text: &str) -> &str {
    #[derive(Deserialize)]
    struct Holder<'a> {
        #[serde(borrow, default)]
        record: Option<&'a RawValue>,
    }
    let last = text.trim_end().rsplit('\n').next().unwrap_or_default();
    let held = [text, last].into_iter().find_map(|text| {
        let Holder { record } = serde_json::from_str(text).ok()?;
        record
    });
    held.map_or(text, RawValue::get)
}

/// The name of the format that a record begins with, if the text is one. What else is in it may take
/// many times its text when it is parsed.
fn schema(text: &str) -> serde_json::Result<Option<String>> {
    #[derive(Deserialize)]
    struct Record<'a> {
        #[serde(borrow, default)]
        schema: Option<&'a RawValue>,
    }
    if !text.trim_start().starts_with('{') {
        return serde_json::from_str(text).map(|IgnoredAny| None);
    }
    let Record { schema } = serde_json::from_str(text)?;
    Ok(schema.and_then(|name| serde_json::from_str(name.get()).ok()))
}

/// The whole record, long parts shortened.
pub fn render(record: &Record, style: Style) -> String {
    let mut page = Page::new(style);
    status(&mut page, record);
    if let Some(error) = &record.setup_error {
        page.heading("set-up error");
        page.pairs(&[
            ("what", error.to_string()),
            ("hint", error.hint.clone().unwrap_or_default()),
        ]);
    }
    if let Some(error) = &record.error {
        page.heading("error");
        page.block("  ", &error.text(), PART);
    }
    output(&mut page, record);
    files(&mut page, record);
    connections(&mut page, record);
    denied(&mut page, record);
    limits(&mut page, record);
    usage(&mut page, record);
    isolation(&mut page, record);
    if !record.warnings.is_empty() {
        page.heading("warnings");
        for warning in &record.warnings {
            page.put(Tone::Plain, "  ");
            page.prose(2, 4, warning);
        }
    }
    page.into_text()
}

/// How it ended, in one line; what to do about it, in another.
fn status(page: &mut Page, record: &Record) {
    let tone = match record.outcome {
        Outcome::Ok => Tone::Good,
        Outcome::Cancelled => Tone::Caution,
        _ => Tone::Bad,
    };
    page.put(tone, &record.outcome.to_string());
    let mut facts = Vec::new();
    facts.extend(record.language.clone());
    facts.extend(command_line(record, 60));
    facts.push(format!("exit code {}", record.exit_code));
    facts.extend(record.signal_shown().map(str::to_owned));
    facts.push(milliseconds(record.execution_time * 1000.0));
    for fact in facts {
        page.put(Tone::Faint, " · ");
        page.put(Tone::Plain, &fact);
    }
    page.end_line();
    if let Some(context) = &record.context {
        page.prose(0, 2, context);
    }
    if let Some(hint) = &record.operator_hint {
        page.put(Tone::Faint, "for the operator: ");
        page.prose(18, 2, hint);
    }
}

fn stream_heading(record: &Record, name: &str, text: &str) -> String {
    match record.truncated.get(name) {
        Some(cut) => format!("{name} ({} of {} kept)", bytes(cut.kept), bytes(cut.total)),
        None => format!("{name} ({})", bytes(text.len() as u64)),
    }
}

/// What the code printed and produced, in its order.
fn output(page: &mut Page, record: &Record) {
    for piece in order::pieces(record) {
        let cleared = if piece.is_cleared {
            ", cleared by the code"
        } else {
            ""
        };
        match &piece.what {
            What::Stdout(text) => {
                page.heading(&format!(
                    "{}{cleared}",
                    stream_heading(record, "stdout", text)
                ));
                page.block("  ", text, PART);
            }
            What::Stderr(text) => {
                page.heading(&format!(
                    "{}{cleared}",
                    stream_heading(record, "stderr", text)
                ));
                page.block("  ", text, PART);
            }
            What::Result(index, item) => {
                let main = if item.is_main_result {
                    ", the last expression"
                } else {
                    ""
                };
                let forms: Vec<&str> = item.formats.keys().map(String::as_str).collect();
                page.heading(&format!("result {}{main}: {}", index + 1, forms.join(", ")));
                result(page, "  ", item, PART);
            }
        }
    }
}

fn files(page: &mut Page, record: &Record) {
    page.table("files", &[], &file_rows(record));
    page.table("files left out", &[], &skipped_rows(record));
    for name in [
        "files",
        "files_skipped",
        "inline_files",
        "results",
        "denied",
    ] {
        if let Some(note) = cut_note(record, name) {
            page.put(Tone::Caution, &note);
            page.end_line();
        }
    }
    let mut contents = contents(record);
    for (path, text) in contents.by_ref().take(FILES) {
        page.heading(&format!("content of {path}"));
        page.block("  ", &text, FILE);
    }
    let more = contents.count();
    if more > 0 {
        page.put(Tone::Faint, &format!("… contents of {more} more files …"));
        page.end_line();
    }
}

/// Size and media type, of a file that is there.
fn file_facts(file: &FileChange) -> Vec<String> {
    file.size
        .map(bytes)
        .into_iter()
        .chain(file.media_type.clone())
        .collect()
}

fn connections(page: &mut Page, record: &Record) {
    page.table("connections", &[], &connection_rows(record));
    for note in network_notes(record) {
        page.put(Tone::Caution, &note);
        page.end_line();
    }
}

fn denied(page: &mut Page, record: &Record) {
    page.table("denied", &[], &denied_rows(record));
}

fn limits(page: &mut Page, record: &Record) {
    let header = ["", "requested", "enforced", "by", "hit"];
    page.table("limits", &header, &limit_rows(record));
}

fn usage(page: &mut Page, record: &Record) {
    let timing = &record.timing;
    let interpreter = timing.interpreter_ms.map_or_else(String::new, |time| {
        format!("interpreter {}, ", milliseconds(time))
    });
    let start = facts::started_ahead(record).map_or_else(String::new, |how| format!(" ({how})"));
    let spent = format!(
        "set-up {}{start}, {interpreter}code {}, end {}",
        milliseconds(timing.setup_ms),
        milliseconds(timing.code_ms),
        milliseconds(timing.teardown_ms)
    );
    page.heading("usage");
    let mut pairs = usage_pairs(&record.usage);
    pairs.push(("spent on", spent));
    page.pairs(&pairs);
}

fn isolation(page: &mut Page, record: &Record) {
    if let Some(isolation) = &record.isolation {
        page.heading("isolation");
        page.pairs(&isolation_pairs(isolation));
    }
}
