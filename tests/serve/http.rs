//! HTTP: `/v1`, who may ask, and what clients do wrong.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::harness::{Server, Signs, cellblock, until};
use crate::http_client::{Http, chunk, read};

fn create(http: &Http, name: &str) -> Value {
    let request = json!({"language": "python"});
    let body = json!({"request": request, "context": name, "branches": true});
    http.ask("POST", "/v1/contexts", &body)
}

fn run_in(http: &Http, name: &str, code: &str) -> Value {
    let path = format!("/v1/contexts/{name}/run");
    http.ask("POST", &path, &json!({"code": code}))
}

fn last_value(executed: &Value) -> &str {
    executed["record"]["results"][0]["text"].as_str().unwrap()
}

#[test]
fn runs_and_contexts_are_resources() {
    let server = Server::start_http(&[]);
    let http = server.http();
    let request = json!({"language": "python", "code": "print(6 * 7)"});
    let ran = http.ask("POST", "/v1/runs", &json!({"request": request}));
    assert_eq!(ran["record"]["stdout"], "42\n", "{ran}");
    assert_eq!(create(&http, "a")["context"], "a");
    run_in(&http, "a", "x = 20");
    assert_eq!(last_value(&run_in(&http, "a", "x + 1")), "21");
    let described = http.get("/v1/contexts/a").json();
    assert_eq!(described["variables"][0]["name"], "x", "{described}");
    let list = http.get("/v1/contexts").json();
    assert_eq!(list["contexts"][0]["context"], "a", "{list}");
    http.ask("PUT", "/v1/contexts/a/label", &json!({"label": "blue"}));
    let labelled = |label: &str| {
        let path = format!("/v1/contexts?label={label}");
        http.get(&path).json()["contexts"].as_array().unwrap().len()
    };
    assert_eq!((labelled("blue"), labelled("red")), (1, 0));
    let restarted = http.ask("POST", "/v1/contexts/a/restart", &json!({}));
    assert_eq!(restarted["state"], "lost");
    http.ask("DELETE", "/v1/contexts/a", &json!({}));
    let gone = http.post("/v1/contexts/a/run", &json!({"code": "1"}));
    assert_eq!(gone.status, 404);
    assert_eq!(gone.json()["error"]["code"], "not_found");
    let status = http.get("/v1/status").json();
    assert_eq!(status["cells"]["used"], 0, "{status}");
    assert!(http.get("/v1/metrics").text().contains("# TYPE"));
    let described = http.get("/v1/openapi.json").json();
    assert!(described["paths"]["/v1/runs"]["post"].is_object());
}

#[test]
fn checkpoints_forks_and_rewinds_are_resources() {
    let server = Server::start_http(&[]);
    let http = server.http();
    create(&http, "a");
    run_in(&http, "a", "x = 1");
    let made = http.post("/v1/contexts/a/checkpoints", &json!({}));
    assert_eq!(made.status, 201, "{made:?}");
    let number = made.json()["checkpoint"].as_u64().unwrap();
    run_in(&http, "a", "x = 2; open('f', 'w').write('new')");
    let diff = http.get(&format!("/v1/contexts/a/diff?with={number}"));
    assert_eq!(diff.json()["files"][0]["path"], "f", "{diff:?}");
    let forked = http.ask("POST", "/v1/contexts/a/fork", &json!({"n": 1}));
    let branch = forked["branches"][0]["context"].as_str().unwrap();
    assert_eq!(last_value(&run_in(&http, branch, "x")), "2");
    http.ask("POST", "/v1/contexts/a/rewind", &json!({}));
    assert_eq!(last_value(&run_in(&http, "a", "x")), "1");
    let path = format!("/v1/contexts/a/checkpoints/{number}");
    http.ask("DELETE", &path, &json!({}));
    let again = http.request("DELETE", &path, b"");
    assert_eq!(again.status, 404, "{again:?}");
    http.ask("POST", "/v1/contexts/a/suspend", &json!({}));
    http.ask("POST", "/v1/contexts/a/resume", &json!({}));
    assert_eq!(last_value(&run_in(&http, "a", "x")), "1");
}

