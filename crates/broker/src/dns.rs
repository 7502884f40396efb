//! DNS as the cell sees it: the addresses of allowed names, and nothing else.
//!
//! A refused name gets NXDOMAIN: a resolver takes that as final at once. On REFUSED glibc
//! tries again, and musl waits for another server until its time is over. No record but A
//! and AAAA is ever answered, so that no HTTPS record brings keys for an encrypted
//! ClientHello, or a hint to use QUIC.

use std::net::{Ipv4Addr, Ipv6Addr};

use simple_dns::rdata::{A, AAAA, RData};
use simple_dns::{
    CLASS, OPCODE, Packet, PacketFlag, QCLASS, QTYPE, RCODE, ResourceRecord, TYPE, header_buffer,
};

use crate::report::shown;
use hosts::Name;

/// The longest query that is read, in bytes: as long as EDNS makes them.
pub(crate) const MAX_QUERY: usize = 1232;

/// How long an answer may be kept, in seconds. An address stands for its name until the
/// cell ends, but a program may well ask again.
const TTL: u32 = 30;

/// A query that could be read.
#[derive(Debug)]
pub(crate) struct Query<'a> {
    packet: Packet<'a>,
    kind: Kind,
    /// The name that it asks for, when it is one.
    pub(crate) name: Option<Name>,
    /// The same for reports.
    pub(crate) shown: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    A,
    Aaaa,
    Other,
}

/// What a name gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is allowed, and has these addresses.
    Addresses(Ipv4Addr, Ipv6Addr),
    /// It does not exist here.
    NoSuchName,
    /// It is not looked at.
    Refused,
}

impl<'a> Query<'a> {
    /// Reads a query.
    ///
    /// # Errors
    /// The reply, if the sender gets one.
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self, Option<Vec<u8>>> {
        let id = header_buffer::id(bytes).map_err(|_| None)?;
        let response = header_buffer::has_flags(bytes, PacketFlag::RESPONSE);
        if bytes.len() > MAX_QUERY || response != Ok(false) {
            return Err(None);
        }
        let refuse = |code| Err(status_only(id, code));
        let Ok(packet) = Packet::parse(bytes) else {
            return refuse(RCODE::FormatError);
        };
        if packet.opcode() != OPCODE::StandardQuery {
            return refuse(RCODE::NotImplemented);
        }
        let [question] = &packet.questions[..] else {
            return refuse(RCODE::FormatError);
        };
        if question.qclass != QCLASS::CLASS(CLASS::IN) {
            return refuse(RCODE::NotImplemented);
        }
        let kind = match question.qtype {
            QTYPE::TYPE(TYPE::A) => Kind::A,
            QTYPE::TYPE(TYPE::AAAA) => Kind::Aaaa,
            _ => Kind::Other,
        };
        let mut name = Vec::new();
        let mut plain = true;
        for label in question.qname.as_bytes() {
            // A dot within a label separates nothing.
            plain &= !label.contains(&b'.');
            if !name.is_empty() {
                name.push(b'.');
            }
            name.extend_from_slice(label);
        }
        Ok(Self {
            kind,
            shown: shown(&name),
            name: if plain { Name::from_ascii(&name) } else { None },
            packet,
        })
    }

    /// The reply; `None` when it cannot be written.
    pub(crate) fn reply(self, answer: Answer) -> Option<Vec<u8>> {
        let mut reply = Packet::new_reply(self.packet.id());
        if self.packet.has_flags(PacketFlag::RECURSION_DESIRED) {
            reply.set_flags(PacketFlag::RECURSION_DESIRED);
        }
        reply.set_flags(PacketFlag::RECURSION_AVAILABLE);
        let data = match (answer, self.kind) {
            (Answer::Addresses(ipv4, _), Kind::A) => Some(RData::A(A::from(ipv4))),
            (Answer::Addresses(_, ipv6), Kind::Aaaa) => Some(RData::AAAA(AAAA::from(ipv6))),
            _ => None,
        };
        *reply.rcode_mut() = match answer {
            Answer::Addresses(..) => RCODE::NoError,
            Answer::NoSuchName => RCODE::NameError,
            Answer::Refused => RCODE::Refused,
        };
        let name = self.packet.questions.first()?.qname.clone();
        if let Some(data) = data {
            let record = ResourceRecord::new(name, CLASS::IN, TTL, data);
            reply.answers.push(record);
        }
        reply.questions = self.packet.questions;
        reply.build_bytes_vec_compressed().ok()
    }
}

