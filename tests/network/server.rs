//! Servers whose cells reach named hosts: runs, contexts, pools and what clients may ask for.

use std::net::TcpListener;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use nix::sys::socket::{Backlog, listen};
use serde_json::{Value, json};

use crate::Test;
use crate::cell::Ended;
use crate::harness::{Client, Server, descendants, lives, until};
use crate::internet::listening;
use crate::outside::Outside;

pub(crate) const TESTS: &[Test] = &[
    ("server/runs", runs),
    ("server/requests", requests),
    ("server/contexts", contexts),
    ("server/each", each),
    ("server/between", between),
    ("server/interrupts", interrupts),
    ("server/limits", limits),
    ("server/restarts", restarts),
    ("server/idle", idle),
    ("server/branches", branches),
    ("server/pools", pools),
    ("server/blank-cells", blank_cells),
];

const ALLOW: [&str; 6] = [
    "--net",
    "allow=web.example",
    "--net",
    "allow=four.example",
    "--net",
    "allow=raw.example:7000",
];

/// Code that tries hosts, and prints a line for each attempt.
const FUNCTIONS: &str = "import os, socket, urllib.request
def end(s):
    # A connection has ended, and is in the record, when both sides have closed theirs.
    s.shutdown(socket.SHUT_WR)
    while s.recv(100):
        pass
    s.close()
def get(host):
    try:
        with urllib.request.urlopen(f'http://{host}/') as answer:
            s = socket.socket(fileno=os.dup(answer.fileno()))
            print(answer.read().decode(), end='')
        end(s)
    except OSError as error:
        print('refused', host, error)
def talk(host='raw.example'):
    s = socket.create_connection((host, 7000))
    s.sendall(b'hello raw\\n')
    print(s.recv(100).decode(), end='')
    return s
";

/// A call's code.
fn code(lines: &str) -> String {
    format!("{FUNCTIONS}{lines}")
}

/// A run's answer.
fn run(client: &mut Client, request: &Value) -> (Value, Ended) {
    let result = client.ask("run", json!({"request": request}));
    (result["start"].clone(), Ended(result["record"].clone()))
}

fn run_code(client: &mut Client, lines: &str, network: Value) -> Ended {
    let request = json!({"language": "python", "code": code(lines), "network": network});
    run(client, &request).1
}

fn create(client: &mut Client, name: &str, network: Value) -> Value {
    let request = json!({"language": "python", "network": network});
    client.ask(
        "context.create",
        json!({"request": request, "context": name}),
    )
}

/// An execution in a context, and what became of the state.
fn execute(client: &mut Client, name: &str, lines: &str) -> (Value, Ended) {
    let result = client.run_in(name, &code(lines));
    (result["state"].clone(), Ended(result["record"].clone()))
}

fn hosts(ended: &Ended) -> Vec<&str> {
    let hosts = ended.connections().iter();
    hosts
        .filter_map(|connection| connection["host"].as_str())
        .collect()
}

/// Runs without a network of their own have the server's; connections are events.
fn runs() {
    let _outside = Outside::with_web();
    let server = Server::start(&ALLOW);
    let mut client = server.connect();
    let lines = "get('web.example'); talk(); get('other.example')";
    let request = json!({"language": "python", "code": code(lines)});
    client.send(1, "run", json!({"request": request, "events": true}));
    let mut events = Vec::new();
    let answer = loop {
        let line = client.line();
        match line.get("event") {
            Some(event) => events.push(event.clone()),
            None => break line,
        }
    };
    let ended = Ended(answer["result"]["record"].clone()).ok();
    assert_eq!(ended.lines("hello").len(), 2, "{ended:?}");
    assert_eq!(ended.lines("refused other.example").len(), 1, "{ended:?}");
    assert_eq!(hosts(&ended), ["web.example", "raw.example"], "{ended:?}");
    ended.has_refused("other.example no rule allows this host");
    let of = |kind: &'static str| {
        let is_of = move |event: &&Value| event["event"] == kind;
        events.iter().filter(is_of)
    };
    let connected: Vec<_> = of("connection")
        .map(|event| event["connection"]["host"].clone())
        .collect();
    assert_eq!(connected, ["web.example", "raw.example"], "{events:?}");
    assert!(
        of("denied").any(|event| event["name"] == "other.example"),
        "{events:?}"
    );
}

