//! HTTP clients of each door that are slow, are many, or disconnect at any moment.

use std::io::{BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::{Value, json};

use crate::harness::{Server, descendants, until};
use crate::http_client::{Http, read};
use crate::long::is_long;
use crate::skip::skip;

/// A request of each door.
const DOORS: [&str; 8] = [
    "run",
    "SandboxFusion",
    "NeMo-Skills",
    "LibreChat",
    "MCP",
    "E2B creates",
    "E2B executes",
    "E2B starts",
];

/// A request that takes a while, and the header fields that it needs.
struct Long {
    name: &'static str,
    fields: Vec<String>,
    verb: &'static str,
    path: &'static str,
    body: Vec<u8>,
}

fn long(name: &'static str, verb: &'static str, path: &'static str, body: &Value) -> Long {
    let body = match body {
        Value::Null => Vec::new(),
        body => body.to_string().into_bytes(),
    };
    Long {
        name,
        fields: vec!["content-type: application/json".to_owned()],
        verb,
        path,
        body,
    }
}

impl Long {
    fn with(mut self, field: &str) -> Self {
        if field.starts_with("content-type") {
            self.fields.clear();
        }
        self.fields.push(field.to_owned());
        self
    }

    /// For the server at this port of a sandbox.
    fn at(self, sandbox: &str, port: u16) -> Self {
        self.with(&format!("e2b-sandbox-id: {sandbox}"))
            .with(&format!("e2b-sandbox-port: {port}"))
    }

    /// A stream of messages has envelopes.
    fn enveloped(mut self) -> Self {
        let length = u32::try_from(self.body.len()).unwrap().to_be_bytes();
        self.body = [&[0], length.as_slice(), &self.body].concat();
        self.with("content-type: application/connect+json")
    }

    fn text(&self) -> Vec<u8> {
        let (verb, path, length) = (self.verb, self.path, self.body.len());
        let mut text = format!("{verb} {path} HTTP/1.1\r\nhost: localhost\r\n");
        for field in &self.fields {
            text.push_str(&format!("{field}\r\n"));
        }
        text.push_str(&format!("content-length: {length}\r\n\r\n"));
        [text.as_bytes(), &self.body].concat()
    }
}

/// A request for each stage of each door. The context `a` and the sandbox each have a file `big`.
fn stages(sandbox: &str) -> Vec<Long> {
    const SLEEP: &str = "import time; print('on', flush=True); time.sleep(1000)";
    let request = json!({"language": "python", "code": SLEEP});
    let content = "x".repeat(3 << 20);
    let upload = |name, verb, path| Long {
        body: content.clone().into_bytes(),
        ..long(name, verb, path, &json!(null))
    };
    let cat = json!({"process": {"cmd": "cat"}, "stdin": true});
    let terminal = json!({"process": {"cmd": "sh"}, "pty": {"size": {"rows": 9, "cols": 9}}});
    let cells = json!({"cells": [SLEEP], "kernel": "python3", "total_timeout": 1000});
    let tool = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "run_code", "arguments": {"code": SLEEP}}});
    vec![
        long("run", "POST", "/v1/runs", &json!({"request": request})),
        long(
            "run with events",
            "POST",
            "/v1/runs",
            &json!({"request": request, "events": true}),
        ),
        long(
            "create",
            "POST",
            "/v1/contexts",
            &json!({"request": {"language": "python"}}),
        ),
        long(
            "execute",
            "POST",
            "/v1/contexts/a/run",
            &json!({"code": SLEEP}),
        ),
        long(
            "stream",
            "POST",
            "/v1/contexts/a/run",
            &json!({"code": SLEEP, "events": true}),
        ),
        upload("upload", "PUT", "/v1/contexts/a/files/up"),
        long("download", "GET", "/v1/contexts/a/files/big", &json!(null)),
        long("watch", "GET", "/v1/contexts/a/watch", &json!(null)),
        long(
            "process",
            "POST",
            "/v1/contexts/a/processes",
            &json!({"argv": ["cat"], "input": true, "events": true, "attached": true}),
        ),
        long(
            "terminal",
            "POST",
            "/v1/contexts/a/processes",
            &json!({"argv": ["sh"], "terminal": {"rows": 9, "columns": 9}, "events": true, "attached": true}),
        ),
        long(
            "SandboxFusion",
            "POST",
            "/run_code",
            &json!({"code": SLEEP, "language": "python", "run_timeout": 1000}),
        ),
        long("notebook", "POST", "/run_jupyter", &cells),
        long(
            "NeMo-Skills",
            "POST",
            "/execute",
            &json!({"generated_code": SLEEP, "language": "ipython", "timeout": 1000.0}),
        )
        .with("x-session-id: s"),
        long(
            "LibreChat",
            "POST",
            "/exec",
            &json!({"lang": "py", "code": SLEEP}),
        ),
        long("MCP", "POST", "/mcp", &tool).with("accept: application/json, text/event-stream"),
        long(
            "E2B creates",
            "POST",
            "/v2/sandboxes",
            &json!({"templateID": "base", "timeout": 600}),
        ),
        long("E2B executes", "POST", "/execute", &json!({"code": SLEEP})).at(sandbox, 49999),
        upload("E2B uploads", "POST", "/files?path=up")
            .with("content-type: application/octet-stream")
            .at(sandbox, 49983),
        long("E2B downloads", "GET", "/files?path=big", &json!(null)).at(sandbox, 49983),
        long(
            "E2B watches",
            "POST",
            "/filesystem.Filesystem/WatchDir",
            &json!({"path": "/home/user"}),
        )
        .enveloped()
        .at(sandbox, 49983),
        long("E2B starts", "POST", "/process.Process/Start", &cat)
            .enveloped()
            .at(sandbox, 49983),
        long(
            "E2B's terminal",
            "POST",
            "/process.Process/Start",
            &terminal,
        )
        .enveloped()
        .at(sandbox, 49983),
    ]
}

