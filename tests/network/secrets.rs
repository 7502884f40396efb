//! Keys that go into requests and never into the cell.

use std::fs;
use std::process::Stdio;

use crate::Test;
use crate::cell::{Cell, Ended};
use crate::outside::{Outside, program};

pub(crate) const TESTS: &[Test] = &[
    ("secrets/curl", curl),
    ("secrets/python", python),
    ("secrets/plain", plain),
    ("secrets/refusals", refusals),
];

const KEY: &str = "k3y-that-no-cell-sees";
const VARIABLE: &str = "TESTS_API_KEY";
const HEADER: &str = "web.example:X-Api-Key=env:TESTS_API_KEY";

/// Looks for the key in the environment and the arguments of every process of the cell
/// that it may read, and in its files. It does not hold the key itself as text.
const SEARCH: &str = r#"
import os, sys
key = "-".join(("k3y", "that", "no", "cell", "sees"))
needle = bytes(b ^ 1 for b in key.encode())
del key
found = []
for pid in filter(str.isdigit, os.listdir("/proc")):
    for name in ("environ", "cmdline"):
        try:
            data = open(f"/proc/{pid}/{name}", "rb").read()
        except OSError:
            continue
        if bytes(b ^ 1 for b in needle) in data:
            found.append(f"{pid}/{name}")
for top in ("/run/cellblock", "/tmp", "/etc/ssl/certs/ca-certificates.crt"):
    paths = [top] if os.path.isfile(top) else [os.path.join(d, f) for d, _, fs in os.walk(top) for f in fs]
    for path in paths:
        try:
            data = open(path, "rb").read()
        except OSError:
            continue
        if bytes(b ^ 1 for b in needle) in data:
            found.append(path)
print("found", found)
"#;

/// Runs it with the key in the caller's environment, and an authority that the host trusts.
fn run(outside: &Outside, cell: &Cell) -> Ended {
    let mut command = cell.command();
    command
        .env(VARIABLE, KEY)
        .env("SSL_CERT_FILE", outside.authority())
        .stdin(Stdio::null());
    let output = command.output().expect("start cellblock");
    let told = String::from_utf8_lossy(&output.stderr);
    for text in [&output.stdout, &output.stderr] {
        assert!(
            !String::from_utf8_lossy(text).contains(KEY),
            "the key is shown"
        );
    }
    Ended(serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {told}")))
}

/// The keys that the host was given.
fn keys(outside: &Outside) -> String {
    fs::read_to_string(outside.path().join("keys")).unwrap_or_default()
}

fn requests(ended: &Ended) -> u64 {
    ended.0["network"]["secret_headers"][0]["requests"]
        .as_u64()
        .unwrap_or(0)
}

fn check(outside: &Outside, cell: &Cell) {
    let trusting = cell
        .clone()
        .ro(&outside.authority(), "/tests-ca.pem")
        .option(&["--env", "SSL_CERT_FILE=/tests-ca.pem"])
        .option(&["--env", "CURL_CA_BUNDLE=/tests-ca.pem"]);
    // Without the layer, the host gets what the program sends.
    let ended = run(outside, &trusting).ok();
    assert!(ended.stdout().contains("hello"), "{ended:?}");
    assert!(keys(outside).contains("mine") && !keys(outside).contains(KEY));
    fs::remove_file(outside.path().join("keys")).expect("the server's log");
    let ended = run(outside, &cell.clone().option(&["--secret-header", HEADER])).ok();
    assert!(ended.stdout().contains("hello"), "{ended:?}");
    assert_eq!(keys(outside), format!("web.example ['{KEY}']\n"));
    assert_eq!(requests(&ended), 1, "{ended:?}");
}

fn curl() {
    let curl = program("curl");
    let words = [
        &curl,
        "-sS",
        "-H",
        "X-Api-Key: mine",
        "https://web.example/",
    ];
    check(
        &Outside::with_web(),
        &Cell::exec(&words).allow(&["web.example"]),
    );
}

fn python() {
    let code = format!(
        "import urllib.request\nrequest = urllib.request.Request('https://web.example/', headers={{'X-Api-Key': 'mine'}})\nprint(urllib.request.urlopen(request).read().decode())\n{SEARCH}"
    );
    let python = program("python3");
    let cell = Cell::exec(&[&python, "-Ic", &code]).allow(&["web.example"]);
    let outside = Outside::with_web();
    check(&outside, &cell);
    // The search finds what is there; the record has no environment.
    let shown = cell.clone().option(&["--env", &format!("SHOWN={KEY}")]);
    let shown = shown.option(&["--secret-header", HEADER]);
    let ended = run(&outside, &shown).ok();
    assert_ne!(ended.lines("found"), ["found []"], "{ended:?}");
    let ended = run(&outside, &cell.option(&["--secret-header", HEADER])).ok();
    assert_eq!(ended.lines("found"), ["found []"], "{ended:?}");
}

/// Plain requests get a key only where that is written out.
fn plain() {
    let outside = Outside::with_web();
    let curl = program("curl");
    let cell = Cell::exec(&[&curl, "-sS", "http://web.example/"]).allow(&["web.example"]);
    run(&outside, &cell.clone().option(&["--secret-header", HEADER])).ok();
    assert_eq!(keys(&outside), "");
    let plain = format!("http://{HEADER}");
    run(&outside, &cell.option(&["--secret-header", &plain])).ok();
    assert_eq!(keys(&outside), format!("web.example ['{KEY}']\n"));
}

fn refusals() {
    let outside = Outside::new();
    let cell = Cell::exec(&["/bin/true"]).allow(&["web.example"]);
    for (words, why) in [
        (
            vec!["--secret-header", "other.example:X=env:TESTS_API_KEY"],
            "not allowed",
        ),
        (
            vec!["--secret-header", "web.example:X=env:TESTS_UNSET"],
            "not set",
        ),
        (
            vec!["--secret-header", "web.example:Host=env:TESTS_API_KEY"],
            "request's own",
        ),
        (
            vec!["--secret-header", HEADER, "--net-unchecked"],
            "check of names",
        ),
        (
            vec!["--secret-header", HEADER, "--env", "TESTS_API_KEY=x"],
            "leave one out",
        ),
    ] {
        let ended = run(&outside, &cell.clone().option(&words));
        let error = ended.0["setup_error"].to_string();
        assert!(error.contains(why), "{words:?}: {error}");
    }
}