/// A request narrows the server's network, and never widens it.
fn requests() {
    let outside = Outside::with_web();
    let server = Server::start(&ALLOW);
    let mut client = server.connect();
    let lines = "get('web.example')\ntry:\n    talk()\nexcept OSError as error:\n    print('refused', error)";
    let all = run_code(&mut client, lines, Value::Null).ok();
    assert_eq!(all.lines("hello").len(), 2, "{all:?}");
    let narrow = run_code(&mut client, lines, json!({"allow": ["web.example:80"]})).ok();
    assert_eq!(narrow.lines("hello web.example").len(), 1, "{narrow:?}");
    assert_eq!(narrow.lines("refused").len(), 1, "{narrow:?}");
    assert_eq!(narrow.0["network"]["allow"], json!(["web.example:80"]));
    let denied = json!({"allow": ["web.example", "raw.example:7000"], "deny": ["raw.example"]});
    let denied = run_code(&mut client, lines, denied).ok();
    assert_eq!(denied.lines("refused").len(), 1, "{denied:?}");
    let none = run_code(&mut client, lines, json!("none")).ok();
    assert_eq!(none.lines("refused").len(), 2, "{none:?}");
    assert!(none.0["network"].is_null(), "{none:?}");
    let served = outside.raw[0].load(Ordering::SeqCst) + outside.raw[1].load(Ordering::SeqCst);
    for (network, why) in [
        (json!("host"), "the caller does not allow it"),
        (json!({"allow": ["other.example"]}), "other.example"),
        (json!({"allow": ["raw.example:7001"]}), "raw.example:7001"),
        (json!({"allow": ["*.example"]}), "*.example"),
        (
            json!({"allow": ["web.example"], "check_names": false}),
            "name checks",
        ),
        (json!({"allow": ["mirror:pip"]}), "mirror:pip"),
        (
            json!({"allow": ["web.example"], "secret_headers": ["web.example:X=env:HOME"]}),
            "secret headers",
        ),
    ] {
        let ended = run_code(&mut client, lines, network.clone());
        assert_eq!(ended.outcome(), "setup", "{network}: {ended:?}");
        let error = ended.0["setup_error"].to_string();
        assert!(error.contains(why), "{network}: {error}");
    }
    let after = outside.raw[0].load(Ordering::SeqCst) + outside.raw[1].load(Ordering::SeqCst);
    assert_eq!(served, after);
    // A server without a network gives none.
    let server = Server::start(&[]);
    let mut client = server.connect();
    let ended = run_code(&mut client, lines, json!({"allow": ["web.example"]}));
    let error = ended.0["setup_error"].to_string();
    assert!(error.contains("the caller allows none"), "{error}");
    // A server with the host's network can give less.
    let server = Server::start(&["--net", "host"]);
    let mut client = server.connect();
    let lines = "get('web.example'); get('other.example')";
    let ended = run_code(&mut client, lines, Value::Null).ok();
    assert_eq!(ended.lines("hello").len(), 2, "{ended:?}");
    let ended = run_code(&mut client, lines, json!({"allow": ["web.example"]})).ok();
    assert_eq!(ended.lines("hello web.example").len(), 1, "{ended:?}");
    assert_eq!(ended.lines("refused other.example").len(), 1, "{ended:?}");
}

/// Contexts with different rules exist at once, and each record has its execution's
/// connections.
fn contexts() {
    let _outside = Outside::with_web();
    let server = Server::start(&ALLOW);
    let mut client = server.connect();
    let names = ["web.example", "four.example"];
    for (context, name) in ["web", "four"].into_iter().zip(names) {
        create(&mut client, context, json!({"allow": [name]}));
    }
    let address = "print('address', socket.gethostbyname(HOST))";
    for round in 0..3 {
        for (context, own, other) in [("web", names[0], names[1]), ("four", names[1], names[0])] {
            let lines = format!("HOST = '{own}'\n{address}\nget('{own}'); get('{other}')");
            let (state, ended) = execute(&mut client, context, &lines);
            assert_eq!(state, "kept", "{ended:?}");
            // The same address stands for a different name in each.
            assert_eq!(ended.lines("address"), ["address 198.18.1.0"], "{ended:?}");
            assert_eq!(ended.lines(&format!("hello {own}")).len(), 1, "{ended:?}");
            assert_eq!(hosts(&ended), [own], "round {round}: {ended:?}");
            ended.has_refused(&format!("{other} no rule"));
            // Refusals of the executions before are not counted again.
            let count = &ended.0["network"]["refused"][0]["count"];
            assert!(count.as_u64().is_some_and(|count| count <= 2), "{ended:?}");
        }
    }
    // An execution without connections has none of earlier ones in its record.
    let (_, ended) = execute(&mut client, "web", "pass");
    assert!(
        hosts(&ended).is_empty() && ended.refused().is_empty(),
        "{ended:?}"
    );
    assert_eq!(ended.0["network"]["totals"]["connections"], 0, "{ended:?}");
}

