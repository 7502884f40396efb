//! What reads bytes of a cell or of its peers, for fuzzing: `tests/fuzz` calls it with
//! inputs that it looks for, and the tests below with the same corpus and damaged copies.
//!
//! Nothing here may panic, and each function asserts what must hold for any bytes.

#![allow(clippy::panic)]

use crate::dns::{Answer, Query};
use crate::guard::Guard;
use crate::guard::tls::{self, Hello};
use crate::report::{MAX_HOST, Reason};
use crate::request::{self, Asked};
use crate::resolve::read_answer;
use hosts::{Host, Name};

/// A DNS query of the cell.
pub fn dns_query(bytes: &[u8]) {
    let Ok(query) = Query::read(bytes) else {
        return;
    };
    assert!(query.shown.len() <= MAX_HOST);
    if let Some(name) = &query.name {
        is_canonical(name);
    }
    let addresses = Answer::Addresses([198, 18, 1, 0].into(), [0; 16].into());
    if let Some(reply) = query.reply(addresses) {
        // The same id, and a response.
        assert_eq!(reply.get(..2), bytes.get(..2));
        assert!(reply.get(2).is_some_and(|flags| flags & 0x80 > 0));
    }
}

/// An answer of a DNS server outside.
pub fn dns_answer(bytes: &[u8]) {
    let Some(name) = Name::from_ascii(b"example.com") else {
        return;
    };
    // Whatever its id, so that what follows is read.
    let id = bytes
        .get(..2)
        .map_or(0, |id| u16::from(id[0]) << 8 | u16::from(id[1]));
    let addresses = read_answer(bytes, id, &name);
    assert!(addresses.len() <= 2 * 32);
}

/// The first bytes of a TLS client.
pub fn client_hello(bytes: &[u8]) {
    let (mut joined, mut joined_before) = (Vec::new(), Vec::new());
    let whole = tls::read(bytes, &mut joined);
    if let Hello::Name(name) = whole {
        assert!(!name.is_empty() && name.len() < bytes.len());
    }
    // What has been decided does not change with more bytes.
    let before = tls::read(&bytes[..bytes.len() / 2], &mut joined_before);
    assert!(before == Hello::Incomplete || before == whole);
}

/// What a client sends to a host that is allowed, on a port for HTTP and on another one.
/// The first byte says in pieces of how many bytes it arrives.
pub fn first_bytes(bytes: &[u8]) {
    let (Some((step, bytes)), Some(name)) = (bytes.split_first(), Name::from_ascii(b"example.com"))
    else {
        return;
    };
    for port in [80, 443, 8080] {
        let guard = || Guard::of(name.clone(), port, Default::default());
        let whole = feed(guard(), bytes, bytes.len());
        let pieces = feed(guard(), bytes, usize::from(*step).max(1));
        match (&whole, &pieces) {
            // Space before a request may have gone on before there was one.
            _ if bytes.first().is_some_and(u8::is_ascii_whitespace) => {}
            // So may a part of its first line.
            (Ok(whole), Ok(pieces)) => {
                assert!(
                    whole.starts_with(pieces) || pieces.starts_with(whole),
                    "{port}"
                );
            }
            (Err(_), Err(_)) => {}
            _ => panic!("{port}, by {step}: {whole:?}, {pieces:?}"),
        }
    }
}

/// What goes on of `bytes` that arrive in pieces.
fn feed(mut guard: Guard, bytes: &[u8], step: usize) -> Result<Vec<u8>, Reason> {
    let (mut at, mut end) = (0, 0);
    let mut out = Vec::new();
    while end < bytes.len() {
        end = (end + step).min(bytes.len());
        while at < end {
            let admit = guard.admit(&bytes[at..end])?;
            assert!(admit.take <= end - at);
            if admit.take == 0 {
                break;
            }
            let taken = &bytes[at..at + admit.take];
            out.extend_from_slice(
                admit
                    .instead
                    .as_ref()
                    .map_or(taken, |instead| instead.as_slice()),
            );
            at += admit.take;
        }
    }
    guard.end().map(|()| out)
}

/// A request to the HTTP proxy or to the SOCKS5 proxy.
pub fn proxy_request(bytes: &[u8]) {
    type Reader = fn(&[u8]) -> Result<Asked, Reason>;
    let readers: [Reader; 3] = [
        request::http,
        |bytes| request::socks(bytes, false),
        |bytes| request::socks(bytes, true),
    ];
    for read in readers {
        let whole = read(bytes);
        match &whole {
            Ok(Asked::For(taken, host, ..)) => {
                assert!(*taken <= bytes.len());
                if let Host::Name(name) = host {
                    is_canonical(name);
                }
            }
            Ok(Asked::Continue(taken, _)) => assert!(*taken <= bytes.len()),
            Ok(Asked::Incomplete) | Err(_) => {}
        }
        // What has been decided does not change with more bytes.
        let before = read(&bytes[..bytes.len() / 2]);
        assert!(before == Ok(Asked::Incomplete) || before == whole);
    }
}

/// A name is in one form only, or two hosts could be one.
fn is_canonical(name: &Name) {
    assert_eq!(
        Name::from_ascii(name.as_str().as_bytes()).as_ref(),
        Some(name)
    );
}

#[cfg(test)]
#[path = "../../../tests/fuzz/damage.rs"]
mod damage;

#[cfg(test)]
mod tests {
    super::damage::test_targets!(
        dns_query,
        dns_answer,
        client_hello,
        first_bytes,
        proxy_request
    );
}
