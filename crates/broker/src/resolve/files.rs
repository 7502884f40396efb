//! The host's hosts(5) and resolv.conf(5), read again when they have changed.

use std::fs::{File, Metadata};
use std::io::Read as _;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use hosts::Name;

/// The most that is read of a file, in bytes.
const MOST: u64 = 8 << 20;

/// The most servers that are asked, as in glibc and musl.
const MOST_SERVERS: usize = 3;

const DNS_PORT: u16 = 53;

/// A file by its path, and what was last read from it.
pub(super) struct Followed<T> {
    path: PathBuf,
    read: fn(&str) -> T,
    stamp: Option<Stamp>,
    content: T,
}

/// What changes when a file is written or replaced.
type Stamp = (u64, u64, i64, i64, u64);

fn stamp(metadata: &Metadata) -> Stamp {
    (
        metadata.dev(),
        metadata.ino(),
        metadata.mtime(),
        metadata.mtime_nsec(),
        metadata.size(),
    )
}

impl<T: Default> Followed<T> {
    pub(super) fn new(path: &Path, read: fn(&str) -> T) -> Self {
        Self {
            path: path.to_owned(),
            read,
            stamp: None,
            content: T::default(),
        }
    }

    /// What is in the file; the default when it cannot be read.
    pub(super) fn content(&mut self) -> &T {
        let file = File::open(&self.path);
        let found = file.and_then(|file| Ok((stamp(&file.metadata()?), file)));
        match found {
            Ok((stamp, _)) if self.stamp == Some(stamp) => {}
            Ok((stamp, file)) => {
                let mut bytes = Vec::new();
                let read = file.take(MOST).read_to_end(&mut bytes);
                self.stamp = read.is_ok().then_some(stamp);
                self.content = (self.read)(&String::from_utf8_lossy(&bytes));
            }
            Err(_) => {
                self.stamp = None;
                self.content = T::default();
            }
        }
        &self.content
    }
}

/// Names with their addresses.
pub(super) type Hosts = Vec<(Name, IpAddr)>;

/// Reads hosts(5).
pub(super) fn hosts(text: &str) -> Hosts {
    let mut hosts = Vec::new();
    for mut fields in text.lines().map(fields) {
        if let Some(address) = fields.next().and_then(|field| field.parse().ok()) {
            let names = fields.filter_map(|name| Name::from_ascii(name.as_bytes()));
            hosts.extend(names.map(|name| (name, address)));
        }
    }
    hosts
}

/// Reads the servers of resolv.conf(5); without one, it is on this host.
pub(super) fn servers(text: &str) -> Vec<SocketAddr> {
    let mut servers: Vec<SocketAddr> = text
        .lines()
        .map(fields)
        .filter_map(|mut fields| match fields.next() {
            Some("nameserver") => fields.next(),
            _ => None,
        })
        .filter_map(|address| Some(SocketAddr::new(address.parse().ok()?, DNS_PORT)))
        .take(MOST_SERVERS)
        .collect();
    if servers.is_empty() {
        servers.push(SocketAddr::from(([127, 0, 0, 1], DNS_PORT)));
    }
    servers
}

fn fields(line: &str) -> impl Iterator<Item = &str> {
    let line = line.split(['#', ';']).next().unwrap_or_default();
    line.split_whitespace()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_servers_are_read() {
        let found =
            hosts("# x\n127.0.0.1\tlocalhost Local.example # y\n::1 localhost\nx y\n\n192.0.2.1");
        let shown: Vec<String> = found
            .iter()
            .map(|(name, address)| format!("{name} {address}"))
            .collect();
        assert_eq!(
            shown,
            [
                "localhost 127.0.0.1",
                "local.example 127.0.0.1",
                "localhost ::1"
            ]
        );
        let text = "search example.com\nnameserver 192.0.2.1\nnameserver ::1 # x\n;nameserver 1.1.1.1\nnameserver x\nnameserver 192.0.2.3\nnameserver 192.0.2.4\n";
        let shown: Vec<String> = servers(text).iter().map(SocketAddr::to_string).collect();
        assert_eq!(shown, ["192.0.2.1:53", "[::1]:53", "192.0.2.3:53"]);
        assert_eq!(servers("")[0].to_string(), "127.0.0.1:53");
    }

    #[test]
    fn a_file_is_followed_when_it_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("resolv.conf");
        let mut followed = Followed::new(&path, servers);
        assert!(followed.content().is_empty());
        for address in ["192.0.2.1", "192.0.2.22"] {
            let new = dir.path().join("new");
            std::fs::write(&new, format!("nameserver {address}\n")).unwrap();
            std::fs::rename(&new, &path).unwrap();
            assert_eq!(followed.content()[0].ip().to_string(), address);
        }
    }
}