/// A connection stays from one execution to the next. What a thread does between executions
/// is in the next record, with a warning.
fn between() {
    let _outside = Outside::with_web();
    let server = Server::start(&ALLOW);
    let mut client = server.connect();
    create(&mut client, "a", Value::Null);
    let (_, ended) = execute(&mut client, "a", "kept = talk()");
    assert!(hosts(&ended).is_empty(), "it has not ended: {ended:?}");
    let lines = "kept.sendall(b'again')
print(kept.recv(100).decode())
end(kept)
import threading, time
def later():
    while not os.path.exists('go'):
        time.sleep(0.01)
    s = socket.create_connection(('raw.example', 7000))
    s.sendall(b'later')
    s.recv(5)
    end(s)
    # The broker does one thing after the other: it has reported that end when it does these.
    for _ in range(3):
        get('other.example')
    open('gone', 'w').close()
thread = threading.Thread(target=later)
thread.start()";
    let (_, first) = execute(&mut client, "a", lines);
    assert_eq!(first.lines("again").len(), 1, "{first:?}");
    let command = "touch go; until [ -e gone ]; do sleep 0.01; done";
    let waiting = json!({"context": "a", "command": command, "events": true});
    client.ask("process.start", waiting);
    until("a connection between executions", || {
        client.line()["event"]["event"] == "process_ended"
    });
    let lines = "thread.join()\nraise ConnectionResetError('of mine')";
    let (_, next) = execute(&mut client, "a", lines);
    // Each of the two connections is in one of the records, with its bytes.
    assert!(hosts(&next).contains(&"raw.example"), "{next:?}");
    let both = first.connections().iter().chain(next.connections());
    let sent: Vec<u64> = both.filter_map(|one| one["sent_bytes"].as_u64()).collect();
    assert_eq!(sent, [15, 5], "{first:?} {next:?}");
    next.has_refused("other.example no rule allows this host");
    let warnings = next.0["warnings"].to_string();
    assert!(
        warnings.contains("connections ended after the execution before"),
        "{warnings}"
    );
    // That does not explain this execution's failure.
    assert!(!next.context().contains("other.example"), "{next:?}");
}

/// An interrupt and the end of the time reach code that waits for a host, and the state stays.
fn interrupts() {
    let _outside = Outside::with_web();
    // A server that accepts connections and never answers, and a host that drops attempts to
    // connect.
    let _mute = crate::internet::serve("93.184.0.50:7000", |stream| {
        thread::sleep(Duration::from_secs(3600));
        drop(stream);
    });
    let full = listening("93.184.0.40:7000".parse().expect("an address"));
    listen(&full, Backlog::new(0).expect("a length")).expect("listen");
    let full = TcpListener::from(full);
    let address = full.local_addr().expect("its address");
    let _first = std::net::TcpStream::connect(address).expect("room for one");
    let hosts = ["allow=mute.example:7000", "allow=hole.example:7000"];
    let options = [&ALLOW[..], &["--net", hosts[0], "--net", hosts[1]]].concat();
    let server = Server::start(&options);
    let (mut client, mut other) = (server.connect(), server.connect());
    create(&mut client, "a", Value::Null);
    for host in ["mute.example", "hole.example"] {
        execute(&mut client, "a", &format!("x = '{host}'"));
        let lines = code("talk(x)");
        for wall in [None, Some("500ms")] {
            let mut params = json!({"context": "a", "code": lines, "wall": wall, "grace": "20s"});
            if wall.is_none() {
                params.as_object_mut().expect("an object").remove("wall");
            }
            client.send(7, "context.run", params);
            if wall.is_none() {
                // By then, the code waits for the host on most machines.
                thread::sleep(Duration::from_millis(300));
                let params = json!({"context": "a", "grace": "20s"});
                let answer = other.call("context.interrupt", params);
                assert_eq!(answer["result"]["interrupted"], true, "{answer}");
            }
            let result = client.answer(7)["result"].clone();
            assert_eq!(result["state"], "kept", "{host} {wall:?}: {result}");
            let error = &result["record"]["error"]["name"];
            assert_eq!(error, "KeyboardInterrupt", "{host} {wall:?}: {result}");
            let (_, ended) = execute(&mut client, "a", "print('state', x)\nget('web.example')");
            assert_eq!(ended.lines("state").len(), 1, "{ended:?}");
            assert_eq!(ended.lines("hello").len(), 1, "{ended:?}");
        }
    }
}

