//! Cells whose program is forked from a template, ahead of need.
//!
//! ```text
//!   supervisor            cell's init           template              copy
//!   launch          ────►
//!                   ◄──── PREPARED {pid namespace}
//!   request {fds}   ──────────────────────────► forks twice   ──────► becomes init's child
//!                         sets the cell up                            hello, watch {fd}
//!                   ◄──── PREPARED {fds}
//!   limits, cgroup; request {fds, calls} ───────────────────────────► enters, confines itself
//!                   ◄──────────────────────────────────────────────── locked
//!   takes the filter's listener ────────────────────────────────────► park
//!   looks at it from outside                                          waits for a request
//!   ADOPT           ────► reaps, obeys
//! ```
//!
//! All of it happens before there is a request. From then on the cell is a cell like any
//! other. Whatever fails ends the cell, and the caller starts another one without the
//! template.

use std::fs;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use super::Denials;
use super::cell::{Cancel, Cell};
use super::watch::{Phase, SETUP_DEADLINE};
use jail::child::Filter;
use jail::child::command::Command;
use jail::child::report::Role as FdRole;
use jail::launch::{Launch, Namespaces, Role, Running, wait_for};
use languages::template::fork_request;
use plan::{Namespace, Plan};
use record::Start;
use record::error::{Result, SetupError, Step};
use sys::memory::Span;
use sys::other::copy_descriptor;
use sys::process::pidfd_open;
use sys::watched::Watched;

mod calls;
mod lockdown;
mod talk;
mod template;

use calls::{Calls, Places};
use lockdown::Expected;
use talk::Talk;
pub use template::TemplateCell;

/// A template, as a supervisor of copies knows it.
#[derive(Clone, Debug)]
pub struct Template {
    /// Where it takes requests.
    pub control: Arc<OwnedFd>,
    /// Its namespaces, below which its copies have theirs.
    pub(crate) namespaces: Arc<Namespaces>,
    /// Its memory that the kernel watches in each copy, so that a checkpoint can tell what
    /// the copy still has as it was.
    pub watched: Arc<[Span]>,
}

/// A copy that is parked.
struct Parked {
    /// Its pid inside.
    pid: u8,
    /// The filter's listener.
    listener: Option<OwnedFd>,
    /// Its memory, where the kernel watches that.
    watched: Option<Watched>,
}

fn failed(call: &'static str) -> impl Fn(Errno) -> SetupError {
    move |errno| SetupError::os(Step::Fork, call, errno)
}

fn gone(who: &str) -> SetupError {
    SetupError::new(Step::Fork, format!("{who} did not answer"))
}

#[cfg(debug_assertions)]
thread_local! {
    /// Steps that copies leave out, or single calls of a step, by index. `Supervise` is the check
    /// of the copy.
    pub static LEFT_OUT: std::cell::RefCell<Vec<(Step, Option<usize>)>> =
        const { std::cell::RefCell::new(Vec::new()) };
}

/// Whether a step is left out, for tests of the checks that detect a missing step.
#[cfg(debug_assertions)]
fn is_left_out(step: Step) -> bool {
    LEFT_OUT.with_borrow(|left_out| left_out.contains(&(step, None)))
}
#[cfg(not(debug_assertions))]
const fn is_left_out(_: Step) -> bool {
    false
}

impl<'a> Cell<'a> {
    /// Starts a cell whose program is forked from `template`, and returns once it waits
    /// for its first request. Unless an execution waits for it already (`is_awaited`), it gets the
    /// memory for itself that programs mostly write to.
    ///
    /// # Errors
    /// The step that failed; a cell that is started without the template may succeed.
    #[inline(never)]
    pub fn fork(
        start: Launch<'_>,
        template: &Template,
        is_awaited: bool,
        denials: Denials,
        cancel: Cancel<'a>,
    ) -> Result<Box<Self>> {
        let filter = start.filter;
        let has_files = !start.content.inputs.is_empty() || !start.content.stages.is_empty();
        let start = Launch {
            role: Role::Copy(&template.namespaces),
            ..start
        };
        let mut cell = Self::start(start, denials, cancel)?;
        cell.running.start = Start::Forked;
        let plan = Rc::clone(&cell.plan);
        let first = cell.await_prepared()?;
        let (talk, prepared) = if has_files {
            // They may exceed the limit of memory, and init must not be killed for that while the
            // template forks.
            let prepared = cell.await_prepared()?;
            (template.fork(&first)?, prepared)
        } else {
            // The template forks while init sets the cell up.
            let talk = template.fork(&first)?;
            (talk, cell.await_prepared()?)
        };
        let parked = template.confine(
            talk,
            &mut cell.running,
            &plan,
            filter,
            &prepared,
            is_awaited,
        )?;
        if !cell.order(Command::Adopt(parked.pid)) {
            return Err(gone("the cell's init"));
        }
        let scratch = |role: &FdRole| matches!(role, FdRole::Scratch(_));
        let mut fds: Vec<_> = (prepared.into_iter())
            .filter(|(role, _)| scratch(role))
            .collect();
        fds.extend(parked.listener.map(|fd| (FdRole::Listener, fd)));
        cell.watched = parked.watched;
        cell.park(fds);
        match cell.phase {
            Phase::Running => Ok(cell),
            _ => Err(gone("the cell's init")),
        }
    }

