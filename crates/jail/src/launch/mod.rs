//! Starting a cell: the only place that clones.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::CloneFlags;
use nix::sys::resource::getrlimit;
use nix::sys::signal::Signal;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::sys::stat::{Mode, umask};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use crate::child::command::Command;
use crate::child::{self, Content, Filter, Prepared};
use plan::{Fallback, Ids, Mount, MountKind, Namespace, Plan, Rlimit};
use record::Start;
use record::error::{Result, SetupError, Step};
use sys::clone::{Fork, fork_into};
use sys::nested::{Above, fork_below};
use sys::process::pidfd_send_signal;
use sys::shared::Progress;

mod authority;
mod broker;
mod channel;
pub(crate) mod cpus;
mod files;
pub mod idmap;
pub mod process;
pub mod secrets;
mod shared_cell;
mod stdio;
pub mod terminal;
mod translate;

pub use authority::Signed;
pub use broker::BrokerProcess;
use cgroup::CellCgroup;
pub(crate) use channel::ChannelEnd;
use cpus::CpuShare;
pub use files::FileWriter;
pub use shared_cell::SharedCell;
use stdio::Streams;
pub use stdio::{ProcessPipes, given as given_stdin, process_pipes};
use sys::identity::Identity;
use terminal::{Display, Relay};
pub use translate::{in_words, os as failed_call};

/// What a cell is for.
#[derive(Clone, Copy, Debug)]
pub enum Role<'a> {
    /// It executes a program.
    Program,
    /// Its program is a template, from which the programs of copies are forked.
    Template,
    /// Its program is forked from the template whose namespaces these are.
    Copy(&'a Namespaces),
}

impl Role<'_> {
    fn inside(self, plan: &Plan) -> child::Role {
        match self {
            Role::Program => child::Role::Program,
            Role::Template => child::Role::Template,
            Role::Copy(above) => child::Role::Copy {
                ids_above: plan.ids.within(&above.ids),
            },
        }
    }
}

/// The namespaces of a template, below which its copies have theirs.
#[derive(Debug)]
pub struct Namespaces {
    /// user_namespaces(7)
    pub user: OwnedFd,
    /// pid_namespaces(7)
    pub pid: OwnedFd,
    /// The template's ids.
    pub ids: Ids,
}

/// What to launch.
#[derive(Debug)]
pub struct Launch<'a> {
    /// The cell.
    pub plan: Rc<Plan>,
    /// What it is for.
    pub role: Role<'a>,
    /// Its system call filter.
    pub filter: Option<&'a Filter>,
    /// What goes in.
    pub content: Content,
    /// Its cgroup, if there is one.
    pub cgroup: Option<CellCgroup>,
    /// Limits that no cgroup holds.
    pub fallback: Fallback,
    /// The last step of the set-up: [`Step::Exec`], or an earlier one to try it.
    pub until: Step,
    /// Whether init waits for its program once all else is there: a blank cell.
    pub holds: bool,
}

/// A cell whose init has been cloned. Dropping it kills all of its processes.
#[derive(Debug)]
pub struct Running {
    /// Dropped first: then the cgroup is empty, or soon will be.
    pub init: InitProcess,
    /// Messages from init.
    pub report: OwnedFd,
    /// How far init has come.
    pub progress: Progress,
    /// Read ends of stdout and stderr, where they are captured.
    pub output: [Option<OwnedFd>; 2],
    /// The caller's terminal, until it shows the cell's.
    pub display: Option<Display>,
    /// Shows the cell's terminal to the caller.
    pub relay: Option<Relay>,
    /// Carries the program's output to files of the caller's.
    pub writers: Vec<FileWriter>,
    /// The supervisor's end of the driver's channel.
    pub channel: Option<ChannelEnd>,
    /// What identifies the program's standard input, where it is not the caller's.
    pub stdin: Option<Identity>,
    /// The driver's end, where a template is to give it to the program.
    pub program_channel: Vec<OwnedFd>,
    /// What becomes the program's standard streams, likewise.
    pub program_stdio: [Option<OwnedFd>; 3],
    /// The supervisor's end of a template's socket.
    pub control: Option<OwnedFd>,
    /// The cell's cgroup, if there is one.
    pub cgroup: Option<CellCgroup>,
    /// Limits that no cgroup holds.
    pub fallback: Fallback,
    /// The CPUs that the cell is bound to, where no cgroup limits it.
    pub cpus: Option<CpuShare>,
    /// What the cell's certificate authority has signed, for the broker.
    pub signed: Option<Signed>,
    /// How much of the cell was there when it was asked for.
    pub start: Start,
    /// The template that its program was forked from, where a server keeps that.
    pub template: Option<record::Template>,
    /// Whether the cell belongs to another supervisor, and only the program to this one.
    pub is_guest: bool,
}

