//! A fake Internet in network namespaces of the tests' own: nothing leaves this machine.
//!
//! One namespace is the outside: every address in [`PUBLIC`] and in the ranges that a
//! broker refuses is local there, so that a server can be at any of them. Others are the
//! insides of cells, as their init makes them. All belong to a user namespace of this
//! process.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrIn6,
    bind, listen, recv, send, setsockopt, socket, sockopt,
};

/// How long anything may take that happens at once on an idle machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Networks whose addresses stand for hosts of the Internet.
pub(crate) const PUBLIC: [&str; 2] = ["93.184.0.0/16", "2600:1234::/32"];

/// Networks whose addresses no name may lead to, where a server can be.
const REFUSED: [&str; 14] = [
    "10.0.0.0/8",
    "100.64.0.0/10",
    "168.63.129.16/32",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.168.0.0/16",
    "fd00:ec2::/32",
    "fd20:ce::/64",
    "fe80::/64",
    "64:ff9b::/96",
    "2002::/16",
    "2001::/32",
    "::/96",
];

/// The outside, which this process is in.
pub(crate) struct Internet(());

/// Whose the addresses outside seem to be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    /// This host's.
    Own,
    /// Those of others: this host does not send from them.
    Others,
}

/// The inside of one cell.
pub(crate) struct Inside(File);

impl Internet {
    /// Makes the outside and enters it. For a process with one thread.
    ///
    /// # Errors
    /// Why this host does not allow it.
    pub(crate) fn new() -> Result<Self, String> {
        Self::within(
            CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET,
            Whose::Own,
        )
    }

    /// The same in these new namespaces, the network's among them.
    ///
    /// # Errors
    /// Why this host does not allow it.
    pub(crate) fn within(namespaces: CloneFlags, whose: Whose) -> Result<Self, String> {
        let told = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
        unshare(namespaces).map_err(|error| told("no namespaces")(error.into()))?;
        loopback_up().map_err(told("no lo"))?;
        for network in PUBLIC.iter().chain(&REFUSED) {
            local_route(network, whose).map_err(told("no routes"))?;
        }
        Ok(Self(()))
    }

    /// Makes the inside of a cell, in which these networks are local.
    pub(crate) fn cell(&self, networks: &[String]) -> Inside {
        let make = || {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
            loopback_up().expect("lo");
            for network in networks {
                local_route(network, Whose::Own).expect("a route");
            }
            Inside(File::open("/proc/thread-self/ns/net").expect("the namespace"))
        };
        thread::scope(|scope| scope.spawn(make).join().expect("a thread inside"))
    }
}

impl Inside {
    /// Does something inside, by a thread of its own.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let thread = scope.spawn(move || {
                setns(&self.0, CloneFlags::CLONE_NEWNET).expect("enter the inside");
                work()
            });
            thread.join().expect("a thread inside")
        })
    }
}

/// A listening socket; an IPv6 one takes IPv6 only. An IPv6 address that is local by its
/// route alone needs `IP_FREEBIND`.
pub(crate) fn listening(address: SocketAddr) -> OwnedFd {
    let fd = bound(address, SockType::Stream);
    listen(&fd, Backlog::MAXCONN).expect("listen");
    fd
}

/// A socket for datagrams.
pub(crate) fn datagrams(address: SocketAddr) -> OwnedFd {
    bound(address, SockType::Datagram)
}

fn bound(address: SocketAddr, kind: SockType) -> OwnedFd {
    let fd = socket(family(address), kind, SockFlag::SOCK_CLOEXEC, None).expect("socket");
    setsockopt(&fd, sockopt::ReuseAddr, &true).expect("reuse");
    setsockopt(&fd, sockopt::IpFreebind, &true).expect("free bind");
    match address {
        SocketAddr::V4(v4) => bind(fd.as_raw_fd(), &SockaddrIn::from(v4)).expect("bind"),
        SocketAddr::V6(v6) => {
            setsockopt(&fd, sockopt::Ipv6V6Only, &true).expect("only IPv6");
            bind(fd.as_raw_fd(), &SockaddrIn6::from(v6)).expect("bind");
        }
    }
    fd
}

