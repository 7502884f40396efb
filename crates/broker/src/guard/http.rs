//! The hosts of HTTP/1 requests (RFC 9112): of every request of a connection, which means
//! following their framing. What is ambiguous is refused, so that no server can read
//! another request than the one that was checked.

use std::borrow::Cow;

use std::rc::Rc;

use httparse::{Header, Request, Status};
use zeroize::Zeroizing;

use super::Admit;
use super::authority::{authority, host_and_port};
use super::first_line::is_token;
use crate::report::Reason;
use hosts::Host;

/// The longest head of a request, in bytes.
pub(crate) const MAX_HEAD: usize = 32 << 10;
const MAX_FIELDS: usize = 128;
/// The longest line between two chunks, in bytes.
const MAX_LINE: usize = 1024;

/// A field to put into each request.
pub(crate) struct Secret {
    pub(crate) name: String,
    pub(crate) value: Zeroizing<String>,
}

/// The requests of one connection.
#[derive(Clone)]
pub(crate) struct Requests {
    host: Host,
    port: u16,
    secrets: Rc<[Secret]>,
    state: State,
    seen: u64,
    /// The start of the first head, which has gone on already.
    passed: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Head,
    /// So many bytes of a body or a chunk, and what follows.
    Body {
        left: u64,
        chunked: bool,
    },
    ChunkSize,
    ChunkEnd,
    Trailer,
    /// The response decides how it goes on.
    Upgrade,
    /// Another protocol, to which the server agreed.
    Tunnel,
}

/// What a head says.
struct Head {
    length: usize,
    next: State,
    change: Change,
}

/// What to change of a head when it is passed on.
#[derive(Clone, Copy, Default)]
struct Change {
    /// Leave out an upgrade that could not be followed.
    drop_upgrade: bool,
    /// Ask the server to close the connection after this request.
    close: bool,
}

/// Whether the first bytes could be those of a request: a method, which is upper case.
pub(crate) fn begins(bytes: &[u8]) -> bool {
    let method = bytes
        .iter()
        .take_while(|byte| byte.is_ascii_uppercase() || **byte == b'-');
    match method.count() {
        0 => false,
        count => match bytes.get(count) {
            Some(b' ') => bytes[count + 1..]
                .first()
                .is_none_or(|byte| matches!(byte, b'/' | b'h' | b'H' | b'*')),
            Some(_) => false,
            None => count <= 20,
        },
    }
}

impl Requests {
    pub(crate) fn new(host: Host, port: u16, secrets: Rc<[Secret]>) -> Self {
        Self {
            host,
            port,
            secrets,
            state: State::Head,
            seen: 0,
            passed: Vec::new(),
        }
    }

    /// Where the start of the first head has gone on already.
    pub(crate) fn after(self, passed: Vec<u8>) -> Self {
        Self { passed, ..self }
    }

    /// How many of `bytes` go on, and in which form.
    pub(crate) fn admit(&mut self, bytes: &[u8]) -> Result<Admit, Reason> {
        let mut taken = 0;
        loop {
            let rest = &bytes[taken..];
            if rest.is_empty() {
                return Ok(Admit::as_is(taken));
            }
            match self.state {
                State::Tunnel => return Ok(Admit::as_is(bytes.len())),
                State::Upgrade => return Ok(Admit::as_is(taken)),
                State::Head => {
                    let passed = std::mem::take(&mut self.passed);
                    let whole = match passed.is_empty() {
                        true => Cow::Borrowed(rest),
                        false => Cow::Owned([&passed, rest].concat()),
                    };
                    let Some(head) = self.head(&whole)? else {
                        self.passed = passed;
                        return incomplete(taken, &whole, MAX_HEAD);
                    };
                    let whole = &whole[..head.length];
                    let length = head.length - passed.len().min(head.length);
                    if head.change.drop_upgrade || head.change.close || !self.secrets.is_empty() {
                        if taken > 0 {
                            // It is rewritten when it comes first.
                            return Ok(Admit::as_is(taken));
                        }
                        self.advance(&head);
                        // It begins with what has gone on: a part of its first line.
                        let mut instead = self.rewrite(whole, head.change)?;
                        let passed = passed.len().min(instead.len());
                        instead.drain(..passed);
                        return Ok(Admit {
                            take: length,
                            instead: Some(instead),
                        });
                    }
                    self.advance(&head);
                    taken += length;
                }
                State::Body { left, .. } => {
                    let now = left.min(rest.len() as u64);
                    taken += now as usize;
                    self.go_on(now);
                }
                State::ChunkEnd => match rest {
                    [b'\r', b'\n', ..] => {
                        taken += 2;
                        self.state = State::ChunkSize;
                    }
                    [b'\r'] => return Ok(Admit::as_is(taken)),
                    _ => return Err(Reason::AmbiguousHttp),
                },
                State::ChunkSize | State::Trailer => {
                    let Some(line) = line(rest)? else {
                        return incomplete(taken, rest, MAX_LINE);
                    };
                    taken += line.len() + 2;
                    self.state = match self.state {
                        State::Trailer if line.is_empty() => State::Head,
                        State::Trailer if self.is_harmless(line) => State::Trailer,
                        State::Trailer => return Err(Reason::AmbiguousHttp),
                        _ => match chunk_size(line)? {
                            0 => State::Trailer,
                            left => State::Body {
                                left,
                                chunked: true,
                            },
                        },
                    };
                }
            }
        }
    }

