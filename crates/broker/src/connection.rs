//! One connection of the cell, from its first byte to its end.

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::time::Instant;

use zeroize::Zeroizing;

use crate::guard::{Guard, Speaks};
use crate::relay::Pipe;
use crate::report::{Reason, Verdict, Via};
use crate::request::{self, Form};
use crate::resolve::Lookup;
use crate::socket;
use crate::terminate::Terminated;
use hosts::Host;

/// What is known of a socket's readiness. Events come once for each change
/// (`EPOLLET`, epoll(7)).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Readiness {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// The peer will send no more than what waits to be read.
    pub(crate) ended: bool,
}

/// One direction.
#[derive(Default)]
pub(crate) struct Flow {
    /// Bytes that go before what waits in the socket.
    pub(crate) first: Zeroizing<Vec<u8>>,
    /// How many bytes at the head of the socket's queue were admitted, and are still to be
    /// sent.
    pub(crate) admitted: usize,
    /// Bytes on their way, after those, while the peer does not take them.
    pub(crate) pipe: Option<Pipe>,
    /// The end was passed on.
    pub(crate) closed: bool,
}

/// Where a connection stands.
pub(crate) enum Phase {
    /// A proxy's client has not yet said what it wants.
    Request,
    /// The first bytes have not been seen.
    Inspect,
    /// Its name is being resolved.
    Resolve(Box<Lookup>),
    /// One of its addresses is being connected to.
    Dial,
    /// Bytes go both ways.
    Relay,
    /// It was refused with an explanation, which the client has time to read.
    Linger,
}

/// A connection.
pub(crate) struct Connection {
    pub(crate) id: u64,
    pub(crate) via: Via,
    pub(crate) form: Option<Form>,
    pub(crate) host: Option<Host>,
    /// What the cell connected to, for reports, until `host` is known.
    pub(crate) shown: String,
    pub(crate) port: u16,
    pub(crate) client: TcpStream,
    pub(crate) client_ready: Readiness,
    pub(crate) upstream: Option<TcpStream>,
    pub(crate) upstream_ready: Readiness,
    pub(crate) phase: Phase,
    pub(crate) guard: Guard,
    /// Set where TLS ends here.
    pub(crate) terminated: Option<Box<Terminated>>,
    pub(crate) addresses: VecDeque<IpAddr>,
    pub(crate) dialled: Option<IpAddr>,
    pub(crate) failure: Reason,
    pub(crate) up: Flow,
    pub(crate) down: Flow,
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) begun: Instant,
    /// When its phase must be over.
    pub(crate) deadline: Instant,
    /// When the address in `dialled` was dialled.
    pub(crate) dialled_at: Instant,
    /// When the address that is being dialled is given up for the next one.
    pub(crate) next_address: Instant,
    pub(crate) greeted: bool,
    pub(crate) established: bool,
}

impl Connection {
    pub(crate) fn new(
        id: u64,
        via: Via,
        client: TcpStream,
        local: SocketAddr,
        until: Instant,
    ) -> Self {
        let phase = match via {
            Via::Direct | Via::Dns => Phase::Inspect,
            Via::Connect | Via::Socks5 => Phase::Request,
        };
        Self {
            id,
            via,
            form: None,
            host: None,
            shown: local.ip().to_canonical().to_string(),
            port: local.port(),
            client,
            client_ready: Readiness::default(),
            upstream: None,
            upstream_ready: Readiness::default(),
            phase,
            guard: Guard::open(),
            terminated: None,
            addresses: VecDeque::new(),
            dialled: None,
            failure: Reason::NoAddress,
            up: Flow::default(),
            down: Flow::default(),
            sent: 0,
            received: 0,
            begun: Instant::now(),
            deadline: until,
            dialled_at: until,
            next_address: until,
            greeted: false,
            established: false,
        }
    }

    /// Into how many of its requests secrets were put.
    pub(crate) fn inserted(&self) -> u64 {
        let inside = self.terminated.as_ref();
        inside.map_or_else(
            || self.guard.inserted(),
            |terminated| terminated.requests.inserted(),
        )
    }

    /// The host for reports and explanations.
    pub(crate) fn host_shown(&self) -> String {
        self.host
            .as_ref()
            .map_or_else(|| self.shown.clone(), ToString::to_string)
    }

    /// The address that is dialled, with the port.
    pub(crate) fn target(&self, address: IpAddr) -> SocketAddr {
        SocketAddr::new(address, self.port)
    }

    /// Says in the client's protocol why it is refused; `false` when that protocol has no
    /// way to, or is not known.
    pub(crate) fn explain(&mut self, reason: Reason) -> bool {
        if let Some(mut terminated) = self.terminated.take() {
            return terminated.explain(&self.client, reason, &self.host_shown());
        }
        let is_failure = Verdict::from(reason) == Verdict::Failed;
        let waits_for_proxy = !self.established && self.form != Some(Form::Absolute);
        let answer = match (self.via, self.guard.speaks) {
            _ if self.received > 0 => return false,
            (Via::Connect, _) if waits_for_proxy => {
                request::http_refusal(reason, &self.host_shown())
            }
            (Via::Socks5, _) if waits_for_proxy => request::socks_refusal(reason, self.greeted),
            (_, Speaks::Http) => request::http_refusal(reason, &self.host_shown()),
            // A failure is what it would be without the broker: the connection breaks.
            (_, Speaks::Tls) if is_failure => return false,
            (_, Speaks::Tls) => request::TLS_ALERT.to_vec(),
            (Via::Connect, _) if !self.established => {
                request::http_refusal(reason, &self.host_shown())
            }
            _ => return false,
        };
        // Its queue is empty, so there is room.
        self.client
            .write(&answer)
            .is_ok_and(|count| count == answer.len())
            && self.client.shutdown(Shutdown::Write).is_ok()
    }

    /// Has both peers see a reset.
    pub(crate) fn reset(&self) {
        socket::reset(&self.client);
        if let Some(upstream) = &self.upstream {
            socket::reset(upstream);
        }
    }

    /// Drops what a refused client sends; `true` when it has ended.
    pub(crate) fn drain(&mut self, buffer: &mut [u8]) -> bool {
        // Enough for what a client had already sent; one that sends more is reset.
        for _ in 0..16 {
            match io::Read::read(&mut &self.client, buffer) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
            }
        }
        true
    }
}
