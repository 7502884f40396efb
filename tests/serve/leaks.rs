//! What one cell of a server has does not reach another: contexts and runs, started in
//! each way there is.
//!
//! Each channel is first shown to lead from a context to itself, or nothing would be
//! proved by its not leading to another. What the system call policy refuses altogether is
//! shown to be live in a server without that layer.

use serde_json::{Value, json};

use crate::harness::{Client, Server, until};
use crate::skip::skip;

/// One way for something to get from one cell to another.
struct Channel {
    name: &'static str,
    /// Puts it there.
    plant: &'static str,
    /// Evaluates to whether it is there.
    look: &'static str,
    closed_by: Closed,
}

/// What keeps the channel from leading to another cell.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Closed {
    /// A cell's own namespaces, tmpfs or memory: it leads to the same context.
    Cell,
    /// The same; and the system call policy refuses it even to one context.
    Both,
    /// The system call policy alone. Without it, what the processes of a session share
    /// leads to another cell.
    Policy,
}
use Closed::{Both, Cell, Policy};

/// What the channels use.
const PRELUDE: &str = r#"
import ctypes, fcntl, os, re, signal, socket, subprocess, sys, time
libc = ctypes.CDLL(None, use_errno=True)
kept = []
add_key, keyctl = (248, 250) if os.uname().machine == 'x86_64' else (217, 219)
def call(name, *args):
    result = getattr(libc, name)(*args)
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result
def works(function, *args):
    try:
        function(*args)
    except OSError:
        return False
    return True
