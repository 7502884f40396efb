//! What supervisors say. It can hold what came out of a cell, and is passed on as it is.

use nix::errno::Errno;
use record::error::SetupError;
use serde_json::value::{RawValue, to_raw_value};
use supervisor::{OrderName, Report, State};
use wire::{
    Code, Executed, Failure, Interrupted, Notice, ProcessEvent, Ran, Restarted, Start, Watching,
};

use super::branches::Complete;
use super::client::{Caller, json_of};
use super::contexts::RESTARTED;
use super::session::{Current, Doing, Kind};
use super::{Hub, LinkId};

impl Hub {
    /// A supervisor's report. One that does not fit what was ordered is dropped.
    pub fn report(&mut self, link: LinkId, report: Report) {
        let Some(session) = self.sessions.get_mut(&link) else {
            return;
        };
        let doing = session.current.as_ref().map(|current| current.doing);
        match report {
            Report::Opened {
                language,
                rootfs,
                forked,
                template,
                ..
            } if session.opening.is_some() || doing == Some(Doing::Open) => {
                session.opened = Some((language, rootfs));
                (session.forked, session.forked_from) = (forked, template);
                session.start = match session.start {
                    Start::Cold if forked => Start::Forked,
                    Start::Forked if !forked => Start::Cold,
                    start => start,
                };
                if let Some(opening) = session.opening.take() {
                    // An interrupt has a deadline of its own.
                    session.deadline = session.deadline.filter(|own| *own != opening);
                    return;
                }
                if let Kind::Warm(index) = session.kind {
                    self.warm_opened(index);
                }
                self.done(link);
                self.settle();
            }
            Report::Failed {
                order: OrderName::Process,
                id,
                error,
                ..
            } => {
                self.process_failed(link, id, &error);
            }
            Report::Failed {
                order,
                id,
                error,
                state,
                why,
            } => {
                let state = state.map(|state| (state, why));
                self.failed(link, order, id, &error, state);
            }
            Report::Event { execution, event } => self.event(link, execution, &event),
            Report::Answer {
                execution,
                state,
                why,
                start,
                is_alive,
                record,
            } if session.execution() == Some(execution) => {
                // A pool's interpreter that had ended was started anew.
                if let (true, Some(start)) = (session.is_run(), start) {
                    session.start = start.into();
                }
                session.has_ended = !is_alive;
                self.executed(link, execution, state, why, record);
            }
            Report::Interrupted { execution, sent } => {
                if let Some(caller) = session.interrupts.pop_front().flatten() {
                    let interrupted = Interrupted {
                        interrupted: sent,
                        execution: Some(execution),
                    };
                    self.answer(&caller, &interrupted);
                }
            }
            Report::Described { description } if doing == Some(Doing::Describe) => {
                session.has_ended = says_it_ended(&description);
                self.answer_current(link, |hub, caller| hub.answer_raw(caller, &description));
            }
            Report::ProcessDone { id, pid } => self.process_done(link, id, pid),
            Report::ProcessOutput {
                process,
                stream,
                text,
                base64,
                bytes,
            } => {
                let event = ProcessEvent::ProcessOutput {
                    process: u64::from(process),
                    stream,
                    text,
                    base64,
                };
                self.process_event(link, process, bytes, event);
            }
            Report::ProcessEnded {
                process,
                exit_code,
                signal,
                why,
            } => {
                let event = ProcessEvent::ProcessEnded {
                    process: u64::from(process),
                    exit_code,
                    signal,
                    why,
                };
                self.process_event(link, process, 0, event);
            }
            Report::File { id, answer } => self.file_report(link, id, &answer),
            Report::Checkpointed {
                id,
                bytes,
                layout,
                left_out,
            } => self.checkpointed(link, id, Complete::new(bytes, layout), left_out),
            Report::Restored { id, state, why } => self.restored(link, id, state, why),
            Report::Compared { id, files } => self.compared(link, id, files),
            Report::WatchEnded { id, why } => {
                if let Some((client, call)) = session.watches.remove(&id) {
                    self.tell(client, Some(&call), &json_of(&Notice::WatchEnded { why }));
                }
            }
            Report::Restarted { .. } if doing == Some(Doing::Restart) => {
                let Some(context) = session.kind.context().map(str::to_owned) else {
                    return;
                };
                session.has_ended = false;
                self.end_guests(link);
                let (state, why) = RESTARTED;
                let why = Some(why.to_owned());
                let restarted = Restarted {
                    context,
                    state,
                    why,
                };
                self.answer_current(link, |hub, caller| hub.answer(caller, &restarted));
            }
            Report::Ended { why } => session.why = why.or(session.why.take()),
            _ => {}
        }
    }

