//! What stops a piece of work that goes on: interrupts, cancels, and clients that go.

use std::time::Duration;

use supervisor::Order;
use wire::{Code, Failure};

use super::{Doing, ENDING, Job, Kind, Work};
use crate::hub::client::{Caller, json_of};
use crate::hub::contexts::GRACE;
use crate::hub::{Action, Hub, LinkId};

impl Hub {
    /// Cancels an execution: its cell ends.
    pub(in crate::hub) fn cancel_execution(&mut self, link: LinkId, execution: u64) {
        let order = json_of(&Order::Cancel { execution });
        self.urge(link, order, Duration::ZERO);
    }

    /// Interrupts an execution, whose code gets `grace` to end by itself. If it is over meanwhile,
    /// this has no effect, also not on the next execution. The supervisor tells the caller, if there
    /// is one, whether it had.
    pub(in crate::hub) fn interrupt_execution(
        &mut self,
        link: LinkId,
        execution: u64,
        grace: Duration,
        caller: Option<Caller>,
    ) {
        if let Some(session) = self.sessions.get_mut(&link) {
            session.interrupts.push_back(caller);
        }
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX).max(1);
        let order = json_of(&Order::Interrupt {
            execution,
            grace_ms,
        });
        self.urge(link, order, grace);
    }

    /// Stops the replay that goes on in a session, if one does: what is executed again gets `grace`
    /// to end by itself. Returns whether there was one.
    pub(in crate::hub) fn stop_replay(&mut self, link: LinkId, grace: Duration) -> bool {
        let (id, wakes) = match self.replay(link) {
            Some(Doing::Wake { id }) => (id, true),
            Some(Doing::Restore { id, .. } | Doing::Resume { id }) => (id, false),
            _ => return false,
        };
        if wakes {
            // Its checkpoint has the state, and nothing else is lost with the new cell.
            let failure = Failure::new(Code::Cancelled, "the replay was interrupted");
            self.give_up_resuming(link, &failure);
            return true;
        }
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self.urge(link, json_of(&Order::Stop { id, grace_ms }), grace);
        true
    }

    /// The current work of a session, if it is a replay.
    fn replay(&self, link: LinkId) -> Option<Doing> {
        let session = self.sessions.get(&link)?;
        let Kind::Context(key) = &session.kind else {
            return None;
        };
        self.contexts.get(key).filter(|context| context.replays)?;
        session.current.as_ref().map(|current| current.doing)
    }

    /// Stops a replay that no call waits for any more.
    pub(in crate::hub) fn stop_unwanted_replay(&mut self, link: LinkId) {
        let is_wanted = (self.sessions.get(&link)).is_some_and(|session| {
            let current = session.current.as_ref();
            let callers = current.map(|current| &current.caller).into_iter();
            let mut callers = callers.chain(session.waiting.iter().map(|job| &job.caller));
            callers.any(Option::is_some)
        });
        if !is_wanted && matches!(self.replay(link), Some(Doing::Wake { .. })) {
            self.stop_replay(link, Duration::ZERO);
        }
    }

    /// Sends an order that takes effect at once, and expects the answer of what goes on
    /// within `grace` and a little.
    pub(in crate::hub) fn urge(&mut self, link: LinkId, order: String, grace: Duration) {
        if let Some(session) = self.sessions.get_mut(&link) {
            session.deadline = Some(self.now + grace + ENDING);
            self.actions.push_back(Action::Order(link, order));
        }
    }

    /// The client of this call has gone.
    pub(in crate::hub) fn abandon(&mut self, link: LinkId, caller: &Caller) {
        let Some(session) = self.sessions.get_mut(&link) else {
            return;
        };
        if session.is_run() {
            return self.end_session(link);
        }
        if let Some(execution) = session.executing(caller) {
            return self.interrupt_execution(link, execution, GRACE, None);
        }
        if (session.current.as_ref()).is_some_and(|current| current.caller.as_ref() == Some(caller))
        {
            self.stop_replay(link, GRACE);
            return;
        }
        // The answer to a creation stays: without a client it has no effect.
        let is_other = |job: &Job| job.caller.as_ref() != Some(caller);
        let before = session.waiting.len();
        session
            .waiting
            .retain(|job| is_other(job) || matches!(job.work, Work::Greet));
        if session.waiting.len() < before {
            session.processes.forget(caller);
            self.stop_unwanted_replay(link);
        }
    }
}
