//! TLS to hosts whose requests get a secret field: it ends here on both sides, and the
//! requests in between are checked as plain ones are (`guard/http.rs`).
//!
//! The cell's side has a certificate that only the cell trusts. The host's side is verified
//! by the roots that this machine trusts and by the name that was connected to. Nothing of
//! the cell's goes out before that.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, ConnectionCommon, RootCertStore, ServerConfig,
    ServerConnection, SideData,
};

use crate::config::Config;
use crate::connection::{Connection, Readiness};
use crate::guard::http::Requests;
use crate::relay::{Budget, Turn};
use crate::report::Reason;
use crate::request;

/// The bytes of a direction that are held at once.
const HELD: usize = 64 << 10;

/// The rounds of a turn; others wait as long as that takes.
const ROUNDS: usize = 64;

/// The only protocol whose requests are followed.
const ALPN: &[u8] = b"http/1.1";

/// How both sides are spoken to.
pub(crate) struct Terms {
    inside: Arc<ServerConfig>,
    outside: Arc<ClientConfig>,
}

impl Terms {
    /// Those of `config`; `None` if it has no secret for a host with TLS.
    pub(crate) fn new(config: &Config) -> io::Result<Option<Self>> {
        let Some(certificate) = &config.certificate else {
            return match config.secrets.iter().any(|secret| secret.tls) {
                true => Err(io::Error::other("a secret field needs a certificate")),
                false => Ok(None),
            };
        };
        let provider = Arc::new(ring::default_provider());
        let chain = vec![CertificateDer::from(certificate.signed.clone())];
        let key = PrivatePkcs8KeyDer::from(certificate.key.to_vec());
        let mut inside = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_no_client_auth()
            .with_single_cert(chain, PrivateKeyDer::Pkcs8(key))
            .map_err(io::Error::other)?;
        inside.alpn_protocols = vec![ALPN.to_vec()];
        let mut outside = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots(config)?)
            .with_no_client_auth();
        outside.alpn_protocols = vec![ALPN.to_vec()];
        Ok(Some(Self {
            inside: inside.into(),
            outside: outside.into(),
        }))
    }
}

fn roots(config: &Config) -> io::Result<RootCertStore> {
    let path = &config.upstream.certificates;
    let fail = |why: String| io::Error::other(format!("{}: {why}", path.display()));
    let found = CertificateDer::pem_file_iter(path).map_err(|error| fail(error.to_string()))?;
    let mut roots = RootCertStore::empty();
    // Those that are not certificates verify nothing.
    roots.add_parsable_certificates(found.filter_map(Result::ok));
    match roots.is_empty() {
        true => Err(fail("it has no certificates".to_owned())),
        false => Ok(roots),
    }
}

/// One side.
struct End<'a> {
    stream: &'a TcpStream,
    ready: &'a mut Readiness,
    left: u64,
}

/// What came from a side.
enum Came {
    Nothing,
    Bytes(u64),
    End,
}

/// A connection whose TLS ends here.
pub(crate) struct Terminated {
    inside: ServerConnection,
    outside: ClientConnection,
    pub(crate) requests: Requests,
    /// From the cell, not yet judged.
    asked: Vec<u8>,
    /// From the host, held until it is known what the response means.
    answered: Vec<u8>,
    cell_ended: bool,
    host_ended: bool,
    host_told: bool,
    cell_told: bool,
    has_answered: bool,
}

impl Terminated {
    pub(crate) fn new(terms: &Terms, name: &str, requests: Requests) -> Result<Self, Reason> {
        let server = ServerName::try_from(name.to_owned()).map_err(|_| Reason::InvalidName)?;
        let mut inside =
            ServerConnection::new(terms.inside.clone()).map_err(|_| Reason::Resources)?;
        let mut outside =
            ClientConnection::new(terms.outside.clone(), server).map_err(|_| Reason::Resources)?;
        // Nothing is read while something waits to be written.
        inside.set_buffer_limit(None);
        outside.set_buffer_limit(None);
        Ok(Self {
            inside,
            outside,
            requests,
            asked: Vec::new(),
            answered: Vec::new(),
            cell_ended: false,
            host_ended: false,
            host_told: false,
            cell_told: false,
            has_answered: false,
        })
    }

