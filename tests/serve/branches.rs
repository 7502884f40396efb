//! Forks of contexts, and checkpoints, in real cells.

use serde_json::{Value, json};

use crate::harness::{Client, Server, descendants, until};
use crate::skip::skip;

/// State of several kinds, and a file.
const STATE: &str = "
class K: pass
x = K(); x.v = 41
def numbers():
    i = 0
    while True:
        i += 1
        yield i
g = numbers(); next(g); next(g)
_ = open('f', 'w').write('one')
";

const LOOK: &str = "print(x.v, next(g), open('f').read())";

fn create(client: &mut Client, name: &str) {
    let params = json!({"request": {"language": "python"}, "context": name, "branches": true});
    client.ask("context.create", params);
    client.run_in(name, STATE);
}

/// The result, unless this host cannot carry state at all.
pub(crate) fn carried(line: Value) -> Option<Value> {
    let Some(error) = line.get("error") else {
        return Some(line["result"].clone());
    };
    let text = error["message"].as_str().unwrap_or_default();
    let skips = text.contains("does not allow the process to be traced")
        || text.contains("whose registers are known");
    assert!(skips && !can_trace(), "{line}");
    skip(text);
    None
}

/// Whether this host lets a process trace its descendants, as far as it says so.
fn can_trace() -> bool {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    let allows = scope.map_or(true, |scope| matches!(scope.trim(), "0" | "1"));
    cfg!(target_arch = "x86_64") && allows
}

fn stdout(executed: &Value) -> &str {
    executed["record"]["stdout"].as_str().unwrap_or_default()
}

#[test]
fn branches_go_on_from_one_state_and_stay_apart() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    create(&mut client, "a");
    let forked = client.call("context.fork", json!({"context": "a", "n": 3}));
    let Some(forked) = carried(forked) else {
        return;
    };
    let ids: Vec<String> = (forked["branches"].as_array().unwrap().iter())
        .map(|branch| {
            assert_eq!(branch["state"], "restored", "{branch}");
            branch["context"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(ids.len(), 3);
    for (number, id) in ids.iter().enumerate() {
        let look = client.run_in(id, LOOK);
        assert_eq!(stdout(&look), "41 3 one\n", "{look}");
        assert_eq!(look["state"], "restored", "{look}");
        client.run_in(
            id,
            &format!("x.v = {number}; open('f', 'w').write('{number}')"),
        );
    }
    for (number, id) in ids.iter().enumerate() {
        let look = client.run_in(id, "print(x.v, next(g), open('f').read())");
        assert_eq!(stdout(&look), format!("{number} 4 {number}\n"), "{look}");
        assert_eq!(look["state"], "kept", "{look}");
    }
    let look = client.run_in("a", LOOK);
    assert_eq!(
        (stdout(&look), &look["state"]),
        ("41 3 one\n", &json!("kept")),
        "{look}"
    );
    // A fork's checkpoint is not needed any more, and all of it ends with the client.
    until("the checkpoint's removal", || server.checkpoints() == 0);
    assert_eq!(client.status()["cells"]["used"], 4);
    drop(client);
    let mut client = server.connect();
    until("the cells' end", || client.status()["cells"]["used"] == 0);
}

#[test]
fn a_context_goes_back_to_its_checkpoint() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    create(&mut client, "a");
    let made = client.call("context.checkpoint", json!({"context": "a"}));
    let Some(made) = carried(made) else { return };
    assert!(made["bytes"].as_u64() > Some(100_000), "{made}");
    assert_eq!(server.checkpoints(), 1);
    let with = &made["checkpoint"];
    // The last one is what an interpreter that ended goes back to.
    let deep = "import os; os.makedirs('n/e/s/t'); del x; open('new', 'w')";
    for code in [deep, "import os; os._exit(3)"] {
        client.run_in("a", code);
        let diff = client.ask("context.diff", json!({"context": "a", "with": with}));
        assert_eq!(diff["files"][0]["path"], "new", "{diff}");
        if code == deep {
            continue;
        }
        let back = client.ask("context.rewind", json!({"context": "a"}));
        assert_eq!(
            (&back["state"], &back["checkpoint"]),
            (&json!("restored"), with)
        );
        let look = client.run_in("a", LOOK);
        assert_eq!(stdout(&look), "41 3 one\n", "{look}");
        assert_eq!(look["state"], "restored", "{look}");
    }
    client.ask("context.delete", json!({"context": "a"}));
    until("the checkpoint's removal", || server.checkpoints() == 0);
}

#[test]
fn a_context_with_a_thread_is_not_forked_and_goes_on() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    create(&mut client, "a");
    client.run_in(
        "a",
        "import threading; e = threading.Event(); t = threading.Thread(target=e.wait); t.start()",
    );
    let refused = client.call("context.fork", json!({"context": "a", "n": 2}));
    let error = &refused["error"];
    assert_eq!(error["code"], "failed", "{refused}");
    assert!(error["hint"].is_string(), "{refused}");
    assert_eq!(
        (server.checkpoints(), &client.status()["cells"]["used"]),
        (0, &json!(1))
    );
    let ended = client.run_in("a", "e.set(); t.join(); print(x.v)");
    assert_eq!(
        (stdout(&ended), &ended["state"]),
        ("41\n", &json!("kept")),
        "{ended}"
    );
    // A thread that has ended does not prevent a fork.
    let forked = client.call("context.fork", json!({"context": "a", "n": 1}));
    let Some(forked) = carried(forked) else {
        return;
    };
    let branch = forked["branches"][0]["context"]
        .as_str()
        .unwrap_or_else(|| panic!("{forked}"));
    let again = "t = threading.Thread(target=print, args=(x.v,)); t.start(); t.join()";
    for id in [branch, "a"] {
        let look = client.run_in(id, again);
        assert_eq!(stdout(&look), "41\n", "{look}");
    }
}

