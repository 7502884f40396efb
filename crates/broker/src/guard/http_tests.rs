use super::*;
use hosts::Name;

fn requests() -> Requests {
    let host = Host::Name(Name::parse("example.com").unwrap());
    Requests::new(host, 80, Rc::default())
}

/// How many bytes go on, fed in pieces of `step` bytes, or why not.
fn feed(requests: &mut Requests, bytes: &[u8], step: usize) -> Result<usize, Reason> {
    let mut taken = 0;
    for end in (0..bytes.len())
        .step_by(step)
        .map(|start| (start + step).min(bytes.len()))
    {
        loop {
            match requests.admit(&bytes[taken..end])?.take {
                0 => break,
                count => taken += count,
            }
        }
    }
    Ok(taken)
}

#[test]
fn each_request_of_a_connection_is_followed() {
    let stream = b"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n\
        POST /a HTTP/1.1\r\nhOsT:  EXAMPLE.com.:80 \r\nContent-Length: 11\r\n\r\nGET / HTTP/\
        POST /b HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\n\r\n\
        5;ext=1\r\nhello\r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n\
        GET http://example.com/c HTTP/1.1\r\nHost: example.com\r\n\r\n\
        OPTIONS * HTTP/1.0\r\nHost: example.com\r\n\r\n";
    for step in [1, 2, 7, 40, 4096] {
        assert_eq!(
            feed(&mut requests(), stream, step),
            Ok(stream.len()),
            "{step}"
        );
    }
    let evil = b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    for step in [1, 7, 4096] {
        let both = [&stream[..], evil].concat();
        assert_eq!(
            feed(&mut requests(), &both, step),
            Err(Reason::OtherHttpHost),
            "{step}"
        );
    }
}

#[test]
fn other_hosts_are_refused() {
    for (head, reason) in [
        (
            "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
            Reason::OtherHttpHost,
        ),
        (
            "GET / HTTP/1.1\r\nHost: example.com.evil.example\r\n\r\n",
            Reason::OtherHttpHost,
        ),
        (
            "GET / HTTP/1.1\r\nHost: example.com:8080\r\n\r\n",
            Reason::OtherHttpHost,
        ),
        (
            "GET / HTTP/1.1\r\nHost: example.com@evil.example\r\n\r\n",
            Reason::OtherHttpHost,
        ),
        (
            "GET / HTTP/1.1\r\nHost: 192.0.2.1\r\n\r\n",
            Reason::OtherHttpHost,
        ),
        ("GET / HTTP/1.1\r\nHost: \r\n\r\n", Reason::OtherHttpHost),
        ("GET / HTTP/1.1\r\n\r\n", Reason::NoHttpHost),
        (
            "GET / HTTP/1.1\r\nHost: example.com\r\nHost: example.com\r\n\r\n",
            Reason::NoHttpHost,
        ),
        (
            "GET / HTTP/1.1\r\nHost: example.com\r\nX: y\r\nhost: evil.example\r\n\r\n",
            Reason::NoHttpHost,
        ),
        (
            "GET http://example.com/ HTTP/1.0\r\nHost: example.com\r\nHost: example.com\r\n\r\n",
            Reason::NoHttpHost,
        ),
        (
            "GET http://example.com/ HTTP/1.1\r\n\r\n",
            Reason::NoHttpHost,
        ),
        (
            "GET http://evil.example/ HTTP/1.1\r\nHost: example.com\r\n\r\n",
            Reason::OtherHttpHost,
        ),
        (
            "GET http://example.com@evil.example/ HTTP/1.1\r\nHost: example.com\r\n\r\n",
            Reason::OtherHttpHost,
        ),
        (
            "GET http://example.com/ HTTP/1.1\r\nHost: evil.example\r\n\r\n",
            Reason::OtherHttpHost,
        ),
        (
            "GET https://example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n",
            Reason::OtherHttpHost,
        ),
        ("GET //evil HTTP/1.1\r\nX: y\r\n\r\n", Reason::NoHttpHost),
        (
            "CONNECT example.com:80 HTTP/1.1\r\nHost: example.com\r\n\r\n",
            Reason::OtherHttpHost,
        ),
        ("\x16\x03\x01\0\0", Reason::NotHttp),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Reason::AmbiguousHttp),
    ] {
        let result = requests().admit(head.as_bytes()).map(|admit| admit.take);
        assert_eq!(result, Err(reason), "{head:?}");
    }
}

#[test]
fn what_two_servers_read_differently_is_refused() {
    let start = "POST / HTTP/1.1\r\nHost: example.com\r\n";
    for rest in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
        "Content-Length: 5, 5\r\n\r\nhello",
        "Content-Length: +5\r\n\r\nhello",
        "Content-Length: 0x5\r\n\r\nhello",
        "Content-Length: 99999999999999999999\r\n\r\n",
        "Content-Length:\r\n\r\n",
        "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: identity\r\n\r\n",
        "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
        "X: a\r\n Transfer-Encoding: chunked\r\n\r\n",
        "X: a\nTransfer-Encoding: chunked\r\n\r\n",
        "X: a\rTransfer-Encoding: chunked\r\n\r\n",
        "X: a\r\n\n",
        "X: a\0b\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n5;a\nb\r\nhello\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n",
        "Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n",
        "Transfer-Encoding: chunked\r\n\r\n\r\nhello\r\n",
        "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nhelloworld\r\n",
    ] {
        for step in [1, 4096] {
            let stream = [start, rest].concat();
            let result = feed(&mut requests(), stream.as_bytes(), step);
            assert_eq!(result, Err(Reason::AmbiguousHttp), "{rest:?} by {step}");
        }
    }
    let old = "POST / HTTP/1.0\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert!(requests().admit(old.as_bytes()).is_err());
}