    /// Ends what a session does; returns it.
    pub(super) fn done(&mut self, link: LinkId) -> Option<Current> {
        let suspends = self.suspends_by_itself(link);
        let session = self.sessions.get_mut(&link)?;
        let current = session.current.take();
        if !session.ending {
            session.deadline = None;
        }
        // A suspension that failed does not count as use of the context.
        if !suspends {
            self.touch_session(link);
        }
        self.pump(link);
        current
    }

    /// Answers the call that a session works for, and goes on.
    pub(super) fn answer_current(&mut self, link: LinkId, answer: impl FnOnce(&mut Self, &Caller)) {
        let session = self.sessions.get(&link);
        let current = session.and_then(|session| session.current.as_ref());
        let caller = current.and_then(|current| current.caller.clone());
        if let Some(caller) = caller {
            answer(self, &caller);
        }
        self.done(link);
    }

    fn event(&mut self, link: LinkId, number: u64, event: &RawValue) {
        let session = self.sessions.get(&link);
        let Some(current) = session.and_then(|session| session.current.as_ref()) else {
            return;
        };
        let Doing::Execute { execution, events } = current.doing else {
            return;
        };
        if let (true, true, Some(caller)) = (events, execution == number, current.caller.clone()) {
            self.tell(caller.client, Some(&caller.id), event.get());
        }
    }

    fn executed(
        &mut self,
        link: LinkId,
        execution: u64,
        state: State,
        why: Option<String>,
        record: Box<RawValue>,
    ) {
        let Some(session) = self.sessions.get(&link) else {
            return;
        };
        let (start, kind) = (session.start, session.kind.clone());
        if state == State::Lost {
            // Its next interpreter gets a new cell.
            self.end_guests(link);
        }
        match kind {
            Kind::Context(key) => self.answer_current(link, |hub, caller| {
                let executed = Executed {
                    context: key.name,
                    execution,
                    state,
                    why,
                    record,
                };
                hub.answer(caller, &executed);
            }),
            _ => self.answer_current(link, |hub, caller| {
                let start = Some(start);
                hub.answer(caller, &Ran { start, record });
            }),
        }
    }

    fn failed(
        &mut self,
        link: LinkId,
        order: OrderName,
        id: Option<u64>,
        error: &SetupError,
        state: Option<(State, Option<String>)>,
    ) {
        let Some(session) = self.sessions.get(&link) else {
            return;
        };
        let Some(doing) = session.current.as_ref().map(|current| current.doing) else {
            return;
        };
        let failure = || {
            let (state, why) = state.clone().unzip();
            Failure {
                state,
                why: why.flatten(),
                ..Failure::of(error)
            }
        };
        match (doing, order) {
            (_, OrderName::Open) if session.opening.is_some() || doing == Doing::Open => {
                self.not_opened(link, error)
            }
            (Doing::Execute { execution, .. }, OrderName::Execute)
                if id.is_none_or(|id| id == execution) =>
            {
                self.answer_current(link, |hub, caller| hub.fail(caller, Failure::of(error)));
            }
            (Doing::File { id: own, .. }, OrderName::File) if id.is_none_or(|id| id == own) => {
                self.file_failed(link, error);
            }
            (Doing::Checkpoint { id: own, .. }, OrderName::Checkpoint) if id == Some(own) => {
                self.not_checkpointed(link, own, Failure::of(error));
            }
            (Doing::Suspend { id: own }, OrderName::Checkpoint) if id == Some(own) => {
                self.not_checkpointed(link, own, Failure::of(error));
            }
            (Doing::Restore { id: own, .. } | Doing::Wake { id: own }, OrderName::Restore)
                if id == Some(own) =>
            {
                self.not_restored(link, failure());
            }
            (Doing::Compare { id: own, .. }, OrderName::Compare)
            | (Doing::Resume { id: own }, OrderName::Resume)
                if id == Some(own) =>
            {
                self.answer_current(link, |hub, caller| hub.fail(caller, failure()));
            }
            (Doing::Restart, OrderName::Restart) | (Doing::Describe, OrderName::Describe) => {
                self.answer_current(link, |hub, caller| hub.fail(caller, failure()));
            }
            _ => {}
        }
    }

