//! What the supervisor reads from the socket.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::MsgFlags;

use super::{
    ENDED, EXITED, FAILED, FROZEN, MAGIC, PREPARED, REFUSED, Role, SIZE, SOCKETS, SPAWNED, STARTED,
    STAYING, WAITING, receive_with_fds,
};
use crate::child::fail::Call;
use record::error::Step;
use sys::process::{ChildUsage, ProcessCount};

/// A step that failed inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedStep {
    /// The step.
    pub step: Step,
    /// The system call.
    pub syscall: &'static str,
    /// Its error number.
    pub errno: Errno,
    /// Index into the plan's list that the step works through.
    pub(crate) item: Option<usize>,
}

impl FailedStep {
    fn decode(step: i64, call: i64, errno: i64, item: i64) -> Option<Self> {
        Some(Self {
            step: Step::from_number(u16::try_from(step).ok()?)?,
            syscall: Call::from_number(u16::try_from(call).ok()?)?.name(),
            errno: Errno::from_raw(i32::try_from(errno).ok()?),
            item: usize::try_from(item).ok(),
        })
    }
}

/// A message from init.
#[derive(Debug)]
pub enum Message {
    /// The program has been executed.
    Started {
        /// The descriptors that the supervisor needs.
        fds: Vec<(Role, OwnedFd)>,
    },
    /// The cell is complete but for its program, which init waits for.
    Waiting {
        /// The descriptors that the supervisor needs.
        fds: Vec<(Role, OwnedFd)>,
    },
    /// What the broker listens at. Further messages of this kind may follow.
    Sockets {
        /// The sockets.
        fds: Vec<(Role, OwnedFd)>,
        /// Whether these are the last ones.
        is_last: bool,
    },
    /// The pid namespace of a copy's cell exists, so that the program can be forked into it. In a
    /// second such message, the cell is set up.
    Prepared {
        /// The descriptors that the supervisor, the template and the copy need.
        fds: Vec<(Role, OwnedFd)>,
    },
    /// A step failed.
    Failed(FailedStep),
    /// A process was executed.
    Spawned {
        /// The supervisor's number for it.
        number: u32,
        /// Its pid inside.
        pid: i32,
        /// The descriptors that the supervisor needs.
        fds: Vec<(Role, OwnedFd)>,
    },
    /// A process could not be executed.
    Refused {
        /// The supervisor's number for it.
        number: u32,
        /// Why.
        failed: FailedStep,
    },
    /// A process has ended.
    Exited {
        /// The supervisor's number for it.
        number: u32,
        /// Its wait status (wait(2)).
        status: i32,
    },
    /// The cell has no program, and init accepts orders.
    Staying,
    /// All processes of the cell but init are stopped.
    Frozen,
    /// The program has ended, and everything with it.
    Ended {
        /// Its wait status (wait(2)).
        status: i32,
        /// What all processes used that were reaped.
        usage: ChildUsage,
    },
}

impl Message {
    /// Reads a message's bytes; `None` for anything that init does not send.
    pub(super) fn decode(bytes: &[u8], fds: Vec<OwnedFd>) -> Option<Self> {
        let (words, []) = bytes.as_chunks() else {
            return None;
        };
        let words: Vec<i64> = words.iter().map(|word| i64::from_ne_bytes(*word)).collect();
        let [MAGIC, kind, fields @ ..] = words.as_slice() else {
            return None;
        };
        let [a, b, c, d, e, f, ..] = *fields else {
            return None;
        };
        match *kind {
            STARTED => with_roles(fields, fds).map(|fds| Self::Started { fds }),
            WAITING => with_roles(fields, fds).map(|fds| Self::Waiting { fds }),
            PREPARED => with_roles(fields, fds).map(|fds| Self::Prepared { fds }),
            SOCKETS => {
                let (is_last, roles) = fields.split_first()?;
                let fds = with_roles(roles, fds)?;
                let is_last = *is_last != 0;
                Some(Self::Sockets { fds, is_last })
            }
            FAILED => FailedStep::decode(a, b, c, d).map(Self::Failed),
            SPAWNED => Some(Self::Spawned {
                number: u32::try_from(a).ok()?,
                pid: i32::try_from(b).ok()?,
                fds: with_roles(fields.get(2..)?, fds)?,
            }),
            REFUSED => Some(Self::Refused {
                number: u32::try_from(a).ok()?,
                failed: FailedStep::decode(b, c, d, e)?,
            }),
            EXITED => Some(Self::Exited {
                number: u32::try_from(a).ok()?,
                status: i32::try_from(b).ok()?,
            }),
            STAYING => Some(Self::Staying),
            FROZEN => Some(Self::Frozen),
            ENDED => {
                let number = |word: i64| u64::try_from(word).ok();
                let count = |word: i64| u32::try_from(word).ok();
                Some(Self::Ended {
                    status: i32::try_from(a).ok()?,
                    usage: ChildUsage {
                        user: Duration::from_micros(number(b)?),
                        system: Duration::from_micros(number(c)?),
                        max_rss: number(d)?,
                        count: ProcessCount {
                            at_end: count(e)?,
                            // 0 stands for unknown.
                            started: count(f).filter(|count| *count > 0),
                        },
                    },
                })
            }
            _ => None,
        }
    }

    /// Receives one message without waiting for it; `Ok(None)` at end of file.
    ///
    /// # Errors
    /// The error number of recvmsg(2): EAGAIN when no message has arrived. EBADMSG for
    /// anything but a message.
    pub fn receive(socket: BorrowedFd<'_>) -> Result<Option<Self>, Errno> {
        // An init that ended with something unread resets the connection, which is
        // reported once, before what it had sent.
        match Self::receive_next(socket) {
            Err(Errno::ECONNRESET) => Self::receive_next(socket),
            other => other,
        }
    }

    fn receive_next(socket: BorrowedFd<'_>) -> Result<Option<Self>, Errno> {
        let mut bytes = [0; SIZE];
        let (length, fds) = receive_with_fds(socket, &mut bytes, MsgFlags::MSG_DONTWAIT)?;
        if length == 0 {
            return Ok(None);
        }
        Self::decode(&bytes[..length], fds)
            .map(Some)
            .ok_or(Errno::EBADMSG)
    }
}

/// The descriptors of a message with their roles, if it has one for each.
fn with_roles(fields: &[i64], fds: Vec<OwnedFd>) -> Option<Vec<(Role, OwnedFd)>> {
    let roles = fields.iter().map_while(|number| Role::from_number(*number));
    let roles: Vec<Role> = roles.collect();
    (roles.len() == fds.len()).then(|| roles.into_iter().zip(fds).collect())
}
