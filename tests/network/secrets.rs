//! Keys that go into requests and never into the cell.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getuid};
use serde_json::{Value, json};

use crate::Test;
use crate::cell::{Cell, Ended};
use crate::endings::status;
use crate::harness::{Client, Server, descendants, until};
use crate::outside::{Outside, program};
use crate::skip;

pub(crate) const TESTS: &[Test] = &[
    ("secrets/curl", curl),
    ("secrets/python", python),
    ("secrets/java", java),
    ("secrets/plain", plain),
    ("secrets/refusals", refusals),
    ("secrets/memory", memory),
    ("secrets/server", server),
    ("secrets/server-memory", server_memory),
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
    // The host in another case is the same one.
    let header = HEADER.replace("web.example", "Web.EXAMPLE");
    let ended = run(&outside, &cell.option(&["--secret-header", &header])).ok();
    assert_eq!(ended.lines("found"), ["found []"], "{ended:?}");
    assert_eq!(requests(&ended), 1, "{ended:?}");
}

/// Java has a keystore of its own.
fn java() {
    let java = program("java");
    let code = "import java.net.URI; import java.net.http.*;
public class Main {
  public static void main(String[] words) throws Exception {
    var request = HttpRequest.newBuilder(URI.create(\"https://web.example/\")).header(\"X-Api-Key\", \"mine\").version(HttpClient.Version.HTTP_1_1).build();
    System.out.print(HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString()).body());
  }
}";
    let outside = Outside::with_web();
    let file = outside.path().join("Main.java");
    fs::write(&file, code).expect("the code");
    let cell = Cell::exec(&[&java, "-XX:TieredStopAtLevel=1", "/Main.java"]);
    let cell = cell.ro(&file, "/Main.java").allow(&["web.example"]);
    // Where the broker does not end TLS, Java does not trust the tests' authority.
    let ended = run(&outside, &cell);
    assert_ne!(ended.outcome(), "ok", "{ended:?}");
    let ended = run(&outside, &cell.option(&["--secret-header", HEADER])).ok();
    assert!(ended.stdout().contains("hello"), "{ended:?}");
    assert_eq!(keys(&outside), format!("web.example ['{KEY}']\n"));
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

/// Makes a request with TLS and waits.
const REQUEST_AND_WAIT: &str = "import http.client, time
connection = http.client.HTTPSConnection('web.example')
connection.request('GET', '/')
print(connection.getresponse().read().decode(), flush=True)
time.sleep(600)";

/// The processes among `pid` and those that it started whose memory has the key.
fn holders(pid: u32) -> Vec<u32> {
    let mut all = descendants(pid);
    all.push(pid);
    all.retain(|pid| has_key(*pid));
    all
}

fn has_key(pid: u32) -> bool {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let Ok(memory) = File::open(format!("/proc/{pid}/mem")) else {
        return false;
    };
    let number = |text: &str| u64::from_str_radix(text, 16).expect("an address");
    maps.lines().filter(|line| line.contains(" r")).any(|line| {
        let range = line.split(' ').next().expect("a range");
        let (from, to) = range.split_once('-').expect("a range");
        let mut bytes = vec![0; (number(to) - number(from)) as usize];
        let mut length = 0;
        // Pages that were never touched, or cannot be read, have no key.
        while let Ok(count @ 1..) =
            memory.read_at(&mut bytes[length..], number(from) + length as u64)
        {
            length += count;
        }
        // Hundreds of megabytes, for which code without optimization takes most of a minute.
        memchr::memmem::find(&bytes[..length], KEY.as_bytes()).is_some()
    })
}

/// Whether a process is a broker: it alone has a filter outside of the cell.
fn is_broker(pid: &u32) -> bool {
    let inside = |field: &str| status(*pid, field).split_whitespace().count();
    status(*pid, "Seccomp") == "2"
        && inside("NSpid")
            == status(std::process::id(), "NSpid")
                .split_whitespace()
                .count()
}

/// Only the broker has the key in its memory, while the cell is there.
fn memory() {
    if !getuid().is_root() {
        skip("only root may read the memory of all processes of a cell");
    }
    let outside = Outside::with_web();
    let python = program("python3");
    let cell = Cell::exec(&[&python, "-Ic", REQUEST_AND_WAIT]);
    let cell = cell
        .allow(&["web.example"])
        .option(&["--secret-header", HEADER]);
    // As a check of the search, it must find the key when the program is given it.
    for shown in [true, false] {
        let cell = match shown {
            true => cell.clone().option(&["--env", &format!("SHOWN={KEY}")]),
            false => cell.clone(),
        };
        let mut command = cell.command();
        let mut child = command
            .env(VARIABLE, KEY)
            .env("SSL_CERT_FILE", outside.authority())
            .stdin(Stdio::null())
            .spawn()
            .expect("start cellblock");
        until("the request", || keys(&outside).contains(KEY));
        let found = holders(child.id());
        let (brokers, others): (Vec<u32>, Vec<u32>) = found.iter().partition(|pid| is_broker(pid));
        assert_eq!(brokers.len(), 1, "{found:?}");
        assert_eq!(others.is_empty(), !shown, "{others:?}");
        kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).expect("end it");
        child.wait().expect("wait for cellblock");
        fs::remove_file(outside.path().join("keys")).expect("the server's log");
    }
}

/// A server whose cells use the key for one of two hosts.
fn with_key(outside: &Outside, more: &[&str]) -> Server {
    let options = [
        "--net",
        "allow=web.example",
        "--net",
        "allow=four.example",
        "--secret-header",
        HEADER,
    ];
    let authority = outside.authority();
    let authority = authority.to_str().expect("a path");
    Server::start_with(
        "host",
        &[&options[..], more].concat(),
        &[(VARIABLE, KEY), ("SSL_CERT_FILE", authority)],
    )
}

const GET: &str = "import urllib.request\nfor host in HOSTS: print(urllib.request.urlopen(f'https://{host}/').read().decode(), end='')";

fn run_in_server(client: &mut Client, hosts: &str, network: Value) -> Ended {
    let code = format!("HOSTS = {hosts}\n{GET}");
    let request = json!({"language": "python", "code": code, "network": network});
    let result = client.ask("run", json!({"request": request}));
    assert!(
        !result.to_string().contains(KEY),
        "the key is shown: {result}"
    );
    Ended(result["record"].clone())
}

/// A server's keys go into requests of its cells, however the cells were started. A client cannot
/// name keys, and there is no key for a host that its request leaves out.
fn server() {
    let outside = Outside::with_web();
    let inserted = format!("web.example ['{KEY}']\n");
    for more in [
        &[][..],
        &["--warm", "python:1"],
        &["--warm", "python:1", "--preload", "decimal"],
    ] {
        let server = with_key(&outside, more);
        let mut client = server.connect();
        for round in 0..2 {
            if !more.is_empty() {
                until("a waiting cell", || {
                    client.status()["pools"][0]["ready"] == 1
                });
            }
            let ended = run_in_server(&mut client, "['web.example']", Value::Null).ok();
            assert_eq!(keys(&outside), inserted, "{more:?} {round}: {ended:?}");
            assert_eq!(requests(&ended), 1, "{ended:?}");
            fs::remove_file(outside.path().join("keys")).expect("the server's log");
        }
        let ended = run_in_server(
            &mut client,
            "['web.example']",
            json!({"allow": ["web.example"]}),
        )
        .ok();
        assert_eq!(keys(&outside), inserted, "{more:?}: {ended:?}");
        fs::remove_file(outside.path().join("keys")).expect("the server's log");
        let ended = run_in_server(&mut client, "[]", json!({"allow": ["four.example"]})).ok();
        assert_eq!(ended.0["network"]["secret_headers"], json!([]), "{ended:?}");
        let own = json!({"allow": ["web.example"], "secret_headers": [HEADER]});
        let refused = run_in_server(&mut client, "[]", own);
        let error = refused.0["setup_error"].to_string();
        assert!(error.contains("only the caller may"), "{error}");
    }
}

/// Of a server's processes, only brokers have the key in their memory, and none has it when
/// the cells have ended.
fn server_memory() {
    if !getuid().is_root() {
        skip("only root may read the memory of all processes of a cell");
    }
    let outside = Outside::with_web();
    let server = with_key(&outside, &[]);
    let mut client = server.connect();
    for context in ["a", "b"] {
        client.create(context);
        let answer = client.run_in(context, &format!("HOSTS = ['web.example']\n{GET}"));
        assert_eq!(answer["record"]["outcome"], "ok", "{answer}");
    }
    let found = holders(server.child.id());
    assert!(found.len() == 2 && found.iter().all(is_broker), "{found:?}");
    for context in ["a", "b"] {
        client.ask("context.delete", json!({"context": context}));
    }
    until("the end of the keys", || {
        holders(server.child.id()).is_empty()
    });
}
