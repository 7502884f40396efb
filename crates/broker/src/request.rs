//! What clients ask of the two proxies: HTTP CONNECT and SOCKS5 (RFC 1928).

use std::net::{Ipv4Addr, Ipv6Addr};

use httparse::{Request, Status};

use crate::guard::authority::{authority, host_and_port};
use crate::report::{Reason, Verdict};
use hosts::{Host, Name};

/// The longest request to a proxy, in bytes.
pub(crate) const MAX_REQUEST: usize = 16 << 10;
const MAX_FIELDS: usize = 128;

/// How far a request is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// More bytes are needed.
    Incomplete,
    /// So many bytes are done with, and this is the answer; more will come.
    Continue(usize, Vec<u8>),
    /// So many bytes asked for a connection. Those of a request in absolute form are passed
    /// on, so none are done with.
    For(usize, Host, u16, Form),
}

/// The form in which a connection was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// By CONNECT: the client waits for a response.
    Connect,
    /// By a request in absolute form: the server answers it.
    Absolute,
    /// By SOCKS5: the client waits for a reply.
    Socks,
}

/// Reads a request to the HTTP proxy.
///
/// # Errors
/// That it is malformed.
pub(crate) fn http(bytes: &[u8]) -> Result<Asked, Reason> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut request = Request::new(&mut fields);
    let length = match request.parse(bytes) {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) if bytes.len() < MAX_REQUEST => return Ok(Asked::Incomplete),
        _ => return Err(Reason::BadProxyRequest),
    };
    let target = request.path.unwrap_or_default();
    let (length, authority, default, form) = if request.method == Some("CONNECT") {
        (length, target, None, Form::Connect)
    } else {
        let authority = authority(target).ok_or(Reason::BadProxyRequest)?;
        (0, authority, Some(80), Form::Absolute)
    };
    let (host, port) = host_and_port(authority.as_bytes()).ok_or(Reason::InvalidName)?;
    let port = port.or(default).filter(|port| *port > 0);
    Ok(Asked::For(
        length,
        host,
        port.ok_or(Reason::BadProxyRequest)?,
        form,
    ))
}

/// The version of SOCKS, and of its method of no authentication.
const SOCKS5: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const CONNECT: u8 = 1;

/// Reads what a SOCKS5 client sends: its greeting, then its request.
///
/// # Errors
/// That it is malformed, or for something else than a TCP connection.
pub(crate) fn socks(bytes: &[u8], greeted: bool) -> Result<Asked, Reason> {
    if bytes.first().is_some_and(|version| *version != SOCKS5) {
        return Err(Reason::BadProxyRequest);
    }
    if !greeted {
        let [_, count, rest @ ..] = bytes else {
            return Ok(Asked::Incomplete);
        };
        let Some(methods) = rest.get(..usize::from(*count)) else {
            return Ok(Asked::Incomplete);
        };
        return match methods.contains(&NO_AUTHENTICATION) {
            true => Ok(Asked::Continue(
                2 + methods.len(),
                vec![SOCKS5, NO_AUTHENTICATION],
            )),
            false => Err(Reason::BadProxyRequest),
        };
    }
    let [_, command, _, kind, address @ ..] = bytes else {
        return Ok(Asked::Incomplete);
    };
    if *command != CONNECT {
        return Err(Reason::NotTcp);
    }
    let (start, length) = match (*kind, address.first()) {
        (1, _) => (0, 4),
        (4, _) => (0, 16),
        (3, Some(length)) => (1, usize::from(*length)),
        (3, None) => return Ok(Asked::Incomplete),
        _ => return Err(Reason::BadProxyRequest),
    };
    let (Some(host), Some([high, low])) = (
        address.get(start..start + length),
        address.get(start + length..start + length + 2),
    ) else {
        return Ok(Asked::Incomplete);
    };
    let host = match (<[u8; 4]>::try_from(host), <[u8; 16]>::try_from(host)) {
        (Ok(octets), _) if *kind == 1 => Host::Address(Ipv4Addr::from(octets).into()),
        (_, Ok(octets)) if *kind == 4 => {
            Host::Address(std::net::IpAddr::from(Ipv6Addr::from(octets)).to_canonical())
        }
        // Clients send addresses as names, too.
        _ => match str::from_utf8(host).ok().and_then(|text| text.parse().ok()) {
            Some(address) => Host::Address(address),
            None => Host::Name(Name::from_ascii(host).ok_or(Reason::InvalidName)?),
        },
    };
    let port = u16::from_be_bytes([*high, *low]);
    Ok(Asked::For(4 + start + length + 2, host, port, Form::Socks))
}

