//! State that is restored by executing again what was executed, where memory cannot be carried.

use serde_json::{Value, json};

use crate::harness::{Client, Server, cellblock, descendants, until, wall};
use crate::long::is_long;
use crate::skip::skip;

/// Code in a language that increments a variable `x`, keeps it in a file, and shows both.
struct Language {
    name: &'static str,
    begin: &'static str,
    count: &'static str,
    look: &'static str,
    raise: &'static str,
    /// Ends the interpreter.
    end: &'static str,
    /// Prints random numbers, each by another generator.
    draw: &'static str,
}

const LANGUAGES: &[Language] = &[
    Language {
        name: "python",
        begin: "x = int(open('f').read())",
        count: "x += 1; _ = open('f', 'w').write(str(x))",
        look: "print(x, open('f').read())",
        raise: "x += 10; raise ValueError(x)",
        end: "import os; os._exit(7)",
        draw: "import random, secrets, ssl; print(random.random(), secrets.token_hex(), ssl.RAND_bytes(8).hex())",
    },
    Language {
        name: "javascript",
        begin: "const fs = require('fs'); let x = Number(fs.readFileSync('f', 'utf8'))",
        count: "x += 1; fs.writeFileSync('f', String(x))",
        look: "console.log(x, fs.readFileSync('f', 'utf8'))",
        raise: "x += 10; throw new RangeError(String(x))",
        end: "process.exit(7)",
        draw: "console.log(Math.random(), require('crypto').randomUUID())",
    },
    Language {
        name: "typescript",
        begin: "const fs = require('fs'); let x: number = Number(fs.readFileSync('f', 'utf8'))",
        count: "x += 1; fs.writeFileSync('f', String(x))",
        look: "console.log(x, fs.readFileSync('f', 'utf8'))",
        raise: "x += 10; throw new RangeError(String(x))",
        end: "process.exit(7)",
        draw: "console.log(Math.random(), require('crypto').randomUUID())",
    },
    Language {
        name: "r",
        begin: "x <- as.integer(readLines('f', warn = FALSE))",
        count: "x <- x + 1L; cat(x, file = 'f')",
        look: "cat(x, readLines('f', warn = FALSE)); cat('\\n')",
        raise: "x <- x + 10L; stop('x')",
        end: "quit(status = 7)",
        draw: "cat(runif(1), rnorm(1), '\\n')",
    },
    Language {
        name: "java",
        begin: "import java.nio.file.*; int x = Integer.parseInt(Files.readString(Path.of(\"f\")));",
        count: "x += 1; Files.writeString(Path.of(\"f\"), \"\" + x);",
        look: "System.out.println(x + \" \" + Files.readString(Path.of(\"f\")));",
        raise: "x += 10; throw new IllegalStateException(\"x\");",
        end: "System.exit(7);",
        draw: "System.out.println(Math.random() + \" \" + java.util.UUID.randomUUID() + \" \" + new java.util.Random().nextLong());",
    },
    Language {
        name: "bash",
        begin: "x=$(cat f)",
        count: "x=$((x + 1)); printf %s $x > f",
        look: "echo $x $(cat f)",
        raise: "x=$((x + 10)); (exit 3)",
        end: "exit 7",
        draw: "echo $RANDOM$RANDOM$RANDOM $SRANDOM",
    },
];

/// A context whose file `f` has the number 1; `None` where the host lacks the language.
fn create(client: &mut Client, language: &str, name: &str) -> Option<Value> {
    let files = json!([{"path": "f", "text": "1"}]);
    let request = json!({"language": language, "files": files});
    let params = json!({"request": request, "context": name, "replay": true});
    let made = client.call("context.create", params);
    if made.get("error").is_none() {
        return Some(made["result"].clone());
    }
    let why = made["error"]["message"].as_str().unwrap_or_default();
    assert!(why.contains("find the interpreter"), "{made}");
    skip(format_args!("{language}: {why}"));
    None
}

fn stdout(executed: &Value) -> &str {
    executed["record"]["stdout"].as_str().unwrap_or_default()
}

/// The output of a look, and the state in its answer.
fn look<'v>(
    language: &Language,
    client: &mut Client,
    name: &str,
    seen: &'v mut Value,
) -> (&'v str, &'v str) {
    *seen = client.run_in(name, language.look);
    // A test that fails shows it.
    println!("{seen}");
    (stdout(seen), seen["state"].as_str().unwrap())
}

