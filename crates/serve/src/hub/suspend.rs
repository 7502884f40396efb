//! Contexts without processes: their state is a checkpoint until they have something to do.
//!
//! A suspended context keeps its session, which has no supervisor meanwhile. A call that
//! needs the interpreter waits in it, and the session waits for a cell like a new context
//! does: in the queue of a client.

use std::time::Instant;

use supervisor::{Layout, Open, Order};

use super::admission::What;
use super::branches::{Carry, Complete, Origin, unlike};
use super::client::{Caller, json_of};
use super::contexts::ContextKey;
use super::session::{Doing, Job, Kind, Phase, Session, Work};
use super::status::is_of;
use super::{Action, Hub, LinkId, Party};
use crate::protocol::{Code, ContextName, Failure, Notice, State, Suspended};

/// Why a context's state is that of an earlier moment.
pub(super) const CONTINUED: &str =
    "the context was suspended, and its state was put into a new cell";

/// The checkpoint of a context that is suspended.
#[derive(Debug)]
pub(super) struct Suspension {
    pub(super) number: u64,
    pub(super) complete: Complete,
}

impl Hub {
    /// `context.suspend`
    pub(super) fn suspend(&mut self, caller: &Caller, params: &ContextName) -> Result<(), Failure> {
        let link = self.find(caller, &params.context)?.link;
        self.refuse_if_shared("suspended", &params.context, link)?;
        let session = self.sessions.get(&link);
        let held = session.and_then(|session| session.suspension.as_ref());
        if let Some(held) = held
            && session.is_some_and(|session| session.waiting.is_empty())
        {
            let suspended = Suspended {
                context: params.context.clone(),
                bytes: held.complete.bytes,
            };
            self.answer(caller, &suspended);
            return Ok(());
        }
        if !self.has_like(link) {
            return Err(unlike("suspended", &params.context));
        }
        self.assign(caller, &params.context, |_| Work::Carry(Carry::Suspend))
    }

    /// `context.resume`
    pub(super) fn resume(&mut self, caller: &Caller, params: &ContextName) -> Result<(), Failure> {
        self.assign(caller, &params.context, |_| Work::Carry(Carry::Resume))
    }

    /// Whether the state of a context can be put into another cell.
    pub(super) fn has_like(&self, link: LinkId) -> bool {
        self.sessions.get(&link).is_some_and(|session| {
            let context = match &session.kind {
                Kind::Context(key) => self.contexts.get(key),
                Kind::Run(_) | Kind::Warm(_) => None,
            };
            session.forked || context.is_some_and(|context| context.branches || context.replays)
        })
    }

    /// The state of a context is on the disk. Its processes end.
    pub(super) fn suspended(&mut self, link: LinkId, suspension: Suspension) {
        let Some(session) = self.sessions.get_mut(&link) else {
            return;
        };
        let current = session.current.take();
        let caller = current.and_then(|current| current.caller);
        let bytes = suspension.complete.bytes;
        session.suspension = Some(suspension);
        session.checkpoints.retain(|_, held| held.is_some());
        let watches = std::mem::take(&mut session.watches);
        let context = session.kind.context().unwrap_or_default().to_owned();
        self.leave(link);
        for (client, call) in watches.into_values() {
            let why = "the context was suspended".to_owned();
            self.tell(client, Some(&call), &json_of(&Notice::WatchEnded { why }));
        }
        if let Some(caller) = caller {
            self.answer(&caller, &Suspended { context, bytes });
        }
    }

    /// Ends the processes of a session that is not over.
    fn leave(&mut self, link: LinkId) {
        if let Some(session) = self.sessions.get_mut(&link) {
            session.phase = Phase::Leaving;
            session.deadline = Some(self.now + super::session::ENDING);
            self.actions
                .push_back(Action::Order(link, json_of(&Order::End)));
            self.actions.push_back(Action::End(link));
        }
    }

