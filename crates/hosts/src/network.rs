//! Addresses and networks that a rule writes out.

use std::fmt;
use std::net::IpAddr;

use super::RuleError;

/// A range of addresses by its prefix. A single address has the longest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// Reads `192.0.2.0/24`, `2001:db8::/32`, or a single address.
    ///
    /// # Errors
    /// What is wrong with it, and what is allowed.
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        let problem = |problem: &str| RuleError::new(text, problem);
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address
            .parse()
            .map_err(|_| problem("is not an address or a network such as 192.0.2.0/24"))?;
        if prefix.is_some() && address.to_canonical() != address {
            return Err(problem("is an IPv4 network in IPv6 form: write it as IPv4"));
        }
        let address = address.to_canonical();
        let most = width(address);
        let prefix = match prefix {
            None => most,
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits
                .parse()
                .ok()
                .filter(|prefix| *prefix <= most)
                .ok_or_else(|| problem(&format!("has a prefix that is not 0 to {most}")))?,
            Some(_) => return Err(problem("has a prefix that is not a number of bits")),
        };
        let network = Self { address, prefix };
        if network.first() != address {
            let meant = Self {
                address: network.first(),
                prefix,
            };
            return Err(problem(&format!(
                "is an address within {meant}: write the network, or the address alone"
            )));
        }
        Ok(network)
    }

    /// The network of one address.
    pub fn single(address: IpAddr) -> Self {
        let address = address.to_canonical();
        Self {
            address,
            prefix: width(address),
        }
    }

    /// Its first address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// The length of its prefix in bits.
    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// Whether `address` is in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.address.is_ipv4()
            && masked(address, self.prefix) == masked(self.address, self.prefix)
    }

    /// Whether all of `other` is in it.
    pub fn covers(&self, other: &Self) -> bool {
        self.prefix <= other.prefix && self.contains(other.address)
    }

    /// Whether they have an address in common.
    pub fn meets(&self, other: &Self) -> bool {
        self.covers(other) || other.covers(self)
    }

    fn first(&self) -> IpAddr {
        match masked(self.address, self.prefix) {
            bits if self.address.is_ipv4() => IpAddr::from(((bits >> 96) as u32).to_be_bytes()),
            bits => IpAddr::from(bits.to_be_bytes()),
        }
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The first `prefix` bits, from the top of 128.
fn masked(address: IpAddr, prefix: u8) -> u128 {
    let bits = match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    };
    let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
    bits & mask
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        if self.prefix < width(self.address) {
            write!(f, "/{}", self.prefix)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_its_addresses() {
        let network = Network::parse("192.0.2.128/25").unwrap();
        for (address, inside) in [
            ("192.0.2.128", true),
            ("192.0.2.255", true),
            ("::ffff:192.0.2.200", true),
            ("192.0.2.127", false),
            ("::192.0.2.200", false),
        ] {
            assert_eq!(
                network.contains(address.parse().unwrap()),
                inside,
                "{address}"
            );
        }
        let all = Network::parse("::/0").unwrap();
        assert!(all.contains("2001:db8::1".parse().unwrap()));
        assert!(!all.contains("192.0.2.1".parse().unwrap()));
        assert!(
            Network::parse("2001:db8::/32")
                .unwrap()
                .covers(&Network::parse("2001:db8:1::/48").unwrap())
        );
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for text in [
            "192.0.2.1/24",
            "192.0.2.0/33",
            "192.0.2.0/",
            "192.0.2.0/+8",
            "192.0.2",
            "010.0.0.1",
            "::ffff:192.0.2.0/120",
            "fe80::1%eth0",
        ] {
            assert!(Network::parse(text).is_err(), "{text}");
        }
        let error = Network::parse("192.0.2.1/24").unwrap_err().to_string();
        assert!(error.contains("192.0.2.0/24"), "{error}");
    }
}
