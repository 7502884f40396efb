//! What the kernel has refused in a cell's network, by the counters of RFC 4293 and RFC 4022 that
//! it keeps for each network namespace. The counters have no addresses and no ports.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use nix::unistd::Pid;
use verdict::Counts;

/// More than either file has.
const MOST: usize = 64 << 10;

/// The counters of one network namespace. Open files stay with it when its processes end.
#[derive(Debug)]
pub(super) struct Counters {
    snmp: File,
    /// Missing on hosts without IPv6.
    snmp6: Option<File>,
    /// What was counted before the execution.
    before: Counts,
}

impl Counters {
    /// The counters of the namespace that `process` is in.
    pub(super) fn of(process: Pid) -> io::Result<Self> {
        let open = |name| File::open(format!("/proc/{process}/net/{name}"));
        let mut counters = Self {
            snmp: open("snmp")?,
            snmp6: open("snmp6").ok(),
            before: Counts::default(),
        };
        counters.before = counters.count()?;
        Ok(counters)
    }

    /// What was counted since the last call; `None` where it cannot be read.
    pub(super) fn take(&mut self) -> Option<Counts> {
        let counts = self.count().ok()?;
        let since = counts.since(self.before);
        self.before = counts;
        Some(since)
    }

    fn count(&self) -> io::Result<Counts> {
        let missing = || io::Error::other("a counter is missing");
        let snmp = of_snmp(&text(&self.snmp)?).ok_or_else(missing)?;
        let snmp6 = match &self.snmp6 {
            Some(file) => of_snmp6(&text(file)?).ok_or_else(missing)?,
            None => Counts::default(),
        };
        Ok(snmp.plus(snmp6))
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

/// IPv4, and TCP of both families. Each protocol has a line of names and one of values.
fn of_snmp(text: &str) -> Option<Counts> {
    let counter = |protocol: &str, name: &str| -> Option<u64> {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(protocol));
        let mut names = lines.next()?.split(' ');
        let position = names.position(|other| other == name)?;
        lines.next()?.split(' ').nth(position)?.parse().ok()
    };
    // A connection that is reset before it is established; only the opener's end counts.
    let refused = counter("Tcp: ", "AttemptFails")?;
    Some(Counts {
        unrouted: counter("Ip: ", "OutNoRoutes")?,
        closed_ports: refused.saturating_add(counter("Udp: ", "NoPorts")?),
    })
}

/// IPv6, where each line has a name and a value.
fn of_snmp6(text: &str) -> Option<Counts> {
    let counter = |name: &str| -> Option<u64> {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(name));
        lines.next()?.trim().parse().ok()
    };
    Some(Counts {
        unrouted: counter("Ip6OutNoRoutes")?,
        closed_ports: counter("Udp6NoPorts")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_their_names() {
        let snmp = "Ip: Forwarding OutNoRoutes ReasmTimeout\nIp: 1 7 0\n\
            Tcp: OutNoRoutes AttemptFails\nTcp: 9 2\n\
            Udp: InDatagrams NoPorts\nUdp: 5 3\nUdpLite: NoPorts\nUdpLite: 8\n";
        let expected = Counts {
            unrouted: 7,
            closed_ports: 5,
        };
        assert_eq!(of_snmp(snmp), Some(expected));
        assert_eq!(of_snmp("Ip: Forwarding\nIp: 1\n"), None);
        let snmp6 = "Ip6InNoRoutes 1\nIp6OutNoRoutes \t 12\nUdp6NoPorts \t 4\n";
        let expected = Counts {
            unrouted: 12,
            closed_ports: 4,
        };
        assert_eq!(of_snmp6(snmp6), Some(expected));
        assert_eq!(of_snmp6("Ip6InNoRoutes 1\n"), None);
    }
}
