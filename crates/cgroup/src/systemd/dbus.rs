//! A D-Bus client for the few calls that cellblock makes (D-Bus specification).
//!
//! Authentication, `Hello` and the first call leave in one write, so a single call
//! costs one round trip. Every wait ends at the deadline. Messages are little-endian
//! only: both ends are on this machine.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike as _};

use record::error::{Result, SetupError, Step};

const WAY_OUT: &str = "log in as this user, or `loginctl enable-linger`; or start cellblock in a unit with Delegate=yes";

/// The longest message that is read; the replies take less than a KiB.
const MAX_MESSAGE: usize = 1 << 20;

const METHOD_CALL: u8 = 1;
const METHOD_RETURN: u8 = 2;
const ERROR: u8 = 3;

/// A method of an object.
#[derive(Clone, Copy)]
pub(super) struct Method<'a> {
    pub(super) destination: &'a str,
    pub(super) object: &'a str,
    pub(super) interface: &'a str,
    pub(super) name: &'a str,
    /// The types of its arguments.
    pub(super) signature: &'a str,
}

impl Method<'_> {
    fn message(self, serial: u32, arguments: impl FnOnce(&mut Writer)) -> Vec<u8> {
        let mut body = Writer::default();
        arguments(&mut body);
        let mut message = Writer(vec![b'l', METHOD_CALL, 0, 1]);
        message.u32(body.0.len() as u32);
        message.u32(serial);
        message.array(8, |fields| {
            let mut field = |code, kind, value: &str| {
                fields.pad(8);
                fields.0.push(code);
                fields.signature(kind);
                match kind {
                    "g" => fields.signature(value),
                    _ => fields.text(value),
                }
            };
            field(1, "o", self.object);
            field(2, "s", self.interface);
            field(3, "s", self.name);
            field(6, "s", self.destination);
            field(8, "g", self.signature);
        });
        message.pad(8);
        message.0.extend(body.0);
        message.0
    }
}

/// Encodes values one after the other.
#[derive(Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    fn pad(&mut self, alignment: usize) {
        self.0.resize(self.0.len().next_multiple_of(alignment), 0);
    }

    pub(super) fn u32(&mut self, number: u32) {
        self.pad(4);
        self.0.extend(number.to_le_bytes());
    }

    pub(super) fn u64(&mut self, number: u64) {
        self.pad(8);
        self.0.extend(number.to_le_bytes());
    }

    /// A string or an object path.
    pub(super) fn text(&mut self, text: &str) {
        self.u32(text.len() as u32);
        self.0.extend(text.bytes().chain([0]));
    }

    fn signature(&mut self, text: &str) {
        self.0.push(text.len() as u8);
        self.0.extend(text.bytes().chain([0]));
    }

    /// An array of elements with this alignment.
    pub(super) fn array(&mut self, alignment: usize, elements: impl FnOnce(&mut Self)) {
        self.u32(0);
        let length_end = self.0.len();
        self.pad(alignment);
        let start = self.0.len();
        elements(self);
        let length = (self.0.len() - start) as u32;
        self.0[length_end - 4..length_end].copy_from_slice(&length.to_le_bytes());
    }

    /// A structure of a name and a variant with a value of type `signature`.
    pub(super) fn property(&mut self, name: &str, signature: &str, value: impl FnOnce(&mut Self)) {
        self.pad(8);
        self.text(name);
        self.signature(signature);
        value(self);
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
    error: String,
    body: Vec<u8>,
}

impl Message {
    /// The length of the message that begins with `head`.
    fn length(head: &[u8; 16]) -> Option<usize> {
        if !matches!(head, [b'l', _, _, 1, ..]) {
            return None;
        }
        let number = |at| {
            Reader { bytes: head, at }
                .u32()
                .map(|number| number as usize)
        };
        let fields_end = number(12)?.checked_add(head.len())?;
        let length = fields_end
            .checked_next_multiple_of(8)?
            .checked_add(number(4)?)?;
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
            match (code, reader.signature()?) {
                (5, "u") => message.reply_to = Some(reader.u32()?),
                (4, "s") => reader.text()?.clone_into(&mut message.error),
                (_, "u") => drop(reader.u32()?),
                (_, "s" | "o") => drop(reader.text()?),
                (_, "g") => drop(reader.signature()?),
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
    /// The callee refuses.
    Refused {
        /// The D-Bus name of its error.
        name: String,
        /// The same in words.
        error: SetupError,
    },
    /// No answer came, so it is unknown whether the callee did what was asked.
    Unreachable(SetupError),
}

impl From<Failure> for SetupError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused { error, .. } | Failure::Unreachable(error) => error,
        }
    }
}

/// A connection to a bus.
pub(super) struct Connection {
    stream: BufReader<Timed>,
    /// The bus, for messages.
    path: PathBuf,
    serial: u32,
    /// Sent with the next call.
    unsent: Vec<u8>,
    authenticated: bool,
}