const TEMPLATE: &[&str] = &["--warm", "python:1", "--preload", "json.tool"];

/// Whether a record warns of a layout without randomisation.
fn is_fixed(executed: &Value) -> bool {
    let warnings = executed["record"]["warnings"].to_string();
    warnings.contains("without randomisation")
}

/// The results of a context's code by number, in interpreters that begin in each way.
#[test]
fn earlier_results_have_names_in_every_start() {
    for (options, start) in [(&[][..], "cold"), (TEMPLATE, "forked")] {
        let server = Server::start(options);
        let mut client = server.connect();
        if start == "forked" {
            until("a waiting cell", || {
                client.status()["pools"][0]["ready"] == 1
            });
        }
        let mut params = json!({"request": {"language": "python"}, "context": "a"});
        if start == "cold" {
            params["branches"] = json!(true);
        }
        assert_eq!(client.ask("context.create", params)["start"], start);
        let text = |executed: &Value| executed["record"]["results"][0]["text"].clone();
        client.run_in("a", "'kept'");
        let named = client.run_in("a", "_, _1, Out[1], In[1]");
        assert_eq!(
            text(&named),
            "('kept', 'kept', 'kept', \"'kept'\")",
            "{start}"
        );
        client.create("b");
        let other = client.run_in("b", "_, Out");
        assert_eq!(text(&other), "('', {})", "{start}");
        let params = json!({"request": {"language": "python", "code": "_"}});
        let run = client.ask("run", params);
        assert_eq!(run["record"]["error"]["name"], "NameError", "{run}");
        let forked = client.call("context.fork", json!({"context": "a", "n": 1}));
        let Some(forked) = carried(forked) else {
            continue;
        };
        let branch = forked["branches"][0]["context"].as_str().expect("a branch");
        let named = client.run_in(branch, "_1, Out[1], len(In)");
        assert_eq!(text(&named), "('kept', 'kept', 4)", "{start}: {named}");
    }
}

