//! Ends and excesses: of the broker, the supervisor and init, of floods and of peers.

use std::fs::{self, Permissions};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Child;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{Backlog, listen};
use nix::unistd::Pid;

use crate::Test;
use crate::cell::{Cell, Ended};
use crate::internet::{PATIENCE, listening, serve};
use crate::outside::Outside;

pub(crate) const TESTS: &[Test] = &[
    ("endings/broker-killed", broker_killed),
    ("endings/supervisor-killed", supervisor_killed),
    ("endings/init-killed", init_killed),
    ("endings/two-cells", two_cells),
    ("endings/flood-of-queries", flood_of_queries),
    ("endings/flood-of-connections", flood_of_connections),
    ("endings/rude-peers", rude_peers),
    ("endings/silent-host", silent_host),
];

/// Waits until `done`, or fails.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "{what} did not happen");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A field of a process's status; empty when it is gone.
pub(crate) fn status(pid: u32, field: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mut lines = status.lines();
    let value = lines.find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.unwrap_or_default().trim().to_owned()
}

fn children(pid: u32) -> Vec<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let pids = fs::read_to_string(path).unwrap_or_default();
    pids.split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

fn is_gone(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_none_or(|rest| {
        let rest = rest.trim_start();
        rest.is_empty() || rest.starts_with(['Z', 'X'])
    })
}

fn end(pid: u32) {
    let pid = i32::try_from(pid).expect("a pid");
    kill(Pid::from_raw(pid), Signal::SIGKILL).expect("end a process");
}

/// A program that is connected, and what it does when that ends.
const CONNECTED: &str = "import socket
s = socket.create_connection(('raw.example', 7000))
s.sendall(b'x')
assert s.recv(1) == b'x'
open('/signs/connected', 'w').close()
try:
    print('read', s.recv(1))
except OSError as error:
    print('read', type(error).__name__)
for host in 'raw.example', '198.18.1.0':
    try:
        s = socket.create_connection((host, 7000))
        s.sendall(b'x')
        # The kernel accepts connections until a killed broker's last socket is closed.
        print('reached' if s.recv(1) else 'refused', host)
    except OSError as error:
        print('refused', host, type(error).__name__)
print('over')
";

/// A cell with a connected program: cellblock, its broker and the cell's init.
fn connected(outside: &Outside) -> (Child, u32, u32) {
    let signs = outside.path().join("signs");
    fs::create_dir(&signs).expect("a directory");
    fs::set_permissions(&signs, Permissions::from_mode(0o777)).expect("its mode");
    let cell = Cell::python(CONNECTED)
        .allow(&["raw.example:7000"])
        .option(&["--rw", &format!("{}:/signs", signs.display())]);
    let child = cell.start();
    until("the connection", || signs.join("connected").exists());
    let found = children(child.id());
    let with = |field: &str, value: &dyn Fn(String) -> bool| {
        let found = found.iter().find(|pid| value(status(**pid, field)));
        *found.unwrap_or_else(|| panic!("{field} of no child is so"))
    };
    let broker = with("Seccomp", &|mode| mode == "2");
    let own = status(std::process::id(), "NSpid")
        .split_whitespace()
        .count();
    let init = with("NSpid", &|pids| pids.split_whitespace().count() == own + 1);
    (child, broker, init)
}

fn broker_killed() {
    let outside = Outside::new();
    let (child, broker, _) = connected(&outside);
    end(broker);
    let ended = Ended::of(child).ok();
    assert_eq!(ended.lines("refused").len(), 2, "{ended:?}");
    assert_eq!(ended.lines("over").len(), 1, "{ended:?}");
    assert_eq!(
        ended.0["network"]["broker_failure"], "it ended",
        "{ended:?}"
    );
}

fn supervisor_killed() {
    let outside = Outside::new();
    let (mut child, broker, init) = connected(&outside);
    child.kill().expect("end cellblock");
    child.wait().expect("wait for cellblock");
    until("the broker's end", || is_gone(broker));
    until("the cell's end", || is_gone(init));
}

fn init_killed() {
    let outside = Outside::new();
    let (child, broker, init) = connected(&outside);
    end(init);
    let ended = Ended::of(child);
    assert_ne!(ended.outcome(), "ok", "{ended:?}");
    assert!(is_gone(broker), "{ended:?}");
    assert_eq!(ended.connections().len(), 1, "{ended:?}");
}

/// The same address stands for another name in each.
fn two_cells() {
    let _outside = Outside::with_web();
    let cell = |own: &str, other: &str| {
        Cell::python(&format!(
            "import socket, urllib.request
print('address', socket.getaddrinfo('{own}', 80, socket.AF_INET)[0][4][0])
for _ in range(50):
    print(urllib.request.urlopen('http://{own}/').read().decode(), end='')
try:
    socket.getaddrinfo('{other}', 80)
    print('reached')
except OSError:
    print('refused')"
        ))
        .allow(&[own])
    };
    let cells = [
        ("web.example", "four.example"),
        ("four.example", "web.example"),
    ];
    let ended: Vec<Ended> = thread::scope(|scope| {
        let running = cells.map(|(own, other)| scope.spawn(move || cell(own, other).run()));
        running
            .map(|cell| cell.join().expect("a cell"))
            .into_iter()
            .collect()
    });
    for ((own, other), ended) in cells.iter().zip(&ended) {
        assert_eq!(ended.lines(&format!("hello {own} ")).len(), 50, "{ended:?}");
        assert_eq!(ended.lines("address"), ["address 198.18.1.0"], "{ended:?}");
        assert_eq!(ended.lines("refused").len(), 1, "{ended:?}");
        assert_eq!(ended.connections().len(), 50, "{ended:?}");
        assert!(
            ended.connections().iter().all(|it| it["host"] == *own),
            "{ended:?}"
        );
        ended.has_refused(&format!("{other} no rule"));
    }
}

