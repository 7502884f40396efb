//! A broker process with a cell's sockets, and what it reports.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Instant;

use broker::report::{Closed, Mark, Ready, Reason, Refused, Report, Totals};
use broker::{Config, Sockets};
use hosts::synthetic;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};

use crate::apart::skip;
use crate::internet::{Inside, Internet, PATIENCE, PUBLIC, Resolver, datagrams, listening, query};

/// The fake Internet, or the end of this scenario.
pub(crate) fn internet() -> Internet {
    Internet::new().unwrap_or_else(|reason| skip(&format!("a fake Internet: {reason}")))
}

/// A configuration that allows `hosts`, and reaches the fake Internet's public addresses
/// although they are this host's own.
pub(crate) fn config(hosts: &[&str], resolver: &Resolver) -> Config {
    let mut config = Config::default();
    config.rules.allow = hosts
        .iter()
        .map(|host| host.parse().expect("a rule"))
        .collect();
    config.upstream.resolver = Some(resolver.address);
    config.upstream.hosts = "/dev/null".into();
    config.upstream.permit = PUBLIC.map(str::to_owned).to_vec();
    config
}

/// Lets a broker reach every address: its check is off.
pub(crate) fn without_address_checks(config: &Config) -> Config {
    let mut config = config.clone();
    config.upstream.permit = vec!["0.0.0.0/0".to_owned(), "::/0".to_owned()];
    config
}

/// A broker process.
pub(crate) struct Rig {
    inside: Inside,
    child: Child,
    stderr: Option<ChildStderr>,
    control: Option<UnixStream>,
    reports: Arc<(Mutex<Vec<Report>>, Condvar)>,
}

/// The process that [`Rig::start`] executes.
pub(crate) fn broker(arguments: &[String]) -> ! {
    let number = |text: &str| text.parse::<RawFd>().expect("a number");
    let words: Vec<(&str, &str)> = arguments
        .iter()
        .filter_map(|word| word.split_once('='))
        .collect();
    let numbers = words.iter().map(|(_, fd)| number(fd)).collect();
    let mut inherited = sys::inherited::Inherited::copy(numbers);
    let mut sockets = Sockets::default();
    let mut others = Vec::new();
    for (word, fd) in words {
        let fd = OwnedFd::from(inherited.take(number(fd)).expect("a descriptor"));
        match word {
            "dns_udp" => sockets.dns_udp.push(fd),
            "dns_tcp" => sockets.dns_tcp.push(fd),
            "proxy" => sockets.proxy.push(fd),
            "socks" => sockets.socks.push(fd),
            "control" | "reports" => others.push(fd),
            port => sockets.tcp.push((port.parse().expect("a port"), fd)),
        }
    }
    let reports = others.pop().expect("reports");
    let control = others.pop().expect("control");
    broker::serve(sockets, control, reports, None)
}

impl Rig {
    /// Starts a broker for a cell of its own.
    pub(crate) fn start(internet: &Internet, config: &Config) -> Self {
        let routes = synthetic::networks()
            .into_iter()
            .chain(config.rules.networks());
        let routes: Vec<String> = routes
            .map(|network| format!("{}/{}", network.address(), network.prefix()))
            .collect();
        let inside = internet.cell(&routes);
        let sockets = inside.run(|| {
            let mut sockets: Vec<(String, OwnedFd)> = Vec::new();
            for port in config.rules.ports() {
                for any in ["0.0.0.0", "::"] {
                    let address = SocketAddr::new(any.parse().unwrap(), port);
                    sockets.push((port.to_string(), listening(address)));
                }
            }
            for address in [IpAddr::V4(synthetic::DNS_IPV4), synthetic::DNS_IPV6.into()] {
                let address = SocketAddr::new(address, synthetic::DNS_PORT);
                sockets.push(("dns_udp".to_owned(), datagrams(address)));
                sockets.push(("dns_tcp".to_owned(), listening(address)));
            }
            for (word, port) in [
                ("proxy", synthetic::PROXY_PORT),
                ("socks", synthetic::SOCKS_PORT),
            ] {
                let address = SocketAddr::from(([127, 0, 0, 1], port));
                sockets.push((word.to_owned(), listening(address)));
            }
            sockets
        });
        let (control, theirs) = UnixStream::pair().unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        let mut given = sockets;
        given.push(("control".to_owned(), theirs.into()));
        given.push(("reports".to_owned(), writer.into()));
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg("--broker");
        for (word, fd) in &given {
            fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
            command.arg(format!("{word}={}", fd.as_raw_fd()));
        }
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let stderr = child.stderr.take();
        drop(given);
        config.send(&control).unwrap();
        let reports = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
        let shared = reports.clone();
        thread::spawn(move || {
            for line in BufReader::new(reader).lines().map_while(Result::ok) {
                let report = Report::read(line.as_bytes()).expect("a report");
                shared.0.lock().unwrap().push(report);
                shared.1.notify_all();
            }
        });
        let rig = Self {
            inside,
            child,
            stderr,
            control: Some(control),
            reports,
        };
        rig.ready();
        rig
    }

    /// The broker's process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it wrote to its standard error, until that was closed.
    pub(crate) fn standard_error(&mut self) -> String {
        let mut text = String::new();
        if let Some(stderr) = &mut self.stderr {
            stderr.read_to_string(&mut text).unwrap();
        }
        text
    }

