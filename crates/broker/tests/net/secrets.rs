//! Secret fields in requests inside of TLS, and whatever could lead them elsewhere. Each
//! attack is first shown to reach the server without them.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpStream};
use std::sync::{Arc, Mutex};

use broker::authority::{Authority, make};
use broker::report::Reason;
use broker::{Certificate, Config, SecretHeader};
use hosts::synthetic;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};

use crate::Scenario;
use crate::carries::everywhere;
use crate::internet::{Resolver, serve};
use crate::rig::{Rig, config, internet};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("secrets/tls", inside_tls),
    ("secrets/tunnels", through_proxies),
    ("secrets/untrusted-host", an_untrusted_host),
    ("secrets/smuggling", smuggling),
    ("secrets/each-request", each_request),
    ("secrets/no-http2", no_http2),
    ("secrets/other-protocols", other_protocols),
    ("secrets/much", much_both_ways),
    ("secrets/no-core", no_core),
];

const KEY: &str = "k3y-that-no-cell-sees";
const REQUEST: &str = "GET / HTTP/1.1\r\nHost: example.com\r\nx-api-key: mine\r\n\r\n";

/// A TLS server at `address`, and all that it was told.
fn server(address: &str, authority: &Authority, answers: fn(&[u8]) -> Vec<u8>) -> Told {
    let chain = vec![CertificateDer::from(authority.signed.clone())];
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(authority.key.to_vec()));
    let config = ServerConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let config = Arc::new(config);
    let told: Told = Arc::default();
    let log = told.clone();
    serve(address, move |stream| {
        let connection = ServerConnection::new(config.clone()).unwrap();
        let mut stream = StreamOwned::new(connection, stream);
        let mut buffer = [0; 16 << 10];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            log.lock().unwrap().extend_from_slice(&buffer[..count]);
            if stream.write_all(&answers(&buffer[..count])).is_err() {
                break;
            }
        }
    });
    told
}

type Told = Arc<Mutex<Vec<u8>>>;

fn answer(request: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
        request.len()
    );
    [head.as_bytes(), request].concat()
}

fn shown(told: &Told) -> String {
    String::from_utf8_lossy(&told.lock().unwrap()).into_owned()
}

/// The cell's side of what a supervisor prepares.
struct Set {
    host: Authority,
    cell: Authority,
    config: Config,
    // Holds the roots.
    _directory: tempfile::TempDir,
}

fn set(resolver: &Resolver) -> Set {
    let hosts = ["example.com".to_owned()];
    let (host, cell) = (make(&hosts).unwrap(), make(&hosts).unwrap());
    let directory = tempfile::tempdir().unwrap();
    let roots = directory.path().join("roots.pem");
    std::fs::write(&roots, &host.certificate).unwrap();
    let mut config = config(&["example.com", "evil.example"], resolver);
    config.upstream.certificates = roots;
    config.secrets.push(SecretHeader {
        host: "example.com".to_owned(),
        port: 443,
        tls: true,
        name: "X-Api-Key".to_owned(),
        value: KEY.to_owned().into(),
    });
    config.certificate = Some(Certificate {
        signed: cell.signed.clone(),
        key: cell.key.clone(),
    });
    Set {
        host,
        cell,
        config,
        _directory: directory,
    }
}

/// A client in the cell that trusts `authority`.
fn client(
    stream: TcpStream,
    authority: &Authority,
    name: &str,
) -> StreamOwned<ClientConnection, TcpStream> {
    client_with(stream, authority, name, Vec::new())
}

/// The same with these protocols (ALPN).
fn client_with(
    stream: TcpStream,
    authority: &Authority,
    name: &str,
    protocols: Vec<Vec<u8>>,
) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    let pem = CertificateDer::from_pem_slice(authority.certificate.as_bytes()).unwrap();
    roots.add(pem).unwrap();
    let mut config = ClientConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols;
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    StreamOwned::new(connection, stream)
}

