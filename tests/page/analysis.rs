//! The page of a real analysis, `examples/data-analysis`, in a real browser.

use std::io::{self, Write as _};
use std::process::Command;

use cellblock::show;
use record::{Outcome, Record};

use super::browser::Browser;
use super::file;

const CELLBLOCK: &str = env!("CARGO_BIN_EXE_cellblock");
/// What it draws the fitted line with.
const LINE: [u8; 3] = [0xa1, 0x1a, 0x20];

/// Runs the analysis with these options too; says which test cannot run, if so.
fn analyse(test: &str, options: &[&str]) -> Option<Record> {
    let skip = |why: &str| {
        // The macros write to what the harness keeps back.
        let _ = writeln!(io::stderr(), "{test}: skipped, {why}");
        None
    };
    let output = Command::new(CELLBLOCK)
        .args(["run", "--json", "--lang", "python", "--wall", "60s"])
        .args(["--memory", "1G", "--file"])
        .arg(file("examples/data-analysis/harvest.csv"))
        .args(options)
        .arg(file("examples/data-analysis/analyse.py"))
        .output()
        .unwrap();
    let record: Record = serde_json::from_slice(&output.stdout).unwrap();
    if record.outcome == Outcome::Setup {
        let why = record.setup_error.map(|error| error.to_string());
        return skip(&why.unwrap_or_default());
    }
    assert_eq!(record.outcome, Outcome::Ok, "{:?}", record.error);
    Some(record)
}

/// The plot is seen, wide and narrow, in the colours of its dots and its line. A
/// page may have those by itself, hence the one without results.
fn assert_is_seen(browser: &Browser, record: &Record, dots: [u8; 3]) {
    let page = show::render_html(record);
    let bare = show::render_html(&Record {
        results: Vec::new(),
        ..record.clone()
    });
    // A narrow page has a smaller plot, more of it blended with the ground.
    for (width, least_dots, least_line) in [(1200, 800, 300), (500, 300, 20)] {
        let (page, bare) = (
            browser.screenshot(&page, width),
            browser.screenshot(&bare, width),
        );
        for (colour, least) in [(dots, least_dots), (LINE, least_line)] {
            let seen = page.pixels(colour).saturating_sub(bare.pixels(colour));
            assert!(seen > least, "{colour:?} at {width}: {seen} pixels");
        }
    }
}

#[test]
fn an_analysis_with_the_standard_library_is_seen() {
    let test = "an_analysis_with_the_standard_library_is_seen";
    let Some(browser) = Browser::find(test) else {
        return;
    };
    // The interpreter may have the libraries.
    let dir = tempfile::tempdir().unwrap();
    let none = dir.path().join("matplotlib.py");
    std::fs::write(&none, "raise ImportError").unwrap();
    let Some(record) = analyse(test, &["--file", none.to_str().unwrap()]) else {
        return;
    };
    assert!(record.results[0].formats.contains_key("image/svg+xml"));
    assert_is_seen(&browser, &record, [0x3b, 0x76, 0xb5]);
    let dom = browser.dom(&show::render_html(&record));
    let row = " rain (mm)       439.0      625.37       879.0\n";
    assert!(dom.contains(row), "{dom}");
    let html = dom.replace("&lt;", "<").replace("&gt;", ">");
    let row = "<tr><td>yield (t)</td><td>4.32</td><td>5.9</td><td>8.22</td></tr>";
    assert!(html.contains(row), "{dom}");
    assert!(dom.contains("30 years, 0.62 t for each 100 mm of rain, R² = 0.83"));
}

#[test]
fn an_analysis_with_pandas_is_seen() {
    let test = "an_analysis_with_pandas_is_seen";
    let Some(browser) = Browser::find(test) else {
        return;
    };
    let Some(record) = analyse(test, &["--rootfs", "python-data"]) else {
        return;
    };
    assert_is_seen(&browser, &record, [0x1f, 0x77, 0xb4]);
    let dom = browser.dom(&show::render_html(&record));
    for part in [
        "charts “Rain and harvest”, rain (mm) × yield (t): scatter, line",
        "<th scope=\"col\" class=\"number\">rain (mm)</th>",
        "<th scope=\"row\">mean</th><td class=\"number\">625.37</td><td class=\"number\">5.9</td>",
        "<th scope=\"row\">max</th><td class=\"number\">879.0</td><td class=\"number\">8.22</td>",
    ] {
        assert!(dom.contains(part), "{part}: {dom}");
    }
}
