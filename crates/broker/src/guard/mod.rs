//! Checks that what a connection says inside is what it was allowed for.

pub(crate) mod authority;
mod first_line;
pub(crate) mod http;
pub(crate) mod tls;

use std::rc::Rc;

use zeroize::Zeroizing;

use self::first_line::FirstLine;
use self::http::{Requests, Secret};
use self::tls::Hello;
use crate::report::Reason;
use hosts::{Host, Name};

/// What goes on of the bytes that were looked at.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Admit {
    /// How many of them; 0 when more are needed.
    pub(crate) take: usize,
    /// What goes on instead of these.
    pub(crate) instead: Option<Zeroizing<Vec<u8>>>,
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

/// The fields to put into the requests of a connection.
#[derive(Clone, Default)]
pub(crate) struct Secrets {
    pub(crate) fields: Rc<[Secret]>,
    /// Whether the requests are made by TLS.
    pub(crate) tls: bool,
}

/// The check of one connection's bytes from the cell.
pub(crate) struct Guard {
    checked: Option<(Name, u16)>,
    secrets: Secrets,
    pub(crate) speaks: Speaks,
    first_line: FirstLine,
    /// Nothing goes on before there are more bytes.
    waits: bool,
    requests: Option<Requests>,
}

impl Guard {
    /// A guard that lets everything through.
    pub(crate) fn open() -> Self {
        Self {
            checked: None,
            secrets: Secrets::default(),
            speaks: Speaks::Other,
            first_line: FirstLine::default(),
            waits: false,
            requests: None,
        }
    }

    /// A guard of a connection to `name`.
    pub(crate) fn of(name: Name, port: u16, secrets: Secrets) -> Self {
        Self {
            checked: Some((name, port)),
            secrets,
            speaks: Speaks::Unknown,
            first_line: FirstLine::default(),
            waits: false,
            requests: None,
        }
    }

    /// Whether the first bytes are looked at before anything is dialled: where the client
    /// is known to speak first.
    pub(crate) fn comes_first(&self) -> bool {
        matches!(self.checked, Some((_, 80 | 443))) || self.has_secrets()
    }

    /// Whether requests get secret fields.
    pub(crate) fn has_secrets(&self) -> bool {
        !self.secrets.fields.is_empty()
    }

    /// Whether it must see the first bytes before any goes on.
    pub(crate) fn awaits_first_bytes(&self) -> bool {
        self.has_secrets() && self.speaks == Speaks::Unknown
    }

    /// The requests inside of TLS, for which it must end here.
    pub(crate) fn inside_tls(&self) -> Option<(&Name, Requests)> {
        let (name, port) = self.checked.as_ref()?;
        let ends_here = self.speaks == Speaks::Tls && self.has_secrets();
        let host = Host::Name(name.clone());
        ends_here.then(|| {
            (
                name,
                Requests::new(host, *port, self.secrets.fields.clone()),
            )
        })
    }

    /// Into how many requests secrets were put.
    pub(crate) fn inserted(&self) -> u64 {
        self.requests.as_ref().map_or(0, Requests::inserted)
    }

    /// Whether bytes need no look any more.
    pub(crate) fn is_open(&self) -> bool {
        self.requests.is_none() && matches!(self.speaks, Speaks::Other | Speaks::Tls)
    }

    /// How many of the next bytes need no look.
    pub(crate) fn unseen(&self) -> u64 {
        match &self.requests {
            _ if self.is_open() => u64::MAX,
            Some(requests) => requests.unseen(),
            None => 0,
        }
    }

    /// So many of [`Self::unseen`] have gone on.
    pub(crate) fn go_on(&mut self, count: u64) {
        if let Some(requests) = &mut self.requests {
            requests.go_on(count);
        }
    }

    /// Looks at the next bytes, without the end of the stream.
    pub(crate) fn admit(&mut self, bytes: &[u8]) -> Result<Admit, Reason> {
        if self.speaks == Speaks::Unknown {
            self.begin(bytes)?;
        }
        match &mut self.requests {
            Some(requests) => requests.admit(bytes),
            None if self.waits => Ok(Admit::as_is(0)),
            None => Ok(Admit::as_is(bytes.len())),
        }
    }

