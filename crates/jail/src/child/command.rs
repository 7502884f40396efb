//! The supervisor's orders to init; `report/mod.rs` shows their sequence.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::socket::MsgFlags;

use super::report::{receive_with_fds, send_with_fds};

/// What the supervisor has init do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Go on with the set-up: the ids are mapped.
    Go,
    /// The program has been forked into the cell, with this pid there.
    Adopt(u8),
    /// Send this signal to the program's process group.
    Signal(Signal),
    /// Send this signal to the program's process group but not to the program, which gets SIGURG
    /// ([`super::interrupt`]).
    Interrupt(Signal),
    /// Send this signal to the process group of the process with this number.
    SignalProcess(u32, Signal),
    /// Stop all processes, and say so.
    Freeze,
    /// Let stopped processes go on.
    Thaw,
    /// Kill all processes, and report.
    End,
    /// The program, which is the only process, waits to be ended with this exit status: stop it,
    /// report, and kill it then.
    EndWith(u8),
}

/// The size of a message: its kind, a small number, and three more numbers in native byte order.
const SIZE: usize = 10;

fn encode(kind: u8, small: u8, number: u32, [rows, columns]: [u16; 2]) -> [u8; SIZE] {
    let mut bytes = [0; SIZE];
    let parts = [&[kind, small][..], &number.to_ne_bytes()];
    let size = [&rows.to_ne_bytes()[..], &columns.to_ne_bytes()];
    let parts = parts.into_iter().chain(size).flatten();
    bytes
        .iter_mut()
        .zip(parts)
        .for_each(|(byte, part)| *byte = *part);
    bytes
}

fn number_of([_, _, a, b, c, d, ..]: [u8; SIZE]) -> u32 {
    u32::from_ne_bytes([a, b, c, d])
}

fn size_of_terminal([.., a, b, c, d]: [u8; SIZE]) -> [u16; 2] {
    [u16::from_ne_bytes([a, b]), u16::from_ne_bytes([c, d])]
}

impl Command {
    /// Sends it without waiting.
    ///
    /// # Errors
    /// The error number of sendmsg(2): init is gone, or does not read.
    pub fn send(self, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        let (kind, small, number) = match self {
            Self::Go => (b'g', 0, 0),
            Self::Adopt(pid) => (b'a', pid, 0),
            Self::Signal(signal) => (b's', signal as u8, 0),
            Self::Interrupt(signal) => (b'i', signal as u8, 0),
            Self::SignalProcess(number, signal) => (b'k', signal as u8, number),
            Self::Freeze => (b'f', 0, 0),
            Self::Thaw => (b't', 0, 0),
            Self::End => (b'e', 0, 0),
            Self::EndWith(status) => (b'w', status, 0),
        };
        let bytes = encode(kind, small, number, [0; 2]);
        send_with_fds(socket, &bytes, &[], MsgFlags::MSG_DONTWAIT)
    }

    fn decode(bytes: [u8; SIZE]) -> Option<Self> {
        let [kind, small, ..] = bytes;
        let signal = || Signal::try_from(i32::from(small)).ok();
        match kind {
            b'g' => Some(Self::Go),
            b'a' => Some(Self::Adopt(small)),
            b's' => signal().map(Self::Signal),
            b'i' => signal().map(Self::Interrupt),
            b'k' => signal().map(|signal| Self::SignalProcess(number_of(bytes), signal)),
            b'f' => Some(Self::Freeze),
            b't' => Some(Self::Thaw),
            b'e' => Some(Self::End),
            b'w' => Some(Self::EndWith(small)),
            _ => None,
        }
    }
}

/// The order to start the program of a blank cell.
#[derive(Debug)]
pub(super) struct ProgramOrder {
    /// What it is started with ([`super::parcel`]).
    pub(super) parcel: OwnedFd,
    /// Its standard input, unless that was in place before.
    pub(super) stdin: Option<OwnedFd>,
}

