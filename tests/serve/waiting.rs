//! The memory that waits in the front end for clients.

use std::io::BufRead as _;

use serde_json::{Value, json};

use crate::harness::{Server, directory, until};
use crate::http_client::{Http, read};
use crate::long::is_long;

const MIB: usize = 1 << 20;
/// What a server takes without clients, and for one call while it passes it on, in a build without
/// optimisations.
const OF_ITS_OWN: u64 = 256;
/// The bytes that `two` lets wait, in MiB: each of the three parties has room for one call.
const WAITING: u64 = 3 * 51;

/// A server with a token for a hostile client and one for an honest client.
fn two(options: &[&str]) -> (Server, Http, Http) {
    let directory = directory(0o755);
    let file = directory.path().join("tokens");
    let (one, two) = ("1".repeat(20), "2".repeat(20));
    std::fs::write(&file, format!("{one}\n{two}\n")).unwrap();
    let own = [
        "--http-token",
        file.to_str().unwrap(),
        "--max-waiting",
        "153M",
    ];
    let own = [&own[..], &["--max-waiting-each", "1M"], options].concat();
    let server = Server::start_http(&own);
    let http = server.http();
    let with = |token: &str| http.with(&format!("authorization: Bearer {token}"));
    let (one, two) = (with(&one), with(&two));
    (server, one, two)
}

/// The most memory of the server's front end so far, in MiB.
fn peak(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line
        .and_then(|line| line.split_whitespace().next())
        .unwrap();
    kilobytes.parse::<u64>().unwrap() / 1024
}

fn waiting(status: &Value) -> u64 {
    status["waiting"]["used"].as_u64().unwrap()
}

