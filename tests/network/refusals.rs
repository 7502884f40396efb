//! What is refused, each first shown to be reached where nothing is in the way.

use std::fs;
use std::sync::atomic::Ordering;

use serde_json::Value;

use crate::Test;
use crate::cell::Cell;
use crate::internet::{echo, serve};
use crate::outside::Outside;

pub(crate) const TESTS: &[Test] = &[
    ("refusals/private-addresses", private_addresses),
    ("refusals/rebinding", rebinding),
    ("refusals/dns-by-other-ways", dns_by_other_ways),
    ("refusals/other-server-name", other_server_name),
    ("refusals/redirect", redirect),
    ("refusals/events", events),
    ("refusals/unknown-authority", unknown_authority),
    ("refusals/addresses", addresses),
];

fn fetch(url: &str) -> Cell {
    Cell::python(&format!(
        "import urllib.request; print(urllib.request.urlopen('{url}').read().decode())"
    ))
}

fn private_addresses() {
    let _outside = Outside::with_web();
    for name in ["inner.example", "metadata.example"] {
        let cell = fetch(&format!("http://{name}/"));
        let live = cell.clone().on_the_hosts_network().run().ok();
        assert_eq!(live.lines("hello").len(), 1, "{live:?}");
        let ended = cell.allow(&[name]).run();
        assert_ne!(ended.outcome(), "ok", "{ended:?}");
        ended.has_refused(&format!(
            "{name}:80 the name resolves to an address that is private, local or reserved"
        ));
    }
}

/// A name that leads to an allowed address once, and to a private one from then on.
fn rebinding() {
    let outside = Outside::new();
    let inner = serve("10.0.0.5:7000", echo);
    let cell = Cell::python(
        "import socket
for _ in range(2):
    with socket.create_connection(('rebound.example', 7000)) as s:
        s.sendall(b'hello\\n')
        print(s.recv(100).decode(), end='')",
    );
    // A fresh resolver each time: the first two questions are this cell's.
    let ended = cell.clone().allow(&["rebound.example:7000"]).run();
    assert_eq!(ended.lines("hello").len(), 1, "{ended:?}");
    ended.has_refused("rebound.example:7000 the name resolves to an address that is private");
    assert_eq!(outside.raw[0].load(Ordering::SeqCst), 1);
    assert_eq!(inner.load(Ordering::SeqCst), 0);
    let live = cell.on_the_hosts_network().run().ok();
    assert_eq!(live.lines("hello").len(), 2, "{live:?}");
    assert_eq!(inner.load(Ordering::SeqCst), 2);
}

/// An address, however it is written, and the metadata service. The kernel refuses them, and
/// counts.
fn addresses() {
    let _outside = Outside::new();
    let _web = serve("93.184.0.10:80", echo);
    let _web6 = serve("[2600:1234::10]:80", echo);
    let _metadata = serve("169.254.169.254:80", echo);
    let cell = Cell::python(
        "import errno, socket, sys
refused = None
for host in ['93.184.0.10', '1572339722', '0x5db8000a', '0135.0270.0.012', '0135.0xb8.10',
             '2600:1234::10', '::ffff:93.184.0.10', '169.254.169.254', '0xa9fea9fe']:
    try:
        with socket.create_connection((host, 80)) as s:
            s.sendall(b'x')
            print('reached', host, s.recv(1))
    except OSError as error:
        refused = error
        print('refused', host, errno.errorcode[error.errno])
if refused:
    raise refused",
    );
    let live = cell.clone().on_the_hosts_network().run().ok();
    assert_eq!(live.lines("reached").len(), 9, "{live:?}");
    let ended = cell.allow(&["web.example"]).run();
    let refused = ended.lines("refused");
    assert_eq!(refused.len(), 9, "{ended:?}");
    assert!(
        refused.iter().all(|line| line.ends_with("ENETUNREACH")),
        "{ended:?}"
    );
    assert_eq!(ended.0["network"]["totals"]["unrouted"], 9, "{ended:?}");
    let denied = ended.0["denied"].as_array().expect("a list");
    let denied = denied
        .iter()
        .find(|denied| denied["name"] == "addresses")
        .expect("the addresses");
    assert_eq!(denied["count"], 9, "{denied}");
    let context = ended.context();
    assert!(
        context.contains("--net allow=ADDRESS:PORT would"),
        "{context}"
    );
}

