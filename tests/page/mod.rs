//! The page that `show --html` makes, as text and in a real browser, and that of a server.
//! `CELLBLOCK_BLESS=1` rewrites the files that are compared with.

mod analysis;
mod browser;
mod chromium;
mod console;
mod seen;
mod tags;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use cellblock::show;
use proptest::prelude::*;
use record::json::Json;
use record::{CodeError, Record, ResultItem};
use serde_json::{Value, json};

/// The tags that a page may have, whatever the record says.
const TAGS: [&str; 49] = [
    "article",
    "b",
    "body",
    "dd",
    "details",
    "div",
    "dl",
    "dt",
    "figcaption",
    "figure",
    "footer",
    "h1",
    "h2",
    "head",
    "header",
    "html",
    "i",
    "iframe",
    "img",
    "li",
    "main",
    "meta",
    "p",
    "pre",
    "section",
    "span",
    "strong",
    "style",
    "summary",
    "table",
    "tbody",
    "td",
    "th",
    "thead",
    "title",
    "tr",
    "ul",
    "em",
    "ol",
    "small",
    "!DOCTYPE",
    "blockquote",
    "code",
    "del",
    "h3",
    "h4",
    "h5",
    "h6",
    "hr",
];
const ATTRIBUTES: [&str; 21] = [
    "alt",
    "aria-hidden",
    "aria-label",
    "charset",
    "class",
    "content",
    "html",
    "http-equiv",
    "lang",
    "name",
    "open",
    "referrerpolicy",
    "role",
    "sandbox",
    "scope",
    "src",
    "srcdoc",
    "style",
    "tabindex",
    "title",
    "value",
];

/// Each would change the page's title if it ran.
const PAYLOADS: [&str; 9] = [
    "<script>document.title='owned'</script>",
    "\"><img src=x onerror=\"document.title='owned'\">",
    "'><svg onload='document.title=\"owned\"'>",
    "</style></pre></title></iframe><script>document.title='owned'</script>",
    "--><script>document.title='owned'</script><!--",
    "javascript:document.title='owned'",
    "<a href=\"javascript:document.title='owned'\">x</a>",
    "\u{202e}\u{2066}<script>\0document.title='owned'</script>\u{feff}",
    "&lt;script&gt;document.title='owned'&lt;/script&gt;&#60;script&#62;",
];

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn sample(name: &str) -> Record {
    let text = fs::read(file(&format!("tests/records/{name}.json"))).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// Replaces every string of the record, including keys of maps.
fn poisoned(value: Value, payload: &str) -> Value {
    match value {
        Value::String(_) => json!(payload),
        Value::Array(items) => items
            .into_iter()
            .map(|item| poisoned(item, payload))
            .collect(),
        Value::Object(fields) => fields
            .into_iter()
            .map(|(key, value)| (key, poisoned(value, payload)))
            .collect(),
        other => other,
    }
}

/// A record in which everything that a cell controls is `payload`.
fn hostile(payload: &str) -> Record {
    let mut record = sample("rich");
    let text = || Some(payload.to_owned());
    record.stdout = Some(payload.to_owned().into());
    record.stderr = Some(payload.to_owned().into());
    record.context = text();
    record.signal = text();
    record.warnings = vec![payload.to_owned()];
    record.argv = Some(vec![payload.into()]);
    record.error = Some(CodeError {
        name: payload.to_owned(),
        message: payload.to_owned(),
        traceback: vec![payload.to_owned(); 2],
        line: None,
        errno: None,
    });
    record.files = sample("hostile").files;
    record.files_skipped = sample("hostile").files_skipped;
    record.files[0].path = payload.into();
    record.files[0].media_type = text();
    record.files[0].content = Some(payload.to_owned().into());
    record.files[0].sha256 = text();
    record.files_skipped[0].reason = payload.to_owned();
    record.denied = sample("error").denied;
    record.denied[0].name = payload.to_owned();
    record.denied[0].reason = text();
    let svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"9\" height=\"9\" \
         onload=\"document.title='owned'\">{payload}\
         <script>parent.document.title=document.title='owned'</script></svg>"
    );
    let forms = [
        ("text/html", json!(format!("<p id=cell>{payload}</p>"))),
        ("image/svg+xml", json!(svg)),
        ("image/png", json!(payload)),
        ("text/markdown", json!(payload)),
        ("application/json", json!({payload: payload})),
        (payload, json!(payload)),
    ];
    for item in &mut record.results {
        let data = item.data.take();
        item.data = data.map(|data| Json::of(&poisoned(data.parse().unwrap(), payload)));
        let chart = item.chart.take();
        item.chart = chart.map(|chart| Json::of(&poisoned(chart.parse().unwrap(), payload)));
        item.text = text();
        item.notes = vec![payload.to_owned()];
        item.formats = forms
            .iter()
            .map(|(name, form)| ((*name).to_owned(), form.clone().into()))
            .collect();
    }
    // What is drawn when there is no HTML.
    for (name, form) in [
        ("text/markdown", payload.to_owned()),
        (
            "text/markdown",
            format!("# {payload}\n- {payload}\n$x{payload}$"),
        ),
        ("text/latex", format!("$\\operatorname{{{payload}}}$")),
        ("text/latex", format!("$x < \\text{{{payload}}}$")),
    ] {
        record.results.push(ResultItem {
            formats: [(name.to_owned(), Value::from(form).into())].into(),
            ..ResultItem::default()
        });
    }
    for kind in ["scatter", "pie", payload] {
        let trace = json!({"type": kind, "name": payload, "x": [payload, 1], "y": [1, 2],
            "labels": [payload], "values": [1]});
        let figure = json!({"data": [trace], "layout": {"title": {"text": payload}}});
        let rows = json!([{"a": payload, "b": 1}]);
        let spec = json!({"mark": kind, "title": payload, "data": {"values": rows},
            "encoding": {"x": {"field": "a", "title": payload}, "y": {"field": "b"}}});
        for (name, form) in [
            ("application/vnd.plotly.v1+json", figure),
            ("application/vnd.vegalite.v5+json", spec),
        ] {
            record.results.push(ResultItem {
                formats: [(name.to_owned(), form.into())].into(),
                ..ResultItem::default()
            });
        }
    }
    record
}

