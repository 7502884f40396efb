//! Beginnings, contexts, cancellation, progress and ends.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::client::Client;
use crate::skip::skip;

fn modern(version: &str) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    })
}

#[test]
fn old_and_new_clients_are_served_by_one_process() {
    let mut client = Client::start(&[]);
    let id = client.send("server/discover", json!({"_meta": modern("2027-01-01")}));
    let refused = client.answer(id);
    assert_eq!(refused["error"]["code"], -32022, "{refused}");
    assert_eq!(refused["error"]["data"]["supported"], json!(["2026-07-28"]));
    let found = client.ask("server/discover", json!({"_meta": modern("2026-07-28")}));
    assert_eq!(found["resultType"], "complete", "{found}");
    let text = found["instructions"].as_str().unwrap();
    for part in ["run_code", "python", "memory", "Network: none"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let greeting = client.ask(
            "initialize",
            json!({"protocolVersion": version, "capabilities": {}}),
        );
        assert_eq!(greeting["protocolVersion"], version, "{greeting}");
    }
    let call = json!({"name": "run_code", "arguments": {"code": "1 + 1"}});
    let old = client.ask("tools/call", call.clone());
    assert!(old.get("resultType").is_none(), "{old}");
    let mut params = call;
    params["_meta"] = modern("2026-07-28");
    let new = client.ask("tools/call", params);
    assert_eq!(new["resultType"], "complete", "{new}");
    assert_eq!(
        old["structuredContent"]["value"],
        new["structuredContent"]["value"]
    );
}

#[test]
fn a_context_keeps_its_state_and_says_when_it_is_lost() {
    let mut client = Client::start(&[]);
    let context = client.create(json!({"label": "mine"}));
    client.data("run_code", json!({"code": "x = 40", "context_id": context}));
    let run = client.data("run_code", json!({"code": "x + 2", "context_id": context}));
    assert_eq!(
        (&run["value"], &run["state"]),
        (&json!("42"), &json!("kept")),
        "{run}"
    );
    assert_eq!(run["execution"], 2, "{run}");
    let listed = client.data("list_contexts", json!({}));
    assert_eq!(listed["contexts"][0]["label"], "mine", "{listed}");
    let other = client.create(json!({}));
    let missing = client.tool("run_code", json!({"code": "x", "context_id": other}));
    assert_eq!(
        missing["structuredContent"]["error"]["name"], "NameError",
        "{missing}"
    );
    let gone = client.tool(
        "run_code",
        json!({"code": "import os; os._exit(3)", "context_id": context}),
    );
    assert_eq!(gone["structuredContent"]["state"], "lost", "{gone}");
    let text = gone["content"][0]["text"].as_str().unwrap();
    assert!(
        text.starts_with(&format!("context {context}: the state is lost: ")),
        "{text}"
    );
    let restarted = client.data("restart_context", json!({"context_id": other}));
    assert_eq!(restarted["state"], "lost", "{restarted}");
    client.data("close_context", json!({"context_id": context}));
    let closed = client.tool("run_code", json!({"code": "1", "context_id": context}));
    assert_eq!(
        closed["_meta"]["cellblock/error"]["code"], "not_found",
        "{closed}"
    );
}

#[test]
fn a_fork_goes_on_from_the_state() {
    let mut client = Client::start(&[]);
    let context = client.create(json!({"forkable": true}));
    client.data(
        "run_code",
        json!({"code": "x = [1]", "context_id": context}),
    );
    let forked = client.data("fork_context", json!({"context_id": context, "count": 2}));
    let branches = forked["branches"].as_array().unwrap();
    assert_eq!(branches.len(), 2, "{forked}");
    if let Some(error) = branches[0]["error"].as_str() {
        assert!(
            error.contains("ptrace") || error.contains("trac"),
            "{error}"
        );
        return skip(format_args!("a fork goes on from the state: {error}"));
    }
    for branch in branches {
        let id = branch["context_id"].as_str().unwrap();
        let run = client.data(
            "run_code",
            json!({"code": "x.append(2); x", "context_id": id}),
        );
        assert_eq!(
            (&run["value"], &run["state"]),
            (&json!("[1, 2]"), &json!("restored")),
            "{run}"
        );
        let command = client.data(
            "run_command",
            json!({"command": "echo $((2 + 2))", "context_id": id}),
        );
        assert_eq!(command["stdout"], "4\n", "{command}");
    }
}