/// A context `a` and a sandbox with a file each; returns the sandbox's id.
fn prepare(http: &Http) -> String {
    let params = json!({"request": {"language": "python"}, "context": "a"});
    http.ask("POST", "/v1/contexts", &params);
    let made = http.ask(
        "POST",
        "/v2/sandboxes",
        &json!({"templateID": "base", "timeout": 600}),
    );
    let sandbox = made["sandboxID"].as_str().unwrap().to_owned();
    for context in ["a", &format!("{sandbox}-1")] {
        let path = format!("/v1/contexts/{context}/files/big");
        assert_eq!(http.request("PUT", &path, &vec![b'x'; 3 << 20]).status, 200);
    }
    sandbox
}

#[test]
fn clients_that_go_at_any_stage_of_any_door_leave_nothing() {
    let server = Server::start_http(&["--wall", "1000s"]);
    let http = server.http();
    let before = descendants(server.child.id()).len();
    let sandbox = prepare(&http);
    let status = || http.get("/v1/status").json();
    for stage in stages(&sandbox) {
        let text = stage.text();
        let head = text.len() - stage.body.len();
        // Within the head, before the body, within it, before the answer, within the answer.
        let ends = [
            head / 2,
            head,
            head + stage.body.len() / 2,
            text.len(),
            text.len() + 1,
        ];
        for end in ends {
            let mut socket = http.connect();
            // A server that refuses need not read the rest.
            let _ = socket.write_all(&text[..end.min(text.len())]);
            if end > text.len()
                && !matches!(
                    stage.name,
                    "run" | "execute" | "notebook" | "SandboxFusion" | "NeMo-Skills" | "LibreChat"
                )
            {
                let mut answer = [0; 12];
                socket.read_exact(&mut answer).unwrap();
                assert_eq!(&answer[..10], b"HTTP/1.1 2", "{}", stage.name);
            }
        }
        until(stage.name, || status()["clients"] == 1);
    }
    // Only contexts and sandboxes outlive their clients.
    for listed in http.get("/v1/contexts").json()["contexts"]
        .as_array()
        .unwrap()
    {
        let name = listed["context"].as_str().unwrap();
        assert_eq!(listed["waiting"], 0, "{listed}");
        http.request("DELETE", &format!("/v1/contexts/{name}"), b"");
    }
    until("the end of all cells", || status()["cells"]["used"] == 0);
    until("the end of all processes", || {
        descendants(server.child.id()).len() <= before
    });
}

