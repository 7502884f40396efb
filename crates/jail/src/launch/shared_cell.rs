//! What a guest's supervisor has of the cell, which belongs to another supervisor.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::unistd::Pid;

use super::stdio::Streams;
use super::{InitProcess, Running, channel};
use crate::child::command::{send_interpreter, send_supervisor};
use cgroup::CellCgroup;
use plan::{Fallback, Plan};
use record::Start;
use record::error::{Result, SetupError, Step};
use sys::shared::Progress;

/// Another supervisor's cell, in which interpreters can be started. It has copies of descriptors,
/// so dropping it does not end the cell, and having it does not keep the cell.
#[derive(Debug)]
pub struct SharedCell {
    /// Init obeys orders from here.
    socket: OwnedFd,
    pid: Pid,
    pidfd: OwnedFd,
    /// The plan of the cell.
    pub plan: Rc<Plan>,
    /// The cell's own scratch places ([`Plan::own_scratch`], in that order).
    scratch: Vec<OwnedFd>,
    cgroup: Option<CellCgroup>,
    fallback: Fallback,
}

impl SharedCell {
    /// The cell `running` of `plan`, whose scratch places these are.
    ///
    /// # Errors
    /// Init does not take the order, or there is no descriptor left.
    pub fn new(running: &Running, plan: &Rc<Plan>, scratch: &[OwnedFd]) -> Result<Self> {
        let copy = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().map_err(failed("dup"));
        Ok(Self {
            socket: socket_to_init(running.report.as_fd())?,
            pid: running.init.pid,
            pidfd: copy(running.init.as_fd())?,
            plan: Rc::clone(plan),
            scratch: scratch
                .iter()
                .map(|fd| copy(fd.as_fd()))
                .collect::<Result<_>>()?,
            cgroup: running.cgroup.as_ref().map(CellCgroup::view).transpose()?,
            fallback: running.fallback.clone(),
        })
    }

    /// Its descriptors, which a fork for its supervisor keeps.
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let own = [self.socket.as_fd(), self.pidfd.as_fd()];
        let scratch = self.scratch.iter().map(OwnedFd::as_fd);
        let cgroup = self.cgroup.iter().flat_map(CellCgroup::descriptors);
        own.into_iter().chain(scratch).chain(cgroup).collect()
    }

    /// Whether the cell has ended.
    pub fn is_gone(&self) -> bool {
        let mut fds = [PollFd::new(self.pidfd.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).is_ok_and(|count| count > 0)
    }

    /// Copies of the descriptors of the scratch places.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn scratch(&self) -> Result<Vec<OwnedFd>> {
        let copy = |fd: &OwnedFd| fd.try_clone().map_err(failed("dup"));
        self.scratch.iter().map(copy).collect()
    }

    /// Limits of the cell that no cgroup holds.
    pub const fn fallback(&self) -> &Fallback {
        &self.fallback
    }

    /// Has init start an interpreter with what is in `parcel`. Returns at once; what fails inside
    /// arrives as a message.
    ///
    /// # Errors
    /// The step that failed on this side; the cell has ended.
    pub fn launch(&self, parcel: &File) -> Result<Running> {
        let report = socket_to_init(self.socket.as_fd())?;
        let (channel, program_channel) = channel::open()?;
        let (output, streams) = Streams::captured()?;
        send_interpreter(report.as_fd(), parcel.as_fd(), &streams, &program_channel)
            .map_err(gone)?;
        Ok(Running {
            init: InitProcess::of_another(self.pid, self.pidfd.try_clone().map_err(failed("dup"))?),
            report,
            progress: Progress::new().map_err(|e| SetupError::os(Step::Clone, "mmap", e))?,
            output: output.map(Some),
            display: None,
            relay: None,
            writers: Vec::new(),
            channel: Some(channel),
            stdin: None,
            program_channel: Vec::new(),
            program_stdio: Default::default(),
            control: None,
            cgroup: self.cgroup.as_ref().map(CellCgroup::view).transpose()?,
            fallback: self.fallback.clone(),
            cpus: None,
            signed: None,
            start: Start::Shared,
            template: None,
            is_guest: true,
        })
    }
}

/// Readable when the cell has ended.
impl AsFd for SharedCell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

/// Has init obey another socket; `socket` is one that it obeys already.
fn socket_to_init(socket: BorrowedFd<'_>) -> Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)
        .map_err(|e| SetupError::os(Step::Clone, "socketpair", e))?;
    send_supervisor(socket, theirs.as_fd()).map_err(gone)?;
    Ok(ours)
}

fn failed(call: &'static str) -> impl Fn(std::io::Error) -> SetupError {
    move |error| SetupError::io(Step::Clone, call, &error)
}

fn gone(errno: Errno) -> SetupError {
    match errno {
        Errno::EPIPE | Errno::ECONNRESET => SetupError::new(Step::Supervise, "the cell has ended"),
        errno => SetupError::os(Step::Supervise, "sendmsg", errno),
    }
}