#[test]
fn what_does_not_end_is_refused() {
    let head = format!(
        "GET / HTTP/1.1\r\nHost: example.com\r\nX: {}",
        "x".repeat(MAX_HEAD)
    );
    assert!(requests().admit(head.as_bytes()).is_err());
    let fields = "X: y\r\n".repeat(MAX_FIELDS + 1);
    let head = format!("GET / HTTP/1.1\r\nHost: example.com\r\n{fields}\r\n");
    assert!(requests().admit(head.as_bytes()).is_err());
    let chunk = format!(
        "POST / HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\n\r\n5;{}",
        "x".repeat(MAX_LINE)
    );
    assert!(requests().admit(chunk.as_bytes()).is_err());
}

/// A server that ignores such a body must not read it as a request, which could be for another
/// host.
#[test]
fn after_an_unusual_body_the_connection_ends() {
    let smuggled = "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    let length = smuggled.len();
    for method in ["GET", "HEAD", "DELETE", "OPTIONS"] {
        for (framing, body) in [
            (format!("Content-Length: {length}"), smuggled.to_owned()),
            (
                "Transfer-Encoding: chunked".to_owned(),
                format!("{length:x}\r\n{smuggled}\r\n0\r\n\r\n"),
            ),
        ] {
            let head = format!(
                "{method} / HTTP/1.1\r\nHost: example.com\r\nConnection: keep-alive, TE\r\n{framing}\r\n\r\n"
            );
            let mut requests = requests();
            let admit = requests.admit(head.as_bytes()).unwrap();
            assert_eq!(admit.take, head.len());
            let instead = String::from_utf8(admit.instead.unwrap().to_vec()).unwrap();
            let wanted = format!(
                "{method} / HTTP/1.1\r\nHost: example.com\r\n{framing}\r\nConnection: close\r\n\r\n"
            );
            assert_eq!(instead, wanted);
            // The framing is followed, to what is behind it.
            assert_eq!(feed(&mut requests, body.as_bytes(), 7), Ok(body.len()));
            let behind = requests.admit(smuggled.as_bytes()).map(|admit| admit.take);
            assert_eq!(behind, Err(Reason::OtherHttpHost));
        }
        let empty =
            format!("{method} / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(requests().admit(empty.as_bytes()).unwrap().instead, None);
    }
    let usual = "POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 2\r\n\r\nab";
    assert_eq!(requests().admit(usual.as_bytes()).unwrap().instead, None);
}

#[test]
fn an_upgrade_waits_for_the_response() {
    let head =
        b"GET / HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    let more = b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    let both = [&head[..], more].concat();
    for (status, result) in [("101", Ok(more.len())), ("200", Err(Reason::OtherHttpHost))] {
        let mut requests = requests();
        assert_eq!(requests.admit(&both).unwrap().take, head.len());
        assert!(requests.awaits_response());
        assert_eq!(requests.admit(more).unwrap().take, 0);
        assert!(!requests.response(b"HTTP/1.1 1"));
        assert!(requests.response(format!("HTTP/1.1 {status} x").as_bytes()));
        assert_eq!(requests.admit(more).map(|admit| admit.take), result);
    }
}

#[test]
fn an_upgrade_to_http2_is_left_out() {
    let head = b"GET / HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nHost: example.com\r\nHTTP2-Settings: AAA\r\nUpgrade: h2c\r\nAccept: */*\r\n\r\n";
    let admit = requests().admit(head).unwrap();
    assert_eq!(admit.take, head.len());
    let text = String::from_utf8(admit.instead.unwrap().to_vec()).unwrap();
    assert_eq!(
        text,
        "GET / HTTP/1.1\r\nHost: example.com\r\nAccept: */*\r\n\r\n"
    );
}

#[test]
fn a_secret_replaces_what_the_cell_sends() {
    let host = Host::Name(Name::parse("example.com").unwrap());
    let secret = Secret {
        name: "X-Api-Key".to_owned(),
        value: "s3cret".to_owned().into(),
    };
    let mut requests = Requests::new(host, 80, [secret].into());
    let one =
        b"POST / HTTP/1.1\r\nHost: example.com\r\nx-api-key: own\r\nContent-Length: 2\r\n\r\n";
    let stream = [&one[..], b"ab", one, b"cd"].concat();
    let mut at = 0;
    let mut out = Vec::new();
    while at < stream.len() {
        let admit = requests.admit(&stream[at..]).unwrap();
        assert!(admit.take > 0);
        out.extend(
            admit
                .instead
                .map_or_else(|| stream[at..at + admit.take].to_vec(), |i| i.to_vec()),
        );
        at += admit.take;
    }
    let head =
        "POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 2\r\nX-Api-Key: s3cret\r\n\r\n";
    assert_eq!(String::from_utf8(out).unwrap(), format!("{head}ab{head}cd"));
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_admitted_or_refused(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..400), step in 1..50_usize) {
        let stream = [&b"POST / HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\n\r\n"[..], &bytes].concat();
        let whole = feed(&mut requests(), &stream, stream.len());
        // Where the pieces end makes no difference to what is refused.
        let cut = feed(&mut requests(), &stream, step);
        proptest::prop_assert_eq!(whole, cut);
    }

    #[test]
    fn any_head_is_read(bytes in "[A-Z]{0,5} [/a-z*]{0,9}( HTTP/1.[01])?(\r\n|\n|[A-Za-z-]{1,9}:|[ -~]{0,9}|content-length: [0-9]{1,3}\r\n|host: example.com\r\n){0,9}") {
        let _ = feed(&mut requests(), bytes.as_bytes(), 3);
    }
}