    /// How many of the next bytes belong to a body, or to another protocol.
    pub(crate) fn unseen(&self) -> u64 {
        match self.state {
            State::Tunnel => u64::MAX,
            State::Body { left, .. } => left,
            _ => 0,
        }
    }

    /// So many of [`Self::unseen`] have gone on.
    pub(crate) fn go_on(&mut self, count: u64) {
        let State::Body { left, chunked } = self.state else {
            return;
        };
        self.state = match left.saturating_sub(count) {
            0 if chunked => State::ChunkEnd,
            0 => State::Head,
            left => State::Body { left, chunked },
        };
    }

    /// Into how many requests secrets were put.
    pub(crate) fn inserted(&self) -> u64 {
        match self.secrets.is_empty() {
            true => 0,
            false => self.seen,
        }
    }

    /// Whether the next response decides how it goes on.
    pub(crate) fn awaits_response(&self) -> bool {
        self.state == State::Upgrade
    }

    /// Takes the first bytes of that response; `false` when more are needed.
    pub(crate) fn response(&mut self, bytes: &[u8]) -> bool {
        // HTTP/1.1 101
        let Some(status) = bytes.get(9..12) else {
            return false;
        };
        self.state = match status {
            b"101" => State::Tunnel,
            _ => State::Head,
        };
        true
    }

    fn advance(&mut self, head: &Head) {
        self.state = head.next;
        self.seen += 1;
    }

    /// Reads and checks a head; `None` when it is not complete.
    fn head(&self, bytes: &[u8]) -> Result<Option<Head>, Reason> {
        let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut request = Request::new(&mut fields);
        let length = match request.parse(bytes) {
            Ok(Status::Complete(length)) => length,
            Ok(Status::Partial) => return Ok(None),
            Err(_) if self.seen == 0 && !begins(bytes) => return Err(Reason::NotHttp),
            Err(_) => return Err(Reason::AmbiguousHttp),
        };
        // Some servers end a line at a lone CR or LF, others do not.
        if has_lone_line_end(&bytes[..length]) {
            return Err(Reason::AmbiguousHttp);
        }
        let http11 = request.version == Some(1);
        self.check_host(&request, http11)?;
        let body = body(request.headers, http11)?;
        let upgrade: Vec<&[u8]> = values(request.headers, "upgrade").collect();
        let websocket = matches!(upgrade[..], [one] if one.eq_ignore_ascii_case(b"websocket"));
        if websocket && body == State::Head && self.seen == 0 {
            return Ok(Some(Head {
                length,
                next: State::Upgrade,
                change: Change::default(),
            }));
        }
        Ok(Some(Head {
            length,
            next: body,
            change: Change {
                drop_upgrade: !upgrade.is_empty(),
                // A server that does not expect this body takes it for the next request.
                close: body != State::Head && !expects_body(&request),
            },
        }))
    }

    fn check_host(&self, request: &Request<'_, '_>, http11: bool) -> Result<(), Reason> {
        let mut hosts = values(request.headers, "host");
        let host = hosts.next();
        // HTTP/1.1 has exactly one (RFC 9112, section 3.2).
        if hosts.next().is_some() || (http11 && host.is_none()) {
            return Err(Reason::NoHttpHost);
        }
        if request.method == Some("CONNECT") {
            return Err(Reason::OtherHttpHost);
        }
        // Servers answer it with the request that they got, secrets included.
        if request.method == Some("TRACE") && !self.secrets.is_empty() {
            return Err(Reason::HttpTrace);
        }
        let target = request.path.unwrap_or_default();
        let authority = match target.as_bytes().first() {
            Some(b'/') => None,
            _ if target == "*" => None,
            _ => Some(authority(target).ok_or(Reason::OtherHttpHost)?),
        };
        if host.is_none() && authority.is_none() {
            return Err(Reason::NoHttpHost);
        }
        let given = [host, authority.map(str::as_bytes)];
        match given.iter().flatten().all(|given| self.is_ours(given)) {
            true => Ok(()),
            false => Err(Reason::OtherHttpHost),
        }
    }

    /// Whether a line of a trailer cannot change what was checked, at a server that takes
    /// trailers for fields of the head (RFC 9110, section 6.5.1).
    fn is_harmless(&self, line: &[u8]) -> bool {
        const CHECKED: [&str; 5] = [
            "host",
            "content-length",
            "transfer-encoding",
            "connection",
            "upgrade",
        ];
        let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
        let secret = self.secrets.iter().map(|secret| secret.name.as_str());
        let mut checked = CHECKED.into_iter().chain(secret);
        name.len() < line.len()
            && !name.is_empty()
            && name.iter().all(|byte| is_token(*byte))
            && !checked.any(|other| name.eq_ignore_ascii_case(other.as_bytes()))
    }

