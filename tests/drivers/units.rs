//! The drivers' own tests, by the means of their languages. Java has none: its driver
//! is one file that only JShell can run.

use crate::skip::skip;
use std::path::Path;
use std::process::Command;

/// Runs a test program, where there is such an interpreter.
fn passes(program: &str, arguments: &[&str]) {
    let drivers = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/languages/src");
    let run = Command::new(program)
        .args(arguments)
        .env("PYTHONPATH", drivers.join("python"))
        .env("DRIVERS", drivers)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/drivers"))
        .output();
    let Ok(output) = run else {
        return skip(format_args!("no {program} on this host"));
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
}

#[test]
fn python() {
    passes("python3", &["-B", "-m", "unittest", "discover", "python"]);
}

#[test]
fn javascript() {
    passes("node", &["--test", "javascript/driver.test.cjs"]);
}

#[test]
fn r() {
    passes("Rscript", &["--vanilla", "r/test_driver.R"]);
}
