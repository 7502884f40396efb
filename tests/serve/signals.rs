//! How a server ends, and what it leaves.

use nix::sys::signal::Signal;
use serde_json::json;

use crate::harness::{Server, Signs, descendants, lives, until};

#[test]
fn sigterm_lets_executions_end() {
    let signs = Signs::new();
    let mut server = Server::start(&["--drain", "60s", "--ro", &signs.bind()]);
    let mut client = server.connect();
    client.create("a");
    let code = format!("{}7", Signs::wait_for("go"));
    client.send(1, "context.run", json!({"context": "a", "code": code}));
    until("the execution", || {
        let list = client.ask("context.list", json!({}));
        list["contexts"][0]["doing"] == "busy"
    });
    server.signal(Signal::SIGTERM);
    client.send(
        2,
        "run",
        json!({"request": {"language": "python", "code": "1"}}),
    );
    let refused = client.answer(2);
    assert_eq!(refused["error"]["code"], "shutting_down");
    signs.give("go");
    let answer = client.answer(1);
    assert_eq!(
        answer["result"]["record"]["results"][0]["text"], "7",
        "{answer}"
    );
    assert!(server.wait().success());
    assert!(!server.socket().exists());
}

#[test]
fn the_drain_has_a_deadline() {
    let mut server = Server::start(&["--drain", "1s"]);
    let mut client = server.connect();
    client.create("a");
    client.send(
        1,
        "context.run",
        json!({"context": "a", "code": "while True: pass"}),
    );
    until("the execution", || {
        let list = client.ask("context.list", json!({}));
        list["contexts"][0]["doing"] == "busy"
    });
    server.signal(Signal::SIGTERM);
    assert_eq!(client.answer(1)["error"]["code"], "shutting_down");
    assert!(server.wait().success());
}

#[test]
fn a_killed_server_leaves_no_process() {
    let mut server = Server::start(&["--warm", "python:1"]);
    let mut client = server.connect();
    client.create("a");
    client.run_in(
        "a",
        "import subprocess; child = subprocess.Popen(['sleep', '1000'])",
    );
    client.send(
        1,
        "run",
        json!({"request": {"language": "python", "code": "while True: pass"}}),
    );
    until("the run", || client.status()["cells"]["used"] == 2);
    let all = descendants(server.child.id());
    assert!(all.len() >= 4, "{all:?}");
    server.signal(Signal::SIGKILL);
    server.wait();
    until("the end of all processes", || {
        !all.iter().any(|pid| lives(*pid))
    });
}

#[test]
fn a_client_that_vanishes_leaves_no_process() {
    let server = Server::start(&[]);
    let mut watcher = server.connect();
    let before = descendants(server.child.id());
    let mut client = server.connect();
    client.create("a");
    client.send(
        1,
        "context.run",
        json!({"context": "a", "code": "while True: pass"}),
    );
    client.send(
        2,
        "run",
        json!({"request": {"language": "python", "code": "while True: pass"}}),
    );
    until("two cells", || watcher.status()["cells"]["used"] == 2);
    drop(client);
    until("their end", || watcher.status()["cells"]["used"] == 0);
    assert_eq!(watcher.status()["contexts"], 0);
    until("the end of all processes", || {
        let now = descendants(server.child.id());
        now.iter().all(|pid| before.contains(pid))
    });
}
