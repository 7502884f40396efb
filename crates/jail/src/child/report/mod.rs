//! Messages between the cell's init and the supervisor.
//!
//! ```text
//!   supervisor                              init
//!   ----------                              ----
//!   clone3                          ──────► tether
//!   has a template fork a process   ◄────── PREPARED {role} + pid namespace, in a copy's cell
//!                                           network, host name, binds opened
//!   write uid_map, gid_map
//!   GO                              ──────► (waits for it) ids, mounts
//!   starts the broker               ◄────── SOCKETS {role of each descriptor} + descriptors
//!                                           confinement
//!                                           vfork and exec of the program
//!      … or, in a blank cell,     ◄────── WAITING {role of each descriptor} + descriptors
//!   PROGRAM + parcel, stdin         ──────► files, vfork and exec of the program
//!      … or STAY + parcel           ──────► files; processes are started later
//!      … or, in a copy's cell,     ◄────── PREPARED {role of each descriptor} + descriptors
//!   has the process confined that a
//!   template has forked into the cell
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
//!   SUPERVISOR + socket             ──────► obeys that socket as well
//!      … over which another supervisor sends
//!   INTERPRETER + parcel, streams, channel ► vfork and exec of another interpreter
//!   watches it                      ◄────── STARTED, or FAILED; at its end, ENDED
//!   …
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
//! has it. End of file without a message means that init was killed, and the shared
//! [`Progress`](sys::shared::Progress) shows where.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

mod message;
mod reporter;
mod role;

pub use message::{FailedStep, Message};
pub(super) use reporter::Reporter;
pub use role::{Role, SocketRole};

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
    use proptest::prelude::*;

    use super::*;
    use crate::child::fail::Call;
    use record::error::Step;

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
