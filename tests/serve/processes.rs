//! Processes beside the interpreters of contexts.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::harness::{Client, Server, descendants, lives, until};

fn start(client: &mut Client, context: &str, command: &str, options: Value) -> u64 {
    let mut params = json!({"context": context, "command": command});
    for (name, value) in options.as_object().into_iter().flatten() {
        params[name] = value.clone();
    }
    client.ask("process.start", params)["process"]
        .as_u64()
        .unwrap()
}

/// A context without an interpreter.
fn create(client: &mut Client, name: &str) {
    client.ask(
        "context.create",
        json!({"request": {}, "context": name, "keep": true}),
    );
}

/// Reads events until a process ends; returns its output and the event of its end.
fn end(client: &mut Client, process: u64) -> (String, Value) {
    let mut written = String::new();
    loop {
        let line = client.line();
        assert!(!line.is_null(), "{process}: {written}");
        let event = &line["event"];
        match event["event"].as_str() {
            Some("process_output") if event["process"] == process => {
                written += event["text"].as_str().unwrap();
            }
            Some("process_ended") if event["process"] == process => {
                return (written, event.clone());
            }
            _ => {}
        }
    }
}

/// Runs a command to its end; returns its output.
fn output(client: &mut Client, context: &str, command: &str) -> String {
    let process = start(client, context, command, json!({"events": true}));
    end(client, process).0
}

#[test]
fn a_process_runs_beside_code() {
    let server = Server::start(&[]);
    let (mut client, mut other) = (server.connect(), server.connect());
    client.create("a");
    let code = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)";
    client.send(1, "context.run", json!({"context": "a", "code": code}));
    let cat = start(
        &mut other,
        "a",
        "cat",
        json!({"input": true, "events": true, "tag": "cats"}),
    );
    let list = other.ask("process.list", json!({"context": "a"}));
    let shown = &list["processes"][0];
    assert_eq!(
        (&shown["tag"], &shown["process"]),
        (&json!("cats"), &json!(cat)),
        "{list}"
    );
    let here = json!({"context": "a", "process": cat});
    client.ask("process.connect", here.clone());
    let input = json!({"context": "a", "process": cat, "data": {"base64": "YWL/", "text": ""}});
    // Output can come before the answers, and waiting for the answers would drop it.
    other.send(901, "process.input", input);
    other.send(902, "process.close_input", here.clone());
    for client in [&mut client, &mut other] {
        let (written, ended) = end(client, cat);
        assert_eq!(
            (written.as_str(), &ended["exit_code"]),
            ("ab\u{fffd}", &json!(0))
        );
    }
    assert_eq!(
        other.call("process.connect", here)["error"]["code"],
        "not_found"
    );
    start(&mut other, "a", "touch go", json!({}));
    assert_eq!(client.answer(1)["result"]["record"]["outcome"], "ok");
}

#[test]
fn a_process_outlives_its_client_in_a_kept_context_only() {
    let mut server = Server::start(&[]);
    let mut client = server.connect();
    create(&mut client, "kept");
    client.ask("context.create", json!({"request": {}, "context": "own"}));
    let terminal = json!({"terminal": {"rows": 24, "columns": 80}, "events": true});
    let shell = start(&mut client, "kept", "sh", terminal);
    start(&mut client, "own", "sleep 1000", json!({}));
    // The process ends with its client, although the context stays.
    let attached = json!({"attached": true});
    start(&mut client, "kept", "sleep 1000", attached);
    let sleeps = |server: &Server| {
        let all = descendants(server.child.id())
            .into_iter()
            .filter(|pid| lives(*pid));
        let command = |pid| std::fs::read_to_string(format!("/proc/{pid}/cmdline"));
        all.filter_map(|pid| command(pid).ok())
            .filter(|text| text.starts_with("sleep"))
            .count()
    };
    until("a process in either context", || sleeps(&server) == 2);
    drop(client);
    until("its end", || sleeps(&server) == 0);
    let mut client = server.connect();
    client.ask(
        "process.connect",
        json!({"context": "kept", "process": shell}),
    );
    let resize =
        json!({"context": "kept", "process": shell, "terminal": {"rows": 5, "columns": 6}});
    client.ask("process.resize", resize);
    let data = "stty size; exit 9\n";
    client.ask(
        "process.input",
        json!({"context": "kept", "process": shell, "data": data}),
    );
    let (shown, ended) = end(&mut client, shell);
    assert!(shown.contains("5 6\r\n"), "{shown}");
    assert_eq!(ended["exit_code"], 9);
    let sleeping = start(&mut client, "kept", "sleep 1000", json!({"events": true}));
    // Listeners get the end of the process when the context or the server ends.
    client.send(1, "context.delete", json!({"context": "kept"}));
    let (_, ended) = end(&mut client, sleeping);
    assert_eq!(ended["why"], "the cell has ended", "{ended}");
    server.signal(nix::sys::signal::Signal::SIGTERM);
    assert!(server.wait().success());
}