    /// A file of a request could not be written: what needs it does not begin.
    fn file_failed(&mut self, link: LinkId, error: &SetupError) {
        let session = self.sessions.get(&link);
        let current = session.and_then(|session| session.current.as_ref());
        let mut failure = Failure::of(error);
        if error.errno == Some(Errno::ENOENT as i32) {
            failure.code = Code::NotFound;
        }
        match current.is_some_and(|current| current.caller.is_some()) {
            true => self.answer_current(link, |hub, caller| hub.fail(caller, failure)),
            false => self.end_whole(link, Code::Failed, &Failure::of(error).message),
        }
    }

    /// The cell could not be made. A run's answer is the record that says so.
    fn not_opened(&mut self, link: LinkId, error: &SetupError) {
        let Some(session) = self.sessions.get_mut(&link) else {
            return;
        };
        match session.kind {
            Kind::Warm(index) => {
                self.warm_failed(index, &error.to_string());
                self.end_session(link);
            }
            Kind::Run(_) => {
                let record = to_raw_value(&engine::run::refused(error.clone()));
                let callers = session.take_callers();
                self.end_session(link);
                for caller in callers {
                    match &record {
                        Ok(record) => {
                            let (start, record) = (None, record.clone());
                            self.answer(&caller, &Ran { start, record });
                        }
                        Err(_) => self.fail(&caller, Failure::of(error)),
                    }
                }
            }
            Kind::Context(_) if session.suspension.is_some() => {
                self.give_up_resuming(link, &Failure::of(error));
            }
            Kind::Context(_) => self.end_failed(link, &Failure::of(error)),
        }
    }

    fn file_report(&mut self, link: LinkId, id: u64, answer: &RawValue) {
        let Some(session) = self.sessions.get_mut(&link) else {
            return;
        };
        if let Some((client, call)) = session.watches.get(&id).cloned() {
            return self.tell(client, Some(&call), answer.get());
        }
        let Some(current) = &session.current else {
            return;
        };
        match current.doing {
            Doing::File { id: own, is_watch } if own == id => {
                let caller = current.caller.clone();
                if let (true, Some(caller)) = (is_watch, caller) {
                    session.watches.insert(id, (caller.client, caller.id));
                    let watching = Watching { watch: id };
                    self.answer_current(link, |hub, caller| hub.answer(caller, &watching));
                } else {
                    self.answer_current(link, |hub, caller| hub.answer_raw(caller, answer));
                }
            }
            _ => {}
        }
    }

    /// A session has nothing more to do for now.
    pub(super) fn rest(&mut self, link: LinkId) {
        let Some(session) = self.sessions.get(&link) else {
            return;
        };
        match session.is_run() {
            true => self.end_session(link),
            false if self.draining.is_some() => {
                self.end_whole(link, Code::ShuttingDown, "the server is ending")
            }
            false => {}
        }
    }
}

/// Whether a context's description says that it has no interpreter.
fn says_it_ended(description: &RawValue) -> bool {
    #[derive(serde::Deserialize)]
    struct Described {
        is_alive: bool,
    }
    let described: Result<Described, _> = serde_json::from_str(description.get());
    described.is_ok_and(|described| !described.is_alive)
}
