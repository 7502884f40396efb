//! What is small as text and large when parsed: it takes the front end no more than some copies of
//! its text, by whichever door it comes and wherever in a request or a result it is.

use serde_json::{Value, json};

use crate::harness::Server;
use crate::http_client::Http;
use crate::long::is_long;

/// The bytes of a body: an eighth of what a server takes.
const BODY: usize = 2 << 20;
/// The most that a server may take in KiB: without a request some 20 MiB; a body exists as such, as
/// line of the hub, as read there and as order, each in a buffer that grows.
const MOST: u64 = 56 << 10;
/// The same for a result of 2 MB, whose record, line and answer exist at once.
const MOST_WITH_RESULT: u64 = 72 << 10;
/// Entries that take many times their text, and what separates them.
const OBJECTS: &str = r#"{"":0}"#;
const TEXTS: &str = r#""""#;

/// Begins to measure: see proc(5), clear_refs.
fn reset(server: &Server) {
    std::fs::write(format!("/proc/{}/clear_refs", server.child.id()), "5").unwrap();
}

/// The most memory that the server's front end had since then, in KiB.
fn peak(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    line.unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap()
}

/// A list that fills the rest of a body.
fn list(entry: &str) -> String {
    let count = (BODY - (64 << 10)) / (entry.len() + 1);
    format!("[{}]", vec![entry; count].join(","))
}

/// An object that fills the rest of a body, each of whose names occurs once.
fn table(value: &str) -> String {
    let count = (BODY - (64 << 10)) / (value.len() + 12);
    let field = |number: usize| format!("\"{number:08x}\":{value}");
    format!(
        "{{{}}}",
        (0..count).map(field).collect::<Vec<_>>().join(",")
    )
}

