//! The server name in a TLS ClientHello (RFC 8446, RFC 6066).

/// The longest ClientHello that is waited for, with its records' headers, in bytes.
pub(crate) const MAX_HELLO: usize = 32 << 10;

/// What a connection begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hello<'a> {
    /// Not enough bytes yet.
    Incomplete,
    /// Something else than a ClientHello.
    Other,
    /// A ClientHello that breaks its own format, or is too long.
    Malformed,
    /// One without a server name.
    Nameless,
    /// One whose true name is encrypted.
    Encrypted,
    /// One with this server name.
    Name(&'a [u8]),
}

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;
/// encrypted_client_hello, and the draft before it.
const ENCRYPTED: [u16; 2] = [0xfe0d, 0xffce];
const MAX_RECORD: usize = 1 << 14;

/// Whether the first bytes could be those of a ClientHello.
pub(crate) fn begins(bytes: &[u8]) -> bool {
    matches!(bytes, [HANDSHAKE] | [HANDSHAKE, 3, ..])
}

/// Reads the ClientHello at the start of a stream. `joined` gets its content without the
/// records' headers.
pub(crate) fn read<'a>(bytes: &[u8], joined: &'a mut Vec<u8>) -> Hello<'a> {
    if bytes.is_empty() {
        return Hello::Incomplete;
    }
    if !begins(bytes) {
        return Hello::Other;
    }
    joined.clear();
    let complete = join(bytes, joined);
    if let Err(hello) = complete {
        return hello;
    }
    read_hello(joined.get(4..).unwrap_or_default()).unwrap_or(Hello::Malformed)
}

/// Joins the records until the first handshake message is complete.
fn join(bytes: &[u8], joined: &mut Vec<u8>) -> Result<(), Hello<'static>> {
    let incomplete = match bytes.len() {
        ..MAX_HELLO => Hello::Incomplete,
        _ => Hello::Malformed,
    };
    let mut rest = bytes;
    loop {
        if let [kind, a, b, c, ..] = joined[..] {
            let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
            if kind != CLIENT_HELLO || length > MAX_HELLO {
                return Err(Hello::Malformed);
            }
            if joined.len() >= 4 + length {
                joined.truncate(4 + length);
                return Ok(());
            }
        }
        let (header, content) = rest.split_at_checked(5).ok_or(incomplete)?;
        let length = usize::from(header[3]) << 8 | usize::from(header[4]);
        if header[0] != HANDSHAKE || header[1] != 3 || length == 0 || length > MAX_RECORD {
            return Err(Hello::Malformed);
        }
        // Of the last record, what is there: its message may be complete already.
        joined.extend_from_slice(content.get(..length).unwrap_or(content));
        rest = content.get(length..).unwrap_or_default();
    }
}

/// What is left of a message.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self, bytes: usize) -> Option<usize> {
        let number = |taken: &[u8]| {
            taken
                .iter()
                .fold(0, |sum, byte| sum << 8 | usize::from(*byte))
        };
        self.take(bytes).map(number)
    }

    /// A field with its length before it, in as many bytes.
    fn vector(&mut self, bytes: usize) -> Option<Self> {
        let length = self.number(bytes)?;
        self.take(length).map(Self)
    }
}

fn read_hello(body: &[u8]) -> Option<Hello<'_>> {
    let mut hello = Fields(body);
    // Version, random, session, cipher suites, compression.
    hello.take(2 + 32)?;
    hello.vector(1)?;
    hello.vector(2)?;
    hello.vector(1)?;
    if hello.0.is_empty() {
        return Some(Hello::Nameless);
    }
    let mut extensions = hello.vector(2)?;
    if !hello.0.is_empty() {
        return None;
    }
    let mut name = None;
    let mut encrypted = false;
    while !extensions.0.is_empty() {
        let kind = u16::try_from(extensions.number(2)?).ok()?;
        let content = extensions.vector(2)?;
        encrypted |= ENCRYPTED.contains(&kind);
        if kind == SERVER_NAME {
            // Two of them would mean what the server makes of it.
            match name {
                None => name = Some(host_name(content)?),
                Some(_) => return None,
            }
        }
    }
    Some(match name {
        _ if encrypted => Hello::Encrypted,
        None => Hello::Nameless,
        Some(name) => Hello::Name(name),
    })
}

