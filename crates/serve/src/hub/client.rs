//! Clients, their calls, and the answers.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::value::RawValue;
use wire::{Branch, CallId, Cancel, Code, Done, Failure, Share};

use super::admission::{Pending, What};
use super::contexts::{ContextKey, within_bounds};
use super::session::Work;
use super::{Action, ClientId, Hub, LinkId, Party};

/// Calls with fewer bytes, such as `cancel`, are counted and never refused: without them, a party
/// that has used up its bytes could not give any back.
pub(super) const SMALL: usize = 512;
/// The most unanswered calls of a client.
const MOST_CALLS: usize = 1024;

/// A call's client and id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Caller {
    pub(super) client: ClientId,
    pub(super) id: CallId,
    /// For a part of a `context.fork`: the fork's number, and which of its branches.
    pub(super) branch: Option<(u64, usize)>,
}

impl Caller {
    pub(super) fn new(client: ClientId, id: CallId) -> Self {
        Self {
            client,
            id,
            branch: None,
        }
    }
}

/// A client.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) party: Party,
    /// Whether the server ends with it.
    pub(super) owner: bool,
    /// Whether it has closed its side, and goes once its calls are answered.
    input_over: bool,
    /// Whether too much waits for it, so that it gets no output of processes now.
    pub(super) is_full: bool,
    /// Whether its connection is being closed.
    hung_up: bool,
    /// Calls that have not been answered.
    pub(super) calls: BTreeMap<CallId, CallState>,
    /// Those of them that wait for a cell, the oldest first.
    pub(super) waiting: VecDeque<Pending>,
}

/// A call that has not been answered.
#[derive(Debug)]
pub(super) struct CallState {
    method: &'static str,
    since: Instant,
    /// Where it is carried out, once it is.
    pub(super) link: Option<LinkId>,
    /// Its bytes, until they have gone on to a supervisor.
    share: Option<Share>,
}

impl Client {
    pub(super) fn new(party: Party, owner: bool) -> Self {
        Self {
            party,
            owner,
            input_over: false,
            is_full: false,
            hung_up: false,
            calls: BTreeMap::new(),
            waiting: VecDeque::new(),
        }
    }

    pub(super) fn reads(&self) -> bool {
        !self.hung_up
    }
}

impl Hub {
    /// Notes a call, whose id is its client's only unanswered one.
    pub(super) fn register(
        &mut self,
        caller: &Caller,
        method: &'static str,
        bytes: usize,
    ) -> Result<(), Failure> {
        let now = self.now;
        let mut share = self.share_of(caller.client);
        let Some(client) = self.clients.get_mut(&caller.client) else {
            return Ok(());
        };
        if client.calls.contains_key(&caller.id) {
            let message = format!("call {} has not been answered yet", caller.id);
            let failure = Failure::new(Code::DuplicateId, message);
            return Err(failure.hint("give each call an id of its own"));
        }
        if client.calls.len() >= MOST_CALLS {
            let message = format!("{MOST_CALLS} calls of this client have not been answered yet");
            let failure = Failure::new(Code::Busy, message);
            return Err(failure.retry_after(Duration::from_millis(100)));
        }
        match bytes <= SMALL {
            true => share.set(bytes),
            false => share.try_set(bytes)?,
        }
        let state = CallState {
            method,
            since: now,
            link: None,
            share: Some(share),
        };
        client.calls.insert(caller.id.clone(), state);
        Ok(())
    }

    /// Notes where a call is carried out.
    pub(super) fn place(&mut self, caller: &Caller, link: LinkId) {
        if caller.branch.is_some() {
            return;
        }
        let client = self.clients.get_mut(&caller.client);
        if let Some(call) = client.and_then(|client| client.calls.get_mut(&caller.id)) {
            call.link = Some(link);
        }
    }

    /// Answers a call with its result.
    pub(super) fn answer(&mut self, caller: &Caller, result: &impl Serialize) {
        match serde_json::to_string(result) {
            Ok(text) => self.answer_text(caller, &text),
            Err(error) => self.fail(caller, Failure::new(Code::Failed, error.to_string())),
        }
    }

    /// Answers a call with a result that is JSON already.
    pub(super) fn answer_raw(&mut self, caller: &Caller, result: &RawValue) {
        self.answer_text(caller, result.get());
    }