impl Running {
    /// What the program has of a limit of the plan: init cannot raise the caller's hard limits.
    pub fn in_force(&self, limit: Rlimit) -> Rlimit {
        if self.progress.limits_hold() {
            return limit;
        }
        getrlimit(limit.resource).map_or(limit, |(_, hard)| limit.within(hard))
    }
}

/// The cell's init, seen from outside. Dropping it kills it, and with it everything
/// in its pid namespace, and waits for it unless the kernel takes too long.
#[derive(Debug)]
pub struct InitProcess {
    /// As this pid namespace numbers it.
    pub pid: Pid,
    pidfd: OwnedFd,
    is_reaped: bool,
}

/// How long the kernel gets to end what was killed. Freeing gigabytes takes
/// seconds, and a process that waits in the kernel for a dead file system cannot be
/// ended at all.
pub const END_DEADLINE: Duration = Duration::from_secs(5);

impl InitProcess {
    /// The init of a cell that another supervisor has started. Dropping this leaves it alone.
    fn of_another(pid: Pid, pidfd: OwnedFd) -> Self {
        Self {
            pid,
            pidfd,
            is_reaped: true,
        }
    }

    /// Kills it.
    pub fn kill(&self) {
        // It can only be dead already.
        let _ = pidfd_send_signal(self.pidfd.as_fd(), Signal::SIGKILL);
    }

    /// Waits for it no longer: the kernel cannot end it for now.
    pub fn give_up(&mut self) {
        self.is_reaped = true;
    }

    /// Reaps it if it has ended, so that its pid is free; returns the signal that
    /// killed it, if one did.
    pub fn reap(&mut self) -> Option<Signal> {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG;
        let status = waitid(Id::PIDFd(self.pidfd.as_fd()), flags);
        self.is_reaped |= !matches!(status, Ok(WaitStatus::StillAlive) | Err(Errno::EINTR));
        match status {
            Ok(WaitStatus::Signaled(_, signal, _)) => Some(signal),
            _ => None,
        }
    }
}