def locked(path):
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        return not works(fcntl.flock, file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(file)
def lock(path):
    kept.append(open(path, 'w'))
    fcntl.flock(kept[-1], fcntl.LOCK_EX)
def pids():
    return [int(name) for name in os.listdir('/proc') if name.isdigit()]
def memory_of(pid):
    for line in open(f'/proc/{pid}/maps'):
        first, last, mode = re.match('([0-9a-f]+)-([0-9a-f]+) (....)', line).groups()
        if mode[0] == 'r' and not line.rstrip().endswith(('[vvar]', '[vsyscall]', '[vvar_vclock]')):
            yield int(first, 16), int(last, 16)
def read_file(pid, first, last):
    with open(f'/proc/{pid}/mem', 'rb', 0) as file:
        file.seek(first)
        return file.read(last - first)
class Part(ctypes.Structure):
    _fields_ = [('base', ctypes.c_void_p), ('size', ctypes.c_size_t)]
def read_call(pid, first, last):
    room = ctypes.create_string_buffer(last - first)
    into, of = Part(ctypes.addressof(room), last - first), Part(first, last - first)
    size = call('process_vm_readv', pid, ctypes.byref(into), 1, ctypes.byref(of), 1, 0)
    return room.raw[:size]
def in_memory(read, pids):
    for pid in pids:
        try:
            for first, last in memory_of(pid):
                try:
                    if re.search(rb'[l]eaked-in-memory', read(pid, first, last)):
                        return True
                except OSError:
                    pass
        except OSError:
            pass
    return False
secret = bytes(byte ^ 32 for byte in b'LEAKED\x0dIN\x0dMEMORY')
del secret
None
"#;

/// In memory, the secret exists only where it was planted: nothing else spells it out.
const CHANNELS: &[Channel] = &[
    Channel {
        name: "memory by /proc/PID/mem",
        plant: "kept.append(bytes(byte ^ 32 for byte in b'LEAKED\\x0dIN\\x0dMEMORY') * 100)",
        look: "in_memory(read_file, pids())",
        closed_by: Cell,
    },
    Channel {
        name: "memory by process_vm_readv",
        plant: "kept.append(bytes(byte ^ 32 for byte in b'LEAKED\\x0dIN\\x0dMEMORY') * 100)",
        look: "in_memory(read_call, range(1, 40))",
        closed_by: Both,
    },
    Channel {
        name: "variables and modules",
        plant: "planted = 1; sys.modules['planted'] = sys",
        look: "'planted' in globals() or 'planted' in sys.modules",
        closed_by: Cell,
    },
    Channel {
        name: "environment",
        plant: "os.environ['PLANTED'] = '1'",
        look: "'PLANTED' in os.environ",
        closed_by: Cell,
    },
    Channel {
        name: "working directory",
        plant: "os.makedirs('/tmp/elsewhere'); os.chdir('/tmp/elsewhere')",
        look: "'elsewhere' in os.getcwd()",
        closed_by: Cell,
    },
    Channel {
        name: "workspace",
        plant: "open('/workspace/planted', 'w').close()",
        look: "os.path.exists('/workspace/planted')",
        closed_by: Cell,
    },
    Channel {
        name: "files in /tmp",
        plant: "open('/tmp/planted', 'w').close()",
        look: "os.path.exists('/tmp/planted')",
        closed_by: Cell,
    },
    Channel {
        name: "POSIX shared memory",
        plant: "open('/dev/shm/planted', 'w').close()",
        look: "os.path.exists('/dev/shm/planted')",
        closed_by: Cell,
    },
    Channel {
        name: "POSIX message queue",
        plant: "call('mq_open', b'/planted', os.O_RDWR | os.O_CREAT, 0o666, None)",
        look: "works(call, 'mq_open', b'/planted', os.O_RDWR)",
        closed_by: Both,
    },
    Channel {
        name: "System V shared memory",
        plant: "call('shmget', 0xce11, 4096, 0o1666)",
        look: "works(call, 'shmget', 0xce11, 0, 0)",
        closed_by: Cell,
    },
    Channel {
        name: "System V message queue",
        plant: "call('msgget', 0xce11, 0o1666)",
        look: "works(call, 'msgget', 0xce11, 0)",
        closed_by: Cell,
    },
    Channel {
        name: "System V semaphore",
        plant: "call('semget', 0xce11, 1, 0o1666)",
        look: "works(call, 'semget', 0xce11, 0, 0)",
        closed_by: Cell,
    },
    Channel {
        name: "abstract Unix socket",
        plant: "kept.append(socket.socket(socket.AF_UNIX)); kept[-1].bind('\\0planted'); kept[-1].listen()",
        look: "works(socket.socket(socket.AF_UNIX).connect, '\\0planted')",
        closed_by: Cell,
    },
    Channel {
        name: "port on the loopback",
        plant: "kept.append(socket.create_server(('127.0.0.1', 4711)))",
        look: "works(socket.create_connection, ('127.0.0.1', 4711))",
        closed_by: Cell,
    },
    Channel {
        name: "flock in /workspace",
        plant: "lock('/workspace/lock')",
        look: "locked('/workspace/lock')",
        closed_by: Cell,
    },
    Channel {
        name: "flock in /tmp",
        plant: "lock('/tmp/lock')",
        look: "locked('/tmp/lock')",
        closed_by: Cell,
    },
    Channel {
        name: "flock in /dev/shm",
        plant: "lock('/dev/shm/lock')",
        look: "locked('/dev/shm/lock')",
        closed_by: Cell,
    },
    Channel {
        name: "descriptors",
        plant: "os.dup2(os.open('/dev/null', os.O_RDONLY), 77)",
        look: "works(os.fstat, 77)",
        closed_by: Cell,
    },
    Channel {
        name: "list of processes",
        plant: "kept.append(subprocess.Popen(['sleep', '1234567']))",
        look: "any(b'1234567' in open(f'/proc/{pid}/cmdline', 'rb').read() for pid in pids())",
        closed_by: Cell,
    },
    Channel {
        name: "session keyring",
        plant: "call('syscall', add_key, b'user', b'planted', b'x', 1, -3)",
        look: "works(call, 'syscall', keyctl, 10, -3, b'user', b'planted', 0)",
        closed_by: Policy,
    },
    Channel {
        name: "user's keyring",
        plant: "call('syscall', add_key, b'user', b'planted-too', b'x', 1, -4)",
        look: "works(call, 'syscall', keyctl, 10, -4, b'user', b'planted-too', 0)",
        closed_by: Both,
    },
];

/// The ways in which a server starts a context, and the options that lead to them.
const STARTS: &[(&str, &[&str])] = &[
    ("cold", &[]),
    ("ready", &["--warm", "python:1"]),
    ("forked", &["--warm", "python:1", "--preload", "decimal"]),
];

fn has_everything() -> bool {
    let needs = ["-c", "import ctypes, fcntl, socket, subprocess"];
    let found = std::process::Command::new("/usr/bin/python3")
        .args(needs)
        .output();
    let is_there = found.is_ok_and(|output| output.status.success());
    if !is_there {
        skip("/usr/bin/python3 with ctypes is not there");
    }
    is_there
}

/// Waits until what the server keeps is complete.
fn full(client: &mut Client) {
    until("waiting cells", || {
        let pools = client.status()["pools"].clone();
        pools
            .as_array()
            .is_none_or(|pools| pools.iter().all(|pool| pool["ready"] == pool["wanted"]))
    });
}

fn context(client: &mut Client, name: &str, start: &str) {
    full(client);
    assert_eq!(client.create(name)["start"], start);
    evaluated(client, name, PRELUDE);
}

/// What code evaluates to, or the name of its exception.
fn evaluated(client: &mut Client, context: &str, code: &str) -> String {
    let run = client.run_in(context, code);
    assert_eq!(run["state"], "kept", "{code}: {run}");
    of_record(&run["record"])
}

fn of_record(record: &Value) -> String {
    let found = record["error"]["name"].as_str();
    let found = found.or_else(|| record["results"][0]["text"].as_str());
    found.unwrap_or("None").to_owned()
}

/// What a run finds of a channel.
fn found_by_run(client: &mut Client, start: &str, look: &str) -> String {
    full(client);
    let request = json!({"language": "python", "code": format!("{PRELUDE}\n{look}")});
    let run = client.ask("run", json!({"request": request}));
    assert_eq!(run["start"], start);
    of_record(&run["record"])
}

/// Gives this thread, and so the server that it starts, a session keyring as a login does:
/// without one, the kernel makes one for each process that uses it.
fn join_session_keyring() -> bool {
    const JOIN: libc::c_long = 1; // KEYCTL_JOIN_SESSION_KEYRING
    // SAFETY: no memory is passed; the null is that of a keyring without a name.
    let joined = unsafe { libc::syscall(libc::SYS_keyctl, JOIN, 0_usize) };
    if joined == -1 {
        let error = std::io::Error::last_os_error();
        skip(format_args!("no session keyring can be made here: {error}"));
    }
    joined != -1
}

fn check(start: &str, options: &[&str], has_policy: bool) {
    if !has_everything() || !join_session_keyring() {
        return;
    }
    let mut options = [options, &["--wall", "1h"]].concat();
    if !has_policy {
        options.extend(["--without", "seccomp", "--without", "landlock"]);
        // A cell's share of the bytes of message queues is enough for one.
        options.extend(["--max-cells", "4"]);
    }
    let server = Server::start(&options);
    let mut client = server.connect();
    let client = &mut client;
    context(client, "a", start);
    context(client, "b", start);
    let mut open = Vec::new();
    for channel in CHANNELS {
        let may_be_refused = has_policy && channel.closed_by != Cell;
        let planted = evaluated(client, "a", channel.plant);
        let looked = evaluated(client, "a", channel.look);
        assert!(
            looked == "True" || (looked == "False" && may_be_refused),
            "{}, in one context: {planted}, {looked}",
            channel.name
        );
        let elsewhere = evaluated(client, "b", channel.look);
        if elsewhere == "False" {
            continue;
        }
        assert_eq!(elsewhere, "True", "{}", channel.name);
        open.push(channel.name);
    }
    // Without the policy, only the leaks that it alone closes are open.
    let of_policy = CHANNELS.iter().filter(|each| each.closed_by == Policy);
    let expected = of_policy.filter(|_| !has_policy).map(|each| each.name);
    assert_eq!(open, expected.collect::<Vec<_>>(), "{start}");
    if !has_policy {
        return;
    }
    // A run, too, finds nothing of a context, and what begins after its end does not either.
    let all = CHANNELS
        .iter()
        .map(|channel| format!("({:?}, {})", channel.name, channel.look));
    let all = format!(
        "[name for name, found in [{}] if found]",
        all.collect::<Vec<_>>().join(", ")
    );
    assert_eq!(found_by_run(client, start, &all), "[]");
    client.ask("context.delete", json!({"context": "a"}));
    context(client, "c", start);
    assert_eq!(evaluated(client, "c", &all), "[]");
}

/// What a run has does not reach a context meanwhile.
fn check_from_run(start: &str, options: &[&str]) {
    if !has_everything() {
        return;
    }
    // A cell from a pool serves no call that asks for more time than the server's.
    let options = [options, &["--wall", "1h"]].concat();
    let server = Server::start(&options);
    let mut client = server.connect();
    context(&mut client, "b", start);
    let plants = CHANNELS.iter().filter(|channel| channel.closed_by == Cell);
    let plants: Vec<&str> = plants.clone().map(|channel| channel.plant).collect();
    full(&mut client);
    let mut other = server.connect();
    let code = format!(
        "{PRELUDE}\n{}\nprint('planted', flush=True); time.sleep(1000)",
        plants.join("\n")
    );
    let request = json!({"language": "python", "code": code});
    other.send(1, "run", json!({"request": request, "events": true}));
    loop {
        let line = other.line();
        assert!(line.get("event").is_some(), "{line}");
        if line["event"]["event"] == "stdout" {
            break;
        }
    }
    for channel in CHANNELS {
        let found = evaluated(&mut client, "b", channel.look);
        assert_eq!(found, "False", "{}", channel.name);
    }
}

#[test]
fn nothing_gets_from_one_cell_to_another() {
    for (start, options) in STARTS {
        check(start, options, true);
    }
}

#[test]
fn without_the_policy_only_keyrings_would_connect_cells() {
    for (start, options) in STARTS {
        check(start, options, false);
    }
}

#[test]
fn nothing_gets_from_a_run_to_a_context() {
    for (start, options) in STARTS {
        check_from_run(start, options);
    }
}

/// A signal to everything that a context can see reaches its own processes only.
#[test]
fn signals_stay_in_their_cell() {
    const PLANT: &str = r"
import os, signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, '-c', '''
import signal, time
signal.signal(signal.SIGUSR1, lambda *_: open('/workspace/signalled', 'w').close())
open('/workspace/ready', 'w').close()
while True: time.sleep(1000)
'''])
while not os.path.exists('/workspace/ready'): time.sleep(0.01)
";
    const SEND: &str = r"