/// The reply of SOCKS5 with this code, and no address.
pub(crate) fn socks_reply(code: u8) -> Vec<u8> {
    vec![SOCKS5, code, 0, 1, 0, 0, 0, 0, 0, 0]
}

/// The reply to a SOCKS5 request that comes to nothing.
pub(crate) fn socks_refusal(reason: Reason, greeted: bool) -> Vec<u8> {
    if !greeted {
        return vec![SOCKS5, 0xff];
    }
    socks_reply(match reason {
        Reason::NotTcp => 7,
        Reason::BadProxyRequest => 1,
        Reason::Unreachable | Reason::NoAddress | Reason::NoResolver => 4,
        Reason::ConnectionRefused => 5,
        Reason::DialTimeout => 6,
        _ if Verdict::from(reason) == Verdict::Failed => 1,
        _ => 2,
    })
}

/// The HTTP response to a request that comes to nothing.
pub(crate) fn http_refusal(reason: Reason, host: &str) -> Vec<u8> {
    let status = match reason {
        Reason::BadProxyRequest | Reason::AmbiguousHttp | Reason::NoHttpHost => "400 Bad Request",
        Reason::TooSlow => "408 Request Timeout",
        Reason::DialTimeout | Reason::Idle => "504 Gateway Timeout",
        Reason::Resources => "503 Service Unavailable",
        _ if Verdict::from(reason) == Verdict::Failed => "502 Bad Gateway",
        _ => "403 Forbidden",
    };
    let text = format!("cellblock: {host}: {}\n", reason.explain());
    format!(
        "HTTP/1.1 {status}\r\nX-Cellblock-Reason: {}\r\nContent-Type: text/plain\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{text}",
        reason.explain(),
        text.len(),
    )
    .into_bytes()
}

