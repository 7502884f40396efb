//! A D-Bus client for the few calls that cellblock makes (D-Bus specification).
//!
//! Authentication, `Hello` and the first call leave in one write, so a single call
//! costs one round trip. Every wait ends at the deadline. Messages are little-endian
//! only: both ends are on this machine, and so is the bus.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike as _};

/// The longest message that is read; the replies take less than a KiB.
const MAX_MESSAGE: usize = 1 << 20;

const METHOD_CALL: u8 = 1;
const METHOD_RETURN: u8 = 2;
const ERROR: u8 = 3;
const SIGNAL: u8 = 4;

/// A value to send.
pub(super) enum Value<'a> {
    Byte(u8),
    Bool(bool),
    U32(u32),
    U64(u64),
    Str(&'a str),
    ObjectPath(&'a str),
    Signature(&'a str),
    /// The elements' signature, and the elements.
    Array(&'static str, Vec<Value<'a>>),
    Struct(Vec<Value<'a>>),
    Variant(Box<Value<'a>>),
}

impl Value<'_> {
    fn signature(&self) -> String {
        match self {
            Self::Byte(_) => "y".to_owned(),
            Self::Bool(_) => "b".to_owned(),
            Self::U32(_) => "u".to_owned(),
            Self::U64(_) => "t".to_owned(),
            Self::Str(_) => "s".to_owned(),
            Self::ObjectPath(_) => "o".to_owned(),
            Self::Signature(_) => "g".to_owned(),
            Self::Array(element, _) => format!("a{element}"),
            Self::Struct(fields) => format!("({})", signature(fields)),
            Self::Variant(_) => "v".to_owned(),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Byte(byte) => out.push(*byte),
            Self::Bool(flag) => Self::U32(u32::from(*flag)).write(out),
            Self::U32(number) => {
                pad(out, 4);
                out.extend(number.to_le_bytes());
            }
            Self::U64(number) => {
                pad(out, 8);
                out.extend(number.to_le_bytes());
            }
            Self::Str(text) | Self::ObjectPath(text) => {
                Self::U32(text.len() as u32).write(out);
                out.extend(text.bytes().chain([0]));
            }
            Self::Signature(text) => {
                out.push(text.len() as u8);
                out.extend(text.bytes().chain([0]));
            }
            Self::Array(element, values) => {
                pad(out, 4);
                let length_at = out.len();
                out.extend([0; 4]);
                pad(out, alignment(element));
                let start = out.len();
                values.iter().for_each(|value| value.write(out));
                let length = (out.len() - start) as u32;
                out[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
            }
            Self::Struct(fields) => {
                pad(out, 8);
                fields.iter().for_each(|field| field.write(out));
            }
            Self::Variant(value) => {
                Value::Signature(&value.signature()).write(out);
                value.write(out);
            }
        }
    }
}

fn signature(values: &[Value<'_>]) -> String {
    values.iter().map(Value::signature).collect()
}

fn alignment(signature: &str) -> usize {
    match signature.as_bytes().first() {
        Some(b'(' | b't') => 8,
        Some(b'y' | b'g' | b'v') => 1,
        _ => 4,
    }
}

fn pad(out: &mut Vec<u8>, alignment: usize) {
    out.resize(out.len().next_multiple_of(alignment), 0);
}

/// A method of an object.
#[derive(Clone, Copy)]
pub(super) struct Method<'a> {
    pub(super) destination: &'a str,
    pub(super) object: &'a str,
    pub(super) interface: &'a str,
    pub(super) name: &'a str,
}

/// The bus itself.
const fn of_bus(name: &str) -> Method<'_> {
    Method {
        destination: "org.freedesktop.DBus",
        object: "/org/freedesktop/DBus",
        interface: "org.freedesktop.DBus",
        name,
    }
}

impl Method<'_> {
    fn message(self, serial: u32, arguments: &[Value<'_>]) -> Vec<u8> {
        let mut body = Vec::new();
        arguments.iter().for_each(|value| value.write(&mut body));
        let field =
            |code, value| Value::Struct(vec![Value::Byte(code), Value::Variant(Box::new(value))]);
        let signature = signature(arguments);
        let mut fields = vec![
            field(1, Value::ObjectPath(self.object)),
            field(2, Value::Str(self.interface)),
            field(3, Value::Str(self.name)),
            field(6, Value::Str(self.destination)),
        ];
        if !arguments.is_empty() {
            fields.push(field(8, Value::Signature(&signature)));
        }
        let mut message = vec![b'l', METHOD_CALL, 0, 1];
        Value::U32(body.len() as u32).write(&mut message);
        Value::U32(serial).write(&mut message);
        Value::Array("(yv)", fields).write(&mut message);
        pad(&mut message, 8);
        message.extend(body);
        message
    }
}

/// Reads values one after the other; `None` at the first that is malformed.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(length)?)?;
        self.at += length;
        Some(taken)
    }

    fn align(&mut self, alignment: usize) {
        self.at = self.at.next_multiple_of(alignment);
    }

    fn byte(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.align(4);
        Some(u32::from_le_bytes(*self.take(4)?.first_chunk()?))
    }

    /// A string or an object path.
    pub(super) fn text(&mut self) -> Option<&'a str> {
        let length = self.u32()? as usize;
        self.terminated(length)
    }

    pub(super) fn signature(&mut self) -> Option<&'a str> {
        let length = self.byte()?.into();
        self.terminated(length)
    }

    fn terminated(&mut self, length: usize) -> Option<&'a str> {
        let text = std::str::from_utf8(self.take(length)?).ok()?;
        (self.byte()? == 0).then_some(text)
    }
}

