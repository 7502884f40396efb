//! Cells whose program is forked from a template, ahead of need.
//!
//! ```text
//!   supervisor            cell's init           template              copy
//!   launch          ────► sets the cell up
//!                   ◄──── PREPARED {fds}
//!   request {fds, calls} ─────────────────────► forks twice   ──────► init's child
//!                   ◄──────────────────────────────────────────────── hello, watch {fd}
//!   limits, cgroup  ────────────────────────────────────────────────► go
//!                                                                     enters, confines itself
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
use std::io::IoSlice;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, recv, send, sendmsg, socketpair,
};
use nix::unistd::Pid;

use super::Denials;
use super::cell::{Cancel, Cell};
use super::watch::{Phase, SETUP_DEADLINE};
use crate::child::Filter;
use crate::child::command::Command;
use crate::child::report::Role as FdRole;
use crate::drivers::template::CopyRequest;
use crate::launch::{Launch, Namespaces, Role, Running, wait_for};
use crate::plan::{Namespace, Plan};
use record::Start;
use record::error::{Result, SetupError, Step};
use sys::memory::Span;
use sys::other::copy_descriptor;
use sys::process::pidfd_open;
use sys::watched::Watched;

mod calls;
mod lockdown;
mod template;

use calls::{Calls, Places};
use lockdown::Expected;
pub(crate) use template::TemplateCell;

/// How long each word of a copy may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A template, as a supervisor of copies knows it.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    /// Where it takes requests.
    pub(crate) control: Arc<OwnedFd>,
    /// Its namespaces, below which its copies have theirs.
    pub(crate) namespaces: Arc<Namespaces>,
    /// Its memory that the kernel watches in each copy, so that a checkpoint can tell what
    /// the copy still has as it was.
    pub(crate) watched: Arc<[Span]>,
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

#[cfg(test)]
thread_local! {
    /// Steps that copies leave out, or single calls of a step, by index. `Supervise` is the check
    /// of the copy.
    pub(crate) static LEFT_OUT: std::cell::RefCell<Vec<(Step, Option<usize>)>> =
        const { std::cell::RefCell::new(Vec::new()) };
}

/// Whether a step is left out, for tests of the checks that detect a missing step.
#[cfg(test)]
fn is_left_out(step: Step) -> bool {
    LEFT_OUT.with_borrow(|left_out| left_out.contains(&(step, None)))
}
#[cfg(not(test))]
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
    pub(crate) fn fork(
        start: Launch<'_>,
        template: &Template,
        is_awaited: bool,
        denials: Denials,
        cancel: Cancel<'a>,
    ) -> Result<Self> {
        let filter = start.filter;
        let start = Launch {
            role: Role::Copy(&template.namespaces),
            ..start
        };
        let mut cell = Self::start(start, denials, cancel)?;
        let prepared = cell.await_prepared()?;
        let plan = Rc::clone(&cell.plan);
        let parked = template.copy(&mut cell.running, &plan, filter, &prepared, is_awaited)?;
        if !cell.order(Command::Adopt(parked.pid)) {
            return Err(gone("the cell's init"));
        }
        let scratch = |role: &FdRole| matches!(role, FdRole::Scratch(_));
        let mut fds: Vec<_> = (prepared.into_iter())
            .filter(|(role, _)| scratch(role))
            .collect();
        fds.extend(parked.listener.map(|fd| (FdRole::Listener, fd)));
        cell.running.start = Start::Forked;
        cell.watched = parked.watched;
        cell.park(fds);
        match cell.phase {
            Phase::Running => Ok(cell),
            _ => Err(gone("the cell's init")),
        }
    }

    /// Notes which template the program was forked from.
    pub(crate) const fn note_template(&mut self, template: record::Template) {
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
    pub(crate) fn descriptors(&self) -> [BorrowedFd<'_>; 3] {
        let Namespaces { user, pid, .. } = &*self.namespaces;
        [self.control.as_fd(), user.as_fd(), pid.as_fd()]
    }

    /// Has a copy forked into a cell that is set up, and confined there.
    fn copy(
        &self,
        cell: &mut Running,
        plan: &Plan,
        filter: Option<&Filter>,
        prepared: &[(FdRole, OwnedFd)],
        is_awaited: bool,
    ) -> Result<Parked> {
        let own = own_descriptors(cell)?;
        let namespaces = namespaces(prepared)?;
        let (ours, theirs) = socketpair(
            AddressFamily::Unix,
            SockType::SeqPacket,
            None,
            SockFlag::SOCK_CLOEXEC,
        )
        .map_err(failed("socketpair"))?;
        let (fds, places) = places(&own, &theirs, &namespaces, prepared);
        if plan.landlock.is_some() != places.ruleset.is_some() {
            return Err(gone("landlock"));
        }
        let calls = Calls::new(plan, filter, &places);
        #[cfg(test)]
        let calls = LEFT_OUT.with_borrow(|left_out| calls.without(left_out));
        let (mut request, steps) = calls.request(plan);
        request.is_awaited = is_awaited;
        self.send(&request, &fds)?;
        // The copy has the only other end.
        drop(theirs);
        let talk = Talk {
            socket: ours,
            steps,
        };
        let pid = talk.hear("hello")?;
        let pid = u8::try_from(pid).map_err(|_| gone("a copy of the template"))?;
        let copy = only_child(cell.init.pid)?;
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
        talk.say("go")?;
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
        if !is_left_out(Step::Supervise) {
            expected.verify(copy)?;
        }
        Ok(Parked {
            pid,
            listener,
            watched: watched.ok(),
        })
    }

    /// Sends the request.
    fn send(&self, request: &CopyRequest, fds: &[RawFd]) -> Result<()> {
        let bytes = request.encode();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let sent = sendmsg::<()>(
                self.control.as_raw_fd(),
                &[IoSlice::new(&bytes)],
                &[ControlMessage::ScmRights(fds)],
                MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT,
                None,
            );
            match sent {
                Ok(_) => return Ok(()),
                Err(Errno::EINTR) => {}
                // The template has not taken the requests before this one.
                Err(Errno::EAGAIN) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(errno) => return Err(failed("sendmsg")(errno).on("template")),
            }
        }
    }
}

