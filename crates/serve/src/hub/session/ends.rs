//! The end of a cell, and of what it served.

use supervisor::Order;

use super::{ENDING, Kind, Phase};
use crate::hub::client::json_of;
use crate::hub::{Action, ClientId, Hub, LinkId};
use crate::protocol::{Code, Deleted, Failure, Notice, State};

impl Hub {
    /// Ends a cell whose work is done or has nobody to be done for.
    pub(in crate::hub) fn end_session(&mut self, link: LinkId) {
        let Some(session) = self.sessions.get_mut(&link) else {
            return;
        };
        if session.ending {
            return;
        }
        session.ending = true;
        self.end_guests(link);
        let Some(session) = self.sessions.get_mut(&link) else {
            return;
        };
        match session.phase {
            Phase::Active => {}
            // That has been ordered already.
            Phase::Leaving => return,
            Phase::Suspended | Phase::Waiting => return self.link_gone(link, ""),
        }
        session.deadline = Some(self.now + ENDING);
        self.actions
            .push_back(Action::Order(link, json_of(&Order::End)));
        self.actions.push_back(Action::End(link));
    }

    /// Ends a cell whose work is not done; its calls fail.
    pub(in crate::hub) fn end_whole(&mut self, link: LinkId, code: Code, why: &str) {
        let Some(session) = self.sessions.get_mut(&link) else {
            return;
        };
        let callers = session.take_callers();
        let in_context = matches!(session.kind, Kind::Context(_));
        if let Kind::Context(key) = &session.kind
            && self
                .contexts
                .get(key)
                .is_some_and(|context| context.link == link)
        {
            self.contexts.remove(key);
        }
        self.end_session(link);
        for caller in callers {
            let failure = Failure::new(code, why);
            let failure = match in_context {
                true => failure.with_state(State::Lost, why),
                false => failure,
            };
            self.fail(&caller, failure);
        }
    }

    /// Ends a context that did not come about; its calls fail.
    pub(in crate::hub) fn end_failed(&mut self, link: LinkId, failure: &Failure) {
        let session = self.sessions.get_mut(&link);
        let callers = session.map(super::Session::take_callers);
        self.end_whole(link, Code::Failed, "");
        for caller in callers.into_iter().flatten() {
            self.fail(&caller, failure.clone());
        }
    }

    /// The connection to a supervisor has ended, and its cell with it.
    pub fn link_gone(&mut self, link: LinkId, why: &str) {
        if self.is_left(link, why) {
            return;
        }
        self.end_guests(link);
        let Some(mut session) = self.sessions.remove(&link) else {
            return;
        };
        self.leave_cell(link, session.cell_of);
        let held = session.suspension.iter().map(|held| held.number);
        let checkpoints: Vec<u64> = session.checkpoints.keys().copied().chain(held).collect();
        for number in checkpoints {
            self.remove_checkpoint(number);
        }
        let why = session.why.take().unwrap_or_else(|| why.to_owned());
        let callers = session.take_callers();
        if let Kind::Warm(index) = session.kind
            && !session.ending
        {
            self.warm_failed(index, &why);
        }
        if let Kind::Context(key) = &session.kind
            && let Some(context) = self.contexts.get(key)
            && context.link == link
        {
            let owner = context.owner;
            self.contexts.remove(key);
            self.tell_end(owner, &key.name, &why);
        }
        let in_context = matches!(session.kind, Kind::Context(_));
        for caller in callers {
            let failure = Failure::new(Code::Lost, format!("the cell is gone: {why}"));
            let failure = match in_context {
                true => failure.with_state(State::Lost, why.clone()),
                false => failure,
            };
            self.fail(&caller, failure);
        }
        let deleters = session.deleted_by.iter().map(|(caller, _)| caller.client);
        let deleters: Vec<ClientId> = deleters.collect();
        for (client, call) in session.watches.into_values() {
            if !deleters.contains(&client) {
                let why = why.clone();
                self.tell(client, Some(&call), &json_of(&Notice::WatchEnded { why }));
            }
        }
        let processes = std::mem::take(&mut session.processes);
        self.end_processes(processes, &why);
        for (caller, deleted) in session.deleted_by {
            self.answer(&caller, &Deleted { deleted });
        }
        self.settle();
    }
}