/// Sends `text` and reads until there is `enough`, or the end.
fn ask(
    stream: &mut StreamOwned<ClientConnection, TcpStream>,
    text: &[u8],
    enough: impl Fn(&str) -> bool,
) -> String {
    let _ = stream.write_all(text);
    let mut back = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        back.extend_from_slice(&buffer[..count]);
        if enough(&String::from_utf8_lossy(&back)) {
            break;
        }
    }
    String::from_utf8_lossy(&back).into_owned()
}

fn inside_tls() {
    let internet = internet();
    let resolver = everywhere("93.184.216.34");
    let set = set(&resolver);
    let told = server("93.184.216.34:443", &set.host, answer);
    // Without a secret, the program's own field goes out, and it sees the host's own
    // certificate.
    let mut plain = set.config.clone();
    plain.secrets.clear();
    plain.certificate = None;
    let open = Rig::start(&internet, &plain);
    let mut stream = client(open.connect("example.com", 443), &set.host, "example.com");
    let whole = |text: &str| text.ends_with("\r\n\r\n") && text.contains("GET /");
    let back = ask(&mut stream, REQUEST.as_bytes(), whole);
    assert!(back.contains("x-api-key: mine"), "{back}");
    assert!(!shown(&told).contains(KEY));
    told.lock().unwrap().clear();

    let rig = Rig::start(&internet, &set.config);
    let mut stream = client(rig.connect("example.com", 443), &set.cell, "example.com");
    for _ in 0..2 {
        let back = ask(&mut stream, REQUEST.as_bytes(), whole);
        assert!(back.contains(&format!("X-Api-Key: {KEY}\r\n")), "{back}");
    }
    assert!(!shown(&told).contains("mine"));
    drop(stream);
    let closed = rig.closed("example.com");
    assert_eq!(closed.inserted, 2);
    assert_eq!(closed.reason, None);
    // A client that trusts only the host's own authority notices.
    let mut stream = client(rig.connect("example.com", 443), &set.host, "example.com");
    assert_eq!(ask(&mut stream, REQUEST.as_bytes(), |_| false), "");
    rig.closed_because("example.com", Reason::CellTrust);
    assert!(!format!("{:?}", set.config).contains(KEY));
}

fn through_proxies() {
    let internet = internet();
    let resolver = everywhere("93.184.216.34");
    let set = set(&resolver);
    let told = server("93.184.216.34:443", &set.host, answer);
    let rig = Rig::start(&internet, &set.config);
    let local = IpAddr::from([127, 0, 0, 1]);
    let mut connect = rig.connect_to(local, synthetic::PROXY_PORT);
    connect
        .write_all(b"CONNECT example.com:443 HTTP/1.1\r\n\r\n")
        .unwrap();
    connect.read_exact(&mut [0; 39]).unwrap();
    let mut socks = rig.connect_to(local, synthetic::SOCKS_PORT);
    socks.write_all(&[5, 1, 0]).unwrap();
    socks.read_exact(&mut [0; 2]).unwrap();
    let name = b"example.com";
    let wanted = [&[5, 1, 0, 3, 11][..], name, &443_u16.to_be_bytes()].concat();
    socks.write_all(&wanted).unwrap();
    socks.read_exact(&mut [0; 10]).unwrap();
    for tunnel in [connect, socks] {
        told.lock().unwrap().clear();
        let mut stream = client(tunnel, &set.cell, "example.com");
        ask(&mut stream, REQUEST.as_bytes(), |text| text.contains(KEY));
        assert!(shown(&told).contains(KEY));
        assert!(!shown(&told).contains("mine"));
    }
}

