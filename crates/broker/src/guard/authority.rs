//! `HOST[:PORT]` in HTTP/1: in the Host field, in targets, and in requests to a proxy.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hosts::{Host, Name};

/// The authority of an absolute target.
pub(crate) fn authority(target: &str) -> Option<&str> {
    let scheme = target.get(..7)?;
    if !scheme.eq_ignore_ascii_case("http://") {
        return None;
    }
    target[7..]
        .split(['/', '?', '#'])
        .next()
        .filter(|authority| !authority.is_empty())
}

/// Reads `HOST[:PORT]` as protocols write it.
pub(crate) fn host_and_port(given: &[u8]) -> Option<(Host, Option<u16>)> {
    let text = str::from_utf8(given).ok()?;
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, rest) = rest.split_once(']')?;
            let address: Ipv6Addr = address.parse().ok()?;
            let port = match rest {
                "" => None,
                _ => Some(rest.strip_prefix(':')?),
            };
            (Host::Address(IpAddr::V6(address).to_canonical()), port)
        }
        None => {
            let (host, port) = match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            };
            let host = match host.parse::<Ipv4Addr>() {
                Ok(address) => Host::Address(address.into()),
                Err(_) => Host::Name(Name::from_ascii(host.as_bytes())?),
            };
            (host, port)
        }
    };
    let port = match port {
        None | Some("") => None,
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            Some(digits.parse().ok()?)
        }
        Some(_) => return None,
    };
    Some((host, port))
}