    /// Passes on what can be passed on in both directions.
    pub(crate) fn pass(
        &mut self,
        connection: &mut Connection,
        buffer: &mut [u8],
        budget: &Budget,
    ) -> Result<Turn, Reason> {
        let Some(upstream) = &connection.upstream else {
            return Err(connection.failure);
        };
        let mut cell = End {
            stream: &connection.client,
            ready: &mut connection.client_ready,
            left: budget.sent,
        };
        let mut host = End {
            stream: upstream,
            ready: &mut connection.upstream_ready,
            left: budget.received,
        };
        let (sent, received) = (&mut connection.sent, &mut connection.received);
        for _ in 0..ROUNDS {
            let mut moved = cell.flush(&mut self.inside)?;
            moved |= self.read_cell(&mut cell, buffer, sent)?;
            // After this one, the cell can be told what is wrong with the other.
            if !self.inside.is_handshaking() {
                moved |= host.flush(&mut self.outside)?;
                moved |= self.write_host(host.stream)?;
                moved |= self.read_host(&mut host, buffer, received)?;
                moved |= self.write_cell(cell.stream)?;
            } else if self.cell_ended {
                return Err(Reason::ClientGone);
            }
            if !moved {
                let is_over = self.cell_ended && self.host_ended && self.cell_told;
                return Ok(if is_over { Turn::Over } else { Turn::Waits });
            }
        }
        Ok(Turn::Ready)
    }

    fn read_cell(
        &mut self,
        cell: &mut End<'_>,
        buffer: &mut [u8],
        sent: &mut u64,
    ) -> Result<bool, Reason> {
        let is_held = self.outside.wants_write() && !self.inside.is_handshaking();
        if self.cell_ended || self.asked.len() >= HELD || is_held {
            return Ok(false);
        }
        match cell.receive(&mut self.inside)? {
            Came::Nothing => return Ok(false),
            Came::End => self.cell_ended = true,
            Came::Bytes(count) => {
                *sent += count;
                let state = self.inside.process_new_packets().map_err(|error| {
                    // The alert that says why.
                    let _ = cell.flush(&mut self.inside);
                    match error {
                        rustls::Error::AlertReceived(_) => Reason::CellTrust,
                        _ => Reason::BrokenTls,
                    }
                })?;
                self.cell_ended |= state.peer_has_closed();
                while let Ok(count @ 1..) = self.inside.reader().read(buffer) {
                    self.asked.extend_from_slice(&buffer[..count]);
                }
            }
        }
        Ok(true)
    }

    fn write_host(&mut self, host: &TcpStream) -> Result<bool, Reason> {
        if self.host_told || self.outside.is_handshaking() {
            return Ok(false);
        }
        let mut moved = false;
        while !self.asked.is_empty() && !self.outside.wants_write() {
            let admit = self.requests.admit(&self.asked)?;
            if admit.take == 0 {
                break;
            }
            let bytes = admit.instead.as_ref().map(|instead| instead.as_slice());
            let bytes = bytes.unwrap_or(&self.asked[..admit.take]);
            // Into memory, without a bound.
            self.outside
                .writer()
                .write_all(bytes)
                .map_err(|_| Reason::BrokenTls)?;
            self.asked.drain(..admit.take);
            moved = true;
        }
        if self.cell_ended && !moved && !self.outside.wants_write() {
            // What is left is no whole request.
            self.host_told = true;
            self.outside.send_close_notify();
            let _ = self.outside.write_tls(&mut &*host);
            let _ = host.shutdown(Shutdown::Write);
            moved = true;
        }
        Ok(moved)
    }