/// How a command ends in a server with these options.
fn exit_code(options: &[&str], command: &str) -> (String, Value) {
    let server = Server::start(options);
    let mut client = server.connect();
    create(&mut client, "a");
    let process = start(&mut client, "a", command, json!({"events": true}));
    let (written, ended) = end(&mut client, process);
    (written, ended["exit_code"].clone())
}

#[test]
fn each_layer_holds_a_process() {
    let write = "echo x > /usr/cellblock-was-here";
    let own = "cp /bin/true /tmp/own && /tmp/own";
    let keys = "python3 -c 'import ctypes, os, sys; n = 248 if os.uname().machine == \"x86_64\" else 217; sys.exit(ctypes.CDLL(None).syscall(n, b\"user\", b\"a\", b\"b\", 1, -2) < 0)'";
    let room = ["--no-exec", "--tmp-size", "100M"];
    for (command, layer) in [(own, "landlock"), (keys, "seccomp")] {
        let (written, held) = exit_code(&room, command);
        assert_ne!(held, 0, "{layer}: {written}");
        let (written, open) = exit_code(&[&room[..], &["--without", layer]].concat(), command);
        assert_eq!(open, 0, "without {layer}: {written}");
    }
    // No option turns the others off, so they are compared with the interpreter's.
    assert_ne!(exit_code(&[], write).1, 0);
    let shows = "grep -h -E '^(NoNewPrivs|CapEff|CapBnd|Seccomp):' /proc/self/status; kill -KILL 1; kill -0 1 && echo init lives; ls /proc/1/root 2>/dev/null || echo hidden";
    let (written, _) = exit_code(&[], shows);
    for line in [
        "NoNewPrivs:\t1",
        "CapEff:\t0000000000000000",
        "CapBnd:\t0000000000000000",
        "Seccomp:\t2",
        "hidden",
    ] {
        assert!(written.contains(line), "{line}: {written}");
    }
}

/// A forked interpreter confines itself, and the cell's init is confined less than in other
/// cells: each process applies the rest to itself.
#[test]
fn a_process_is_confined_like_a_forked_interpreter() {
    let pool = ["--warm", "python:1", "--preload", "decimal"];
    let shows = "exec 2>&1; grep -E '^(Cap|NoNewPrivs|Seccomp|Uid|Gid|Groups)' /proc/self/status; for n in user pid mnt net ipc uts cgroup; do readlink /proc/self/ns/$n; done; cat /proc/self/limits /proc/self/oom_score_adj /proc/self/cgroup; ls /proc/self/fd | wc -l; unshare -U true 2>&1 || echo no unshare";
    let write = ": > /dev/zero && echo written";
    for without in [&[][..], &["--without", "landlock"]] {
        let server = Server::start(&[&pool[..], without].concat());
        let mut client = server.connect();
        until("a waiting cell", || {
            client.status()["pools"][0]["ready"] == 1
        });
        assert_eq!(client.create("a")["start"], "forked");
        let of_process = output(&mut client, "a", shows);
        let code = format!(
            "import subprocess; print(subprocess.run(['sh', '-c', {shows:?}], stdin=subprocess.DEVNULL, stdout=-1, stderr=-2, text=True).stdout, end='')"
        );
        let run = client.run_in("a", &code);
        // It can be any program, and may reserve more than Python where that counts.
        let all_else = |text: &str| -> Vec<String> {
            let lines = text
                .lines()
                .filter(|line| !line.starts_with("Max data size"));
            lines.map(str::to_owned).collect()
        };
        let of_python = run["record"]["stdout"].as_str().unwrap();
        assert_eq!(all_else(of_python), all_else(&of_process), "{run}");
        assert!(of_process.contains("NoNewPrivs:\t1\n"), "{of_process}");
        let written = output(&mut client, "a", write);
        assert_eq!(
            written.contains("written"),
            !without.is_empty(),
            "{written}"
        );
        // docs/PROTOCOL.md: what a domain of its own keeps a process from.
        let pid = client.run_in("a", "import os; print(os.getpid())");
        let pid = pid["record"]["stdout"].as_str().unwrap().trim().to_owned();
        let signal = format!("kill -0 {pid} 2>/dev/null && echo sent");
        let sent = output(&mut client, "a", &signal);
        let scopes = &run["record"]["isolation"]["landlock_scopes"];
        let is_scoped = scopes.to_string().contains("signal");
        assert_eq!(sent.contains("sent"), !is_scoped, "{scopes}");
    }
}

