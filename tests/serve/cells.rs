//! Runs and contexts in real cells.

use serde_json::{Value, json};

use crate::harness::{Server, until};

#[test]
fn a_run_yields_its_record() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    let request = json!({"language": "python", "code": "print(1); 2"});
    let result = client.ask("run", json!({"request": request}));
    assert_eq!(result["start"], "cold");
    assert_eq!(result["record"]["stdout"], "1\n", "{result}");
    let request = json!({"argv": ["sh", "-c", "exit 3"]});
    let result = client.ask("run", json!({"request": request}));
    assert_eq!(result["record"]["exit_code"], 3, "{result}");
    // What the server does not allow is in a record, too.
    let request = json!({"language": "python", "code": "1", "limits": {"memory": "900G"}});
    let result = client.ask("run", json!({"request": request}));
    assert_eq!(result["record"]["outcome"], "setup", "{result}");
}

#[test]
fn a_watch_tells_its_own_client_of_changes() {
    let server = Server::start(&[]);
    let (mut client, mut other) = (server.connect(), server.connect());
    client.create("a");
    client.send(5, "file.watch", json!({"context": "a", "path": ""}));
    let watch = client.answer(5)["result"]["watch"].clone();
    assert!(watch.is_u64(), "{watch}");
    let code = "open('new', 'w').close()";
    client.send(6, "context.run", json!({"context": "a", "code": code}));
    let mut event = client.line();
    while event["id"] != 5 {
        event = client.line();
    }
    let created = json!({"path": "new", "change": "created"});
    let expected = json!({"event": "files_changed", "changes": [created], "overflow": false});
    assert_eq!(event["event"], expected);
    // A client's file has its own name from the start, and a new content is a modification.
    for change in ["created", "modified"] {
        client.send(
            8,
            "file.write",
            json!({"context": "a", "path": "sent", "content": change}),
        );
        let mut event = client.line();
        while event["id"] != 5 {
            event = client.line();
        }
        let changes = json!([{"path": "sent", "change": change}]);
        assert_eq!(event["event"]["changes"], changes);
    }
    // One that comes in parts is seen when it is complete, and by no record.
    let part = |content: &str, append: bool, more: bool| json!({"context": "a", "path": "d/parts", "content": content, "append": append, "more": more});
    let mut sender = server.connect();
    for (content, append) in [("one ", false), ("two ", true)] {
        let written = sender.ask("file.write", part(content, append, true));
        assert!(written["written"]["size"].is_u64(), "{written}");
    }
    let code = "import os; os.listdir('d')";
    let ran = sender.ask("context.run", json!({"context": "a", "code": code}));
    assert_eq!(ran["record"]["results"][0]["text"], "[]", "{ran}");
    let listed = sender.ask("file.list", json!({"context": "a", "path": "d"}));
    assert_eq!(listed["entries"]["entries"], json!([]));
    let refused = other.call("file.write", part("other", true, true));
    assert_eq!(refused["error"]["code"], "bad_params", "{refused}");
    sender.ask("file.write", part("three", true, false));
    let ran = sender.ask(
        "context.run",
        json!({"context": "a", "code": "open('d/parts').read()"}),
    );
    assert_eq!(ran["record"]["results"][0]["text"], "'one two three'");
    assert_eq!(ran["record"]["files"], json!([]), "{ran}");
    let mut seen = Vec::new();
    while seen.last() != Some(&json!({"path": "d/parts", "change": "created"})) {
        let event = client.line();
        assert_eq!(event["id"], 5, "{event}");
        seen.extend(event["event"]["changes"].as_array().unwrap().clone());
    }
    let made = json!({"path": "d", "change": "created"});
    assert_eq!(seen[..seen.len() - 1], [made], "{seen:?}");
    // Nobody else can end it, and it ends with the cell.
    let unwatch = json!({"context": "a", "watch": watch});
    assert_eq!(
        other.call("file.unwatch", unwatch.clone())["error"]["code"],
        "not_found"
    );
    client.send(7, "context.restart", json!({"context": "a"}));
    while event["event"]["event"] != "watch_ended" {
        event = client.line();
    }
    assert_eq!(event["id"], 5);
    assert_eq!(
        client.call("file.unwatch", unwatch)["error"]["code"],
        "not_found"
    );
    // The next one is for the next cell.
    let next = client.ask("file.watch", json!({"context": "a", "path": ""}));
    let unwatch = json!({"context": "a", "watch": next["watch"]});
    let unwatched = client.ask("file.unwatch", unwatch);
    assert_eq!(unwatched, json!({"unwatched": {"path": ""}}));
}

#[test]
fn events_arrive_before_the_answer() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    let request = json!({"language": "python", "code": "print('x')"});
    client.send(5, "run", json!({"request": request, "events": true}));
    let mut events = Vec::new();
    loop {
        let line = client.line();
        assert_eq!(line["id"], 5);
        if line.get("result").is_some() {
            break;
        }
        events.push(line["event"]["event"].as_str().unwrap().to_owned());
    }
    assert!(events.contains(&"stdout".to_owned()), "{events:?}");
}