#[test]
fn what_a_client_cancels_ends_and_is_not_answered() {
    let mut client = Client::start(&[]);
    let context = client.create(json!({}));
    client.data("run_code", json!({"code": "x = 5", "context_id": context}));
    let arguments = json!({"code": "while True: pass", "context_id": context});
    let call = json!({"name": "run_code", "arguments": arguments, "_meta": {"progressToken": 1}});
    let busy = client.send("tools/call", call);
    let fresh = json!({"name": "run_code", "arguments": {"code": "while True: pass"}});
    let alone = client.send("tools/call", fresh);
    // The first has begun once this is reported.
    while client.data("list_contexts", json!({}))["contexts"][0]["executions"] != 2 {}
    for id in [busy, alone] {
        client.notify(
            "notifications/cancelled",
            json!({"requestId": id, "reason": "enough"}),
        );
    }
    let run = client.data("run_code", json!({"code": "x", "context_id": context}));
    assert_eq!(
        (&run["value"], &run["state"]),
        (&json!("5"), &json!("kept")),
        "{run}"
    );
    assert!(client.is_silent());
}

#[test]
fn a_late_cancel_does_not_reach_the_next_execution() {
    let mut client = Client::start(&[]);
    let context = client.create(json!({}));
    for round in 0..60 {
        let [first, second] = ["1", "import time; time.sleep(0.02); 2"].map(|code| {
            let arguments = json!({"code": code, "context_id": context});
            let call = json!({"name": "run_code", "arguments": arguments});
            client.send("tools/call", call)
        });
        // The first execution is over at about this time.
        std::thread::sleep(std::time::Duration::from_micros(200 * round));
        client.notify("notifications/cancelled", json!({"requestId": first}));
        let answer = client.answer(second);
        let run = &answer["result"]["structuredContent"];
        assert_eq!(
            (&run["value"], &run["state"]),
            (&json!("2"), &json!("kept")),
            "round {round}: {answer}"
        );
    }
}

#[test]
fn a_command_runs_beside_code_and_works_on_the_same_files() {
    let mut client = Client::start(&[]);
    let context = client.create(json!({}));
    let code = "import os, time\nopen('a', 'w').write('b')\n\
        while not os.path.exists('go'): time.sleep(0.01)\nos.path.getsize('go')";
    let arguments = json!({"code": code, "context_id": context});
    let busy = client.send(
        "tools/call",
        json!({"name": "run_code", "arguments": arguments}),
    );
    let command = |client: &mut Client, command: &str, timeout: f64| {
        let arguments = json!({"command": command, "context_id": context, "timeout": timeout});
        client.tool("run_command", arguments)["structuredContent"].take()
    };
    let wait = "until [ -s a ]; do sleep 0.01; done; pwd; cat a; echo no >&2; exit 3";
    let run = command(&mut client, wait, 60.0);
    for (field, value) in [
        ("outcome", json!("exit")),
        ("exit_code", json!(3)),
        ("stdout", json!("/workspace\nb")),
        ("stderr", json!("no\n")),
        ("context_id", json!(context)),
    ] {
        assert_eq!(run[field], value, "{field}: {run}");
    }
    let run = command(
        &mut client,
        "seq 100000; printf 12345 > next; mv next go",
        60.0,
    );
    assert_eq!(run["truncated"], json!(["stdout"]));
    let stdout = run["stdout"].as_str().unwrap();
    assert!(stdout.starts_with("1\n2\n") && stdout.ends_with("\n100000\n"));
    let code = client.answer(busy)["result"]["structuredContent"].take();
    assert_eq!(
        (&code["value"], &code["state"]),
        (&json!("5"), &json!("kept")),
        "{code}"
    );
    // On a busy host, the shell may not have begun in the shortest of these times.
    let has_begun = [0.5, 5.0, 50.0].into_iter().any(|seconds| {
        let run = command(&mut client, "echo begun; sleep 1000", seconds);
        assert_eq!(
            (&run["outcome"], &run["exit_code"]),
            (&json!("timeout"), &json!(137)),
            "{run}"
        );
        run["stdout"] == "begun\n"
    });
    assert!(has_begun, "no output of a command whose time is over");
}

#[test]
fn the_limit_of_real_time_is_that_of_commands_too() {
    let mut client = Client::start(&["--wall", "1s"]);
    let context = client.create(json!({}));
    for timeout in [json!(null), json!(1000)] {
        let arguments = json!({"command": "sleep 1000", "context_id": context, "timeout": timeout});
        let run = client.tool("run_command", arguments)["structuredContent"].take();
        assert_eq!(run["outcome"], "timeout", "{run}");
    }
}