/// State that is made again in a language: in all ways, or only in a branch.
fn replays(language: &Language, is_whole: bool) {
    // Without a memory cgroup, Node's and Java's reservations need this much.
    let server = Server::start_untraced(&["--memory", "2G", "--wall", &wall()]);
    let mut client = server.connect();
    let Some(_) = create(&mut client, language.name, "a") else {
        return;
    };
    let seen = &mut Value::Null;
    for code in [language.begin, language.count, language.raise] {
        let executed = client.run_in("a", code);
        println!("{executed}");
        let why = executed["record"]["error"]["message"].as_str();
        if let Some(why) = why.filter(|why| why.contains("22.13 and later")) {
            return skip(format_args!("{}: {why}", language.name));
        }
    }
    assert_eq!(look(language, &mut client, "a", seen), ("12 2\n", "kept"));
    let made = client.ask("context.checkpoint", json!({"context": "a"}));
    client.run_in("a", language.count);
    client.ask(
        "file.write",
        json!({"context": "a", "path": "new", "content": "x"}),
    );
    let diff = client.ask(
        "context.diff",
        json!({"context": "a", "with": made["checkpoint"]}),
    );
    assert_eq!(diff["files"].as_array().unwrap().len(), 2, "{diff}");

    // Its branches go on from there, independently of each other.
    let mut draws = Vec::new();
    let count = if is_whole { 2 } else { 1 };
    let forked = client.ask("context.fork", json!({"context": "a", "n": count}));
    let branches = forked["branches"].as_array().unwrap();
    assert_eq!(branches.len(), count);
    for branch in branches {
        assert_eq!(branch["state"], "restored", "{branch}");
        let why = branch["why"].as_str().unwrap();
        assert!(why.contains("ran 5 executions again"), "{why}");
        let name = branch["context"].as_str().unwrap();
        assert_eq!(
            look(language, &mut client, name, seen),
            ("13 13\n", "restored")
        );
        client.run_in(name, language.count);
        assert_eq!(look(language, &mut client, name, seen), ("14 14\n", "kept"));
        client.ask("file.read", json!({"context": name, "path": "new"}));
        draws.push(client.run_in(name, language.draw));
        client.ask("context.delete", json!({"context": name}));
    }
    assert_eq!(look(language, &mut client, "a", seen), ("13 13\n", "kept"));

    draws.push(client.run_in("a", language.draw));
    if is_whole {
        draws.push(goes_back(language, &mut client));
        let more = resumes(language, &server, &mut client);
        draws.extend(more);
    } else {
        client.ask("context.delete", json!({"context": "a"}));
    }
    until("the end of all", || {
        server.checkpoints() == 0 && descendants(server.child.id()).len() <= 1
    });
    let mut drawn: Vec<&str> = draws
        .iter()
        .flat_map(|one| stdout(one).split_whitespace())
        .collect();
    let count = drawn.len();
    assert!(count >= 2 * draws.len(), "{draws:?}");
    drawn.sort_unstable();
    drawn.dedup();
    assert_eq!(drawn.len(), count, "no generator repeats itself: {draws:?}");
}

/// The context `a` goes back to its checkpoint. Returns what its generators gave then.
fn goes_back(language: &Language, client: &mut Client) -> Value {
    let back = client.ask("context.rewind", json!({"context": "a"}));
    assert_eq!(back["state"], "restored", "{back}");
    let seen = &mut Value::Null;
    assert_eq!(look(language, client, "a", seen), ("12 2\n", "restored"));
    let gone = client.call("file.read", json!({"context": "a", "path": "new"}));
    assert_eq!(gone["error"]["code"], "not_found", "{gone}");
    client.run_in("a", language.draw)
}