/// The order to start a guest's interpreter.
#[derive(Debug)]
pub(super) struct InterpreterOrder {
    /// What it is started with.
    pub(super) parcel: OwnedFd,
    /// Its standard streams.
    pub(super) streams: [OwnedFd; 3],
    /// Its end of the driver's channel.
    pub(super) channel: Vec<OwnedFd>,
}

/// The order to start a process beside the program.
#[derive(Debug)]
pub(super) struct ProcessOrder {
    /// The supervisor's number for it.
    pub(super) number: u32,
    /// What it is started with.
    pub(super) parcel: OwnedFd,
    pub(super) streams: ProcessStreams,
}

/// The standard streams of a process.
#[derive(Debug)]
pub enum ProcessStreams {
    /// These three.
    Pipes([OwnedFd; 3]),
    /// A new terminal with this number of lines and of characters in each.
    Terminal([u16; 2]),
}

/// What init can receive.
#[derive(Debug)]
pub(super) enum Received {
    Command(Command),
    /// Start the program of a blank cell.
    Program(ProgramOrder),
    /// Go on without a program, once the input files of this parcel are in place.
    Stay(OwnedFd),
    Process(ProcessOrder),
    /// Obey the orders on this socket as well: a guest's supervisor sends them.
    Supervisor(OwnedFd),
    /// Start the interpreter of the guest on whose socket this order arrives.
    Interpreter(InterpreterOrder),
}

const PROGRAM: u8 = b'p';
const STAY: u8 = b'n';
const PROCESS: u8 = b'x';
const SUPERVISOR: u8 = b'j';
const INTERPRETER: u8 = b'i';

/// Orders init to start the program. Does not wait.
///
/// # Errors
/// The error number of sendmsg(2): init is gone.
pub fn send_program(
    socket: BorrowedFd<'_>,
    parcel: BorrowedFd<'_>,
    stdin: Option<BorrowedFd<'_>>,
) -> Result<(), Errno> {
    let fds: Vec<RawFd> = [Some(parcel), stdin]
        .iter()
        .flatten()
        .map(AsRawFd::as_raw_fd)
        .collect();
    let bytes = encode(PROGRAM, 0, 0, [0; 2]);
    send_with_fds(socket, &bytes, &fds, MsgFlags::empty())
}

/// Orders init to go on without a program, once the input files of `parcel` are in place.
///
/// # Errors
/// The error number of sendmsg(2): init is gone.
pub fn send_stay(socket: BorrowedFd<'_>, parcel: BorrowedFd<'_>) -> Result<(), Errno> {
    let bytes = encode(STAY, 0, 0, [0; 2]);
    send_with_fds(socket, &bytes, &[parcel.as_raw_fd()], MsgFlags::empty())
}

/// Orders init to start a process. Does not wait.
///
/// # Errors
/// The error number of sendmsg(2): init is gone, or does not read.
pub fn send_process(
    socket: BorrowedFd<'_>,
    number: u32,
    parcel: BorrowedFd<'_>,
    streams: &ProcessStreams,
) -> Result<(), Errno> {
    let (size, streams) = match streams {
        ProcessStreams::Pipes(streams) => ([0; 2], &streams[..]),
        ProcessStreams::Terminal(size) => (*size, &[][..]),
    };
    let streams = streams.iter().map(AsRawFd::as_raw_fd);
    let fds: Vec<RawFd> = std::iter::once(parcel.as_raw_fd()).chain(streams).collect();
    let bytes = encode(PROCESS, 0, number, size);
    send_with_fds(socket, &bytes, &fds, MsgFlags::MSG_DONTWAIT)
}

/// Orders init to obey another socket as well. Does not wait.
///
/// # Errors
/// The error number of sendmsg(2): init is gone, or does not read.
pub(crate) fn send_supervisor(socket: BorrowedFd<'_>, theirs: BorrowedFd<'_>) -> Result<(), Errno> {
    let bytes = encode(SUPERVISOR, 0, 0, [0; 2]);
    send_with_fds(
        socket,
        &bytes,
        &[theirs.as_raw_fd()],
        MsgFlags::MSG_DONTWAIT,
    )
}

