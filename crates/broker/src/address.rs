//! Addresses that no name may lead to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Azure's metadata service, which is in a public range. Those of others are in the ranges
/// below.
const AZURE: Ipv4Addr = Ipv4Addr::new(168, 63, 129, 16);

/// Whether an address is private, local, reserved or a metadata service. Where an IPv6
/// address embeds an IPv4 address to which it can lead, that one is judged as well.
pub(crate) fn is_refused(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_refused_ipv4(address),
        IpAddr::V6(address) => is_refused_ipv6(address),
    }
}

fn is_refused_ipv4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    address == AZURE
        || match (a, b, c) {
            // This network, private, loopback, multicast and what is reserved above it.
            (0 | 10 | 127 | 224.., _, _) => true,
            // Shared address space (RFC 6598), link-local.
            (100, 64..=127, _) | (169, 254, _) => true,
            // Private.
            (172, 16..=31, _) | (192, 168, _) => true,
            // Protocol assignments, relays of 6to4, benchmarks.
            (192, 0, 0) | (192, 88, 99) | (198, 18..=19, _) => true,
            // Documentation.
            (192, 0, 2) | (198, 51, 100) | (203, 0, 113) => true,
            _ => false,
        }
}

/// The address itself, and the IPv4 addresses to which it can lead.
pub(crate) fn leads_to(address: IpAddr) -> Vec<IpAddr> {
    let embedded = match address {
        IpAddr::V4(_) => None,
        IpAddr::V6(address) => isatap(address)
            .map(|ipv4| vec![ipv4])
            .or_else(|| embedded(address)),
    };
    let embedded = embedded.into_iter().flatten().map(IpAddr::V4);
    [address].into_iter().chain(embedded).collect()
}

fn is_refused_ipv6(address: Ipv6Addr) -> bool {
    // Any prefix can have it, so the prefix is judged as well.
    if isatap(address).is_some_and(is_refused_ipv4) {
        return true;
    }
    if let Some(ipv4) = embedded(address) {
        return ipv4.iter().any(|ipv4| is_refused_ipv4(*ipv4));
    }
    let segments = address.segments();
    // Outside of global unicast (2000::/3): loopback, unique local (with the metadata
    // services at fd00:ec2::/32, fd20:ce::254 and elsewhere), link-local, site-local,
    // multicast, and all that is not assigned.
    segments[0] & 0xe000 != 0x2000
        // Protocol assignments with ORCHID, benchmarks and others (2001::/23), which are
        // not routed; documentation.
        || (segments[0] == 0x2001 && segments[1] < 0x200)
        || (segments[0] == 0x2001 && segments[1] == 0xdb8)
        || (segments[0] == 0x3fff && segments[1] < 0x1000)
}

/// The IPv4 address in an interface identifier of ISATAP (RFC 5214).
fn isatap(address: Ipv6Addr) -> Option<Ipv4Addr> {
    match address.segments() {
        [_, _, _, _, 0 | 0x200, 0x5efe, high, low] => {
            Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
        }
        _ => None,
    }
}

/// The IPv4 addresses to which an IPv6 address with one of their prefixes can lead.
fn embedded(address: Ipv6Addr) -> Option<Vec<Ipv4Addr>> {
    let segments = address.segments();
    let ipv4 = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    let last = ipv4(segments[6], segments[7]);
    match segments {
        // Unspecified and loopback are no IPv4-compatible addresses.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
        // Compatible, mapped (RFC 4291), translated (RFC 2765).
        [0, 0, 0, 0, 0, 0 | 0xffff, _, _] | [0, 0, 0, 0, 0xffff, 0, _, _] => Some(vec![last]),
        // NAT64 with its own prefix (RFC 6052).
        [0x64, 0xff9b, 0, 0, 0, 0, _, _] => Some(vec![last]),
        // 6to4 (RFC 3056).
        [0x2002, high, low, ..] => Some(vec![ipv4(high, low)]),
        // Teredo (RFC 4380): the server, and the client's address with each bit changed.
        [0x2001, 0, high, low, ..] => {
            Some(vec![ipv4(high, low), Ipv4Addr::from_bits(!last.to_bits())])
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_local_or_reserved_is_refused() {
        for text in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.100.100.200",
            "127.0.0.1",
            "127.255.0.1",
            "168.63.129.16",
            "169.254.169.254",
            "169.254.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.0.0.1",
            "192.0.2.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "203.0.113.1",
            "224.0.0.1",
            "239.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "::ffff:0:10.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2002:a9fe:a9fe::1",
            "2001:0:a00:1::",
            "2001:0:808:808::f5ff:fffe",
            "2001:db8::1",
            "2001:10::1",
            "2001:4860::200:5efe:a00:1",
            "fd12::5efe:808:808",
            "fe80::5efe:808:808",
            "fe80::200:5efe:808:808",
            "fc00::1",
            "fd00:ec2::254",
            "fd20:ce::254",
            "fd00:c1::a9fe:a9fe",
            "fd00:42::42",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "100::1",
            "4000::1",
            "3fff:fff::1",
        ] {
            assert!(is_refused(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn public_addresses_are_not() {
        for text in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.1.0.1",
            "198.17.0.1",
            "198.20.0.1",
            "223.255.255.255",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "2002:808:808::1",
            "2606:4700::1111",
            "2a00:1450::1",
            "2001:4860:4860::8888",
            "2001:200::1",
        ] {
            assert!(!is_refused(text.parse().unwrap()), "{text}");
        }
    }
}