    /// Notes which template the program was forked from.
    pub const fn note_template(&mut self, template: record::Template) {
        self.running.template = Some(template);
    }

    /// Waits until init has set the cell up.
    fn await_prepared(&mut self) -> Result<Vec<(FdRole, OwnedFd)>> {
        let deadline = Instant::now() + SETUP_DEADLINE;
        loop {
            if let Some(fds) = self.prepared.take() {
                return Ok(fds);
            }
            if let Some(failure) = self.seen.failure.take() {
                return Err(failure);
            }
            if self.phase != Phase::SetUp || !wait_for(self.running.report.as_fd(), deadline) {
                return Err(gone("the cell's init"));
            }
            self.receive_message();
        }
    }
}

impl Template {
    /// What a process needs so that it can ask for copies.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 3] {
        let Namespaces { user, pid, .. } = &*self.namespaces;
        [self.control.as_fd(), user.as_fd(), pid.as_fd()]
    }

    /// Has a copy forked in this pid namespace.
    fn fork(&self, prepared: &[(FdRole, OwnedFd)]) -> Result<Talk> {
        let is_pid = |(role, _): &&(FdRole, OwnedFd)| *role == FdRole::Namespace(Namespace::Pid);
        let Some((_, pid_namespace)) = prepared.iter().find(is_pid) else {
            return Err(gone("the cell's init"));
        };
        let (talk, theirs) = Talk::open()?;
        let fds = [theirs.as_raw_fd(), pid_namespace.as_raw_fd()];
        talk::send(self.control.as_fd(), &fork_request(), &fds)?;
        Ok(talk)
    }

    /// Has the copy enter its cell, which is set up, and confine itself there.
    fn confine(
        &self,
        mut talk: Talk,
        cell: &mut Running,
        plan: &Plan,
        filter: Option<&Filter>,
        prepared: &[(FdRole, OwnedFd)],
        is_awaited: bool,
    ) -> Result<Parked> {
        let own = own_descriptors(cell)?;
        let namespaces = namespaces(prepared)?;
        let (fds, places) = places(&own, &namespaces, prepared);
        if plan.landlock.is_some() != places.ruleset.is_some() {
            return Err(gone("landlock"));
        }
        let calls = Calls::new(plan, filter, &places);
        #[cfg(debug_assertions)]
        let calls = LEFT_OUT.with_borrow(|left_out| calls.without(left_out));
        let (mut request, steps) = calls.request(plan);
        request.is_awaited = is_awaited;
        let (pid, copy) = talk.greeting()?;
        let pid = u8::try_from(pid).map_err(|_| gone("a copy of the template"))?;
        let pidfd = pidfd_open(copy).map_err(failed("pidfd_open"))?;
        if let Some(cgroup) = &cell.cgroup
            && !is_left_out(Step::Cgroup)
        {
            cgroup.take_in(copy)?;
        }
        if let Some(cpus) = &cell.cpus {
            bind_to_cpus(copy, cpus.cpus())?;
        }
        if !is_left_out(Step::Rlimits) {
            lockdown::set_limits(copy, plan, &cell.fallback)?;
        }
        let userfaultfd = talk.hear("watch")?;
        let watched = copy_descriptor(pidfd.as_fd(), userfaultfd).and_then(|fd| {
            let watched = Watched::of(fd)?;
            (self.watched.iter()).try_for_each(|span| watched.add(*span))?;
            Ok(watched)
        });
        talk.request(&request, steps, &fds)?;
        let number = talk.hear("locked")?;
        let listens = filter.is_some_and(|filter| filter.notify);
        let listener = listens
            .then(|| copy_descriptor(pidfd.as_fd(), number))
            .transpose()
            .map_err(failed("pidfd_getfd"))?;
        talk.say("park")?;
        talk.end()?;
        let scratch: Vec<OwnedFd> = (prepared.iter())
            .filter(|(role, _)| matches!(role, FdRole::Scratch(_)))
            .map(|(_, fd)| fd.try_clone())
            .collect::<std::io::Result<_>>()
            .map_err(|e| SetupError::io(Step::Fork, "fcntl", &e))?;
        let expected = Expected {
            plan,
            fallback: &cell.fallback,
            filter,
            init: cell.init.pid,
            namespaces: &namespaces,
            own: &own,
            scratch: &scratch,
            cgroup: cell.cgroup.as_ref(),
        };
        if only_child(cell.init.pid)? != copy {
            return Err(gone("a copy of the template"));
        }
        if !is_left_out(Step::Supervise) {
            expected.verify(copy)?;
        }
        Ok(Parked {
            pid,
            listener,
            watched: watched.ok(),
        })
    }
}