/// Limits are for the cell's life, not for one execution.
fn limits() {
    let outside = Outside::with_web();
    let options = [&ALLOW[..], &["--connections-total", "3"]].concat();
    let server = Server::start(&options);
    let mut client = server.connect();
    create(&mut client, "a", Value::Null);
    let served = || outside.raw[0].load(Ordering::SeqCst) + outside.raw[1].load(Ordering::SeqCst);
    let twice = "for _ in range(2):
    try:
        talk()
    except OSError as error:
        print('refused', error)";
    let (_, first) = execute(&mut client, "a", twice);
    assert_eq!(first.lines("hello raw").len(), 2, "{first:?}");
    let (_, second) = execute(&mut client, "a", twice);
    assert_eq!(served(), 3, "{second:?}");
    second.has_refused("raw.example:7000 a limit of connections was reached");
    // Another cell has its own limits.
    client.ask("context.restart", json!({"context": "a"}));
    let (_, third) = execute(&mut client, "a", twice);
    assert_eq!(served(), 5, "{third:?}");
}

/// A context whose interpreter was lost or restarted has a broker again.
fn restarts() {
    let _outside = Outside::with_web();
    let server = Server::start(&ALLOW);
    let mut client = server.connect();
    create(&mut client, "a", json!({"allow": ["web.example"]}));
    let (_, ended) = execute(&mut client, "a", "get('web.example')");
    assert_eq!(ended.lines("hello").len(), 1, "{ended:?}");
    let (state, _) = execute(&mut client, "a", "import os; os._exit(3)");
    assert_eq!(state, "lost");
    for how in ["lost", "restarted"] {
        let (_, ended) = execute(&mut client, "a", "get('web.example'); get('four.example')");
        assert_eq!(
            ended.lines("hello web.example").len(),
            1,
            "{how}: {ended:?}"
        );
        assert_eq!(
            ended.lines("refused four.example").len(),
            1,
            "{how}: {ended:?}"
        );
        client.ask("context.restart", json!({"context": "a"}));
    }
}

/// A context without work ends with its broker and its connections.
fn idle() {
    let outside = Outside::with_web();
    let server = Server::start(&ALLOW);
    let mut client = server.connect();
    let before = descendants(server.child.id());
    let request = json!({"language": "python"});
    let params = json!({"request": request, "context": "a", "idle": "5s"});
    client.ask("context.create", params);
    let (_, ended) = execute(&mut client, "a", "kept = talk()");
    assert_eq!(ended.lines("hello raw").len(), 1, "{ended:?}");
    let own = descendants(server.child.id());
    let own: Vec<u32> = own
        .into_iter()
        .filter(|pid| !before.contains(pid))
        .collect();
    assert!(!own.is_empty());
    until("the context's end", || {
        let line = client.line();
        line["event"]["event"] == "context_ended"
    });
    until("the end of its processes", || {
        !own.iter().any(|pid| lives(*pid))
    });
    assert_eq!(
        outside.raw[0].load(Ordering::SeqCst) + outside.raw[1].load(Ordering::SeqCst),
        1
    );
}

/// Each execution's record has the connections and refusals that came in it, even at its very end.
fn each() {
    let _outside = Outside::with_web();
    let server = Server::start(&ALLOW);
    let mut client = server.connect();
    client.create("a");
    let lines = "get('web.example'); get('other.example')";
    for number in 0..30 {
        let (_, ended) = execute(&mut client, "a", lines);
        assert_eq!(hosts(&ended), ["web.example"], "{number}: {ended:?}");
        ended.has_refused("other.example no rule allows this host");
    }
}

/// Branches of a context, and one that was suspended, have brokers of their own with the same
/// rules. An open connection is not carried over, and is refused by name.
fn branches() {
    let _outside = Outside::with_web();
    let server = Server::start(&ALLOW);
    let mut client = server.connect();
    let network = json!({"allow": ["web.example"]});
    let request = json!({"language": "python", "network": network});
    let params = json!({"request": request, "context": "a", "branches": true});
    client.ask("context.create", params);
    let (_, ended) = execute(&mut client, "a", "x = 1\nget('web.example')");
    assert_eq!(ended.lines("hello").len(), 1, "{ended:?}");
    let forked = client.ask("context.fork", json!({"context": "a", "n": 2}));
    client.ask("context.suspend", json!({"context": "a"}));
    let branches = forked["branches"].as_array().expect("branches");
    let names = branches.iter().map(|branch| {
        let name = branch["context"].as_str();
        name.unwrap_or_else(|| panic!("{forked}")).to_owned()
    });
    for name in names.chain(["a".to_owned()]) {
        let lines = "print('x', x)\nget('web.example'); get('four.example')";
        let (state, ended) = execute(&mut client, &name, lines);
        assert_eq!(state, "restored", "{ended:?}");
        assert_eq!(ended.lines("x 1").len(), 1, "{ended:?}");
        assert_eq!(ended.lines("hello web.example").len(), 1, "{ended:?}");
        assert_eq!(ended.lines("refused four.example").len(), 1, "{ended:?}");
        assert_eq!(hosts(&ended), ["web.example"], "{ended:?}");
    }
    execute(
        &mut client,
        "a",
        "kept = socket.create_connection(('web.example', 80))",
    );
    let refused = client.call("context.checkpoint", json!({"context": "a"}));
    let message = refused["error"]["message"].to_string();
    assert!(message.contains("socket"), "{refused}");
}

