//! The effects that clients of one token can have on those of another.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use serde_json::json;

use crate::harness::{Server, until};
use crate::http_client::{Http, read};

/// A server with two tokens, and clients of each.
pub(crate) struct Two {
    _server: Server,
    /// Without a token.
    pub(crate) none: Http,
    pub(crate) one: Http,
    pub(crate) two: Http,
}

pub(crate) fn two(options: &[&str]) -> Two {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tokens");
    let (one, two) = ("1".repeat(20), "2".repeat(20));
    std::fs::write(&file, format!("{one}\n{two}\n")).unwrap();
    let tokens = ["--http-token", file.to_str().unwrap()];
    let server = Server::start_http(&[&tokens, options].concat());
    let none = server.http();
    Two {
        one: none.with(&format!("authorization: Bearer {one}")),
        two: none.with(&format!("authorization: Bearer {two}")),
        none,
        _server: server,
    }
}

fn status(http: &Http) -> u16 {
    http.get("/v1/status").status
}

/// A request that is answered for as long as it stays open.
fn watch(http: &Http) -> Option<BufReader<TcpStream>> {
    let mut socket = http.send("GET", "/v1/contexts/a/watch", b"");
    let mut line = String::new();
    socket.read_line(&mut line).unwrap();
    line.contains(" 200 ").then_some(socket)
}

#[test]
fn requests_of_one_token_leave_room_for_another() {
    let all = two(&["--max-clients", "8"]);
    let body = json!({"request": {"language": "python"}, "context": "a"});
    all.one.ask("POST", "/v1/contexts", &body);
    // The users of the socket and the two tokens have one place each; all tokens share the others.
    let mut watches = Vec::new();
    until("six requests", || {
        watches.extend(watch(&all.one));
        watches.len() == 6
    });
    let refused = all.one.get("/v1/status");
    assert_eq!(refused.status, 503, "{refused:?}");
    assert_eq!(refused.field("retry-after"), Some("1"));
    assert_eq!(status(&all.two), 200);
    drop(watches);
    until("room again", || status(&all.one) == 200);
}

#[test]
fn connections_of_one_token_leave_room_for_another() {
    let all = two(&["--http-connections", "16"]);
    let keep = |http: &Http| {
        let mut socket = http.send("GET", "/v1/status", b"");
        (read(&mut socket).status == 200).then_some(socket)
    };
    // Four places are for connections without a token; of the others, one token can have nine.
    let kept: Vec<_> = (0..20).map_while(|_| keep(&all.one)).collect();
    assert_eq!(kept.len(), 9);
    assert_eq!(status(&all.one), 503);
    assert_eq!(status(&all.two), 200);
    drop(kept);
    until("room again", || status(&all.one) == 200);
}

#[test]
fn connections_without_a_token_end_each_other() {
    let all = two(&["--http-connections", "16"]);
    let mut kept = all.one.send("GET", "/v1/status", b"");
    assert_eq!(read(&mut kept).status, 200);
    let mut idle: Vec<_> = (0..30).map(|_| all.none.connect()).collect();
    let refused = all.none.get("/v1/status");
    assert_eq!(refused.status, 401);
    assert_eq!((status(&all.one), status(&all.two)), (200, 200));
    // The oldest have ended; the one with a token has not.
    assert_eq!(idle[0].read(&mut [0]).unwrap(), 0);
    let again = b"GET /v1/status HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer 11111111111111111111\r\n\r\n";
    kept.get_mut().write_all(again).unwrap();
    assert_eq!(read(&mut kept).status, 200);
}
