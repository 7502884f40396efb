//! Starting a program.

use std::convert::Infallible;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::resource::{getrlimit, setrlimit};
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use nix::sys::stat::umask;
use nix::unistd::Pid;

use super::Prepared;
use super::fail::{At, Call, Fail, Site};
use super::report::Reporter;
use languages::CHANNEL_FD;
use plan::{LandlockPlan, Plan, Program};
use record::bytes::RawText;
use record::error::Step;
use spec::Bytes;

/// Numbers that the program's own descriptors may have.
pub(super) const RESERVED: i32 = 16;

/// A running program, and what its supervisor needs.
pub(super) struct Started {
    pub(super) pid: Pid,
    pub(super) listener: Option<OwnedFd>,
}

/// The standard streams of a program.
#[derive(Clone, Copy)]
pub(super) enum Streams<'a> {
    /// These descriptors; `None` leaves the caller's stream.
    Given([Option<&'a OwnedFd>; 3]),
    /// Its side of its controlling terminal, for all three.
    Terminal(&'a OwnedFd),
}

/// What one program of a cell is started with.
pub(super) struct Start<'a> {
    pub(super) begin: &'a Begin,
    pub(super) streams: Streams<'a>,
    /// Its end of the driver's channel.
    pub(super) channel: &'a [OwnedFd],
    /// Descriptors of the caller's, each with its number.
    pub(super) passed: &'a [(i32, OwnedFd)],
    /// Landlock rules that it applies to itself, besides those that init has.
    pub(super) ruleset: Option<&'a OwnedFd>,
}

/// Executes a program in a process of its own. The process shares this one's
/// memory until then, so a failure comes back as a value, and its descriptor
/// table, so the filter's listener does too.
pub(super) fn start(
    cell: &Prepared<'_>,
    start: &Start<'_>,
    report: &Reporter<'_>,
) -> Result<Started, Fail> {
    report.enter(Step::Stdio);
    let mut failure = None;
    let mut listener = None;
    // SAFETY: init has one thread. The closure makes system calls on memory
    // prepared above, and returns by value.
    let pid = unsafe {
        sys::clone::vfork_shared(|| {
            failure = become_program(cell, start, &mut listener, report).err();
            127
        })
    }
    .at(Site::new(Step::Exec), Call::Clone)?;
    match failure {
        Some(failure) => Err(failure),
        None => Ok(Started { pid, listener }),
    }
}

fn become_program(
    cell: &Prepared<'_>,
    start: &Start<'_>,
    listener: &mut Option<OwnedFd>,
    report: &Reporter<'_>,
) -> Result<Infallible, Fail> {
    // A session of its own: a terminal passed in is not its controlling
    // terminal, and signals from that terminal go to the supervisor alone.
    let site = Site::new(Step::Stdio);
    nix::unistd::setsid().at(site, Call::Setsid)?;
    if let Streams::Terminal(line) = start.streams {
        sys::terminal::control(line.as_fd()).at(site, Call::Ioctl)?;
    }
    arrange_descriptors(start)?;
    umask(cell.umask);
    report.enter(Step::Chdir);
    enter_working_directory(&start.begin.cwd)?;
    report.enter(Step::Rlimits);
    set_rlimits(cell, start.begin.reserve)?;
    sys::process::default_signal_dispositions();
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)
        .at(Site::new(Step::Stdio), Call::Sigprocmask)?;
    if start.begin.fixed_layout {
        // Where a filter around cellblock denies it, states fit this process only.
        let _ = sys::process::fix_layout();
    }
    if let Some(ruleset) = start.ruleset {
        let flags = cell.plan.landlock.iter().flat_map(LandlockPlan::flags);
        sys::landlock::restrict_self(ruleset.as_fd(), flags)
            .at(Site::new(Step::Landlock), Call::Landlock)?;
    }
    report.enter(Step::Seccomp);
    *listener = load_filter(cell)?;
    report.enter(Step::Exec);
    Err(start.begin.image.execute())
}

/// Descriptors of init and of the caller are still open here, and a path through
/// `/proc/self/fd` would lead out of the cell by one, so such links are not followed.
fn enter_working_directory(cwd: &Path) -> Result<(), Fail> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_NO_MAGICLINKS);
    let directory = openat2(AT_FDCWD, cwd, how).at(Site::new(Step::Chdir).on(0), Call::Openat2)?;
    nix::unistd::fchdir(&directory).at(Site::new(Step::Chdir).on(0), Call::Fchdir)
}

/// Puts the program's descriptors in place; every other one closes on exec.
fn arrange_descriptors(start: &Start<'_>) -> Result<(), Fail> {
    let site = Site::new(Step::Stdio);
    let mut last = 2;
    let streams = match start.streams {
        Streams::Given(streams) => streams,
        Streams::Terminal(line) => [Some(line); 3],
    };
    for (number, fd) in (0..).zip(streams) {
        if let Some(fd) = fd {
            sys::process::place(fd, number).at(site, Call::Dup)?;
        }
    }
    for (number, fd) in (CHANNEL_FD..).zip(start.channel) {
        sys::process::place(fd, number).at(site, Call::Dup)?;
        last = number;
    }
    sys::process::cloexec_range(last + 1, u32::MAX).at(site, Call::CloseRange)?;
    for (number, fd) in start.passed {
        sys::process::place(fd, *number).at(site, Call::Dup)?;
    }
    Ok(())
}

