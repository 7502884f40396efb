//! A small process with one thread that forks supervisors.
//!
//! It is forked from the front end before that has threads, so each supervisor is a
//! copy of a process that never saw a client's data. It ends with the front end; a
//! supervisor ends with its own socket.

use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::sync::{Mutex, PoisonError};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};
use nix::unistd::Pid;

use super::{Base, supervisor};
use crate::launch::process::{fork_with, receive_descriptor, send_descriptor};
use record::error::{Result, SetupError, Step};

/// The spawner, seen from the front end. It ends when this is dropped; the
/// supervisors that it forked go on until their sockets end.
#[derive(Debug)]
pub struct Spawner {
    /// One request at a time, each of which is answered.
    socket: Mutex<OwnedFd>,
}

impl Spawner {
    /// Forks the spawner of a server that was started with `base`.
    ///
    /// # Errors
    /// This process has several threads, or the kernel refuses.
    pub fn fork(base: Base) -> Result<Self> {
        let (ours, theirs) = pair(SockType::SeqPacket)?;
        fork_with(theirs, |socket| serve(&socket, &base))?;
        Ok(Self {
            socket: Mutex::new(ours),
        })
    }

    /// Has a supervisor forked. Returns the front end's end of its socket, which does
    /// not block, and its pid.
    ///
    /// # Errors
    /// The spawner is gone, or the kernel refuses.
    pub fn supervisor(&self) -> Result<(OwnedFd, Pid)> {
        let (ours, theirs) = pair(SockType::Stream)?;
        fcntl(&ours, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(failed("fcntl"))?;
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        send_descriptor(socket.as_fd(), theirs.as_fd()).map_err(failed("sendmsg"))?;
        let mut answer = [0; size_of::<i32>()];
        let length = loop {
            match recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty()) {
                Err(Errno::EINTR) => {}
                done => break done.map_err(failed("recv"))?,
            }
        };
        match i32::from_ne_bytes(answer) {
            pid if length == answer.len() && pid > 0 => Ok((ours, Pid::from_raw(pid))),
            errno if length == answer.len() => {
                Err(failed("fork")(Errno::from_raw(errno.saturating_neg())))
            }
            _ => Err(SetupError::new(Step::Clone, "the server's spawner is gone")
                .hint("start the server again")),
        }
    }
}

fn failed(call: &'static str) -> impl Fn(Errno) -> SetupError {
    move |errno| SetupError::os(Step::Clone, call, errno).on("spawner")
}

fn pair(kind: SockType) -> Result<(OwnedFd, OwnedFd)> {
    let flags = SockFlag::SOCK_CLOEXEC;
    socketpair(AddressFamily::Unix, kind, None, flags).map_err(failed("socketpair"))
}

/// The spawner's life: forks until the front end is gone.
fn serve(socket: &OwnedFd, base: &Base) -> i32 {
    let children = SigSet::from(Signal::SIGCHLD);
    let blocked = children.thread_block();
    let Ok(ended) = blocked.and_then(|()| SignalFd::with_flags(&children, SfdFlags::SFD_NONBLOCK))
    else {
        return 1;
    };
    // A terminal's Ctrl-C is for the front end, which ends its cells in order.
    let _ = nix::unistd::setsid();
    loop {
        let mut ready = [
            PollFd::new(socket.as_fd(), PollFlags::POLLIN),
            PollFd::new(ended.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut ready, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return 1,
        }
        let is_asked = ready[0].any().unwrap_or(true);
        while let Ok(Some(_)) = ended.read_signal() {}
        while let Ok(Some(_)) = sys::process::reap(false) {}
        if !is_asked {
            continue;
        }
        let answer = match receive_descriptor(socket.as_fd()) {
            Ok(Some(theirs)) => spawn(theirs, base),
            Ok(None) => return 0,
            Err(Errno::EINTR) => continue,
            Err(errno) => -(errno as i32),
        };
        let flags = MsgFlags::MSG_NOSIGNAL;
        if send(socket.as_raw_fd(), &answer.to_ne_bytes(), flags).is_err() {
            return 0;
        }
    }
}

/// Forks a supervisor; returns its pid, or the negative error number.
fn spawn(theirs: OwnedFd, base: &Base) -> i32 {
    let forked = fork_with(theirs, |socket| {
        let _ = SigSet::from(Signal::SIGCHLD).thread_unblock();
        supervisor::serve(socket, base)
    });
    match forked {
        Ok(pid) => pid.as_raw(),
        Err(error) => -error.errno.unwrap_or(Errno::EAGAIN as i32),
    }
}
