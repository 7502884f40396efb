//! A small process with one thread that forks supervisors.
//!
//! It is forked from the front end before that has threads, so each supervisor is a
//! copy of a process that never saw a client's data. It ends with the front end; a
//! supervisor ends with its own socket.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::sync::{Mutex, PoisonError};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{
    AddressFamily, MsgFlags, Shutdown, SockFlag, SockType, recv, send, shutdown, socketpair,
};
use nix::unistd::Pid;

use super::{Base, keeper, supervisor};
use engine::run::Stock;
use jail::launch::process::{fork_with, receive_descriptor, send_descriptor};
use jail::launch::secrets;
use record::error::{Result, SetupError, Step};

/// What a spawner is to fork: a supervisor, or a process that keeps a template.
const SUPERVISOR: u8 = b's';
const KEEPER: u8 = b'k';

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
        fork_with(theirs, &secrets::descriptors(), |socket| {
            // A terminal's Ctrl-C is for the front end, which ends its cells in order.
            let _ = nix::unistd::setsid();
            serve(&socket, &base, None)
        })?;
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
        let pid = self.spawn(SUPERVISOR, &theirs)?;
        Ok((ours, pid))
    }

    /// Has a process forked that makes a template, and then forks supervisors that can
    /// fork it. It is the server's template with this number. What comes first over its
    /// socket says whether there is a template.
    ///
    /// # Errors
    /// The spawner is gone, or the kernel refuses.
    pub(super) fn keeper(&self, generation: u64) -> Result<OwnedFd> {
        let (ours, theirs) = pair(SockType::SeqPacket)?;
        self.spawn(KEEPER, &theirs)?;
        let number = generation.to_ne_bytes();
        send(ours.as_raw_fd(), &number, MsgFlags::MSG_NOSIGNAL).map_err(failed("send"))?;
        Ok(ours)
    }

    /// The spawner at the other end of `socket`.
    pub(super) const fn at(socket: OwnedFd) -> Self {
        Self {
            socket: Mutex::new(socket),
        }
    }

    /// Has a process forked that gets `theirs`.
    fn spawn(&self, purpose: u8, theirs: &OwnedFd) -> Result<Pid> {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        send_descriptor(socket.as_fd(), purpose, theirs.as_fd()).map_err(failed("sendmsg"))?;
        let mut answer = [0; size_of::<i32>()];
        let length = loop {
            match recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty()) {
                Err(Errno::EINTR) => {}
                done => break done.map_err(failed("recv"))?,
            }
        };
        match i32::from_ne_bytes(answer) {
            pid if length == answer.len() && pid > 0 => Ok(Pid::from_raw(pid)),
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

pub(super) fn pair(kind: SockType) -> Result<(OwnedFd, OwnedFd)> {
    let flags = SockFlag::SOCK_CLOEXEC;
    socketpair(AddressFamily::Unix, kind, None, flags).map_err(failed("socketpair"))
}

/// A spawner's life: forks until the front end or its template is gone, and goes on until
/// none of its supervisors needs the template.
pub(super) fn serve(socket: &OwnedFd, base: &Base, stock: Option<&Stock>) -> i32 {
    // The supervisor of a cell forks those of guests through a process that ends at once. They then
    // become children of this process, which reaps them. Otherwise they would stay zombies where
    // the server is pid 1 of a container.
    let _ = nix::sys::prctl::set_child_subreaper(true);
    let children = SigSet::from(Signal::SIGCHLD);
    let blocked = children.thread_block();
    let Ok(ended) = blocked.and_then(|()| SignalFd::with_flags(&children, SfdFlags::SFD_NONBLOCK))
    else {
        return 1;
    };
    let mut supervisors = BTreeSet::new();
    let mut is_over = false;
    let mut freshness = keeper::Freshness::new();
    loop {
        let mut ready = vec![PollFd::new(ended.as_fd(), PollFlags::POLLIN)];
        if !is_over {
            ready.push(PollFd::new(socket.as_fd(), PollFlags::POLLIN));
            // Only for its end.
            let control = stock.map(|stock| PollFd::new(stock.control(), PollFlags::empty()));
            ready.extend(control);
        }
        match poll(&mut ready, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return 1,
        }
        let has = |place: usize| {
            let found: Option<&PollFd<'_>> = ready.get(place);
            found.is_some_and(|found| found.any().unwrap_or(true))
        };
        let (is_asked, is_without_template) = (has(1), has(2));
        let is_without_template = is_without_template
            || (is_asked && stock.is_some_and(|stock| freshness.is_lost(base, stock)));
        while let Ok(Some(_)) = ended.read_signal() {}
        while let Ok(Some((pid, _))) = sys::process::reap(false) {
            supervisors.remove(&pid);
        }
        if is_without_template {
            // The front end sees it, and has another template made.
            let _ = shutdown(socket.as_raw_fd(), Shutdown::Both);
            is_over = true;
        } else if is_asked {
            let answer = match receive_descriptor(socket.as_fd()) {
                Ok(Some((purpose, theirs))) => spawn(purpose, theirs, base, stock),
                Ok(None) => {
                    is_over = true;
                    Ok(None)
                }
                Err(Errno::EINTR) => continue,
                Err(errno) => Err(errno),
            };
            let number = match answer {
                Ok(Some(pid)) => pid.as_raw(),
                Ok(None) => 0,
                Err(errno) => -(errno as i32),
            };
            supervisors.extend(answer.ok().flatten());
            let flags = MsgFlags::MSG_NOSIGNAL;
            is_over |= send(socket.as_raw_fd(), &number.to_ne_bytes(), flags).is_err();
        }
        if is_over && (stock.is_none() || supervisors.is_empty()) {
            return 0;
        }
    }
}

/// Forks a process for this purpose.
fn spawn(
    purpose: u8,
    theirs: OwnedFd,
    base: &Base,
    stock: Option<&Stock>,
) -> std::result::Result<Option<Pid>, Errno> {
    let mut kept = stock.map_or_else(Vec::new, Stock::descriptors);
    kept.extend(secrets::descriptors());
    stock.into_iter().for_each(Stock::count_copy);
    let forked = fork_with(theirs, &kept, |socket| {
        let _ = SigSet::from(Signal::SIGCHLD).thread_unblock();
        match purpose {
            KEEPER => keeper::serve(&socket, base),
            _ => supervisor::serve(socket, base, stock),
        }
    });
    let errno = |error: SetupError| error.errno.map_or(Errno::EAGAIN, Errno::from_raw);
    forked.map(Some).map_err(errno)
}