fn flood_of_queries() {
    let _outside = Outside::new();
    let cell = Cell::python(
        "import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(('198.18.0.1', 53))
s.settimeout(100)
for number in range(5000):
    label = b'n%d' % number
    s.send(b'\\0\\1\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0' + bytes([len(label)]) + label + b'\\7example\\0\\0\\1\\0\\1')
    s.recv(512)
print('over')",
    );
    let cell = cell.allow(&["web.example"]);
    let ended = cell.clone().run().ok();
    let refused = ended.refused().len();
    assert!((512..=1000).contains(&refused), "{refused}");
    assert_eq!(
        ended.0["network"]["totals"]["dns_queries"], 5000,
        "{ended:?}"
    );
    let hidden = ended.0["network"]["totals"]["refused_not_listed"].as_u64();
    assert_eq!(hidden, Some(5000 - refused as u64));
    assert_eq!(ended.0["limits"]["dns_queries"]["hit"], false);
    let ended = cell.option(&["--dns-queries", "100"]).run().ok();
    assert_eq!(ended.0["limits"]["dns_queries"]["hit"], true);
    let judged = ended.refused();
    let judged = judged
        .iter()
        .filter(|refused| refused.ends_with("no rule allows this host"));
    assert_eq!(judged.count(), 100, "{ended:?}");
}

fn flood_of_connections() {
    let outside = Outside::new();
    let cell = Cell::python(
        "import socket
address = socket.getaddrinfo('raw.example', 7000, socket.AF_INET)[0][4]
kept = []
for _ in range(1500):
    try:
        # One that is refused may be reset before this call has returned.
        s = socket.create_connection(address)
        s.sendall(b'x')
        if s.recv(1):
            kept.append(s)
    except OSError:
        pass
    if len(kept) == 20:
        del kept[0]
print('over')",
    );
    let cell = cell
        .allow(&["raw.example:7000"])
        .option(&["--connection-rate", "100000"]);
    let ended = cell.clone().option(&["--connections", "4"]).run().ok();
    assert_eq!(
        ended.0["limits"]["connections"]["hit"], true,
        "{:#}",
        ended.0["limits"]
    );
    assert_eq!(outside.raw[0].load(Ordering::SeqCst), 4);
    ended.has_refused("raw.example:7000 a limit of connections was reached");
    let ended = cell.option(&["--connections-total", "1200"]).run().ok();
    assert_eq!(ended.connections().len(), 1000);
    assert_eq!(ended.0["network"]["totals"]["connections_not_listed"], 200);
    assert_eq!(outside.raw[0].load(Ordering::SeqCst), 4 + 1200);
}

/// Peers that end their half, that reset, and that answer slowly.
fn rude_peers() {
    let _outside = Outside::new();
    // Says its words only after the end of the other half.
    serve("93.184.0.50:7001", |mut stream: TcpStream| {
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all);
        let _ = stream.write_all(format!("got {}\n", all.len()).as_bytes());
    });
    serve("93.184.0.50:7002", |mut stream: TcpStream| {
        let _ = stream.read(&mut [0]);
        // Unread bytes make the kernel reset it.
    });
    serve("93.184.0.50:7003", |mut stream: TcpStream| {
        for byte in b"slow\n" {
            thread::sleep(Duration::from_millis(50));
            let _ = stream.write_all(&[*byte]);
        }
    });
    let cell = Cell::python(
        "import socket, struct
def connect(port):
    return socket.create_connection(('mute.example', port))
s = connect(7001)
s.sendall(b'x' * 300000)
s.shutdown(socket.SHUT_WR)
print(s.makefile().read(), end='')
s = connect(7002)
try:
    s.sendall(b'x' * 300000)
    print('end', s.recv(1))
except OSError as error:
    print('end', type(error).__name__)
print(connect(7003).makefile().read(), end='')
for _ in range(20):
    s = connect(7001)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    s.sendall(b'x')
    s.close()
print('over')",
    );
    let ended = cell.allow(&[
        "mute.example:7001",
        "mute.example:7002",
        "mute.example:7003",
    ]);
    let ended = ended.run().ok();
    assert_eq!(ended.lines("got 300000").len(), 1, "{ended:?}");
    assert_eq!(ended.lines("end ").len(), 1, "{ended:?}");
    assert_eq!(ended.lines("slow").len(), 1, "{ended:?}");
    assert_eq!(ended.connections().len(), 23, "{ended:?}");
    assert!(ended.0["network"]["broker_failure"].is_null(), "{ended:?}");
}

/// A host that drops what would begin a connection, since its queue is full.
fn silent_host() {
    let _outside = Outside::new();
    let full = listening("93.184.0.40:7000".parse().expect("an address"));
    listen(&full, Backlog::new(0).expect("a length")).expect("listen");
    let full = TcpListener::from(full);
    let address = full.local_addr().expect("its address");
    let _first =
        TcpStream::connect_timeout(&address, Duration::from_secs(5)).expect("room for one");
    let silent = TcpStream::connect_timeout(&address, Duration::from_millis(500));
    silent.expect_err("no room for another");
    let cell = Cell::python(
        "import socket
s = socket.create_connection(('hole.example', 7000))
try:
    print('read', s.recv(1))
except OSError as error:
    print('read', type(error).__name__)",
    );
    let ended = cell.allow(&["hole.example:7000"]).run().ok();
    assert_eq!(ended.lines("read").len(), 1, "{ended:?}");
    let connection = &ended.connections()[0];
    assert_eq!(connection["verdict"], "failed", "{ended:?}");
    assert_eq!(
        connection["reason"], "the host did not answer in time",
        "{ended:?}"
    );
}
