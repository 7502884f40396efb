//! What was measured and decided outside of the cell.

use super::markup::Markup;
use super::{heading, shortened};
use crate::show::facts::{self, Rows};
use record::Record;
use record::words::milliseconds;

/// Bytes of a file's content that are shown.
const FILE: usize = 64 << 10;

pub(super) fn files(page: &mut Markup, record: &Record) {
    let titled = |page: &mut Markup, title: &str, header: &[&str], rows: Rows| {
        if !rows.is_empty() {
            heading(page, title);
            page.table(title, header, &rows);
        }
    };
    let header = ["file", "change", "size", "type", "SHA-256"];
    titled(page, "Files", &header, file_rows(record));
    let header = ["file", "why"];
    titled(page, "Files left out", &header, facts::skipped_rows(record));
    for name in ["files", "files_skipped", "inline_files"] {
        if let Some(note) = facts::cut_note(record, name) {
            page.element("<p class=\"note\">", &note, "</p>\n");
        }
    }
    for (path, text) in facts::contents(record) {
        page.element("<details><summary>Content of ", &path, "</summary>\n");
        page.block(&path, &shortened(text, FILE));
        page.raw("</details>\n");
    }
}

/// The path first, being what the row is about.
fn file_rows(record: &Record) -> Rows {
    let mut rows = facts::file_rows(record);
    rows.iter_mut().for_each(|row| row.swap(0, 1));
    rows
}

pub(super) fn connections(page: &mut Markup, record: &Record) {
    let rows = facts::connection_rows(record);
    let notes = facts::network_notes(record);
    if rows.is_empty() && notes.is_empty() {
        return;
    }
    heading(page, "Connections");
    if !rows.is_empty() {
        let header = [
            "host",
            "by",
            "address",
            "from the cell",
            "to it",
            "duration",
            "verdict",
            "why",
        ];
        page.table("Connections", &header, &rows);
    }
    for note in notes {
        page.element("<p class=\"note\">", &note, "</p>\n");
    }
}

pub(super) fn denied(page: &mut Markup, record: &Record) {
    let mut rows = facts::denied_rows(record);
    if rows.is_empty() {
        return;
    }
    rows.iter_mut().for_each(|row| row.swap(0, 1));
    heading(page, "Denied");
    let header = ["what", "kind", "count", "the program saw", "why"];
    page.table("Denied", &header, &rows);
    if let Some(note) = facts::cut_note(record, "denied") {
        page.element("<p class=\"note\">", &note, "</p>\n");
    }
}

/// Where the time went: a bar whose parts are as wide as they were long.
pub(super) fn time(page: &mut Markup, record: &Record) {
    let timing = &record.timing;
    let phases = [
        ("set-up", Some(timing.setup_ms)),
        ("interpreter", timing.interpreter_ms),
        ("code", Some(timing.code_ms)),
        ("teardown", Some(timing.teardown_ms)),
    ];
    let phases = phases.map(|(name, ms)| (name, ms.filter(|ms| ms.is_finite() && *ms > 0.0)));
    if phases.iter().all(|(_, ms)| ms.is_none()) {
        return;
    }
    heading(page, "Time");
    page.raw("<div class=\"bar\" aria-hidden=\"true\">");
    for (_, ms) in phases {
        page.raw("<span");
        page.attribute("style", &format!("flex-grow: {:.3}", ms.unwrap_or(0.0)));
        page.raw("></span>");
    }
    page.raw("</div>\n<ul class=\"legend\">\n");
    for (name, ms) in phases {
        page.element("<li>", name, " <b>");
        page.text(&ms.map_or_else(|| "–".to_owned(), milliseconds));
        page.raw("</b></li>\n");
    }
    page.raw("</ul>\n");
    if let Some(how) = facts::started_ahead(record) {
        page.element("<p class=\"note\">Started in a ", how, ".</p>\n");
    }
    let steps: Rows = (timing.steps.iter())
        .map(|(step, ms)| vec![step.clone(), milliseconds(*ms)])
        .collect();
    if !steps.is_empty() {
        page.raw("<details><summary>Steps of the set-up</summary>\n");
        page.table("Steps of the set-up", &["step", "time"], &steps);
        page.raw("</details>\n");
    }
}

pub(super) fn usage(page: &mut Markup, record: &Record) {
    heading(page, "Usage");
    page.pairs(&facts::usage_pairs(&record.usage));
}

pub(super) fn limits(page: &mut Markup, record: &Record) {
    let rows = facts::limit_rows(record);
    if rows.is_empty() {
        return;
    }
    heading(page, "Limits");
    page.table(
        "Limits",
        &["limit", "requested", "enforced", "by", "hit"],
        &rows,
    );
}

pub(super) fn isolation(page: &mut Markup, record: &Record) {
    if let Some(isolation) = &record.isolation {
        heading(page, "Isolation");
        page.pairs(&facts::isolation_pairs(isolation));
    }
}
