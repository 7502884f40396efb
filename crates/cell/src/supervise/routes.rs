//! How often a cell's network had no route to an address, by the kernel's counters
//! (`OutNoRoutes` in RFC 4293). connect(2) and sendto(2) end with ENETUNREACH then. The
//! kernel counts them for each network namespace, without the addresses.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use nix::unistd::Pid;

/// More than either file has.
const MOST: usize = 64 << 10;

/// The counters of one network namespace. Open files stay with it when its processes end.
#[derive(Debug)]
pub(super) struct NoRoutes {
    ipv4: File,
    /// Missing on hosts without IPv6.
    ipv6: Option<File>,
    /// What was counted before the execution.
    before: u64,
}

impl NoRoutes {
    /// Those of the namespace that `process` is in.
    pub(super) fn of(process: Pid) -> io::Result<Self> {
        let open = |name| File::open(format!("/proc/{process}/net/{name}"));
        let mut counters = Self {
            ipv4: open("snmp")?,
            ipv6: open("snmp6").ok(),
            before: 0,
        };
        counters.before = counters.count()?;
        Ok(counters)
    }

    /// How many there were since the last call; `None` where they cannot be read.
    pub(super) fn take(&mut self) -> Option<u64> {
        let count = self.count().ok()?;
        let since = count.saturating_sub(self.before);
        self.before = count;
        Some(since)
    }

    fn count(&self) -> io::Result<u64> {
        let missing = || io::Error::other("no counter OutNoRoutes");
        let ipv4 = ipv4(&text(&self.ipv4)?).ok_or_else(missing)?;
        let ipv6 = match &self.ipv6 {
            Some(file) => ipv6(&text(file)?).ok_or_else(missing)?,
            None => 0,
        };
        Ok(ipv4.saturating_add(ipv6))
    }
}

fn text(file: &File) -> io::Result<String> {
    let mut bytes = vec![0; MOST];
    let mut length = 0;
    while length < MOST {
        match file.read_at(&mut bytes[length..], length as u64)? {
            0 => break,
            count => length += count,
        }
    }
    bytes.truncate(length);
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// From a line of names and one of values, both of which begin with `Ip:`.
fn ipv4(snmp: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Ip: "));
    let mut names = lines.next()?.split(' ');
    let position = names.position(|name| name == "OutNoRoutes")?;
    lines.next()?.split(' ').nth(position)?.parse().ok()
}

/// From lines of a name and a value.
fn ipv6(snmp6: &str) -> Option<u64> {
    let line = |line: &str| line.strip_prefix("Ip6OutNoRoutes").map(str::to_owned);
    snmp6.lines().find_map(line)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_their_names() {
        let snmp = "Ip: Forwarding OutNoRoutes ReasmTimeout\nIp: 1 7 0\nTcp: OutNoRoutes\nTcp: 9\n";
        assert_eq!(ipv4(snmp), Some(7));
        assert_eq!(ipv4("Ip: Forwarding\nIp: 1\n"), None);
        assert_eq!(ipv6("Ip6InNoRoutes 1\nIp6OutNoRoutes \t 12\n"), Some(12));
        assert_eq!(ipv6("Ip6InNoRoutes 1\n"), None);
    }
}