/// Requests by all of whose fields a bomb comes; `?` is its place.
const PLACES: &[(&str, &str)] = &[
    (
        "/v1/runs",
        r#"{"request":{"language":"python","code":"1"},"x":?}"#,
    ),
    ("/v1/runs", r#"{"events":?}"#),
    ("/v1/runs", "?"),
    ("/run_code", r#"{"code":"1","language":"python","x":?}"#),
    ("/run_code", r#"{"code":"1","language":"python","files":?}"#),
    (
        "/run_code",
        r#"{"code":"1","language":"python","fetch_files":?}"#,
    ),
    ("/run_code", r#"{"code":?,"language":"python"}"#),
    ("/run_jupyter", r#"{"cells":["1"],"x":?}"#),
    ("/run_jupyter", r#"{"cells":?}"#),
    ("/run_jupyter", r#"{"cells":["1"],"files":?}"#),
    ("/execute", r#"{"generated_code":"1","timeout":1,"x":?}"#),
    ("/execute", r#"{"generated_code":"1","timeout":?}"#),
    ("/exec", r#"{"lang":"py","code":"1","x":?}"#),
    ("/exec", r#"{"lang":"py","code":"1","args":?}"#),
    ("/exec", r#"{"lang":"py","code":"1","files":?}"#),
    ("/sandboxes", r#"{"templateID":"base","x":?}"#),
    ("/sandboxes", r#"{"templateID":"base","network":?}"#),
    (
        "/sandboxes",
        r#"{"templateID":"base","network":{"rules":?}}"#,
    ),
    (
        "/sandboxes",
        r#"{"templateID":"base","network":{"allowOut":?}}"#,
    ),
    ("/sandboxes", r#"{"templateID":"base","mcp":?}"#),
    ("/sandboxes", r#"{"templateID":"base","metadata":?}"#),
    ("/sandboxes", r#"{"templateID":"base","envVars":?}"#),
    ("/v2/sandboxes", r#"{"templateID":"base","volumeMounts":?}"#),
    ("/sandboxes/x/timeout", r#"{"x":?}"#),
    ("/sandboxes/x/refreshes", r#"{"x":?}"#),
    ("/sandboxes/x/connect", r#"{"x":?}"#),
    ("/sandboxes/x/pause", r#"{"memory":?}"#),
    ("/sandboxes/x/fork", r#"{"count":?}"#),
    ("/mcp", "?"),
    ("/mcp", r#"{"jsonrpc":"2.0","id":?,"method":"ping"}"#),
    ("/mcp", r#"{"jsonrpc":?,"id":1,"method":"ping"}"#),
    (
        "/mcp",
        r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":?}"#,
    ),
    (
        "/mcp",
        r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"x":?}}}"#,
    ),
    (
        "/mcp",
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":?},"name":"run_code","arguments":{}}}"#,
    ),
    (
        "/mcp",
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_code","arguments":{"x":?}}}"#,
    ),
    (
        "/mcp",
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_code","arguments":{"code":"1","files":?}}}"#,
    ),
    (
        "/mcp",
        r#"{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":?}}"#,
    ),
];

/// The same within a sandbox.
const PLACES_WITHIN: &[(u16, &str, &str)] = &[
    (49999, "/execute", r#"{"code":"1","x":?}"#),
    (49999, "/execute", r#"{"code":"1","env_vars":?}"#),
    (49999, "/contexts", r#"{"language":"python","x":?}"#),
    (49983, "/process.Process/List", r#"{"x":?}"#),
    (
        49983,
        "/process.Process/SendInput",
        r#"{"process":{"pid":1},"input":?}"#,
    ),
    (
        49983,
        "/process.Process/SendSignal",
        r#"{"process":{"pid":1},"x":?}"#,
    ),
    (
        49983,
        "/filesystem.Filesystem/Stat",
        r#"{"path":"a","x":?}"#,
    ),
    (49983, "/filesystem.Filesystem/Move", r#"{"source":?}"#),
    (
        49983,
        "/filesystem.Filesystem/ListDir",
        r#"{"path":"a","depth":?}"#,
    ),
    (
        49983,
        "/filesystem.Filesystem/CreateWatcher",
        r#"{"path":"a","x":?}"#,
    ),
];

/// The same in streams.
const PLACES_IN_STREAMS: &[(&str, &str)] = &[
    (
        "/process.Process/Start",
        r#"{"process":{"cmd":"true"},"x":?}"#,
    ),
    (
        "/process.Process/Start",
        r#"{"process":{"cmd":"true","args":?}}"#,
    ),
    (
        "/process.Process/Start",
        r#"{"process":{"cmd":"true","envs":?}}"#,
    ),
    ("/process.Process/Connect", r#"{"process":{"pid":1},"x":?}"#),
    ("/process.Process/StreamInput", r#"{"start":?}"#),
    ("/filesystem.Filesystem/WatchDir", r#"{"path":?}"#),
];

/// The resources of `/v1` whose requests have a body.
fn resources() -> Vec<(&'static str, String)> {
    let text = include_str!("../../docs/openapi.json");
    let all: Value = serde_json::from_str(text).unwrap();
    let mut found = Vec::new();
    for (path, verbs) in all["paths"].as_object().unwrap() {
        let path = path.replace("{process}", "1").replace(['{', '}'], "");
        for (name, verb) in [("post", "POST"), ("put", "PUT")] {
            let content = &verbs[name]["requestBody"]["content"]["application/json"];
            found.extend((!content.is_null()).then(|| (verb, path.clone())));
        }
    }
    found
}

fn of_mcp(http: &Http) -> Http {
    let http = http.with("content-type: application/json");
    http.with("accept: application/json, text/event-stream")
}

/// Requests to a sandbox.
fn with_sandbox(http: &Http, sandbox: &Value) -> Http {
    let field = |name: &str| sandbox[name].as_str().unwrap().to_owned();
    let http = http.with(&format!("e2b-sandbox-id: {}", field("sandboxID")));
    http.with(&format!("x-access-token: {}", field("envdAccessToken")))
}

#[test]
fn bodies_take_some_copies_of_their_text() {
    let server = Server::start_http(&["--max-memory", "8G"]);
    let http = server.http();
    let bombs = [list(OBJECTS), list(TEXTS), table(TEXTS), table("[]")];
    // One for each place, in turn, or all of them.
    let mut turn = 0;
    let mut some = || {
        turn += 1;
        match is_long() {
            true => &bombs[..],
            false => &bombs[turn % 4..][..1],
        }
    };
    let check = |path: &str, form: &str, http: &Http, verb: &str, bombs: &[String]| {
        for bomb in bombs {
            let body = form.replacen('?', bomb, 1);
            assert!(body.len() <= BODY);
            reset(&server);
            let answer = http.request(verb, path, body.as_bytes());
            let peak = peak(&server);
            let (status, begin) = (answer.status, &bomb[..20]);
            assert!(peak < MOST, "{path} {form} {begin}: {status}, {peak} KiB");
        }
    };
    let plain = of_mcp(&http);
    for (verb, path) in resources() {
        check(&path, r#"{"x":?}"#, &plain, verb, &bombs[..1]);
    }
    for (path, form) in PLACES {
        check(path, form, &plain, "POST", some());
    }
    let sandbox = http.ask("POST", "/sandboxes", &json!({"templateID": "base"}));
    let within = with_sandbox(&plain, &sandbox);
    for (port, path, form) in PLACES_WITHIN {
        let http = within.with(&format!("e2b-sandbox-port: {port}"));
        check(path, form, &http, "POST", some());
    }
    // Messages of a stream are in envelopes.
    let stream = with_sandbox(&http, &sandbox).with("content-type: application/connect+json");
    let stream = stream.with("e2b-sandbox-port: 49983");
    for (path, form) in PLACES_IN_STREAMS {
        for bomb in some() {
            let text = form.replacen('?', bomb, 1);
            let length = u32::try_from(text.len()).unwrap().to_be_bytes();
            let body = [&[0], length.as_slice(), text.as_bytes()].concat();
            reset(&server);
            let answer = stream.request("POST", path, &body);
            let peak = peak(&server);
            assert!(peak < MOST, "{path} {form}: {}, {peak} KiB", answer.status);
        }
    }
}

/// Code whose value is 2 MB of JSON, and would take a hundred times that.
const RESULT: &str = r#"
class R:
    def _repr_mimebundle_(self, *a, **k):
        return {"application/json": J, "text/plain": "x"}
J = [{"": 0}] * 280000
R()
"#;

#[test]
fn results_take_some_copies_of_their_text() {
    let server = Server::start_http(&[]);
    let http = server.http();
    let post = |http: &Http, path: &str, body: &Value| {
        reset(&server);
        let answer = http.post(path, body);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        let (peak, text) = (peak(&server), answer.text());
        assert!(peak < MOST_WITH_RESULT, "{path}: {peak} KiB");
        text
    };
    let has_all = |text: String| assert!(text.matches(r#"{"": 0}"#).count() >= 280_000);
    let request = json!({"language": "python", "code": RESULT});
    has_all(post(&http, "/v1/runs", &json!({"request": request})));
    has_all(post(
        &http,
        "/v1/runs",
        &json!({"request": request, "events": true}),
    ));
    has_all(post(&http, "/run_jupyter", &json!({"cells": [RESULT]})));
    post(
        &http,
        "/run_code",
        &json!({"code": RESULT, "language": "python"}),
    );
    let session = http.with("x-session-id: a");
    post(
        &session,
        "/execute",
        &json!({"generated_code": RESULT, "timeout": 60}),
    );
    post(&http, "/exec", &json!({"lang": "py", "code": RESULT}));
    let params = json!({"name": "run_code", "arguments": {"code": RESULT}});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    post(&of_mcp(&http), "/mcp", &call);
    let sandbox = http.ask("POST", "/sandboxes", &json!({"templateID": "base"}));
    let within = with_sandbox(&http, &sandbox);
    let code = within.with("e2b-sandbox-port: 49999");
    has_all(post(&code, "/execute", &json!({"code": RESULT})));
}