fn full(client: &mut Client, count: u64) {
    until("waiting cells", || {
        client.status()["pools"][0]["ready"] == count
    });
}

/// Interpreters that wait, and forked ones, reach the server's hosts.
fn pools() {
    let _outside = Outside::with_web();
    for (start, more) in [("ready", &[][..]), ("forked", &["--preload", "decimal"])] {
        let options = [&ALLOW[..], &["--warm", "python:1"], more].concat();
        let server = Server::start(&options);
        let mut client = server.connect();
        for round in 0..2 {
            full(&mut client, 1);
            let lines = "get('web.example'); talk().close(); get('other.example')";
            let request = json!({"language": "python", "code": code(lines)});
            let (started, ended) = run(&mut client, &request);
            let ended = ended.ok();
            assert_eq!(started, start, "round {round}: {ended:?}");
            assert_eq!(ended.lines("hello").len(), 2, "{start}: {ended:?}");
            // In the order in which the broker saw their ends.
            let mut reached = hosts(&ended);
            reached.sort_unstable();
            assert_eq!(
                reached,
                ["raw.example", "web.example"],
                "{start}: {ended:?}"
            );
            ended.has_refused("other.example no rule allows this host");
            assert!(ended.0["network"]["broker"]["seccomp"] == true, "{ended:?}");
        }
        // A context is served as well.
        full(&mut client, 1);
        let created = client.create("a");
        assert_eq!(created["start"], start, "{created}");
        let (_, ended) = execute(&mut client, "a", "get('web.example')");
        assert_eq!(hosts(&ended), ["web.example"], "{start}: {ended:?}");
        // A call with a network of its own gets a new cell.
        full(&mut client, 1);
        let lines = "get('four.example'); get('web.example')";
        let request = json!({"language": "python", "code": code(lines), "network": {"allow": ["four.example"]}});
        let (started, ended) = run(&mut client, &request);
        assert_eq!(started, "cold", "{ended:?}");
        assert_eq!(hosts(&ended), ["four.example"], "{start}: {ended:?}");
    }
}

/// A blank cell listens ahead; the names come with the program, and may be fewer.
fn blank_cells() {
    let _outside = Outside::with_web();
    let python = crate::outside::program("python3");
    let options = [&ALLOW[..], &["--warm", "blank:1"]].concat();
    let server = Server::start(&options);
    let mut client = server.connect();
    let lines = "get('web.example'); get('four.example')\ntry:\n    talk()\nexcept OSError as error:\n    print('refused', error)";
    let call = |client: &mut Client, network: Value| {
        full(client, 1);
        let request = json!({"argv": [python, "-Ic", code(lines)], "network": network});
        run(client, &request)
    };
    let (start, ended) = call(&mut client, Value::Null);
    let ended = ended.ok();
    assert_eq!(start, "blank", "{ended:?}");
    assert_eq!(ended.0["start"], "blank", "{ended:?}");
    assert_eq!(ended.lines("hello").len(), 3, "{ended:?}");
    let expected = ["web.example", "four.example", "raw.example"];
    assert_eq!(hosts(&ended), expected, "{ended:?}");
    // With fewer hosts and fewer ports, the cell still listens at all ports, and the broker
    // refuses.
    let (start, ended) = call(&mut client, json!({"allow": ["four.example"]}));
    let ended = ended.ok();
    assert_eq!(start, "blank", "{ended:?}");
    assert_eq!(ended.lines("hello four.example").len(), 1, "{ended:?}");
    assert_eq!(ended.lines("refused").len(), 2, "{ended:?}");
    assert_eq!(hosts(&ended), ["four.example"], "{ended:?}");
    assert_eq!(
        ended.0["network"]["allow"],
        json!(["four.example"]),
        "{ended:?}"
    );
    // Without a network nothing listens.
    let (start, ended) = call(&mut client, json!("none"));
    assert_eq!(start, "cold", "{ended:?}");
    assert_eq!(ended.ok().lines("refused").len(), 3);
}
