//! Messages from init, and their effects on the cell.

use std::os::fd::{AsFd as _, OwnedFd};

use nix::errno::Errno;
use nix::sys::signal::Signal;

use super::{Phase, Watch};
use cgroup::CellCgroup;
use jail::child::report::{Message, Role};
use jail::launch::{END_DEADLINE, in_words};
use record::Start;
use record::error::{SetupError, Step};
use sys::process::monotonic_ns;
use verdict::evidence::Stop;

impl Watch<'_, '_> {
    pub(crate) fn on_message(&mut self) {
        let is_leaving = self.cell.phase == Phase::Leaving;
        match Message::receive(self.cell.running.report.as_fd()) {
            // Only the report of the end matters now.
            Ok(Some(message)) if is_leaving && !matches!(message, Message::Ended { .. }) => {}
            Ok(Some(message)) => self.take_message(message),
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            // Init has ended what was started for this supervisor, or is gone.
            Ok(None) | Err(_) if self.cell.running.is_guest => self.cell.phase = Phase::Over,
            // End of file: init is gone.
            Ok(None) | Err(_) => self.kill(),
        }
    }

    pub(super) fn take_message(&mut self, message: Message) {
        match message {
            Message::Started { fds } => self.on_started(fds),
            Message::Waiting { fds } => {
                self.take_descriptors(fds);
                self.cell.phase = Phase::Waiting;
                self.cell.deadline = None;
            }
            Message::Sockets { fds, is_last } => {
                if let Err(error) = self.cell.take_sockets(fds, is_last) {
                    self.cell.seen.failure = Some(error);
                    self.kill();
                }
            }
            Message::Prepared { fds } => self.cell.prepared = Some(fds),
            Message::Failed(failed) => {
                let failure = in_words(&self.cell.plan, failed);
                self.cell.seen.failure = Some(failure);
                // The cell of a copy is not ended while the template forks (`copy/talk.rs`).
                if self.cell.running.start != Start::Forked {
                    self.kill();
                }
            }
            Message::Staying => self.on_started(Vec::new()),
            Message::Spawned { number, pid, fds } => {
                self.cell.process_is_started();
                self.cell.processes.spawned(number, pid, fds);
            }
            Message::Refused { number, failed } => {
                self.cell.process_is_started();
                self.cell.processes.refused(number, failed);
            }
            Message::Exited { number, status } => self.cell.processes.exited(number, status),
            Message::Frozen => self.cell.freezes = self.cell.freezes.saturating_sub(1),
            Message::Ended { status, .. } if self.cell.running.is_guest => {
                self.cell.seen.status = Some(status);
                self.execution.ended_ns = monotonic_ns();
                self.cell.note_use();
                self.cell.phase = Phase::Over;
            }
            Message::Ended { status, usage } => {
                self.cell.seen.status = Some(status);
                self.cell.seen.reaped = Some(usage);
                self.execution.ended_ns = monotonic_ns();
                self.enter(Phase::Ending, END_DEADLINE);
            }
        }
    }

    pub(crate) fn on_started(&mut self, fds: Vec<(Role, OwnedFd)>) {
        // It needs no more descriptors. Older kernels do not know the option.
        let _ = sys::process::take_descriptors(self.cell.running.report.as_fd(), false);
        self.take_descriptors(fds);
        if self.cell.seen.failure.is_some() {
            return;
        }
        let executed_ns =
            (self.cell.running.progress.began_ns(Step::Exec)).unwrap_or_else(monotonic_ns);
        self.cell.seen.executed_ns = executed_ns;
        self.cell.phase = Phase::Running;
        self.begin(executed_ns);
        if let Some(on_start) = self.on_start {
            on_start.started();
        }
        if let Some(Err(error)) = self.cell.running.cgroup.as_ref().map(CellCgroup::throttle) {
            self.end(Stop::Internal(error.to_string()));
            return;
        }
        let is_alone = self.control.is_none() && self.cell.running.start == Start::Cold;
        if is_alone && self.cell.running.output.iter().any(Option::is_some) {
            // Room for output, while the program is still starting. A cell that waits for
            // a call is to answer it fast.
            sys::text::drop_text_pages();
        }
        if let Some(stop) = self.cell.seen.stopped.take() {
            self.end(stop);
        }
    }

    pub(super) fn take_descriptors(&mut self, fds: Vec<(Role, OwnedFd)>) {
        for (role, fd) in fds {
            match role {
                Role::Listener => self.cell.listener = Some(fd),
                Role::Scratch(index) if index == self.cell.seen.scratch.len() => {
                    self.cell.seen.scratch.push(fd);
                }
                Role::Terminal => self.show_terminal(fd),
                Role::Namespace(kind) => self.cell.namespaces.push((kind, fd)),
                // Out of order or place: not from an init of this version.
                Role::Scratch(_) | Role::Ruleset | Role::Socket(..) => {}
            }
        }
    }

    /// Makes the caller's terminal show the cell's, which has this `master`.
    pub(super) fn show_terminal(&mut self, master: OwnedFd) {
        let display = self.cell.running.display.take();
        match display.map(|display| display.show(master)).transpose() {
            Ok(relay) => self.cell.running.relay = relay,
            Err(error) => {
                self.cell.seen.failure = Some(error);
                self.kill();
            }
        }
    }

    pub(crate) fn on_init_gone(&mut self) {
        let killed_by = self.cell.running.init.reap();
        // What init had sent before its end is still in the socket.
        while let Ok(Some(message)) = Message::receive(self.cell.running.report.as_fd()) {
            self.take_message(message);
        }
        self.cell.phase = Phase::Over;
        let seen = &mut self.cell.seen;
        let is_silent = seen.failure.is_none() && seen.status.is_none();
        if is_silent && seen.executed_ns == 0 && seen.stopped.is_none() {
            // The shared page has the step.
            let step = self.cell.running.progress.step().unwrap_or(Step::Clone);
            let signal = killed_by.unwrap_or(Signal::SIGKILL);
            seen.failure = Some(
                SetupError::new(step, format!("the cell's init was killed by {signal}"))
                    .hint("is there too little memory for the files that go in?"),
            );
        }
    }
}
