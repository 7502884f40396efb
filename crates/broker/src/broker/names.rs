//! DNS for the cell, by UDP and TCP.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use nix::sys::epoll::EpollFlags;

use super::Broker;
use super::source::Source;
use crate::dns::{Answer, MAX_QUERY, Query};
use crate::report::{Reason, Via};

/// The most queries that are answered in a turn.
const TURN: usize = 64;

/// The most clients of DNS by TCP at once.
const MOST_CLIENTS: usize = 16;

/// How long one of them may stay.
const PATIENCE: Duration = Duration::from_secs(5);

/// A client of DNS by TCP.
pub(super) struct DnsClient {
    stream: TcpStream,
    received: Vec<u8>,
    until: Instant,
}

impl Broker {
    pub(super) fn answer_datagrams(&mut self, index: usize) {
        let mut query = [0; MAX_QUERY + 1];
        for _ in 0..TURN {
            let Some(socket) = self.dns.get(index) else {
                return;
            };
            let Ok((length, sender)) = socket.recv_from(&mut query) else {
                return;
            };
            if let Some(reply) = self.answer(&query[..length])
                && let Some(socket) = self.dns.get(index)
            {
                // A sender that does not read asks again.
                let _ = socket.send_to(&reply, sender);
            }
        }
    }

    /// The reply to a query; nobody else is asked.
    fn answer(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        self.log.totals.queries += 1;
        let query = match Query::read(bytes) {
            Ok(query) => query,
            Err(reply) => return reply,
        };
        if self
            .config
            .limits
            .queries
            .is_some_and(|most| self.log.totals.queries > most)
        {
            self.log.limit("queries");
            self.log.totals.queries_refused += 1;
            self.log
                .refused(&query.shown, None, Via::Dns, Reason::QueryLimit);
            return query.reply(Answer::Refused);
        }
        let allowed = match &query.name {
            None => Err(Reason::InvalidName),
            Some(name) => self
                .config
                .rules
                .check_name(name)
                .and_then(|()| self.names.addresses(name).ok_or(Reason::TooManyNames)),
        };
        let answer = match allowed {
            Ok((ipv4, ipv6)) => Answer::Addresses(ipv4, ipv6),
            Err(reason) => {
                self.log.totals.queries_refused += 1;
                self.log.refused(&query.shown, None, Via::Dns, reason);
                Answer::NoSuchName
            }
        };
        query.reply(answer)
    }

    pub(super) fn accept_dns(&mut self, stream: TcpStream) {
        let used = self.dns_clients.iter().flatten().count();
        if used >= MOST_CLIENTS || stream.set_nonblocking(true).is_err() {
            return;
        }
        let index = match self.dns_clients.iter().position(Option::is_none) {
            Some(index) => index,
            None => {
                self.dns_clients.push(None);
                self.dns_clients.len() - 1
            }
        };
        if self
            .watch(&stream, Source::DnsClient(index), EpollFlags::EPOLLIN)
            .is_ok()
            && let Some(place) = self.dns_clients.get_mut(index)
        {
            let until = Instant::now() + PATIENCE;
            *place = Some(DnsClient {
                stream,
                received: Vec::new(),
                until,
            });
        }
    }

    pub(super) fn answer_stream(&mut self, index: usize) {
        let Some(mut client) = self.dns_clients.get_mut(index).and_then(Option::take) else {
            return;
        };
        if self.serve_dns(&mut client).is_some()
            && let Some(place) = self.dns_clients.get_mut(index)
        {
            *place = Some(client);
        }
    }

    /// Answers what has arrived; `None` when the client has ended, or broke the protocol.
    fn serve_dns(&mut self, client: &mut DnsClient) -> Option<()> {
        let mut buffer = [0; MAX_QUERY];
        match client.stream.read(&mut buffer) {
            Ok(0) => return None,
            Ok(count) => client.received.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Some(()),
            Err(_) => return None,
        }
        while let [high, low, ..] = client.received[..] {
            let length = usize::from(u16::from_be_bytes([high, low]));
            if length > MAX_QUERY {
                return None;
            }
            let Some(query) = client.received.get(2..2 + length) else {
                break;
            };
            let reply = self.answer(query)?;
            let length_of_reply = u16::try_from(reply.len()).ok()?.to_be_bytes();
            client
                .stream
                .write_all(&[&length_of_reply[..], &reply].concat())
                .ok()?;
            client.received.drain(..2 + length);
        }
        Some(())
    }

    pub(super) fn expire_dns_clients(&mut self, now: Instant) {
        for place in &mut self.dns_clients {
            if place.as_ref().is_some_and(|client| client.until <= now) {
                *place = None;
            }
        }
    }
}