/// Orders init to start the interpreter of the guest that has this socket. Does not wait.
///
/// # Errors
/// The error number of sendmsg(2): init is gone, or does not read.
pub(crate) fn send_interpreter(
    socket: BorrowedFd<'_>,
    parcel: BorrowedFd<'_>,
    streams: &[OwnedFd; 3],
    channel: &[OwnedFd],
) -> Result<(), Errno> {
    let others = streams.iter().chain(channel).map(AsRawFd::as_raw_fd);
    let fds: Vec<RawFd> = std::iter::once(parcel.as_raw_fd()).chain(others).collect();
    let bytes = encode(INTERPRETER, 0, 0, [0; 2]);
    send_with_fds(socket, &bytes, &fds, MsgFlags::MSG_DONTWAIT)
}

impl Received {
    /// The next message; `Ok(None)` once the supervisor is gone.
    ///
    /// # Errors
    /// The error number of recvmsg(2), or EBADMSG for anything else.
    pub(super) fn next(socket: BorrowedFd<'_>, flags: MsgFlags) -> Result<Option<Self>, Errno> {
        let mut bytes = [0; SIZE];
        let (length, fds) = receive_with_fds(socket, &mut bytes, flags)?;
        match length {
            0 => Ok(None),
            SIZE => Self::decode(bytes, fds).map(Some).ok_or(Errno::EBADMSG),
            _ => Err(Errno::EBADMSG),
        }
    }

    /// Whether the next message is an order to start something. The message stays in the socket.
    ///
    /// # Errors
    /// The error number of recvmsg(2): EAGAIN when no message has arrived.
    pub(super) fn next_starts(socket: BorrowedFd<'_>) -> Result<bool, Errno> {
        let mut bytes = [0; SIZE];
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_PEEK;
        let (length, _) = receive_with_fds(socket, &mut bytes, flags)?;
        Ok(length == SIZE && matches!(bytes[0], PROCESS | INTERPRETER))
    }

    /// The next message, unless it is an order to start something, which stays in the socket. So
    /// does a message that arrives just now.
    ///
    /// # Errors
    /// As for [`Self::next`]; EAGAIN also for such an order.
    pub(super) fn next_but_no_start(socket: BorrowedFd<'_>) -> Result<Option<Self>, Errno> {
        match Self::next_starts(socket)? {
            true => Err(Errno::EAGAIN),
            false => Self::next(socket, MsgFlags::MSG_DONTWAIT),
        }
    }

