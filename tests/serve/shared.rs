//! Several interpreters in one cell.

use serde_json::{Value, json};

use crate::harness::{Client, Server, lives, until, wall};
use crate::long::is_long;
use crate::skip::skip;

/// Creates a context in the cell of another one.
fn join(client: &mut Client, name: &str, host: &str, language: &str) -> Value {
    let request = json!({"language": language, "env": {"OWN": name}});
    let params = json!({"request": request, "context": name, "cell_of": host});
    client.ask("context.create", params)
}

fn stdout(ran: &Value) -> &str {
    assert_eq!(ran["record"]["outcome"], "ok", "{ran}");
    ran["record"]["stdout"].as_str().unwrap()
}

#[test]
fn contexts_of_one_cell_share_files_and_processes() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    client.create("a");
    let created = join(&mut client, "b", "a", "bash");
    assert_eq!(
        (&created["start"], &created["language"]),
        (&json!("shared"), &json!("bash"))
    );
    assert_eq!(client.status()["cells"]["used"], 1);
    client.run_in("a", "open('x.txt', 'w').write('python'); y = 1");
    let ran = client.run_in("b", "cat x.txt; echo \" $OWN\"; echo bash > z.txt");
    assert_eq!(stdout(&ran), "python b\n");
    assert_eq!(
        stdout(&client.run_in("a", "print(open('z.txt').read(), y)")),
        "bash\n 1\n"
    );
    let read = client.ask("file.read", json!({"context": "b", "path": "x.txt"}));
    assert_eq!(read["content"]["content"], "python", "{read}");
    // The execution in one context waits for that in the other.
    let wait = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('went')";
    client.send(1, "context.run", json!({"context": "a", "code": wait}));
    client.send(
        2,
        "context.run",
        json!({"context": "b", "code": "touch go; echo done"}),
    );
    let both = [client.line(), client.line()];
    assert!(
        both.iter().any(|line| stdout(&line["result"]) == "went\n"),
        "{both:?}"
    );
    // Processes of both see each other, within the limits of one cell.
    let started = json!({"context": "b", "argv": ["sleep", "1000"]});
    let pid = client.ask("process.start", started)["pid"].clone();
    // `/proc` hides it until execve(2) has made it one that may be traced, which is shortly after
    // init goes on.
    let look = format!(
        "import os, time\nwhile not os.path.exists('/proc/{pid}'): time.sleep(0.01)\n\
         print(open('/proc/{pid}/comm').read())"
    );
    assert_eq!(stdout(&client.run_in("a", &look)), "sleep\n\n");
    client.ask("context.delete", json!({"context": "b"}));
    let gone =
        format!("import os, time\nwhile os.path.exists('/proc/{pid}'): time.sleep(0.01)\nprint(y)");
    assert_eq!(stdout(&client.run_in("a", &gone)), "1\n");
    assert_eq!(client.status()["cells"]["used"], 1);
}

#[test]
fn every_language_of_the_rootfs_has_a_place() {
    let server = Server::start(&["--wall", &wall()]);
    let mut client = server.connect();
    client.ask("context.create", json!({"request": {}, "context": "a"}));
    let write = json!({"context": "a", "path": "f", "content": "here"});
    client.ask("file.write", write);
    let mut tried = 0;
    for (language, code) in [
        ("python", "print(open('f').read())"),
        ("bash", "cat f; echo"),
        (
            "javascript",
            "console.log(require('fs').readFileSync('f', 'utf8'))",
        ),
        ("r", "cat(readLines('f', warn = FALSE), '\\n', sep = '')"),
        (
            "java",
            "System.out.println(java.nio.file.Files.readString(java.nio.file.Path.of(\"f\")));",
        ),
    ] {
        // It starts slowly, from source.
        if language == "java" && !is_long() {
            continue;
        }
        let request = json!({"language": language});
        let params = json!({"request": request, "context": language, "cell_of": "a"});
        let answer = client.call("context.create", params);
        if let Some(message) = answer["error"]["message"].as_str() {
            assert_eq!(answer["error"]["step"], "interpreter", "{answer}");
            skip(format_args!("{language}: {message}"));
            continue;
        }
        assert_eq!(
            stdout(&client.run_in(language, code)).trim(),
            "here",
            "{language}"
        );
        tried += 1;
    }
    assert!(tried >= 2);
    // The cell is that of the context without an interpreter.
    client.ask("context.delete", json!({"context": "a"}));
    let ended = client.call("context.run", json!({"context": "python", "code": "1"}));
    assert_eq!(ended["error"]["code"], "not_found", "{ended}");
}

#[test]
fn no_supervisor_stays_when_its_cell_is_gone() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    client.create("a");
    join(&mut client, "b", "a", "bash");
    let socket = server.socket();
    let processes = || -> Vec<u32> {
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        // All processes of the server are copies of it.
        let is_one = |pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(socket.to_str().unwrap())
        };
        numbers.filter(is_one).collect()
    };
    let before = processes();
    // The server reaps them, also where it is pid 1 of a container.
    let parent = |pid: &u32| -> Option<u32> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find(|line| line.starts_with("PPid:"))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    let has_own = |pid: &&u32| parent(pid).is_some_and(|parent| before.contains(&parent));
    assert_eq!(before.iter().filter(has_own).count(), before.len() - 1);
    client.ask("context.delete", json!({"context": "a"}));
    // Two supervisors and an init.
    until("their end", || {
        before.iter().filter(|pid| lives(**pid)).count() + 3 <= before.len()
    });
}

#[test]
fn an_interpreter_beside_a_forked_one_is_confined() {
    let server = Server::start(&["--warm", "python:1", "--preload", "json"]);
    let mut client = server.connect();
    until("an interpreter that waits", || {
        client.status()["pools"][0]["ready"] == 1
    });
    assert_eq!(client.create("a")["start"], "forked");
    join(&mut client, "b", "a", "python");
    let code = "import os\n\
        try: os.open('/dev/zero', os.O_WRONLY); print('open')\n\
        except OSError as error: print(error.errno)\n\
        kept = ('Uid', 'Gid', 'Cap', 'NoNewPrivs', 'Seccomp:')\n\
        print(*[line for line in open('/proc/self/status') if line.startswith(kept)])\n\
        print(*[os.readlink('/proc/self/ns/' + name) for name in sorted(os.listdir('/proc/self/ns'))])";
    let (first, second) = (client.run_in("a", code), client.run_in("b", code));
    assert!(stdout(&first).starts_with("13\n"), "{first}");
    assert!(stdout(&first).contains("NoNewPrivs:\t1"), "{first}");
    assert_eq!(stdout(&first), stdout(&second));
    // Landlock's scope, where the kernel has it, keeps the later one from the one that was there
    // before.
    let isolation = &first["record"]["isolation"];
    let scoped = isolation["landlock_scopes"].as_array().unwrap();
    let refused = scoped.contains(&json!("signal"));
    assert_eq!(
        refused,
        isolation["landlock_abi"].as_u64() >= Some(6),
        "{isolation}"
    );
    let pid = client.run_in("a", "print(os.getpid())");
    let kill = format!(
        "try: os.kill({}, 0); print('may')\nexcept OSError as error: print(error.errno)",
        stdout(&pid).trim()
    );
    let expected = if refused { "1\n" } else { "may\n" };
    assert_eq!(stdout(&client.run_in("b", &kill)), expected);
}
