//! Which random numbers are repeated where an interpreter has the memory of another one, or its own of
//! an earlier moment: the table of docs/RANDOMNESS.md. Interpreters by replay are in `replay.rs`.

use serde_json::{Value, json};

use crate::branches::carried;
use crate::harness::{Client, Server, cellblock, until};
use crate::skip::skip;

/// Uses each source once, and defines `draw`, which asks all of them for more. With the module
/// `numpy`, it is preloaded where there is a template.
const BEGIN: &str = "
import ctypes, json, multiprocessing, os, random, secrets, sqlite3, ssl, sys, tempfile, uuid
libc = ctypes.CDLL(None)
libc.getauxval.restype = ctypes.c_void_p
libc.srand48(7)
own = random.Random(7)
database = sqlite3.connect(':memory:')
numpy = sys.modules.get('numpy')
def draw():
    return {
        'os.urandom': os.urandom(8).hex(),
        'secrets': secrets.token_hex(),
        'uuid4': str(uuid.uuid4()),
        'SystemRandom': random.SystemRandom().random(),
        'Random()': random.Random().random(),
        'random': random.random(),
        'ssl.RAND_bytes': ssl.RAND_bytes(8).hex(),
        'sqlite random()': database.execute('select random()').fetchone()[0],
        'tempfile': next(tempfile._get_candidate_names()),
        'authkey': bytes(multiprocessing.current_process().authkey).hex(),
        'uuid1 node': uuid.getnode(),
        'seeded by the code': (own.random(), libc.lrand48()),
        'hash()': hash('text'),
        'AT_RANDOM': ctypes.string_at(libc.getauxval(25), 16).hex(),
        'address layout': ctypes.cast(libc.rand, ctypes.c_void_p).value,
        **({'arc4random': libc.arc4random()} if hasattr(libc, 'arc4random') else {}),
        **({'numpy.random': numpy.random.random(),
            'default_rng()': numpy.random.default_rng().random()} if numpy else {}),
    }
_ = draw()
";
const DRAW: &str = "print(json.dumps(draw()))";
const MODULES: &str = "ssl,random,sqlite3,uuid,tempfile,multiprocessing,secrets";

/// How the other interpreter came to its memory.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    Copy,
    Fork,
    Rewind,
    Resume,
    Guest,
    Pool,
}

/// Whether two interpreters get the same from a source.
fn is_shared(source: &str, by: By) -> bool {
    let goes_on = matches!(by, By::Fork | By::Rewind | By::Resume);
    match source {
        "authkey" | "uuid1 node" | "numpy.random" => goes_on,
        "hash()" | "AT_RANDOM" | "address layout" => goes_on || by == By::Copy,
        // In each of them, the code has seeded it alike.
        "seeded by the code" => true,
        _ => false,
    }
}

fn compare(by: By, draws: &[Value]) {
    for (index, one) in draws.iter().enumerate() {
        for other in &draws[..index] {
            for (source, drawn) in one.as_object().unwrap() {
                let is_same = *drawn == other[source];
                assert_eq!(
                    is_same,
                    is_shared(source, by),
                    "{by:?}, {source}: {one} {other}"
                );
            }
        }
    }
}

fn draw(client: &mut Client, name: &str) -> Value {
    let drawn = client.run_in(name, DRAW);
    let text = drawn["record"]["stdout"].as_str().unwrap_or_default();
    serde_json::from_str(text).unwrap_or_else(|_| panic!("{drawn}"))
}

fn begin(client: &mut Client, name: &str, start: &str) {
    let began = client.run_in(name, BEGIN);
    assert_eq!(began["record"]["outcome"], "ok", "{began}");
    assert_eq!(began["record"]["start"], start, "{began}");
}

/// Forks, rewinds and suspends a context.
fn carry(client: &mut Client, name: &str) {
    let forked = client.call("context.fork", json!({"context": name, "n": 2}));
    let Some(forked) = carried(forked) else {
        return;
    };
    let branches = forked["branches"].as_array().unwrap();
    let mut draws = vec![draw(client, name)];
    for branch in branches {
        let id = branch["context"]
            .as_str()
            .unwrap_or_else(|| panic!("{branch}"));
        draws.push(draw(client, id));
        client.ask("context.delete", json!({"context": id}));
    }
    compare(By::Fork, &draws);

    client.ask("context.checkpoint", json!({"context": name}));
    let mut draws = vec![draw(client, name)];
    for _ in 0..2 {
        client.ask("context.rewind", json!({"context": name}));
        draws.push(draw(client, name));
    }
    compare(By::Rewind, &draws);

    client.ask("context.rewind", json!({"context": name}));
    client.ask("context.suspend", json!({"context": name}));
    compare(By::Resume, &[draws.swap_remove(0), draw(client, name)]);
}

fn repeats_nothing_on(rootfs: &str, modules: &str) {
    let found = cellblock().args(["rootfs", "show", rootfs]).output();
    if rootfs != "host" && !found.is_ok_and(|found| found.status.success()) {
        return skip(format_args!("the store has no {rootfs}"));
    }
    let options = ["--warm", "python:2", "--preload", modules];
    let server = Server::start_on(rootfs, &options);
    let mut client = server.connect();
    let ready = |client: &mut Client| client.status()["pools"][0]["ready"] == 2;
    until("two copies", || ready(&mut client));
    let copies = ["a", "b"].map(|name| {
        client.create(name);
        begin(&mut client, name, "forked");
        draw(&mut client, name)
    });
    compare(By::Copy, &copies);
    carry(&mut client, "a");

    let server = Server::start_on(rootfs, &options[..2]);
    let mut client = server.connect();
    until("two cells", || ready(&mut client));
    let waiting = ["a", "b"].map(|name| {
        client.create(name);
        begin(&mut client, name, "ready");
        draw(&mut client, name)
    });
    compare(By::Pool, &waiting);
    let request = json!({"language": "python"});
    let params = json!({"request": request, "context": "guest", "cell_of": "a"});
    client.ask("context.create", params);
    begin(&mut client, "guest", "shared");
    let draws = ["a", "guest"].map(|name| {
        client.run_in(name, BEGIN);
        draw(&mut client, name)
    });
    compare(By::Guest, &draws);

    let server = Server::start_on(rootfs, &[]);
    let mut client = server.connect();
    let params = json!({"request": request, "context": "c", "branches": true});
    client.ask("context.create", params);
    begin(&mut client, "c", "ready");
    carry(&mut client, "c");
}

#[test]
fn randomness_of_the_hosts_python() {
    repeats_nothing_on("host", MODULES);
}

#[test]
fn randomness_of_the_rootfs_python() {
    repeats_nothing_on("python", MODULES);
}

#[test]
fn randomness_of_the_rootfs_python_data() {
    repeats_nothing_on("python-data", &format!("{MODULES},numpy"));
}
