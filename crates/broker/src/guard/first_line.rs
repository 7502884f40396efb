//! The first line on a port that is not for HTTP alone: whether some server could take it
//! for a request of HTTP/1. Whatever could be one is then read strictly, so that no server
//! finds a host in it that was not checked.

use super::Speaks;
use crate::report::Reason;

/// The longest line that is kept as a whole, in bytes.
const LONGEST: usize = 8 << 10;

/// What is kept of the start and of the end of a line that is too long for a request.
const KEPT: usize = 64;

/// How a connection of HTTP/2 begins (RFC 9113, section 3.4).
const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What has gone on of a first line that is not complete.
#[derive(Clone, Default)]
pub(super) struct FirstLine {
    /// Without the space before it.
    passed: Vec<u8>,
    is_long: bool,
    is_begun: bool,
}

impl FirstLine {
    /// Whether there has been nothing so far.
    pub(super) fn is_empty(&self) -> bool {
        !self.is_begun
    }

    /// Reads on: `Unknown` while the line is not complete.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Result<Speaks, Reason> {
        self.is_begun = true;
        let bytes = match self.passed.is_empty() {
            // Any number of empty lines may come first.
            true => bytes.trim_ascii_start(),
            false => bytes,
        };
        let before = self.passed.len();
        self.passed.extend_from_slice(bytes);
        let speaks = speaks(&self.passed);
        if speaks == Speaks::Http && self.is_long {
            return Err(Reason::AmbiguousHttp);
        }
        if speaks != Speaks::Unknown {
            self.passed.truncate(before);
        }
        if self.passed.len() > LONGEST {
            self.passed.drain(KEPT..self.passed.len() - KEPT);
            self.is_long = true;
        }
        Ok(speaks)
    }

    /// Whether it would be a request if it ended here.
    pub(super) fn could_end(&self) -> bool {
        speaks(&[&self.passed[..], b"\n"].concat()) == Speaks::Http
    }

    /// What has gone on of it.
    pub(super) fn take_passed(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.passed)
    }
}

/// What begins with these bytes, of which the first one is no space.
fn speaks(bytes: &[u8]) -> Speaks {
    let method = bytes.iter().take_while(|byte| is_token(**byte)).count();
    match bytes.get(method) {
        None => return Speaks::Unknown,
        Some(b' ' | b'\t' | b'\x0b' | b'\x0c') if method > 0 => {}
        Some(_) => return Speaks::Other,
    }
    if bytes.starts_with(HTTP2) {
        return Speaks::Other;
    }
    if HTTP2.starts_with(bytes) {
        return Speaks::Unknown;
    }
    let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n')) else {
        return Speaks::Unknown;
    };
    let space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\x0b' | b'\x0c');
    let mut words = bytes[method..end]
        .split(space)
        .filter(|word| !word.is_empty());
    let begins = |word: &[u8], with: &str| {
        let start = word.get(..with.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(with.as_bytes()))
    };
    let target = words.next().unwrap_or_default();
    let is_url = ["http:", "https:"]
        .iter()
        .any(|scheme| begins(target, scheme));
    let is_versioned = begins(target, "http/") || words.clone().any(|word| begins(word, "http/"));
    let is_old = words.next().is_none() && is_versionless(&bytes[..method], target);
    match is_url || is_versioned || is_old {
        true => Speaks::Http,
        false => Speaks::Other,
    }
}

/// Whether a line of these two words is a request without a version, as HTTP/0.9 has it. Some
/// servers read fields after it, with the host. Other protocols have commands of two words, too.
fn is_versionless(method: &[u8], target: &[u8]) -> bool {
    const METHODS: [&[u8]; 8] = [
        b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"TRACE",
    ];
    let is_path = target.starts_with(b"/") && !method.iter().any(u8::is_ascii_lowercase);
    is_path || (!target.is_empty() && METHODS.contains(&method))
}

/// Whether a method can have this byte (RFC 9110, section 5.6.2).
pub(super) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
