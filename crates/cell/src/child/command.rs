//! What the supervisor has init do; `report.rs` shows when.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::socket::{MsgFlags, recv, send};

use super::report::{receive_with_fds, send_with_fds};

/// What the supervisor has init do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Go on with the set-up: the ids are mapped.
    Go,
    /// The program has been forked into the cell, with this pid there.
    Adopt(u8),
    /// Send this signal to the program's process group.
    Signal(Signal),
    /// Stop all processes, and say so.
    Freeze,
    /// Let stopped processes go on.
    Thaw,
    /// Kill all processes, and report.
    End,
}

impl Command {
    /// Sends it without waiting.
    ///
    /// # Errors
    /// The error number of send(2): init is gone, or does not read.
    pub(crate) fn send(self, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        let bytes = match self {
            Self::Go => [b'g', 0],
            Self::Adopt(pid) => [b'a', pid],
            Self::Signal(signal) => [b's', signal as u8],
            Self::Freeze => [b'f', 0],
            Self::Thaw => [b't', 0],
            Self::End => [b'e', 0],
        };
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        send(socket.as_raw_fd(), &bytes, flags).map(drop)
    }

    /// The next command; `Ok(None)` once the supervisor is gone.
    ///
    /// # Errors
    /// The error number of recv(2), or EBADMSG for anything but a command.
    pub(super) fn receive(socket: BorrowedFd<'_>, flags: MsgFlags) -> Result<Option<Self>, Errno> {
        let mut bytes = [0; 2];
        let length = recv(socket.as_raw_fd(), &mut bytes, flags)?;
        match (length, bytes) {
            (0, _) => Ok(None),
            (2, [b'g', _]) => Ok(Some(Self::Go)),
            (2, [b'a', pid]) => Ok(Some(Self::Adopt(pid))),
            (2, [b's', number]) => {
                Signal::try_from(i32::from(number)).map(|s| Some(Self::Signal(s)))
            }
            (2, [b'f', _]) => Ok(Some(Self::Freeze)),
            (2, [b't', _]) => Ok(Some(Self::Thaw)),
            (2, [b'e', _]) => Ok(Some(Self::End)),
            _ => Err(Errno::EBADMSG),
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

/// First byte of a [`ProgramOrder`].
const PROGRAM: u8 = b'p';

/// Orders init to start the program. Does not wait.
///
/// # Errors
/// The error number of sendmsg(2): init is gone.
pub(crate) fn send_program(
    socket: BorrowedFd<'_>,
    parcel: BorrowedFd<'_>,
    stdin: Option<BorrowedFd<'_>>,
) -> Result<(), Errno> {
    let fds: Vec<RawFd> = [Some(parcel), stdin]
        .iter()
        .flatten()
        .map(AsRawFd::as_raw_fd)
        .collect();
    send_with_fds(socket, &[PROGRAM, 0], &fds)
}

impl ProgramOrder {
    /// Waits for the order; `Ok(None)` when the cell is to end instead.
    ///
    /// # Errors
    /// The error number of recvmsg(2), or EBADMSG for anything else.
    pub(super) fn receive(socket: BorrowedFd<'_>) -> Result<Option<Self>, Errno> {
        let mut bytes = [0; 2];
        loop {
            let (length, fds) = match receive_with_fds(socket, &mut bytes, MsgFlags::empty()) {
                Err(Errno::EINTR) => continue,
                received => received?,
            };
            let mut fds = fds.into_iter();
            return match (length, bytes, fds.next(), fds.next(), fds.next()) {
                (0, ..) | (2, [b'e', _], None, ..) => Ok(None),
                (2, [PROGRAM, _], Some(parcel), stdin, None) => Ok(Some(Self { parcel, stdin })),
                // A signal, or a stop, for a program that does not exist.
                (2, [b's' | b'f' | b't', _], None, ..) => continue,
                _ => Err(Errno::EBADMSG),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn commands_survive_the_wire() {
        let (ours, theirs) = std::os::unix::net::UnixDatagram::pair().unwrap();
        let signal = Command::Signal(Signal::SIGINT);
        for command in [
            Command::Go,
            Command::Adopt(3),
            signal,
            Command::Freeze,
            Command::Thaw,
            Command::End,
        ] {
            command.send(ours.as_fd()).unwrap();
            let received = Command::receive(theirs.as_fd(), MsgFlags::MSG_DONTWAIT);
            assert_eq!(received, Ok(Some(command)));
        }
        ours.send(b"x1").unwrap();
        let received = Command::receive(theirs.as_fd(), MsgFlags::MSG_DONTWAIT);
        assert_eq!(received, Err(Errno::EBADMSG));
    }
}
