//! A client of HTTP/1.1 that shows what is on the wire.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use crate::harness::patience;

/// A server's port, and what each request to it has.
#[derive(Clone)]
pub(crate) struct Http {
    address: SocketAddr,
    fields: String,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// The lower-case field's value.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

impl Http {
    pub(crate) fn new(address: &str) -> Self {
        Self {
            address: address.parse().unwrap(),
            fields: format!("host: {address}\r\n"),
        }
    }

    /// With one more header field in each request.
    pub(crate) fn with(&self, field: &str) -> Self {
        let fields = format!("{}{field}\r\n", self.fields);
        Self { fields, ..*self }
    }

    /// With this Host.
    pub(crate) fn as_host(&self, host: &str) -> Self {
        let fields = format!("host: {host}\r\n");
        Self { fields, ..*self }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(self.address).unwrap();
        socket.set_read_timeout(Some(patience())).unwrap();
        socket.set_write_timeout(Some(patience())).unwrap();
        socket
    }

    /// Sends a request whose answer has not been read yet.
    pub(crate) fn send(&self, verb: &str, path: &str, body: &[u8]) -> BufReader<TcpStream> {
        self.send_of(verb, path, body, body.len())
    }

    /// The same for the beginning of a body of this length.
    pub(crate) fn send_of(
        &self,
        verb: &str,
        path: &str,
        body: &[u8],
        length: usize,
    ) -> BufReader<TcpStream> {
        let mut socket = self.connect();
        let fields = &self.fields;
        let head = format!("{verb} {path} HTTP/1.1\r\n{fields}content-length: {length}\r\n\r\n");
        // A server that refuses a body need not read it.
        let _ = socket.write_all(head.as_bytes());
        let _ = socket.write_all(body);
        BufReader::new(socket)
    }

    pub(crate) fn request(&self, verb: &str, path: &str, body: &[u8]) -> Answer {
        self.with("connection: close").answer_of(verb, path, body)
    }

    fn answer_of(&self, verb: &str, path: &str, body: &[u8]) -> Answer {
        read(&mut self.send(verb, path, body))
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.request("GET", path, b"")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.request("POST", path, body.to_string().as_bytes())
    }

    /// The JSON of an answer that is one of success.
    pub(crate) fn ask(&self, verb: &str, path: &str, body: &Value) -> Value {
        let answer = self.request(verb, path, body.to_string().as_bytes());
        assert!(answer.status < 300, "{verb} {path}: {answer:?}");
        answer.json()
    }
}

/// Reads an answer: its head, then what its framing says.
pub(crate) fn read(socket: &mut BufReader<TcpStream>) -> Answer {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        let count = socket.read_line(&mut head).unwrap();
        assert!(count > 0, "the connection ended: {head:?}");
    }
    let status = head[9..12].parse().unwrap();
    let answer = Answer {
        status,
        head,
        body: Vec::new(),
    };
    let mut body = Vec::new();
    if let Some(length) = answer.field("content-length") {
        body.resize(length.parse().unwrap(), 0);
        socket.read_exact(&mut body).unwrap();
    } else if answer.field("transfer-encoding") == Some("chunked") {
        while let Some(chunk) = chunk(socket) {
            body.extend(chunk);
        }
    }
    Answer { body, ..answer }
}

/// The next chunk of a body; `None` at its end.
pub(crate) fn chunk(socket: &mut BufReader<TcpStream>) -> Option<Vec<u8>> {
    let mut line = String::new();
    socket.read_line(&mut line).unwrap();
    let length = usize::from_str_radix(line.trim(), 16).unwrap_or_else(|e| panic!("{e}: {line:?}"));
    let mut chunk = vec![0; length + 2];
    socket.read_exact(&mut chunk).unwrap();
    chunk.truncate(length);
    (length > 0).then_some(chunk)
}