fn family(address: SocketAddr) -> AddressFamily {
    match address {
        SocketAddr::V4(_) => AddressFamily::Inet,
        SocketAddr::V6(_) => AddressFamily::Inet6,
    }
}

/// Sends a request to the kernel's routing tables and waits for its answer (rtnetlink(7)).
fn netlink(kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
    const REQUEST_AND_ACK: u16 = 1 | 4;
    let protocol = SockProtocol::NetlinkRoute;
    let fd = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        protocol,
    )?;
    let length = u32::try_from(16 + body.len()).expect("short");
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend((flags | REQUEST_AND_ACK).to_ne_bytes());
    message.extend([1_u32.to_ne_bytes(), [0; 4]].concat());
    message.extend(body);
    send(fd.as_raw_fd(), &message, MsgFlags::empty())?;
    let mut answer = [0; 4096];
    let length = recv(fd.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    let code = answer
        .get(16..20)
        .filter(|_| length >= 20)
        .expect("an answer");
    match -i32::from_ne_bytes(code.try_into().expect("four bytes")) {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// The number of `lo` in every network namespace.
const LO: u32 = 1;

fn loopback_up() -> io::Result<()> {
    const NEWLINK: u16 = 16;
    const UP: u32 = 1;
    let body = [0_u32, LO, UP, UP].map(u32::to_ne_bytes).concat();
    netlink(NEWLINK, 0, &body)
}

fn local_route(network: &str, whose: Whose) -> io::Result<()> {
    const NEWROUTE: u16 = 24;
    const CREATE: u16 = 0x400;
    const REPLACE: u16 = 0x100;
    let (address, prefix) = network.split_once('/').expect("a network");
    let prefix: u8 = prefix.parse().expect("a prefix");
    let bytes = |address: IpAddr| match address {
        IpAddr::V4(v4) => (2_u8, v4.octets().to_vec()),
        IpAddr::V6(v6) => (10, v6.octets().to_vec()),
    };
    let address = address.parse().expect("an address");
    let loopback = match address {
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    let ((family, address), (_, source)) = (bytes(address), bytes(loopback));
    // Table local, protocol boot, scope host, type local.
    let mut body = vec![family, prefix, 0, 0, 255, 3, 254, 2, 0, 0, 0, 0];
    // Destination, device, preferred source.
    let all = [
        (1_u16, &address[..]),
        (4, &LO.to_ne_bytes()),
        (7, &source[..]),
    ];
    let count = if whose == Whose::Others { 3 } else { 2 };
    for (kind, content) in all.into_iter().take(count) {
        let length = u16::try_from(4 + content.len()).expect("short");
        body.extend(length.to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend(content);
    }
    netlink(NEWROUTE, CREATE | REPLACE, &body)
}

/// A server outside, with a thread for each connection. It ends with the process.
pub(crate) fn serve(
    address: &str,
    each: impl Fn(TcpStream) + Send + Sync + 'static,
) -> Arc<AtomicUsize> {
    let listener = TcpListener::from(listening(address.parse().expect("an address")));
    let count = Arc::new(AtomicUsize::new(0));
    let (counted, each) = (count.clone(), Arc::new(each));
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            counted.fetch_add(1, Ordering::SeqCst);
            let each = each.clone();
            thread::spawn(move || each(stream));
        }
    });
    count
}

/// Sends back what it gets, until the end.
pub(crate) fn echo(mut stream: TcpStream) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        if stream.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
}

/// One record of an answer.
#[derive(Clone, Debug)]
pub(crate) enum Record {
    /// An address, of the kind that was asked for.
    Address(IpAddr),
    /// The name is another one's alias.
    Alias(String),
}

/// What the fake resolver says about a name (in lower case), the n-th time that it is asked
/// for its IPv4 addresses; the first time is 1.
type Zone = dyn Fn(&str, usize) -> Option<Vec<Record>> + Send + Sync;

/// A fake resolver outside, by UDP and TCP.
pub(crate) struct Resolver {
    /// Where it is.
    pub(crate) address: SocketAddr,
    /// The names that it was asked for.
    pub(crate) asked: Arc<Mutex<Vec<String>>>,
}

impl Resolver {
    /// Starts one. With `truncate`, answers by UDP say that they did not fit.
    pub(crate) fn start(
        truncate: bool,
        zone: impl Fn(&str, usize) -> Option<Vec<Record>> + Send + Sync + 'static,
    ) -> Self {
        Self::at("127.0.0.1:0", truncate, zone)
    }