#[test]
fn a_command_that_is_cancelled_ends() {
    let mut client = Client::start(&[]);
    let context = client.create(json!({}));
    let arguments = json!({"command": "echo $$ > begun; sleep 1000", "context_id": context});
    let call =
        json!({"name": "run_command", "arguments": arguments, "_meta": {"progressToken": 1}});
    let id = client.send("tools/call", call);
    let look = |client: &mut Client, command: &str| {
        let arguments = json!({"command": command, "context_id": context});
        client.data("run_command", arguments)["stdout"].clone()
    };
    let begun = look(
        &mut client,
        "until [ -s begun ]; do sleep 0.01; done; test -d /proc/$(cat begun) && echo runs",
    );
    assert_eq!(begun, "runs\n");
    client.notify("notifications/cancelled", json!({"requestId": id}));
    look(
        &mut client,
        "while [ -d /proc/$(cat begun) ]; do sleep 0.01; done",
    );
    assert!(client.is_silent());
}

#[test]
fn progress_is_reported_to_those_who_ask() {
    let mut client = Client::start(&[]);
    let code =
        "import time\nfor n in range(4):\n    print('step', n, flush=True)\n    time.sleep(0.6)";
    let call =
        json!({"name": "run_code", "arguments": {"code": code}, "_meta": {"progressToken": "p"}});
    let id = client.send("tools/call", call);
    let mut last = 0.0;
    let mut reports = 0;
    loop {
        let line = client.read();
        if line["id"] == id {
            break;
        }
        assert_eq!(line["method"], "notifications/progress", "{line}");
        assert_eq!(line["params"]["progressToken"], "p", "{line}");
        let progress = line["params"]["progress"].as_f64().unwrap();
        assert!(progress > last, "{line}");
        (last, reports) = (progress, reports + 1);
    }
    assert!(reports > 0);
}

#[test]
fn nonsense_is_answered_and_the_rest_goes_on() {
    let mut client = Client::start(&[]);
    for (line, code) in [
        ("{", -32700),
        ("[]", -32600),
        ("\"x\"", -32600),
        (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"no/such"}"#, -32601),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#, -32602),
    ] {
        client.write(line);
        let answer = client.read();
        assert_eq!(answer["error"]["code"], code, "{line}: {answer}");
    }
    client.write("");
    client.notify("notifications/no_such", json!({}));
    client.write(r#"{"jsonrpc":"2.0","id":77,"result":{}}"#);
    assert_eq!(client.ask("ping", json!({})), json!({}));
}

#[test]
fn it_ends_with_its_client_and_leaves_no_cell() {
    let mut client = Client::start(&[]);
    let context = client.create(json!({}));
    let code = "import time\nwhile True: time.sleep(1)";
    client.send(
        "tools/call",
        json!({"name": "run_code", "arguments": {"code": code, "context_id": context}}),
    );
    while client.data("list_contexts", json!({}))["contexts"][0]["executions"] != 1 {}
    let children = descendants(client.child.id());
    assert!(!children.is_empty());
    client.close();
    assert!(client.wait().success());
    // One that has ended may wait to be reaped.
    let lives = |pid: i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    };
    for child in children {
        let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while lives(child) {
            assert!(std::time::Instant::now() < end, "process {child} is left");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

#[test]
fn a_signal_ends_it() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut client = Client::start(&[]);
        client.create(json!({}));
        kill(Pid::from_raw(client.child.id() as i32), signal).unwrap();
        assert!(client.wait().success(), "{signal}");
    }
}

/// All processes below one.
fn descendants(of: u32) -> Vec<i32> {
    let read = |task: std::path::PathBuf| {
        std::fs::read_to_string(task.join("children")).unwrap_or_default()
    };
    let tasks = std::fs::read_dir(format!("/proc/{of}/task"))
        .into_iter()
        .flatten();
    let children: Vec<i32> = tasks
        .map(|task| read(task.unwrap().path()))
        .flat_map(|text| {
            text.split_whitespace()
                .map(|pid| pid.parse().unwrap())
                .collect::<Vec<_>>()
        })
        .collect();
    let below = children.iter().flat_map(|child| descendants(*child as u32));
    let below: Vec<i32> = below.collect();
    children.into_iter().chain(below).collect()
}