#[test]
fn floods_of_output_hold_up_their_processes_and_nothing_else() {
    let server = Server::start(&[]);
    let (mut slow, mut client) = (server.connect(), server.connect());
    create(&mut slow, "a");
    // This client reads nothing of ten endless streams.
    for id in 1..=10 {
        let params = json!({"context": "a", "command": "yes", "events": true});
        slow.send(id, "process.start", params);
    }
    let mut written = 0;
    until("all of them", || {
        written = client.ask("process.list", json!({"context": "a"}))["processes"]
            .as_array()
            .unwrap()
            .len();
        written == 10
    });
    assert_eq!(output(&mut client, "a", "echo meanwhile"), "meanwhile\n");
    let of_server = |field: &str| {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        line.split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    // A second client that reads gets no more output than the slow one has room for.
    client.ask("process.connect", json!({"context": "a", "process": 1}));
    assert_eq!(output(&mut client, "a", "sleep 0.3; echo still"), "still\n");
    let most = of_server("VmHWM:");
    assert!(most < 120 << 10, "{most} KiB");
    // Without the slow one, it gets more.
    drop(slow);
    let mut bytes = 0;
    while bytes < 4 << 20 {
        let line = client.line();
        bytes += line["event"]["text"].as_str().map_or(0, str::len);
    }
    for process in 1..=10 {
        let kill = json!({"context": "a", "process": process, "signal": "SIGKILL"});
        client.ask("process.signal", kill);
    }
}

#[test]
fn fifty_at_once_are_apart() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    for name in ["a", "b"] {
        create(&mut client, name);
    }
    let place = |number: u64| (["a", "b"][number as usize % 2], 1 + number / 2);
    for number in 0..50 {
        let options = json!({"input": true, "events": true, "env": {"N": number.to_string()}});
        let (context, expected) = place(number);
        let command = "read line; echo $N $line; exec cat";
        assert_eq!(start(&mut client, context, command, options), expected);
    }
    let mut texts: BTreeMap<String, String> = BTreeMap::new();
    for number in 0..50 {
        let (context, process) = place(number);
        let data = format!("{number}!\n");
        client.send(
            number,
            "process.input",
            json!({"context": context, "process": process, "data": data}),
        );
        client.send(
            100 + number,
            "process.close_input",
            json!({"context": context, "process": process}),
        );
    }
    let mut ended = 0;
    while ended < 50 {
        let line = client.line();
        let event = &line["event"];
        let key = format!("{} {}", line["id"], event["process"]);
        match event["event"].as_str() {
            Some("process_output") => {
                *texts.entry(key).or_default() += event["text"].as_str().unwrap();
            }
            Some("process_ended") => ended += 1,
            _ => assert!(line.get("error").is_none(), "{line}"),
        }
    }
    let mut texts: Vec<String> = texts.into_values().collect();
    let mut expected: Vec<String> = (0..50)
        .map(|number| format!("{number} {number}!\n"))
        .collect();
    texts.sort();
    expected.sort();
    assert_eq!(texts, expected);
}

#[test]
fn a_flood_of_processes_meets_the_limit_and_ends_with_its_cell() {
    const LIMIT: usize = 40;
    /// What a cell has besides: its supervisor, its init, and what the server starts for it.
    const OTHERS: usize = 10;
    let server = Server::start(&[]);
    let mut client = server.connect();
    create(&mut client, "b");
    assert_eq!(output(&mut client, "b", "echo apart"), "apart\n");
    let all = || {
        let all = descendants(server.child.id()).into_iter();
        all.filter(|pid| lives(*pid)).count()
    };
    let before = all();
    // The second one stays, and the first may end by itself.
    for (flood, stays) in [
        ("f() { f | f & }; f; sleep 1000", 0),
        (
            "for i in $(seq 200); do sleep 1000 & done; wait",
            LIMIT - 10,
        ),
    ] {
        let request = json!({"limits": {"processes": LIMIT}});
        client.ask(
            "context.create",
            json!({"request": request, "context": "a"}),
        );
        start(&mut client, "a", flood, json!({}));
        until("the flood", || all() >= before + stays);
        assert_eq!(output(&mut client, "b", "echo apart"), "apart\n");
        // Starting another one is refused by the limit, or works, and is answered.
        for _ in 0..5 {
            let answer = client.call("process.start", json!({"context": "a", "command": "true"}));
            assert!(
                answer.get("result").is_some() || answer["error"]["code"] == "failed",
                "{answer}"
            );
            let more = all().saturating_sub(before);
            assert!(more <= LIMIT + OTHERS, "{more}");
        }
        client.ask("context.delete", json!({"context": "a"}));
        until("the end of all", || all() <= before);
        assert_eq!(output(&mut client, "b", "echo apart"), "apart\n");
    }
}