/// DNS over HTTPS and over TLS, by a name and by an address, and DNS to another server.
fn dns_by_other_ways() {
    let outside = Outside::with_web();
    let _tls = serve("93.184.0.10:853", echo);
    let _tcp = serve("93.184.0.10:53", echo);
    let cell = Cell::python(
        "import socket
def attempt(what, call):
    try:
        call()
        print('reached', what)
    except OSError as error:
        print('refused', what, type(error).__name__)
for host in 'dns.google', '93.184.0.10', '2600:1234::10':
    for port in 443, 853, 53:
        if host != '2600:1234::10' or port == 443:
            attempt(f'{host} {port}', lambda: socket.create_connection((host, port)).close())
def datagram():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.connect(('93.184.0.10', 53))
        s.send(b'x')
attempt('a datagram', datagram)",
    );
    let live = cell.clone().on_the_hosts_network().run().ok();
    assert_eq!(live.lines("reached").len(), 8, "{live:?}");
    let before = outside.asked.lock().expect("the log").len();
    let ended = cell.allow(&["web.example"]).run().ok();
    assert_eq!(ended.lines("refused").len(), 8, "{ended:?}");
    assert!(ended.lines("reached").is_empty(), "{ended:?}");
    ended.has_refused("dns.google no rule allows this host");
    assert_eq!(outside.asked.lock().expect("the log").len(), before);
}

/// A handshake for another name than the one that was connected to, at a host that serves
/// both.
fn other_server_name() {
    let outside = Outside::with_web();
    let cell = Cell::python(
        "import socket, ssl
context = ssl.create_default_context(cafile='/tests-ca.pem')
s = context.wrap_socket(socket.create_connection(('web.example', 443)), server_hostname='other.example')
s.sendall(b'GET / HTTP/1.0\\r\\nHost: other.example\\r\\n\\r\\n')
print(s.makefile().read().splitlines()[-1])",
    )
    .ro(&outside.authority(), "/tests-ca.pem")
    .allow(&["web.example"]);
    let live = cell.clone().option(&["--net-unchecked"]).run().ok();
    assert_eq!(live.lines("hello other.example").len(), 1, "{live:?}");
    assert_eq!(live.0["network"]["check_names"], false);
    let ended = cell.run();
    assert_ne!(ended.outcome(), "ok", "{ended:?}");
    ended.has_refused("web.example:443 the TLS server name is another one");
}

fn redirect() {
    let _outside = Outside::with_web();
    let cell = fetch("http://web.example/to-other");
    let live = cell.clone().on_the_hosts_network().run().ok();
    assert_eq!(live.lines("hello other.example").len(), 1, "{live:?}");
    let ended = cell.allow(&["web.example"]).run();
    assert_ne!(ended.outcome(), "ok", "{ended:?}");
    ended.has_refused("other.example no rule allows this host");
}

/// Connections and refusals are told while they happen.
fn events() {
    let outside = Outside::with_web();
    let path = outside.path().join("events");
    let cell = Cell::python(
        "import socket, urllib.request
urllib.request.urlopen('http://web.example/').read()
try:
    socket.getaddrinfo('other.example', 80)
except OSError:
    pass",
    );
    let to = path.to_str().expect("a path");
    let ended = cell
        .allow(&["web.example"])
        .option(&["--events", to])
        .run()
        .ok();
    let text = fs::read_to_string(&path).expect("the events");
    let events: Vec<Value> = (text.lines())
        .map(|line| serde_json::from_str(line).expect("an event"))
        .collect();
    let found = |kind: &str, field: &str| -> Vec<&str> {
        let of = events.iter().filter(|event| event["event"] == kind);
        of.filter_map(|event| event.pointer(field)?.as_str())
            .collect()
    };
    assert_eq!(
        found("connection", "/connection/host"),
        ["web.example"],
        "{text}"
    );
    assert_eq!(found("denied", "/name"), ["other.example"], "{text}");
    assert_eq!(ended.connections().len(), 1);
}

/// A certificate of an authority that nobody in the cell knows is not the network's fault.
fn unknown_authority() {
    let _outside = Outside::with_web();
    let ended = fetch("https://web.example/").allow(&["web.example"]).run();
    let context = ended.context();
    let told = "it does not trust the server's certificate";
    assert!(context.contains(told), "{ended:?}");
}
