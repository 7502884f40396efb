//! Cells whose interpreter is forked from a template.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::harness::{Client, Server, cellblock, descendants, lives, until};

const OPTIONS: &[&str] = &["--warm", "python:2", "--preload", "decimal,json.tool"];

const LOADED: &str = "import sys; print('decimal' in sys.modules, 'json.tool' in sys.modules)";

fn full(client: &mut Client) {
    until("waiting cells", || {
        client.status()["pools"][0]["ready"] == 2
    });
}

fn run(client: &mut Client, code: &str) -> Value {
    let request = json!({"language": "python", "code": code});
    client.ask("run", json!({"request": request}))
}

/// Creates a context, which must be forked. Where it is not, a record says why.
fn create(client: &mut Client, name: &str) {
    let created = client.create(name);
    if created["start"] != "forked" {
        let ran = client.run_in(name, "1");
        panic!("{created}: {}", ran["record"]["warnings"]);
    }
}

/// The processes of a server that run the program of its template.
fn templates(server: &Server) -> Vec<u32> {
    let is_template = |pid: &u32| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = words.split(|byte| *byte == 0);
        words.any(|word| word == b"decimal")
    };
    let all = descendants(server.child.id());
    all.into_iter().filter(is_template).collect()
}

#[test]
fn copies_of_a_template_serve_calls() {
    let server = Server::start(OPTIONS);
    let mut client = server.connect();
    full(&mut client);
    let code = format!("import random; {LOADED}; print(random.random())");
    let code = code.as_str();
    let first = run(&mut client, code);
    assert_eq!(first["start"], "forked", "{first}");
    assert_eq!(first["record"]["start"], "forked", "{first}");
    let warnings = first["record"]["warnings"].to_string();
    assert!(!warnings.contains("template"), "{first}");
    full(&mut client);
    let second = run(&mut client, code);
    assert_eq!(second["start"], "forked", "{second}");
    let text = |result: &Value| result["record"]["stdout"].as_str().unwrap().to_owned();
    let (first, second) = (text(&first), text(&second));
    assert!(first.starts_with("True True\n"), "{first}");
    assert!(second.starts_with("True True\n"), "{second}");
    assert_ne!(first, second);
    // What asks for more has a cell of its own.
    let request = json!({"language": "python", "code": LOADED, "env": {"A": "b"}});
    let other = client.ask("run", json!({"request": request}));
    assert_eq!(other["start"], "cold");
    assert_eq!(other["record"]["stdout"], "False False\n", "{other}");
}

#[test]
fn templates_are_named_counted_and_renewed() {
    let options = [
        OPTIONS,
        &["--template-copies", "3", "--template-life", "none"],
    ]
    .concat();
    let server = Server::start(&options);
    let mut client = server.connect();
    full(&mut client);
    let created = client.create("a");
    assert_eq!(created["template"]["generation"], 1, "{created}");
    let copies = created["template"]["copies"].as_u64().unwrap();
    assert!((1..=3).contains(&copies), "{created}");
    let status = client.status();
    let memory = status["templates"][0]["memory"].as_u64().unwrap();
    assert!(memory > 4 << 20, "{status}");
    assert!(
        status["warm_memory"]["used"].as_u64().unwrap() > memory,
        "{status}"
    );
    assert_eq!(status["warm_memory"]["limit"], Value::Null, "{status}");
    // Another one comes after three cells; calls do not wait for it.
    let hash = "print(hash('text'))";
    let old = client.run_in("a", hash)["record"].clone();
    assert_eq!(old["template"], created["template"], "{old}");
    let mut new = Value::Null;
    until("another template", || {
        new = run(&mut client, hash)["record"].clone();
        new["template"]["generation"].as_u64() > Some(1)
    });
    assert_ne!(old["stdout"], new["stdout"], "{new}");
    // The old one stays for the context.
    let status = client.status();
    let generations = status["templates"].as_array().unwrap();
    assert!(
        generations.len() > 1 && generations[0]["generation"] == 1,
        "{status}"
    );
    // It goes with the context, though no other cell is made then. The cells that wait are not
    // its copies: those that wait longest are taken first.
    for _ in 0..4 {
        full(&mut client);
        run(&mut client, hash);
    }
    full(&mut client);
    client.ask("context.delete", json!({"context": "a"}));
    until("the old template's end", || {
        client.status()["templates"][0]["generation"].as_u64() > Some(1)
    });
    // A run without one names none.
    let request = json!({"language": "python", "code": hash, "env": {"A": "b"}});
    let cold = client.ask("run", json!({"request": request}));
    assert!(cold["record"].get("template").is_none(), "{cold}");
}

#[test]
fn copies_of_a_template_keep_their_state_apart() {
    let server = Server::start(OPTIONS);
    let mut client = server.connect();
    full(&mut client);
    create(&mut client, "a");
    full(&mut client);
    create(&mut client, "b");
    let change = "import decimal; decimal.token = 1; open('f', 'w').write('x')";
    assert_eq!(client.run_in("a", change)["state"], "kept");
    let look = "import decimal, os; print(hasattr(decimal, 'token'), os.path.exists('f'))";
    let b = client.run_in("b", look);
    assert_eq!(b["record"]["stdout"], "False False\n", "{b}");
    let a = client.run_in("a", look);
    assert_eq!(a["record"]["stdout"], "True True\n", "{a}");
    full(&mut client);
    let next = run(&mut client, look);
    assert_eq!(next["record"]["stdout"], "False False\n", "{next}");
}

