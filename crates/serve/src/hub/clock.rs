//! What happens because time has passed, and the server's end.

use std::time::{Duration, Instant};

use spec::quantity::Bound;

use super::client::Caller;
use super::session::ENDING;
use super::{Action, Hub};
use crate::protocol::{Code, Done, Failure, Shutdown};

impl Hub {
    /// It is `now`. Called before anything else of a turn of the loop, and after it.
    pub fn tick(&mut self, now: Instant) {
        self.now = now.max(self.now);
        self.expire_queue();
        self.end_late_sessions();
        self.end_idle_contexts();
        self.suspend_idle_contexts();
        self.end_if_unused();
        if let Some(deadline) = self.draining
            && deadline <= self.now
        {
            self.end_all();
        }
        self.settle();
    }

    /// When [`Hub::tick`] has something to do.
    pub fn next_tick(&self) -> Option<Instant> {
        let late = self
            .sessions
            .values()
            .filter_map(|session| session.deadline);
        let unused = self.unused_since.zip(self.settings.idle_exit);
        let unused = unused.map(|(since, after)| since + after);
        let drain = self.draining.map(|deadline| match deadline > self.now {
            true => deadline,
            false => deadline.max(self.now) + ENDING,
        });
        [
            self.next_expiry(),
            late.min(),
            self.next_idle_end(),
            self.next_suspension(),
            self.next_refill(),
            unused.filter(|_| self.draining.is_none()),
            drain,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Gives free cells to calls and pools.
    pub(super) fn settle(&mut self) {
        self.admit();
        self.refill();
        let is_used = !self.clients.is_empty() || !self.contexts.is_empty();
        self.unused_since = match is_used {
            true => None,
            false => self.unused_since.or(Some(self.now)),
        };
        if self.draining.is_some() && self.sessions.is_empty() {
            self.actions.push_back(Action::Exit);
        }
    }

    fn end_late_sessions(&mut self) {
        let is_late = |deadline: Instant| deadline <= self.now;
        let late = self.sessions.iter();
        let late = late.filter(|(_, session)| session.deadline.is_some_and(is_late));
        let late: Vec<_> = late.map(|(link, _)| *link).collect();
        for link in late {
            self.actions.push_back(Action::Forget(link));
            self.link_gone(link, "its supervisor did not answer in time");
        }
    }

    fn end_if_unused(&mut self) {
        let unused = self.unused_since.zip(self.settings.idle_exit);
        if unused.is_some_and(|(since, after)| since + after <= self.now) {
            self.drain(Duration::ZERO);
        }
    }

    /// `shutdown`
    pub(super) fn shut_down(&mut self, caller: &Caller, params: &Shutdown) -> Result<(), Failure> {
        if !self.is_operator(self.party_of(caller.client)) {
            let message = "only the user that runs the server, or root, may end it";
            return Err(Failure::new(Code::NotAllowed, message));
        }
        let most = self.settings.drain;
        let asked = match params.drain {
            Some(Bound(Some(asked))) => asked.min(most),
            _ => most,
        };
        self.answer(caller, &Done { done: true });
        self.drain(asked);
        Ok(())
    }

    /// Begins the server's end: executions may go on for as long as this, and nothing
    /// new begins.
    pub fn drain(&mut self, within: Duration) {
        let deadline = self.now + within;
        let deadline = self
            .draining
            .map_or(deadline, |before| before.min(deadline));
        self.draining = Some(deadline);
        self.turns = super::Turns::default();
        let clients = self.clients.values_mut();
        let waiting = clients.flat_map(|client| client.waiting.drain(..));
        let waiting: Vec<_> = waiting.collect();
        for pending in waiting {
            let failure = Failure::new(Code::ShuttingDown, "the server is ending");
            self.refuse_pending(&pending, &failure);
        }
        let is_idle = |session: &super::Session| session.current.is_none() || session.is_warm();
        let idle = self.sessions.iter().filter(|(_, session)| is_idle(session));
        let idle: Vec<_> = idle.map(|(link, _)| *link).collect();
        for link in idle {
            self.end_whole(link, Code::ShuttingDown, "the server is ending");
        }
        if deadline <= self.now {
            self.end_all();
        }
        self.settle();
    }

    fn end_all(&mut self) {
        let all: Vec<_> = self.sessions.keys().copied().collect();
        for link in all {
            self.end_whole(link, Code::ShuttingDown, "the server is ending");
        }
    }
}