/// The only name in the extension.
fn host_name(mut extension: Fields<'_>) -> Option<&[u8]> {
    let mut list = extension.vector(2)?;
    let kind = list.number(1)?;
    let name = list.vector(2)?;
    let only = kind == usize::from(HOST_NAME) && list.0.is_empty() && extension.0.is_empty();
    (only && !name.0.is_empty()).then_some(name.0)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn vector(bytes: usize, content: &[u8]) -> Vec<u8> {
        let length = content.len().to_be_bytes();
        [&length[length.len() - bytes..], content].concat()
    }

    fn server_name(name: &[u8]) -> (u16, Vec<u8>) {
        (0, vector(2, &[&[0][..], &vector(2, name)].concat()))
    }

    /// A ClientHello in records of at most `record` bytes.
    pub(crate) fn hello(extensions: &[(u16, Vec<u8>)], record: usize) -> Vec<u8> {
        let mut list = Vec::new();
        for (kind, content) in extensions {
            list.extend_from_slice(&kind.to_be_bytes());
            list.extend(vector(2, content));
        }
        let body = [
            &[3, 3][..],
            &[7; 32],
            &vector(1, &[9; 32]),
            &vector(2, &[0x13, 1]),
            &vector(1, &[0]),
            &vector(2, &list),
        ]
        .concat();
        let message = [&[1][..], &vector(3, &body)].concat();
        let records = message
            .chunks(record)
            .map(|part| [&[22, 3, 1][..], &vector(2, part)].concat());
        records.collect::<Vec<_>>().concat()
    }

    pub(crate) fn named(name: &str) -> Vec<u8> {
        hello(&[(43, vec![2, 3, 4]), server_name(name.as_bytes())], 4096)
    }

    #[test]
    fn the_name_is_found_however_it_is_cut() {
        for record in [1, 2, 5, 60, 4096] {
            let bytes = hello(&[(10, vec![0; 300]), server_name(b"example.com")], record);
            let mut joined = Vec::new();
            for end in 0..bytes.len() {
                assert_eq!(
                    read(&bytes[..end], &mut joined),
                    Hello::Incomplete,
                    "{end} by {record}"
                );
            }
            assert_eq!(read(&bytes, &mut joined), Hello::Name(b"example.com"));
            let more = [&bytes[..], b"\x17\x03\x03\0\x01x"].concat();
            assert_eq!(read(&more, &mut joined), Hello::Name(b"example.com"));
        }
    }

    #[test]
    fn what_hides_or_doubles_the_name_is_seen() {
        let name = || server_name(b"example.com");
        let two_names = vector(
            2,
            &[&[0][..], &vector(2, b"a"), &[0], &vector(2, b"b")].concat(),
        );
        for (extensions, expected) in [
            (vec![], Hello::Nameless),
            (vec![(10, vec![])], Hello::Nameless),
            (vec![name(), (0xfe0d, vec![0; 200])], Hello::Encrypted),
            (vec![name(), (0xffce, vec![])], Hello::Encrypted),
            (vec![name(), server_name(b"evil.example")], Hello::Malformed),
            (vec![(0, two_names)], Hello::Malformed),
            (vec![(0, vec![])], Hello::Malformed),
            (vec![server_name(b"")], Hello::Malformed),
            (
                vec![(0, vector(2, &[&[1][..], &vector(2, b"a")].concat()))],
                Hello::Malformed,
            ),
        ] {
            assert_eq!(
                read(&hello(&extensions, 4096), &mut Vec::new()),
                expected,
                "{extensions:?}"
            );
        }
    }

    #[test]
    fn other_protocols_are_told_apart() {
        let mut joined = Vec::new();
        for bytes in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"SSH-2.0",
            b"\x80\x2e\x01\x03\x01",
            b"\x16\x02",
            b"\x17\x03\x03",
        ] {
            assert_eq!(read(bytes, &mut joined), Hello::Other);
        }
        assert_eq!(read(b"", &mut joined), Hello::Incomplete);
        // A ServerHello, an empty record, a record that is too long, another record between.
        let cut = hello(&[server_name(b"example.com")], 20);
        let other = [&cut[..25], b"\x17\x03\x03\0\x01x", &cut[25..]].concat();
        for bytes in [
            &b"\x16\x03\x01\0\x04\x02\0\0\0"[..],
            b"\x16\x03\x01\0\0",
            b"\x16\x03\x01\xff\xff",
            &other,
        ] {
            assert_eq!(read(bytes, &mut joined), Hello::Malformed, "{bytes:?}");
        }
        let endless = hello(&[(21, vec![0; 60_000])], 4096);
        assert_eq!(read(&endless, &mut joined), Hello::Malformed);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read(mut bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300), tls in proptest::bool::ANY) {
            if tls && bytes.len() > 5 {
                bytes[..6].copy_from_slice(&[22, 3, 1, 1, 0, 1]);
            }
            let _ = read(&bytes, &mut Vec::new());
        }

        #[test]
        fn a_damaged_hello_never_names_another_host(at in 0..150_usize, value in proptest::num::u8::ANY) {
            let mut bytes = named("example.com");
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
            if let Hello::Name(name) = read(&bytes, &mut Vec::new()) {
                // One byte of the name can have changed, and its length cannot grow.
                proptest::prop_assert!(name.len() <= 11);
            }
        }
    }
}