/// The descriptors that go with a request, and their places.
fn places(
    own: &[OwnedFd],
    namespaces: &[(Namespace, OwnedFd)],
    prepared: &[(FdRole, OwnedFd)],
) -> (Vec<RawFd>, Places) {
    let mut fds: Vec<RawFd> = own.iter().map(|fd| fd.as_raw_fd()).collect();
    let first = fds.len();
    let others = (namespaces.iter()).filter(|(kind, _)| *kind != Namespace::Pid);
    fds.extend(others.map(|(_, fd)| fd.as_raw_fd()));
    let mut places = Places {
        own: own.len(),
        namespaces: first..fds.len(),
        ruleset: None,
    };
    for (role, fd) in prepared {
        if *role == FdRole::Ruleset {
            places.ruleset = Some(fds.len());
            fds.push(fd.as_raw_fd());
        }
    }
    (fds, places)
}

/// What becomes the copy's descriptors, from 0 on.
fn own_descriptors(cell: &mut Running) -> Result<Vec<OwnedFd>> {
    let streams = cell.program_stdio.iter_mut().map(Option::take);
    let streams: Option<Vec<OwnedFd>> = streams.collect();
    let mut own = streams.ok_or_else(|| {
        SetupError::new(
            Step::Fork,
            "a copy of a template has no stream of the caller's",
        )
        .hint("capture the streams")
    })?;
    own.append(&mut cell.program_channel);
    Ok(own)
}

/// The cell's namespaces, the user namespace first: it gives the right to the others.
fn namespaces(prepared: &[(FdRole, OwnedFd)]) -> Result<Vec<(Namespace, OwnedFd)>> {
    let mut found = Vec::new();
    for (role, fd) in prepared {
        if let FdRole::Namespace(kind) = role {
            let fd = fd.try_clone();
            found.push((
                *kind,
                fd.map_err(|e| SetupError::io(Step::Fork, "fcntl", &e))?,
            ));
        }
    }
    found.sort_by_key(|(kind, _)| *kind as u8);
    Ok(found)
}

/// The process that the template has left to the cell's init, which has no other.
fn only_child(init: Pid) -> Result<Pid> {
    let path = format!("/proc/{init}/task/{init}/children");
    let list =
        fs::read_to_string(&path).map_err(|e| SetupError::io(Step::Fork, "read", &e).on(&path))?;
    let mut pids = list.split_ascii_whitespace().map(str::parse);
    match (pids.next(), pids.next()) {
        (Some(Ok(pid)), None) => Ok(Pid::from_raw(pid)),
        _ => Err(gone("a copy of the template")),
    }
}

fn bind_to_cpus(copy: Pid, cpus: &[usize]) -> Result<()> {
    if cpus.is_empty() {
        return Ok(());
    }
    let mut chosen = CpuSet::new();
    let set = (cpus.iter()).try_for_each(|cpu| chosen.set(*cpu));
    set.and_then(|()| sched_setaffinity(copy, &chosen))
        .map_err(|e| SetupError::os(Step::Rlimits, "sched_setaffinity", e))
}