#[test]
fn files_travel_as_they_are() {
    let server = Server::start_http(&[]);
    let http = server.http();
    create(&http, "a");
    // Longer than one part, and not text.
    let content: Vec<u8> = (0..4_500_000_u32).map(|n| (n % 251) as u8).collect();
    let put = http.request("PUT", "/v1/contexts/a/files/d/a%20b.bin", &content);
    assert_eq!(put.status, 200, "{}", put.text());
    assert!(http.get("/v1/contexts/a/files/d/a%20b.bin").body == content);
    let tool = "/v1/contexts/a/files/tool?executable=true";
    http.request("PUT", tool, "#!/bin/sh\necho ü".as_bytes());
    let code = "import subprocess; subprocess.check_output('./tool').decode()";
    assert_eq!(last_value(&run_in(&http, "a", code)), "'ü\\n'");
    let list = http.get("/v1/contexts/a/files?recursive=true").json();
    let paths: Vec<&str> = list["entries"]["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["path"].as_str().unwrap())
        .collect();
    assert_eq!(paths, ["d", "d/a b.bin", "tool"]);
    let moved = json!({"from": "tool", "to": "new/tool"});
    let moved = http.ask("POST", "/v1/contexts/a/move", &moved);
    assert_eq!(moved["moved"]["entry"]["path"], "new/tool", "{moved}");
    let append = "/v1/contexts/a/files/new/tool?append=true";
    assert_eq!(http.request("PUT", append, b"!").status, 200);
    let found = http.get("/v1/contexts/a/stat?path=new/tool").json();
    let entry = &found["found"]["entry"];
    // The mode stays as it is.
    assert_eq!(
        (&entry["size"], &entry["mode"]),
        (&json!(18), &json!(0o755))
    );
    let missing = "/v1/contexts/a/files/none?append=true";
    assert_eq!(http.request("PUT", missing, b"!").status, 404);
    let made = json!({"path": "made/deep"});
    http.ask("POST", "/v1/contexts/a/directories", &made);
    let again = http.post("/v1/contexts/a/directories", &made);
    assert_eq!(again.json()["error"]["errno"], "EEXIST", "{again:?}");
    let listed = |depth: u32| {
        let listed = http
            .get(&format!("/v1/contexts/a/files?depth={depth}"))
            .json();
        listed["entries"]["entries"].as_array().unwrap().len()
    };
    assert_eq!((listed(1), listed(2)), (3, 6));
    http.ask("DELETE", "/v1/contexts/a/files/d", &json!({}));
    assert_eq!(http.get("/v1/contexts/a/files/d/a%20b.bin").status, 404);
    for outside in ["..%2fx", "/etc/passwd", "d/../../x"] {
        let found = http.get(&format!("/v1/contexts/a/files/{outside}"));
        assert!(found.status >= 400, "{outside}: {found:?}");
    }
}

#[test]
fn only_the_workspace_bounds_a_file() {
    let server = Server::start_http(&["--workspace-size", "28M"]);
    let http = server.http();
    create(&http, "a");
    let path = "/v1/contexts/a/files/big";
    // Not text, and longer than a call, which has 16 MiB.
    let content = (0..250).collect::<Vec<u8>>().repeat(70_000);
    let put = http.request("PUT", &format!("{path}?executable=true"), &content);
    assert_eq!(put.status, 200, "{}", put.text());
    assert_eq!(put.json()["written"]["size"], content.len(), "{put:?}");
    assert!(http.get(path).body == content);
    let found = http.get("/v1/contexts/a/stat?path=big").json();
    assert_eq!(found["found"]["entry"]["mode"], 0o755, "{found}");
    let more = http.request("PUT", &format!("{path}?append=true"), &content[..5_000_000]);
    assert_eq!(more.json()["written"]["size"], 22_500_000, "{more:?}");
    let full = http.request("PUT", "/v1/contexts/a/files/more", &content[..9_000_000]);
    assert_eq!(full.status, 507, "{}", full.text());
    assert_eq!(full.json()["error"]["errno"], "ENOSPC");
    let names = || {
        let listed = http.get("/v1/contexts/a/files").json();
        let entries = listed["entries"]["entries"].as_array().cloned().unwrap();
        let names = entries
            .iter()
            .map(|entry| entry["path"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    // Neither leaves a part of its file: this client, and one that disconnects midway.
    assert_eq!(names(), ["big"]);
    let mut socket = http.connect();
    let head = "PUT /v1/contexts/a/files/big HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9000000\r\n\r\n";
    socket.write_all(head.as_bytes()).unwrap();
    let free = || {
        let code = "import os; os.statvfs('/workspace').f_bavail, os.listdir('/workspace')";
        last_value(&run_in(&http, "a", code)).to_owned()
    };
    let before = free();
    assert!(before.ends_with(", ['big'])"), "{before}");
    socket.write_all(&content[..5_000_000]).unwrap();
    until("the first part", || free() != before);
    // Neither the code nor a list shows it meanwhile.
    assert!(free().ends_with(", ['big'])"), "{}", free());
    assert_eq!(names(), ["big"]);
    drop(socket);
    until("the part is removed", || free() == before);
    assert_eq!(names(), ["big"]);
    let found = http.get("/v1/contexts/a/stat?path=big").json();
    assert_eq!(found["found"]["entry"]["size"], 22_500_000, "{found}");
    assert_eq!(last_value(&run_in(&http, "a", "1 + 1")), "2");
}

/// An upload that is refused while its client still sends gets its answer, and no reset.
#[test]
fn refused_uploads_get_their_answer() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tokens");
    std::fs::write(&file, "1".repeat(20)).unwrap();
    let server = Server::start_http(&["--http-token", file.to_str().unwrap()]);
    let http = server.http();
    for (path, status) in [
        ("/v1/contexts/a/files/f", 401),
        ("/files?path=a", 401),
        ("/nothing", 401),
    ] {
        let mut socket = http.connect();
        let head = format!(
            "PUT {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n",
            64 << 20
        );
        socket.write_all(head.as_bytes()).unwrap();
        for _ in 0..64 {
            socket.write_all(&vec![b'x'; 1 << 20]).unwrap();
        }
        let answer = read(&mut BufReader::new(socket));
        assert_eq!(answer.status, status, "{path}: {answer:?}");
    }
}

#[test]
fn events_arrive_as_they_happen() {
    let server = Server::start_http(&[]);
    let http = server.http();
    create(&http, "a");
    let body = json!({"code": "print('first', flush=True)\nimport time\ntime.sleep(1000)"});
    let http = http.with("accept: text/event-stream");
    let mut socket = http.send("POST", "/v1/contexts/a/run", body.to_string().as_bytes());
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        socket.read_line(&mut line).unwrap();
    }
    let mut events = String::new();
    while !events.contains("event: stdout\n") {
        let next = chunk(&mut socket).expect("the events ended");
        events.push_str(std::str::from_utf8(&next).unwrap());
    }
    // The code goes on; a client that goes interrupts it, and the context is there.
    drop(socket);
    let plain = server.http();
    assert_eq!(last_value(&run_in(&plain, "a", "1 + 1")), "2");
    let body = json!({"request": {"language": "python", "code": "print(3)"}, "events": true});
    let all = plain.post("/v1/runs", &body).text();
    let names = all.lines().filter_map(|line| line.strip_prefix("event: "));
    let names: Vec<&str> = names.collect();
    assert_eq!(names, ["started", "stdout", "answer"], "{all}");
}

#[test]
fn changes_of_files_are_events() {
    let server = Server::start_http(&[]);
    let http = server.http();
    create(&http, "a");
    let mut socket = http.send("GET", "/v1/contexts/a/watch", b"");
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        socket.read_line(&mut line).unwrap();
    }
    let mut events = String::new();
    let mut wait_for = |what: &str| {
        while !events.contains(what) {
            let next = chunk(&mut socket).expect("the events ended");
            events.push_str(std::str::from_utf8(&next).unwrap());
        }
    };
    wait_for("event: answer\n");
    http.request("PUT", "/v1/contexts/a/files/new", b"x");
    wait_for("event: files_changed\n");
    http.ask("DELETE", "/v1/contexts/a", &json!({}));
    wait_for("event: watch_ended\n");
    assert_eq!(chunk(&mut socket), None);
}

#[test]
fn a_client_that_vanishes_cancels_its_run() {
    // Longer than this test waits, so that no limit ends the code.
    let server = Server::start_http(&["--wall", "1000s"]);
    let http = server.http();
    let code = "import time; time.sleep(1000)";
    let body = json!({"request": {"language": "python", "code": code}}).to_string();
    let socket = http.send("POST", "/v1/runs", body.as_bytes());
    until("the run", || {
        http.get("/v1/status").json()["cells"]["used"] == 1
    });
    drop(socket);
    until("its end", || {
        http.get("/v1/status").json()["cells"]["used"] == 0
    });
    // Bytes after the request do not hide the end of the connection.
    let mut socket = http.send("POST", "/v1/runs", body.as_bytes());
    socket.get_mut().write_all(b"GET").unwrap();
    until("the second run", || {
        http.get("/v1/status").json()["cells"]["used"] == 1
    });
    drop(socket);
    until("its end", || {
        http.get("/v1/status").json()["cells"]["used"] == 0
    });
}

#[test]
fn heads_bodies_and_connections_are_bounded() {
    let server = Server::start_http(&["--http-connections", "8"]);
    let http = server.http();
    let long = format!("/v1/status?{}", "x".repeat(100_000));
    assert_eq!(http.get(&long).status, 414);
    let mut many = http.clone();
    for number in 0..200 {
        many = many.with(&format!("x-{number}: y"));
    }
    assert_eq!(many.get("/v1/status").status, 431);
    let big = http.request("POST", "/v1/runs", &vec![b' '; 17 << 20]);
    assert_eq!(big.status, 413, "{}", big.text());
    // Half requests hold up nobody but those that find no room.
    let mut halves: Vec<_> = (0..7).map(|_| http.connect()).collect();
    for half in &mut halves {
        half.write_all(b"POST /v1/runs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{")
            .unwrap();
    }
    until("an answer beside them", || {
        http.get("/v1/status").status == 200
    });
    let last = http.connect();
    let mut refused = String::new();
    until("a refusal", || {
        refused.clear();
        http.connect().read_to_string(&mut refused).unwrap_or(0) > 0
    });
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    assert!(refused.contains("\r\nretry-after: 1\r\n"), "{refused}");
    drop((last, halves));
    until("room again", || {
        let mut socket = http.connect();
        let _ = socket.write_all(b"GET /v1/status HTTP/1.1\r\nhost: localhost\r\n\r\n");
        read(&mut BufReader::new(socket)).status == 200
    });
}

#[test]
fn connections_that_do_nothing_hold_up_nobody() {
    let server = Server::start_http(&[]);
    let http = server.http();
    let idle: Vec<_> = (0..400).map(|_| http.connect()).collect();
    let request = json!({"language": "python", "code": "print(1)"});
    let ran = http.ask("POST", "/v1/runs", &json!({"request": request}));
    assert_eq!(ran["record"]["stdout"], "1\n");
    // They are no clients of the hub.
    assert_eq!(http.get("/v1/status").json()["clients"], 1);
    drop(idle);
}

#[test]
fn clients_that_go_at_any_moment_leave_nothing() {
    let server = Server::start_http(&[]);
    let http = server.http();
    let body = json!({"request": {"language": "python", "code": "import time; time.sleep(60)"}});
    let body = body.to_string();
    let length = body.len();
    let request = format!(
        "POST /v1/runs HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    for end in (0..request.len()).step_by(7).chain([request.len()]) {
        let mut socket = http.connect();
        socket.write_all(&request.as_bytes()[..end]).unwrap();
    }
    until("nothing is left", || {
        let status = http.get("/v1/status").json();
        status["clients"] == 1 && status["cells"]["used"] == 0
    });
}

#[test]
fn damaged_requests_are_refused_or_understood() {
    let server = Server::start_http(&[]);
    let http = server.http();
    let request = b"POST /run_code HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n1e\r\n{\"code\":\"1\",\"language\":\"none\"}\r\n0\r\n\r\n";
    let mut seed = 0x9e37_79b9_u64;
    let mut random = |most: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as usize % most
    };
    for _ in 0..300 {
        let mut damaged = request.to_vec();
        for _ in 0..=random(3) {
            let at = random(damaged.len());
            match random(3) {
                0 => damaged[at] = random(256) as u8,
                1 => drop(damaged.remove(at)),
                _ => damaged.insert(at, b"\r\n\0 :;,=0f"[random(10)]),
            }
        }
        let mut socket = http.connect();
        // A server that has refused it need not read the rest.
        let _ = socket.write_all(&damaged);
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        let is_answer = answer.is_empty() || answer.starts_with(b"HTTP/1.");
        assert!(is_answer, "{damaged:?}: {answer:?}");
    }
    assert_eq!(http.get("/v1/status").json()["clients"], 1);
}

