//! Resolving a name outside of the cell: hosts(5), then the servers of resolv.conf(5), by
//! UDP and, when an answer does not fit, by TCP. No library does that without a thread or
//! files that the broker may not read (nsswitch.conf(5)).

mod files;
mod message;

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use self::files::{Followed, Hosts};
use self::message::{Answer, Kind, MAX_DATAGRAM};
use crate::config::Upstream;
use crate::report::Reason;
use crate::socket;
use hosts::Name;

/// How long a server may take before the next one is asked.
const PATIENCE: Duration = Duration::from_millis(1500);

/// How long one family's answer is waited for when the other one's has addresses.
const OTHER_FAMILY: Duration = Duration::from_millis(200);

/// How often each server is asked.
const ROUNDS: usize = 2;

/// The most messages from one server that are no answer.
const MOST_WRONG: u32 = 100;

/// The most names that lead to the one with an address.
const MOST_ALIASES: usize = 8;

/// Where names are resolved.
pub(crate) struct Resolver {
    hosts: Followed<Hosts>,
    servers: Followed<Vec<SocketAddr>>,
    only: Option<SocketAddr>,
}

/// A name that is being resolved.
pub(crate) struct Lookup {
    name: Name,
    aliases: usize,
    alias: Option<Name>,
    servers: Vec<SocketAddr>,
    attempt: usize,
    wrong: u32,
    transport: Transport,
    queries: Vec<Pending>,
    found: Vec<IpAddr>,
    failed: bool,
    deadline: Instant,
}

struct Pending {
    id: u16,
    kind: Kind,
}

enum Transport {
    Udp(UdpSocket),
    Tcp {
        stream: TcpStream,
        unsent: Vec<u8>,
        received: Vec<u8>,
    },
}

/// How far a lookup is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It waits for its descriptor, or for [`Lookup::deadline`].
    Waits,
    /// It waits for another descriptor than before.
    Moved,
    /// These are the name's addresses.
    Found(Vec<IpAddr>),
    /// It failed.
    Failed(Reason),
}

impl Resolver {
    pub(crate) fn new(upstream: &Upstream) -> Self {
        Self {
            hosts: Followed::new(&upstream.hosts, files::hosts),
            servers: Followed::new(&upstream.resolv_conf, files::servers),
            only: upstream.resolver,
        }
    }

    /// Begins to resolve `name`.
    ///
    /// # Errors
    /// The addresses when they are known already, or why no server can be asked.
    pub(crate) fn begin(&mut self, name: &Name) -> Result<Lookup, Progress> {
        let hosts = self.hosts.content().iter();
        let known: Vec<IpAddr> = hosts
            .filter(|(known, _)| known == name)
            .map(|(_, address)| *address)
            .collect();
        if !known.is_empty() {
            return Err(Progress::Found(known));
        }
        let servers = match self.only {
            Some(server) => vec![server],
            None => match self.servers.content() {
                // The file is missing.
                servers if servers.is_empty() => vec![SocketAddr::from(([127, 0, 0, 1], 53))],
                servers => servers.clone(),
            },
        };
        Lookup::start(name.clone(), servers)
    }
}

impl Lookup {
    fn start(name: Name, servers: Vec<SocketAddr>) -> Result<Self, Progress> {
        let unbound = udp(None).map_err(|_| Progress::Failed(Reason::Resources))?;
        let mut lookup = Self {
            name,
            aliases: 0,
            alias: None,
            servers,
            attempt: 0,
            wrong: 0,
            transport: Transport::Udp(unbound),
            queries: Vec::new(),
            found: Vec::new(),
            failed: false,
            deadline: Instant::now(),
        };
        match lookup.ask() {
            Progress::Moved => Ok(lookup),
            other => Err(other),
        }
    }