impl AsFd for InitProcess {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

impl Drop for InitProcess {
    fn drop(&mut self) {
        if self.is_reaped {
            return;
        }
        self.kill();
        let _ = wait_for(self.pidfd.as_fd(), Instant::now() + END_DEADLINE);
        self.reap();
    }
}

/// Starts a cell. The caller's signals are expected to be blocked already.
///
/// # Errors
/// The step that failed on this side; what fails inside arrives as a message.
pub fn launch(launch: Launch<'_>) -> Result<Running> {
    let Launch {
        plan,
        role,
        filter,
        mut content,
        cgroup,
        fallback,
        until,
        holds,
    } = launch;
    let plan = &*plan;
    require_one_thread()?;
    secrets::hide(&plan.network)?;
    if matches!(role, Role::Copy(_)) && plan.ids.privileged {
        open_binds(plan, &mut content)?;
    }
    let mut signed = None;
    if let Some(trust) = &plan.trust {
        let is_java = |mount: &Mount| mount.kind == MountKind::JavaCertificates;
        let made = authority::make(trust, plan.mounts.iter().any(is_java))?;
        (signed, content.certificates) = (Some(made.0), made.1);
    }
    let (report, init_report) = socketpair(
        AddressFamily::Unix,
        SockType::SeqPacket,
        None,
        SockFlag::SOCK_CLOEXEC,
    )
    .map_err(|e| SetupError::os(Step::Clone, "socketpair", e))?;
    let (mut channel, mut control, mut program_channel) = (None, None, Vec::new());
    if matches!(role, Role::Template) {
        let (ours, theirs) = channel::open_control()?;
        (control, program_channel) = (Some(ours), theirs);
    } else if plan.program.channel {
        let (ours, theirs) = channel::open()?;
        (channel, program_channel) = (Some(ours), theirs);
    }
    let Streams {
        output,
        program: stdio,
        display,
        writers,
        shields,
    } = Streams::new(plan, &content.passed, holds)?;
    let terminal = display.as_ref().map(|display| display.terminal.setup());
    let terminal = terminal.transpose()?;
    let passed = std::mem::take(&mut content.passed);
    let stdin = stdio[0].as_ref().and_then(|fd| Identity::of(fd).ok());
    let progress = Progress::new().map_err(|e| SetupError::os(Step::Clone, "mmap", e))?;
    let cpus = fallback.cpus.map(CpuShare::take).transpose()?;
    let init = match fork(role, plan, cgroup.as_ref())? {
        Fork::Child => {
            // Init's copies would keep it from seeing that the supervisor is gone.
            drop((report, output, channel, control, signed, display, writers));
            child::main(Prepared {
                plan,
                role: role.inside(plan),
                until,
                holds,
                umask: umask(child::UMASK),
                fallback: &fallback,
                cpus: cpus.as_ref().map(CpuShare::cpus).unwrap_or_default(),
                report: init_report,
                progress: &progress,
                content,
                stdio,
                terminal,
                shields,
                channel: program_channel,
                passed,
                filter,
            })
        }
        Fork::Parent { pid, pidfd } => InitProcess {
            pid,
            pidfd,
            is_reaped: false,
        },
    };
    drop((init_report, content, passed));
    let (program_channel, program_stdio) = match role {
        Role::Copy(_) => (program_channel, stdio),
        Role::Program | Role::Template => Default::default(),
    };
    let cell = Running {
        program_channel,
        program_stdio,
        control,
        init,
        stdin,
        report,
        progress,
        output,
        display,
        relay: None,
        writers,
        channel,
        cgroup,
        fallback,
        cpus,
        start: Start::Cold,
        template: None,
        signed,
        is_guest: false,
    };
    if until >= Step::IdMap && plan.has(Namespace::User) {
        let released = prepare_ids(role, cell.init.pid, plan, cell.cgroup.as_ref())
            .and_then(|()| prefer_for_oom(cell.init.pid))
            .and_then(|()| release(cell.report.as_fd()));
        // Init may have failed and ended already; then its message, which explains
        // more, is waiting in the socket.
        if let Err(error) = released
            && !wait_for(cell.report.as_fd(), Instant::now())
        {
            return Err(error);
        }
    }
    Ok(cell)
}

/// Opens the binds that are not open yet, as root: the init of a copy begins with the ids of
/// its template, which may not enter every directory, such as a store in root's home.
fn open_binds(plan: &Plan, content: &mut Content) -> Result<()> {
    let mut known = std::mem::take(&mut content.binds).into_iter();
    let binds = plan.mounts.iter().map(|mount| {
        let open = || {
            child::open_bind(mount).map_err(|(call, errno)| {
                SetupError::os(Step::Mount, call.name(), errno).on(mount.target.display())
            })
        };
        known
            .next()
            .flatten()
            .map_or_else(open, |tree| Ok(Some(tree)))
    });
    content.binds = binds.collect::<Result<_>>()?;
    Ok(())
}

/// Clones init.
fn fork(role: Role<'_>, plan: &Plan, cgroup: Option<&CellCgroup>) -> Result<Fork> {
    let failed = |call: &str, errno| SetupError::os(Step::Clone, call, errno);
    let flags = clone_flags(plan);
    let Role::Copy(above) = role else {
        // SAFETY: this process has one thread, as `launch` has checked.
        let forked = unsafe { fork_into(flags, cgroup.map(CellCgroup::dir)) };
        return forked.map_err(|errno| failed("clone3", errno));
    };
    let above = Above {
        user: above.user.as_fd(),
        pid: above.pid.as_fd(),
        ids: plan.ids.privileged.then(|| plan.ids.within(&above.ids)),
    };
    // With other ids than the supervisor's, a process may not clone into its cgroup.
    let cgroup = cgroup.filter(|_| !plan.ids.privileged);
    // SAFETY: likewise.
    let forked = unsafe { fork_below(above, flags, cgroup.map(CellCgroup::dir)) };
    forked.map_err(|(call, errno)| failed(call, errno))
}

/// Maps init's ids. A copy's maps its own, and may have to be put into its cgroup.
fn prepare_ids(role: Role<'_>, pid: Pid, plan: &Plan, cgroup: Option<&CellCgroup>) -> Result<()> {
    match role {
        Role::Program => map_ids(pid, &plan.ids, false),
        Role::Template => map_ids(pid, &plan.ids, true),
        Role::Copy(_) => match cgroup {
            Some(cgroup) if plan.ids.privileged => cgroup.take_in(pid),
            _ => Ok(()),
        },
    }
}

/// In a copy of a process that had more threads, their locks stay locked for ever.
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

fn clone_flags(plan: &Plan) -> CloneFlags {
    let flag = |namespace| match namespace {
        Namespace::User => CloneFlags::CLONE_NEWUSER,
        Namespace::Pid => CloneFlags::CLONE_NEWPID,
        Namespace::Mount => CloneFlags::CLONE_NEWNS,
        Namespace::Ipc => CloneFlags::CLONE_NEWIPC,
        Namespace::Uts => CloneFlags::CLONE_NEWUTS,
        // Init makes these: the network in a process aside, the other once it is in
        // the cell's cgroup.
        Namespace::Net | Namespace::Cgroup => CloneFlags::empty(),
    };
    plan.namespaces.iter().copied().map(flag).collect()
}

/// Makes the kernel's OOM killer choose a cell before anything else: memory of a cell
/// may be charged to no process, and then the host's largest process would die for
/// it (proc_pid_oom_score_adj(5)). Every process in the cell inherits the value. The
/// supervisor writes it: a value from a privileged one is the lowest that the cell
/// can set, and the cell's `/proc` is read-only in any case.
fn prefer_for_oom(pid: Pid) -> Result<()> {
    let path = format!("/proc/{pid}/oom_score_adj");
    write(&path, "1000").map_err(|e| SetupError::os(Step::Clone, "write", e).on(path))
}

/// Writes to a file of `/proc`, in one call. musl's open(3) would set close-on-exec once more.
fn write(path: &str, text: &str) -> nix::Result<()> {
    let flags = OFlag::O_WRONLY | OFlag::O_CLOEXEC;
    let file = openat(AT_FDCWD, path, flags, Mode::empty())?;
    nix::unistd::write(&file, text.as_bytes()).map(drop)
}

/// Writes init's id maps (user_namespaces(7)). Where the ids of cells differ outside,
/// those of a template's copies are mapped as they are.
fn map_ids(pid: Pid, ids: &Ids, has_copies: bool) -> Result<()> {
    let others = if has_copies {
        ids.of_others()
    } else {
        String::new()
    };
    let write = |name: &str, content: String| {
        let path = format!("/proc/{pid}/{name}");
        write(&path, &content).map_err(|e| SetupError::os(Step::IdMap, "write", e).on(path))
    };
    if !ids.privileged {
        write("setgroups", "deny".to_owned())?;
    }
    write(
        "uid_map",
        format!("{} {} 1\n{others}", ids.inner_uid, ids.outer_uid),
    )?;
    write(
        "gid_map",
        format!("{} {} 1\n{others}", ids.inner_gid, ids.outer_gid),
    )
}

/// Lets init go on: its ids are mapped.
fn release(report: BorrowedFd<'_>) -> Result<()> {
    Command::Go
        .send(report)
        .map_err(|e| SetupError::os(Step::IdMap, "send", e))
}

/// Waits until `fd` is readable or hung up; false when the deadline came first.
pub fn wait_for(fd: BorrowedFd<'_>, deadline: Instant) -> bool {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], timeout) {
            Err(Errno::EINTR) => {}
            ready => return ready.is_ok_and(|count| count > 0),
        }
    }
}