    fn answer_text(&mut self, caller: &Caller, result: &str) {
        if self.close_call(caller, "ok") {
            let id = json_of(&Some(&caller.id));
            self.say(
                caller.client,
                format!("{{\"id\":{id},\"result\":{result}}}"),
            );
            self.leave_if_over(caller.client);
        }
    }

    /// Answers a call with an error.
    pub(super) fn fail(&mut self, caller: &Caller, failure: Failure) {
        if let Some(branch) = caller.branch {
            return self.branch_over(branch, Branch::of(failure));
        }
        if self.close_call(caller, &failure.code.name()) {
            self.say_error(caller.client, Some(&caller.id), &failure);
            self.leave_if_over(caller.client);
        }
    }

    /// Says what is wrong with a line that is not one of the client's calls.
    pub(super) fn refuse(&mut self, client: ClientId, id: Option<CallId>, failure: Failure) {
        let nothing = Duration::ZERO;
        let party = self.party_of(client);
        self.metrics
            .count(party, "none", &failure.code.name(), nothing);
        self.say_error(client, id.as_ref(), &failure);
    }

    /// Sends an event of a call, or news that no call asked for.
    pub(super) fn tell(&mut self, client: ClientId, id: Option<&CallId>, event: &str) {
        if self.clients.get(&client).is_some_and(Client::reads) {
            let id = json_of(&id);
            self.say(client, format!("{{\"id\":{id},\"event\":{event}}}"));
        }
    }

    /// Whether the call was there to be answered.
    fn close_call(&mut self, caller: &Caller, outcome: &str) -> bool {
        let client = self.clients.get_mut(&caller.client);
        let call = client.and_then(|client| client.calls.remove(&caller.id));
        if let Some(call) = &call {
            let took = self.now.saturating_duration_since(call.since);
            let party = self.party_of(caller.client);
            self.metrics.count(party, call.method, outcome, took);
        }
        let is_there = call.is_some();
        if let Some(call) = call {
            self.pass_share(call);
        }
        is_there
    }

    /// A call's bytes have gone on to its supervisor's connection.
    pub(super) fn sent(&mut self, caller: &Caller) {
        let client = self.clients.get_mut(&caller.client);
        let call = client.and_then(|client| client.calls.get_mut(&caller.id));
        let share = call.and_then(|call| call.link.zip(call.share.take()));
        if let Some((link, share)) = share {
            self.actions.push_back(Action::Hold(link, share));
        }
    }

    /// A call is over; its order may not have been written yet.
    fn pass_share(&mut self, call: CallState) {
        if let Some((link, share)) = call.link.zip(call.share) {
            self.actions.push_back(Action::Hold(link, share));
        }
    }

    fn say_error(&mut self, client: ClientId, id: Option<&CallId>, failure: &Failure) {
        let (id, error) = (json_of(&id), json_of(failure));
        self.say(client, format!("{{\"id\":{id},\"error\":{error}}}"));
    }

    fn say(&mut self, client: ClientId, line: String) {
        self.actions.push_back(Action::Say(client, line));
    }

    /// The client has closed its side. It still gets its answers.
    pub fn input_over(&mut self, client: ClientId) {
        if let Some(state) = self.clients.get_mut(&client) {
            state.input_over = true;
        }
        self.leave_if_over(client);
    }

    fn leave_if_over(&mut self, client: ClientId) {
        let is_over = |client: &Client| client.input_over && client.calls.is_empty();
        if self.clients.get(&client).is_some_and(is_over) {
            self.hang_up(client);
        }
    }

    pub(super) fn hang_up(&mut self, client: ClientId) {
        if let Some(state) = self.clients.get_mut(&client)
            && !state.hung_up
        {
            state.hung_up = true;
            self.actions.push_back(Action::HangUp(client));
        }
    }