import os, signal
sent = 0
for pid in {-1, *range(2, 200)} - {os.getpid()}:
    try: os.kill(pid, signal.SIGUSR1); sent += 1
    except OSError: pass
sent
";
    const LOOK: &str = "import time; time.sleep(0.2); os.path.exists('/workspace/signalled')";
    for (start, options) in STARTS {
        let server = Server::start(options);
        let mut client = server.connect();
        for name in ["a", "b"] {
            full(&mut client);
            assert_eq!(client.create(name)["start"], *start);
        }
        evaluated(&mut client, "a", PLANT);
        evaluated(&mut client, "b", SEND);
        assert_eq!(evaluated(&mut client, "a", LOOK), "False", "{start}");
        evaluated(&mut client, "a", SEND);
        until("the signal in the same context", || {
            evaluated(&mut client, "a", LOOK) == "True"
        });
    }
}

/// What differs in each cell, by chance or by design.
#[test]
fn seeds_are_new_in_each_cell() {
    const DRAWN: &[(&str, &str)] = &[
        ("random", "import random; random.getrandbits(64)"),
        ("os.urandom", "import os; os.urandom(8).hex()"),
        ("uuid", "import uuid; uuid.uuid4().hex"),
        (
            "tempfile",
            "import tempfile; next(tempfile._get_candidate_names())",
        ),
        (
            "AT_RANDOM",
            "import os, struct; a = open('/proc/self/auxv', 'rb').read(); p = dict(struct.iter_unpack('QQ', a))[25]; f = open('/proc/self/mem', 'rb', 0); f.seek(p); f.read(16).hex()",
        ),
        ("hash", "hash('text')"),
        ("layout", "id([])"),
    ];
    for (start, options) in STARTS {
        let server = Server::start(options);
        let mut client = server.connect();
        let mut cells = Vec::new();
        for name in ["a", "b"] {
            full(&mut client);
            assert_eq!(client.create(name)["start"], *start);
            let drawn = DRAWN
                .iter()
                .map(|(_, code)| evaluated(&mut client, name, code));
            cells.push(drawn.collect::<Vec<String>>());
        }
        for (index, (name, _)) in DRAWN.iter().enumerate() {
            let is_same = cells[0][index] == cells[1][index];
            // docs/PROTOCOL.md states this of copies, with what it means.
            let is_shared = *start == "forked" && ["hash", "AT_RANDOM", "layout"].contains(name);
            assert!(
                !is_same || is_shared,
                "{start}: {name}: {}",
                cells[0][index]
            );
        }
    }
}

/// Ids and names are those of every cell, and cannot be changed.
#[test]
fn names_and_ids_tell_nothing() {
    const LOOK: &str = "import os, socket; (socket.gethostname(), os.getuid(), os.getgid())";
    const RENAME: &str = "import socket; socket.sethostname('planted')";
    for (start, options) in STARTS {
        let server = Server::start(options);
        let mut client = server.connect();
        let mut found = Vec::new();
        for name in ["a", "b"] {
            full(&mut client);
            assert_eq!(client.create(name)["start"], *start);
            assert_eq!(evaluated(&mut client, name, RENAME), "PermissionError");
            found.push(evaluated(&mut client, name, LOOK));
        }
        assert_eq!(found[0], "('cell', 1000, 1000)", "{start}");
        assert_eq!(found[0], found[1], "{start}");
    }
}
