//! New connections, and what they ask for.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::Broker;
use super::source::Source;
use crate::connection::{Connection, Phase, Readiness};
use crate::guard::{Guard, Secrets};
use crate::report::{Reason, Via};
use crate::request::{self, Asked, Form, MAX_REQUEST};
use crate::synthetic::Names;
use hosts::NameChecks;
use hosts::{Host, Name};

/// The most connections that are accepted in a turn.
const TURN: usize = 64;

impl Broker {
    pub(super) fn accept(&mut self, index: usize) {
        for _ in 0..TURN {
            let Some(listener) = self.listeners.get(index) else {
                return;
            };
            let via = listener.via;
            let Ok((client, _)) = listener.socket.accept() else {
                return;
            };
            if via == Via::Dns {
                self.accept_dns(client);
            } else {
                self.accepted(client, via);
            }
        }
    }

    fn accepted(&mut self, client: TcpStream, via: Via) {
        self.log.totals.connections += 1;
        let Ok(local) = client.local_addr() else {
            return;
        };
        let usable = client.set_nonblocking(true).is_ok() && client.set_nodelay(true).is_ok();
        if let Err(limit) = self.within_limits() {
            self.log.limit(limit);
            return self.turn_away(client, local, via, Reason::ConnectionLimit);
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        if !usable || self.watch_stream(&client, Source::Client(index)).is_err() {
            self.free.push(index);
            return self.turn_away(client, local, via, Reason::Resources);
        }
        self.live += 1;
        self.log.totals.peak = self.log.totals.peak.max(self.live);
        self.last_id += 1;
        let patience = Duration::from_millis(self.config.limits.first_bytes_ms.into());
        let until = Instant::now() + patience;
        let mut connection = Box::new(Connection::new(self.last_id, via, client, local, until));
        // Often so; otherwise the first attempt finds out.
        connection.client_ready = Readiness {
            readable: true,
            writable: true,
            ended: false,
        };
        let result = match via {
            Via::Direct => self
                .decide(
                    index,
                    &mut connection,
                    self.host_of(local.ip()),
                    local.port(),
                )
                .and_then(|()| self.advance(index, &mut connection)),
            _ => self.advance(index, &mut connection),
        };
        self.put_back(index, connection, result);
    }

    fn within_limits(&mut self) -> Result<(), &'static str> {
        let limits = &self.config.limits;
        if self.live >= limits.connections {
            return Err("connections");
        }
        if limits
            .connections_total
            .is_some_and(|most| self.last_id >= most)
        {
            return Err("connections_total");
        }
        if self.rate.as_mut().is_some_and(|rate| !rate.take()) {
            return Err("connections_per_second");
        }
        Ok(())
    }

    /// Refuses a connection of which nothing is kept.
    fn turn_away(&mut self, client: TcpStream, local: SocketAddr, via: Via, reason: Reason) {
        crate::socket::reset(&client);
        self.log.totals.refused += 1;
        let host = match self.host_of(local.ip()) {
            Ok(host) => host.to_string(),
            Err(_) => local.ip().to_string(),
        };
        self.log.refused(&host, Some(local.port()), via, reason);
    }

    /// What an address stands for that the cell has connected to.
    fn host_of(&self, address: IpAddr) -> Result<Host, Reason> {
        let address = address.to_canonical();
        match self.names.name(address) {
            Some(name) => Ok(Host::Name(name.clone())),
            None if Names::contain(address) => Err(Reason::UnknownAddress),
            None => Ok(Host::Address(address)),
        }
    }

    /// Decides whether a connection may go on.
    pub(super) fn decide(
        &mut self,
        index: usize,
        connection: &mut Connection,
        host: Result<Host, Reason>,
        port: u16,
    ) -> Result<(), Reason> {
        let host = host?;
        connection.port = port;
        connection.host = Some(host.clone());
        self.config.rules.check(&host, port)?;
        connection.guard = match (&host, self.config.check_names) {
            (Host::Name(name), NameChecks::On) => {
                Guard::of(name.clone(), port, self.secrets_of(name, port))
            }
            _ => Guard::open(),
        };
        // Clients of a tunnel wait for its reply before they say more.
        let waits = matches!(connection.form, Some(Form::Connect | Form::Socks));
        if connection.guard.comes_first() && !waits {
            connection.phase = Phase::Inspect;
            return Ok(());
        }
        self.begin_to_dial(index, connection)
    }

    /// The fields for requests to a host.
    fn secrets_of(&self, name: &Name, port: u16) -> Secrets {
        let of_host = self
            .secrets
            .iter()
            .find(|((host, at), _)| host == name && *at == port);
        of_host
            .map(|(_, secrets)| secrets.clone())
            .unwrap_or_default()
    }

    /// Reads what a proxy's client asks for; `false` when it waits for more.
    pub(super) fn read_request(
        &mut self,
        index: usize,
        connection: &mut Connection,
    ) -> Result<bool, Reason> {
        let Some(seen) = self.peek(connection, MAX_REQUEST)? else {
            return Ok(false);
        };
        let bytes = &self.buffer[..seen];
        let asked = match connection.via {
            Via::Socks5 => request::socks(bytes, connection.greeted)?,
            _ => request::http(bytes)?,
        };
        match asked {
            Asked::Incomplete => {
                connection.client_ready.readable = false;
                match connection.client_ready.ended {
                    true => Err(Reason::ClientGone),
                    false => Ok(false),
                }
            }
            Asked::Continue(length, answer) => {
                self.take_and_answer(connection, length, &answer)?;
                connection.greeted = true;
                Ok(true)
            }
            Asked::For(length, host, port, form) => {
                self.take_and_answer(connection, length, &[])?;
                connection.form = Some(form);
                let host = match host {
                    // A client that has resolved the name by itself.
                    Host::Address(address) => {
                        connection.shown = address.to_string();
                        connection.port = port;
                        self.host_of(address)
                    }
                    name => Ok(name),
                };
                self.decide(index, connection, host, port).map(|()| true)
            }
        }
    }

    fn take_and_answer(
        &mut self,
        connection: &Connection,
        length: usize,
        answer: &[u8],
    ) -> Result<(), Reason> {
        use std::io::Write as _;
        if length > 0 {
            crate::socket::discard(&connection.client, &mut self.buffer, length)
                .map_err(|_| Reason::Reset)?;
        }
        // The queue of a new connection has room for it.
        (&connection.client)
            .write_all(answer)
            .map_err(|_| Reason::Reset)
    }

    /// Looks at the first bytes; `false` when it waits for more.
    pub(super) fn inspect(&mut self, connection: &mut Connection) -> Result<bool, Reason> {
        let Some(seen) = self.peek(connection, self.buffer.len())? else {
            return Ok(false);
        };
        if connection.guard.inspect(&self.buffer[..seen])? {
            return Ok(true);
        }
        connection.client_ready.readable = false;
        match connection.client_ready.ended {
            true => Err(Reason::ClientGone),
            false => Ok(false),
        }
    }

    /// How many bytes of the client wait, and are in the buffer now.
    fn peek(&mut self, connection: &mut Connection, most: usize) -> Result<Option<usize>, Reason> {
        if !connection.client_ready.readable {
            return Ok(None);
        }
        match connection.client.peek(&mut self.buffer[..most]) {
            Ok(0) => Err(Reason::ClientGone),
            Ok(seen) => Ok(Some(seen)),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                connection.client_ready.readable = false;
                Ok(None)
            }
            Err(_) => Err(Reason::ClientGone),
        }
    }
}