/// A received message.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Message {
    kind: u8,
    reply_to: Option<u32>,
    /// The signal's.
    pub(super) member: String,
    error: String,
    body: Vec<u8>,
}

impl Message {
    /// The length of the message that begins with `head`.
    fn length(head: &[u8; 16]) -> Option<usize> {
        let [b'l', _, _, 1, ..] = head else {
            return None;
        };
        let number = |at: usize| {
            let bytes = head[at..].first_chunk()?;
            Some(u32::from_le_bytes(*bytes) as usize)
        };
        let (body, fields) = (number(4)?, number(12)?);
        let length = fields
            .checked_add(16)?
            .checked_next_multiple_of(8)?
            .checked_add(body)?;
        (length <= MAX_MESSAGE).then_some(length)
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut message = Self {
            kind: *bytes.get(1)?,
            ..Self::default()
        };
        let mut reader = Reader { bytes, at: 12 };
        let end = reader.u32()? as usize + 16;
        while reader.at < end {
            reader.align(8);
            let code = reader.byte()?;
            match reader.signature()? {
                "u" => {
                    let number = reader.u32()?;
                    if code == 5 {
                        message.reply_to = Some(number);
                    }
                }
                "s" | "o" => {
                    let text = reader.text()?;
                    match code {
                        3 => text.clone_into(&mut message.member),
                        4 => text.clone_into(&mut message.error),
                        _ => {}
                    }
                }
                "g" => drop(reader.signature()?),
                _ => return None,
            }
        }
        reader.align(8);
        message.body = bytes.get(reader.at..)?.to_vec();
        Some(message)
    }

    /// The values that it carries.
    pub(super) fn values(&self) -> Reader<'_> {
        Reader {
            bytes: &self.body,
            at: 0,
        }
    }
}

/// Why a call has no result.
#[derive(Debug)]
pub(super) enum Failure {
    /// The callee's error: its D-Bus name and its message.
    Refused { name: String, message: String },
    /// The connection does not work.
    Connection(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Connection(error)
    }
}

/// A connection to a bus.
pub(super) struct Connection {
    stream: BufReader<Timed>,
    serial: u32,
    /// Sent with the next call.
    unsent: Vec<u8>,
    authenticated: bool,
}

impl Connection {
    /// Connects to the bus at `address` as the user `uid`. No call goes on after
    /// `deadline`.
    pub(super) fn open(address: &UnixAddr, uid: u32, deadline: Instant) -> io::Result<Self> {
        let socket = socket(
            AddressFamily::Unix,
            SockType::Stream,
            SockFlag::SOCK_CLOEXEC,
            None,
        )?;
        // connect(2) waits no longer than this for a bus that accepts nobody.
        let left = TimeVal::milliseconds(left(deadline)?.as_millis() as i64);
        setsockopt(&socket, sockopt::SendTimeout, &left)?;
        while let Err(errno) = connect(socket.as_raw_fd(), address) {
            if errno != Errno::EINTR {
                return Err(errno.into());
            }
        }
        let digits = uid.to_string();
        let hex: String = digits.bytes().map(|byte| format!("{byte:02x}")).collect();
        let mut unsent = format!("\0AUTH EXTERNAL {hex}\r\nBEGIN\r\n").into_bytes();
        unsent.extend(of_bus("Hello").message(1, &[]));
        Ok(Self {
            stream: BufReader::new(Timed {
                stream: socket.into(),
                deadline,
            }),
            serial: 1,
            unsent,
            authenticated: false,
        })
    }

    /// The process that listens at the other end; 0 for one in a pid namespace that
    /// this process cannot see into.
    pub(super) fn peer_pid(&self) -> Result<i32, Errno> {
        sys::net::peer_pid(self.stream.get_ref().stream.as_raw_fd())
    }

