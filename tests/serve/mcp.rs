//! The Model Context Protocol at `/mcp`, message by message. The protocol's own libraries and its
//! conformance suite are run by `tests/mcp/clients/run`.

use std::io::BufReader;
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::harness::{Server, until};
use crate::http_client::{Answer, Http, chunk};

const STATELESS: &str = "2026-07-28";

/// A client of a server's `/mcp`.
struct Mcp(Http);

impl Mcp {
    fn of(http: &Http) -> Self {
        let http = http.with("content-type: application/json");
        Self(http.with("accept: application/json, text/event-stream"))
    }

    fn with(&self, field: &str) -> Self {
        Self(self.0.with(field))
    }

    fn post(&self, body: &Value) -> Answer {
        self.0.post("/mcp", body)
    }

    /// A request of a revision with a handshake.
    fn ask(&self, method: &str, params: &Value) -> Answer {
        self.post(&json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))
    }

    /// A request of 2026-07-28, with the fields that it needs.
    fn ask_stateless(&self, method: &str, mut params: Value) -> Answer {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": STATELESS,
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let one = self.with(&format!("mcp-protocol-version: {STATELESS}"));
        let mut one = one.with(&format!("mcp-method: {method}"));
        if let Some(name) = params["name"].as_str().or(params["uri"].as_str()) {
            one = one.with(&format!("mcp-name: {name}"));
        }
        one.ask(method, &params)
    }

    /// A session, and a client in it.
    fn session(&self) -> (String, Self) {
        let greeting = self.ask("initialize", &json!({"protocolVersion": "2025-11-25"}));
        assert_eq!(greeting.json()["result"]["protocolVersion"], "2025-11-25");
        let id = greeting.field("mcp-session-id").unwrap().to_owned();
        let client = self.with(&format!("mcp-session-id: {id}"));
        (id, client)
    }

    /// The answer of a tool: the last event of its stream.
    fn tool(&self, name: &str, arguments: &Value) -> Value {
        let answer = self.ask("tools/call", &json!({"name": name, "arguments": arguments}));
        assert_eq!(
            answer.field("content-type"),
            Some("text/event-stream"),
            "{answer:?}"
        );
        let message = events(&answer.text()).pop().unwrap();
        message["result"]["structuredContent"].clone()
    }

    /// Begins to run code whose output shows that it runs; reads until then.
    fn endless(&self, id: i64, context: &str) -> BufReader<TcpStream> {
        let code = "import time\nprint('on', flush=True)\nwhile True: time.sleep(0.1); print('on', flush=True)";
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {
            "name": "run_code", "arguments": {"code": code, "context_id": context},
            "_meta": {"progressToken": 7},
        }});
        let mut socket = self.0.send("POST", "/mcp", call.to_string().as_bytes());
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            std::io::BufRead::read_line(&mut socket, &mut head).unwrap();
        }
        let mut text = String::new();
        while !text.contains("notifications/progress") {
            text.push_str(&String::from_utf8(chunk(&mut socket).expect("its end")).unwrap());
        }
        socket
    }
}

/// The messages of a stream.
fn events(text: &str) -> Vec<Value> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("data: "));
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn mcp_serves_both_revisions_at_one_path() {
    let server = Server::start_http(&[]);
    let mcp = Mcp::of(&server.http());
    let (_, session) = mcp.session();
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let answer = session.post(&ready);
    assert_eq!((answer.status, answer.body.len()), (202, 0));
    let tools = session.ask("tools/list", &json!({})).json();
    assert_eq!(tools["result"]["tools"][0]["name"], "run_code");
    assert_eq!(
        session.tool("run_code", &json!({"code": "6 * 7"}))["value"],
        "42"
    );

    let found = mcp.ask_stateless("server/discover", json!({})).json();
    assert_eq!(found["result"]["supportedVersions"][0], STATELESS);
    assert_eq!(found["result"]["resultType"], "complete");
    let arguments = json!({"name": "run_code", "arguments": {"code": "6 * 7"}});
    let ran = mcp.ask_stateless("tools/call", arguments);
    let message = events(&ran.text()).pop().unwrap();
    assert_eq!(
        message["result"]["structuredContent"]["value"], "42",
        "{message}"
    );
    assert_eq!(message["result"]["resultType"], "complete");
}

