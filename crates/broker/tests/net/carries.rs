//! What is allowed is carried, and reported.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::os::fd::AsRawFd as _;
use std::thread;

use broker::report::{Reason, Report, Verdict, Via};
use hosts::synthetic;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{MsgFlags, send};
use nix::unistd::Pid;

use crate::Scenario;
use crate::internet::{Record, Resolver, echo, query, serve};
use crate::rig::{Rig, config, exchange, internet, read_reply};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("carries/requests", requests),
    ("carries/both-families", both_families),
    ("carries/half-closed", half_closed),
    ("carries/urgent", urgent),
    ("carries/other-protocols", other_protocols),
    ("carries/much", much),
    ("carries/uploads", uploads),
    ("carries/upgrades", upgrades),
    ("carries/dns-by-tcp", dns_by_tcp),
    ("carries/proxies", proxies),
    ("carries/written-out", written_out),
    ("carries/the-next-address", the_next_address),
    ("carries/aliases-and-tcp", aliases_and_tcp),
    ("carries/failures", failures),
    ("carries/marks", marks),
    ("carries/secrets", secrets),
];

pub(crate) const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n";

/// Every name has this address.
pub(crate) fn everywhere(address: &'static str) -> Resolver {
    let address = address.parse().unwrap();
    Resolver::start(false, move |_, _| Some(vec![Record::Address(address)]))
}

fn requests() {
    let internet = internet();
    let served = serve("93.184.216.34:80", echo);
    let resolver = everywhere("93.184.216.34");
    let rig = Rig::start(
        &internet,
        &config(&["example.com", "*.example.org"], &resolver),
    );
    assert_eq!(rig.exchange("EXAMPLE.com.", 80, REQUEST), REQUEST);
    let closed = rig.closed("example.com");
    assert_eq!(
        (closed.port, closed.via, closed.verdict, closed.reason),
        (80, Via::Direct, Verdict::Allowed, None)
    );
    assert_eq!(closed.dialled, Some("93.184.216.34".parse().unwrap()));
    let length = REQUEST.len() as u64;
    assert_eq!((closed.sent, closed.received), (length, length));
    rig.wait("opening", |report| match report {
        Report::Opened(opened) if opened.host == "example.com" && opened.id == closed.id => {
            Some(())
        }
        _ => None,
    });
    let request = b"GET / HTTP/1.1\r\nHost: a.example.org\r\n\r\n";
    assert_eq!(rig.exchange("a.example.org", 80, request), request);
    assert_eq!(
        *resolver.asked.lock().unwrap(),
        ["example.com", "a.example.org"]
    );
    assert_eq!(served.load(std::sync::atomic::Ordering::SeqCst), 2);
    let totals = rig.end();
    assert_eq!(
        (
            totals.connections,
            totals.allowed,
            totals.refused,
            totals.failed
        ),
        (2, 2, 0, 0)
    );
    assert_eq!(totals.limits_hit, [""; 0]);
}

/// All that happened before a mark was asked for is reported before it, also where the broker
/// finds the question and a connection at once.
fn marks() {
    let internet = internet();
    serve("93.184.216.34:80", echo);
    let resolver = everywhere("93.184.216.34");
    let rig = Rig::start(&internet, &config(&["example.com"], &resolver));
    let pid = Pid::from_raw(rig.pid().cast_signed());
    let address = rig.address("example.com");
    for number in 1..=50 {
        kill(pid, Signal::SIGSTOP).unwrap();
        let mut stream = rig.connect_to(address, 80);
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: other.example\r\n\r\n")
            .unwrap();
        rig.ask_mark();
        kill(pid, Signal::SIGCONT).unwrap();
        let closed = |report: &&Report| matches!(report, Report::Closed(_));
        let before = rig.before_mark(number);
        assert_eq!(before.iter().filter(closed).count() as u64, number);
    }
    // Several questions at once get one answer.
    kill(pid, Signal::SIGSTOP).unwrap();
    rig.ask_mark();
    rig.ask_mark();
    kill(pid, Signal::SIGCONT).unwrap();
    rig.before_mark(52);
    assert_eq!(rig.end().refused, 50);
}