/// The TLS alert `access_denied`, before any handshake.
pub(crate) const TLS_ALERT: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Host {
        Host::Name(Name::parse(text).unwrap())
    }

    #[test]
    fn http_requests() {
        let connect = b"CONNECT Example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n";
        assert_eq!(
            http(connect),
            Ok(Asked::For(
                connect.len(),
                name("example.com"),
                443,
                Form::Connect
            ))
        );
        let v6 = b"CONNECT [2001:db8::1]:443 HTTP/1.0\r\n\r\n";
        let address = Host::Address("2001:db8::1".parse().unwrap());
        assert_eq!(
            http(v6),
            Ok(Asked::For(v6.len(), address, 443, Form::Connect))
        );
        let get = b"GET http://example.com/a HTTP/1.1\r\n\r\n";
        assert_eq!(
            http(get),
            Ok(Asked::For(0, name("example.com"), 80, Form::Absolute))
        );
        for end in 0..connect.len() {
            assert_eq!(http(&connect[..end]), Ok(Asked::Incomplete));
        }
        for (text, reason) in [
            (
                "CONNECT example.com HTTP/1.1\r\n\r\n",
                Reason::BadProxyRequest,
            ),
            (
                "CONNECT example.com:0 HTTP/1.1\r\n\r\n",
                Reason::BadProxyRequest,
            ),
            (
                "CONNECT example.com:99999 HTTP/1.1\r\n\r\n",
                Reason::InvalidName,
            ),
            ("CONNECT a@b:443 HTTP/1.1\r\n\r\n", Reason::InvalidName),
            ("GET / HTTP/1.1\r\n\r\n", Reason::BadProxyRequest),
            (
                "GET ftp://example.com/ HTTP/1.1\r\n\r\n",
                Reason::BadProxyRequest,
            ),
            ("\x05\x01\0", Reason::BadProxyRequest),
        ] {
            assert_eq!(http(text.as_bytes()), Err(reason), "{text:?}");
        }
        let long = vec![b'A'; MAX_REQUEST];
        assert_eq!(http(&long), Err(Reason::BadProxyRequest));
    }

    /// A program can tell what is forbidden from what went wrong.
    #[test]
    fn only_refusals_are_forbidden() {
        for reason in Reason::ALL {
            let text = String::from_utf8(http_refusal(*reason, "example.com")).unwrap();
            let class = match Verdict::from(*reason) {
                Verdict::Failed => "HTTP/1.1 5",
                _ => "HTTP/1.1 4",
            };
            assert!(text.starts_with(class), "{reason:?}: {text}");
            if Verdict::from(*reason) == Verdict::Failed {
                assert_ne!(socks_refusal(*reason, true)[1], 2, "{reason:?}");
            }
        }
    }

    #[test]
    fn socks_requests() {
        assert_eq!(
            socks(b"\x05\x02\x02\0", false),
            Ok(Asked::Continue(4, vec![5, 0]))
        );
        assert_eq!(socks(b"\x05\x02\x02", false), Ok(Asked::Incomplete));
        assert_eq!(socks(b"\x05\x01\x02", false), Err(Reason::BadProxyRequest));
        assert_eq!(socks(b"\x04\x01", false), Err(Reason::BadProxyRequest));
        let named = b"\x05\x01\0\x03\x0bexample.com\x01\xbb";
        assert_eq!(
            socks(named, true),
            Ok(Asked::For(
                named.len(),
                name("example.com"),
                443,
                Form::Socks
            ))
        );
        for end in 0..named.len() {
            assert_eq!(socks(&named[..end], true), Ok(Asked::Incomplete));
        }
        let v4 = Host::Address("192.0.2.1".parse().unwrap());
        let bytes = b"\x05\x01\0\x01\xc0\0\x02\x01\0\x50";
        assert_eq!(
            socks(bytes, true),
            Ok(Asked::For(10, v4.clone(), 80, Form::Socks))
        );
        let bytes = b"\x05\x01\0\x03\x09192.0.2.1\0\x50";
        assert_eq!(
            socks(bytes, true),
            Ok(Asked::For(bytes.len(), v4.clone(), 80, Form::Socks))
        );
        let mapped = [
            &b"\x05\x01\0\x04"[..],
            &[0; 10],
            &[255, 255, 192, 0, 2, 1, 0, 80],
        ]
        .concat();
        assert_eq!(
            socks(&mapped, true),
            Ok(Asked::For(22, v4, 80, Form::Socks))
        );
        for command in [2, 3] {
            assert_eq!(
                socks(&[5, command, 0, 1, 0, 0, 0, 0, 0, 0], true),
                Err(Reason::NotTcp)
            );
        }
        assert_eq!(socks(b"\x05\x01\0\x02", true), Err(Reason::BadProxyRequest));
        assert_eq!(
            socks(b"\x05\x01\0\x03\x03a\0b\0\x50", true),
            Err(Reason::InvalidName)
        );
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read(mut bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300), greeted in proptest::bool::ANY) {
            let _ = http(&bytes);
            if let Some(first) = bytes.first_mut() {
                *first = SOCKS5;
            }
            if let Ok(Asked::For(taken, ..) | Asked::Continue(taken, _)) = socks(&bytes, greeted) {
                proptest::prop_assert!(taken <= bytes.len());
            }
        }
    }
}