    /// A client's connection has ended: what it asked for is cancelled, and its contexts
    /// are deleted, except those that it wanted to be kept.
    pub fn gone(&mut self, id: ClientId) {
        let Some(client) = self.clients.remove(&id) else {
            return;
        };
        self.turns.leave(client.party, id);
        self.shares.leave(client.party);
        let own: Vec<ContextKey> = self
            .contexts
            .iter()
            .filter(|(_, context)| context.owner == id)
            // No client knows of one whose creation was not answered.
            .filter(|(_, context)| !context.keep || self.is_made_for(context.link, id))
            .map(|(key, _)| key.clone())
            .collect();
        for key in own {
            self.end_context(&key, "its client has gone", None);
        }
        let mut again = Vec::new();
        for pending in client.waiting {
            if let What::Resume(link) = pending.what {
                again.push(link);
            }
            if pending.caller.branch.is_some() {
                self.fail(
                    &pending.caller,
                    Failure::new(Code::Lost, "its client has gone"),
                );
            }
        }
        for (call, state) in client.calls {
            if let Some(link) = state.link {
                self.abandon(link, &Caller::new(id, call));
            }
            self.pass_share(state);
        }
        again.into_iter().for_each(|link| self.line_up_again(link));
        self.end_watches_of(id);
        self.drop_uploads_of(id);
        self.leave_processes(id);
        if client.owner {
            self.drain(Duration::ZERO);
        }
        self.settle();
    }

    /// Whether a client's call that creates a context has not been answered yet.
    fn is_made_for(&self, link: LinkId, client: ClientId) -> bool {
        let session = self.sessions.get(&link);
        let mut waiting = session.into_iter().flat_map(|session| &session.waiting);
        waiting.any(|job| {
            let is_own = (job.caller.as_ref()).is_some_and(|caller| caller.client == client);
            is_own && matches!(job.work, Work::Greet)
        })
    }

    /// `cancel`
    pub(super) fn cancel(&mut self, caller: &Caller, params: &Cancel) -> Result<(), Failure> {
        let target = Caller::new(caller.client, params.call.clone());
        let grace = within_bounds(params.grace)?;
        let unknown = || {
            let message = format!("call {} is not waiting for an answer", params.call);
            Failure::new(Code::NotFound, message)
        };
        let client = self.clients.get_mut(&caller.client).ok_or_else(unknown)?;
        let state = client.calls.get(&params.call).ok_or_else(unknown)?;
        let done = match state.link {
            _ if target == *caller => false,
            None => {
                let before = client.waiting.len();
                client.waiting.retain(|pending| pending.caller != target);
                before > client.waiting.len()
            }
            Some(link) => self.cancel_in_session(link, &target, grace),
        };
        if done && self.call_is_waiting_nowhere(&target) {
            let failure = Failure::new(Code::Cancelled, "the call was cancelled before it began");
            self.fail(&target, failure);
        }
        self.answer(caller, &Done { done });
        Ok(())
    }

    /// Whether no session will answer it.
    fn call_is_waiting_nowhere(&self, target: &Caller) -> bool {
        let client = self.clients.get(&target.client);
        let Some(state) = client.and_then(|client| client.calls.get(&target.id)) else {
            return false;
        };
        let session = state.link.and_then(|link| self.sessions.get(&link));
        !session.is_some_and(|session| session.has(target))
    }

    /// Removes a call from a session, or cancels what goes on for it.
    fn cancel_in_session(
        &mut self,
        link: LinkId,
        target: &Caller,
        grace: Option<Duration>,
    ) -> bool {
        let Some(session) = self.sessions.get_mut(&link) else {
            return false;
        };
        if let Some(execution) = session.executing(target) {
            match grace.filter(|_| !session.is_run()) {
                Some(grace) => self.interrupt_execution(link, execution, grace, None),
                None => self.cancel_execution(link, execution),
            }
            return true;
        }
        let is_target = |caller: &Option<Caller>| caller.as_ref() == Some(target);
        if session
            .current
            .as_ref()
            .is_some_and(|job| is_target(&job.caller))
        {
            // All else is over before long.
            return self.stop_replay(link, grace.unwrap_or_default());
        }
        let makes_session = |work: &Work| matches!(work, Work::Greet) || session.is_run();
        let job = session.waiting.iter().find(|job| is_target(&job.caller));
        let ends = job.is_some_and(|job| makes_session(&job.work));
        let before = session.waiting.len();
        session.waiting.retain(|job| !is_target(&job.caller));
        let found = before > session.waiting.len();
        if found {
            session.processes.forget(target);
        }
        if ends {
            self.end_whole(
                link,
                Code::Cancelled,
                "the call that makes it was cancelled",
            );
        }
        self.stop_unwanted_replay(link);
        found
    }
}

pub(super) fn json_of(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned())
}