impl Connection {
    /// Connects to the bus `path` at `address` as the user `uid`. No call goes on
    /// after `deadline`.
    pub(super) fn open(
        path: PathBuf,
        address: &UnixAddr,
        uid: u32,
        deadline: Instant,
    ) -> Result<Self> {
        let stream = connected(address, deadline).map_err(|e| explain(&e).on(path.display()))?;
        let digits = uid.to_string();
        let hex: String = digits.bytes().map(|byte| format!("{byte:02x}")).collect();
        let mut unsent = format!("\0AUTH EXTERNAL {hex}\r\nBEGIN\r\n").into_bytes();
        let hello = Method {
            destination: "org.freedesktop.DBus",
            object: "/org/freedesktop/DBus",
            interface: "org.freedesktop.DBus",
            name: "Hello",
            signature: "",
        };
        unsent.extend(hello.message(1, |_| ()));
        Ok(Self {
            stream: BufReader::new(Timed { stream, deadline }),
            path,
            serial: 1,
            unsent,
            authenticated: false,
        })
    }

    /// The process that listens at the other end; 0 for one in a pid namespace that
    /// this process cannot see into.
    pub(super) fn peer_pid(&self) -> Result<i32> {
        getsockopt(&self.stream.get_ref().stream, sockopt::PeerCredentials)
            .map(|peer| peer.pid())
            .map_err(|errno| SetupError::os(Step::Cgroup, "getsockopt", errno))
    }

    /// Calls `method` and waits for its result.
    pub(super) fn call(
        &mut self,
        method: Method<'_>,
        arguments: impl FnOnce(&mut Writer),
    ) -> std::result::Result<Message, Failure> {
        self.serial += 1;
        self.unsent.extend(method.message(self.serial, arguments));
        let reply = self
            .exchange()
            .map_err(|error| Failure::Unreachable(explain(&error).on(self.path.display())))?;
        if reply.kind == METHOD_RETURN {
            return Ok(reply);
        }
        let name = reply.error.clone();
        let text = reply.values().text().unwrap_or_default();
        let error = failure(format!("systemd refuses: {name}: {text}"));
        Err(Failure::Refused {
            error: error.on(self.path.display()),
            name,
        })
    }

    /// Sends what is due and waits for the reply to the latest call.
    fn exchange(&mut self) -> io::Result<Message> {
        let bytes = std::mem::take(&mut self.unsent);
        self.stream.get_mut().stream.write_all(&bytes)?;
        loop {
            let message = self.receive()?;
            let is_reply = message.kind == METHOD_RETURN && message.reply_to == Some(self.serial);
            // Any error: if the bus refuses `Hello`, it refuses the call as well.
            if is_reply || message.kind == ERROR {
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
                _ => return Err(io::Error::other("the bus does not accept this user")),
            }
        }
        let malformed = || io::Error::other("the bus sent a malformed message");
        let mut head = [0; 16];
        self.stream.read_exact(&mut head)?;
        let length = Message::length(&head).ok_or_else(malformed)?;
        let mut bytes = head.to_vec();
        bytes.resize(length, 0);
        self.stream.read_exact(&mut bytes[head.len()..])?;
        Message::parse(&bytes).ok_or_else(malformed)
    }
}

fn connected(address: &UnixAddr, deadline: Instant) -> io::Result<UnixStream> {
    let socket = socket(
        AddressFamily::Unix,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    // connect(2) waits no longer than this for a bus that accepts no connection.
    let left = TimeVal::milliseconds(left(deadline)?.as_millis() as i64);
    setsockopt(&socket, sockopt::SendTimeout, &left)?;
    loop {
        match connect(socket.as_raw_fd(), address) {
            Ok(()) => return Ok(socket.into()),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

pub(super) fn failure(message: impl Into<String>) -> SetupError {
    SetupError::new(Step::Cgroup, message).hint(WAY_OUT)
}

fn explain(error: &io::Error) -> SetupError {
    match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            failure("systemd did not answer in time")
        }
        io::ErrorKind::UnexpectedEof => failure("the bus hung up"),
        io::ErrorKind::Other => failure(error.to_string()),
        _ => SetupError::io(Step::Cgroup, "connect", error).hint(WAY_OUT),
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
            signature: "su",
        };
        let message = method.message(7, |arguments| {
            arguments.text("x");
            arguments.u32(258);
        });
        let expected = [
            b"l\x01\0\x01\x0c\0\0\0\x07\0\0\0\x48\0\0\0".as_slice(),
            b"\x01\x01o\0\x02\0\0\0/a\0\0\0\0\0\0",
            b"\x02\x01s\0\x03\0\0\0a.c\0\0\0\0\0",
            b"\x03\x01s\0\x01\0\0\0D\0\0\0\0\0\0\0",
            b"\x06\x01s\0\x03\0\0\0a.b\0\0\0\0\0",
            b"\x08\x01g\0\x02su\0",
            b"\x01\0\0\0x\0\0\0\x02\x01\0\0",
        ];
        assert_eq!(message, expected.concat());
    }

    #[test]
    fn properties_are_aligned() {
        let mut writer = Writer::default();
        writer.array(8, |properties| {
            properties.property("k", "t", |value| value.u64(1));
        });
        assert_eq!(
            writer.0,
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