#[test]
fn mcp_contexts_and_files_of_runs_outlive_a_request() {
    let server = Server::start_http(&["--inline-files=1M"]);
    let mcp = Mcp::of(&server.http());
    let context = mcp.tool("create_context", &json!({}))["context_id"].clone();
    mcp.tool(
        "run_code",
        &json!({"code": "x = 20", "context_id": context}),
    );
    let run = mcp.tool(
        "run_command",
        &json!({"command": "echo $((6 * 7))", "context_id": context}),
    );
    assert_eq!(run["stdout"], "42\n", "{run}");
    let run = mcp.tool("run_code", &json!({"code": "x + 1", "context_id": context}));
    assert_eq!(
        (&run["value"], &run["state"]),
        (&json!("21"), &json!("kept")),
        "{run}"
    );
    let run = mcp.tool("run_code", &json!({"code": "open('a', 'w').write('left')"}));
    let uri = &run["files"][0]["uri"];
    let read = mcp.ask("resources/read", &json!({"uri": uri})).json();
    assert_eq!(read["result"]["contents"][0]["text"], "left", "{read}");
    assert_eq!(
        mcp.tool("close_context", &json!({"context_id": context}))["closed"],
        context
    );
    assert_eq!(mcp.tool("list_contexts", &json!({}))["contexts"], json!([]));
}

#[test]
fn mcp_requests_that_do_not_fit_have_a_status() {
    let server = Server::start_http(&[]);
    let http = server.http();
    let mcp = Mcp::of(&http);
    let code = |answer: &Answer| answer.json()["error"]["code"].clone();

    let answer = mcp.ask_stateless("no/such", json!({}));
    assert_eq!((answer.status, code(&answer)), (404, json!(-32601)));
    let answer = mcp.ask("no/such", &json!({}));
    assert_eq!((answer.status, code(&answer)), (200, json!(-32601)));
    let answer = mcp.0.request("POST", "/mcp", b"{");
    assert_eq!((answer.status, code(&answer)), (400, json!(-32700)));
    let answer = mcp.post(&json!([]));
    assert_eq!((answer.status, code(&answer)), (400, json!(-32600)));
    let meta = json!({"_meta": {"io.modelcontextprotocol/protocolVersion": STATELESS}});
    let answer = mcp.ask("tools/list", &meta);
    assert_eq!((answer.status, code(&answer)), (400, json!(-32020)));
    let answer = mcp
        .with("mcp-protocol-version: 2019-01-01")
        .ask("ping", &json!({}));
    assert_eq!(answer.status, 400);
    let answer = mcp.with("mcp-session-id: none").ask("ping", &json!({}));
    assert_eq!(answer.status, 404);
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    assert_eq!(
        http.with("content-type: text/plain")
            .post("/mcp", &ping)
            .status,
        415
    );
    let json_only = http
        .with("content-type: application/json")
        .with("accept: text/html");
    assert_eq!(json_only.post("/mcp", &ping).status, 406);
    assert_eq!(http.get("/mcp").status, 405);
    // A page of another origin cannot use it.
    assert_eq!(
        mcp.with("origin: http://evil.example")
            .ask("ping", &json!({}))
            .status,
        403
    );
    assert_eq!(mcp.ask("ping", &json!({})).status, 200);
}