#[test]
fn a_context_of_a_template_is_forked_without_a_fixed_layout() {
    let server = Server::start(TEMPLATE);
    let mut client = server.connect();
    until("a waiting cell", || {
        client.status()["pools"][0]["ready"] == 1
    });
    assert_eq!(client.create("a")["start"], "forked");
    let first = client.run_in("a", STATE);
    assert!(!is_fixed(&first), "{first}");
    // More branches than cells that wait.
    let forked = client.call("context.fork", json!({"context": "a", "n": 3}));
    let Some(forked) = carried(forked) else {
        return;
    };
    let ids: Vec<&str> = (forked["branches"].as_array().unwrap().iter())
        .map(|branch| branch["context"].as_str().expect("a branch"))
        .collect();
    for (number, id) in ids.iter().enumerate() {
        let look = client.run_in(id, LOOK);
        assert_eq!(stdout(&look), "41 3 one\n", "{look}");
        assert_eq!(look["state"], "restored", "{look}");
        assert_eq!(look["record"]["start"], "forked", "{look}");
        client.run_in(id, &format!("x.v = {number}"));
    }
    for (number, id) in ids.iter().enumerate() {
        let look = client.run_in(id, "print(x.v, 'json.tool' in __import__('sys').modules)");
        assert_eq!(stdout(&look), format!("{number} True\n"), "{look}");
    }
    // A branch can be forked itself, and goes back when its interpreter has ended.
    let branch = ids[0];
    let made = client.ask("context.checkpoint", json!({"context": branch}));
    assert!(made["checkpoint"].is_number(), "{made}");
    let ended = client.run_in(branch, "import os; os._exit(3)");
    assert_eq!(ended["state"], "lost", "{ended}");
    client.ask("context.rewind", json!({"context": branch}));
    let forked = client.ask("context.fork", json!({"context": branch, "n": 1}));
    let again = forked["branches"][0]["context"].as_str().expect("a branch");
    let look = client.run_in(again, "print(x.v)");
    assert_eq!(
        (stdout(&look), &look["state"]),
        ("0\n", &json!("restored")),
        "{look}"
    );
    // A checkpoint has what is not the template's: no more than half of what it is
    // without one, and all that is new.
    let bytes = |client: &mut Client, name: &str| {
        let made = client.ask("context.checkpoint", json!({"context": name}));
        made["bytes"].as_u64().unwrap_or_else(|| panic!("{made}"))
    };
    let plain = Server::start(&[]);
    let mut other = plain.connect();
    create(&mut other, "whole");
    other.run_in("whole", "import json.tool");
    let (part, whole) = (bytes(&mut client, "a"), bytes(&mut other, "whole"));
    assert!(part < whole / 2, "{part} and {whole}");
    client.run_in("a", "import os; data = os.urandom(4 << 20)");
    let more = bytes(&mut client, "a");
    assert!(more >= part + (4 << 20), "{part}, then {more}");
    // One that is asked for it needs no fixed layout either.
    create(&mut client, "b");
    let look = client.run_in("b", LOOK);
    assert_eq!(look["record"]["start"], "forked", "{look}");
    assert!(!is_fixed(&look), "{look}");
}

#[test]
fn a_fixed_layout_is_a_warning_and_a_random_one_is_not_forked() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    for (name, branches) in [("a", true), ("b", false)] {
        let params =
            json!({"request": {"language": "python"}, "context": name, "branches": branches});
        client.ask("context.create", params);
        let first = client.run_in(name, "x = 1");
        assert_eq!(is_fixed(&first), branches, "{first}");
    }
    let refused = client.call("context.fork", json!({"context": "b", "n": 1}));
    assert_eq!(refused["error"]["code"], "failed", "{refused}");
    let hint = refused["error"]["hint"].as_str().unwrap();
    assert!(hint.contains("branches"), "{refused}");
}

/// Suspends a context, looks at it, and goes on with it.
fn suspend_and_go_on(server: &Server, client: &mut Client) {
    let before = descendants(server.child.id()).len();
    create(client, "a");
    let suspended = client.call("context.suspend", json!({"context": "a"}));
    let Some(suspended) = carried(suspended) else {
        return;
    };
    assert!(suspended["bytes"].as_u64() > Some(100_000), "{suspended}");
    until("the end of its processes", || {
        client.status()["cells"]["used"] == 0 && descendants(server.child.id()).len() <= before
    });
    let list = client.ask("context.list", json!({}));
    assert_eq!(list["contexts"][0]["doing"], "suspended", "{list}");
    let look = client.run_in("a", LOOK);
    assert_eq!(
        (stdout(&look), &look["state"]),
        ("41 3 one\n", &json!("restored")),
        "{look}"
    );
    let why = look["why"].as_str().unwrap_or_default();
    assert!(why.contains("suspended"), "{look}");
    assert_eq!(look["execution"], 2, "{look}");
    until("the image's removal", || server.checkpoints() == 0);
    // A description says so, too, and so does an answer that is asked for.
    client.ask("context.suspend", json!({"context": "a"}));
    let described = client.ask("context.describe", json!({"context": "a"}));
    assert_eq!(described["state"], "restored", "{described}");
    client.ask("context.suspend", json!({"context": "a"}));
    let resumed = client.ask("context.resume", json!({"context": "a"}));
    assert_eq!(resumed["state"], "restored", "{resumed}");
    // The state stays `restored` until an execution has reported it.
    let resumed = client.ask("context.resume", json!({"context": "a"}));
    assert_eq!(resumed["state"], "restored", "{resumed}");
    let look = client.run_in("a", "print(x.v, next(g), open('f').read())");
    assert_eq!(stdout(&look), "41 4 one\n", "{look}");
    client.ask("context.suspend", json!({"context": "a"}));
    until("one image", || server.checkpoints() == 1);
    client.ask("context.delete", json!({"context": "a"}));
    until("the image's removal", || server.checkpoints() == 0);
}

