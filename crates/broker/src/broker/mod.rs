//! The loop: one thread, which waits for all sockets at once (epoll(7)).

mod accept;
mod dial;
mod ends;
mod marks;
mod names;
mod source;

use std::collections::VecDeque;
use std::io::Read as _;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use self::marks::Marks;
use self::names::DnsClient;
use self::source::Source;
use crate::config::{Config, Sockets};
use crate::connection::{Connection, Phase, Readiness};
use crate::guard::Secrets;
use crate::guard::http::Secret;
use crate::log::Log;
use crate::rate::Rate;
use crate::relay::{Budget, Pipes, Turn, relay};
use crate::report::{Reason, Report, Via};
use crate::resolve::Resolver;
use crate::synthetic::Names;
use crate::terminate::{Terminated, Terms};
use hosts::{Name, Network};

/// How much is passed on at once, in bytes.
const BUFFER: usize = 256 << 10;

/// The queues between the cell and the broker, in bytes each. Their ends are on one machine,
/// so more would only wait, and not in the processor's cache.
const QUEUE: usize = 256 << 10;

/// The most events of a turn.
const EVENTS: usize = 256;

/// How often deadlines are looked at, while something has one.
const TICK: Duration = Duration::from_millis(50);

/// How long a client has to read why it was refused.
const LINGER: Duration = Duration::from_secs(1);

/// A listening socket of the cell.
struct Listener {
    socket: TcpListener,
    /// How connections to it are asked for; `Dns` for DNS by TCP.
    via: Via,
}

/// One cell's broker.
pub(crate) struct Broker {
    config: Config,
    permit: Vec<Network>,
    epoll: Epoll,
    control: std::fs::File,
    listeners: Vec<Listener>,
    dns: Vec<UdpSocket>,
    dns_clients: Vec<Option<DnsClient>>,
    connections: Vec<Option<Box<Connection>>>,
    /// Places for new connections.
    free: Vec<usize>,
    /// Places that become free after the events of this turn, some of which may be about
    /// what was there.
    freed: Vec<usize>,
    /// Connections that have more to do at once.
    busy: VecDeque<usize>,
    live: u32,
    last_id: u64,
    rate: Option<Rate>,
    names: Names,
    /// By host and port.
    secrets: Vec<((Name, u16), Secrets)>,
    terms: Option<Terms>,
    resolver: Resolver,
    log: Log,
    buffer: Vec<u8>,
    pipes: Pipes,
    marks: Marks,
    ticked: Instant,
}

impl Broker {
    pub(crate) fn new(
        mut config: Config,
        sockets: Sockets,
        control: OwnedFd,
        log: Log,
    ) -> std::io::Result<Self> {
        let direct = sockets
            .tcp
            .into_iter()
            .map(|(_, socket)| (socket, Via::Direct));
        let dns = sockets.dns_tcp.into_iter().map(|socket| (socket, Via::Dns));
        let proxy = sockets
            .proxy
            .into_iter()
            .map(|socket| (socket, Via::Connect));
        let socks = sockets
            .socks
            .into_iter()
            .map(|socket| (socket, Via::Socks5));
        let mut listeners = Vec::new();
        for (socket, via) in direct.chain(dns).chain(proxy).chain(socks) {
            let socket = TcpListener::from(socket);
            socket.set_nonblocking(true)?;
            crate::socket::set_buffers(&socket, QUEUE);
            listeners.push(Listener { socket, via });
        }
        let dns: Vec<UdpSocket> = sockets.dns_udp.into_iter().map(UdpSocket::from).collect();
        let broker = Self {
            permit: (config.upstream.permit.iter())
                .filter_map(|text| Network::parse(text).ok())
                .collect(),
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            control: control.into(),
            listeners,
            dns,
            dns_clients: Vec::new(),
            connections: Vec::new(),
            free: Vec::new(),
            freed: Vec::new(),
            busy: VecDeque::new(),
            live: 0,
            last_id: 0,
            rate: config.limits.connections_per_second.map(Rate::new),
            names: Names::default(),
            terms: Terms::new(&config)?,
            secrets: take_secrets(&mut config)?,
            resolver: Resolver::new(&config.upstream),
            log,
            buffer: vec![0; BUFFER],
            pipes: Pipes::default(),
            marks: Marks::default(),
            ticked: Instant::now(),
            config,
        };
        broker.watch(&broker.control, Source::Control, EpollFlags::EPOLLIN)?;
        for (index, listener) in broker.listeners.iter().enumerate() {
            broker.watch(
                &listener.socket,
                Source::Listener(index),
                EpollFlags::EPOLLIN,
            )?;
        }
        for (index, socket) in broker.dns.iter().enumerate() {
            socket.set_nonblocking(true)?;
            broker.watch(socket, Source::Dns(index), EpollFlags::EPOLLIN)?;
        }
        let changes = EpollFlags::EPOLLOUT | EpollFlags::EPOLLET;
        broker.watch(broker.log.out(), Source::Reports, changes)?;
        Ok(broker)
    }