fn an_untrusted_host() {
    let internet = internet();
    let resolver = everywhere("93.184.216.34");
    let mut set = set(&resolver);
    // Another authority's certificate, and a trusted one for another name.
    let stranger = make(&["example.com".to_owned()]).unwrap();
    let other = make(&["evil.example".to_owned()]).unwrap();
    let roots = set.config.upstream.certificates.clone();
    std::fs::write(
        &roots,
        format!("{}{}", set.host.certificate, other.certificate),
    )
    .unwrap();
    set.config
        .rules
        .allow
        .push("example.com:8443".parse().unwrap());
    let mut second = set.config.secrets[0].clone();
    second.port = 8443;
    set.config.secrets.push(second);
    let told = [
        (443, server("93.184.216.34:443", &stranger, answer)),
        (8443, server("93.184.216.34:8443", &other, answer)),
    ];
    let rig = Rig::start(&internet, &set.config);
    for (port, told) in told {
        // The servers do answer who trusts them.
        let direct = TcpStream::connect(("93.184.216.34", port)).unwrap();
        let (authority, name) = match port {
            443 => (&stranger, "example.com"),
            _ => (&other, "evil.example"),
        };
        let mut direct = client(direct, authority, name);
        ask(&mut direct, REQUEST.as_bytes(), |text| {
            text.contains("mine")
        });
        assert!(shown(&told).contains("mine"));
        told.lock().unwrap().clear();
        let mut stream = client(rig.connect("example.com", port), &set.cell, "example.com");
        let back = ask(&mut stream, REQUEST.as_bytes(), |_| false);
        assert!(back.contains("certificate is not trusted"), "{back}");
        rig.closed_because("example.com", Reason::UntrustedHost);
        assert_eq!(shown(&told), "");
    }
}

/// Each begins with something that one server or another takes for a second request, or for
/// one to another host.
const SMUGGLED: [&str; 28] = [
    "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: example.com\r\nHost: evil.example\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: example.com\r\n Host: evil.example\r\n\r\n",
    "GET / HTTP/1.1\r\nX: y\r\n\tHost: evil.example\r\nHost: example.com\r\n\r\n",
    "GET / HTTP/1.1\r\nHost : evil.example\r\nHost: example.com\r\n\r\n",
    "GET http://evil.example/ HTTP/1.1\r\nHost: example.com\r\n\r\n",
    "GET https://evil.example/ HTTP/1.1\r\nHost: example.com\r\n\r\n",
    "GET http://example.com@evil.example/ HTTP/1.1\r\nHost: example.com\r\n\r\n",
    "CONNECT evil.example:443 HTTP/1.1\r\nHost: example.com\r\n\r\n",
    "CONNECT example.com:443 HTTP/1.1\r\nHost: example.com\r\n\r\nGET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "TRACE / HTTP/1.1\r\nHost: example.com\r\n\r\nGET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "GET / HTTP/1.1\nHost: evil.example\n\n",
    "GET / HTTP/1.1\r\nHost: example.com\nHost: evil.example\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: example.com\rHost: evil.example\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: example.com\0evil.example\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 0\r\nContent-Length: 40\r\n\r\nGET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "POST / HTTP/1.0\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\n\r\n0;\nx\r\n\r\nGET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: example.com\r\n\r\nGET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "GET / HTTP/1.0\r\nConnection: keep-alive\r\nHost: example.com\r\n\r\nGET / HTTP/1.0\r\nHost: evil.example\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: example.com\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nokGET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 2, 2\r\n\r\nokGET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nHost: evil.example\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: y\r\n Host: evil.example\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Api-Key: evil.example\r\n\r\n",
];