/// The context `a`, which went back to its checkpoint, is suspended and lost. Returns what its
/// generators gave in the end, and deletes it.
fn resumes(language: &Language, server: &Server, client: &mut Client) -> Vec<Value> {
    let seen = &mut Value::Null;
    client.ask("context.suspend", json!({"context": "a"}));
    until("the end of its cell", || {
        client.status()["cells"]["used"] == 0
    });
    assert_eq!(look(language, client, "a", seen), ("12 2\n", "restored"));
    client.run_in("a", language.count);

    // A lost state is restored on request before anything else is executed. The workspace stays as
    // it was left.
    client.ask(
        "file.write",
        json!({"context": "a", "path": "kept", "content": "x"}),
    );
    let ended = client.run_in("a", language.end);
    assert_eq!(ended["state"], "lost", "{ended}");
    assert!(
        ended["why"].as_str().unwrap().contains("context.resume"),
        "{ended}"
    );
    let resumed = client.ask("context.resume", json!({"context": "a"}));
    assert_eq!(resumed["state"], "restored", "{resumed}");
    assert_eq!(look(language, client, "a", seen), ("13 13\n", "restored"));
    client.ask("file.read", json!({"context": "a", "path": "kept"}));
    let resumed = client.ask("context.resume", json!({"context": "a"}));
    assert_eq!(resumed["state"], "kept", "{resumed}");
    let restarted = client.ask("context.restart", json!({"context": "a"}));
    assert_eq!(restarted["state"], "lost");
    client.ask("context.resume", json!({"context": "a"}));
    assert_eq!(look(language, client, "a", seen), ("13 13\n", "restored"));

    // A history that begins after a loss begins with the workspace of that moment.
    client.run_in("a", language.end);
    client.run_in("a", language.begin);
    client.run_in("a", language.count);
    let forked = client.ask("context.fork", json!({"context": "a", "n": 1}));
    let name = forked["branches"][0]["context"]
        .as_str()
        .unwrap()
        .to_owned();
    until("the checkpoint's removal", || server.checkpoints() == 1);
    assert_eq!(look(language, client, &name, seen), ("14 14\n", "restored"));
    client.run_in(&name, language.end);
    client.ask("context.resume", json!({"context": name}));
    assert_eq!(look(language, client, &name, seen), ("14 14\n", "restored"));
    let mut draws = Vec::new();
    for name in ["a", &name] {
        draws.push(client.run_in(name, language.draw));
        client.ask("context.delete", json!({"context": name}));
    }
    draws
}

fn in_language(name: &str) {
    let language = LANGUAGES.iter().find(|language| language.name == name);
    // What is done in all ways is the front end's, whatever the language.
    replays(
        language.unwrap(),
        ["bash", "python"].contains(&name) || is_long(),
    );
}

#[test]
fn state_is_made_again_in_python() {
    in_language("python");
}

#[test]
fn state_is_made_again_in_javascript() {
    in_language("javascript");
}

#[test]
fn state_is_made_again_in_typescript() {
    in_language("typescript");
}

#[test]
fn state_is_made_again_in_r() {
    in_language("r");
}

#[test]
fn state_is_made_again_in_java() {
    in_language("java");
}

#[test]
fn state_is_made_again_in_bash() {
    in_language("bash");
}

#[test]
fn where_nothing_can_be_traced_the_refusal_names_replay() {
    let create = |client: &mut Client| {
        let params = json!({"request": {"language": "python"}, "context": "a", "branches": true});
        client.ask("context.create", params);
        client.run_in("a", "x = 1");
        client.call("context.fork", json!({"context": "a", "n": 1}))
    };
    let server = Server::start_untraced(&[]);
    let mut client = server.connect();
    let refused = create(&mut client);
    let error = &refused["error"];
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains("does not allow the process to be traced"),
        "{refused}"
    );
    assert!(
        error["hint"].as_str().unwrap().contains("--replay"),
        "{refused}"
    );
    // The context goes on.
    assert_eq!(stdout(&client.run_in("a", "print(x)")), "1\n");
    // The filter refuses this: without it, the same works where the host allows it.
    let free = Server::start(&[]);
    let made = create(&mut free.connect());
    if let Some(why) = made["error"]["message"].as_str() {
        return skip(format_args!("the control: {why}"));
    }
    assert_eq!(made["result"]["branches"][0]["state"], "restored", "{made}");
}