    fn decode(bytes: [u8; SIZE], fds: Vec<OwnedFd>) -> Option<Self> {
        let mut fds = fds.into_iter();
        let first = fds.next();
        let rest: Vec<OwnedFd> = fds.collect();
        match (bytes[0], first) {
            (PROGRAM, Some(parcel)) if rest.len() <= 1 => {
                let stdin = rest.into_iter().next();
                Some(Self::Program(ProgramOrder { parcel, stdin }))
            }
            (STAY, Some(parcel)) if rest.is_empty() => Some(Self::Stay(parcel)),
            (SUPERVISOR, Some(socket)) if rest.is_empty() => Some(Self::Supervisor(socket)),
            (INTERPRETER, Some(parcel)) => {
                let mut rest = rest.into_iter();
                let streams = <[OwnedFd; 3]>::try_from(rest.by_ref().take(3).collect::<Vec<_>>());
                Some(Self::Interpreter(InterpreterOrder {
                    parcel,
                    streams: streams.ok()?,
                    channel: rest.collect(),
                }))
            }
            (PROCESS, Some(parcel)) => {
                let streams = match <[OwnedFd; 3]>::try_from(rest) {
                    Ok(streams) => ProcessStreams::Pipes(streams),
                    Err(rest) if rest.is_empty() => {
                        ProcessStreams::Terminal(size_of_terminal(bytes))
                    }
                    Err(_) => return None,
                };
                let number = number_of(bytes);
                Some(Self::Process(ProcessOrder {
                    number,
                    parcel,
                    streams,
                }))
            }
            (_, None) => Command::decode(bytes).map(Self::Command),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    fn next(socket: &std::os::unix::net::UnixDatagram) -> Result<Option<Received>, Errno> {
        Received::next(socket.as_fd(), MsgFlags::MSG_DONTWAIT)
    }

    #[test]
    fn commands_survive_the_wire() {
        let (ours, theirs) = std::os::unix::net::UnixDatagram::pair().unwrap();
        for command in [
            Command::Go,
            Command::Adopt(3),
            Command::Signal(Signal::SIGINT),
            Command::Interrupt(Signal::SIGKILL),
            Command::SignalProcess(70_000, Signal::SIGKILL),
            Command::Freeze,
            Command::Thaw,
            Command::End,
            Command::EndWith(3),
        ] {
            command.send(ours.as_fd()).unwrap();
            let received = next(&theirs).unwrap().unwrap();
            assert!(matches!(received, Received::Command(found) if found == command));
        }
        for odd in [
            &b"x1"[..],
            b"e",
            &[b'z'; SIZE],
            &[b'x'; SIZE],
            b"x234567890x",
        ] {
            ours.send(odd).unwrap();
            assert_eq!(next(&theirs).err(), Some(Errno::EBADMSG), "{odd:?}");
        }
    }

    #[test]
    fn orders_have_the_descriptors_that_they_need() {
        let (ours, theirs) = std::os::unix::net::UnixDatagram::pair().unwrap();
        let null = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let parcel = null();
        let pipes = ProcessStreams::Pipes([null(), null(), null()]);
        for streams in [pipes, ProcessStreams::Terminal([24, 80])] {
            send_process(ours.as_fd(), 9, parcel.as_fd(), &streams).unwrap();
            let Ok(Some(Received::Process(order))) = next(&theirs) else {
                panic!()
            };
            assert_eq!(order.number, 9);
            match (order.streams, streams) {
                (ProcessStreams::Pipes(_), ProcessStreams::Pipes(_)) => {}
                (ProcessStreams::Terminal(size), ProcessStreams::Terminal(_)) => {
                    assert_eq!(size, [24, 80]);
                }
                other => panic!("{other:?}"),
            }
        }
        send_stay(ours.as_fd(), parcel.as_fd()).unwrap();
        assert!(matches!(next(&theirs), Ok(Some(Received::Stay(_)))));
        send_supervisor(ours.as_fd(), parcel.as_fd()).unwrap();
        assert!(matches!(next(&theirs), Ok(Some(Received::Supervisor(_)))));
        let (streams, channel) = ([null(), null(), null()], [null(), null()]);
        send_interpreter(ours.as_fd(), parcel.as_fd(), &streams, &channel).unwrap();
        let Ok(Some(Received::Interpreter(order))) = next(&theirs) else {
            panic!()
        };
        assert_eq!(order.channel.len(), 2);
        assert_eq!(
            Received::next_but_no_start(theirs.as_fd()).err(),
            Some(Errno::EAGAIN)
        );
        Command::Thaw.send(ours.as_fd()).unwrap();
        send_interpreter(ours.as_fd(), parcel.as_fd(), &streams, &[]).unwrap();
        let thaw = Received::next_but_no_start(theirs.as_fd());
        assert!(matches!(thaw, Ok(Some(Received::Command(Command::Thaw)))));
        for _ in 0..2 {
            assert_eq!(
                Received::next_but_no_start(theirs.as_fd()).err(),
                Some(Errno::EAGAIN)
            );
        }
        assert!(matches!(next(&theirs), Ok(Some(Received::Interpreter(_)))));
        let [two, command] = [encode(PROCESS, 0, 1, [0; 2]), encode(b'e', 0, 0, [0; 2])];
        for bytes in [two, command] {
            let fds = [parcel.as_raw_fd(), parcel.as_raw_fd()];
            send_with_fds(ours.as_fd(), &bytes, &fds, MsgFlags::empty()).unwrap();
            assert_eq!(next(&theirs).err(), Some(Errno::EBADMSG));
        }
    }
}