#[test]
fn code_that_stops_or_kills_what_is_started_ends_its_cell_at_most() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    create(&mut client, "b");
    for signal in ["KILL", "STOP"] {
        create(&mut client, "a");
        let hostile = format!(
            "import os, signal\nprint('on', flush=True)\nwhile True:\n  for pid in os.listdir('/proc'):\n    if pid.isdigit() and int(pid) not in (1, os.getpid()):\n      try: os.kill(int(pid), signal.SIG{signal})\n      except OSError: pass"
        );
        let params = json!({"context": "a", "argv": ["python3", "-c", hostile], "events": true});
        client.ask("process.start", params);
        while client.line()["event"]["text"] != "on\n" {}
        // The hostile signal reaches the process: `sleep` is killed, or never ends.
        let params = json!({"context": "a", "command": "sleep 1; echo through", "events": true});
        let answer = client.call("process.start", params);
        if signal == "KILL" && answer.get("result").is_some() {
            let process = answer["result"]["process"].as_u64().unwrap();
            assert_eq!(end(&mut client, process).1["signal"], "SIGKILL");
        }
        for _ in 0..20 {
            let answer = client.call("process.start", json!({"context": "a", "command": "true"}));
            if answer.get("result").is_none() {
                println!("{signal}: {answer}");
                break;
            }
        }
        assert_eq!(output(&mut client, "b", "echo apart"), "apart\n");
        client.call("context.delete", json!({"context": "a"}));
    }
}

/// Without a cgroup that holds the memory, whose limit acts on what is used.
#[test]
fn shared_memory_counts_against_the_limit_in_every_start() {
    const TAKE: &str = "import mmap\nkept = mmap.mmap(-1, 150 << 20); kept[:2] = b'ab'";
    const MORE: &str =
        "try: print(len(mmap.mmap(-1, 150 << 20)))\nexcept OSError as e: print(e.errno, kept[:2])";
    let options = ["--memory", "256M", "--cgroup", "none"];
    let warm = ["--warm", "python:1"];
    let template = ["--warm", "python:1", "--preload", "json.tool"];
    for (start, more) in [("cold", &[][..]), ("ready", &warm), ("forked", &template)] {
        let server = Server::start(&[&options, more].concat());
        let mut client = server.connect();
        until("waiting cells", || {
            more.is_empty() || client.status()["pools"][0]["ready"] == 1
        });
        assert_eq!(client.create("a")["start"], start);
        client.run_in("a", TAKE);
        let ran = client.run_in("a", MORE);
        let refused = "12 b'ab'\n";
        assert_eq!(ran["record"]["stdout"], refused, "{start}: {ran}");
        assert_eq!(ran["record"]["denied"][0]["action"], "ENOMEM", "{ran}");
        // What the interpreter has counts for processes beside it, until it gives that back.
        let beside = format!("python3 -c \"kept = b'ab'; import mmap\n{MORE}\"");
        assert_eq!(output(&mut client, "a", &beside), refused, "{start}");
        client.run_in("a", "kept.close()");
        let granted = format!("{}\n", 150 << 20);
        assert_eq!(output(&mut client, "a", &beside), granted, "{start}");
    }
}

/// A shell's command may be longer than one argument; others are refused by name, as is a program that
/// is missing.
#[test]
fn commands_may_be_long() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    create(&mut client, "a");
    for (argv, words) in [
        (
            json!(["no-such-program", "x"]),
            "execve(\"no-such-program\"): ENOENT",
        ),
        (
            json!(["echo", "y".repeat(131_072)]),
            "argv[1]: has 131072 bytes",
        ),
    ] {
        let asked = json!({"context": "a", "argv": argv});
        let refused = client.call("process.start", asked);
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.contains(words), "{message}");
    }
    let long = format!("x={}; echo ${{#x}}", "y".repeat(300_000));
    assert_eq!(output(&mut client, "a", &long), "300000\n");
}
