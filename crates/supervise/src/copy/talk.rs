//! The conversation with a copy, which runs trusted code so far.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType,
    UnixCredentials, recvmsg, sendmsg, setsockopt, socketpair, sockopt,
};
use nix::unistd::Pid;

use super::{failed, gone};
use jail::launch::wait_for;
use languages::template::CopyRequest;
use record::error::{Result, SetupError, Step};

/// How long each word of a copy may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// The supervisor's end of a copy's socket. Dropping this waits until the template has forked: the
/// end of the cell would kill the process in between, which shares the template's memory.
pub(super) struct Talk {
    socket: OwnedFd,
    /// Whether the first message has come, or will not.
    is_greeted: bool,
    /// The step of each call that the copy makes.
    steps: Vec<Step>,
}

impl Talk {
    /// A socket to a copy, and the copy's end.
    pub(super) fn open() -> Result<(Self, OwnedFd)> {
        let (socket, theirs) = socketpair(
            AddressFamily::Unix,
            SockType::SeqPacket,
            None,
            SockFlag::SOCK_CLOEXEC,
        )
        .map_err(failed("socketpair"))?;
        // The kernel then says which process a message is from (unix(7)).
        setsockopt(&socket, sockopt::PassCred, &true).map_err(failed("setsockopt"))?;
        let talk = Self {
            socket,
            is_greeted: false,
            steps: Vec::new(),
        };
        Ok((talk, theirs))
    }

    /// The copy's pid in the cell, as its first message has it, and outside, from the kernel.
    pub(super) fn greeting(&mut self) -> Result<(i32, Pid)> {
        self.is_greeted = true;
        let (said, sender) = self.next()?;
        let pid = self.number(&said, "hello")?;
        let sender = sender.ok_or_else(|| gone("a copy of the template"))?;
        Ok((pid, Pid::from_raw(sender.pid())))
    }

    /// Sends the copy what it is to do.
    pub(super) fn request(
        &mut self,
        request: &CopyRequest,
        steps: Vec<Step>,
        fds: &[RawFd],
    ) -> Result<()> {
        self.steps = steps;
        send(self.socket.as_fd(), &request.encode(), fds)
    }

    pub(super) fn say(&self, word: &str) -> Result<()> {
        send(self.socket.as_fd(), word.as_bytes(), &[])
    }

    /// The number after `word` in the copy's next message.
    pub(super) fn hear(&self, word: &str) -> Result<i32> {
        self.number(&self.next()?.0, word)
    }

    /// Waits until the copy has closed its end, the last of its descriptors to go.
    pub(super) fn end(&self) -> Result<()> {
        match self.next()?.0.as_str() {
            "" => Ok(()),
            _ => Err(gone("a copy of the template")),
        }
    }

    fn number(&self, said: &str, word: &str) -> Result<i32> {
        let mut words = said.split_ascii_whitespace();
        let (first, second, third) = (words.next(), words.next(), words.next());
        let number = |word: Option<&str>| word.and_then(|word| word.parse::<i32>().ok());
        match (first, number(second), number(third)) {
            (Some(first), Some(number), None) if first == word => Ok(number),
            (Some("failed"), Some(place), Some(errno)) => {
                let step = usize::try_from(place).ok();
                let step = step.and_then(|place| self.steps.get(place)).copied();
                let step = step.unwrap_or(Step::Fork);
                let message = format!(
                    "a copy of the template could not {}: {}",
                    step.doing(),
                    Errno::from_raw(errno).desc()
                );
                Err(SetupError::new(step, message))
            }
            _ => Err(gone("a copy of the template")),
        }
    }

    /// The copy's next message and its sender; an empty message once the copy's end is closed.
    fn next(&self) -> Result<(String, Option<UnixCredentials>)> {
        let mut buffer = [0; 64];
        let mut control = cmsg_space!(UnixCredentials);
        let deadline = Instant::now() + PATIENCE;
        loop {
            if !wait_for(self.socket.as_fd(), deadline) {
                return Err(gone("a copy of the template"));
            }
            let mut parts = [IoSliceMut::new(&mut buffer)];
            let socket = self.socket.as_raw_fd();
            match recvmsg::<()>(
                socket,
                &mut parts,
                Some(&mut control),
                MsgFlags::MSG_DONTWAIT,
            ) {
                Ok(message) => {
                    let sender = message
                        .cmsgs()
                        .map_err(failed("recvmsg"))?
                        .find_map(|part| match part {
                            ControlMessageOwned::ScmCredentials(sender) => Some(sender),
                            _ => None,
                        });
                    let length = message.bytes;
                    let said = String::from_utf8_lossy(&buffer[..length]).into_owned();
                    return Ok((said, sender));
                }
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(errno) => return Err(failed("recvmsg")(errno)),
            }
        }
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        if !self.is_greeted {
            let _ = self.next();
        }
    }
}

/// Sends a message with descriptors.
pub(super) fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[RawFd]) -> Result<()> {
    let rights = [ControlMessage::ScmRights(fds)];
    let rights = if fds.is_empty() { &[] } else { &rights[..] };
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let parts = [IoSlice::new(bytes)];
        match sendmsg::<()>(socket.as_raw_fd(), &parts, rights, flags, None) {
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) => {}
            // The template has not taken the requests before this one.
            Err(Errno::EAGAIN) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(errno) => return Err(failed("sendmsg")(errno).on("template")),
        }
    }
}