#[test]
fn mcp_cancels_within_a_session_and_by_the_end_of_a_stream() {
    let server = Server::start_http(&[]);
    let mcp = Mcp::of(&server.http());
    let (_, session) = mcp.session();
    let (_, other) = mcp.session();
    let context = session.tool("create_context", &json!({}))["context_id"].clone();
    let context = context.as_str().unwrap();
    session.tool("run_code", &json!({"code": "x = 1", "context_id": context}));
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}});

    let mut stream = session.endless(5, context);
    // A request 5 of another session is a different one.
    assert_eq!(other.post(&cancel).status, 202);
    let part = chunk(&mut stream).expect("another session has cancelled it");
    assert!(String::from_utf8_lossy(&part).contains("progress"));
    assert_eq!(session.post(&cancel).status, 202);
    let mut rest = String::new();
    while let Some(part) = chunk(&mut stream) {
        rest.push_str(&String::from_utf8(part).unwrap());
    }
    assert!(!rest.contains("\"result\""), "{rest}");
    let run = session.tool("run_code", &json!({"code": "x", "context_id": context}));
    assert_eq!(run["value"], "1", "{run}");

    // A waiting call is dropped, and the executing one goes on.
    let mut first = session.endless(5, context);
    let mut second = session.endless(6, context);
    let of_second = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": 6}});
    assert_eq!(session.post(&of_second).status, 202);
    while let Some(part) = chunk(&mut second) {
        assert!(!String::from_utf8_lossy(&part).contains("\"result\""));
    }
    let part = chunk(&mut first).expect("the one that executes was interrupted");
    assert!(String::from_utf8_lossy(&part).contains("progress"));
    assert_eq!(session.post(&cancel).status, 202);
    while chunk(&mut first).is_some() {}
    let run = session.tool("run_code", &json!({"code": "x", "context_id": context}));
    assert_eq!(run["value"], "1", "{run}");

    drop(session.endless(6, context));
    let run = session.tool("run_code", &json!({"code": "x", "context_id": context}));
    assert_eq!(
        (&run["value"], &run["state"]),
        (&json!("1"), &json!("kept")),
        "{run}"
    );

    // A run without a context ends with its stream.
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "run_code", "arguments": {"code": "while True: pass"}}});
    drop(session.0.send("POST", "/mcp", call.to_string().as_bytes()));
    session.tool("close_context", &json!({"context_id": context}));
    let http = server.http();
    until("the cell is gone", || {
        http.get("/v1/status").json()["cells"]["used"] == 0
    });
}

#[test]
fn mcp_tokens_share_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tokens");
    std::fs::write(&file, format!("{}\n{}\n", "a".repeat(16), "b".repeat(16))).unwrap();
    let options = ["--http-token", file.to_str().unwrap(), "--inline-files=1M"];
    let server = Server::start_http(&options);
    let http = server.http();
    let of =
        |token: &str| Mcp::of(&http.with(&format!("authorization: Bearer {}", token.repeat(16))));
    let (one, other) = (of("a"), of("b"));
    assert_eq!(Mcp::of(&http).ask("ping", &json!({})).status, 401);

    let context = one.tool("create_context", &json!({}))["context_id"].clone();
    let arguments = json!({"name": "run_code", "arguments": {"code": "1", "context_id": context}});
    let refused = events(&other.ask("tools/call", &arguments).text())
        .pop()
        .unwrap();
    assert_eq!(refused["result"]["isError"], true, "{refused}");
    assert_eq!(one.tool("run_code", &arguments["arguments"])["value"], "1");
    assert_eq!(
        other.tool("list_contexts", &json!({}))["contexts"],
        json!([])
    );

    let run = one.tool("run_code", &json!({"code": "open('a', 'w').write('left')"}));
    let uri = json!({"uri": run["files"][0]["uri"]});
    assert_eq!(one.ask("resources/read", &uri).json()["error"], Value::Null);
    assert_ne!(
        other.ask("resources/read", &uri).json()["error"],
        Value::Null
    );

    let (id, session) = one.session();
    let stolen = other.with(&format!("mcp-session-id: {id}"));
    assert_eq!(stolen.ask("ping", &json!({})).status, 404);
    assert_eq!(stolen.0.request("DELETE", "/mcp", b"").status, 404);
    assert_eq!(session.0.request("DELETE", "/mcp", b"").status, 204);
    assert_eq!(session.ask("ping", &json!({})).status, 404);
}