/// Lets this process have `count` descriptors; the error says why it cannot.
fn allow_descriptors(count: usize) -> Result<(), String> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let wanted = count as u64;
    if hard < wanted {
        return Err(format!("RLIMIT_NOFILE is {hard}, and {wanted} are needed"));
    }
    setrlimit(Resource::RLIMIT_NOFILE, soft.max(wanted), hard).map_err(|errno| errno.to_string())
}

#[test]
fn many_connections_of_any_door_leave_room() {
    let many = if is_long() { 2000 } else { 250 };
    if let Err(why) = allow_descriptors(many + 1000) {
        return skip(why);
    }
    let most = (many + 100).to_string();
    let server = Server::start_http(&["--http-connections", &most]);
    let http = server.http();
    let sandbox = prepare(&http);
    let descriptors = || {
        let path = format!("/proc/{}/fd", server.child.id());
        std::fs::read_dir(path).unwrap().count()
    };
    let before = descriptors();
    let stages = stages(&sandbox);
    for door in DOORS {
        let stage = stages.iter().find(|stage| stage.name == door).unwrap();
        let text = stage.text();
        // Half of the body is missing.
        let end = text.len() - stage.body.len() / 2;
        let open = || {
            let mut socket = http.connect();
            socket.write_all(&text[..end]).unwrap();
            socket
        };
        let sockets: Vec<TcpStream> = (0..many).map(|_| open()).collect();
        until("all connections", || descriptors() >= before + many);
        let ran = http.get("/v1/status").json();
        assert_eq!(ran["clients"], 1, "{}: {ran}", stage.name);
        // One of them goes on.
        let mut last = &sockets[many - 1];
        if stage.name == "E2B creates" {
            last.write_all(&text[end..]).unwrap();
            let made = read(&mut BufReader::new(last.try_clone().unwrap()));
            assert_eq!(made.status, 201, "{made:?}");
        }
        drop(sockets);
        until("their end", || descriptors() < before + 100);
    }
}

#[test]
fn a_slow_client_gets_its_answer() {
    let server = Server::start_http(&[]);
    let http = server.http();
    prepare(&http);
    let body = json!({"request": {"language": "python", "code": "print(6 * 7)"}});
    let text = long("run", "POST", "/v1/runs", &body).text();
    let mut socket = http.connect();
    for piece in text.chunks(8) {
        socket.write_all(piece).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    let ran = read(&mut BufReader::new(socket));
    assert_eq!(ran.json()["record"]["stdout"], "42\n");
    // Others are served while a client takes a file in small pieces.
    let text = long("download", "GET", "/v1/contexts/a/files/big", &json!(null)).text();
    let mut socket = http.connect();
    socket.write_all(&text).unwrap();
    let mut taken = vec![0; 64 << 10];
    for _ in 0..8 {
        socket.read_exact(&mut taken).unwrap();
        assert_eq!(http.get("/v1/status").status, 200);
    }
}

#[test]
fn a_half_closed_connection_is_one_whose_client_has_gone() {
    let server = Server::start_http(&["--wall", "1000s"]);
    let http = server.http();
    let request = json!({"language": "python", "code": "import time; time.sleep(1000)"});
    let text = long("run", "POST", "/v1/runs", &json!({"request": request})).text();
    let used = || http.get("/v1/status").json()["cells"]["used"].clone();
    let mut socket = http.connect();
    socket.write_all(&text).unwrap();
    until("the run", || used() == 1);
    socket.shutdown(Shutdown::Write).unwrap();
    until("its end", || used() == 0);
    assert_eq!(socket.read(&mut [0]).unwrap_or(0), 0);
    // Half a request and half a connection.
    for end in [10, text.len() / 2, text.len() - 1] {
        let mut socket = http.connect();
        socket.write_all(&text[..end]).unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        assert!(
            answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"),
            "{answer:?}"
        );
    }
    assert_eq!(
        (used(), http.get("/v1/status").json()["clients"].clone()),
        (json!(0), json!(1))
    );
}