    /// Judges the end of the client's bytes. Some servers take it for the end of a line.
    pub(crate) fn end(&self) -> Result<(), Reason> {
        match self.speaks == Speaks::Unknown && self.first_line.could_end() {
            true => Err(Reason::AmbiguousHttp),
            false => Ok(()),
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
        if self.first_line.is_empty() {
            let mut joined = Vec::new();
            let tls = tls::read(bytes, &mut joined);
            self.waits = tls == Hello::Incomplete;
            if self.waits {
                return Ok(());
            }
            if tls != Hello::Other {
                self.speaks = Speaks::Tls;
                return match tls {
                    _ if self.has_secrets() && !self.secrets.tls => Err(Reason::NotHttp),
                    Hello::Name(given) if Name::from_ascii(given).as_ref() == Some(name) => Ok(()),
                    Hello::Name(_) => Err(Reason::OtherTlsName),
                    Hello::Encrypted => Err(Reason::EncryptedTlsName),
                    Hello::Nameless => Err(Reason::NoTlsName),
                    _ => Err(Reason::NotTls),
                };
            }
        }
        if *port == 443 && !self.has_secrets() || self.secrets.tls {
            self.speaks = Speaks::Other;
            return Err(Reason::NotTls);
        }
        // Other protocols' clients may wait for an answer to a part of a line. So it goes
        // on, and counts as a part of the head if the line turns out to be a request.
        self.speaks = match *port {
            80 => Speaks::Http,
            _ if self.has_secrets() => Speaks::Http,
            _ => self.first_line.read(bytes)?,
        };
        if self.speaks == Speaks::Http {
            let secrets = self.secrets.fields.clone();
            let host = Host::Name(name.clone());
            let passed = self.first_line.take_passed();
            self.requests = Some(Requests::new(host, *port, secrets).after(passed));
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
        Guard::of(
            Name::parse("example.com").unwrap(),
            port,
            Secrets::default(),
        )
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
            (8080, &request[..9], Ok(9)),
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

    /// How many bytes go on, in pieces of `step` bytes and with the end, or why not.
    fn feed(port: u16, bytes: &[u8], step: usize) -> Result<usize, Reason> {
        let mut guard = guard(port);
        let (mut at, mut end) = (0, 0);
        while end < bytes.len() {
            end = (end + step).min(bytes.len());
            loop {
                match guard.admit(&bytes[at..end])?.take {
                    0 => break,
                    count => at += count,
                }
            }
        }
        guard.end().map(|()| at)
    }

    /// What some server takes for a request is one, on every port.
    #[test]
    fn a_request_is_found_however_it_is_written() {
        let long = format!(
            "GET /{} HTTP/1.1\r\nHost: evil.example\r\n\r\n",
            "x".repeat(50_000)
        );
        for bytes in [
            "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
            "\r\n\r\nGET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
            "\n \t GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
            "get / http/1.1\r\nhost: evil.example\r\n\r\n",
            "Get\t/\tHTTP/1.1\nHost: evil.example\n\n",
            "GET  /  HTTP/1.1 \r\nHost: evil.example\r\n\r\n",
            "GET / HTTP/1.2\r\nHost: evil.example\r\n\r\n",
            "GET /\0 HTTP/1.1\r\nHost: evil.example\r\n\r\n",
            "M-S_1 x:/ HTTP/1.1\r\nHost: evil.example\r\n\r\n",
            "GET / HTTP/1.1\rHost: evil.example\r\r",
            "GET http://evil.example/\r\n",
            "GET http://evil.example/",
            // HTTP/0.9, after which some servers read fields.
            "GET /\r\nHost: evil.example\r\n\r\n",
            "GET\t/ \nHost: evil.example\n\n",
            "GET x\r\nHost: evil.example\r\n\r\n",
            "POST /\r\nHost: evil.example\r\nContent-Length: 0\r\n\r\n",
            "OPTIONS *\r\nHost: evil.example\r\n\r\n",
            "PURGE /\r\nHost: evil.example\r\n\r\n",
            "GET /\r\n",
            "GET /",
            "PRI * HTTP/2.0\r\n\r\nGET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
            &long,
        ] {
            for step in [1, 2, 7, 1000, 100_000] {
                let result = feed(8080, bytes.as_bytes(), step);
                assert!(result.is_err(), "{bytes:?} by {step}: {result:?}");
            }
        }
        let good = "POST /a HTTP/1.1\r\nHost: example.com:8080\r\nContent-Length: 2\r\n\r\nab\
            GET / HTTP/1.1\r\nHost: example.com\r\n\r\n";
        for step in [1, 2, 7, 1000] {
            assert_eq!(feed(8080, good.as_bytes(), step), Ok(good.len()), "{step}");
        }
    }

    /// Other protocols are not kept waiting for the end of a line.
    #[test]
    fn other_protocols_go_on_at_once() {
        for bytes in [
            &b"hello"[..],
            b"\r\n",
            b"003egit-upload-pack /project.git\0host=example.com\0",
            b"EHLO example.com\r\nGET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
            b"OPTIONS rtsp://example.com RTSP/1.0\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04",
            b"\0\0\0\x08 HTTP/1.1\r\n",
            b"*1\r\n$4\r\nPING\r\n",
            b"get /index.html\r\n",
            b"SET /key value\r\n",
            b"USER anonymous\r\n",
        ] {
            for step in [1, 3, 1000] {
                assert_eq!(
                    feed(8080, bytes, step),
                    Ok(bytes.len()),
                    "{bytes:?} by {step}"
                );
            }
        }
    }
}
