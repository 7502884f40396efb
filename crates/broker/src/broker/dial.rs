//! From a host that is allowed to a connection outside.

use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use super::source::Source;
use super::{Broker, QUEUE};
use crate::address;
use crate::connection::{Connection, Phase, Readiness};
use crate::relay::Turn;
use crate::report::{Opened, Reason, Report};
use crate::request::{Form, socks_reply};
use crate::resolve::Progress;
use crate::socket;
use hosts::{Host, Network};

/// How long one of several addresses may take.
const ONE_ADDRESS: Duration = Duration::from_secs(2);

/// How soon a host answers that is on this machine, or next to it. [`QUEUE`] holds what such
/// a path does at 20 Gbit/s, and the kernel would choose more.
const NEAR: Duration = Duration::from_micros(100);

impl Broker {
    /// Resolves the host, once for this connection.
    pub(super) fn begin_to_dial(
        &mut self,
        index: usize,
        connection: &mut Connection,
    ) -> Result<(), Reason> {
        let patience = Duration::from_millis(self.config.limits.dial_ms.into());
        connection.deadline = Instant::now() + patience;
        let progress = match &connection.host {
            Some(Host::Address(address)) => Progress::Found(vec![*address]),
            Some(Host::Name(name)) => match self.resolver.begin(name) {
                Ok(lookup) => {
                    connection.phase = Phase::Resolve(Box::new(lookup));
                    Progress::Moved
                }
                Err(progress) => progress,
            },
            None => Progress::Failed(Reason::UnknownAddress),
        };
        self.progress(index, connection, progress)
    }

    /// Goes on with a lookup whose descriptor is ready, or whose time is over.
    pub(super) fn step_lookup(&mut self, index: usize, expired: bool) {
        let Some(mut connection) = self.connections.get_mut(index).and_then(Option::take) else {
            return;
        };
        let progress = match &mut connection.phase {
            Phase::Resolve(lookup) if expired => lookup.expire(),
            Phase::Resolve(lookup) => lookup.ready(),
            _ => Progress::Waits,
        };
        let result = self
            .progress(index, &mut connection, progress)
            .and_then(|()| self.advance(index, &mut connection));
        self.put_back(index, connection, result);
    }

    fn progress(
        &mut self,
        index: usize,
        connection: &mut Connection,
        progress: Progress,
    ) -> Result<(), Reason> {
        match progress {
            Progress::Waits => Ok(()),
            Progress::Moved => match &connection.phase {
                Phase::Resolve(lookup) => self.watch_stream(lookup.fd(), Source::Lookup(index)),
                _ => Ok(()),
            },
            Progress::Failed(reason) => Err(reason),
            Progress::Found(addresses) => {
                connection.addresses = addresses.into();
                self.dial_next(index, connection)
            }
        }
    }

    /// Whether a rule writes this address out.
    fn is_written_out(&self, address: IpAddr, port: u16) -> bool {
        let permitted = |network: &Network| network.contains(address);
        self.config.rules.writes_out(address, port) || self.permit.iter().any(permitted)
    }

    /// Dials the next address that is allowed.
    fn dial_next(&mut self, index: usize, connection: &mut Connection) -> Result<(), Reason> {
        connection.upstream = None;
        connection.upstream_ready = Readiness::default();
        while let Some(address) = connection.addresses.pop_front() {
            let target = connection.target(address);
            let all = address::leads_to(address);
            let denied = |one: &IpAddr| self.config.rules.denies_address(*one, target.port());
            if all.iter().any(denied) {
                connection.failure = Reason::Denied;
                continue;
            }
            // At this address and no other: nothing is resolved again.
            let is_own = |one: &IpAddr| socket::is_own(SocketAddr::new(*one, target.port()));
            let refused = || address::is_refused(address) || all.iter().any(is_own);
            if !self.is_written_out(address, target.port()) && refused() {
                connection.failure = Reason::RefusedAddress;
                continue;
            }
            connection.dialled = Some(address);
            connection.dialled_at = Instant::now();
            let stream = match socket::connect(target) {
                Ok(stream) => stream,
                Err(error) => {
                    connection.failure = reason_of(&error);
                    continue;
                }
            };
            self.watch_stream(&stream, Source::Upstream(index))?;
            connection.upstream = Some(stream);
            connection.phase = Phase::Dial;
            connection.next_address = match connection.addresses.is_empty() {
                true => connection.deadline,
                false => Instant::now() + ONE_ADDRESS,
            };
            return Ok(());
        }
        Err(connection.failure)
    }

    /// Stops waiting for an address.
    pub(super) fn step_dial(&mut self, index: usize) {
        let Some(mut connection) = self.connections.get_mut(index).and_then(Option::take) else {
            return;
        };
        connection.failure = Reason::DialTimeout;
        let result = self.dial_next(index, &mut connection).map(|()| Turn::Waits);
        self.put_back(index, connection, result);
    }

    /// Whether the connection outside is made; `false` when it waits, perhaps for another
    /// address.
    pub(super) fn dialled(
        &mut self,
        index: usize,
        connection: &mut Connection,
    ) -> Result<bool, Reason> {
        let Some(upstream) = &connection.upstream else {
            return Err(connection.failure);
        };
        if !connection.upstream_ready.writable {
            // The client may leave meanwhile.
            return match connection.client_ready.ended && connection.client.peek(&mut [0]).is_err()
            {
                true => Err(Reason::ClientGone),
                false => Ok(false),
            };
        }
        match upstream.take_error() {
            Ok(None) => {}
            Ok(Some(error)) | Err(error) => {
                connection.failure = reason_of(&error);
                return self.dial_next(index, connection).map(|()| false);
            }
        }
        if upstream.peer_addr().is_err() {
            // The event was about another address's socket.
            connection.upstream_ready = Readiness::default();
            return Ok(false);
        }
        if connection.dialled_at.elapsed() < NEAR {
            socket::set_buffers(upstream, QUEUE);
        }
        self.established(connection)?;
        Ok(true)
    }

    fn established(&mut self, connection: &mut Connection) -> Result<(), Reason> {
        connection.upstream_ready.readable = true;
        // In a tunnel, the client has not yet spoken.
        let (phase, patience) = match connection.guard.awaits_first_bytes() {
            true => (Phase::Inspect, self.config.limits.first_bytes_ms),
            false => (Phase::Relay, self.config.limits.idle_ms),
        };
        connection.phase = phase;
        let idle = Duration::from_millis(patience.into());
        connection.deadline = Instant::now() + idle;
        let answer = match connection.form {
            Some(Form::Connect) => b"HTTP/1.1 200 Connection established\r\n\r\n".to_vec(),
            Some(Form::Socks) => socks_reply(0),
            Some(Form::Absolute) | None => Vec::new(),
        };
        (&connection.client)
            .write_all(&answer)
            .map_err(|_| Reason::ClientGone)?;
        connection.established = true;
        self.log.report(&Report::Opened(Opened {
            id: connection.id,
            host: connection.host_shown(),
            port: connection.port,
            via: connection.via,
        }));
        Ok(())
    }
}

fn reason_of(error: &io::Error) -> Reason {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Reason::ConnectionRefused,
        io::ErrorKind::TimedOut => Reason::DialTimeout,
        io::ErrorKind::ConnectionReset => Reason::Reset,
        _ => Reason::Unreachable,
    }
}