    /// Calls `method` and waits for its result.
    pub(super) fn call(
        &mut self,
        method: Method<'_>,
        arguments: &[Value<'_>],
    ) -> Result<Message, Failure> {
        self.serial += 1;
        self.unsent.extend(method.message(self.serial, arguments));
        let bytes = std::mem::take(&mut self.unsent);
        self.stream.get_mut().stream.write_all(&bytes)?;
        loop {
            let message = self.receive()?;
            match message.kind {
                // The bus may refuse `Hello`, and then it refuses the call as well.
                ERROR => {
                    return Err(Failure::Refused {
                        message: message.values().text().unwrap_or_default().to_owned(),
                        name: message.error,
                    });
                }
                METHOD_RETURN if message.reply_to == Some(self.serial) => return Ok(message),
                _ => {}
            }
        }
    }

    /// Asks the bus for the signals that `rule` describes.
    pub(super) fn add_match(&mut self, rule: &str) -> Result<(), Failure> {
        self.call(of_bus("AddMatch"), &[Value::Str(rule)]).map(drop)
    }

    /// Waits for the next signal.
    pub(super) fn signal(&mut self) -> io::Result<Message> {
        loop {
            let message = self.receive()?;
            if message.kind == SIGNAL {
                return Ok(message);
            }
        }
    }

    fn receive(&mut self) -> io::Result<Message> {
        if !self.authenticated {
            let mut line = Vec::new();
            (&mut self.stream).take(256).read_until(b'\n', &mut line)?;
            match &line[..] {
                [b'O', b'K', b' ', ..] => self.authenticated = true,
                [] => return Err(io::ErrorKind::UnexpectedEof.into()),
                _ => return Err(io::ErrorKind::PermissionDenied.into()),
            }
        }
        let malformed = || io::Error::new(io::ErrorKind::InvalidData, "malformed message");
        let mut head = [0; 16];
        self.stream.read_exact(&mut head)?;
        let length = Message::length(&head).ok_or_else(malformed)?;
        let mut bytes = head.to_vec();
        bytes.resize(length, 0);
        self.stream.read_exact(&mut bytes[head.len()..])?;
        Message::parse(&bytes).ok_or_else(malformed)
    }
}

/// A socket whose reads end at the deadline.
struct Timed {
    stream: UnixStream,
    deadline: Instant,
}

impl io::Read for Timed {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(left(self.deadline)?))?;
        self.stream.read(bytes)
    }
}

/// The time until `deadline`, which is not zero: as a socket's timeout, zero is
/// none.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left < Duration::from_millis(1) {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_encoded_as_the_specification_says() {
        let method = Method {
            destination: "a.b",
            object: "/a",
            interface: "a.c",
            name: "D",
        };
        let message = method.message(7, &[Value::Str("x"), Value::U32(258)]);
        let expected = [
            b"l\x01\0\x01\x0c\0\0\0\x07\0\0\0\x46\0\0\0".as_slice(),
            b"\x01\x01o\0\x02\0\0\0/a\0\0\0\0\0\0",
            b"\x02\x01s\0\x03\0\0\0a.c\0\0\0\0\0",
            b"\x03\x01s\0\x01\0\0\0D\0\0\0\0\0\0\0",
            b"\x06\x01s\0\x03\0\0\0a.b\0\0\0\0\0",
            b"\x08\x01g\0\x02su\0\0",
            b"\x01\0\0\0x\0\0\0\x02\x01\0\0",
        ];
        assert_eq!(message, expected.concat());
    }

    #[test]
    fn nested_values_are_aligned() {
        let value = Value::Array(
            "(sv)",
            vec![Value::Struct(vec![
                Value::Str("k"),
                Value::Variant(Box::new(Value::U64(1))),
            ])],
        );
        assert_eq!(value.signature(), "a(sv)");
        let mut bytes = Vec::new();
        value.write(&mut bytes);
        assert_eq!(
            bytes,
            b"\x18\0\0\0\0\0\0\0\x01\0\0\0k\0\x01t\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0"
        );
    }

    /// A reply as a bus sends it: reply serial, sender, signature, one string.
    const REPLY: &[u8] = b"l\x02\x01\x01\x06\0\0\0\x09\0\0\0\x1f\0\0\0\
        \x05\x01u\0\x02\0\0\0\x07\x01s\0\x02\0\0\0:1\0\0\0\0\0\0\x08\x01g\0\x01s\0\0\
        \x01\0\0\0x\0";

    #[test]
    fn a_reply_is_read() {
        let head = REPLY.first_chunk().unwrap();
        assert_eq!(Message::length(head), Some(REPLY.len()));
        let message = Message::parse(REPLY).unwrap();
        assert_eq!((message.kind, message.reply_to), (METHOD_RETURN, Some(2)));
        assert_eq!(message.values().text(), Some("x"));
    }

    #[test]
    fn whatever_comes_is_read_or_refused() {
        for cut in 0..REPLY.len() {
            let _ = Message::parse(&REPLY[..cut]);
            for byte in [0, 1, 0x7f, 0xff] {
                let mut bytes = REPLY.to_vec();
                bytes[cut] = byte;
                if let Some(message) = Message::parse(&bytes) {
                    let _ = (message.values().u32(), message.values().text());
                }
                let length = Message::length(bytes.first_chunk().unwrap());
                assert!(length.is_none_or(|length| length <= MAX_MESSAGE));
            }
        }
    }
}
