//! Messages between the cell's init and the supervisor.
//!
//! ```text
//!   supervisor                              init
//!   ----------                              ----
//!   clone3                          ──────► tether, network, host name, binds opened
//!   write uid_map, gid_map
//!   send GO                         ──────► (waits for it) ids, mounts, confinement
//!                                           vfork and exec of the program
//!   descriptors: watch them         ◄────── STARTED + [directories, listener]
//!      … or the reason, in words    ◄────── FAILED  {step, call, errno, item}
//!   …
//!   [signal number, then SIGUSR1]   ──────► sends that signal to the program's group
//!   [SIGTERM: end it]               ──────► kills and reaps all
//!   usage, exit status              ◄────── ENDED   {status, user, system, max_rss, counts}
//!   waits for the pidfd                     exits: the kernel ends what is left
//! ```
//!
//! The socket is of type SOCK_SEQPACKET and close-on-exec; the program never
//! has it. End of file without a message means that init died, and the shared
//! [`Progress`] tells where.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

use super::fail::{Call, Fail, Verb};
use record::error::Step;
use sys::process::{ChildUsage, ProcessCount};
use sys::shared::Progress;

const MAGIC: u32 = 0xce11_b10c;
const SIZE: usize = 56;
/// The most descriptors that one message carries.
const MAX_FDS: usize = 4;

/// A message from init.
#[derive(Debug)]
pub(crate) enum Message {
    /// The program has been executed.
    Started {
        /// The plan's places that are tmpfs of the cell's own, in its order, and
        /// the filter's listener if there is one.
        fds: Vec<OwnedFd>,
    },
    /// A step failed.
    Failed {
        /// Which.
        step: Step,
        /// The system call.
        syscall: &'static str,
        /// Its error number.
        errno: Errno,
        /// Index into what the step goes through in the plan.
        item: Option<usize>,
    },
    /// The program has ended, and everything with it.
    Ended {
        /// Its wait status (wait(2)).
        status: i32,
        /// What all processes used that were reaped.
        usage: ChildUsage,
    },
}

/// Fields in the order of the wire.
#[derive(Default)]
struct Wire {
    kind: u16,
    step: u16,
    call: u16,
    errno: i32,
    item: i32,
    status: i32,
    user_us: u64,
    system_us: u64,
    max_rss: u64,
    at_end: u32,
    /// 0 where it is unknown.
    started: u32,
}

const STARTED: u16 = 1;
const FAILED: u16 = 2;
const ENDED: u16 = 3;