fn smuggling() {
    let internet = internet();
    let resolver = everywhere("93.184.216.34");
    let set = set(&resolver);
    let told = server("93.184.216.34:443", &set.host, |_| Vec::new());
    let mut plain = set.config.clone();
    plain.secrets.clear();
    plain.certificate = None;
    let open = Rig::start(&internet, &plain);
    let rig = Rig::start(&internet, &set.config);
    for smuggled in SMUGGLED {
        // Nobody looks into the TLS of other hosts.
        let mut stream = client(open.connect("example.com", 443), &set.host, "example.com");
        ask_and_leave(&mut stream, smuggled);
        assert!(shown(&told).contains("evil.example"), "{smuggled:?}");
        told.lock().unwrap().clear();
        let mut stream = client(rig.connect("example.com", 443), &set.cell, "example.com");
        ask_and_leave(&mut stream, smuggled);
        let passed = shown(&told);
        assert!(!passed.contains("evil.example"), "{smuggled:?}: {passed:?}");
        told.lock().unwrap().clear();
    }
    // An upgrade to HTTP/2, whose requests could not be followed, is left out.
    let upgrade = "GET / HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade, HTTP2-Settings\r\n\
                   HTTP2-Settings: AAA\r\nUpgrade: h2c\r\n\r\n";
    let mut stream = client(rig.connect("example.com", 443), &set.cell, "example.com");
    ask_and_leave(&mut stream, upgrade);
    let passed = shown(&told);
    assert!(passed.contains(KEY) && !passed.contains("h2c"), "{passed}");
}

/// Each request of a connection gets the key once, however the requests come.
fn each_request() {
    let internet = internet();
    let resolver = everywhere("93.184.216.34");
    let set = set(&resolver);
    let told = server("93.184.216.34:443", &set.host, |_| Vec::new());
    let rig = Rig::start(&internet, &set.config);
    let old = "GET / HTTP/1.0\r\nConnection: keep-alive\r\nHost: example.com\r\n\r\n";
    let chunked = "POST / HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\n\r\n\
                   3;a=b\r\nabc\r\n0\r\nX-Digest: 1\r\n\r\n";
    let expects = "POST / HTTP/1.1\r\nHost: example.com\r\nExpect: 100-continue\r\n\
                   Content-Length: 3\r\n\r\nabc";
    for requests in [
        [REQUEST, REQUEST].concat(),
        [old, old].concat(),
        [chunked, REQUEST].concat(),
        [expects, REQUEST].concat(),
    ] {
        let mut stream = client(rig.connect("example.com", 443), &set.cell, "example.com");
        ask_and_leave(&mut stream, &requests);
        let passed = shown(&told);
        assert_eq!(passed.matches(KEY).count(), 2, "{requests:?}: {passed:?}");
        assert!(!passed.contains("mine"), "{passed:?}");
        told.lock().unwrap().clear();
    }
}

/// Only HTTP/1.1 is spoken, whatever else is offered: requests of HTTP/2 are not followed.
fn no_http2() {
    let internet = internet();
    let resolver = everywhere("93.184.216.34");
    let set = set(&resolver);
    let told = server("93.184.216.34:443", &set.host, answer);
    let rig = Rig::start(&internet, &set.config);
    for (offered, chosen) in [
        (
            vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            Some(&b"http/1.1"[..]),
        ),
        (vec![b"h2".to_vec()], None),
    ] {
        let stream = rig.connect("example.com", 443);
        let mut stream = client_with(stream, &set.cell, "example.com", offered);
        let back = ask(&mut stream, REQUEST.as_bytes(), |text| text.contains(KEY));
        assert_eq!(stream.conn.alpn_protocol(), chosen);
        assert_eq!(back.contains(KEY), chosen.is_some(), "{back}");
        assert_eq!(shown(&told).contains(KEY), chosen.is_some());
        told.lock().unwrap().clear();
    }
}

/// Sends `text`, ends, and waits for the other side's end.
fn ask_and_leave(stream: &mut StreamOwned<ClientConnection, TcpStream>, text: &str) {
    let _ = stream.write_all(text.as_bytes());
    stream.conn.send_close_notify();
    let _ = stream.flush();
    let _ = stream.read_to_end(&mut Vec::new());
}