    /// Its descriptor.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        match &self.transport {
            Transport::Udp(socket) => socket.as_fd(),
            Transport::Tcp { stream, .. } => stream.as_fd(),
        }
    }

    /// When [`Self::expire`] must be called.
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Asks the next server for both families, by a socket of its own: a random port, and
    /// ids that are random as well.
    fn ask(&mut self) -> Progress {
        while self.attempt < self.servers.len() * ROUNDS {
            let server = self.servers[self.attempt % self.servers.len()];
            self.attempt += 1;
            self.wrong = 0;
            self.found.clear();
            self.failed = false;
            self.alias = None;
            let Ok(socket) = udp(Some(server)) else {
                continue;
            };
            let Some(messages) = self.new_queries() else {
                return Progress::Failed(Reason::NoAddress);
            };
            self.deadline = Instant::now() + PATIENCE;
            let sent = messages.iter().all(|message| socket.send(message).is_ok());
            self.transport = Transport::Udp(socket);
            if sent {
                return Progress::Moved;
            }
        }
        Progress::Failed(Reason::NoResolver)
    }

    fn new_queries(&mut self) -> Option<Vec<Vec<u8>>> {
        let ids: [u8; 4] = sys::random::random().ok()?;
        self.queries = vec![
            Pending {
                id: u16::from_le_bytes([ids[0], ids[1]]),
                kind: Kind::Ipv4,
            },
            Pending {
                id: u16::from_le_bytes([ids[2], ids[3]]),
                kind: Kind::Ipv6,
            },
        ];
        self.messages()
    }

    fn messages(&self) -> Option<Vec<Vec<u8>>> {
        let query = |pending: &Pending| message::query(pending.id, &self.name, pending.kind);
        self.queries.iter().map(query).collect()
    }

    /// Its time is over.
    pub(crate) fn expire(&mut self) -> Progress {
        match self.found.is_empty() {
            true => self.ask(),
            false => Progress::Found(std::mem::take(&mut self.found)),
        }
    }

    /// Its descriptor is ready.
    pub(crate) fn ready(&mut self) -> Progress {
        match &mut self.transport {
            Transport::Udp(_) => self.datagrams(),
            Transport::Tcp { .. } => match self.stream() {
                Ok(progress) => progress,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Progress::Waits,
                Err(_) => self.expire(),
            },
        }
    }

    fn datagrams(&mut self) -> Progress {
        let mut buffer = [0; MAX_DATAGRAM];
        loop {
            let Transport::Udp(socket) = &self.transport else {
                return Progress::Waits;
            };
            let answer = match socket.recv(&mut buffer) {
                Ok(length) => self.match_answer(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Progress::Waits,
                // The server's host says that nothing listens there.
                Err(_) => return self.expire(),
            };
            match answer {
                None if self.is_hostile() => return self.expire(),
                None => {}
                Some((_, Answer::Truncated)) => return self.go_on_by_tcp(),
                Some((index, answer)) => {
                    if let Some(progress) = self.take(index, answer) {
                        return progress;
                    }
                }
            }
        }
    }

    /// Counts a message that is no answer: whether that was one too many. Nobody else waits
    /// while they are read.
    fn is_hostile(&mut self) -> bool {
        self.wrong += 1;
        self.wrong > MOST_WRONG
    }

    fn match_answer(&self, bytes: &[u8]) -> Option<(usize, Answer)> {
        let mut queries = self.queries.iter().enumerate();
        queries.find_map(|(index, query)| {
            Some((
                index,
                message::read(bytes, query.id, &self.name, query.kind)?,
            ))
        })
    }

    /// Takes the answer to a query; `None` when others are still open.
    fn take(&mut self, index: usize, answer: Answer) -> Option<Progress> {
        self.queries.swap_remove(index);
        match answer {
            Answer::Addresses(addresses) => self.found.extend(addresses),
            Answer::Alias(name) => self.alias = Some(name),
            Answer::Truncated | Answer::Failure => self.failed = true,
        }
        if self.queries.is_empty() {
            return Some(self.all_answered());
        }
        if !self.found.is_empty() {
            self.deadline = self.deadline.min(Instant::now() + OTHER_FAMILY);
        }
        None
    }

    fn all_answered(&mut self) -> Progress {
        if !self.found.is_empty() {
            return Progress::Found(std::mem::take(&mut self.found));
        }
        // Servers that resolve for others follow aliases. Where one family has no address,
        // an alias is all that is left of it.
        if let Some(alias) = self.alias.take().filter(|_| self.aliases < MOST_ALIASES) {
            self.aliases += 1;
            self.name = alias;
            self.attempt = 0;
            return self.ask();
        }
        match self.failed {
            true => self.ask(),
            false => Progress::Failed(Reason::NoAddress),
        }
    }

    fn go_on_by_tcp(&mut self) -> Progress {
        let server = self.servers[(self.attempt - 1) % self.servers.len()];
        let Some(messages) = self.messages() else {
            return Progress::Failed(Reason::NoAddress);
        };
        let Ok(stream) = socket::connect(server) else {
            return self.ask();
        };
        let mut unsent = Vec::new();
        for message in messages {
            unsent.extend_from_slice(&u16::try_from(message.len()).unwrap_or(0).to_be_bytes());
            unsent.extend_from_slice(&message);
        }
        self.deadline = Instant::now() + PATIENCE;
        self.transport = Transport::Tcp {
            stream,
            unsent,
            received: Vec::new(),
        };
        Progress::Moved
    }

    fn stream(&mut self) -> io::Result<Progress> {
        loop {
            while let Some(message) = self.next_message() {
                match self.match_answer(&message) {
                    None if self.is_hostile() => return Ok(self.expire()),
                    None => {}
                    Some((index, answer)) => {
                        if let Some(progress) = self.take(index, answer) {
                            return Ok(progress);
                        }
                    }
                }
            }
            let Transport::Tcp {
                stream,
                unsent,
                received,
            } = &mut self.transport
            else {
                return Ok(Progress::Waits);
            };
            while !unsent.is_empty() {
                let count = stream.write(unsent).map_err(not_connected)?;
                unsent.drain(..count);
            }
            let mut buffer = [0; 4096];
            match stream.read(&mut buffer).map_err(not_connected)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => received.extend_from_slice(&buffer[..count]),
            }
        }
    }

    /// Removes the next complete message from the bytes received over TCP.
    fn next_message(&mut self) -> Option<Vec<u8>> {
        let Transport::Tcp { received, .. } = &mut self.transport else {
            return None;
        };
        let length: [u8; 2] = received.get(..2)?.try_into().ok()?;
        let end = 2 + usize::from(u16::from_be_bytes(length));
        let message = received.get(2..end)?.to_vec();
        received.drain(..end);
        Some(message)
    }
}

