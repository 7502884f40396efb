//! What a cell with allowed hosts did on the network.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The network of an execution whose cell may reach named hosts, as the broker outside
/// reports it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NetworkRecord {
    /// The hosts that were allowed, with presets and mirrors written out.
    pub allow: Vec<String>,
    /// The hosts that were denied; this wins.
    pub deny: Vec<String>,
    /// Whether the name in a TLS handshake or in an HTTP request had to be the one that
    /// was connected to.
    pub check_names: bool,
    /// Header fields that were put into requests, without their values.
    #[serde(default)]
    pub secret_headers: Vec<SecretHeaderUse>,
    /// Connections that have ended, in the order of their ends; at most 1000.
    pub connections: Vec<Connection>,
    /// Names and hosts that were refused, each once; at most 1000.
    pub refused: Vec<RefusedHost>,
    /// What all of them add up to, those that are not listed included.
    pub totals: NetworkTotals,
    /// Why the broker ended before the cell; null when it did not.
    pub broker_failure: Option<String>,
    /// The layers that hold the broker, the process that carries the connections; null when
    /// it did not begin to serve.
    pub broker: Option<BrokerRecord>,
}

/// What holds the process that carries a cell's connections, should it be taken over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BrokerRecord {
    /// The Landlock ABI in use; null where Landlock is missing.
    pub landlock_abi: Option<u32>,
    /// What Landlock holds: `fs`, `tcp` (the ports that it connects to), `ioctl_dev`,
    /// `abstract_unix_socket`, `signal`.
    pub landlock_scopes: Vec<String>,
    /// Whether a system call filter is loaded.
    pub seccomp: bool,
    /// Address space that it may have, in bytes; null without a bound.
    pub memory_bytes: Option<u64>,
    /// Descriptors that it may have.
    pub descriptors: u64,
}

/// A header field that the broker put into requests to one host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretHeaderUse {
    /// The host.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Whether requests were made by TLS, which the broker ended; otherwise plain ones.
    pub tls: bool,
    /// The field's name.
    pub name: String,
    /// Where its value came from: `env:` and a variable, or `file:` and a path.
    pub source: String,
    /// Requests that it was put into, of connections that have ended.
    pub requests: u64,
}

/// A connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Connection {
    /// The name, or the address where one was connected to.
    pub host: String,
    /// The port.
    pub port: u16,
    /// How the program asked for it: `direct`, or by a proxy on loopback, `connect`
    /// (HTTP) or `socks5`.
    pub via: String,
    /// The address that was connected to; null when it did not come to that.
    pub address: Option<String>,
    /// Bytes from the cell.
    pub sent_bytes: u64,
    /// Bytes to the cell.
    pub received_bytes: u64,
    /// From the program's connection to its end, in milliseconds.
    pub duration_ms: u64,
    /// `allowed`, `refused`, or `failed`: allowed, but the host did not answer, or the
    /// connection broke.
    pub verdict: String,
    /// Why it was refused, failed or cut; null for one that ended by itself.
    pub reason: Option<String>,
}

/// A name or a host that was refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedHost {
    /// The name or address; bytes that no name has are escaped.
    pub host: String,
    /// The port; null for a name that was looked up.
    pub port: Option<u16>,
    /// `dns` for a name that was looked up; otherwise as in a connection.
    pub via: String,
    /// Why.
    pub reason: String,
    /// How often.
    pub count: u64,
}

impl Connection {
    /// `host:port`.
    pub fn shown(&self) -> String {
        with_port(&self.host, self.port)
    }
}

impl RefusedHost {
    /// `host:port`, or the name alone.
    pub fn shown(&self) -> String {
        match self.port {
            Some(port) => with_port(&self.host, port),
            None => self.host.clone(),
        }
    }
}

fn with_port(host: &str, port: u16) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

/// Connections, refusals and bytes in all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NetworkTotals {
    /// Connections that have ended.
    pub connections: u64,
    /// Connections that were refused; names that were only looked up do not count.
    pub refused: u64,
    /// Those that were allowed and failed.
    pub failed: u64,
    /// Bytes from the cell.
    pub sent_bytes: u64,
    /// Bytes to the cell.
    pub received_bytes: u64,
    /// DNS queries over the cell's life; null while it goes on.
    pub dns_queries: Option<u64>,
    /// Connections that are not listed.
    pub connections_not_listed: u64,
    /// Refusals of names and hosts that are not listed.
    pub refused_not_listed: u64,
    /// How often the program tried to reach an address that no rule writes out, for which its
    /// network has no route. The kernel counts them without the addresses; null where its
    /// counters cannot be read.
    #[serde(default)]
    pub unrouted: Option<u64>,
    /// How often nothing listened at a port that the program tried to reach, including ports of its
    /// own loopback device: no rule names the port, or the server is not running. The kernel counts
    /// these attempts without the ports; null where its counters cannot be read.
    #[serde(default)]
    pub closed_ports: Option<u64>,
}
