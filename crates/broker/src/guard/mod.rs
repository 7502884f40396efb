//! Checks that what a connection says inside is what it was allowed for.

pub(crate) mod authority;
pub(crate) mod http;
pub(crate) mod tls;

use self::http::{Requests, Secret};
use self::tls::Hello;
use crate::report::Reason;
use crate::rules::{Host, Name};

/// What goes on of the bytes that were looked at.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Admit {
    /// How many of them; 0 when more are needed.
    pub(crate) take: usize,
    /// What goes on instead of these.
    pub(crate) instead: Option<Vec<u8>>,
}

impl Admit {
    fn as_is(take: usize) -> Self {
        Self {
            take,
            instead: None,
        }
    }
}

/// What a connection speaks, as far as it has shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Speaks {
    #[default]
    Unknown,
    Tls,
    Http,
    Other,
}

/// The check of one connection's bytes from the cell.
pub(crate) struct Guard {
    checked: Option<(Name, u16)>,
    secrets: Vec<Secret>,
    pub(crate) speaks: Speaks,
    requests: Option<Requests>,
}

impl Guard {
    /// A guard that lets everything through.
    pub(crate) fn open() -> Self {
        Self {
            checked: None,
            secrets: Vec::new(),
            speaks: Speaks::Other,
            requests: None,
        }
    }

    /// A guard of a connection to `name`.
    pub(crate) fn of(name: Name, port: u16, secrets: Vec<Secret>) -> Self {
        Self {
            checked: Some((name, port)),
            secrets,
            speaks: Speaks::Unknown,
            requests: None,
        }
    }

    /// Whether the first bytes are looked at before anything is dialled: where the client
    /// is known to speak first.
    pub(crate) fn comes_first(&self) -> bool {
        matches!(self.checked, Some((_, 80 | 443)))
    }

    /// Whether bytes need no look any more.
    pub(crate) fn is_open(&self) -> bool {
        self.requests.is_none() && matches!(self.speaks, Speaks::Other | Speaks::Tls)
    }

    /// Looks at the next bytes, without the end of the stream.
    pub(crate) fn admit(&mut self, bytes: &[u8]) -> Result<Admit, Reason> {
        if self.speaks == Speaks::Unknown {
            self.begin(bytes)?;
        }
        match &mut self.requests {
            Some(requests) => requests.admit(bytes),
            None if self.speaks == Speaks::Unknown => Ok(Admit::as_is(0)),
            None => Ok(Admit::as_is(bytes.len())),
        }
    }

    /// Looks at the first bytes without taking any: whether there are enough to know that
    /// they are allowed.
    pub(crate) fn inspect(&mut self, bytes: &[u8]) -> Result<bool, Reason> {
        if self.speaks == Speaks::Unknown {
            self.begin(bytes)?;
        }
        match &self.requests {
            Some(requests) => Ok(requests.clone().admit(bytes)?.take > 0),
            None => Ok(self.speaks != Speaks::Unknown),
        }
    }

    /// Finds out what it speaks, and checks a ClientHello.
    fn begin(&mut self, bytes: &[u8]) -> Result<(), Reason> {
        let Some((name, port)) = &self.checked else {
            self.speaks = Speaks::Other;
            return Ok(());
        };
        let mut joined = Vec::new();
        let tls = tls::read(bytes, &mut joined);
        if tls == Hello::Incomplete {
            return Ok(());
        }
        if tls != Hello::Other {
            self.speaks = Speaks::Tls;
            return match tls {
                Hello::Name(given) if Name::from_ascii(given).as_ref() == Some(name) => Ok(()),
                Hello::Name(_) => Err(Reason::OtherTlsName),
                Hello::Encrypted => Err(Reason::EncryptedTlsName),
                Hello::Nameless => Err(Reason::NoTlsName),
                _ => Err(Reason::NotTls),
            };
        }
        if *port == 443 {
            self.speaks = Speaks::Other;
            return Err(Reason::NotTls);
        }
        let line_ends = bytes.contains(&b'\n');
        if *port == 80 || http::may_be_request(bytes) {
            if *port != 80 && !line_ends {
                // Not a whole line yet: it may still be another protocol.
                return Ok(());
            }
            self.speaks = Speaks::Http;
            let secrets = std::mem::take(&mut self.secrets);
            self.requests = Some(Requests::new(Host::Name(name.clone()), *port, secrets));
        } else {
            self.speaks = Speaks::Other;
        }
        Ok(())
    }

    /// Whether a response decides how it goes on.
    pub(crate) fn awaits_response(&self) -> bool {
        self.requests
            .as_ref()
            .is_some_and(Requests::awaits_response)
    }

    /// Takes the first bytes of a response; `false` when more are needed.
    pub(crate) fn response(&mut self, bytes: &[u8]) -> bool {
        self.requests
            .as_mut()
            .is_none_or(|requests| requests.response(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(port: u16) -> Guard {
        Guard::of(Name::parse("example.com").unwrap(), port, Vec::new())
    }

    #[test]
    fn the_first_bytes_decide() {
        let hello = tls::tests::named("EXAMPLE.com");
        let evil = tls::tests::named("evil.example");
        let request = b"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n";
        let other = b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n";
        for (port, bytes, result) in [
            (443, &hello[..], Ok(hello.len())),
            (443, &hello[..20], Ok(0)),
            (443, &evil, Err(Reason::OtherTlsName)),
            (443, request, Err(Reason::NotTls)),
            (443, b"SSH-2.0\r\n", Err(Reason::NotTls)),
            (80, request, Ok(request.len())),
            (80, other, Err(Reason::OtherHttpHost)),
            (80, &hello, Ok(hello.len())),
            (80, &evil, Err(Reason::OtherTlsName)),
            (80, b"SSH-2.0\r\n", Err(Reason::NotHttp)),
            (8080, request, Ok(request.len())),
            (8080, other, Err(Reason::OtherHttpHost)),
            (8080, &request[..9], Ok(0)),
            (8443, &evil, Err(Reason::OtherTlsName)),
            (5432, b"\0\0\0\x08\x04\xd2\x16\x2f", Ok(8)),
            (22, b"SSH-2.0-OpenSSH\r\n", Ok(17)),
        ] {
            let mut guard = guard(port);
            assert_eq!(
                guard.admit(bytes).map(|admit| admit.take),
                result,
                "{port} {bytes:?}"
            );
        }
        assert_eq!(Guard::open().admit(&evil).unwrap().take, evil.len());
    }
}
