//! The examples do what their README says.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use record::{Outcome, Record};

const CELLBLOCK: &str = env!("CARGO_BIN_EXE_cellblock");

fn example(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("examples")
        .join(path)
}

/// Says why a test cannot run, if so: no cell with Python in it can be made here.
/// The macros write to what the harness keeps back.
fn cannot_run(test: &str) -> bool {
    let words = ["run", "--json", "--lang", "python", "-c", "display"];
    let output = Command::new(CELLBLOCK).args(words).output().unwrap();
    let why = match Command::new("python3").arg("--version").output() {
        Err(_) => "there is no python3 on this host".to_owned(),
        Ok(_) if !output.status.success() => String::from_utf8_lossy(&output.stdout)
            .chars()
            .take(500)
            .collect(),
        Ok(_) => return false,
    };
    let _ = writeln!(io::stderr(), "{test}: skipped, {why}");
    true
}

fn run(path: &str, words: &[&str]) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(example(path))
        .args(words)
        .env("CELLBLOCK", CELLBLOCK)
        .output()
        .unwrap();
    let (stdout, stderr) = (
        String::from_utf8_lossy(&stdout),
        String::from_utf8_lossy(&stderr),
    );
    assert!(status.success(), "{path}: {status}\n{stdout}\n{stderr}");
    stdout.into_owned()
}

#[test]
fn the_agent_learns_from_each_failure() {
    if cannot_run("the_agent_learns_from_each_failure") {
        return;
    }
    let told = run("agent-loop/agent.py", &[CELLBLOCK]);
    let lines: Vec<&str> = told.lines().collect();
    let attempts: Vec<&str> = lines
        .iter()
        .filter(|line| line.starts_with("  "))
        .map(|line| line.split(':').next().unwrap_or_default().trim())
        .map(|line| line.split(" in ").next().unwrap_or_default())
        // Whether the outcome is `memory` as well depends on what measures it.
        .map(|line| line.rsplit(", ").next().unwrap_or_default())
        .collect();
    assert_eq!(attempts, ["import", "network", "memory", "ok"], "{told}");
    assert_eq!(
        lines.last(),
        Some(&"answer: {'a': 19.63, 'b': 4.75, 'c': 11.84}"),
        "{told}"
    );
}

#[test]
fn the_analysis_leaves_a_plot_and_a_table() {
    if cannot_run("the_analysis_leaves_a_plot_and_a_table") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let stored = dir.path().join("record.json");
    let shown = run("data-analysis/run.sh", &[stored.to_str().unwrap()]);
    assert!(shown.starts_with("ok · python · exit code 0 · "), "{shown}");
    let record: Record = serde_json::from_slice(&fs::read(&stored).unwrap()).unwrap();
    assert_eq!(record.outcome, Outcome::Ok);
    let stdout = record.stdout.as_ref().unwrap().to_string();
    assert!(
        stdout.starts_with("30 years, 0.62 t for each 100 mm of rain, R² = 0.83"),
        "{stdout}"
    );
    let has = |name: &str| {
        record
            .results
            .iter()
            .any(|item| item.formats.contains_key(name))
    };
    assert!(has("image/svg+xml") || has("image/png"));
    let table = record
        .results
        .iter()
        .find(|item| item.is_main_result)
        .unwrap();
    assert!(
        table.formats["text/html"]
            .as_str()
            .unwrap()
            .contains("<table")
    );
    assert!(table.text.as_ref().unwrap().contains("yield (t)"));
}

#[test]
fn the_report_is_one_page() {
    if cannot_run("the_report_is_one_page") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.html");
    run("report/report.sh", &[page.to_str().unwrap()]);
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("<title>ok: python</title>"));
    assert!(page.contains("<img alt=\""));
    assert!(page.contains("30 years, 0.62 t for each 100 mm of rain"));
    // The record is all that it is made of.
    assert!(page.ends_with("</html>\n") && !page.contains("<script"));
}