fn status_only(id: u16, code: RCODE) -> Option<Vec<u8>> {
    let mut reply = Packet::new_reply(id);
    *reply.rcode_mut() = code;
    reply.build_bytes_vec().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(name: &[u8], kind: u16) -> Vec<u8> {
        let mut bytes = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name
            .split(|byte| *byte == b'.')
            .filter(|label| !label.is_empty())
        {
            bytes.push(u8::try_from(label.len()).unwrap());
            bytes.extend_from_slice(label);
        }
        bytes.push(0);
        bytes.extend_from_slice(&kind.to_be_bytes());
        bytes.extend_from_slice(&[0, 1]);
        bytes
    }

    const ADDRESSES: Answer = Answer::Addresses(Ipv4Addr::new(198, 18, 1, 0), Ipv6Addr::LOCALHOST);

    #[test]
    fn an_allowed_name_has_one_address_of_each_family() {
        for (kind, last) in [
            (1, Some(&[198, 18, 1, 0][..])),
            (28, Some(&[0, 0, 0, 1])),
            (65, None),
            (64, None),
            (16, None),
            (255, None),
        ] {
            let bytes = query(b"WWW.Example.com", kind);
            let read = Query::read(&bytes).unwrap();
            assert_eq!(read.name, Name::from_ascii(b"www.example.com"));
            let reply = read.reply(ADDRESSES).unwrap();
            // Id, response with recursion, no error, as many answers.
            assert_eq!(reply[..4], [0x12, 0x34, 0x81, 0x80], "{kind}");
            assert_eq!(reply[7], u8::from(last.is_some()), "{kind}");
            // The question comes back as it was written.
            assert!(reply.windows(3).any(|part| part == b"WWW"));
            if let Some(last) = last {
                assert!(reply.ends_with(last));
            }
        }
    }

    #[test]
    fn a_refused_name_does_not_exist() {
        let bytes = query(b"evil.example", 1);
        let reply = Query::read(&bytes)
            .unwrap()
            .reply(Answer::NoSuchName)
            .unwrap();
        assert_eq!((reply[3] & 15, reply[7]), (3, 0));
    }

    #[test]
    fn what_no_rule_could_name_is_no_name() {
        for name in [
            &b"a b.example"[..],
            b"a\0.example",
            b"\xff.example",
            b"1.2.3.4",
            b"",
        ] {
            let bytes = query(name, 1);
            assert_eq!(Query::read(&bytes).unwrap().name, None, "{name:?}");
        }
        // "exa.mple" as one label.
        let mut bytes = query(b"exa-mple.com", 1);
        let dash = bytes.iter().position(|byte| *byte == b'-').unwrap();
        bytes[dash] = b'.';
        assert_eq!(Query::read(&bytes).unwrap().name, None);
    }

    #[test]
    fn edns_is_tolerated() {
        let mut bytes = query(b"example.com", 1);
        bytes[11] = 1;
        // The root, OPT, 1232 bytes, no flags, a cookie.
        bytes.extend_from_slice(&[
            0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 12, 0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8,
        ]);
        let reply = Query::read(&bytes).unwrap().reply(ADDRESSES).unwrap();
        assert_eq!(reply[7], 1);
    }

    #[test]
    fn what_is_no_query_gets_an_error_or_nothing() {
        assert_eq!(Query::read(b"").unwrap_err(), None);
        let mut response = query(b"example.com", 1);
        response[2] = 0x81;
        assert_eq!(Query::read(&response).unwrap_err(), None);
        for change in [
            |bytes: &mut Vec<u8>| bytes.truncate(20),
            |bytes: &mut Vec<u8>| bytes[5] = 2,
            |bytes: &mut Vec<u8>| bytes[5] = 0,
        ] {
            let mut bytes = query(b"example.com", 1);
            change(&mut bytes);
            let reply = Query::read(&bytes).unwrap_err().unwrap();
            assert_eq!((reply[3] & 15, &reply[..2]), (1, &[0x12, 0x34][..]));
        }
        let mut update = query(b"example.com", 1);
        update[2] = 5 << 3;
        assert_eq!(Query::read(&update).unwrap_err().unwrap()[3] & 15, 4);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..600)) {
            if let Ok(read) = Query::read(&bytes) {
                let _ = read.reply(Answer::NoSuchName);
            }
        }

        #[test]
        fn a_damaged_query_is_read_or_refused(at in 0..29_usize, value in proptest::num::u8::ANY) {
            let mut bytes = query(b"example.com", 1);
            bytes[at] = value;
            if let Ok(read) = Query::read(&bytes) {
                let _ = read.reply(ADDRESSES);
            }
        }
    }
}