#[test]
fn a_suspended_context_has_no_process() {
    let server = Server::start(&[]);
    suspend_and_go_on(&server, &mut server.connect());
}

#[test]
fn a_suspended_context_of_a_template_has_no_process() {
    let server = Server::start(TEMPLATE);
    let mut client = server.connect();
    until("a waiting cell", || {
        client.status()["pools"][0]["ready"] == 1
    });
    suspend_and_go_on(&server, &mut client);
}

#[test]
fn an_idle_context_is_suspended_and_its_file_is_private() {
    use std::os::unix::fs::MetadataExt as _;
    let server = Server::start(&[]);
    let mut client = server.connect();
    let params = json!({
        "request": {"language": "python"}, "context": "a", "branches": true,
        "suspend_after": "500ms",
    });
    client.ask("context.create", params);
    let executed = client.run_in("a", "x = 5");
    let checked = client.call("context.checkpoint", json!({"context": "a"}));
    let Some(checked) = carried(checked) else {
        return;
    };
    let number = &checked["checkpoint"];
    client.ask(
        "context.forget",
        json!({"context": "a", "checkpoint": number}),
    );
    until("the suspension", || client.status()["suspended"] == 1);
    let store = server.store().expect("a directory for checkpoints");
    assert_eq!(store.metadata().unwrap().mode() & 0o777, 0o700);
    let image = std::fs::read_dir(&store).unwrap().next().unwrap().unwrap();
    let inside = std::fs::metadata(image.path()).unwrap();
    assert_eq!(inside.mode() & 0o777, 0o700);
    let file = std::fs::metadata(image.path().join("image")).unwrap();
    assert_eq!(file.mode() & 0o777, 0o600);
    let look = client.run_in("a", "print(x)");
    assert_eq!(stdout(&look), "5\n", "{executed} {look}");
    assert_eq!(look["state"], "restored");
}

#[test]
fn an_obstacle_is_named_at_once_and_harms_nothing() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    create(&mut client, "a");
    let made = client.call("context.checkpoint", json!({"context": "a"}));
    if carried(made).is_none() {
        return;
    }
    let refused = |client: &mut Client, begin: &str, end: &str, why: &str| {
        let began = client.run_in("a", begin);
        assert_eq!(began["record"]["outcome"], "ok", "{began}");
        for method in ["context.checkpoint", "context.suspend"] {
            let refused = client.call(method, json!({"context": "a"}));
            let message = refused["error"]["message"].as_str().unwrap();
            assert!(message.contains(why), "{refused}");
            assert!(refused["error"]["hint"].is_string(), "{refused}");
        }
        let ended = client.run_in("a", end);
        assert_eq!(
            (stdout(&ended), &ended["state"]),
            ("41\n", &json!("kept")),
            "{ended}"
        );
    };
    refused(
        &mut client,
        "import ctypes; libc = ctypes.CDLL(None); _ = libc.prctl(4, 0)",
        "_ = libc.prctl(4, 1); print(x.v)",
        "PR_SET_DUMPABLE",
    );
    refused(
        &mut client,
        "import mmap; m = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS); m.madvise(10)",
        "m.close(); print(x.v)",
        "MADV_DONTFORK",
    );
    refused(
        &mut client,
        "m = mmap.mmap(-1, 1 << 20); m[:2] = b'ab'",
        "m.close(); print(x.v)",
        "is shared and writable",
    );
    client.ask("context.checkpoint", json!({"context": "a"}));
    // With a cgroup that holds the memory, nobody hears of these calls.
    let status = client.run_in("a", "print(x.v)");
    if status["record"]["limits"]["memory"]["enforced"] == "best effort" {
        refused(
            &mut client,
            "_ = libc.semget(0, 1, 0o1600)",
            "print(x.v)",
            "System V segments, semaphores or message queues",
        );
        client.ask("context.restart", json!({"context": "a"}));
        client.ask("context.checkpoint", json!({"context": "a"}));
    }

    // Languages whose memory is not carried wait in their own ways.
    let params = json!({"request": {"language": "bash"}, "context": "b"});
    client.ask("context.create", params);
    client.run_in("b", "x=5");
    let refused = client.call("context.checkpoint", json!({"context": "b"}));
    let error = &refused["error"];
    assert!(
        error["message"].as_str().unwrap().contains("bash"),
        "{refused}"
    );
    assert!(
        error["hint"].as_str().unwrap().contains("replay"),
        "{refused}"
    );
    assert_eq!(stdout(&client.run_in("b", "echo $x")), "5\n");
}