    fn read_host(
        &mut self,
        host: &mut End<'_>,
        buffer: &mut [u8],
        received: &mut u64,
    ) -> Result<bool, Reason> {
        if self.host_ended || self.inside.wants_write() {
            return Ok(false);
        }
        match host.receive(&mut self.outside)? {
            Came::Nothing => return Ok(false),
            Came::End => self.host_ended = true,
            Came::Bytes(count) => {
                *received += count;
                let state = self.outside.process_new_packets().map_err(|error| {
                    let _ = host.flush(&mut self.outside);
                    match error {
                        rustls::Error::InvalidCertificate(_) => Reason::UntrustedHost,
                        _ => Reason::BrokenTls,
                    }
                })?;
                while let Ok(count @ 1..) = self.outside.reader().read(buffer) {
                    self.answered.extend_from_slice(&buffer[..count]);
                }
                self.host_ended |= state.peer_has_closed();
                if self.host_ended {
                    self.release()?;
                    self.inside.send_close_notify();
                }
            }
        }
        self.release()?;
        Ok(true)
    }

    /// Gives the cell what the host has answered.
    fn release(&mut self) -> Result<(), Reason> {
        let waits = self.requests.awaits_response()
            && !self.requests.response(&self.answered)
            && !self.host_ended;
        if waits || self.answered.is_empty() {
            return Ok(());
        }
        self.has_answered = true;
        let written = self.inside.writer().write_all(&self.answered);
        self.answered.clear();
        written.map_err(|_| Reason::BrokenTls)
    }

    /// Passes the host's end on when all else has gone.
    fn write_cell(&mut self, cell: &TcpStream) -> Result<bool, Reason> {
        if !self.host_ended || self.cell_told || self.inside.wants_write() {
            return Ok(false);
        }
        self.cell_told = true;
        // It may be gone already.
        let _ = cell.shutdown(Shutdown::Write);
        Ok(true)
    }

    /// Says to the cell why nothing comes; `false` when there is no way to.
    pub(crate) fn explain(&mut self, client: &TcpStream, reason: Reason, host: &str) -> bool {
        if self.inside.is_handshaking() || self.has_answered {
            return false;
        }
        let answer = request::http_refusal(reason, host);
        let mut told = self.inside.writer().write_all(&answer).is_ok();
        self.inside.send_close_notify();
        while told && self.inside.wants_write() {
            told = self.inside.write_tls(&mut &*client).is_ok();
        }
        told && client.shutdown(Shutdown::Write).is_ok()
    }
}

impl End<'_> {
    /// Writes what waits; whether something was written.
    fn flush<D: SideData>(&mut self, tls: &mut ConnectionCommon<D>) -> Result<bool, Reason> {
        let mut moved = false;
        while tls.wants_write() && self.ready.writable {
            match tls.write_tls(&mut &*self.stream) {
                Ok(_) => moved = true,
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.ready.writable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Err(Reason::Reset),
            }
        }
        Ok(moved)
    }

    fn receive<D: SideData>(&mut self, tls: &mut ConnectionCommon<D>) -> Result<Came, Reason> {
        if !self.ready.readable || !tls.wants_read() {
            return Ok(Came::Nothing);
        }
        if self.left == 0 {
            return match self.stream.peek(&mut [0]) {
                Ok(1..) => Err(Reason::ByteLimit),
                Ok(_) => Ok(Came::End),
                Err(_) => Ok(Came::Nothing),
            };
        }
        match tls.read_tls(&mut self.stream.take(self.left)) {
            Ok(0) => Ok(Came::End),
            Ok(count) => {
                self.left = self.left.saturating_sub(count as u64);
                Ok(Came::Bytes(count as u64))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.ready.readable = false;
                Ok(Came::Nothing)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(Came::Bytes(0)),
            Err(_) => Err(Reason::Reset),
        }
    }
}
