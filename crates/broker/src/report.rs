//! What a broker reports: JSON Lines of a bounded length, as things happen.
//!
//! A reader that does not trust the broker reads lines with [`Report::read`], whose result
//! is bounded in length and number of fields.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

pub use hosts::Reason;

/// The longest line in bytes, without its end.
pub const MAX_LINE: usize = 2048;

/// The longest host in a report, in bytes; longer ones end in `…`.
pub const MAX_HOST: usize = 280;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "snake_case")]
pub enum Report {
    /// The broker has confined itself and begins.
    Ready(Ready),
    /// An allowed connection was made.
    Opened(Opened),
    /// A connection has ended, or was refused.
    Closed(Closed),
    /// A name that was asked for, or a host that was connected to, was refused. Repeated
    /// with the count so far, at once; in a flood, at each power of two, before a mark and at the
    /// end.
    Refused(Refused),
    /// A mark that the supervisor asked for: all that had happened by then is reported before it.
    Mark(Mark),
    /// The broker ends because it cannot do its work.
    Failed(Failed),
    /// The last line.
    Totals(Totals),
}

/// Which layers hold the broker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// The Landlock ABI in use; 0 without Landlock.
    pub landlock_abi: u32,
    /// Whether a system call filter is loaded.
    pub seccomp: bool,
    /// Connections at once: as configured, or as many as there are descriptors for.
    pub connections: u32,
    /// Address space that it may have, in bytes; none without a bound.
    pub memory_bytes: Option<u64>,
    /// Descriptors that it may have.
    pub descriptors: u64,
}

/// Why a broker could not begin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// What the kernel, or the reader of the configuration, said.
    pub error: String,
}

/// How the cell asked for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Via {
    /// By connecting to an address.
    Direct,
    /// Through the HTTP proxy.
    Connect,
    /// Through the SOCKS5 proxy.
    Socks5,
    /// A DNS query.
    Dns,
}

/// What became of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It was carried.
    Allowed,
    /// A rule, a check or a limit refused it.
    Refused,
    /// It was allowed and did not come about, or broke.
    Failed,
}

/// A connection that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// Its number; 1 is the first.
    pub id: u64,
    /// The name or address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// How it was asked for.
    pub via: Via,
}

/// A connection that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closed {
    /// Its number; connections that were refused have one too.
    pub id: u64,
    /// The name or address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// How it was asked for.
    pub via: Via,
    /// The address that was dialled last.
    pub dialled: Option<IpAddr>,
    /// Bytes from the cell.
    pub sent: u64,
    /// Bytes to the cell.
    pub received: u64,
    /// From the cell's connection to its end, in milliseconds.
    pub duration_ms: u64,
    /// Requests into which secret fields were put.
    #[serde(default)]
    pub inserted: u64,
    /// What became of it.
    pub verdict: Verdict,
    /// Why, unless it ended by itself.
    pub reason: Option<Reason>,
}

/// A name or host that was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The name or address; bytes that no name can have are escaped.
    pub host: String,
    /// The port; a DNS query has none.
    pub port: Option<u16>,
    /// How it was asked for.
    pub via: Via,
    /// Why.
    pub reason: Reason,
    /// How often so far.
    pub count: u64,
}

/// How far the reports have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The marks that were asked for so far.
    pub number: u64,
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Totals {
    /// Connections that were accepted from the cell.
    pub connections: u64,
    /// Those that were allowed.
    pub allowed: u64,
    /// Connections that were refused; names that were only looked up do not count.
    pub refused: u64,
    /// Those that were allowed and failed.
    pub failed: u64,
    /// The most connections at once.
    pub peak: u32,
    /// Bytes from the cell.
    pub sent: u64,
    /// Bytes to the cell.
    pub received: u64,
    /// DNS queries.
    pub queries: u64,
    /// DNS queries that were refused.
    pub queries_refused: u64,
    /// Refusals whose name or host is in no report, because there were too many.
    pub refused_unnamed: u64,
    /// Lines that are missing because they were not read in time.
    pub lines_dropped: u64,
    /// The limits that were hit, by name as in [`crate::Limits`].
    pub limits_hit: Vec<String>,
}

impl From<Reason> for Verdict {
    /// What a connection is that ends for this reason.
    fn from(reason: Reason) -> Self {
        match reason {
            // The host has nothing to do with it.
            Reason::ClientReset => Self::Allowed,
            Reason::ClientGone
            | Reason::NoAddress
            | Reason::NoResolver
            | Reason::ConnectionRefused
            | Reason::Unreachable
            | Reason::DialTimeout
            | Reason::UntrustedHost
            | Reason::CellTrust
            | Reason::BrokenTls
            | Reason::Reset
            | Reason::Idle
            | Reason::CellEnded
            | Reason::Resources => Self::Failed,
            _ => Self::Refused,
        }
    }
}

impl Report {
    /// It as one line, without its end.
    pub fn line(&self) -> String {
        // Numbers, short strings and enums: that cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads one line from a broker that may have been taken over: `None` when it is not
    /// a report, too long, or its host is.
    pub fn read(line: &[u8]) -> Option<Self> {
        if line.len() > MAX_LINE {
            return None;
        }
        let report: Self = record::json::from_slice(line).ok()?;
        let short = |host: &str| host.len() <= MAX_HOST && !host.contains(char::is_control);
        let good = match &report {
            Self::Ready(_) | Self::Mark(_) => true,
            Self::Failed(failed) => short(&failed.error),
            Self::Opened(opened) => short(&opened.host),
            Self::Closed(closed) => short(&closed.host),
            Self::Refused(refused) => short(&refused.host),
            Self::Totals(totals) => totals.limits_hit.iter().all(|name| short(name)),
        };
        good.then_some(report)
    }
}

/// A host from the cell, as it goes into a report: printable ASCII of a bounded length.
pub(crate) fn shown(host: &[u8]) -> String {
    let mut text = String::new();
    for byte in host {
        if text.len() > MAX_HOST - 8 {
            return text + "…";
        }
        text.extend(std::ascii::escape_default(*byte).map(char::from));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_survive_a_line() {
        let refused = Report::Refused(Refused {
            host: shown(b"evil\0.example\xff"),
            port: None,
            via: Via::Dns,
            reason: Reason::InvalidName,
            count: 3,
        });
        let line = refused.line();
        assert!(line.contains(r#""report":"refused""#), "{line}");
        assert!(line.contains(r#""reason":"invalid_name""#), "{line}");
        assert_eq!(Report::read(line.as_bytes()), Some(refused));
    }

    #[test]
    fn what_is_too_long_is_no_report() {
        let opened = |host: String| {
            Report::Opened(Opened {
                id: 1,
                host,
                port: 1,
                via: Via::Direct,
            })
        };
        for (host, good) in [
            ("a".repeat(MAX_HOST), true),
            ("a".repeat(MAX_HOST + 1), false),
            ("a".repeat(MAX_LINE), false),
            ("\u{1b}[2J".to_owned(), false),
            (shown(&[0; 4000]), true),
        ] {
            let line = opened(host.clone()).line();
            assert_eq!(Report::read(line.as_bytes()).is_some(), good, "{host}");
        }
        assert_eq!(Report::read(b"{}"), None);
    }
}