#[test]
fn requests_that_are_not_http_end_their_connection() {
    let server = Server::start_http(&[]);
    let http = server.http();
    for wrong in [
        "nonsense\r\n\r\n",
        "GET /v1/status HTTP/1.1\r\n\r\n",
        "GET /v1/status HTTP/1.1\r\nhost: a b\r\n\r\n",
        "POST /v1/runs HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        "POST /v1/runs HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n",
    ] {
        let mut socket = http.connect();
        socket.write_all(wrong.as_bytes()).unwrap();
        let answer = read(&mut BufReader::new(socket));
        assert_eq!(answer.status, 400, "{wrong:?}: {answer:?}");
    }
    for (body, code) in [
        ("nonsense", "bad_request"),
        ("[]", "bad_request"),
        ("{\"request\": {\"rootfs\": \"/\"}}", "bad_params"),
        ("{\"frob\": 1}", "bad_params"),
    ] {
        let answer = http.request("POST", "/v1/runs", body.as_bytes());
        assert_eq!(answer.status, 400, "{body}: {answer:?}");
        assert_eq!(answer.json()["error"]["code"], code, "{body}");
    }
    let named = http.post("/v1/contexts/a/run", &json!({"context": "b", "code": ""}));
    assert!(named.text().contains("given twice"), "{named:?}");
    assert_eq!(http.get("/v1/nothing").status, 404);
    assert_eq!(http.request("DELETE", "/v1/status", b"").status, 405);
}