impl Wire {
    fn encode(&self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        let fields: [&[u8]; 12] = [
            &MAGIC.to_ne_bytes(),
            &self.kind.to_ne_bytes(),
            &self.step.to_ne_bytes(),
            &self.call.to_ne_bytes(),
            &self.errno.to_ne_bytes(),
            &self.item.to_ne_bytes(),
            &self.status.to_ne_bytes(),
            &self.user_us.to_ne_bytes(),
            &self.system_us.to_ne_bytes(),
            &self.max_rss.to_ne_bytes(),
            &self.at_end.to_ne_bytes(),
            &self.started.to_ne_bytes(),
        ];
        let mut at = 0;
        for field in fields {
            bytes[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        if u32::from_ne_bytes(take(&mut rest)?) != MAGIC || bytes.len() != SIZE {
            return None;
        }
        Some(Self {
            kind: u16::from_ne_bytes(take(&mut rest)?),
            step: u16::from_ne_bytes(take(&mut rest)?),
            call: u16::from_ne_bytes(take(&mut rest)?),
            errno: i32::from_ne_bytes(take(&mut rest)?),
            item: i32::from_ne_bytes(take(&mut rest)?),
            status: i32::from_ne_bytes(take(&mut rest)?),
            user_us: u64::from_ne_bytes(take(&mut rest)?),
            system_us: u64::from_ne_bytes(take(&mut rest)?),
            max_rss: u64::from_ne_bytes(take(&mut rest)?),
            at_end: u32::from_ne_bytes(take(&mut rest)?),
            started: u32::from_ne_bytes(take(&mut rest)?),
        })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk()?;
    *rest = tail;
    Some(*head)
}

impl Message {
    /// Reads a message's bytes; `None` for anything that init does not send.
    pub(crate) fn decode(bytes: &[u8], fds: Vec<OwnedFd>) -> Option<Self> {
        let wire = Wire::decode(bytes)?;
        match wire.kind {
            STARTED => Some(Self::Started { fds }),
            FAILED => Some(Self::Failed {
                step: Step::from_number(wire.step)?,
                syscall: Call::from_number(wire.call)?.name(),
                errno: Errno::from_raw(wire.errno),
                item: usize::try_from(wire.item).ok(),
            }),
            ENDED => Some(Self::Ended {
                status: wire.status,
                usage: ChildUsage {
                    user: Duration::from_micros(wire.user_us),
                    system: Duration::from_micros(wire.system_us),
                    max_rss: wire.max_rss,
                    count: ProcessCount {
                        at_end: wire.at_end,
                        started: (wire.started > 0).then_some(wire.started),
                    },
                },
            }),
            _ => None,
        }
    }

    /// Receives one message without waiting for it; `Ok(None)` at end of file.
    ///
    /// # Errors
    /// The error number of recvmsg(2), EAGAIN when there is none, or EBADMSG for something else than a
    /// message.
    pub(crate) fn receive(socket: BorrowedFd<'_>) -> Result<Option<Self>, Errno> {
        // An init that ended with something unread resets the connection, which is
        // told once, before what it had sent.
        match Self::receive_next(socket) {
            Err(Errno::ECONNRESET) => Self::receive_next(socket),
            other => other,
        }
    }

    fn receive_next(socket: BorrowedFd<'_>) -> Result<Option<Self>, Errno> {
        let mut bytes = [0; SIZE];
        let mut control = cmsg_space!([RawFd; MAX_FDS]);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let received = recvmsg::<()>(
            socket.as_raw_fd(),
            &mut parts,
            Some(&mut control),
            MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_DONTWAIT,
        )?;
        let length = received.bytes;
        let mut fds = Vec::new();
        for message in received.cmsgs()? {
            if let ControlMessageOwned::ScmRights(raw) = message {
                // SAFETY: the kernel has just made these descriptors for us.
                fds.extend(
                    raw.into_iter()
                        .map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }),
                );
            }
        }
        if length == 0 {
            return Ok(None);
        }
        Self::decode(&bytes[..length], fds)
            .map(Some)
            .ok_or(Errno::EBADMSG)
    }
}

/// Asks init to send `signal` to the program.
///
/// # Errors
/// The error number of send(2) or pidfd_send_signal(2): init is gone, or has not
/// read what it was sent before.
pub(crate) fn pass_on(
    socket: BorrowedFd<'_>,
    init: BorrowedFd<'_>,
    signal: Signal,
) -> Result<(), Errno> {
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    nix::sys::socket::send(socket.as_raw_fd(), &[signal as u8], flags)?;
    sys::process::pidfd_send_signal(init, Signal::SIGUSR1)
}

/// The next signal that the supervisor wants the program to have; `None` when
/// there is none.
pub(super) fn signal_to_pass_on(socket: BorrowedFd<'_>) -> Option<Signal> {
    let mut number = [0; 1];
    let flags = MsgFlags::MSG_DONTWAIT;
    match nix::sys::socket::recv(socket.as_raw_fd(), &mut number, flags) {
        Ok(1) => Signal::try_from(i32::from(number[0])).ok(),
        _ => None,
    }
}

/// Init's end of the socket.
pub(super) struct Reporter<'a> {
    socket: BorrowedFd<'a>,
    progress: &'a Progress,
}