#[test]
fn output_and_results_of_a_context_keep_their_order() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    client.create("a");
    for round in 0..20 {
        let code = format!("print({round}); display(1); print('x'); display(2); print('y')");
        let run = client.run_in("a", &code);
        let stdout = |bytes: usize| json!({"part": "stdout", "bytes": bytes});
        let result = |index: usize| json!({"part": "result", "index": index});
        let number = round.to_string().len() + 1;
        let expected = [stdout(number), result(0), stdout(2), result(1), stdout(2)];
        assert_eq!(run["record"]["order"], json!(expected), "{run}");
    }
}

#[test]
fn contexts_keep_their_state_apart() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    client.create("a");
    client.create("b");
    client.run_in(
        "a",
        "token = 'a'; open('f', 'w').write('a'); import threading",
    );
    let code = "import os; print('token' in globals(), os.path.exists('f'))";
    let b = client.run_in("b", code);
    assert_eq!(b["record"]["stdout"], "False False\n", "{b}");
    let a = client.run_in("a", code);
    assert_eq!(
        (&a["record"]["stdout"], &a["state"]),
        (&json!("True True\n"), &json!("kept"))
    );
    let failed = client.run_in("a", "1 / 0");
    assert_eq!(
        (&failed["record"]["outcome"], &failed["state"]),
        (&json!("error"), &json!("kept"))
    );
    let ended = client.run_in("a", "import os; os._exit(3)");
    assert_eq!(ended["state"], "lost", "{ended}");
    assert!(ended["why"].is_string());
    let again = client.run_in("a", code);
    assert_eq!(again["record"]["stdout"], "False True\n", "{again}");
    client.ask("context.delete", json!({"context": "a"}));
    assert_eq!(
        client.call("context.describe", json!({"context": "a"}))["error"]["code"],
        "not_found"
    );
    assert_eq!(client.status()["cells"]["used"], 1);
}

#[test]
fn an_interrupt_keeps_the_state() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    client.create("a");
    client.run_in("a", "kept = 5");
    client.send(
        1,
        "context.run",
        json!({"context": "a", "code": "while True: pass"}),
    );
    // The interpreter may not have begun; an early interrupt still ends it.
    until("the interrupt", || {
        let answer = client.ask("context.interrupt", json!({"context": "a", "grace": "20s"}));
        answer["interrupted"] == true
    });
    let answer = client.answer(1);
    assert_eq!(answer["result"]["state"], "kept", "{answer}");
    let kept = client.run_in("a", "kept");
    assert_eq!(kept["record"]["results"][0]["text"], "5", "{kept}");
}

#[test]
fn files_go_in_and_out() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    client.create("a");
    let params = json!({"context": "a", "path": "d/e/f/in.txt", "content": "hello"});
    client.ask("file.write", params);
    let run = client.run_in(
        "a",
        "open('d/e/f/out.txt', 'w').write(open('d/e/f/in.txt').read().upper())",
    );
    assert_eq!(run["record"]["outcome"], "ok", "{run}");
    assert_eq!(changes(&run), ["created d/e/f/out.txt"], "{run}");
    let read = client.ask(
        "file.read",
        json!({"context": "a", "path": "d/e/f/out.txt"}),
    );
    assert!(read.to_string().contains("HELLO"), "{read}");
    let listed = client.ask("file.list", json!({"context": "a", "recursive": true}));
    assert!(listed.to_string().contains("out.txt"), "{listed}");
    client.ask("file.remove", json!({"context": "a", "path": "d"}));
    let params = json!({"context": "a", "path": "own", "content": "hello"});
    client.ask("file.write", params);
    let run = client.run_in("a", "1");
    assert!(changes(&run).is_empty(), "the caller did it: {run}");
    let run = client.run_in("a", "open('own', 'a').write('!')");
    assert_eq!(changes(&run), ["modified own"], "{run}");
    for skipped in [1, 0] {
        let run = client.run_in(
            "a",
            "import os; os.path.islink('link') or os.symlink('own', 'link')",
        );
        let links = run["record"]["files_skipped"].as_array().unwrap();
        assert_eq!(links.len(), skipped, "a link is reported once: {run}");
    }
    let gone = client.call(
        "file.read",
        json!({"context": "a", "path": "d/e/f/out.txt"}),
    );
    assert_eq!(gone["error"]["code"], "not_found", "{gone}");
    let outside = client.call(
        "file.read",
        json!({"context": "a", "path": "../etc/passwd"}),
    );
    assert_eq!(outside["error"]["code"], "failed", "{outside}");
}

/// The files of a record, each after its kind of change.
fn changes(answer: &Value) -> Vec<String> {
    let files = answer["record"]["files"].as_array().unwrap();
    let word = |file: &Value, key: &str| file[key].as_str().unwrap().to_owned();
    let change = |file| format!("{} {}", word(file, "change"), word(file, "path"));
    files.iter().map(change).collect()
}