fn both_families() {
    let internet = internet();
    serve("[2600:1234::1]:80", echo);
    let resolver = everywhere("2600:1234::1");
    let rig = Rig::start(&internet, &config(&["example.com"], &resolver));
    let (code, addresses) = rig.lookup("example.com", 28);
    assert_eq!((code, addresses[0].is_ipv6()), (0, true));
    let mut stream = rig.connect_to(addresses[0], 80);
    assert_eq!(exchange(&mut stream, REQUEST), REQUEST);
    drop(stream);
    let closed = rig.closed("example.com");
    assert_eq!(closed.dialled, Some("2600:1234::1".parse().unwrap()));
}

fn half_closed() {
    let internet = internet();
    serve("93.184.216.34:7000", |mut stream| {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        all.reverse();
        stream.write_all(&all).unwrap();
    });
    let resolver = everywhere("93.184.216.34");
    let rig = Rig::start(&internet, &config(&["example.com:7000"], &resolver));
    let mut stream = rig.connect("example.com", 7000);
    stream.write_all(b"\x01abc").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut back = Vec::new();
    stream.read_to_end(&mut back).unwrap();
    assert_eq!(back, b"cba\x01");
    assert_eq!(rig.closed("example.com").verdict, Verdict::Allowed);
}

/// Urgent bytes are not passed on; all others are.
fn urgent() {
    let internet = internet();
    serve("93.184.216.34:7000", echo);
    let resolver = everywhere("93.184.216.34");
    let rig = Rig::start(&internet, &config(&["example.com:7000"], &resolver));
    let mut stream = rig.connect("example.com", 7000);
    assert_eq!(exchange(&mut stream, b"\x01open"), b"\x01open");
    let urgent = |stream: &TcpStream| {
        let sent = send(stream.as_raw_fd(), b"!", MsgFlags::MSG_OOB);
        assert_eq!(sent, Ok(1));
    };
    for _ in 0..3 {
        stream.write_all(b"abc").unwrap();
        urgent(&stream);
        stream.write_all(b"def").unwrap();
        let mut back = [0; 6];
        stream.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"abcdef");
    }
    stream.write_all(b"abc").unwrap();
    urgent(&stream);
    stream.write_all(b"def").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut back = Vec::new();
    stream.read_to_end(&mut back).unwrap();
    assert_eq!(back, b"abcdef");
    let closed = rig.closed("example.com");
    assert_eq!((closed.sent, closed.received), (29, 29));
}

/// A server that speaks first, as that of SSH does, and HTTP/2 without TLS, as gRPC has it,
/// on ports that are named for them.
fn other_protocols() {
    const BANNER: &[u8] = b"SSH-2.0-fake\r\n";
    let internet = internet();
    serve("93.184.216.34:22", |mut stream| {
        stream.write_all(BANNER).unwrap();
        echo(stream);
    });
    serve("93.184.216.34:50051", echo);
    let resolver = everywhere("93.184.216.34");
    let hosts = ["example.com:22", "example.com:50051"];
    let rig = Rig::start(&internet, &config(&hosts, &resolver));
    let mut stream = rig.connect("example.com", 22);
    let mut banner = [0; BANNER.len()];
    stream.read_exact(&mut banner).unwrap();
    assert_eq!(banner, BANNER);
    assert_eq!(
        exchange(&mut stream, b"SSH-2.0-git\r\n"),
        b"SSH-2.0-git\r\n"
    );
    // The preface, and an empty frame of settings.
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    assert_eq!(rig.exchange("example.com", 50051, preface), preface);
}