/// The descriptors that go with a request, and their places.
fn places(
    own: &[OwnedFd],
    talk: &OwnedFd,
    namespaces: &[(Namespace, OwnedFd)],
    prepared: &[(FdRole, OwnedFd)],
) -> (Vec<RawFd>, Places) {
    let mut fds: Vec<RawFd> = own.iter().map(|fd| fd.as_raw_fd()).collect();
    fds.push(talk.as_raw_fd());
    let is_pid = |kind: &Namespace| *kind == Namespace::Pid;
    let of = |wanted: bool| {
        let chosen = (namespaces.iter()).filter(move |(kind, _)| is_pid(kind) == wanted);
        chosen.map(|(_, fd)| fd.as_raw_fd())
    };
    fds.extend(of(true));
    let first = fds.len();
    fds.extend(of(false));
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

/// The conversation with a copy, which runs trusted code so far.
struct Talk {
    socket: OwnedFd,
    /// The step of each call that it makes.
    steps: Vec<Step>,
}

impl Talk {
    fn say(&self, word: &str) -> Result<()> {
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        send(self.socket.as_raw_fd(), word.as_bytes(), flags)
            .map(drop)
            .map_err(failed("send"))
    }

    /// The number that the copy says after `word`.
    fn hear(&self, word: &str) -> Result<i32> {
        let said = self.next()?;
        let mut words = said.split_ascii_whitespace();
        let (first, second, third) = (words.next(), words.next(), words.next());
        let number = |word: Option<&str>| word.and_then(|word| word.parse::<i32>().ok());
        match (first, number(second), number(third)) {
            (Some(first), Some(number), None) if first == word => Ok(number),
            (Some("failed"), Some(place), Some(errno)) => {
                let step = usize::try_from(place).ok();
                let step = step.and_then(|place| self.steps.get(place)).copied();
                let step = step.unwrap_or(Step::Fork);
                let message = format!(
                    "a copy of the template could not {}: {}",
                    step.doing(),
                    Errno::from_raw(errno).desc()
                );
                Err(SetupError::new(step, message))
            }
            _ => Err(gone("a copy of the template")),
        }
    }

    /// Waits until the copy has closed its end, the last of its descriptors to go.
    fn end(&self) -> Result<()> {
        match self.next()?.as_str() {
            "" => Ok(()),
            _ => Err(gone("a copy of the template")),
        }
    }

    fn next(&self) -> Result<String> {
        let mut buffer = [0; 64];
        let deadline = Instant::now() + PATIENCE;
        loop {
            if !wait_for(self.socket.as_fd(), deadline) {
                return Err(gone("a copy of the template"));
            }
            match recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(length) => return Ok(String::from_utf8_lossy(&buffer[..length]).into_owned()),
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(errno) => return Err(failed("recv")(errno)),
            }
        }
    }
}
