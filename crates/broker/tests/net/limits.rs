//! Limits, and peers that are slow, rude or many.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use broker::report::{Reason, Verdict};

use crate::Scenario;
use crate::carries::{REQUEST, everywhere};
use crate::internet::{echo, serve};
use crate::rig::{Rig, config, exchange, internet};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("limits/bytes", bytes),
    ("limits/connections", connections),
    ("limits/per-second", per_second),
    ("limits/queries", queries),
    ("limits/memory-for-connections", memory_for_connections),
    ("limits/slow-clients", slow_clients),
    ("limits/idle", idle),
    ("limits/resets", resets),
    ("limits/thousand", thousand),
    ("limits/peers-that-do-not-read", peers_that_do_not_read),
];

fn bytes() {
    let internet = internet();
    serve("93.184.216.34:7000", echo);
    let resolver = everywhere("93.184.216.34");
    let message = [1; 1000];
    for (sent, received, name) in [
        (Some(1500), None, "sent_bytes"),
        (None, Some(1500), "received_bytes"),
    ] {
        let mut config = config(&["example.com:7000"], &resolver);
        config.limits.sent_bytes = sent;
        config.limits.received_bytes = received;
        let rig = Rig::start(&internet, &config);
        assert_eq!(rig.exchange("example.com", 7000, &message), message);
        assert!(rig.exchange("example.com", 7000, &message).len() <= 500);
        rig.closed_because("example.com", Reason::ByteLimit);
        assert_eq!(rig.exchange("example.com", 7000, &message), b"");
        let totals = rig.end();
        assert!(totals.sent <= sent.unwrap_or(u64::MAX));
        assert!(totals.received <= received.unwrap_or(u64::MAX));
        assert_eq!(totals.limits_hit, [name]);
    }
}

fn connections() {
    let internet = internet();
    serve("93.184.216.34:7000", echo);
    let resolver = everywhere("93.184.216.34");
    let mut config = config(&["example.com:7000"], &resolver);
    config.limits.connections = 2;
    config.limits.connections_total = Some(4);
    let rig = Rig::start(&internet, &config);
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut stream = rig.connect("example.com", 7000);
        assert_eq!(exchange(&mut stream, b"\x01hello"), b"\x01hello");
        open.push(stream);
    }
    assert_eq!(rig.exchange("example.com", 7000, b"\x01hello"), b"");
    assert_eq!(rig.refused("example.com").reason, Reason::ConnectionLimit);
    drop(open);
    // The third and the fourth, once there is room, and none after them.
    let mut passed = 2;
    while passed < 4 {
        passed += usize::from(rig.exchange("example.com", 7000, b"\x01hello") == b"\x01hello");
    }
    for _ in 0..3 {
        assert_eq!(rig.exchange("example.com", 7000, b"\x01hello"), b"");
    }
    let totals = rig.end();
    assert_eq!((totals.allowed, totals.peak), (4, 2));
    assert_eq!(totals.limits_hit, ["connections", "connections_total"]);
}

fn per_second() {
    let internet = internet();
    let resolver = everywhere("93.184.216.34");
    let mut config = config(&["example.com:7000"], &resolver);
    config.limits.connections_per_second = Some(1);
    let rig = Rig::start(&internet, &config);
    let address = rig.address("example.com");
    // One may be reset before it is known to be connected.
    let connect = |_| rig.inside(|| TcpStream::connect((address, 7000))).ok();
    let streams: Vec<TcpStream> = (0..100).filter_map(connect).collect();
    drop(streams);
    assert_eq!(rig.refused("example.com").reason, Reason::ConnectionLimit);
    assert_eq!(rig.end().limits_hit, ["connections_per_second"]);
}

fn queries() {
    let internet = internet();
    let resolver = everywhere("93.184.216.34");
    let mut config = config(&["example.com"], &resolver);
    config.limits.queries = Some(10);
    let rig = Rig::start(&internet, &config);
    for number in 0..20 {
        assert_eq!(
            rig.lookup("example.com", 1).0,
            if number < 10 { 0 } else { 5 }
        );
    }
    let totals = rig.end();
    assert_eq!((totals.queries, totals.queries_refused), (20, 10));
    assert_eq!(totals.limits_hit, ["queries"]);
}