    /// Starts one at this address and port.
    pub(crate) fn at(
        address: &str,
        truncate: bool,
        zone: impl Fn(&str, usize) -> Option<Vec<Record>> + Send + Sync + 'static,
    ) -> Self {
        let udp = UdpSocket::bind(address).expect("the resolver's socket");
        let address = udp.local_addr().expect("its address");
        let tcp = TcpListener::bind(address).expect("the resolver's listener");
        let asked = Arc::new(Mutex::new(Vec::new()));
        let zone: Arc<Zone> = Arc::new(zone);
        let (log, zone_by_tcp, log_by_tcp) = (asked.clone(), zone.clone(), asked.clone());
        thread::spawn(move || {
            let mut query = [0; 1500];
            while let Ok((length, sender)) = udp.recv_from(&mut query) {
                let mut reply = answer(&query[..length], &*zone, &log);
                if truncate {
                    reply.truncate(length);
                    reply[2] |= 2;
                    reply[7] = 0;
                }
                let _ = udp.send_to(&reply, sender);
            }
        });
        thread::spawn(move || {
            for mut stream in tcp.incoming().flatten() {
                let mut length = [0; 2];
                while stream.read_exact(&mut length).is_ok() {
                    let mut query = vec![0; u16::from_be_bytes(length).into()];
                    if stream.read_exact(&mut query).is_err() {
                        break;
                    }
                    let reply = answer(&query, &*zone_by_tcp, &log_by_tcp);
                    let length = u16::try_from(reply.len()).expect("short").to_be_bytes();
                    let _ = stream.write_all(&[&length[..], &reply].concat());
                }
            }
        });
        Self { address, asked }
    }
}

fn answer(query: &[u8], zone: &Zone, asked: &Mutex<Vec<String>>) -> Vec<u8> {
    let mut at = 12;
    let mut labels = Vec::new();
    while query[at] != 0 {
        let end = at + 1 + usize::from(query[at]);
        labels.push(String::from_utf8_lossy(&query[at + 1..end]).to_lowercase());
        at = end;
    }
    let name = labels.join(".");
    let kind = query[at + 2];
    let question = &query[12..at + 5];
    let nth = {
        let mut asked = asked.lock().expect("the log");
        if kind == 1 {
            asked.push(name.clone());
        }
        asked.iter().filter(|known| **known == name).count().max(1)
    };
    let records = zone(&name, nth);
    let code = if records.is_some() { 0 } else { 3 };
    let mut body = Vec::new();
    let mut count = 0;
    let mut owner = vec![0xc0, 12];
    for record in records.unwrap_or_default() {
        let (kind_of_record, data) = match record {
            Record::Address(IpAddr::V4(v4)) => (1, v4.octets().to_vec()),
            Record::Address(IpAddr::V6(v6)) => (28, v6.octets().to_vec()),
            Record::Alias(target) => (5, wire_name(&target)),
        };
        if kind_of_record != kind && kind_of_record != 5 {
            continue;
        }
        count += 1;
        let length = u8::try_from(data.len()).expect("short");
        body.extend(
            [
                &owner[..],
                &[0, kind_of_record, 0, 1, 0, 0, 0, 0, 0, length],
                &data,
            ]
            .concat(),
        );
        if kind_of_record == 5 {
            owner = data;
        }
    }
    let header = [
        query[0],
        query[1],
        0x81,
        0x80 | code,
        0,
        1,
        0,
        count,
        0,
        0,
        0,
        0,
    ];
    [&header[..], question, &body].concat()
}

fn wire_name(name: &str) -> Vec<u8> {
    let mut wire = Vec::new();
    for label in name.trim_end_matches('.').split('.') {
        wire.push(u8::try_from(label.len()).expect("a label"));
        wire.extend(label.bytes());
    }
    wire.push(0);
    wire
}

/// A DNS query of the cell.
pub(crate) fn query(name: &str, kind: u16) -> Vec<u8> {
    let mut query = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    query.extend(wire_name(name));
    query.extend(kind.to_be_bytes());
    query.extend([0, 1]);
    query
}
