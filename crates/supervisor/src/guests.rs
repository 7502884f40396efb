//! Guests: further interpreters in a supervisor's cell.
//!
//! Each gets a supervisor of its own, so that they execute at the same time. It is forked from the
//! supervisor of the cell, whose spec and descriptors it needs, and which belongs to the same
//! client.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

use nix::sys::socket::{MsgFlags, send};
use nix::sys::wait::waitpid;

use super::orders::{OrderName, Report};
use super::{Base, supervisor};
use jail::launch::SharedCell;
use jail::launch::process::fork_with;
use record::error::{Result, SetupError, Step};
use spec::{Command, RootfsRef, Spec};

/// Supervisors that wait for a place in the cell.
#[derive(Default)]
pub(super) struct Guests {
    /// Their sockets.
    waiting: RefCell<VecDeque<OwnedFd>>,
    cell: RefCell<Option<MadeWith>>,
}

/// What their cell was made with.
struct MadeWith {
    base: Base,
    spec: Spec,
}

/// The cell of another supervisor, in which a supervisor starts interpreters.
#[derive(Clone, Copy)]
pub(super) struct Place<'s> {
    pub(super) cell: &'s SharedCell,
    /// What that was made with.
    made_with: &'s Spec,
}

impl Place<'_> {
    /// The cell's rootfs by name: the default one depends on the language.
    fn rootfs(&self) -> RootfsRef {
        let label = &self.cell.plan.rootfs;
        match &self.made_with.rootfs {
            RootfsRef::Auto if label == "host" => RootfsRef::Host,
            RootfsRef::Auto => {
                let name = label
                    .split_once('@')
                    .map_or(label.as_str(), |(name, _)| name);
                RootfsRef::Named(name.to_owned())
            }
            named => named.clone(),
        }
    }

    /// The spec of an interpreter in this cell: its language and environment are those of `own`,
    /// all else is the cell's.
    ///
    /// # Errors
    /// It is not for code.
    pub(super) fn spec(&self, own: Spec) -> Result<Spec> {
        let Command::Run { .. } = own.command else {
            let message = "a context in the cell of another one wants a language";
            return Err(SetupError::new(Step::Spec, message).on("language"));
        };
        Ok(Spec {
            command: own.command,
            env: own.env,
            env_clear: own.env_clear,
            env_unset: own.env_unset,
            rootfs: self.rootfs(),
            files: Vec::new(),
            files_from: None,
            lasting: true,
            ..self.made_with.clone()
        })
    }
}

impl Guests {
    /// Notes what the cell is made with.
    pub(super) fn note_cell(&self, base: &Base, spec: &Spec) {
        let (base, spec) = (base.clone(), spec.clone());
        *self.cell.borrow_mut() = Some(MadeWith { base, spec });
    }

    pub(super) fn add(&self, socket: OwnedFd) {
        self.waiting.borrow_mut().push_back(socket);
    }

    pub(super) fn wait(&self) -> bool {
        !self.waiting.borrow().is_empty()
    }

    /// Refuses all supervisors that wait, with this reason.
    pub(super) fn refuse(&self, error: &SetupError) {
        for socket in self.waiting.borrow_mut().drain(..) {
            refuse(&socket, error.clone());
        }
    }

    /// Forks the supervisors that wait, each with what it needs of the cell.
    pub(super) fn admit(&self, share: &dyn Fn() -> Result<SharedCell>) {
        let cell = self.cell.borrow();
        let Some(MadeWith { base, spec }) = &*cell else {
            return;
        };
        // A thread may still be reading a memory figure. It ends soon.
        while sys::process::has_one_thread().unwrap_or(true)
            && let Some(socket) = self.next()
        {
            let admitted = share().and_then(|shared| {
                let place = Place {
                    cell: &shared,
                    made_with: spec,
                };
                fork(&socket, base, place)
            });
            if let Err(error) = admitted {
                refuse(&socket, error);
            }
        }
    }

    fn next(&self) -> Option<OwnedFd> {
        self.waiting.borrow_mut().pop_front()
    }
}

/// Forks the supervisor of a guest. The process in between ends at once, so nothing has to be
/// reaped later.
fn fork(socket: &OwnedFd, base: &Base, place: Place<'_>) -> Result<()> {
    let failed = |e: std::io::Error| SetupError::io(Step::Clone, "dup", &e);
    let socket = socket.try_clone().map_err(failed)?;
    let kept: Vec<BorrowedFd<'_>> = place.cell.descriptors();
    let between = fork_with(socket, &kept, |socket| {
        let life = |socket| supervisor::serve_in(socket, base, place);
        i32::from(fork_with(socket, &kept, life).is_err())
    })?;
    let ended = waitpid(between, None).map_err(|e| SetupError::os(Step::Clone, "wait4", e))?;
    match ended {
        nix::sys::wait::WaitStatus::Exited(_, 0) => Ok(()),
        _ => Err(SetupError::new(
            Step::Clone,
            "no supervisor could be forked",
        )),
    }
}

/// Answers the first order of a supervisor that will not be started.
fn refuse(socket: &OwnedFd, error: SetupError) {
    let report = Report::Failed {
        order: OrderName::Open,
        id: None,
        error: hints::explain(error),
        state: None,
        why: None,
    };
    if let Ok(mut line) = serde_json::to_vec(&report) {
        line.push(b'\n');
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        // A front end that is gone needs no answer.
        let _ = send(socket.as_raw_fd(), &line, flags);
    }
}