/// More connections may take more memory, as much as a peer can make each of them take.
fn memory_for_connections() {
    let internet = internet();
    let resolver = everywhere("93.184.216.34");
    let mut config = config(&["example.com"], &resolver);
    let [few, many] = [100, 1100].map(|connections| {
        config.limits.connections = connections;
        let ready = Rig::start(&internet, &config).ready();
        assert_eq!(ready.connections, connections);
        ready.memory_bytes.unwrap()
    });
    assert!(many - few >= 1000 * (96 << 10), "{few}, {many}");
}

/// Clients that begin and never finish cost no connection outside.
fn slow_clients() {
    let internet = internet();
    let served = serve("93.184.216.34:80", echo);
    let resolver = everywhere("93.184.216.34");
    let mut config = config(&["example.com"], &resolver);
    config.limits.first_bytes_ms = 300;
    let rig = Rig::start(&internet, &config);
    for (port, bytes) in [
        (80, &b"GET / HTTP/1.1\r\nX:"[..]),
        (443, b"\x16\x03\x01\x02"),
        (80, b""),
    ] {
        let is_answered = port == 80 && !bytes.is_empty();
        // On a busy host, the time may be over before anything is sent.
        let ended = (0..20).any(|_| {
            let mut stream = rig.connect("example.com", port);
            let sent = stream.write_all(bytes);
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            rig.closed_because("example.com", Reason::TooSlow);
            sent.is_ok() && (!is_answered || answer.starts_with(b"HTTP/1.1 408 "))
        });
        assert!(ended, "{port}: {bytes:?}");
    }
    for port in [hosts::synthetic::PROXY_PORT, hosts::synthetic::SOCKS_PORT] {
        let mut stream = rig.connect_to([127, 0, 0, 1].into(), port);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    assert_eq!(served.load(std::sync::atomic::Ordering::SeqCst), 0);
    assert_eq!(rig.end().limits_hit, ["first_bytes_ms"]);
}

fn idle() {
    let internet = internet();
    serve("93.184.216.34:7000", echo);
    let resolver = everywhere("93.184.216.34");
    let mut config = config(&["example.com:7000"], &resolver);
    config.limits.idle_ms = 300;
    let rig = Rig::start(&internet, &config);
    let mut stream = rig.connect("example.com", 7000);
    let _ = stream.read_to_end(&mut Vec::new());
    rig.closed_because("example.com", Reason::Idle);
}

/// A reset on one side is one on the other.
fn resets() {
    let internet = internet();
    serve("93.184.216.34:7000", |mut stream| {
        let mut byte = [0];
        let _ = stream.read(&mut byte);
        if byte == [b'r'] {
            return reset_at_once(stream);
        }
        // It may have one more byte before its own reset.
        while let Ok(1) = stream.read(&mut byte) {}
    });
    let resolver = everywhere("93.184.216.34");
    serve("93.184.216.34:7001", echo);
    let hosts = ["example.com:7000", "example.com:7001"];
    let rig = Rig::start(&internet, &config(&hosts, &resolver));
    let mut stream = rig.connect("example.com", 7000);
    stream.write_all(b"r").unwrap();
    let error = stream.read(&mut [0; 9]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    let closed = rig.closed("example.com");
    assert_eq!(
        (closed.verdict, closed.reason),
        (Verdict::Failed, Some(Reason::Reset))
    );
    // A client that has its answer may leave as it likes: nothing has failed.
    let mut stream = rig.connect("example.com", 7001);
    assert_eq!(exchange(&mut stream, b"\x01x"), b"\x01x");
    reset_at_once(stream);
    let closed = rig.closed_because("example.com", Reason::ClientReset);
    assert_eq!(
        (closed.verdict, closed.received),
        (Verdict::Allowed, 2),
        "{closed:?}"
    );
    // The cell's program ends in the midst of things, many times.
    for _ in 0..50 {
        let mut stream = rig.connect("example.com", 7000);
        stream.write_all(b"xx").unwrap();
        reset_at_once(stream);
    }
    assert_eq!(rig.end().connections, 52);
}

/// Closes `stream` by a reset.
fn reset_at_once(stream: TcpStream) {
    let at_once = nix::libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    nix::sys::socket::setsockopt(&stream, nix::sys::socket::sockopt::Linger, &at_once).unwrap();
}

fn memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        * 1024
}

/// Each open connection, of as many as `BROKER_CONNECTIONS` says, carries bytes while all
/// others are open.
fn thousand() {
    let wanted = std::env::var("BROKER_CONNECTIONS").map_or(1000, |text| text.parse().unwrap());
    // Two descriptors for each in this process, and seven in the broker.
    let (_, hard) =
        nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).unwrap();
    nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    let count = wanted.min(usize::try_from(hard.saturating_sub(500) / 8).unwrap());
    println!("{count} connections at once, by a limit of {hard} open files");
    let internet = internet();
    let (accepted, streams) = std::sync::mpsc::channel();
    let accepted = std::sync::Mutex::new(accepted);
    serve("93.184.216.34:7000", move |stream| {
        accepted.lock().unwrap().send(stream).unwrap()
    });
    let resolver = everywhere("93.184.216.34");
    let mut config = config(&["example.com:7000"], &resolver);
    config.limits.connections = u32::try_from(count).unwrap();
    config.limits.connections_per_second = None;
    let rig = Rig::start(&internet, &config);
    let before = memory(rig.pid());
    let address = rig.address("example.com");
    let mut clients: Vec<TcpStream> = rig.inside(|| {
        (0..count)
            .map(|_| TcpStream::connect((address, 7000)).unwrap())
            .collect()
    });
    for client in &mut clients {
        client.write_all(b"\x01x").unwrap();
    }
    let mut servers: Vec<TcpStream> = (0..count)
        .map(|_| streams.recv_timeout(crate::internet::PATIENCE).unwrap())
        .collect();
    for server in &mut servers {
        let mut bytes = [0; 2];
        server.read_exact(&mut bytes).unwrap();
        server.write_all(&bytes).unwrap();
    }
    for client in &mut clients {
        client.read_exact(&mut [0; 2]).unwrap();
    }
    let more = memory(rig.pid()) - before;
    println!("{count} connections: {} KiB more", more / 1024);
    assert!(more < 32 << 20, "{more}");
    drop((clients, servers));
    let totals = rig.end();
    assert_eq!(usize::try_from(totals.peak).unwrap(), count);
}

/// A peer that takes nothing for so long is taken to read nothing.
const STUCK: Duration = Duration::from_millis(200);

/// Floods in both directions of which nothing is read.
fn peers_that_do_not_read() {
    let internet = internet();
    serve("93.184.216.34:7000", |mut stream| {
        // It sends as much as there is room for, and reads nothing.
        stream.set_write_timeout(Some(STUCK)).unwrap();
        while stream.write_all(&[1; 65536]).is_ok() {}
        std::thread::sleep(Duration::from_secs(3600));
    });
    serve("93.184.216.34:80", echo);
    let resolver = everywhere("93.184.216.34");
    let rig = Rig::start(
        &internet,
        &config(&["example.com", "example.com:7000"], &resolver),
    );
    let before = memory(rig.pid());
    let mut open = Vec::new();
    for _ in 0..8 {
        let mut stream = rig.connect("example.com", 7000);
        stream.set_write_timeout(Some(STUCK)).unwrap();
        while stream.write_all(&[1; 65536]).is_ok() {}
        open.push(stream);
    }
    // Others go on.
    assert_eq!(rig.exchange("example.com", 80, REQUEST), REQUEST);
    assert!(memory(rig.pid()) - before < 8 << 20);
    drop(open);
    rig.end();
}