fn set_rlimits(cell: &Prepared<'_>, reserve: Option<Bytes>) -> Result<(), Fail> {
    let limits = cell.plan.rlimits(cell.fallback, reserve);
    let mut all_hold = true;
    for (index, limit) in limits.enumerate() {
        let resource = limit.resource;
        let mut set = || match sys::process::swap_rlimit(resource, (limit.soft, limit.hard)) {
            Ok((_, before)) if before < limit.hard => {
                all_hold = false;
                let limit = limit.within(before);
                setrlimit(resource, limit.soft, limit.hard)
            }
            Ok(_) => Ok(()),
            // Above what the caller may have.
            Err(Errno::EPERM) => {
                all_hold = false;
                let (_, hard) = getrlimit(resource)?;
                let limit = limit.within(hard);
                setrlimit(resource, limit.soft, limit.hard)
            }
            Err(errno) => Err(errno),
        };
        set().at(Site::new(Step::Rlimits).on(index), Call::Setrlimit)?;
    }
    if all_hold {
        cell.progress.note_limits_hold();
    }
    Ok(())
}

/// Loads the filter into init itself, and shows that it denies a call. Where the
/// supervisor is to answer for it, it is listening.
pub(super) fn try_filter(cell: &Prepared<'_>, report: &Reporter<'_>) -> Result<(), Fail> {
    report.enter(Step::Seccomp);
    let listener = load_filter(cell)?;
    report.started(&[], listener.as_ref(), None, &[])?;
    report.enter(Step::Seccomp);
    match sys::process::try_nested_userns() {
        Err(Errno::EPERM) => Ok(()),
        _ => Err(Site::new(Step::Seccomp).failed(Call::Seccomp, Errno::EOPNOTSUPP)),
    }
}

fn load_filter(cell: &Prepared<'_>) -> Result<Option<OwnedFd>, Fail> {
    let Some(filter) = cell.filter else {
        return Ok(None);
    };
    let site = Site::new(Step::Seccomp);
    if filter.notify {
        return sys::seccomp::install_with_listener(&filter.program)
            .at(site, Call::Seccomp)
            .map(Some);
    }
    sys::seccomp::install(&filter.program).at(site, Call::Seccomp)?;
    Ok(None)
}

/// How a program begins, made before the last steps.
pub(super) struct Begin {
    pub(super) image: Image,
    pub(super) cwd: PathBuf,
    /// Whether its memory is laid out without randomisation.
    pub(super) fixed_layout: bool,
    /// What it may map beyond the memory.
    pub(super) reserve: Option<Bytes>,
}

impl Begin {
    /// As the plan has it.
    pub(super) fn of(plan: &Plan) -> Result<Self, Fail> {
        let image = Image::new(&plan.program).at(Site::new(Step::Exec), Call::Execve)?;
        let cwd = plan.program.cwd.clone();
        Ok(Self {
            image,
            cwd,
            fixed_layout: plan.program.fixed_layout,
            reserve: plan.program.reserve,
        })
    }
}

/// Whether there is a file, whatever it needs to be executed.
fn exists(path: &CStr) -> bool {
    nix::unistd::access(path, nix::unistd::AccessFlags::F_OK).is_ok()
}

/// The program's image as execve(2) wants it.
pub(super) struct Image {
    pub(super) paths: Vec<CString>,
    pub(super) argv: Vec<CString>,
    pub(super) env: Vec<CString>,
}

impl Image {
    fn new(program: &Program) -> Result<Self, Errno> {
        let text = |text: &RawText| CString::new(text.as_bytes()).map_err(|_| Errno::EINVAL);
        let texts = |list: &[RawText]| list.iter().map(text).collect::<Result<_, _>>();
        Ok(Self {
            paths: texts(&program.candidates)?,
            argv: texts(&program.argv)?,
            env: program
                .variables()
                .map(|variable| text(&variable))
                .collect::<Result<_, _>>()?,
        })
    }

    /// Tries each path in turn, as execvp(3) does; returns the failure. A file that
    /// may not be executed explains more than a missing one.
    fn execute(&self) -> Fail {
        let mut best = (Errno::ENOENT, 0);
        for (index, path) in self.paths.iter().enumerate() {
            let errno = sys::process::execute(path, &self.argv, &self.env);
            match errno {
                Errno::ENOENT if exists(path) => {
                    return Site::new(Step::Exec)
                        .on(index)
                        .failed(Call::Interpreter, errno);
                }
                Errno::ENOENT | Errno::ENOTDIR => {}
                Errno::EACCES => best = (errno, index),
                _ => {
                    return Site::new(Step::Exec).on(index).failed(Call::Execve, errno);
                }
            }
        }
        Site::new(Step::Exec)
            .on(best.1)
            .failed(Call::Execve, best.0)
    }
}
