//! The addresses that stand for names inside of a cell.
//!
//! They are in ranges that no host of the Internet has: 198.18.0.0/15 is for benchmarks
//! (RFC 2544), fd00::/8 for local use (RFC 4193). They are not loopback addresses, because
//! programs treat those in special ways.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Network;

/// The IPv4 network whose addresses stand for names, and its prefix.
pub const IPV4: (Ipv4Addr, u8) = (Ipv4Addr::new(198, 18, 0, 0), 15);

/// The IPv6 network whose addresses stand for names, and its prefix.
pub const IPV6: (Ipv6Addr, u8) = (Ipv6Addr::new(0xfd00, 0xcb, 0, 0, 0, 0, 0, 0), 64);

/// Where DNS is answered, for resolv.conf.
pub const DNS_IPV4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);

/// Where DNS is answered, for programs that use IPv6 only.
pub const DNS_IPV6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xcb, 0, 0, 0, 0, 0, 1);

/// The port of DNS, UDP and TCP.
pub const DNS_PORT: u16 = 53;

/// The port of the HTTP proxy, on 127.0.0.1.
pub const PROXY_PORT: u16 = 3128;

/// The port of the SOCKS5 proxy, on 127.0.0.1.
pub const SOCKS_PORT: u16 = 1080;

/// Both networks.
pub fn networks() -> Vec<Network> {
    [(IpAddr::V4(IPV4.0), IPV4.1), (IpAddr::V6(IPV6.0), IPV6.1)]
        .iter()
        .filter_map(|(address, prefix)| Network::parse(&format!("{address}/{prefix}")).ok())
        .collect()
}
