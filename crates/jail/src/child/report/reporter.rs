//! What init sends.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::MsgFlags;
use nix::unistd::Pid;

use super::{
    ENDED, EXITED, FAILED, FROZEN, MAX_FDS, PREPARED, REFUSED, Role, SOCKETS, SPAWNED, STARTED,
    STAYING, WAITING, encode, send_with_fds,
};
use crate::child::fail::{At as _, Call, Fail, Site};
use plan::Namespace;
use record::error::Step;
use sys::process::ChildUsage;
use sys::shared::Progress;

/// Init's end of the socket.
pub(in crate::child) struct Reporter<'a> {
    socket: BorrowedFd<'a>,
    /// `None` after the set-up, so that the progress of its last step stays noted.
    progress: Option<&'a Progress>,
}

impl<'a> Reporter<'a> {
    pub(in crate::child) fn new(socket: &'a OwnedFd, progress: &'a Progress) -> Self {
        Self {
            socket: socket.as_fd(),
            progress: Some(progress),
        }
    }

    /// A reporter for the time after the set-up.
    pub(in crate::child) fn afterwards(socket: &'a OwnedFd) -> Self {
        Self {
            socket: socket.as_fd(),
            progress: None,
        }
    }

    /// Notes that `step` begins now, or goes on.
    pub(in crate::child) fn enter(&self, step: Step) -> Site {
        if let Some(progress) = self.progress {
            progress.enter(step);
        }
        Site::new(step)
    }

    pub(in crate::child) fn socket(&self) -> BorrowedFd<'a> {
        self.socket
    }

    /// If this does not reach the supervisor, the supervisor is gone, and init ends, too.
    pub(in crate::child) fn failed(&self, failure: &Fail) {
        let _ = self.send(FAILED, &fields_of(failure), &[]);
    }

    /// Reports that a process runs. The supervisor gets the filter's listener and the master of the
    /// process's terminal.
    pub(in crate::child) fn spawned(
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
    pub(in crate::child) fn refused(&self, number: u32, failure: &Fail) {
        let [step, call, errno, item] = fields_of(failure);
        let fields = [i64::from(number), step, call, errno, item];
        let _ = self.send(REFUSED, &fields, &[]);
    }

    /// Reports that a process has ended.
    pub(in crate::child) fn exited(&self, number: u32, status: i32) {
        let fields = [i64::from(number), i64::from(status)];
        let _ = self.send(EXITED, &fields, &[]);
    }

    /// Reports that the cell goes on without a program.
    pub(in crate::child) fn staying(&self) -> Result<(), Fail> {
        self.send(STAYING, &[], &[])
            .at(Site::new(Step::Report), Call::Send)
    }

    /// The program runs. The supervisor gets the directories of the scratch places, to look into
    /// once all processes are dead, the filter's listener, the master of the cell's terminal and,
    /// from a template, the namespaces above its copies.
    pub(in crate::child) fn started(
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
    pub(in crate::child) fn waiting(&self, scratch: &[OwnedFd]) -> Result<(), Fail> {
        self.pass(WAITING, scratch, [])
    }

    /// Reports that the routes exist. The supervisor gets the sockets that they lead to.
    pub(in crate::child) fn sockets(&self, sockets: &[(Role, OwnedFd)]) -> Result<(), Fail> {
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

    /// The pid namespace of a copy's cell exists or, in a second message, the cell is set up.
    pub(in crate::child) fn prepared<'f>(
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

    pub(in crate::child) fn frozen(&self) {
        let _ = self.send(FROZEN, &[], &[]);
    }

    pub(in crate::child) fn ended(&self, status: i32, usage: ChildUsage) {
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