    /// The layers that hold it.
    pub(crate) fn ready(&self) -> Ready {
        self.wait("ready", |report| match report {
            Report::Ready(ready) => Some(ready.clone()),
            _ => None,
        })
    }

    /// Does something inside of its cell.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.inside.run(work)
    }

    /// Waits for a report of which `which` makes something.
    pub(crate) fn wait<T>(&self, what: &str, which: impl Fn(&Report) -> Option<T>) -> T {
        let until = Instant::now() + PATIENCE;
        let mut reports = self.reports.0.lock().unwrap();
        loop {
            if let Some(found) = reports.iter().rev().find_map(&which) {
                return found;
            }
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no {what} in {reports:#?}");
            reports = self.reports.1.wait_timeout(reports, left).unwrap().0;
        }
    }

    /// Waits until a connection to `host` has ended.
    pub(crate) fn closed(&self, host: &str) -> Closed {
        self.wait(&format!("end of {host}"), |report| match report {
            Report::Closed(closed) if closed.host == host => Some(closed.clone()),
            _ => None,
        })
    }

    /// Waits until a connection to `host` has ended for this reason.
    pub(crate) fn closed_because(&self, host: &str, reason: Reason) -> Closed {
        self.wait(&format!("{host}: {reason:?}"), |report| match report {
            Report::Closed(closed) if closed.host == host && closed.reason == Some(reason) => {
                Some(closed.clone())
            }
            _ => None,
        })
    }

    /// Waits until `host` has been refused.
    pub(crate) fn refused(&self, host: &str) -> Refused {
        self.wait(&format!("refusal of {host}"), |report| match report {
            Report::Refused(refused) if refused.host == host => Some(refused.clone()),
            _ => None,
        })
    }

    /// Asks for a mark.
    pub(crate) fn ask_mark(&self) {
        let mut control = self.control.as_ref().expect("a control socket");
        control.write_all(&[0]).unwrap();
    }

    /// The reports that came before the mark of this number.
    pub(crate) fn before_mark(&self, number: u64) -> Vec<Report> {
        let mark = Report::Mark(Mark { number });
        self.wait("mark", |report| (*report == mark).then_some(()));
        let reports = self.reports.0.lock().unwrap();
        let before = reports.iter().take_while(|report| **report != mark);
        before.cloned().collect()
    }

    /// Ends the broker and returns its totals.
    pub(crate) fn end(mut self) -> Totals {
        drop(self.control.take());
        let totals = self.wait("totals", |report| match report {
            Report::Totals(totals) => Some(totals.clone()),
            _ => None,
        });
        assert!(self.child.wait().unwrap().success());
        totals
    }

    /// What a DNS query of the cell gets: the code, and the addresses.
    pub(crate) fn lookup(&self, name: &str, kind: u16) -> (u8, Vec<IpAddr>) {
        let query = query(name, kind);
        let reply = self.inside.run(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket
                .connect((synthetic::DNS_IPV4, synthetic::DNS_PORT))
                .unwrap();
            socket.send(&query).unwrap();
            let mut reply = vec![0; 1500];
            let length = socket.recv(&mut reply).unwrap();
            reply.truncate(length);
            reply
        });
        read_reply(&reply)
    }

    /// The IPv4 address that stands for `name` inside.
    pub(crate) fn address(&self, name: &str) -> IpAddr {
        match &self.lookup(name, 1) {
            (0, addresses) => addresses[0],
            other => panic!("{name}: {other:?}"),
        }
    }

    /// Connects from the inside.
    pub(crate) fn connect_to(&self, address: IpAddr, port: u16) -> TcpStream {
        let stream = self
            .inside
            .run(|| TcpStream::connect((address, port)).unwrap());
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Looks `name` up and connects.
    pub(crate) fn connect(&self, name: &str, port: u16) -> TcpStream {
        self.connect_to(self.address(name), port)
    }

    /// Sends `bytes` to `name` and returns what comes back until the end, or until there is
    /// as much of it; an error is the end.
    pub(crate) fn exchange(&self, name: &str, port: u16, bytes: &[u8]) -> Vec<u8> {
        let mut stream = self.connect(name, port);
        exchange(&mut stream, bytes)
    }
}

/// Sends `bytes` and returns as many that come back, or fewer.
pub(crate) fn exchange(stream: &mut TcpStream, bytes: &[u8]) -> Vec<u8> {
    // A refusal may be faster.
    let _ = stream.write_all(bytes);
    let mut back = Vec::new();
    let mut buffer = [0; 4096];
    while back.len() < bytes.len() {
        match stream.read(&mut buffer) {
            Ok(count @ 1..) => back.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("no answer"),
            _ => break,
        }
    }
    back
}

/// The code and the addresses of a DNS reply.
pub(crate) fn read_reply(reply: &[u8]) -> (u8, Vec<IpAddr>) {
    assert_eq!(reply[..2], [0x12, 0x34]);
    let count = reply[7];
    let addresses = (0..count).map(|_| match reply[reply.len() - 5] {
        // The length before the last four bytes, or in the midst of sixteen.
        4 => IpAddr::from(<[u8; 4]>::try_from(&reply[reply.len() - 4..]).unwrap()),
        _ => IpAddr::from(<[u8; 16]>::try_from(&reply[reply.len() - 16..]).unwrap()),
    });
    (reply[3] & 15, addresses.collect())
}

impl Drop for Rig {
    fn drop(&mut self) {
        // It ends by itself when its control socket does; a failed scenario may not wait.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
