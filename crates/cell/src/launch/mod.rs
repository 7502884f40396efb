//! Starting a cell: the only place that clones.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::fcntl::OFlag;
use nix::sys::signal::Signal;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, send, socketpair};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use crate::child::{self, Content, Filter, Prepared};
use crate::plan::{Fallback, Ids, Namespace, Plan};
use record::error::{Result, SetupError, Step};
use sys::clone::{Fork, flags, fork_into};
use sys::process::pidfd_send_signal;
use sys::shared::Progress;

pub mod cgroup;
mod channel;
pub(crate) mod cpus;
pub(crate) mod idmap;
mod rehearse;
mod stdio;
mod translate;

use cgroup::CellCgroup;
pub(crate) use channel::ChannelEnd;
use cpus::CpuShare;
pub(crate) use rehearse::rehearse;
use stdio::Streams;
pub(crate) use translate::in_words;

/// A cell whose init has been cloned.
#[derive(Debug)]
pub(crate) struct Running {
    /// Init, as this pid namespace numbers it.
    pub pid: Pid,
    /// Init, as a descriptor.
    pub pidfd: OwnedFd,
    /// Messages from init.
    pub report: OwnedFd,
    /// How far init has come.
    pub progress: Progress,
    /// Read ends of stdout and stderr, where they are captured.
    pub output: [Option<OwnedFd>; 2],
    /// The supervisor's end of the driver's channel.
    pub channel: Option<ChannelEnd>,
    /// The cell's cgroup, if there is one.
    pub cgroup: Option<CellCgroup>,
    /// Limits that no cgroup holds.
    pub fallback: Fallback,
    /// The CPUs that the cell is bound to, where no cgroup limits it.
    pub cpus: Option<CpuShare>,
}

/// Starts a cell with `content` according to `plan`. The caller's signals are expected
/// to be blocked already.
///
/// # Errors
/// The step that failed on this side; what fails inside arrives as a message.
pub(crate) fn launch(
    plan: &Plan,
    filter: Option<&Filter>,
    content: Content,
    cgroup: Option<CellCgroup>,
    fallback: Fallback,
) -> Result<Running> {
    require_one_thread()?;
    let (report, init_report) = socketpair(
        AddressFamily::Unix,
        SockType::SeqPacket,
        None,
        SockFlag::SOCK_CLOEXEC,
    )
    .map_err(|e| SetupError::os(Step::Clone, "socketpair", e))?;
    let (channel, program_channel) = plan
        .program
        .channel
        .then(channel::open)
        .transpose()?
        .unzip();
    let program_channel = program_channel.unwrap_or_default();
    let Streams {
        output,
        program: stdio,
        shields,
    } = Streams::new(plan)?;
    let progress = Progress::new().map_err(|e| SetupError::os(Step::Clone, "mmap", e))?;
    let cpus = fallback.cpus.map(CpuShare::take).transpose()?;
    // SAFETY: this process has one thread, as just checked.
    let forked = unsafe { fork_into(clone_flags(plan), cgroup.as_ref().map(CellCgroup::dir)) };
    match forked.map_err(|e| SetupError::os(Step::Clone, "clone3", e))? {
        Fork::Child => {
            // Init's copies would keep it from seeing that the supervisor is gone.
            drop((report, output, channel));
            child::main(Prepared {
                plan,
                fallback: &fallback,
                cpus: cpus.as_ref().map(CpuShare::cpus).unwrap_or_default(),
                report: init_report,
                progress: &progress,
                content,
                stdio,
                shields,
                channel: program_channel,
                filter,
            })
        }
        Fork::Parent { pid, pidfd } => {
            drop((init_report, stdio, program_channel, content));
            let cell = Running {
                pid,
                pidfd,
                report,
                progress,
                output,
                channel,
                cgroup,
                fallback,
                cpus,
            };
            let prepared = map_ids(pid, &plan.ids).and_then(|()| prefer_for_oom(pid));
            match prepared.and_then(|()| release(cell.report.as_fd())) {
                // Init may have failed and gone already; then its message, which
                // tells more, is waiting in the socket.
                Err(error) if !has_message(cell.report.as_fd()) => {
                    let _ = pidfd_send_signal(cell.pidfd.as_fd(), Signal::SIGKILL);
                    let _ = waitid(Id::PIDFd(cell.pidfd.as_fd()), WaitPidFlag::WEXITED);
                    Err(error)
                }
                _ => Ok(cell),
            }
        }
    }
}

/// In a copy of a process that had more threads, locks stay locked for ever.
fn require_one_thread() -> Result<()> {
    match sys::process::has_one_thread() {
        Ok(true) => Ok(()),
        Ok(false) => Err(SetupError::new(
            Step::Clone,
            "a cell must be started by a process with one thread, and this one has more",
        )),
        Err(errno) => Err(SetupError::os(Step::Clone, "stat", errno)
            .on("/proc/self/task")
            .hint("mount /proc")),
    }
}

fn set_nonblocking(fd: &OwnedFd) -> Result<()> {
    nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_SETFL(OFlag::O_NONBLOCK))
        .map(drop)
        .map_err(|e| SetupError::os(Step::Clone, "fcntl", e))
}

fn clone_flags(plan: &Plan) -> u64 {
    let flag = |namespace| match namespace {
        Namespace::User => flags::NEWUSER,
        Namespace::Pid => flags::NEWPID,
        Namespace::Mount => flags::NEWNS,
        Namespace::Ipc => flags::NEWIPC,
        Namespace::Uts => flags::NEWUTS,
        // Made by init: the one aside, the other once it is in the cell's cgroup.
        Namespace::Net | Namespace::Cgroup => 0,
    };
    plan.namespaces
        .iter()
        .fold(0, |all, namespace| all | flag(*namespace))
}

/// Has the kernel's OOM killer take a cell before anything else: what a cell holds
/// may be charged to no process, and then the largest of the host's would die for
/// it (proc_pid_oom_score_adj(5)). All that init starts inherits it. Written from
/// here, because a privileged supervisor's value is also the least that the cell
/// could set; an unprivileged one's is kept by the cell's `/proc`, which is
/// read-only.
fn prefer_for_oom(pid: Pid) -> Result<()> {
    let path = format!("/proc/{pid}/oom_score_adj");
    std::fs::write(&path, "1000").map_err(|e| SetupError::io(Step::Clone, "write", &e).on(path))
}

/// Writes init's id maps (user_namespaces(7)).
fn map_ids(pid: Pid, ids: &Ids) -> Result<()> {
    let write = |name: &str, content: String| {
        let path = format!("/proc/{pid}/{name}");
        std::fs::write(&path, content)
            .map_err(|e| SetupError::io(Step::IdMap, "write", &e).on(path))
    };
    if !ids.privileged {
        write("setgroups", "deny".to_owned())?;
    }
    write("uid_map", format!("{} {} 1", ids.inner_uid, ids.outer_uid))?;
    write("gid_map", format!("{} {} 1", ids.inner_gid, ids.outer_gid))
}

/// Tells init that its ids are mapped.
fn release(report: BorrowedFd<'_>) -> Result<()> {
    send(report.as_raw_fd(), b"g", MsgFlags::MSG_NOSIGNAL)
        .map(drop)
        .map_err(|e| SetupError::os(Step::IdMap, "send", e))
}

fn has_message(report: BorrowedFd<'_>) -> bool {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let mut fds = [PollFd::new(report, PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}
