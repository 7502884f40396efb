//! Messages between the cell's init and the supervisor.
//!
//! ```text
//!   supervisor                              init
//!   ----------                              ----
//!   clone3                          ──────► tether, network, host name, binds opened
//!   write uid_map, gid_map
//!   GO                              ──────► (waits for it) ids, mounts
//!   starts the broker               ◄────── SOCKETS {role of each descriptor} + descriptors
//!                                           confinement
//!                                           vfork and exec of the program
//!      … or, in a blank cell,     ◄────── WAITING {role of each descriptor} + descriptors
//!   PROGRAM + parcel, stdin         ──────► files, vfork and exec of the program
//!      … or STAY + parcel           ──────► files; processes are started later
//!      … or, in a copy's cell,     ◄────── PREPARED {role of each descriptor} + descriptors
//!   has a template fork the program
//!   ADOPT {pid}                     ──────► goes on as its parent
//!   watches the descriptors         ◄────── STARTED {role of each descriptor} + descriptors
//!      … or puts it into words      ◄────── FAILED  {step, call, errno, item}
//!   …
//!   SIGNAL {number}                 ──────► sends that signal to the program's group
//!   PROCESS {number} + parcel, streams ───► vfork and exec of another program
//!   watches it                      ◄────── SPAWNED {number, pid, roles} + descriptors
//!      … or puts it into words      ◄────── REFUSED {number, step, call, errno, item}
//!   SIGNAL {process, number}        ──────► sends that signal to the process's group
//!   …                               ◄────── EXITED  {number, status}
//!   FREEZE                          ──────► stops all processes
//!   looks at the files              ◄────── FROZEN
//!   THAW                            ──────► lets them go on
//!   …
//!   END                             ──────► kills and reaps all
//!   usage, exit status              ◄────── ENDED   {status, user, system, max_rss, counts}
//!   waits for the pidfd                     exits: the kernel ends what is left
//! ```
//!
//! The program's own end has the same effect as END, and so has a SIGTERM from
//! outside of the cell. An init that only tries a part of the set-up sends ENDED
//! when it is done.
//!
//! The socket is of type SOCK_SEQPACKET and close-on-exec; the program never
//! has it. End of file without a message means that init died, and the shared
//! [`Progress`] shows where.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use nix::unistd::Pid;

use super::fail::{At, Call, Fail, Site};
use crate::plan::Namespace;
use record::error::Step;
use sys::process::{ChildUsage, ProcessCount};
use sys::shared::Progress;

mod role;

pub(crate) use role::{Role, SocketRole};

/// A message from init is this many numbers: a magic one, the kind, its fields.
const WORDS: usize = 16;
const SIZE: usize = WORDS * size_of::<i64>();
const MAGIC: i64 = 0xce11_b10c;
const STARTED: i64 = 1;
const FAILED: i64 = 2;
const ENDED: i64 = 3;
const FROZEN: i64 = 4;
const WAITING: i64 = 5;
const PREPARED: i64 = 6;
const SOCKETS: i64 = 7;
const SPAWNED: i64 = 8;
const REFUSED: i64 = 9;
const EXITED: i64 = 10;
const STAYING: i64 = 11;
/// The most descriptors that one message carries.
const MAX_FDS: usize = WORDS - 2;

