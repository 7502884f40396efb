//! What a broker gets before it reads anything that comes from a cell.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use zeroize::Zeroizing;

use hosts::{NameChecks, Rules};

/// The longest configuration, in bytes of JSON.
const MOST: u32 = 4 << 20;

/// The longest secret value, in bytes.
pub const MOST_SECRET: u32 = 16 << 10;

/// What the broker decides by. It comes through the control socket, see [`Config::send`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// What the cell may reach.
    pub rules: Rules,
    /// How much of it.
    pub limits: Limits,
    /// Whether the name in a TLS ClientHello (SNI) and in the Host field of HTTP/1 must be
    /// the name that was connected to.
    pub check_names: NameChecks,
    /// Header fields that are put into requests.
    pub secrets: Vec<SecretHeader>,
    /// What the broker shows to the cell for the hosts of those with TLS.
    pub certificate: Option<Certificate>,
    /// How names are resolved outside.
    pub upstream: Upstream,
}

/// Bounds of a cell's connections. `None` is no bound.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Bytes from the cell, over all connections.
    pub sent_bytes: Option<u64>,
    /// Bytes to the cell, over all connections.
    pub received_bytes: Option<u64>,
    /// Connections at once, of the cell.
    pub connections: u32,
    /// Connections in all.
    pub connections_total: Option<u64>,
    /// New connections per second; twice as many can come at once.
    pub connections_per_second: Option<u32>,
    /// DNS queries in all.
    pub queries: Option<u64>,
    /// How long a client may take to say what it wants: a proxy's request, a ClientHello,
    /// the head of an HTTP request. Milliseconds.
    pub first_bytes_ms: u32,
    /// How long it may take to resolve a name and connect to one of its addresses.
    /// Milliseconds.
    pub dial_ms: u32,
    /// How long a connection may stay without a byte in either direction. Milliseconds.
    pub idle_ms: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sent_bytes: None,
            received_bytes: None,
            connections: 1024,
            connections_total: None,
            connections_per_second: Some(1000),
            queries: Some(100_000),
            first_bytes_ms: 10_000,
            dial_ms: 10_000,
            idle_ms: 600_000,
        }
    }
}

/// A header field whose value the cell never sees.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretHeader {
    /// The host's name, as in a rule without wildcard.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Whether requests are made by TLS; otherwise plain ones. The other kind is refused
    /// at this port.
    pub tls: bool,
    /// The field's name.
    pub name: String,
    /// The field's value. It is in no JSON.
    #[serde(skip)]
    pub value: Zeroizing<String>,
}

/// A certificate and its key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    /// The certificate, as DER.
    pub signed: Vec<u8>,
    /// Its key, as PKCS #8. It is in no JSON.
    #[serde(skip)]
    pub key: Zeroizing<Vec<u8>>,
}

impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificate").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for SecretHeader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecretHeader")
            .field("host", &self.host)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// How names are resolved outside of the cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Upstream {
    /// The host's hosts(5).
    pub hosts: PathBuf,
    /// The host's resolv.conf(5).
    pub resolv_conf: PathBuf,
    /// The certificates that hosts are verified by, as PEM.
    pub certificates: PathBuf,
    /// For tests: asked instead of the servers in resolv.conf.
    pub resolver: Option<SocketAddr>,
    /// For tests: networks that count as written out, `0.0.0.0/0` included.
    pub permit: Vec<String>,
}

impl Default for Upstream {
    fn default() -> Self {
        Self {
            hosts: "/etc/hosts".into(),
            resolv_conf: "/etc/resolv.conf".into(),
            certificates: "/etc/ssl/certs/ca-certificates.crt".into(),
            resolver: None,
            permit: Vec::new(),
        }
    }
}

/// The user that the broker becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The user id.
    pub uid: u32,
    /// The group id.
    pub gid: u32,
}