#[test]
fn pages_are_as_they_were() {
    for name in ["rich", "error", "hostile", "setup"] {
        let path = file(&format!("tests/records/{name}.page.html"));
        let page = show::render_html(&sample(name));
        let (head, rest) = page.split_once("<style>").unwrap();
        let (_, body) = rest.split_once("</style>").unwrap();
        let wanted = format!("{head}<style>…</style>{body}");
        if std::env::var_os("CELLBLOCK_BLESS").is_some() {
            fs::write(&path, &wanted).unwrap();
        }
        let found = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            found == wanted,
            "{name} differs; CELLBLOCK_BLESS=1 rewrites it:\n{wanted}"
        );
    }
}

#[test]
fn a_page_allows_itself_nothing() {
    let page = show::render_html(&sample("ok"));
    let policy = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src &#39;none&#39;; \
                  img-src data:; style-src &#39;unsafe-inline&#39;; base-uri &#39;none&#39;; \
                  form-action &#39;none&#39;\">";
    let (before, _) = page.split_once(policy).unwrap();
    assert_eq!(
        before,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    );
    let style = page
        .split_once("<style>")
        .unwrap()
        .1
        .split_once("</style>")
        .unwrap()
        .0;
    assert!(!style.contains("url(") && !style.contains("@import"));
}

fn assert_has_only_its_own_tags(page: &str) {
    let allowed: BTreeSet<&str> = TAGS.into_iter().collect();
    let attributes: BTreeSet<&str> = ATTRIBUTES.into_iter().collect();
    for tag in tags::of(page) {
        assert!(allowed.contains(tag.name.as_str()), "{tag:?}");
        for (name, value) in &tag.attributes {
            assert!(attributes.contains(name.as_str()), "{tag:?}");
            let is_data = value.starts_with("data:image/");
            assert!(name != "src" || is_data, "{tag:?}");
            assert!(name != "sandbox" || value.is_empty(), "{tag:?}");
        }
        let is_frame = tag.name == "iframe";
        let names: Vec<&str> = tag
            .attributes
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        assert!(!is_frame || names.contains(&"sandbox"), "{tag:?}");
    }
    let is_bad = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    assert!(!page.contains(is_bad));
}

#[test]
fn nothing_of_a_cell_becomes_a_tag() {
    for payload in PAYLOADS {
        let page = show::render_html(&hostile(payload));
        assert_has_only_its_own_tags(&page);
        let outside = tags::without_attributes(&page);
        assert!(!outside.contains('\u{202e}') && !outside.contains('\u{2066}'));
        assert!(outside.contains("owned"), "the payload is shown as text");
    }
}

proptest! {
    #[test]
    fn no_text_becomes_a_tag(text in any::<String>(), more in "[<>\"'&/a-z =!-]{0,40}") {
        assert_has_only_its_own_tags(&show::render_html(&hostile(&format!("{text}{more}"))));
    }
}

#[test]
fn tables_have_headings_and_say_what_is_missing() {
    let page = show::render_html(&sample("rich"));
    assert!(page.contains("<th scope=\"col\">city</th>"), "{page}");
    assert!(
        page.contains("<th scope=\"row\">x</th><td>Lyon</td><td class=\"number\">1.5</td>"),
        "{page}"
    );
    assert!(
        page.contains("<p class=\"note\">2 of 3000 rows</p>"),
        "{page}"
    );
    assert!(
        page.contains("<p class=\"note\">5 of 1200 results are in the record</p>"),
        "{page}"
    );
    let page = show::render_html(&sample("cut"));
    assert!(page.contains("\n[… 8,990,000 bytes cut …]\n"), "{page}");
    assert!(
        page.contains("<p class=\"note\">files: 1 of 1500 are listed</p>"),
        "{page}"
    );
}

#[test]
fn no_stream_is_too_long_for_a_page() {
    let mut record = sample("ok");
    record.stdout = Some("é".repeat(1 << 20).into());
    let page = show::render_html(&record);
    assert!(page.len() < 1_200_000, "{}", page.len());
    assert!(page.contains("é\n[… 1.0M not shown here …]\né"));
}