/// A step that failed inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FailedStep {
    /// The step.
    pub(crate) step: Step,
    /// The system call.
    pub(crate) syscall: &'static str,
    /// Its error number.
    pub(crate) errno: Errno,
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
pub(crate) enum Message {
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
    /// A copy's cell is set up, and its program is to be forked into it.
    Prepared {
        /// The descriptors that the supervisor and the template need.
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
    fn decode(bytes: &[u8], fds: Vec<OwnedFd>) -> Option<Self> {
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
    pub(crate) fn receive(socket: BorrowedFd<'_>) -> Result<Option<Self>, Errno> {
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

/// Receives one message and the descriptors that come with it. Returns its length.
pub(super) fn receive_with_fds(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
    flags: MsgFlags,
) -> Result<(usize, Vec<OwnedFd>), Errno> {
    let mut control = cmsg_space!([RawFd; MAX_FDS]);
    let mut parts = [IoSliceMut::new(bytes)];
    let received = recvmsg::<()>(
        socket.as_raw_fd(),
        &mut parts,
        Some(&mut control),
        MsgFlags::MSG_CMSG_CLOEXEC | flags,
    )?;
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
    Ok((received.bytes, fds))
}

/// Sends one message, and descriptors with it.
pub(super) fn send_with_fds(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    fds: &[RawFd],
    flags: MsgFlags,
) -> Result<(), Errno> {
    let rights = [ControlMessage::ScmRights(fds)];
    let control = if fds.is_empty() { &[][..] } else { &rights[..] };
    sendmsg::<()>(
        socket.as_raw_fd(),
        &[IoSlice::new(bytes)],
        control,
        MsgFlags::MSG_NOSIGNAL | flags,
        None,
    )
    .map(drop)
}

/// Init's end of the socket.
pub(super) struct Reporter<'a> {
    socket: BorrowedFd<'a>,
    /// `None` after the set-up, so that the progress of its last step stays noted.
    progress: Option<&'a Progress>,
}

impl<'a> Reporter<'a> {
    pub(super) fn new(socket: &'a OwnedFd, progress: &'a Progress) -> Self {
        Self {
            socket: socket.as_fd(),
            progress: Some(progress),
        }
    }

    /// A reporter for the time after the set-up.
    pub(super) fn afterwards(socket: &'a OwnedFd) -> Self {
        Self {
            socket: socket.as_fd(),
            progress: None,
        }
    }

    /// Notes that `step` begins now, or goes on.
    pub(super) fn enter(&self, step: Step) -> Site {
        if let Some(progress) = self.progress {
            progress.enter(step);
        }
        Site::new(step)
    }

    pub(super) fn socket(&self) -> BorrowedFd<'a> {
        self.socket
    }

    /// A supervisor that this does not reach is gone, and then so is init.
    pub(super) fn failed(&self, failure: &Fail) {
        let _ = self.send(FAILED, &fields_of(failure), &[]);
    }

    /// Reports that a process runs. The supervisor gets the filter's listener and the master of the
    /// process's terminal.
    pub(super) fn spawned(
        &self,
        number: u32,
        pid: Pid,
        listener: Option<&OwnedFd>,
        terminal: Option<&OwnedFd>,
    ) -> Result<(), Fail> {
        let listener = listener.map(|fd| (Role::Listener, fd));
        let terminal = terminal.map(|fd| (Role::Terminal, fd));
        let (roles, fds) = numbers(listener.into_iter().chain(terminal));
        let fields = [i64::from(number), i64::from(pid.as_raw())];
        let fields: Vec<i64> = fields.into_iter().chain(roles).collect();
        self.send(SPAWNED, &fields, &fds)
            .at(Site::new(Step::Report), Call::Send)
    }

    /// Reports that a process could not be started.
    pub(super) fn refused(&self, number: u32, failure: &Fail) {
        let [step, call, errno, item] = fields_of(failure);
        let fields = [i64::from(number), step, call, errno, item];
        let _ = self.send(REFUSED, &fields, &[]);
    }

    /// Reports that a process has ended.
    pub(super) fn exited(&self, number: u32, status: i32) {
        let fields = [i64::from(number), i64::from(status)];
        let _ = self.send(EXITED, &fields, &[]);
    }

    /// Reports that the cell goes on without a program.
    pub(super) fn staying(&self) -> Result<(), Fail> {
        self.send(STAYING, &[], &[])
            .at(Site::new(Step::Report), Call::Send)
    }

    /// The program runs. The supervisor gets the directories of the scratch places, to look into
    /// once all processes are dead, the filter's listener, the master of the cell's terminal and,
    /// from a template, the namespaces above its copies.
    pub(super) fn started(
        &self,
        scratch: &[OwnedFd],
        listener: Option<&OwnedFd>,
        terminal: Option<&OwnedFd>,
        namespaces: &[(Namespace, OwnedFd)],
    ) -> Result<(), Fail> {
        let listener = listener.map(|fd| (Role::Listener, fd));
        let terminal = terminal.map(|fd| (Role::Terminal, fd));
        let namespaces = (namespaces.iter()).map(|(kind, fd)| (Role::Namespace(*kind), fd));
        self.pass(
            STARTED,
            scratch,
            listener.into_iter().chain(terminal).chain(namespaces),
        )
    }

    /// The cell waits for its program. The supervisor gets the directories of the
    /// scratch places.
    pub(super) fn waiting(&self, scratch: &[OwnedFd]) -> Result<(), Fail> {
        self.pass(WAITING, scratch, [])
    }

    /// The routes are there, and these are the sockets that they lead to.
    pub(super) fn sockets(&self, sockets: &[(Role, OwnedFd)]) -> Result<(), Fail> {
        let site = self.enter(Step::Egress);
        let mut rest = sockets.chunks(MAX_FDS - 1).peekable();
        while let Some(some) = rest.next() {
            let is_last = i64::from(rest.peek().is_none());
            let (roles, fds) = numbers(some.iter().map(|(role, fd)| (*role, fd)));
            let fields: Vec<i64> = std::iter::once(is_last).chain(roles).collect();
            self.send(SOCKETS, &fields, &fds).at(site, Call::Send)?;
        }
        Ok(())
    }

    /// The cell of a copy is set up.
    pub(super) fn prepared<'f>(
        &self,
        scratch: &'f [OwnedFd],
        others: impl IntoIterator<Item = (Role, &'f OwnedFd)>,
    ) -> Result<(), Fail> {
        self.pass(PREPARED, scratch, others)
    }

    fn pass<'f>(
        &self,
        kind: i64,
        scratch: &'f [OwnedFd],
        others: impl IntoIterator<Item = (Role, &'f OwnedFd)>,
    ) -> Result<(), Fail> {
        let site = self.enter(Step::Report);
        let scratch = (scratch.iter().enumerate()).map(|(index, fd)| (Role::Scratch(index), fd));
        let (roles, fds) = numbers(scratch.chain(others));
        self.send(kind, &roles, &fds).at(site, Call::Send)
    }

    pub(super) fn frozen(&self) {
        let _ = self.send(FROZEN, &[], &[]);
    }

    pub(super) fn ended(&self, status: i32, usage: ChildUsage) {
        let fields = [
            i64::from(status),
            usage.user.as_micros() as i64,
            usage.system.as_micros() as i64,
            usage.max_rss as i64,
            i64::from(usage.count.at_end),
            usage.count.started.map_or(0, i64::from),
        ];
        let _ = self.send(ENDED, &fields, &[]);
    }

    fn send(&self, kind: i64, fields: &[i64], fds: &[RawFd]) -> Result<(), Errno> {
        send_with_fds(self.socket, &encode(kind, fields), fds, MsgFlags::empty())
    }
}

/// The numbers of descriptors' roles, and those of the descriptors.
fn numbers<'f>(fds: impl Iterator<Item = (Role, &'f OwnedFd)>) -> (Vec<i64>, Vec<RawFd>) {
    fds.map(|(role, fd)| (role.number(), fd.as_raw_fd()))
        .unzip()
}