    /// Whether `HOST[:PORT]` is what was connected to.
    fn is_ours(&self, given: &[u8]) -> bool {
        let Some((host, port)) = host_and_port(given) else {
            return false;
        };
        host == self.host && port.is_none_or(|port| port == self.port)
    }

    /// The head with the secrets in it, and changed.
    fn rewrite(&self, head: &[u8], change: Change) -> Result<Zeroizing<Vec<u8>>, Reason> {
        let mut lines = head
            .split_inclusive(|byte| *byte == b'\n')
            .skip_while(|line| *line == b"\r\n");
        let added = |secret: &Secret| secret.name.len() + secret.value.len() + 4;
        let added: usize = self.secrets.iter().map(added).sum();
        // All at once: what grows leaves copies behind.
        let mut out = Zeroizing::new(Vec::with_capacity(head.len() + added + 32));
        out.extend_from_slice(lines.next().ok_or(Reason::AmbiguousHttp)?);
        let Change {
            drop_upgrade,
            mut close,
        } = change;
        let is_close = |value: &[u8]| value.trim_ascii().eq_ignore_ascii_case(b"close");
        for line in lines.filter(|line| *line != b"\r\n") {
            let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
            let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
            if self.secrets.iter().any(|secret| is(&secret.name)) {
                continue;
            }
            if (drop_upgrade || change.close) && is("connection") {
                let value = line.get(name.len() + 1..).unwrap_or_default();
                close |= value.split(|byte| *byte == b',').any(is_close);
            } else if !(drop_upgrade && (is("upgrade") || is("http2-settings"))) {
                out.extend_from_slice(line);
            }
        }
        if close {
            out.extend_from_slice(b"Connection: close\r\n");
        }
        for secret in self.secrets.iter() {
            for part in [secret.name.as_str(), ": ", secret.value.as_str(), "\r\n"] {
                out.extend_from_slice(part.as_bytes());
            }
        }
        out.extend_from_slice(b"\r\n");
        Ok(out)
    }
}

fn incomplete(taken: usize, rest: &[u8], most: usize) -> Result<Admit, Reason> {
    match rest.len() {
        length if length < most => Ok(Admit::as_is(taken)),
        _ => Err(Reason::AmbiguousHttp),
    }
}

fn values<'a>(fields: &'a [Header<'a>], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    let named = move |field: &&Header<'_>| field.name.eq_ignore_ascii_case(name);
    fields
        .iter()
        .filter(named)
        .map(|field| field.value.trim_ascii())
}

fn has_lone_line_end(head: &[u8]) -> bool {
    let pairs = head.windows(2).filter(|pair| pair == b"\r\n").count();
    head.iter().filter(|byte| **byte == b'\n').count() != pairs
        || head.iter().filter(|byte| **byte == b'\r').count() != pairs
}

/// Whether servers expect a body of a request with this method (RFC 9110, section 9.3).
fn expects_body(request: &Request<'_, '_>) -> bool {
    !matches!(
        request.method,
        Some("GET" | "HEAD" | "DELETE" | "OPTIONS" | "TRACE")
    )
}

/// How a body ends, by Content-Length and Transfer-Encoding.
fn body(fields: &[Header<'_>], http11: bool) -> Result<State, Reason> {
    let lengths: Vec<&[u8]> = values(fields, "content-length").collect();
    let codings: Vec<&[u8]> = values(fields, "transfer-encoding").collect();
    match (&lengths[..], &codings[..]) {
        ([], []) => Ok(State::Head),
        ([], [coding]) if http11 && coding.eq_ignore_ascii_case(b"chunked") => Ok(State::ChunkSize),
        ([length], []) if !length.is_empty() && length.iter().all(u8::is_ascii_digit) => {
            let text = str::from_utf8(length).unwrap_or_default();
            match text.parse().map_err(|_| Reason::AmbiguousHttp)? {
                0 => Ok(State::Head),
                left => Ok(State::Body {
                    left,
                    chunked: false,
                }),
            }
        }
        _ => Err(Reason::AmbiguousHttp),
    }
}

/// A line without its end; `None` when it is not complete.
fn line(bytes: &[u8]) -> Result<Option<&[u8]>, Reason> {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
        return Ok(None);
    };
    let line = bytes[..end]
        .strip_suffix(b"\r")
        .ok_or(Reason::AmbiguousHttp)?;
    match line
        .iter()
        .any(|byte| byte.is_ascii_control() && *byte != b'\t')
    {
        true => Err(Reason::AmbiguousHttp),
        false => Ok(Some(line)),
    }
}

fn chunk_size(line: &[u8]) -> Result<u64, Reason> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
    let digits = digits.trim_ascii_end();
    if digits.is_empty() || digits.len() > 15 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(Reason::AmbiguousHttp);
    }
    let text = str::from_utf8(digits).unwrap_or_default();
    u64::from_str_radix(text, 16).map_err(|_| Reason::AmbiguousHttp)
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