#[test]
fn clients_that_fill_the_front_end_get_busy_and_others_are_served() {
    let (server, hostile, honest) = two(&["--max-cells", "4"]);
    // Bodies that do not end. Each counts twice.
    let unfinished = || {
        let body = vec![b'x'; 15 * MIB];
        hostile.send_of("POST", "/v1/runs", &body, body.len() + 1)
    };
    let own = || waiting(&hostile.get("/v1/status").json());
    let kept = unfinished();
    until("a body waits", || own() >= 30 * MIB as u64);
    for _ in 0..8 {
        let refused = read(&mut unfinished());
        assert_eq!(refused.status, 503, "{refused:?}");
        assert_eq!(refused.field("retry-after"), Some("1"));
    }
    // Lines that do not end: there is room for three.
    let mut operator = server.connect();
    let mut lines = Vec::new();
    for number in 0..8 {
        let mut client = server.connect();
        client.write(br#"{"id":7,"method":"run","params":{"request":{"code":""#);
        client.write(&vec![b'x'; 16 * MIB]);
        match number {
            0..3 => until("a line waits", || {
                waiting(&operator.status()) >= (30 + 16 * (number + 1)) * MIB as u64
            }),
            _ => assert_eq!(client.answer(7)["error"]["code"], "busy"),
        }
        lines.push(client);
    }
    // The call itself counts.
    assert!(waiting(&honest.get("/v1/status").json()) < 1024);
    drop(lines);
    until("room again", || {
        waiting(&operator.status()) < 31 * MIB as u64
    });
    // Files that wait for an execution, and calls that wait for a cell.
    let mut client = server.connect();
    client.create("a");
    let code = "import time\nwhile True: time.sleep(1)";
    client.send(1, "context.run", json!({"context": "a", "code": code}));
    let content = "x".repeat(15 * MIB);
    for id in 10..18 {
        let params = json!({"context": "a", "path": "f", "content": content});
        client.send(id, "file.write", params);
    }
    for id in 13..18 {
        assert_eq!(client.answer(id)["error"]["code"], "busy");
    }
    client.send(
        20,
        "run",
        json!({"request": {"language": "python", "code": content}}),
    );
    assert_eq!(client.answer(20)["error"]["code"], "busy");
    // An honest client is served, with a call of the longest kind, too.
    let code = format!("x = '{}'", "x".repeat(15 * MIB));
    let body = json!({"request": {"language": "python", "code": code}});
    let ran = honest.ask("POST", "/v1/runs", &body);
    assert_eq!(ran["record"]["outcome"], "ok", "{ran}");
    let peak = peak(&server);
    assert!(peak < OF_ITS_OWN + WAITING, "{peak} MiB");
    // What waits is given back.
    drop((client, kept));
    until("no byte waits", || waiting(&operator.status()) < 1024);
}

#[test]
fn programs_wait_while_the_answers_of_their_party_are_not_read() {
    let (server, _, honest) = two(&["--max-cells", "4", "--output", "8M"]);
    let mut operator = server.connect();
    let unread = |status: &Value| status["unread"]["used"].as_u64().unwrap();
    // Each byte of output is six in JSON.
    let code = "print('\\1' * (2 << 20))";
    // If all answers waited, those of 40 clients would exceed the bound.
    let count = if is_long() { 40 } else { 16 };
    let mut clients: Vec<_> = (0..count).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send(
            1,
            "run",
            json!({"request": {"language": "python", "code": code}}),
        );
    }
    until("three answers wait", || {
        unread(&operator.status()) >= 36 * MIB as u64
    });
    let body = json!({"request": {"language": "python", "code": "1"}});
    assert_eq!(
        honest.ask("POST", "/v1/runs", &body)["record"]["outcome"],
        "ok"
    );
    assert_eq!(unread(&honest.get("/v1/status").json()), 0);
    // The others come when these are read, and nothing of them is lost.
    for client in &mut clients {
        // It is not parsed here, since that takes long in a build without optimisations.
        let mut answer = Vec::new();
        client.socket.read_until(b'\n', &mut answer).unwrap();
        let head = String::from_utf8_lossy(&answer[..answer.len().min(2000)]);
        assert!(head.starts_with(r#"{"id":1,"result""#), "{head:?}");
        assert!(answer.len() > 12 * MIB, "{} bytes: {head}", answer.len());
    }
    let peak = peak(&server);
    assert!(peak < OF_ITS_OWN + WAITING, "{peak} MiB");
    until("all is read", || unread(&operator.status()) < MIB as u64);
}

#[test]
fn text_that_cannot_be_read_is_a_wrong_parameter() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    client.create("a");
    let wrong = json!({"base64": "?"});
    let run = client.call("context.run", json!({"context": "a", "code": wrong}));
    let write = json!({"context": "a", "path": "f", "content": wrong});
    let write = client.call("file.write", write);
    for (field, answer) in [("code", run), ("content", write)] {
        assert_eq!(answer["error"]["code"], "bad_params", "{answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains(field), "{answer}");
    }
    assert_eq!(client.run_in("a", "print(1)")["record"]["stdout"], "1\n");
}

#[test]
fn answers_over_http_count_until_they_are_read() {
    let (server, hostile, honest) = two(&["--max-cells", "4"]);
    let mut operator = server.connect();
    let mut unread = || operator.status()["unread"]["used"].as_u64().unwrap();
    hostile.ask(
        "POST",
        "/v1/contexts",
        &json!({"context": "a", "request": {}}),
    );
    // The list of processes has their environments, and is longer than what kernels buffer.
    let env = (0..19).map(|n| (format!("V{n}"), json!("x".repeat(100_000))));
    let env = Value::Object(env.collect());
    let list = "/v1/contexts/a/processes";
    for _ in 0..4 {
        hostile.ask(
            "POST",
            list,
            &json!({"argv": ["sleep", "1000"], "env": env}),
        );
    }
    let mut clients: Vec<_> = (0..12).map(|_| hostile.send("GET", list, b"")).collect();
    let mut refused = None;
    until("the party has used up its bytes", || {
        let answer = hostile.get(list);
        refused = (answer.status == 503).then_some(answer);
        refused.is_some()
    });
    let refused = refused.unwrap();
    assert_eq!(refused.field("retry-after"), Some("1"));
    // Short answers go on, and other parties are served.
    assert_eq!(hostile.get("/v1/status").status, 200);
    let body = json!({"request": {"language": "python", "code": "1"}});
    let ran = honest.ask("POST", "/v1/runs", &body);
    assert_eq!(ran["record"]["outcome"], "ok", "{ran}");
    assert_eq!(honest.get("/v1/status").json()["unread"]["used"], 0);
    // Nothing is lost of the answers that wait.
    let answers = clients.iter_mut().map(read);
    let lengths: Vec<_> = (answers.filter(|answer| answer.status == 200))
        .map(|answer| answer.body.len())
        .collect();
    assert!((1..9).contains(&lengths.len()), "{lengths:?}");
    assert!(lengths.iter().all(|length| *length > 7_600_000));
    let peak = peak(&server);
    assert!(peak < OF_ITS_OWN + WAITING, "{peak} MiB");
    until("all is read", || unread() == 0);
    assert_eq!(hostile.get(list).status, 200);
}
