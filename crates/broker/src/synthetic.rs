//! The addresses that stand for names inside of a cell.
//!
//! They are in ranges that no host of the Internet has: 198.18.0.0/15 is for benchmarks
//! (RFC 2544), fd00::/8 for local use (RFC 4193). They are not loopback addresses, because
//! programs treat those in special ways.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::rules::{Name, Network};

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

/// The number of the first address that stands for a name; those before are for services.
const FIRST: u32 = 256;

/// Both networks.
pub fn networks() -> Vec<Network> {
    [(IpAddr::V4(IPV4.0), IPV4.1), (IpAddr::V6(IPV6.0), IPV6.1)]
        .iter()
        .filter_map(|(address, prefix)| Network::parse(&format!("{address}/{prefix}")).ok())
        .collect()
}

/// Which address stands for which name. Addresses are given when a name is asked for, and
/// stay.
#[derive(Debug, Default)]
pub(crate) struct Names {
    names: Vec<Name>,
    numbers: HashMap<Name, u32>,
}

impl Names {
    /// The most names; rules with a wildcard allow more than have an address.
    pub(crate) const MOST: usize = 8192;

    /// The addresses of an allowed name; `None` when there are too many names.
    pub(crate) fn addresses(&mut self, name: &Name) -> Option<(Ipv4Addr, Ipv6Addr)> {
        let number = match self.numbers.get(name) {
            Some(number) => *number,
            None if self.names.len() < Self::MOST => {
                let number = u32::try_from(self.names.len()).ok()? + FIRST;
                self.names.push(name.clone());
                self.numbers.insert(name.clone(), number);
                number
            }
            None => return None,
        };
        Some((
            Ipv4Addr::from_bits(IPV4.0.to_bits() + number),
            Ipv6Addr::from_bits(IPV6.0.to_bits() + u128::from(number)),
        ))
    }

    /// The name that an address stands for.
    pub(crate) fn name(&self, address: IpAddr) -> Option<&Name> {
        let number = match address.to_canonical() {
            IpAddr::V4(address) => u128::from(address.to_bits().checked_sub(IPV4.0.to_bits())?),
            IpAddr::V6(address) => address.to_bits().checked_sub(IPV6.0.to_bits())?,
        };
        let index = number.checked_sub(FIRST.into())?;
        self.names.get(usize::try_from(index).ok()?)
    }

    /// Whether an address is in one of the two networks.
    pub(crate) fn contain(address: IpAddr) -> bool {
        networks().iter().any(|network| network.contains(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_an_address_of_each_family() {
        let mut names = Names::default();
        let (a, b) = (
            Name::parse("a.example").unwrap(),
            Name::parse("b.example").unwrap(),
        );
        let (a4, a6) = names.addresses(&a).unwrap();
        let (b4, b6) = names.addresses(&b).unwrap();
        assert_eq!(names.addresses(&a).unwrap(), (a4, a6));
        assert_ne!(a4, b4);
        for (address, name) in [
            (IpAddr::V4(a4), &a),
            (a6.into(), &a),
            (b4.into(), &b),
            (b6.into(), &b),
        ] {
            assert_eq!(names.name(address), Some(name));
            assert!(Names::contain(address));
        }
        for address in [
            "198.18.0.1",
            "198.17.255.255",
            "198.18.9.9",
            "127.0.0.1",
            "fd00:cb::1",
            "::1",
        ] {
            assert_eq!(names.name(address.parse().unwrap()), None, "{address}");
        }
    }

    #[test]
    fn names_are_bounded() {
        let mut names = Names::default();
        for number in 0..Names::MOST {
            assert!(
                names
                    .addresses(&Name::parse(&format!("n{number}.example")).unwrap())
                    .is_some()
            );
        }
        assert!(
            names
                .addresses(&Name::parse("more.example").unwrap())
                .is_none()
        );
        assert!(
            names
                .addresses(&Name::parse("n0.example").unwrap())
                .is_some()
        );
        let last = names
            .addresses(&Name::parse("n8191.example").unwrap())
            .unwrap();
        assert!(Names::contain(last.0.into()));
    }
}
