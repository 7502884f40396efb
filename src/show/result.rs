//! Results for people at a terminal.

use serde_json::Value;

use super::facts::{list, total};
use super::page::{Page, Tone};
use record::ResultItem;
use record::json::Json;
use record::words::{bytes, chart, readable};

/// Rows and columns of a table that are shown.
const ROWS: usize = 20;
const COLUMNS: usize = 12;

/// What a result is, its text shortened to `most` lines.
pub(super) fn result(page: &mut Page, indent: &str, result: &ResultItem, most: Option<usize>) {
    match (readable(result), &result.data) {
        (Some(text), _) => page.block(indent, text, most),
        (None, Some(data)) => table(page, data),
        (None, None) => {
            let names = result.formats.keys().map(String::as_str);
            let names: Vec<&str> = names.filter(|name| !is_picture(name)).collect();
            if !names.is_empty() {
                page.block(indent, &format!("[{}]", names.join(", ")), most);
            }
        }
    }
    let facts: Vec<String> = (pictures(result).into_iter())
        .chain(result.chart.as_ref().map(chart))
        .collect();
    if !facts.is_empty() {
        page.put(Tone::Faint, &format!("{indent}[{}]", facts.join(" · ")));
        page.end_line();
    }
    for note in &result.notes {
        page.put(Tone::Caution, &format!("{indent}left out: "));
        page.put(Tone::Plain, note);
        page.end_line();
    }
}

fn is_picture(name: &str) -> bool {
    name.starts_with("image/") || name.starts_with("audio/") || name == "application/pdf"
}

/// The forms that no terminal shows, and their sizes.
fn pictures(result: &ResultItem) -> Vec<String> {
    (result.formats.iter())
        .filter(|(name, _)| is_picture(name))
        .filter_map(|(name, form)| Some((name, form.as_str()?)))
        .map(|(name, form)| {
            let size = match name.as_str() {
                "image/svg+xml" => form.len(),
                _ => form.trim_end_matches('=').len() * 3 / 4,
            };
            format!("{name}, {}", bytes(size as u64))
        })
        .collect()
}

/// The first rows of a table.
fn table(page: &mut Page, data: &Json) {
    let Some(data) = &data.parse() else {
        page.put(Tone::Faint, "  [a table too large to be shown]");
        page.end_line();
        return;
    };
    let [all_columns, rows, index] = ["columns", "rows", "index"].map(|key| list(data, key));
    let cells = |cells: &[Value]| cells.iter().take(COLUMNS).map(cell).collect::<Vec<_>>();
    let mut header = cells(all_columns);
    let columns = header.len();
    if !index.is_empty() {
        header.insert(0, String::new());
    }
    let lines: Vec<Vec<String>> = (rows.iter().take(ROWS).enumerate())
        .map(|(at, row)| {
            let mut line = cells(row.as_array().map_or(&[], Vec::as_slice));
            if !index.is_empty() {
                line.insert(0, index.get(at).map_or_else(String::new, cell));
            }
            line
        })
        .collect();
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    page.grid(&header, &lines);
    let totals = [
        ("total_rows", "rows", lines.len(), rows),
        ("total_columns", "columns", columns, all_columns),
    ];
    for (key, what, shown, listed) in totals {
        let total = total(data, key, listed.len());
        if total > shown as u64 {
            page.put(Tone::Faint, &format!("  … {total} {what} in all"));
            page.end_line();
        }
    }
}

pub(super) fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