#[test]
fn only_own_pages_and_names_may_ask() {
    let server = Server::start_http(&["--http-host", "box.example"]);
    let http = server.http();
    let status = |http: &Http| http.get("/v1/status").status;
    assert_eq!(status(&http.as_host("box.example:8080")), 200);
    assert_eq!(status(&http.as_host("evil.example")), 403);
    assert_eq!(status(&http.with("origin: http://evil.example")), 403);
    assert_eq!(status(&http.with("sec-fetch-site: cross-site")), 403);
    let answer = http.get("/v1/status");
    assert_eq!(answer.field("x-content-type-options"), Some("nosniff"));
    let own = http
        .as_host("localhost:1")
        .with("origin: http://localhost:1");
    assert_eq!(status(&own), 200);
}

#[test]
fn tokens_are_demanded_and_keep_contexts_apart() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tokens");
    let (one, two) = ("1".repeat(20), "2".repeat(20));
    std::fs::write(&file, format!("{one}\n\n{two}\n")).unwrap();
    let server = Server::start_http(&["--http-token", file.to_str().unwrap()]);
    let http = server.http();
    let refused = http.get("/v1/status");
    assert_eq!(refused.status, 401, "{refused:?}");
    assert_eq!(refused.field("www-authenticate"), Some("Bearer"));
    let wrong = http.with(&format!("authorization: Bearer {}", "3".repeat(20)));
    assert_eq!(wrong.post("/v1/runs", &json!({})).status, 401);
    let one = http.with(&format!("authorization: Bearer {one}"));
    let two = http.with(&format!("x-api-key: {two}"));
    create(&one, "a");
    for path in [
        "/v1/contexts/a",
        "/v1/contexts/a/files",
        "/v1/contexts/a/watch",
    ] {
        assert_eq!(two.get(path).status, 404, "{path}");
    }
    assert_eq!(two.request("DELETE", "/v1/contexts/a", b"").status, 404);
    let none = json!({"contexts": []});
    assert_eq!(two.get("/v1/contexts").json(), none);
    // Clients of the socket are users of the host, and no token's.
    let mut local = server.connect();
    assert_eq!(local.ask("context.list", json!({})), none);
    assert_eq!(last_value(&run_in(&one, "a", "1")), "1");
}

#[test]
fn no_other_host_is_served_without_a_token() {
    let output = cellblock()
        .args(["serve", "--http", "0.0.0.0:0"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("not a loopback address"), "{said}");
    assert!(said.contains("--http-token"), "{said}");
}

#[test]
fn sigterm_lets_answers_out() {
    let signs = Signs::new();
    let mut server = Server::start_http(&["--drain", "60s", "--ro", &signs.bind()]);
    let http = server.http();
    let code = format!("{}print(7)", Signs::wait_for("go"));
    let body = json!({"request": {"language": "python", "code": code}}).to_string();
    let mut socket = http.send("POST", "/v1/runs", body.as_bytes());
    until("the run", || {
        http.get("/v1/status").json()["cells"]["used"] == 1
    });
    let idle = http.connect();
    server.signal(Signal::SIGTERM);
    until("a refusal", || http.get("/v1/status").status == 503);
    signs.give("go");
    let answer = read(&mut socket);
    assert_eq!(answer.json()["record"]["stdout"], "7\n", "{answer:?}");
    assert!(server.wait().success());
    drop(idle);
}