/// The addresses in an answer to a query with this id, of either kind.
#[cfg(any(test, fuzzing))]
pub(crate) fn read_answer(bytes: &[u8], id: u16, name: &Name) -> Vec<IpAddr> {
    let kinds = [Kind::Ipv4, Kind::Ipv6];
    let answers = kinds.map(|kind| message::read(bytes, id, name, kind));
    let mut found = Vec::new();
    for answer in answers.into_iter().flatten() {
        if let Answer::Addresses(addresses) = answer {
            found.extend(addresses);
        }
    }
    found
}

/// A connection that is being made reports that as an error of its own.
fn not_connected(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::NotConnected => io::ErrorKind::WouldBlock.into(),
        _ => error,
    }
}

/// A socket for one server: the kernel chooses a random port, and drops what others send.
fn udp(server: Option<SocketAddr>) -> io::Result<UdpSocket> {
    let any: IpAddr = match server {
        Some(SocketAddr::V6(_)) => Ipv6Addr::UNSPECIFIED.into(),
        _ => Ipv4Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.set_nonblocking(true)?;
    if let Some(server) = server {
        socket.connect(server)?;
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that sends wrong answers without end is given up, and so is the name.
    #[test]
    fn wrong_answers_come_to_an_end() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let servers = vec![server.local_addr().unwrap()];
        let mut lookup = Lookup::start(Name::parse("example.com").unwrap(), servers).unwrap();
        let mut query = [0; 512];
        for attempt in 1..=ROUNDS {
            // Both families.
            let (length, _) = server.recv_from(&mut query).unwrap();
            let (_, sender) = server.recv_from(&mut query).unwrap();
            query[0] ^= 0xff;
            query[2] |= 0x80;
            for number in 0..=MOST_WRONG {
                assert_eq!(lookup.ready(), Progress::Waits, "{number}");
                server.send_to(&query[..length], sender).unwrap();
            }
            let progress = match attempt {
                ROUNDS => Progress::Failed(Reason::NoResolver),
                _ => Progress::Moved,
            };
            assert_eq!(lookup.ready(), progress);
        }
    }
}