    /// The log, for what is reported before the loop begins.
    pub(crate) fn log(&mut self) -> &mut Log {
        &mut self.log
    }

    fn watch(&self, fd: impl AsFd, source: Source, flags: EpollFlags) -> Result<(), Errno> {
        self.epoll.add(fd, EpollEvent::new(flags, source.token()))
    }

    /// Watches a socket of a connection, for changes in both directions.
    fn watch_stream(&self, fd: impl AsFd, source: Source) -> Result<(), Reason> {
        let flags = EpollFlags::EPOLLIN
            | EpollFlags::EPOLLOUT
            | EpollFlags::EPOLLRDHUP
            | EpollFlags::EPOLLET;
        self.watch(fd, source, flags).map_err(|_| Reason::Resources)
    }

    /// Serves the cell until the control socket ends.
    pub(crate) fn run(mut self) {
        let mut events = [EpollEvent::empty(); EVENTS];
        loop {
            self.log.flush();
            let count = match self.epoll.wait(&mut events, self.patience()) {
                Ok(count) => count,
                Err(Errno::EINTR) => 0,
                Err(_) => break,
            };
            let mut worked = !self.busy.is_empty();
            for event in &events[..count] {
                let Some(source) = Source::of(event.data()) else {
                    continue;
                };
                if source == Source::Control {
                    if self.control_ended() {
                        return self.end();
                    }
                    continue;
                }
                worked |= source != Source::Reports;
                self.event(source, event.events());
            }
            for _ in 0..self.busy.len() {
                if let Some(index) = self.busy.pop_front() {
                    self.step(index);
                }
            }
            if self.ticked.elapsed() >= TICK {
                self.ticked = Instant::now();
                self.tick();
            }
            self.free.append(&mut self.freed);
            if let Some(mark) = self.marks.turn(worked) {
                self.log.report_counts();
                self.log.report(&Report::Mark(mark));
            }
        }
        self.end();
    }

    fn patience(&self) -> EpollTimeout {
        if !self.busy.is_empty() || self.marks.is_asked() {
            return EpollTimeout::ZERO;
        }
        let waits = self.live > 0 || self.dns_clients.iter().any(Option::is_some);
        match waits || self.log.is_waiting() {
            true => EpollTimeout::try_from(TICK).unwrap_or(EpollTimeout::ZERO),
            false => EpollTimeout::NONE,
        }
    }

    /// Whether the supervisor has ended, or has closed its side. Each byte asks for a mark.
    fn control_ended(&mut self) -> bool {
        let mut asked = [0; 64];
        match self.control.read(&mut asked) {
            Ok(count) => {
                self.marks.ask(count);
                count == 0
            }
            Err(error) => !matches!(
                error.kind(),
                std::io::ErrorKind::Interrupted | std::io::ErrorKind::WouldBlock
            ),
        }
    }

    fn event(&mut self, source: Source, flags: EpollFlags) {
        let gone = flags.intersects(EpollFlags::EPOLLERR | EpollFlags::EPOLLHUP);
        let ended = gone || flags.contains(EpollFlags::EPOLLRDHUP);
        let note = |ready: &mut Readiness| {
            ready.readable |= ended || flags.contains(EpollFlags::EPOLLIN);
            ready.writable |= gone || flags.contains(EpollFlags::EPOLLOUT);
            ready.ended |= ended;
        };
        match source {
            Source::Control | Source::Reports => {}
            Source::Listener(index) => self.accept(index),
            Source::Dns(index) => self.answer_datagrams(index),
            Source::DnsClient(index) => self.answer_stream(index),
            Source::Lookup(index) => self.step_lookup(index, false),
            Source::Client(index) => {
                if let Some(Some(connection)) = self.connections.get_mut(index) {
                    note(&mut connection.client_ready);
                    self.step(index);
                }
            }
            Source::Upstream(index) => {
                if let Some(Some(connection)) = self.connections.get_mut(index) {
                    note(&mut connection.upstream_ready);
                    self.step(index);
                }
            }
        }
    }

    /// Does what a connection can do now.
    fn step(&mut self, index: usize) {
        let Some(mut connection) = self.connections.get_mut(index).and_then(Option::take) else {
            return;
        };
        let result = self.advance(index, &mut connection);
        self.put_back(index, connection, result);
    }

