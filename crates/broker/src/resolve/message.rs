//! DNS messages to and from the host's servers.

use std::net::IpAddr;

use simple_dns::rdata::RData;
use simple_dns::{
    CLASS, Name as WireName, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, TYPE,
};

use hosts::Name;

/// The largest answer accepted over UDP, in bytes. A larger one is asked for over TCP.
pub(super) const MAX_DATAGRAM: usize = 1232;

/// The most CNAME records in a row.
const MOST_ALIASES: usize = 8;

/// The most addresses of a name that are looked at.
const MOST_ADDRESSES: usize = 32;

/// What a query asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Ipv4,
    Ipv6,
}

/// What an answer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The name's addresses of this kind; there may be none.
    Addresses(Vec<IpAddr>),
    /// Another name has them, which the answer does not show.
    Alias(Name),
    /// It did not fit.
    Truncated,
    /// The server cannot tell.
    Failure,
}

/// A query for `name`.
pub(super) fn query(id: u16, name: &Name, kind: Kind) -> Option<Vec<u8>> {
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let kind = match kind {
        Kind::Ipv4 => TYPE::A,
        Kind::Ipv6 => TYPE::AAAA,
    };
    let name = WireName::new(name.as_str()).ok()?;
    let question = Question::new(name, QTYPE::TYPE(kind), QCLASS::CLASS(CLASS::IN), false);
    packet.questions.push(question);
    packet.build_bytes_vec().ok()
}

/// Reads the answer to the query with this id, name and kind; `None` when it is not one.
pub(super) fn read(bytes: &[u8], id: u16, name: &Name, kind: Kind) -> Option<Answer> {
    let packet = Packet::parse(bytes).ok()?;
    if packet.id() != id || !packet.has_flags(PacketFlag::RESPONSE) {
        return None;
    }
    let [question] = &packet.questions[..] else {
        return None;
    };
    let asked = match kind {
        Kind::Ipv4 => TYPE::A,
        Kind::Ipv6 => TYPE::AAAA,
    };
    if question.qtype != QTYPE::TYPE(asked) || canonical(&question.qname).as_ref() != Some(name) {
        return None;
    }
    if packet.has_flags(PacketFlag::TRUNCATION) {
        return Some(Answer::Truncated);
    }
    match packet.rcode() {
        RCODE::NoError => {}
        RCODE::NameError => return Some(Answer::Addresses(Vec::new())),
        _ => return Some(Answer::Failure),
    }
    let mut current = name.clone();
    for _ in 0..=MOST_ALIASES {
        let mut addresses = Vec::new();
        let mut alias = None;
        for record in &packet.answers {
            if record.class != CLASS::IN || canonical(&record.name).as_ref() != Some(&current) {
                continue;
            }
            match (&record.rdata, kind) {
                (RData::A(a), Kind::Ipv4) => addresses.push(IpAddr::from(a.address.to_be_bytes())),
                (RData::AAAA(a), Kind::Ipv6) => {
                    addresses.push(IpAddr::from(a.address.to_be_bytes()))
                }
                (RData::CNAME(target), _) => alias = canonical(&target.0),
                _ => {}
            }
        }
        addresses.truncate(MOST_ADDRESSES);
        match alias {
            Some(alias) if addresses.is_empty() => current = alias,
            _ if addresses.is_empty() && current != *name => return Some(Answer::Alias(current)),
            _ => return Some(Answer::Addresses(addresses)),
        }
    }
    Some(Answer::Failure)
}

fn canonical(name: &WireName<'_>) -> Option<Name> {
    let labels: Vec<&[u8]> = name.as_bytes().collect();
    let dotted = labels.iter().any(|label| label.contains(&b'.'));
    if dotted {
        None
    } else {
        Name::from_ascii(&labels.join(&b'.'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use simple_dns::ResourceRecord;
    use simple_dns::rdata::{A, AAAA, CNAME};

    fn name(text: &str) -> Name {
        Name::parse(text).unwrap()
    }

    fn answer(records: &[(&str, RData<'static>)]) -> Vec<u8> {
        let query = query(7, &name("example.com"), Kind::Ipv4).unwrap();
        let mut packet = Packet::parse(&query).unwrap().into_reply();
        for (owner, data) in records {
            let record =
                ResourceRecord::new(WireName::new_unchecked(owner), CLASS::IN, 1, data.clone());
            packet.answers.push(record.into_owned());
        }
        packet.build_bytes_vec().unwrap()
    }

    fn a(text: &str) -> RData<'static> {
        RData::A(A::from(text.parse::<std::net::Ipv4Addr>().unwrap()))
    }

    fn cname(target: &'static str) -> RData<'static> {
        RData::CNAME(CNAME(WireName::new_unchecked(target)))
    }

    fn addresses(texts: &[&str]) -> Option<Answer> {
        Some(Answer::Addresses(
            texts.iter().map(|text| text.parse().unwrap()).collect(),
        ))
    }

    #[test]
    fn addresses_are_those_of_the_name_and_its_aliases() {
        let v6 = RData::AAAA(AAAA::from(std::net::Ipv6Addr::LOCALHOST));
        for (records, expected) in [
            (
                vec![
                    ("Example.COM", a("192.0.2.1")),
                    ("example.com", a("192.0.2.2")),
                ],
                addresses(&["192.0.2.1", "192.0.2.2"]),
            ),
            (vec![("evil.example", a("192.0.2.1"))], addresses(&[])),
            (vec![("example.com", v6)], addresses(&[])),
            (
                vec![
                    ("b.example", a("192.0.2.1")),
                    ("a.example", cname("b.example")),
                    ("example.com", cname("a.example")),
                ],
                addresses(&["192.0.2.1"]),
            ),
            (
                vec![("example.com", cname("a.example"))],
                Some(Answer::Alias(name("a.example"))),
            ),
            (
                vec![("example.com", cname("example.com"))],
                Some(Answer::Failure),
            ),
            (
                vec![
                    ("example.com", cname("a.example")),
                    ("a.example", cname("example.com")),
                ],
                Some(Answer::Failure),
            ),
            (vec![], addresses(&[])),
        ] {
            let bytes = answer(&records);
            assert_eq!(
                read(&bytes, 7, &name("example.com"), Kind::Ipv4),
                expected,
                "{records:?}"
            );
            assert_eq!(read(&bytes, 8, &name("example.com"), Kind::Ipv4), None);
            assert_eq!(read(&bytes, 7, &name("example.com"), Kind::Ipv6), None);
            assert_eq!(read(&bytes, 7, &name("example.org"), Kind::Ipv4), None);
        }
        let mut truncated = answer(&[]);
        truncated[2] |= 2;
        assert_eq!(
            read(&truncated, 7, &name("example.com"), Kind::Ipv4),
            Some(Answer::Truncated)
        );
        let mut failed = answer(&[]);
        failed[3] |= 2;
        assert_eq!(
            read(&failed, 7, &name("example.com"), Kind::Ipv4),
            Some(Answer::Failure)
        );
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300), at in 0..60_usize, value in proptest::num::u8::ANY) {
            let _ = read(&bytes, 7, &name("example.com"), Kind::Ipv4);
            let mut bytes = answer(&[("example.com", cname("a.example")), ("a.example", a("192.0.2.1"))]);
            bytes[at] = value;
            let _ = read(&bytes, 7, &name("example.com"), Kind::Ipv4);
        }
    }
}
