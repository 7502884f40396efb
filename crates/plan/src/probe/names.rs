//! How this host resolves names.

use std::fs::File;
use std::io::Read as _;

use serde::Serialize;

/// Larger files are cut: resolvers read less.
const LARGEST: u64 = 1 << 20;

/// The host's files for names, as far as they can be read.
#[derive(Clone, Debug, Default, Serialize)]
pub struct HostNames {
    /// resolv.conf(5)
    pub resolv_conf: Option<String>,
    /// hosts(5)
    pub hosts: Option<String>,
}

impl HostNames {
    /// Reads them. Links are followed: the file often is the one of a service.
    pub fn read() -> Self {
        Self {
            resolv_conf: read("/etc/resolv.conf"),
            hosts: read("/etc/hosts"),
        }
    }
}

fn read(path: &str) -> Option<String> {
    let mut text = Vec::new();
    let file = File::open(path).ok()?;
    file.take(LARGEST).read_to_end(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}