fn other_protocols() {
    let internet = internet();
    let resolver = everywhere("93.184.216.34");
    let set = set(&resolver);
    let told = server("93.184.216.34:443", &set.host, answer);
    let rig = Rig::start(&internet, &set.config);
    for (bytes, reason) in [
        (REQUEST.as_bytes(), Reason::NotTls),
        (b"SSH-2.0-x\r\n", Reason::NotTls),
    ] {
        rig.exchange("example.com", 443, bytes);
        rig.closed_because("example.com", reason);
    }
    let mut stream = client(rig.connect("example.com", 443), &set.cell, "evil.example");
    assert_eq!(ask(&mut stream, REQUEST.as_bytes(), |_| false), "");
    rig.closed_because("example.com", Reason::OtherTlsName);
    assert_eq!(shown(&told), "");
    // Plain requests get no key that is for TLS.
    let plain = serve("93.184.216.34:80", crate::internet::echo);
    let back = rig.exchange("example.com", 80, REQUEST.as_bytes());
    assert_eq!(String::from_utf8_lossy(&back), REQUEST);
    assert_eq!(plain.load(std::sync::atomic::Ordering::SeqCst), 1);
    // Another host gets none, whatever it is asked for.
    let other = make(&["evil.example".to_owned()]).unwrap();
    let evil = server("93.184.216.35:443", &other, answer);
    let resolver = everywhere("93.184.216.35");
    let mut config = set.config.clone();
    config.upstream.resolver = Some(resolver.address);
    let rig = Rig::start(&internet, &config);
    let mut stream = client(rig.connect("evil.example", 443), &other, "evil.example");
    ask(&mut stream, REQUEST.as_bytes(), |text| {
        text.contains("mine")
    });
    assert!(shown(&evil).contains("mine"));
    assert!(!shown(&evil).contains(KEY));
}

/// More than fits into what is held, in both directions at once.
fn much_both_ways() {
    const SIZE: usize = 4 << 20;
    let internet = internet();
    let resolver = everywhere("93.184.216.34");
    let set = set(&resolver);
    let told = server("93.184.216.34:443", &set.host, <[u8]>::to_vec);
    let rig = Rig::start(&internet, &set.config);
    let stream = rig.connect("example.com", 443);
    let mut stream = client(stream, &set.cell, "example.com");
    let head = format!("POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: {SIZE}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let (mut back, mut buffer) = (0, vec![0; 64 << 10]);
    let mut sent = 0;
    while sent < SIZE {
        stream.write_all(&vec![b'x'; 32 << 10]).unwrap();
        sent += 32 << 10;
        back += stream.read(&mut buffer).unwrap();
    }
    let with_key = SIZE + head.len() + "X-Api-Key: \r\n".len() + KEY.len();
    while back < with_key {
        match stream.read(&mut buffer) {
            Ok(count @ 1..) => back += count,
            other => panic!("{other:?} after {back} of {with_key}"),
        }
    }
    assert_eq!(told.lock().unwrap().len(), with_key);
}

/// A broker that is told to dump its memory does not.
fn no_core() {
    let internet = internet();
    let resolver = everywhere("93.184.216.34");
    let set = set(&resolver);
    server("93.184.216.34:443", &set.host, answer);
    let rig = Rig::start(&internet, &set.config);
    let read = |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", rig.pid()));
    let limits = read("limits").unwrap();
    let core = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"));
    let fields: Vec<&str> = core.unwrap().split_whitespace().collect();
    assert_eq!(fields[4..6], ["0", "0"]);
    for file in ["environ", "cmdline"] {
        assert!(!read(file).unwrap_or_default().contains(KEY));
    }
    let pid = nix::unistd::Pid::from_raw(rig.pid().try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGABRT).unwrap();
    // It blocks signals, and goes on.
    let mut stream = client(rig.connect("example.com", 443), &set.cell, "example.com");
    let back = ask(&mut stream, REQUEST.as_bytes(), |text| text.contains(KEY));
    assert!(back.contains(KEY), "{back}");
}
