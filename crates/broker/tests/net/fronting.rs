//! Connections to an allowed name that ask for another one inside. Each is first shown to
//! reach the target with the check off.

use std::io::{Read as _, Write as _};
use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use broker::report::Reason;
use hosts::{NameChecks, synthetic};

use crate::Scenario;
use crate::carries::{REQUEST, everywhere};
use crate::internet::{echo, serve};
use crate::rig::{Rig, config, exchange, internet};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("fronting/tls-names", tls_names),
    ("fronting/http-hosts", http_hosts),
];

/// A ClientHello with these extensions.
fn hello(extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let long = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat();
    let list: Vec<u8> = extensions
        .iter()
        .flat_map(|(kind, content)| [&kind.to_be_bytes()[..], &long(content)].concat())
        .collect();
    let body = [
        &[3, 3][..],
        &[7; 32],
        &[0, 0, 2, 0x13, 1, 1, 0],
        &long(&list),
    ]
    .concat();
    let message = [&[1, 0][..], &long(&body)].concat();
    [&[22, 3, 1][..], &long(&message)].concat()
}

/// A ClientHello to `name`.
pub(crate) fn hello_to(name: &str) -> Vec<u8> {
    hello(&[server_name(name)])
}

fn server_name(name: &str) -> (u16, Vec<u8>) {
    let name = [&[0, 0, name.len() as u8][..], name.as_bytes()].concat();
    (0, [&[0, name.len() as u8][..], &name].concat())
}

fn tls_names() {
    let internet = internet();
    for port in [443, 8443] {
        serve(&format!("93.184.216.34:{port}"), echo);
    }
    let resolver = everywhere("93.184.216.34");
    let mut config = config(&["example.com", "example.com:8443"], &resolver);
    let rig = Rig::start(&internet, &config);
    config.check_names = NameChecks::Off;
    let open = Rig::start(&internet, &config);
    let good = hello(&[server_name("Example.com")]);
    for port in [443, 8443] {
        assert_eq!(rig.exchange("example.com", port, &good), good);
        for (bytes, reason) in [
            (hello(&[server_name("evil.example")]), Reason::OtherTlsName),
            (hello(&[]), Reason::NoTlsName),
            (
                hello(&[server_name("example.com"), (0xfe0d, vec![0; 9])]),
                Reason::EncryptedTlsName,
            ),
            (
                hello(&[server_name("example.com"), server_name("evil.example")]),
                Reason::NotTls,
            ),
        ] {
            assert_eq!(open.exchange("example.com", port, &bytes), bytes);
            // An alert, which clients show.
            assert_eq!(
                rig.exchange("example.com", port, &bytes),
                [21, 3, 3, 0, 2, 2, 49]
            );
            rig.closed_because("example.com", reason);
        }
    }
    let other = b"SSH-2.0-x\r\n";
    assert_eq!(open.exchange("example.com", 443, other), other);
    assert_eq!(rig.exchange("example.com", 443, other), b"");
    // Through the proxy as well.
    let evil = hello(&[server_name("evil.example")]);
    let mut stream = rig.connect_to(IpAddr::from([127, 0, 0, 1]), synthetic::PROXY_PORT);
    stream
        .write_all(b"CONNECT example.com:443 HTTP/1.1\r\n\r\n")
        .unwrap();
    let mut head = [0; 39];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(exchange(&mut stream, &evil), [21, 3, 3, 0, 2, 2, 49]);
}

fn http_hosts() {
    let internet = internet();
    for port in [80, 8080] {
        serve(&format!("93.184.216.34:{port}"), echo);
    }
    let resolver = everywhere("93.184.216.34");
    let mut config = config(&["example.com", "example.com:8080"], &resolver);
    let rig = Rig::start(&internet, &config);
    config.check_names = NameChecks::Off;
    let open = Rig::start(&internet, &config);
    let evil = b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    for port in [80, 8080] {
        assert_eq!(open.exchange("example.com", port, evil), evil);
        let answer = rig.exchange("example.com", port, evil);
        assert!(
            answer.starts_with(b"HTTP/1.1 403 Forbidden\r\n"),
            "{answer:?}"
        );
        rig.closed_because("example.com", Reason::OtherHttpHost);
        // The second request of a connection.
        for (rig, passes) in [(&open, true), (&rig, false)] {
            let mut stream = rig.connect("example.com", port);
            assert_eq!(exchange(&mut stream, REQUEST), REQUEST);
            assert_eq!(exchange(&mut stream, evil) == evil, passes);
        }
        // The same, as lenient servers would read it; its start may go on.
        let lenient = b"\r\n get / http/1.1\r\nhost: evil.example\r\n\r\n";
        assert_eq!(open.exchange("example.com", port, lenient), lenient);
        for end in [3, 16, lenient.len()] {
            let mut stream = rig.connect("example.com", port);
            stream.write_all(&lenient[..end]).unwrap();
            thread::sleep(Duration::from_millis(20));
            let back = exchange(&mut stream, &lenient[end..]);
            assert!(!back.windows(12).any(|part| part == b"evil.example"));
        }
        // In a body that servers may not expect: they are to close the connection.
        let body = [
            &b"GET / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 38\r\n\r\n"[..],
            evil,
        ]
        .concat();
        assert_eq!(open.exchange("example.com", port, &body), body);
        let there = rig.exchange("example.com", port, &body);
        let closes = |part: &[u8]| part == b"\r\nConnection: close\r\n\r\n";
        assert!(there.windows(23).any(closes), "{there:?}");
        // HTTP/0.9 with fields, and two hosts.
        for (request, status) in [
            ("GET /\r\nHost: evil.example\r\n\r\n", "400"),
            (
                "GET / HTTP/1.1\r\nHost: example.com\r\nHost: evil.example\r\n\r\n",
                "400",
            ),
        ] {
            let request = request.as_bytes();
            assert_eq!(open.exchange("example.com", port, request), request);
            let answer = rig.exchange("example.com", port, request);
            let answer = String::from_utf8_lossy(&answer);
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status} ")),
                "{answer}"
            );
        }
        // Both at once.
        let both = [REQUEST, evil].concat();
        let answer = rig.exchange("example.com", port, &both);
        assert!(!answer.windows(12).any(|part| part == b"evil.example"));
    }
}