    /// The processes of a session are gone. True if it goes on without them, because its
    /// state is on the disk.
    pub(super) fn is_left(&mut self, link: LinkId, why: &str) -> bool {
        let Some(session) = self.sessions.get_mut(&link) else {
            return false;
        };
        if session.ending || session.suspension.is_none() {
            return false;
        }
        let was = std::mem::replace(&mut session.phase, Phase::Suspended);
        (session.deadline, session.why) = (None, None);
        if was == Phase::Active {
            // They ended before they had the state.
            self.not_resumed(link, &Failure::new(Code::Failed, why));
        }
        self.line_up_if_needed(link);
        self.settle();
        true
    }

    /// A suspended context could not be given its state, and stays suspended. What waits
    /// for it fails.
    fn not_resumed(&mut self, link: LinkId, failure: &Failure) {
        let Some(session) = self.sessions.get_mut(&link) else {
            return;
        };
        let callers = session.take_callers();
        for caller in callers {
            let why = "the context is still suspended";
            let mut failure = failure.clone().with_state(State::Kept, why);
            failure.message = format!(
                "the context is still suspended, since its state could not be put into a new cell: {}",
                failure.message
            );
            self.fail(&caller, failure);
        }
    }

    /// As `not_resumed`; also ends the processes of the new cell.
    pub(super) fn give_up_resuming(&mut self, link: LinkId, failure: &Failure) {
        self.not_resumed(link, failure);
        self.leave(link);
    }

    /// A context has its state again.
    pub(super) fn continued(&mut self, link: LinkId) {
        let session = self.sessions.get_mut(&link);
        if let Some(held) = session.and_then(|session| session.suspension.take()) {
            self.remove_checkpoint(held.number);
        }
        self.done(link);
    }

    /// Has a suspended context wait for a cell, if it has something to do.
    pub(super) fn line_up_if_needed(&mut self, link: LinkId) {
        let Some(session) = self.sessions.get_mut(&link) else {
            return;
        };
        if session.phase != Phase::Suspended {
            return;
        }
        let mut callers = session.waiting.iter().filter_map(|job| job.caller.clone());
        let Some(caller) = callers.next() else {
            session.waiting.clear();
            return;
        };
        let Kind::Context(key) = session.kind.clone() else {
            return;
        };
        let memory = session.memory;
        session.phase = Phase::Waiting;
        let request = (self.contexts.get(&key)).and_then(|context| context.branching.clone());
        match request {
            Some(request) => {
                self.line_up(&caller, request, memory, What::Resume(link));
                self.admit();
                self.shorten_queue();
            }
            None => self.not_lined_up(link, &Failure::new(Code::Failed, "its request is gone")),
        }
    }

    /// A suspended context gets no cell for now: what waits in it fails.
    pub(super) fn not_lined_up(&mut self, link: LinkId, failure: &Failure) {
        if let Some(session) = self.sessions.get_mut(&link)
            && session.phase == Phase::Waiting
        {
            session.phase = Phase::Suspended;
            for caller in session.take_callers() {
                self.fail(&caller, failure.clone());
            }
        }
    }

    /// The client by which a suspended context waited for a cell is gone; others may wait
    /// for it too.
    pub(super) fn line_up_again(&mut self, link: LinkId) {
        if let Some(session) = self.sessions.get_mut(&link)
            && session.phase == Phase::Waiting
        {
            session.phase = Phase::Suspended;
            self.line_up_if_needed(link);
        }
    }

    /// A suspended context gets a cell, which it begins with its state.
    pub(super) fn restart_suspended(&mut self, link: LinkId, request: &super::requests::Request) {
        let Some(session) = self.sessions.get_mut(&link) else {
            return;
        };
        if session.phase != Phase::Waiting {
            return;
        }
        let held = session.suspension.as_ref();
        let held = held.map(|held| (held.number, held.complete.layout));
        let Some((number, layout)) = held.filter(|_| !session.waiting.is_empty()) else {
            session.phase = Phase::Suspended;
            return;
        };
        let Ok(directory) = self.directory(number) else {
            let failure = Failure::new(Code::Failed, "the server has no checkpoints");
            return self.not_lined_up(link, &failure);
        };
        let Some(session) = self.sessions.get_mut(&link) else {
            return;
        };
        let template = session.template.filter(|_| layout == Layout::Template);
        let begin = Work::Carry(Carry::Wake(Origin {
            directory,
            layout,
            template,
        }));
        session.waiting.push_front(Job {
            caller: None,
            work: begin,
        });
        session.phase = Phase::Active;
        let Kind::Context(ContextKey { party, .. }) = session.kind else {
            return;
        };
        let waiting = match layout {
            Layout::Replay => self.take_warm(request, true, party).map(|(link, _)| link),
            _ => template.and_then(|_| self.take_forked(request, template, party)),
        };
        match waiting {
            Some(other) => self.move_to(link, other),
            None => self.open_again(link, layout, request),
        }
    }