#[test]
fn a_replay_that_ends_otherwise_is_lost_and_names_the_execution() {
    let server = Server::start_untraced(&[]);
    let mut client = server.connect();
    create(&mut client, "python", "a").expect("python");
    // Each cell has a different value.
    let id = "open('/proc/sys/kernel/random/boot_id').read().strip()";
    let first = client.run_in("a", &format!("x = 1; print({id})"));
    let (code, wall) = ("while True: pass", "200ms");
    let endless = json!({"context": "a", "code": code, "wall": wall, "grace": "20s"});
    let interrupted = client.ask("context.run", endless);
    assert_eq!(interrupted["state"], "kept", "{interrupted}");
    let limit = &interrupted["record"]["limits"]["wall"];
    assert_eq!(limit["requested"], 200.0, "the own one: {limit}");
    client.ask("context.checkpoint", json!({"context": "a"}));
    // A different output is reported, and has no other effect.
    let back = client.ask("context.rewind", json!({"context": "a"}));
    let why = back["why"].as_str().unwrap();
    assert_eq!(back["state"], "restored", "{back}");
    assert!(why.contains("the output of 1 differs"), "{why}");
    assert!(why.contains("1 that were interrupted"), "{why}");
    let own = client.run_in("a", &format!("print({id})"));
    assert_ne!(stdout(&own), stdout(&first));

    let only_here = format!(
        "assert {id} == '{}'; open('g', 'w').write('g')",
        stdout(&own).trim()
    );
    client.run_in("a", &only_here);
    client.ask("context.checkpoint", json!({"context": "a"}));
    let lost = client.ask("context.rewind", json!({"context": "a"}));
    assert_eq!(lost["state"], "lost", "{lost}");
    let why = lost["why"].as_str().unwrap();
    assert!(
        why.contains("execution 4 ended with `error` (AssertionError)"),
        "{why}"
    );
    let described = client.ask("context.describe", json!({"context": "a"}));
    assert_eq!(described["state"], "lost", "{described}");
    // The workspace is that of the checkpoint all the same.
    let next = client.run_in("a", "print(globals().get('x'), open('g').read())");
    assert_eq!(
        (stdout(&next), &next["state"]),
        ("None g\n", &json!("lost")),
        "{next}"
    );
    // A branch without the state is not kept.
    client.run_in("a", &format!("y = 1; print({id})"));
    let own = client.run_in("a", &format!("print({id})"));
    client.run_in("a", &format!("assert {id} == '{}'", stdout(&own).trim()));
    let forked = client.ask("context.fork", json!({"context": "a", "n": 1}));
    let error = &forked["branches"][0]["error"];
    assert_eq!(error["state"], "lost", "{forked}");
    assert_eq!(stdout(&client.run_in("a", "print(y)")), "1\n");
    // A suspended context goes on without its state.
    client.ask("context.suspend", json!({"context": "a"}));
    let next = client.run_in("a", "print(globals().get('y'), open('g').read())");
    assert_eq!(
        (stdout(&next), &next["state"]),
        ("None g\n", &json!("lost")),
        "{next}"
    );
    assert!(
        next["why"].as_str().unwrap().contains("suspended"),
        "{next}"
    );
}

#[test]
fn what_was_executed_is_bounded_and_its_end_ends_a_replay() {
    let server = Server::start_untraced(&[]);
    let mut client = server.connect();
    create(&mut client, "python", "a").expect("python");
    client.run_in("a", "import time; x = 1; time.sleep(2)");
    client.ask("context.checkpoint", json!({"context": "a"}));
    let content = "x".repeat(12 << 20);
    for _ in 0..3 {
        client.ask(
            "file.write",
            json!({"context": "a", "path": "big", "content": content}),
        );
    }
    let refused = client.call("context.checkpoint", json!({"context": "a"}));
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("33554432 bytes"), "{refused}");
    let back = client.ask("context.rewind", json!({"context": "a"}));
    assert_eq!(back["state"], "restored", "{back}");
    client.ask("context.checkpoint", json!({"context": "a"}));
    // A context that is deleted meanwhile is gone at once.
    client.send(1, "context.rewind", json!({"context": "a"}));
    let mut other = server.connect();
    until("the replay's begin", || {
        other.status()["cells"]["used"] == 1
    });
    client.ask("context.delete", json!({"context": "a"}));
    until("the end of all", || {
        server.checkpoints() == 0 && descendants(server.child.id()).len() <= 1
    });
}