impl<'a> Reporter<'a> {
    pub(super) fn new(socket: &'a OwnedFd, progress: &'a Progress) -> Self {
        Self {
            socket: socket.as_fd(),
            progress,
        }
    }

    pub(super) fn enter(&self, step: Step) {
        self.progress.enter(step);
    }

    pub(super) fn socket(&self) -> BorrowedFd<'a> {
        self.socket
    }

    /// There is nobody to tell when this fails: the supervisor is gone, and
    /// then so are we.
    pub(super) fn failed(&self, failure: &Fail) {
        let wire = Wire {
            kind: FAILED,
            step: failure.step as u16,
            call: failure.call as u16,
            errno: failure.errno as i32,
            item: failure.item,
            ..Wire::default()
        };
        let _ = send(self.socket, &wire, &[]);
    }

    /// Hands over the filter's listener alone, where there is no program.
    pub(super) fn listening(&self, listener: &OwnedFd) -> Result<(), Fail> {
        let wire = Wire {
            kind: STARTED,
            ..Wire::default()
        };
        send(self.socket, &wire, &[listener.as_raw_fd()])
            .map_err(|errno| Verb::new(Step::Report, Call::Send).failed(errno))
    }

    /// Says that the program runs. The supervisor gets the places that are tmpfs of
    /// the cell's own, to look into once all is dead, and the filter's listener.
    pub(super) fn started(
        &self,
        scratch: &[OwnedFd],
        listener: Option<&OwnedFd>,
    ) -> Result<(), Fail> {
        self.enter(Step::Report);
        let fds: Vec<RawFd> = (scratch.iter().chain(listener))
            .map(AsRawFd::as_raw_fd)
            .collect();
        send(
            self.socket,
            &Wire {
                kind: STARTED,
                ..Wire::default()
            },
            &fds,
        )
        .map_err(|errno| Verb::new(Step::Report, Call::Send).failed(errno))
    }
}

/// Says how the program ended.
pub(super) fn ended(socket: BorrowedFd<'_>, status: i32, usage: ChildUsage) {
    let wire = Wire {
        kind: ENDED,
        status,
        user_us: usage.user.as_micros() as u64,
        system_us: usage.system.as_micros() as u64,
        max_rss: usage.max_rss,
        at_end: usage.count.at_end,
        started: usage.count.started.unwrap_or(0),
        ..Wire::default()
    };
    let _ = send(socket, &wire, &[]);
}

fn send(socket: BorrowedFd<'_>, wire: &Wire, fds: &[RawFd]) -> Result<(), Errno> {
    let bytes = wire.encode();
    let rights = [ControlMessage::ScmRights(fds)];
    let control = if fds.is_empty() { &[][..] } else { &rights[..] };
    let parts = [IoSlice::new(&bytes)];
    sendmsg::<()>(
        socket.as_raw_fd(),
        &parts,
        control,
        MsgFlags::MSG_NOSIGNAL,
        None,
    )
    .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn failures_survive_the_wire() {
        let wire = Wire {
            kind: FAILED,
            step: Step::Mount as u16,
            call: Call::OpenTree as u16,
            errno: Errno::ENOENT as i32,
            item: 7,
            ..Wire::default()
        };
        let message = Message::decode(&wire.encode(), Vec::new());
        let Some(Message::Failed {
            step,
            syscall,
            errno,
            item,
        }) = message
        else {
            panic!()
        };
        assert_eq!(
            (step, syscall, errno, item),
            (Step::Mount, "open_tree", Errno::ENOENT, Some(7))
        );
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_no_message_or_a_whole_one(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            prop_assert!(Message::decode(&bytes, Vec::new()).is_none());
            let mut with_magic = MAGIC.to_ne_bytes().to_vec();
            with_magic.extend(bytes);
            let whole = with_magic.len() == SIZE;
            prop_assert!(whole || Message::decode(&with_magic, Vec::new()).is_none());
        }
    }
}