/// Sockets that init made in the cell's network namespace, listening or bound.
#[derive(Debug, Default)]
pub struct Sockets {
    /// For each allowed port, on 0.0.0.0 and on [::] (with `IPV6_V6ONLY`).
    pub tcp: Vec<(u16, OwnedFd)>,
    /// DNS by UDP, on [`hosts::synthetic::DNS_IPV4`] and [`hosts::synthetic::DNS_IPV6`].
    /// The latter is local by its route alone, for which bind(2) needs `IP_FREEBIND` (ip(7)).
    pub dns_udp: Vec<OwnedFd>,
    /// DNS by TCP, on the same addresses.
    pub dns_tcp: Vec<OwnedFd>,
    /// The HTTP proxy, on 127.0.0.1:[`hosts::synthetic::PROXY_PORT`].
    pub proxy: Vec<OwnedFd>,
    /// The SOCKS5 proxy, on 127.0.0.1:[`hosts::synthetic::SOCKS_PORT`].
    pub socks: Vec<OwnedFd>,
}

impl Config {
    /// Writes all of it: [`Self::send_open`], then each secret.
    ///
    /// # Errors
    /// Those of writing; `InvalidInput` for what is too long.
    pub fn send(&self, mut control: impl Write) -> io::Result<()> {
        self.send_open(&mut control)?;
        for secret in &self.secrets {
            send_secret(&mut control, secret.value.as_bytes())?;
        }
        match &self.certificate {
            Some(certificate) => send_secret(&mut control, &certificate.key),
            None => Ok(()),
        }
    }

    /// Writes what is not secret as one message: its length in four bytes, the first one
    /// the highest, and JSON. The value of each secret field is to follow, then the key of
    /// the certificate if there is one ([`send_secret`]).
    ///
    /// # Errors
    /// Those of writing; `InvalidInput` above 4 MiB.
    pub fn send_open(&self, mut control: impl Write) -> io::Result<()> {
        let json = serde_json::to_vec(self)?;
        let length = u32::try_from(json.len()).unwrap_or(u32::MAX);
        if length > MOST {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        control.write_all(&[&length.to_be_bytes()[..], &json].concat())
    }

    /// Reads what [`Self::send`] wrote; `None` if the other side ended without sending.
    ///
    /// # Errors
    /// Those of reading; `InvalidData` for anything else than a configuration.
    pub fn receive(mut control: impl Read) -> io::Result<Option<Self>> {
        let mut length = [0; 4];
        match control.read_exact(&mut length) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        let length = u32::from_be_bytes(length);
        if length > MOST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut json = vec![0; length as usize];
        control.read_exact(&mut json)?;
        let mut config: Self = record::json::from_slice(&json)?;
        for secret in &mut config.secrets {
            let value = receive_secret(&mut control)?;
            let text = str::from_utf8(&value).map_err(|_| io::ErrorKind::InvalidData)?;
            secret.value = Zeroizing::new(text.to_owned());
            // Where RLIMIT_MEMLOCK is too low, the value is not locked.
            let _ = sys::memory::lock(secret.value.as_bytes());
        }
        if let Some(certificate) = &mut config.certificate {
            certificate.key = receive_secret(&mut control)?;
        }
        Ok(Some(config))
    }
}

/// Writes a secret: its length in four bytes, the first one the highest, and its bytes.
///
/// # Errors
/// Those of writing; `InvalidInput` for more than [`MOST_SECRET`] bytes.
pub fn send_secret(mut control: impl Write, secret: &[u8]) -> io::Result<()> {
    let length = u32::try_from(secret.len()).unwrap_or(u32::MAX);
    if length > MOST_SECRET {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    control.write_all(&length.to_be_bytes())?;
    control.write_all(secret)
}

fn receive_secret(mut control: impl Read) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut length = [0; 4];
    control.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length);
    if length > MOST_SECRET {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut secret = Zeroizing::new(vec![0; length as usize]);
    control.read_exact(&mut secret)?;
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_arrives_as_it_was_sent() {
        let config = Config {
            rules: Rules {
                allow: vec!["example.com:8443".parse().unwrap()],
                deny: Vec::new(),
            },
            check_names: NameChecks::Off,
            ..Config::default()
        };
        let mut message = Vec::new();
        config.send(&mut message).unwrap();
        assert_eq!(Config::receive(&message[..]).unwrap(), Some(config));
        assert_eq!(Config::receive(&message[..0]).unwrap(), None);
        assert!(Config::receive(&message[..9]).is_err());
        assert!(Config::receive(&[255; 9][..]).is_err());
    }
}
