//! What the code produced: pictures, tables, texts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::markup::Markup;
use super::{foreign, markdown, math};
use crate::show::chart::{self, Shown};
use crate::show::facts::{list, total};
use crate::show::result::cell;
use record::json::{Form, Json};
use record::words::{self, bytes, names_something, readable};
use record::{Record, ResultItem, picture};

/// Rows and columns of a table that are shown.
const ROWS: usize = 500;
const COLUMNS: usize = 60;
const SVG: &str = "image/svg+xml";
/// Forms that are shown, or are another shape of one that is.
const SHOWN: [&str; 10] = [
    "text/plain",
    "text/html",
    "text/markdown",
    "text/latex",
    "application/json",
    "image/png",
    "image/jpeg",
    "image/webp",
    "image/gif",
    SVG,
];

pub(super) fn article(page: &mut Markup, item: &ResultItem) {
    page.raw("<article>\n");
    result(page, item);
    page.raw("</article>\n");
}

/// How many results are missing, if any are.
pub(super) fn cut(page: &mut Markup, record: &Record) {
    if let Some(cut) = record.truncated.get("results") {
        let note = format!("{} of {} results are in the record", cut.kept, cut.total);
        page.element("<p class=\"note\">", &note, "</p>\n");
    }
}

fn result(page: &mut Markup, item: &ResultItem) {
    let (mut has_picture, complaints) = figure(page, item);
    let script = (!has_picture).then(|| chart::of(item)).flatten();
    let is_script = script.is_some();
    if let Some(shown) = script {
        has_picture = drawn(page, shown);
    }
    let has_table = item.data.as_ref().is_some_and(|data| table(page, data));
    let html = item.formats.get("text/html").and_then(Form::as_str);
    // Without scripts, plotly's and altair's HTML shows nothing.
    let html = html.filter(|_| !is_script);
    let is_shown = has_picture || has_table;
    let is_drawn = !is_shown && html.is_none() && written(page, item);
    // Of such a chart, the text is its whole data again.
    let text = readable(item).filter(|text| {
        !(is_script || has_table || (has_picture || is_drawn) && names_something(text))
    });
    let is_all = html.is_some() && !is_shown;
    match text {
        Some(text) if is_drawn => {
            page.raw("<details><summary>As text</summary>\n");
            page.block("Result", text);
            page.raw("</details>\n");
        }
        // Beside HTML, a name in angle brackets is noise.
        Some(text) if html.is_some() && names_something(text) => {}
        Some(text) if !is_all => page.block("Result", text),
        _ => {}
    }
    if let Some(html) = html {
        page.raw(if is_all {
            "<details open>"
        } else {
            "<details>"
        });
        page.raw("<summary>As HTML</summary>\n");
        foreign::frame(page, html);
        page.raw("</details>\n");
    }
    if let Some(text) = text.filter(|text| is_all && !names_something(text)) {
        page.raw("<details><summary>As text</summary>\n");
        page.block("Result", text);
        page.raw("</details>\n");
    }
    if let Some(json) = item.formats.get("application/json") {
        page.raw("<details><summary>As JSON</summary>\n");
        page.block("JSON", &json.pretty());
        page.raw("</details>\n");
    }
    let others = item.formats.iter();
    let is_shown =
        |name: &str| SHOWN.contains(&name) || chart::is_plotly(name) || chart::is_vega(name);
    for (name, form) in others.filter(|(name, _)| !is_shown(name)) {
        let size = bytes(form.as_str().map_or(0, str::len) as u64);
        let note = format!("Not shown here: {name}, {size} in the record");
        page.element("<p class=\"note\">", &note, "</p>\n");
    }
    for note in item.notes.iter().chain(&complaints) {
        page.element("<p class=\"note\">", &format!("Left out: {note}"), "</p>\n");
    }
}