#[test]
fn files_of_a_request_are_no_changes() {
    let server = Server::start(&["--warm", "python:1"]);
    let mut client = server.connect();
    until("a waiting cell", || {
        client.status()["pools"][0]["ready"] == 1
    });
    let files = json!([{"path": "in/kept", "text": "x"}, {"path": "gone", "text": "y"}]);
    let code = "import os; os.remove('gone'); open('new', 'w').write(open('in/kept').read())";
    for start in ["ready", "cold"] {
        let env = json!({"A": start});
        let request = match start {
            "ready" => json!({"language": "python", "code": code, "files": files}),
            _ => json!({"language": "python", "code": code, "files": files, "env": env}),
        };
        let run = client.ask("run", json!({"request": request}));
        assert_eq!(run["start"], start, "{run}");
        assert_eq!(changes(&run), ["deleted gone", "created new"], "{run}");
    }
}

#[test]
fn a_pool_is_hit_missed_and_refilled() {
    let server = Server::start(&["--warm", "python:1"]);
    let mut client = server.connect();
    let ready = |client: &mut crate::harness::Client| {
        until("a waiting cell", || {
            client.status()["pools"][0]["ready"] == 1
        });
    };
    ready(&mut client);
    let request = json!({"language": "python", "code": "import sys; print(sys.argv[1:]); sys.exit(3)", "args": ["x"]});
    let result = client.ask("run", json!({"request": request}));
    assert_eq!(result["start"], "ready");
    assert_eq!(result["record"]["stdout"], "['x']\n", "{result}");
    assert_eq!(result["record"]["exit_code"], 3, "{result}");
    ready(&mut client);
    let request = json!({"language": "python", "code": "1", "env": {"A": "b"}});
    assert_eq!(
        client.ask("run", json!({"request": request}))["start"],
        "cold"
    );
    assert_eq!(client.create("a")["start"], "ready");
    let run = client.run_in("a", "x = 1");
    assert_eq!(run["state"], "kept");
    ready(&mut client);
    let text = client.ask("metrics", json!({}))["text"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        text.contains("cellblock_pool_hits_total{pool=\"python\"} 2\n"),
        "{text}"
    );
}

#[test]
fn a_blank_cell_serves_any_program() {
    let server = Server::start(&["--warm", "blank:1"]);
    let mut client = server.connect();
    let files = json!([{"path": "f", "text": "x"}]);
    for (request, start) in [
        (
            json!({"argv": ["sh", "-c", "echo $A; cat f; exit 3"], "env": {"A": "b"}, "files": files}),
            "blank",
        ),
        // Its language has limits of its own.
        (
            json!({"language": "python", "code": "import os, sys; print(os.environ['A'] + '\\n' + open('f').read(), end=''); sys.exit(3)", "env": {"A": "b"}, "files": files}),
            "cold",
        ),
    ] {
        until("a waiting cell", || {
            client.status()["pools"][0]["ready"] == 1
        });
        let result = client.ask("run", json!({"request": request}));
        assert_eq!(
            (&result["start"], &result["record"]["start"]),
            (&json!(start), &json!(start))
        );
        assert_eq!(result["record"]["stdout"], "b\nx", "{result}");
        assert_eq!(result["record"]["exit_code"], 3, "{result}");
    }
    until("a waiting cell", || {
        client.status()["pools"][0]["ready"] == 1
    });
    let request = json!({"argv": ["true"], "limits": {"memory": "64M"}});
    assert_eq!(
        client.ask("run", json!({"request": request}))["start"],
        "cold"
    );
    assert_eq!(client.create("a")["start"], "cold");
}

#[test]
fn a_run_by_a_server_prints_the_same_record() {
    let server = Server::start(&[]);
    let output = crate::harness::cellblock()
        .args(["run", "--server"])
        .arg(server.socket())
        .args([
            "--lang",
            "python",
            "--env",
            "A=b",
            "-c",
            "import os; print(os.environ['A'])",
        ])
        .output()
        .unwrap();
    let record: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&record["stdout"], output.status.code()),
        (&json!("b\n"), Some(0)),
        "{record}"
    );
    let refused = crate::harness::cellblock()
        .args(["run", "--server"])
        .arg(server.socket())
        .args(["--ro", "/etc", "--lang", "python", "-c", "1"])
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("cannot be set per request"));
}

#[test]
fn an_interpreter_that_does_not_start_is_not_the_codes_fault() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    let request = json!({"language": "python", "env": {"PYTHONHOME": "/nowhere"}});
    client.ask(
        "context.create",
        json!({"request": request, "context": "a"}),
    );
    let run = client.run_in("a", "print(1)");
    let why = "the interpreter ended with status 1 before the code began";
    assert_eq!(
        (&run["state"], &run["why"]),
        (&json!("lost"), &json!(why)),
        "{run}"
    );
}