    /// A session without a supervisor gets a new one.
    fn open_again(&mut self, link: LinkId, layout: Layout, request: &super::requests::Request) {
        let Some(session) = self.sessions.get_mut(&link) else {
            return;
        };
        let open = Open {
            request: request.text(true),
            lasting: true,
            ready: true,
            forked: layout == Layout::Template,
            awaited: true,
            fixed_layout: layout == Layout::Fixed,
            ..Open::default()
        };
        self.actions.push_back(match open.forked {
            true => Action::SpawnForking(link, session.template),
            false => Action::Spawn(link),
        });
        session.waiting.push_front(Job {
            caller: None,
            work: Work::Open(open),
        });
        self.pump(link);
    }

    /// A session without a supervisor gets that of a cell that waits, whose session is over.
    fn move_to(&mut self, link: LinkId, other: LinkId) {
        let (Some(waiting), Some(session)) =
            (self.sessions.remove(&other), self.sessions.remove(&link))
        else {
            return;
        };
        let session = Session {
            opened: waiting.opened,
            forked: waiting.forked,
            forked_from: waiting.forked_from,
            template: waiting.template,
            ..session
        };
        if let Kind::Context(key) = &session.kind
            && let Some(context) = self.contexts.get_mut(key)
        {
            context.link = other;
        }
        let callers = session.waiting.iter().filter_map(|job| job.caller.clone());
        let callers: Vec<Caller> = callers.collect();
        self.sessions.insert(other, session);
        for caller in callers {
            self.place(&caller, other);
        }
        self.pump(other);
    }

    /// Suspends contexts that have had nothing to do for as long as their clients said.
    pub(super) fn suspend_idle_contexts(&mut self) {
        let mut links: Vec<LinkId> = Vec::new();
        for context in self.contexts.values_mut() {
            // Once: the next time is when it was used again.
            if context
                .suspend_at
                .take_if(|when| *when <= self.now)
                .is_some()
            {
                links.push(context.link);
            }
        }
        for link in links {
            let is_like = self.has_like(link);
            let Some(session) = self.sessions.get_mut(&link) else {
                continue;
            };
            let is_idle = session.current.is_none() && session.waiting.is_empty();
            let is_idle = is_idle && session.guests.is_empty();
            if is_like && is_idle && session.phase == Phase::Active && !session.ending {
                session.push(None, Work::Carry(Carry::Suspend));
                self.pump(link);
            }
        }
    }

    /// When the first context is to be suspended.
    pub(super) fn next_suspension(&self) -> Option<Instant> {
        let times = self
            .contexts
            .values()
            .filter_map(|context| context.suspend_at);
        times.min()
    }

    /// Contexts that are suspended, of all parties or of one.
    pub(super) fn count_suspended(&self, of: Option<Party>) -> usize {
        let sessions = self.sessions.values();
        let sessions = sessions.filter(|session| is_of(of, session.kind.party()));
        sessions.filter(|session| !session.has_cell()).count()
    }

    /// Whether what a session does is its suspension, which no call asked for.
    pub(super) fn suspends_by_itself(&self, link: LinkId) -> bool {
        let session = self.sessions.get(&link);
        let current = session.and_then(|session| session.current.as_ref());
        current.is_some_and(|current| {
            matches!(current.doing, Doing::Suspend { .. }) && current.caller.is_none()
        })
    }
}
