//! The page in a real browser.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use cellblock::show;
use record::{Record, ResultItem};
use serde_json::{Value, json};

use super::browser::Browser;
use super::{PAYLOADS, hostile, sample};

#[test]
fn no_script_of_a_cell_runs_in_a_browser() {
    let Some(browser) = Browser::find("no_script_of_a_cell_runs_in_a_browser") else {
        return;
    };
    // On a page of its own, such a script does run.
    let bare = format!("<title>bare</title>{}", PAYLOADS[0]);
    assert!(browser.dom(&bare).contains("<title>owned</title>"));
    let all = PAYLOADS.concat();
    let dom = browser.dom(&show::render_html(&hostile(&all)));
    let (_, title) = dom.split_once("<title>").unwrap();
    assert!(
        title.starts_with("ok: &lt;script&gt;document.title"),
        "{}",
        &title[..200]
    );
    assert!(dom.contains("<footer>cellblock "), "the page is complete");
    // Each of the three walls around HTML is enough, and without any it does run.
    let script = "<script>parent.document.title='owned'</script>";
    let page = show::render_html(&with_html(script));
    let rights = |page: &str| {
        page.replace(
            "sandbox=\"\"",
            "sandbox=\"allow-scripts allow-same-origin\"",
        )
    };
    let policy = |page: &str| page.replace("default-src &#39;none&#39;; ", "");
    let names = |page: &str| page.replace("template&gt;", "script&gt;");
    for (walls, page) in [
        ("all", page.clone()),
        ("names", rights(&policy(&page))),
        ("rights", names(&policy(&page))),
        ("policy", names(&rights(&page))),
    ] {
        assert!(!browser.dom(&page).contains("<title>owned"), "{walls}");
    }
    let bare = names(&rights(&policy(&page)));
    assert!(browser.dom(&bare).contains("<title>owned</title>"));
}

/// A record whose one result is HTML.
fn with_html(html: &str) -> Record {
    let mut record = sample("ok");
    record.results = vec![ResultItem {
        formats: [("text/html".to_owned(), html.into())].into(),
        ..ResultItem::default()
    }];
    record
}

/// HTML that makes a browser ask for HERE.
const ASKING: [&str; 10] = [
    "<img src=\"HERE\">",
    "<style>@import url(HERE); p { background: url(HERE) }</style><p>x",
    "<link rel=stylesheet href=\"HERE\">",
    "<meta http-equiv=refresh content=\"0;url=HERE\">",
    "<iframe src=\"HERE\"></iframe>",
    "<object data=\"HERE\"></object><embed src=\"HERE\">",
    "<video poster=\"HERE\" src=\"HERE\" autoplay></video>",
    "<table background=\"HERE\"><td>x</table>",
    "<script src=\"HERE\"></script>",
    "<svg><image href=\"HERE\" width=9 height=9 /></svg>",
];
/// HTML that makes it connect in advance, and ask for nothing.
const CONNECTING: &str = "<LINK rel=preconnect href=\"HERE\"><img src=x>";

/// Each piece of HTML with a path of its own at `url`.
fn asking(url: &str) -> Vec<String> {
    let pieces = ASKING.iter().enumerate();
    pieces
        .map(|(number, html)| html.replace("HERE", &format!("{url}/{number}")))
        .collect()
}

/// A page with these pieces, each in a frame that may do everything.
fn in_frames(pieces: &[String]) -> String {
    let frame = |html: &String| {
        let html = html.replace('&', "&amp;").replace('"', "&quot;");
        format!("<iframe srcdoc=\"{html}\"></iframe>")
    };
    pieces.iter().map(frame).collect()
}

#[test]
fn a_page_connects_to_nothing() {
    let Some(browser) = Browser::find("a_page_connects_to_nothing") else {
        return;
    };
    // Live: each does by itself. A busy machine may need more than one attempt.
    let wanted: BTreeSet<String> = (0..ASKING.len()).map(|n| format!("/{n}")).collect();
    let mut asked = BTreeSet::new();
    for _ in 0..5 {
        asked.extend(browser.connections(|url| in_frames(&asking(url))));
        if asked.is_superset(&wanted) {
            break;
        }
    }
    assert!(asked.is_superset(&wanted), "{asked:?}");
    let connects = || browser.connections(|url| CONNECTING.replace("HERE", url));
    assert!((0..5).any(|_| !connects().is_empty()), "in advance");

    let made = browser.connections(|url| {
        let mut pieces = asking(url);
        pieces.push(CONNECTING.replace("HERE", url));
        let mut record = hostile(&pieces.concat());
        record.results[0].data = None;
        let shown = pieces.iter().map(|html| ResultItem {
            formats: [("text/html".to_owned(), html.as_str().into())].into(),
            ..ResultItem::default()
        });
        record.results.extend(shown);
        show::render_html(&record)
    });
    assert_eq!(made, [""; 0]);
}

