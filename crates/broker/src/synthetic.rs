//! Which of the addresses of [`hosts::synthetic`] stand for which names.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hosts::Name;
use hosts::synthetic::{IPV4, IPV6, networks};

/// The number of the first address that stands for a name; those before are for services.
const FIRST: u32 = 256;

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