    /// Keeps a connection, or ends it.
    fn put_back(
        &mut self,
        index: usize,
        mut connection: Box<Connection>,
        result: Result<Turn, Reason>,
    ) {
        match result {
            Ok(Turn::Waits) => {}
            Ok(Turn::Ready) if self.busy.contains(&index) => {}
            Ok(Turn::Ready) => self.busy.push_back(index),
            Ok(Turn::Over) => {
                if !matches!(connection.phase, Phase::Linger) {
                    self.closed(&connection, None);
                }
                return self.release(index);
            }
            Err(reason) => {
                self.closed(&connection, Some(reason));
                if !connection.explain(reason) {
                    connection.reset();
                    return self.release(index);
                }
                // What the host has so far is not complete.
                if let Some(upstream) = connection.upstream.take() {
                    crate::socket::reset(&upstream);
                }
                connection.phase = Phase::Linger;
                connection.deadline = Instant::now() + LINGER;
            }
        }
        if let Some(place) = self.connections.get_mut(index) {
            *place = Some(connection);
        }
    }

    /// Gives a place back whose connection has been dropped.
    fn release(&mut self, index: usize) {
        self.live -= 1;
        self.freed.push(index);
    }

    fn advance(&mut self, index: usize, connection: &mut Connection) -> Result<Turn, Reason> {
        loop {
            match connection.phase {
                Phase::Request => {
                    if !self.read_request(index, connection)? {
                        return Ok(Turn::Waits);
                    }
                }
                Phase::Inspect => {
                    if !self.inspect(connection)? {
                        return Ok(Turn::Waits);
                    }
                    match connection.established {
                        true => connection.phase = Phase::Relay,
                        false => self.begin_to_dial(index, connection)?,
                    }
                }
                Phase::Resolve(_) => return Ok(Turn::Waits),
                Phase::Dial => {
                    if !self.dialled(index, connection)? {
                        return Ok(Turn::Waits);
                    }
                }
                Phase::Relay => return self.relay(connection),
                Phase::Linger => {
                    let ended = connection.drain(&mut self.buffer);
                    return Ok(if ended { Turn::Over } else { Turn::Waits });
                }
            }
        }
    }

    fn relay(&mut self, connection: &mut Connection) -> Result<Turn, Reason> {
        let totals = &mut self.log.totals;
        let limits = &self.config.limits;
        let left =
            |most: Option<u64>, used| most.map_or(u64::MAX, |most| most.saturating_sub(used));
        let budget = Budget {
            sent: left(limits.sent_bytes, totals.sent),
            received: left(limits.received_bytes, totals.received),
        };
        let before = (connection.sent, connection.received);
        if connection.terminated.is_none()
            && let (Some((name, requests)), Some(terms)) =
                (connection.guard.inside_tls(), &self.terms)
        {
            let terminated = Terminated::new(terms, name.as_str(), requests)?;
            connection.terminated = Some(Box::new(terminated));
        }
        let result = match connection.terminated.take() {
            Some(mut terminated) => {
                let result = terminated.pass(connection, &mut self.buffer, &budget);
                connection.terminated = Some(terminated);
                result
            }
            None => relay(connection, &mut self.buffer, &mut self.pipes, &budget),
        };
        let (sent, received) = (connection.sent - before.0, connection.received - before.1);
        totals.sent += sent;
        totals.received += received;
        if result == Err(Reason::ByteLimit) {
            let sent = left(limits.sent_bytes, totals.sent) == 0;
            self.log
                .limit(if sent { "sent_bytes" } else { "received_bytes" });
        }
        if sent + received > 0 {
            let idle = Duration::from_millis(limits.idle_ms.into());
            connection.deadline = Instant::now() + idle;
        }
        result
    }
}

/// The secret fields for each host and port. The configuration keeps none.
fn take_secrets(config: &mut Config) -> std::io::Result<Vec<((Name, u16), Secrets)>> {
    // Its key is in the terms.
    config.certificate = None;
    let mut places: Vec<((Name, u16), bool, Vec<Secret>)> = Vec::new();
    for header in config.secrets.drain(..) {
        let fail = |why: &str| std::io::Error::other(format!("secret of {}: {why}", header.host));
        let name = Name::parse(&header.host).map_err(|_| fail("it is no name"))?;
        let place = (name, header.port);
        let secret = Secret {
            name: header.name,
            value: header.value,
        };
        match places.iter_mut().find(|(known, ..)| *known == place) {
            Some((_, tls, _)) if *tls != header.tls => {
                return Err(fail("its port is both plain and TLS"));
            }
            Some((.., fields)) => fields.push(secret),
            None => places.push((place, header.tls, vec![secret])),
        }
    }
    let secrets = |(place, tls, fields): ((Name, u16), bool, Vec<Secret>)| {
        let fields = fields.into();
        (place, Secrets { fields, tls })
    };
    Ok(places.into_iter().map(secrets).collect())
}