/// More than fits anywhere on the way, in both directions at once.
fn much() {
    const BYTES: usize = 64 << 20;
    let internet = internet();
    serve("93.184.216.34:7000", echo);
    let resolver = everywhere("93.184.216.34");
    let rig = Rig::start(&internet, &config(&["example.com:7000"], &resolver));
    let mut stream = rig.connect("example.com", 7000);
    let pattern: Vec<u8> = (0..1 << 20_u32).map(|at| (at % 251) as u8).collect();
    let mut writer = stream.try_clone().unwrap();
    let sent = pattern.clone();
    let sender = thread::spawn(move || {
        for _ in 0..BYTES / sent.len() {
            writer.write_all(&sent).unwrap();
        }
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut chunk = vec![0; pattern.len()];
    for _ in 0..BYTES / pattern.len() {
        stream.read_exact(&mut chunk).unwrap();
        assert!(chunk == pattern);
    }
    assert_eq!(stream.read(&mut chunk).unwrap(), 0);
    sender.join().unwrap();
    let closed = rig.closed("example.com");
    assert_eq!((closed.sent, closed.received), (BYTES as u64, BYTES as u64));
}

/// Bodies that are longer than what a server takes at once; the framing is still followed.
fn uploads() {
    const BYTES: usize = 32 << 20;
    let internet = internet();
    serve("93.184.216.34:80", echo);
    let resolver = everywhere("93.184.216.34");
    let rig = Rig::start(&internet, &config(&["example.com"], &resolver));
    let mut stream = rig.connect("example.com", 80);
    let head = format!("POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: {BYTES}\r\n\r\n");
    let body = vec![b'x'; BYTES];
    let sent = [head.as_bytes(), &body, REQUEST].concat();
    let mut writer = stream.try_clone().unwrap();
    let all = sent.clone();
    let sender = thread::spawn(move || writer.write_all(&all));
    let mut back = vec![0; sent.len()];
    stream.read_exact(&mut back).unwrap();
    assert!(back == sent);
    sender.join().unwrap().unwrap();
    // What follows is a request, and is judged as one.
    let evil = b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    assert_eq!(exchange(&mut stream, evil), b"");
    rig.closed_because("example.com", Reason::OtherHttpHost);
}

/// The answer to an upgrade is understood however it is cut.
fn upgrades() {
    const ANSWER: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n";
    let internet = internet();
    serve("93.184.216.34:80", |mut stream| {
        let mut head = [0; 512];
        let _ = stream.read(&mut head).unwrap();
        for part in [&ANSWER[..3], &ANSWER[3..7], &ANSWER[7..]] {
            stream.write_all(part).unwrap();
            thread::sleep(std::time::Duration::from_millis(100));
        }
        echo(stream);
    });
    let resolver = everywhere("93.184.216.34");
    let rig = Rig::start(&internet, &config(&["example.com"], &resolver));
    let mut stream = rig.connect("example.com", 80);
    let head = "GET / HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade\r\n\
                Upgrade: websocket\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = vec![0; ANSWER.len()];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, ANSWER);
    assert_eq!(exchange(&mut stream, b"\x81\x05hello"), b"\x81\x05hello");
}

fn dns_by_tcp() {
    let internet = internet();
    let resolver = everywhere("93.184.216.34");
    let rig = Rig::start(&internet, &config(&["example.com"], &resolver));
    let mut stream = rig.connect_to(synthetic::DNS_IPV4.into(), 53);
    for (name, code) in [("example.com", 0), ("evil.example", 3)] {
        let query = query(name, 1);
        stream
            .write_all(&[&[0, query.len() as u8][..], &query].concat())
            .unwrap();
        let mut length = [0; 2];
        stream.read_exact(&mut length).unwrap();
        let mut reply = vec![0; u16::from_be_bytes(length).into()];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(read_reply(&reply).0, code);
    }
    assert_eq!(resolver.asked.lock().unwrap().len(), 0);
}

fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

fn proxies() {
    let internet = internet();
    serve("93.184.216.34:80", echo);
    serve("93.184.216.34:7000", echo);
    let resolver = everywhere("93.184.216.34");
    let rig = Rig::start(
        &internet,
        &config(&["example.com", "example.com:7000"], &resolver),
    );
    let local = IpAddr::from([127, 0, 0, 1]);

    let mut stream = rig.connect_to(local, synthetic::PROXY_PORT);
    stream
        .write_all(b"CONNECT example.com:7000 HTTP/1.1\r\nHost: example.com:7000\r\n\r\n")
        .unwrap();
    assert!(read_head(&mut stream).starts_with("HTTP/1.1 200 "));
    assert_eq!(exchange(&mut stream, b"\x01hello"), b"\x01hello");
    drop(stream);
    assert_eq!(rig.closed("example.com").via, Via::Connect);

    let mut stream = rig.connect_to(local, synthetic::PROXY_PORT);
    let absolute = b"GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n";
    assert_eq!(exchange(&mut stream, absolute), absolute);

    let mut stream = rig.connect_to(local, synthetic::PROXY_PORT);
    stream
        .write_all(b"CONNECT evil.example:443 HTTP/1.1\r\n\r\n")
        .unwrap();
    let head = read_head(&mut stream);
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
    assert!(
        head.contains("X-Cellblock-Reason: no rule allows this host"),
        "{head}"
    );
    assert_eq!(rig.refused("evil.example").reason, Reason::NotAllowed);

    // The name, its address as the cell knows it, and what is not allowed.
    let address = rig.address("example.com");
    let IpAddr::V4(v4) = address else {
        panic!("{address}")
    };
    let named = b"\x05\x01\0\x03\x0bexample.com\x1b\x58".to_vec();
    let by_address = [&b"\x05\x01\0\x01"[..], &v4.octets(), b"\x1b\x58"].concat();
    let evil = b"\x05\x01\0\x03\x0cevil.example\x1b\x58".to_vec();
    let literal = b"\x05\x01\0\x01\x5d\xb8\xd8\x22\x1b\x58".to_vec();
    let datagrams = b"\x05\x03\0\x01\0\0\0\0\0\0".to_vec();
    for (request, code) in [
        (named, 0),
        (by_address, 0),
        (evil, 2),
        (literal, 2),
        (datagrams, 7),
    ] {
        let mut stream = rig.connect_to(local, synthetic::SOCKS_PORT);
        stream.write_all(b"\x05\x01\0").unwrap();
        let mut greeting = [0; 2];
        stream.read_exact(&mut greeting).unwrap();
        assert_eq!(greeting, [5, 0]);
        stream.write_all(&request).unwrap();
        let mut reply = [0; 10];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(reply[..2], [5, code], "{request:?}");
        if code == 0 {
            assert_eq!(exchange(&mut stream, b"\x01hello"), b"\x01hello");
        }
    }
    assert_eq!(rig.refused("93.184.216.34").via, Via::Socks5);
}

fn written_out() {
    let internet = internet();
    serve("10.9.1.2:7000", echo);
    serve("10.9.1.3:7000", echo);
    serve("[fd00:ec2::7]:7000", echo);
    let resolver = everywhere("10.9.1.2");
    let rules = [
        "10.9.1.0/24:7000",
        "[fd00:ec2::/32]:7000",
        "example.com:7000",
    ];
    let mut config = config(&rules, &resolver);
    config.rules.deny.push("10.9.1.3".parse().unwrap());
    let rig = Rig::start(&internet, &config);
    for address in ["10.9.1.2", "fd00:ec2::7"] {
        let mut stream = rig.connect_to(address.parse().unwrap(), 7000);
        assert_eq!(exchange(&mut stream, b"\x01hello"), b"\x01hello");
        drop(stream);
        assert_eq!(rig.closed(address).verdict, Verdict::Allowed);
    }
    // A name may lead to what is written out.
    assert_eq!(
        rig.exchange("example.com", 7000, b"\x01hello"),
        b"\x01hello"
    );
    let mut stream = rig.connect_to("10.9.1.3".parse().unwrap(), 7000);
    assert_eq!(exchange(&mut stream, b"\x01hello"), b"");
    assert_eq!(rig.refused("10.9.1.3").reason, Reason::Denied);
}

/// Addresses that refuse, or are refused, are passed over.
fn the_next_address() {
    let internet = internet();
    serve("93.184.216.34:80", echo);
    let resolver = Resolver::start(false, |_, _| {
        let addresses = ["10.0.0.1", "93.184.0.1", "93.184.216.34"];
        Some(
            addresses
                .map(|address| Record::Address(address.parse().unwrap()))
                .to_vec(),
        )
    });
    let rig = Rig::start(&internet, &config(&["example.com"], &resolver));
    assert_eq!(rig.exchange("example.com", 80, REQUEST), REQUEST);
    assert_eq!(
        rig.closed("example.com").dialled,
        Some("93.184.216.34".parse().unwrap())
    );
}

fn aliases_and_tcp() {
    let internet = internet();
    serve("93.184.216.34:80", echo);
    let resolver = Resolver::start(true, |name, _| match name {
        "example.com" => Some(vec![Record::Alias("a.example".to_owned())]),
        "a.example" => Some(vec![
            Record::Alias("b.example".to_owned()),
            Record::Address("93.184.216.34".parse().unwrap()),
        ]),
        _ => None,
    });
    let rig = Rig::start(&internet, &config(&["example.com"], &resolver));
    assert_eq!(rig.exchange("example.com", 80, REQUEST), REQUEST);
}

fn failures() {
    let internet = internet();
    let resolver = Resolver::start(false, |name, _| match name {
        "refusing.example" => Some(vec![Record::Address("93.184.0.1".parse().unwrap())]),
        "unreachable.example" => Some(vec![Record::Address("1.2.3.4".parse().unwrap())]),
        _ => None,
    });
    let names = ["refusing.example", "unreachable.example", "nowhere.example"];
    let rig = Rig::start(&internet, &config(&names, &resolver));
    for (name, reason) in names.iter().zip([
        Reason::ConnectionRefused,
        Reason::Unreachable,
        Reason::NoAddress,
    ]) {
        // A failure is no denial: a client of TLS sees what it would see outside.
        assert_eq!(
            rig.exchange(name, 443, &crate::fronting::hello_to(name)),
            b""
        );
        rig.closed_because(name, reason);
        let request = format!("GET / HTTP/1.1\r\nHost: {name}\r\n\r\n");
        let answer = rig.exchange(name, 80, request.as_bytes());
        assert!(answer.starts_with(b"HTTP/1.1 502 "), "{answer:?}");
        let closed = rig.closed(name);
        assert_eq!(
            (closed.verdict, closed.reason),
            (Verdict::Failed, Some(reason))
        );
    }
    assert_eq!(rig.end().failed, 6);
}

fn secrets() {
    let internet = internet();
    serve("93.184.216.34:80", echo);
    let resolver = everywhere("93.184.216.34");
    let mut config = config(&["example.com", "example.org"], &resolver);
    config.secrets.push(broker::SecretHeader {
        host: "example.com".to_owned(),
        port: 80,
        tls: false,
        name: "X-Api-Key".to_owned(),
        value: "s3cret".to_owned().into(),
    });
    let rig = Rig::start(&internet, &config);
    let request = b"GET / HTTP/1.1\r\nHost: example.com\r\nX-Api-Key: mine\r\n\r\n";
    let answer = rig.exchange("example.com", 80, request);
    assert_eq!(
        String::from_utf8(answer).unwrap(),
        "GET / HTTP/1.1\r\nHost: example.com\r\nX-Api-Key: s3cret\r\n\r\n"
    );
    let request = b"GET / HTTP/1.1\r\nHost: example.org\r\nX-Api-Key: mine\r\n\r\n";
    assert_eq!(rig.exchange("example.org", 80, request), request);
    assert!(!format!("{config:?}").contains("s3cret"));
}