#[test]
fn a_template_that_is_killed_is_replaced() {
    let server = Server::start(OPTIONS);
    let mut client = server.connect();
    full(&mut client);
    client.create("a");
    client.run_in("a", "x = 1");
    full(&mut client);
    let old = templates(&server);
    assert!(!old.is_empty());
    for pid in &old {
        // Copies have the same command line; all of them end.
        let _ = kill(Pid::from_raw(*pid as i32), Signal::SIGKILL);
    }
    // Calls go on, and there are copies of a new template after a while. It is made for calls, each
    // of which costs a cell, so they are few.
    until("a new template", || {
        std::thread::sleep(std::time::Duration::from_millis(250));
        let result = run(&mut client, LOADED);
        result["start"] == "forked" && result["record"]["stdout"] == "True True\n"
    });
}

#[test]
fn nothing_of_a_template_is_left_after_the_server() {
    let mut server = Server::start(OPTIONS);
    let mut client = server.connect();
    full(&mut client);
    client.create("a");
    let all = descendants(server.child.id());
    assert!(!templates(&server).is_empty());
    server.signal(Signal::SIGTERM);
    server.wait();
    until("the end of all processes", || {
        !all.iter().any(|pid| lives(*pid))
    });
}

#[test]
fn a_killed_server_leaves_nothing_of_a_template() {
    let mut server = Server::start(OPTIONS);
    let mut client = server.connect();
    full(&mut client);
    let all = descendants(server.child.id());
    server.signal(Signal::SIGKILL);
    server.wait();
    until("the end of all processes", || {
        !all.iter().any(|pid| lives(*pid))
    });
}

#[test]
fn a_template_that_cannot_be_made_is_an_error_of_the_server() {
    for (options, why) in [
        (
            &["--warm", "python:1", "--preload", "no_such_module"][..],
            "no_such_module",
        ),
        (
            &["--warm", "bash:1", "--preload", "json"],
            "--warm python:N",
        ),
        (
            &["--warm", "python:1", "--preload", "a;b"],
            "names of Python modules",
        ),
    ] {
        let output = cellblock()
            .args(["serve", "--rootfs", "host"])
            .args(options)
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(125), "{said}");
        assert!(said.contains(why), "{said}");
    }
}

/// Frames, one for each of the first executions, which announce that the program waits to be ended
/// with exit status 7.
const FORGED: &str = r#"
import os, time
def field(key, value):
    return b"t" + bytes([len(key)]) + len(value).to_bytes(4, "big") + key + value
def frame(number):
    fields = field(b"kind", b"exit") + field(b"execution", b"%d" % number) + field(b"status", b"7")
    return len(fields).to_bytes(4, "big") + fields
forged = b"".join(map(frame, range(9)))
"#;

#[test]
fn the_end_of_a_copy_is_recorded_as_it_was() {
    let server = Server::start(OPTIONS);
    let mut client = server.connect();
    let mut ended = |code: &str| {
        full(&mut client);
        let result = run(&mut client, &format!("{FORGED}{code}"));
        assert_eq!(result["start"], "forked", "{result}");
        result["record"].clone()
    };
    // A copy that waits to be ended: its record is complete.
    let plain = ended("import atexit; atexit.register(print, 'last'); x = bytearray(30 << 20)");
    assert_eq!(
        (&plain["outcome"], &plain["exit_code"], &plain["stdout"]),
        (&json!("ok"), &json!(0), &json!("last\n")),
        "{plain}"
    );
    let usage = &plain["usage"];
    let [user, system] = ["cpu_user_ms", "cpu_system_ms"].map(|name| usage[name].as_f64());
    assert!(user.unwrap() + system.unwrap() > 0.0, "{plain}");
    let peak = usage["memory_peak_bytes"].as_u64().unwrap();
    assert!(peak > 30 << 20, "{plain}");
    let failed = ended("1 / 0");
    assert_eq!(failed["exit_code"], 1, "{failed}");
    assert_eq!(failed["error"]["name"], "ZeroDivisionError", "{failed}");
    // What a copy leaves behind ends with it, and does not delay it.
    let left = ended("if os.fork() == 0: time.sleep(1000)");
    assert_eq!(
        (&left["outcome"], &left["exit_code"]),
        (&json!("ok"), &json!(0)),
        "{left}"
    );
    // A program can choose its own exit status, as it can by _exit(2).
    let own = ended("os.write(4, forged); time.sleep(1000)");
    assert_eq!(own["exit_code"], 7, "{own}");
    // Neither its child nor its thread can do that while it goes on.
    let by_child = ended(
        "
written, write = os.pipe()
if os.fork() == 0:
    os.write(4, forged)
    os.write(write, b'x')
    time.sleep(1000)
os.read(written, 1)
print('went on')",
    );
    let by_thread = ended(
        "
import threading
written = threading.Event()
forge = lambda: (os.write(4, forged), written.set(), time.sleep(1000))
threading.Thread(target=forge, daemon=True).start()
written.wait()
print('went on')",
    );
    for record in [by_child, by_thread] {
        assert_eq!(
            (&record["exit_code"], &record["stdout"]),
            (&json!(0), &json!("went on\n")),
            "{record}"
        );
    }
}
