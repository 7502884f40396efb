//! A record as one page of HTML that needs nothing else.
//!
//! Most of a record comes out of a cell, and the reader of a page has more to
//! lose than a terminal. So there are three walls. Everything goes through
//! [`Markup`], which escapes it. The page's policy allows no script, no
//! connection, no frame and no form. HTML that the code made, the only thing that
//! is let through, is shown in a frame without any right (`foreign.rs`).

use markup::Markup;
use record::order::{self, What};
use record::{Outcome, Record};

use super::{facts, stream_heading};
use record::words::{bytes, ends, milliseconds};

mod foreign;
mod markdown;
mod markup;
mod math;
mod measures;
mod results;

/// No script, no connection: data: pictures and the page's own style are all.
const POLICY: &str = include_str!("policy.txt");
const STYLE: &str = include_str!("style.css");
/// Bytes of a stream that are shown.
const STREAM: usize = 1 << 20;

/// The whole page.
pub fn render(record: &Record) -> String {
    let mut page = Markup::default();
    page.raw("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta");
    page.attribute("http-equiv", "Content-Security-Policy");
    page.attribute("content", POLICY.trim_end());
    page.raw(
        ">\n<meta http-equiv=\"x-dns-prefetch-control\" content=\"off\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n",
    );
    page.raw("<title>");
    page.text(&format!("{}: {}", record.outcome, what_ran(record)));
    page.raw("</title>\n<style>\n");
    page.raw(STYLE);
    page.raw("</style>\n</head>\n<body>\n<main>\n");
    header(&mut page, record);
    failure(&mut page, record);
    output(&mut page, record);
    measures::files(&mut page, record);
    measures::connections(&mut page, record);
    measures::denied(&mut page, record);
    measures::time(&mut page, record);
    measures::usage(&mut page, record);
    measures::limits(&mut page, record);
    measures::isolation(&mut page, record);
    if !record.warnings.is_empty() {
        heading(&mut page, "Warnings");
    }
    for warning in &record.warnings {
        page.element("<p class=\"note\">", warning, "</p>\n");
    }
    page.raw("</main>\n<footer>");
    page.text(&format!(
        "cellblock {} · record {}",
        record.version, record.id
    ));
    page.raw("</footer>\n</body>\n</html>\n");
    page.into_text()
}

fn heading(page: &mut Markup, title: &str) {
    page.element("<h2>", title, "</h2>\n");
}

/// The language, or the program and its arguments.
fn what_ran(record: &Record) -> String {
    facts::command_line(record, 120)
        .or_else(|| record.language.clone())
        .unwrap_or_else(|| "no code ran".to_owned())
}

fn header(page: &mut Markup, record: &Record) {
    page.raw("<header>\n<p class=\"outcome ");
    page.raw(match record.outcome {
        Outcome::Ok => "good",
        Outcome::Cancelled => "caution",
        _ => "bad",
    });
    page.element("\">", &record.outcome.to_string(), "</p>\n");
    page.element("<h1>", &what_ran(record), "</h1>\n");
    let mut facts = vec![format!("exit code {}", record.exit_code)];
    facts.extend(record.signal_shown().map(str::to_owned));
    facts.push(milliseconds(record.execution_time * 1000.0));
    facts.extend(
        record
            .usage
            .memory_peak_bytes
            .map(|most| format!("{} of memory", bytes(most))),
    );
    page.element("<p class=\"facts\">", &facts.join(" · "), "</p>\n");
    if let Some(context) = &record.context {
        page.element("<p class=\"context\">", context, "</p>\n");
    }
    if let Some(hint) = &record.operator_hint {
        let hint = format!("For the operator: {hint}");
        page.element("<p class=\"context\">", &hint, "</p>\n");
    }
    page.raw("</header>\n");
}

fn failure(page: &mut Markup, record: &Record) {
    if let Some(error) = &record.setup_error {
        heading(page, "Set-up error");
        page.pairs(&[
            ("what", error.to_string()),
            ("hint", error.hint.clone().unwrap_or_default()),
        ]);
    }
    if let Some(error) = &record.error {
        heading(page, "Error");
        page.block("Error", &error.text());
    }
}

/// What the code printed and produced, in its order.
fn output(page: &mut Markup, record: &Record) {
    let mut is_among_results = false;
    for piece in order::pieces(record) {
        let is_result = matches!(piece.what, What::Result(..));
        if is_result && !is_among_results {
            heading(page, "Results");
        }
        is_among_results = is_result;
        if piece.is_cleared {
            page.raw("<details><summary>Cleared by the code</summary>\n");
        }
        match piece.what {
            What::Stdout(text) => stream(page, record, "stdout", text),
            What::Stderr(text) => stream(page, record, "stderr", text),
            What::Result(_, item) => results::article(page, item),
        }
        if piece.is_cleared {
            page.raw("</details>\n");
        }
    }
    results::cut(page, record);
}

fn stream(page: &mut Markup, record: &Record, name: &str, text: String) {
    heading(page, &stream_heading(record, name, &text));
    page.block(name, &shortened(text, STREAM));
}

/// A text without its middle, if it is long.
fn shortened(text: String, most: usize) -> String {
    match ends(&text, most) {
        Some((head, gap, tail)) => format!("{head}\n[… {gap} not shown here …]\n{tail}"),
        None => text,
    }
}