fn fields_of(failure: &Fail) -> [i64; 4] {
    [
        failure.step as i64,
        failure.call as i64,
        failure.errno as i64,
        i64::from(failure.item),
    ]
}

fn encode(kind: i64, fields: &[i64]) -> [u8; SIZE] {
    let mut bytes = [0; SIZE];
    let words = [MAGIC, kind].into_iter().chain(fields.iter().copied());
    for (place, word) in bytes.chunks_exact_mut(size_of::<i64>()).zip(words) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pipes(count: usize) -> Vec<OwnedFd> {
        (0..count)
            .map(|_| OwnedFd::from(std::fs::File::open("/dev/null").unwrap()))
            .collect()
    }

    #[test]
    fn failures_survive_the_wire() {
        let fields = [
            Step::Mount as i64,
            Call::OpenTree as i64,
            Errno::ENOENT as i64,
            7,
        ];
        let message = Message::decode(&encode(FAILED, &fields), Vec::new());
        let failed = FailedStep {
            step: Step::Mount,
            syscall: "open_tree",
            errno: Errno::ENOENT,
            item: Some(7),
        };
        assert!(matches!(message, Some(Message::Failed(found)) if found == failed));
        let of_process: Vec<i64> = std::iter::once(3).chain(fields).collect();
        let message = Message::decode(&encode(REFUSED, &of_process), Vec::new());
        assert!(
            matches!(message, Some(Message::Refused { number: 3, failed: found }) if found == failed)
        );
    }

    #[test]
    fn each_descriptor_has_its_role() {
        let roles = [Role::Scratch(2), Role::Listener, Role::Scratch(0)];
        let bytes = encode(STARTED, &roles.map(Role::number));
        let Some(Message::Started { fds }) = Message::decode(&bytes, pipes(3)) else {
            panic!()
        };
        assert_eq!(fds.iter().map(|(role, _)| *role).collect::<Vec<_>>(), roles);
        assert!(Message::decode(&bytes, pipes(2)).is_none());
        assert!(Message::decode(&bytes, pipes(4)).is_none());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_no_message_or_a_whole_one(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            prop_assert!(Message::decode(&bytes, Vec::new()).is_none());
            let mut with_magic = MAGIC.to_ne_bytes().to_vec();
            with_magic.extend(bytes);
            let whole = with_magic.len() == SIZE;
            prop_assert!(whole || Message::decode(&with_magic, Vec::new()).is_none());
        }
    }
}