#[test]
fn a_shell_goes_back_and_forks_without_tracing() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let mode = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(directory.path(), mode).unwrap();
    let context = |words: &[&str]| {
        let mut command = cellblock();
        command.arg("context").args(words);
        command.env("XDG_RUNTIME_DIR", directory.path());
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {said}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let id = context(&[
        "create",
        "--lang",
        "bash",
        "--rootfs",
        "host",
        "--replay",
        "--suspend-after",
        "1h",
    ]);
    let value = |id: &str| {
        let executed: Value =
            serde_json::from_str(&context(&["run", id, "--json", "-c", "echo $x"])).unwrap();
        executed["record"]["stdout"].as_str().unwrap().to_owned()
    };
    context(&["run", &id, "-c", "x=1"]);
    context(&["checkpoint", &id]);
    context(&["run", &id, "-c", "x=2"]);
    let branch = context(&["fork", &id]);
    assert_eq!(value(&branch), "2\n");
    assert!(context(&["rewind", &id]).contains("has the state of checkpoint"));
    assert_eq!(value(&id), "1\n");
    context(&["suspend", &id]);
    assert!(context(&["resume", &id]).contains("suspended"));
    assert_eq!(value(&id), "1\n");
    for id in [&branch, &id] {
        context(&["delete", id]);
    }
}

/// Executes code that ends at once here. In any other cell it starts five programs and never ends,
/// even if it is interrupted.
fn end_only_here(client: &mut Client, name: &str) {
    let id = "open('/proc/sys/kernel/random/boot_id').read().strip()";
    let own = client.run_in(name, &format!("print({id})"));
    let code = format!(
        "import subprocess, time\n\
         if {id} != '{}':\n\
         \x20   for _ in range(5): subprocess.Popen(['sleep', '1000'])\n\
         \x20   while True:\n\
         \x20       try: time.sleep(1000)\n\
         \x20       except KeyboardInterrupt: pass",
        stdout(&own).trim()
    );
    let executed = client.run_in(name, &code);
    assert_eq!(executed["record"]["outcome"], "ok", "{executed}");
}

#[test]
fn a_replay_ends_when_it_is_interrupted_or_cancelled_or_when_its_client_goes() {
    let server = Server::start_untraced(&[]);
    let mut client = server.connect();
    create(&mut client, "python", "a").expect("python");
    end_only_here(&mut client, "a");
    client.run_in("a", "x = 1");
    client.ask("context.checkpoint", json!({"context": "a"}));
    let processes = || descendants(server.child.id()).len();
    let before = processes();
    let mut other = server.connect();
    for how in ["interrupt", "cancel", "vanish", "restart"] {
        let mut rewinding = server.connect();
        rewinding.send(1, "context.rewind", json!({"context": "a"}));
        until("the endless execution", || processes() >= before + 5);
        let grace = "100ms";
        match how {
            "interrupt" => {
                let params = json!({"context": "a", "grace": grace});
                let done = other.ask("context.interrupt", params);
                assert_eq!(done["interrupted"], true, "{done}");
            }
            "cancel" => {
                let done = rewinding.ask("cancel", json!({"call": 1, "grace": grace}));
                assert_eq!(done["done"], true, "{done}");
            }
            "restart" => drop(other.ask("context.restart", json!({"context": "a"}))),
            _ => {}
        }
        if how != "vanish" {
            let answer = rewinding.answer(1);
            let (result, why) = (&answer["result"], answer["result"]["why"].as_str());
            assert_eq!(result["state"], "lost", "{how}: {answer}");
            let why = why.unwrap();
            assert!(why.contains("interrupted; context.resume"), "{how}: {why}");
        }
        drop(rewinding);
        let found = other.run_in("a", "x");
        let error = &found["record"]["error"]["name"];
        assert_eq!(error, "NameError", "{how}: {found}");
        let state = match how {
            // Its own answer said so.
            "restart" => "kept",
            _ => "lost",
        };
        assert_eq!(found["state"], state, "{how}: {found}");
        until("the end of its processes", || processes() <= before);
    }
}

#[test]
fn a_suspended_context_whose_replay_is_interrupted_stays_suspended() {
    let server = Server::start_untraced(&[]);
    let mut client = server.connect();
    create(&mut client, "python", "a").expect("python");
    end_only_here(&mut client, "a");
    client.ask("context.suspend", json!({"context": "a"}));
    let mut other = server.connect();
    let processes = || descendants(server.child.id()).len();
    for _ in 0..2 {
        until("its end", || client.status()["cells"]["used"] == 0);
        let before = processes();
        client.send(1, "context.run", json!({"context": "a", "code": "1"}));
        until("the endless execution", || processes() >= before + 5);
        other.ask("context.interrupt", json!({"context": "a"}));
        let answer = client.answer(1);
        let error = &answer["error"];
        assert_eq!(
            (&error["code"], &error["state"]),
            (&json!("cancelled"), &json!("kept")),
            "{answer}"
        );
    }
}