/// A chart as a picture, or its values and why; says whether there is a picture.
fn drawn(page: &mut Markup, shown: Shown) -> bool {
    match shown {
        Shown::Picture { svg, note } => {
            page.raw("<figure><img alt=\"chart, drawn from its data\"");
            page.attribute("src", &format!("data:{SVG};base64,{}", BASE64.encode(svg)));
            page.raw("></figure>\n");
            if let Some(note) = note {
                page.element("<p class=\"note\">", &note, "</p>\n");
            }
            true
        }
        Shown::Values { why, table } => {
            page.element("<p class=\"note\">", &why, "</p>\n");
            let header: Vec<&str> = (["#"].into_iter())
                .chain(table.header.iter().map(String::as_str))
                .collect();
            let lines: Vec<Vec<String>> = (table.rows.into_iter().enumerate())
                .map(|(at, row)| [at.to_string()].into_iter().chain(row).collect())
                .collect();
            page.table("Data of the chart", &header, &lines);
            if table.total > lines.len() {
                let note = format!("{} of {} rows", lines.len(), table.total);
                page.element("<p class=\"note\">", &note, "</p>\n");
            }
            false
        }
    }
}

/// Markdown, or the source of a formula; says whether Markdown was drawn.
fn written(page: &mut Markup, item: &ResultItem) -> bool {
    let form = |name: &str| item.formats.get(name).and_then(Form::as_str);
    if let Some(formula) = form("text/latex").and_then(math::only) {
        page.block("formula", formula.trim());
        return false;
    }
    form("text/markdown").is_some_and(|text| markdown::draw(page, text))
}

/// A picture and what is known of it; says whether there is one, and why not.
fn figure(page: &mut Markup, item: &ResultItem) -> (bool, Vec<String>) {
    let (picture, complaints) = picture::of(item);
    let raster = picture.map(|picture| (picture.media_type, picture.base64.into_owned()));
    // An SVG in an image element runs no scripts and loads nothing.
    let vector = || {
        let svg = item.formats.get(SVG)?.as_str()?;
        Some((SVG, BASE64.encode(svg)))
    };
    let caption = item.chart.as_ref().map(words::chart);
    let Some((media_type, base64)) = raster.or_else(vector) else {
        if let Some(caption) = caption {
            page.element("<p class=\"note\">", &caption, "</p>\n");
        }
        return (false, complaints);
    };
    page.raw("<figure><img");
    let described = caption.as_deref().unwrap_or("picture that the code made");
    page.attribute("alt", described);
    page.attribute("src", &format!("data:{media_type};base64,{base64}"));
    page.raw(">");
    if let Some(caption) = &caption {
        page.element("<figcaption>", caption, "</figcaption>");
    }
    page.raw("</figure>\n");
    (true, complaints)
}

/// The first rows of a table; says whether there is any.
fn table(page: &mut Markup, data: &Json) -> bool {
    let Some(data) = &data.parse() else {
        page.element(
            "<p class=\"note\">",
            "A table too large to be shown",
            "</p>\n",
        );
        return false;
    };
    let [columns, rows, index] = ["columns", "rows", "index"].map(|key| list(data, key));
    let lines: Vec<Vec<String>> = (rows.iter().take(ROWS).enumerate())
        .filter_map(|(at, row)| Some((at, row.as_array()?)))
        .map(|(at, row)| {
            let number = || at.to_string();
            let head = index.get(at).map_or_else(number, cell);
            [head]
                .into_iter()
                .chain(row.iter().take(COLUMNS).map(cell))
                .collect()
        })
        .collect();
    let names: Vec<String> = columns.iter().take(COLUMNS).map(cell).collect();
    let header: Vec<&str> = [""]
        .into_iter()
        .chain(names.iter().map(String::as_str))
        .collect();
    page.table("Table", &header, &lines);
    let totals = [
        ("total_rows", "rows", lines.len(), rows),
        ("total_columns", "columns", names.len(), columns),
    ];
    for (key, what, shown, listed) in totals {
        let total = total(data, key, listed.len());
        if !lines.is_empty() && total > shown as u64 {
            let note = format!("{shown} of {total} {what}");
            page.element("<p class=\"note\">", &note, "</p>\n");
        }
    }
    !lines.is_empty()
}
