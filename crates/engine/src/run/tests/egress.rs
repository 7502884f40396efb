//! Routes and sockets that lead to allowed hosts, as the program in a cell sees them.

use std::error::Error;
use std::path::Path;
use std::rc::Rc;

use crate::run::resolve_on;
use jail::child::Content;
use jail::launch::{Launch, Role};
use plan::probe::HostFacts;
use plan::{Fallback, Plan};
use record::error::Step;
use spec::network::{PartialEgress, PartialNetwork};
use spec::{self, Ask, Mode, Partial, Stdin, Stdio};
use supervise::{Cancel, Cell, Denials, Request};
use sys::alone::alone;

/// Prints what each attempt gives: `ok`, or the name of the error.
const PROBE: &str = r#"
import errno, socket, sys
def attempt(name, call):
    try:
        call()
        print(name, 'ok')
    except OSError as e:
        print(name, errno.errorcode[e.errno])
def connect(host, port, family=socket.AF_INET, kind=socket.SOCK_STREAM):
    s = socket.socket(family, kind)
    s.connect((host, port))
    if kind == socket.SOCK_DGRAM:
        s.send(b'x')
        s.settimeout(0.2)
        try:
            s.recv(1)
        except TimeoutError:
            pass
def bind(host, port, family=socket.AF_INET, kind=socket.SOCK_STREAM, *options):
    s = socket.socket(family, kind)
    s.setsockopt(socket.IPPROTO_IP, 15, 1)  # IP_FREEBIND
    for option in options:
        s.setsockopt(socket.SOL_SOCKET, option, 1)
    s.bind((host, port))
    if kind == socket.SOCK_STREAM:
        s.listen()
SHARE = socket.SO_REUSEADDR, socket.SO_REUSEPORT
V6, DGRAM, STREAM = socket.AF_INET6, socket.SOCK_DGRAM, socket.SOCK_STREAM
for probe in sys.stdin.read().splitlines():
    attempt(probe, lambda: eval(probe))
"#;

const PROBES: [(&str, &str); 17] = [
    ("connect('198.18.3.7', 8443)", "ok"),
    ("connect('198.18.3.7', 443)", "ok"),
    ("connect('203.0.113.9', 443)", "ok"),
    ("connect('198.18.3.7', 22)", "ECONNREFUSED"),
    ("connect('203.0.114.9', 443)", "ENETUNREACH"),
    ("connect('1.1.1.1', 443)", "ENETUNREACH"),
    ("connect('169.254.169.254', 80)", "ENETUNREACH"),
    ("connect('198.18.3.7', 443, kind=DGRAM)", "ECONNREFUSED"),
    ("connect('198.18.0.1', 53)", "ok"),
    // What is listened at cannot be taken over, shared, or listened at beside it.
    (
        "bind('0.0.0.0', 8443, socket.AF_INET, STREAM, *SHARE)",
        "EADDRINUSE",
    ),
    (
        "bind('198.18.3.7', 8443, socket.AF_INET, STREAM, *SHARE)",
        "EADDRINUSE",
    ),
    (
        "bind('127.0.0.1', 8443, socket.AF_INET, STREAM, *SHARE)",
        "EADDRINUSE",
    ),
    (
        "bind('198.18.0.1', 53, socket.AF_INET, DGRAM, *SHARE)",
        "EACCES",
    ),
    (
        "bind('198.18.3.7', 443, socket.AF_INET, STREAM, *SHARE)",
        "EACCES",
    ),
    ("bind('127.0.0.1', 53, socket.AF_INET, DGRAM)", "EACCES"),
    // The program's own servers on loopback work as ever.
    ("bind('127.0.0.1', 8000)", "ok"),
    ("socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)", "EPERM"),
];

/// On a host with IPv6.
const PROBES_V6: [(&str, &str); 5] = [
    ("connect('fd00:cb::7', 443, V6)", "ok"),
    ("connect('2606:4700::1111', 443, V6)", "ENETUNREACH"),
    ("bind('::', 8443, V6, STREAM, *SHARE)", "EADDRINUSE"),
    ("bind('fd00:cb::7', 8443, V6, STREAM, *SHARE)", "EADDRINUSE"),
    ("bind('fd00:cb::1', 53, V6, DGRAM, *SHARE)", "EACCES"),
];

type Done<T = ()> = Result<T, Box<dyn Error>>;

fn plan(probes: &[(&str, &str)]) -> Done<Plan> {
    let ask = Ask {
        mode: Mode::Exec,
        cwd: Path::new("/"),
        stdio: Stdio::Capture,
        lends: false,
    };
    let partial = Partial {
        argv: Some(["/usr/bin/python3", "-Ic", PROBE].map(Into::into).into()),
        network: Some(PartialNetwork::Hosts(PartialEgress {
            allow: ["a.example:443", "b.example:8443", "203.0.113.0/24:443"]
                .map(str::to_owned)
                .into(),
            ..PartialEgress::default()
        })),
        ..Partial::default()
    };
    let mut spec = spec::load(&ask, None, None, partial)?;
    let lines: Vec<&str> = probes.iter().map(|(probe, _)| *probe).collect();
    spec.stdin = Stdin::Inline(lines.join("\n").into());
    Ok(resolve_on(&spec, HostFacts::gather()?)?.plan)
}

#[test]
fn the_cells_network_leads_to_the_brokers_sockets_and_nowhere_else() {
    alone(|| {
        let has_v6 = std::net::UdpSocket::bind("[::1]:0").is_ok();
        let mut probes = PROBES.to_vec();
        probes.extend(PROBES_V6.into_iter().filter(|_| has_v6));
        let plan = plan(&probes)?;
        let launch = Launch {
            role: Role::Program,
            plan: Rc::new(plan),
            filter: None,
            content: Content::default(),
            cgroup: None,
            fallback: Fallback::default(),
            until: Step::Exec,
            holds: false,
        };
        let mut cell = Cell::start(launch, Denials::default(), Cancel::default())?;
        let execution = cell.execute(Request {
            is_last: true,
            ..Request::default()
        })?;
        let observed = cell.end()?;
        assert!(observed.failure.is_none(), "{observed:?}");
        let found = super::stdout(execution);
        let wanted: Vec<String> = (probes.iter())
            .map(|(probe, result)| format!("{probe} {result}"))
            .collect();
        assert_eq!(found.lines().collect::<Vec<_>>(), wanted);
        Ok(())
    });
}
