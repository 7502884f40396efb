//! Files outside of the workspace, and open files, go with a state or are a reason against taking it.

use serde_json::{Value, json};

use crate::branches::carried;
use crate::harness::{Client, Server, until};

/// Files of `/tmp` and `/dev/shm`, one with text that is not read yet, one in a directory that only its
/// owner may enter, and one that is mapped.
const STATE: &str = "
import mmap, os
a = open('/tmp/a', 'w+'); _ = a.write('one two'); _ = a.seek(4)
os.makedirs('/tmp/d/e', 0o700); _ = open('/tmp/d/e/f', 'w').write('deep')
b = open('/dev/shm/b', 'a'); _ = b.write('x'); b.flush()
_ = open('/tmp/mapped', 'wb').write(b'm' * 4096)
with open('/tmp/mapped') as mapped: m = mmap.mmap(mapped.fileno(), 0, access=mmap.ACCESS_READ)
os.chdir('/tmp/d')
";

const LOOK: &str = "
print(a.read(), open('e/f').read(), oct(os.stat('/tmp/d/e').st_mode), m[:2])
_ = b.write('y'); b.flush(); print(open('/dev/shm/b').read())
";

const SEEN: &str = "two deep 0o40700 b'mm'\nxy\n";

fn create(client: &mut Client, name: &str) {
    let params = json!({"request": {"language": "python"}, "context": name, "branches": true});
    client.ask("context.create", params);
}

fn stdout(executed: &Value) -> &str {
    executed["record"]["stdout"].as_str().unwrap_or_default()
}

fn files_come_back(server: &Server) {
    let mut client = server.connect();
    create(&mut client, "a");
    let made = client.run_in("a", STATE);
    assert_eq!(made["record"]["outcome"], "ok", "{made}");
    if carried(client.call("context.checkpoint", json!({"context": "a"}))).is_none() {
        return;
    }
    let forked = client.ask("context.fork", json!({"context": "a", "n": 2}));
    for branch in forked["branches"].as_array().unwrap() {
        let name = branch["context"]
            .as_str()
            .unwrap_or_else(|| panic!("{forked}"));
        let look = client.run_in(name, LOOK);
        assert_eq!(stdout(&look), SEEN, "{look}");
        client.ask("context.delete", json!({"context": name}));
    }
    client.ask("context.suspend", json!({"context": "a"}));
    let look = client.run_in("a", LOOK);
    assert_eq!(stdout(&look), SEEN, "{look}");
    // What came later is not there after going back.
    client.run_in("a", "os.remove('/tmp/d/e/f'); _ = open('/tmp/later', 'w')");
    client.ask("context.rewind", json!({"context": "a"}));
    let look = client.run_in("a", LOOK);
    assert_eq!(stdout(&look), SEEN, "{look}");
    let left = client.run_in("a", "print(os.path.exists('/tmp/later'))");
    assert_eq!(stdout(&left), "False\n", "{left}");
}

#[test]
fn files_of_tmp_and_shm_come_back() {
    files_come_back(&Server::start(&[]));
}

#[test]
fn files_of_tmp_and_shm_come_back_in_copies_of_a_template() {
    let server = Server::start(&["--warm", "python:1", "--preload", "json"]);
    until("a waiting cell", || {
        server.connect().status()["pools"][0]["ready"] == 1
    });
    files_come_back(&server);
}

#[test]
fn files_that_cannot_come_back_are_refused_by_name() {
    let server = Server::start(&["--tmpfs", "/scratch"]);
    let mut client = server.connect();
    create(&mut client, "a");
    client.run_in("a", "x = 41");
    if carried(client.call("context.checkpoint", json!({"context": "a"}))).is_none() {
        return;
    }
    for (open, named) in [
        ("f = open('/scratch/kept', 'w')", "/scratch/kept"),
        (
            "import os; f = open('/tmp/gone', 'w'); os.remove('/tmp/gone')",
            "/tmp/gone",
        ),
        (
            "import tempfile; f = tempfile.TemporaryFile()",
            "without a name",
        ),
        (
            "import os; f = open('/dev/shm/gone', 'w'); os.remove('/dev/shm/gone')",
            "/dev/shm/gone",
        ),
    ] {
        client.run_in("a", open);
        for (method, params) in [
            ("context.suspend", json!({"context": "a"})),
            ("context.fork", json!({"context": "a", "n": 1})),
        ] {
            let refused = client.call(method, params);
            let message = refused["error"]["message"].as_str().unwrap_or_default();
            assert!(message.contains(named), "{open}: {refused}");
            assert!(refused["error"]["hint"].is_string(), "{refused}");
        }
        let ended = client.run_in("a", "f.close(); print(x)");
        assert_eq!(
            (stdout(&ended), &ended["state"]),
            ("41\n", &json!("kept")),
            "{ended}"
        );
    }
    let suspended = client.ask("context.suspend", json!({"context": "a"}));
    assert!(suspended["bytes"].is_u64(), "{suspended}");
    assert_eq!(stdout(&client.run_in("a", "print(x)")), "41\n");
}