fn png_of(colour: [u8; 3]) -> String {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, 120, 80);
    encoder.set_color(png::ColorType::Rgb);
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(&colour.repeat(120 * 80)).unwrap();
    writer.finish().unwrap();
    BASE64.encode(bytes)
}

/// Pictures are seen, wide and narrow, and HTML is in its frame.
#[test]
fn what_the_code_made_is_seen_in_a_browser() {
    let Some(browser) = Browser::find("what_the_code_made_is_seen_in_a_browser") else {
        return;
    };
    let svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"120\" height=\"80\">\
               <rect width=\"120\" height=\"80\" fill=\"#00ff01\"/></svg>";
    let html = "<div style=\"background: #ff0102; width: 120px; height: 80px\"></div>";
    let mut record = with_html(html);
    for (media_type, form) in [
        ("image/png", png_of([255, 0, 255])),
        ("image/svg+xml", svg.into()),
    ] {
        record.results.push(ResultItem {
            formats: [(media_type.to_owned(), Value::from(form).into())].into(),
            ..ResultItem::default()
        });
    }
    let page = show::render_html(&record);
    for width in [1200, 500] {
        let picture = browser.screenshot(&page, width);
        for colour in [[255, 0, 255], [0, 255, 1], [255, 1, 2]] {
            let seen = picture.pixels(colour);
            assert!(seen > 9000, "{colour:?} at {width}: {seen} pixels");
        }
        assert!(picture.colours() > 20, "the text is drawn");
    }
}

/// Formulas and Markdown are laid out by the browser, not shown as they are written.
#[test]
fn formulas_and_markdown_are_seen_in_a_browser() {
    let Some(browser) = Browser::find("formulas_and_markdown_are_seen_in_a_browser") else {
        return;
    };
    let with = |name: &str, form: &str| {
        let mut record = sample("ok");
        record.results = vec![ResultItem {
            formats: [(name.to_owned(), Value::from(form).into())].into(),
            ..ResultItem::default()
        }];
        show::render_html(&record)
    };
    let formula = with(
        "text/latex",
        "$\\displaystyle \\frac{\\frac{a}{b}}{\\frac{c}{d}}$",
    );
    let dom = browser.dom(&formula);
    assert!(
        dom.contains("\\frac{\\frac{a}{b}}{\\frac{c}{d}}</pre>"),
        "{dom}"
    );
    assert!(dom.contains("<footer>cellblock "), "the page is complete");

    let dom = browser.dom(&with(
        "text/markdown",
        "# Title\n\nSome **bold** words, $x^2$ and [a link](http://x)\n\n|a|b|\n|-|-|\n|1|2|\n",
    ));
    for part in [
        "<h3>Title</h3>",
        "<b>bold</b>",
        "<code>x^2</code>",
        "[a link](http://x)",
        "<td",
    ] {
        assert!(dom.contains(part), "{part}: {dom}");
    }
}

/// Charts whose own form is data for a script are drawn without one.
#[test]
fn charts_are_seen_in_a_browser() {
    let Some(browser) = Browser::find("charts_are_seen_in_a_browser") else {
        return;
    };
    let with = |name: &str, form: Value| {
        let mut record = sample("ok");
        record.results = vec![ResultItem {
            formats: [
                (name.to_owned(), form.into()),
                ("text/html".to_owned(), "<script>draw()</script>".into()),
            ]
            .into(),
            ..ResultItem::default()
        }];
        show::render_html(&record)
    };
    let trace = |kind: &str| json!({"type": kind, "x": ["a", "b"], "y": [3, 9]});
    let bars = with(
        "application/vnd.plotly.v1+json",
        json!({"data": [trace("bar")]}),
    );
    let encoding = json!({"x": {"field": "a"}, "y": {"field": "b"}});
    let rows = json!([{"a": "p", "b": 3}, {"a": "q", "b": 9}]);
    let vega = with(
        "application/vnd.vegalite.v6+json",
        json!({"mark": "bar", "encoding": encoding, "data": {"values": rows}}),
    );
    for page in [bars, vega] {
        assert!(!page.contains("<iframe"), "{page}");
        for width in [1200, 600] {
            let seen = browser.screenshot(&page, width).pixels([0x00, 0x72, 0xb2]);
            assert!(seen > 9000, "{seen} pixels at {width}");
        }
    }
    let other = with(
        "application/vnd.plotly.v1+json",
        json!({"data": [trace("sankey")]}),
    );
    let dom = browser.dom(&other);
    assert!(dom.contains("Not drawn here: plotly's sankey"), "{dom}");
    assert!(
        dom.contains("<td>b</td><td class=\"number\">9</td>"),
        "{dom}"
    );
}
