//! What outlives a request: the memory of each party, and sessions.
//!
//! A session has one purpose: a client of a revision before 2026-07-28 can cancel a request by
//! another one, and only its own requests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::mcp::Memory;
use tokio::sync::oneshot;
use wire::Party;

use crate::random;

/// The most sessions of one party; the one that was used least recently goes first.
const MOST: usize = 256;
/// The most requests of one session that can be cancelled.
const MOST_REQUESTS: usize = 1024;

/// The sessions and memories of all parties.
#[derive(Debug, Default)]
pub(super) struct Sessions(Arc<Mutex<HashMap<Party, OfParty>>>);

#[derive(Debug, Default)]
struct OfParty {
    memory: Memory,
    sessions: HashMap<String, Session>,
}

#[derive(Debug)]
struct Session {
    used: Instant,
    /// The requests that can be cancelled, by their ids.
    requests: HashMap<String, oneshot::Sender<()>>,
}

/// A session's name, and whose it is.
#[derive(Clone, Debug)]
pub(super) struct SessionName {
    party: Party,
    id: String,
}

/// A pending request, until this is dropped.
#[derive(Debug)]
pub(super) struct GoingOn {
    sessions: Sessions,
    session: SessionName,
    request: String,
    /// Ready when the request is cancelled.
    pub(super) cancelled: oneshot::Receiver<()>,
}

impl Sessions {
    /// What the requests of a party share.
    pub(super) fn memory(&self, party: Party) -> Memory {
        self.lock().entry(party).or_default().memory.clone()
    }

    /// Opens a session, and returns its name. `None` where the kernel has no random bytes.
    pub(super) fn open(&self, party: Party, now: Instant) -> Option<String> {
        let id = record::bytes::hex(&random::bytes(16).ok()?);
        let mut parties = self.lock();
        let sessions = &mut parties.entry(party).or_default().sessions;
        if sessions.len() >= MOST {
            let oldest = sessions.iter().min_by_key(|(_, session)| session.used);
            let oldest = oldest.map(|(id, _)| id.clone());
            oldest.and_then(|id| sessions.remove(&id));
        }
        let session = Session {
            used: now,
            requests: HashMap::new(),
        };
        sessions.insert(id.clone(), session);
        Some(id)
    }

    /// Finds the session of this name, and notes that it is used now.
    pub(super) fn touch(&self, party: Party, id: &[u8]) -> Option<SessionName> {
        let id = std::str::from_utf8(id).ok()?.to_owned();
        let name = SessionName { party, id };
        self.with(&name, |session| session.used = Instant::now())?;
        Some(name)
    }

    /// Ends a session; returns whether it existed.
    pub(super) fn end(&self, party: Party, id: &[u8]) -> bool {
        let mut parties = self.lock();
        let sessions = parties.get_mut(&party).map(|found| &mut found.sessions);
        let id = std::str::from_utf8(id).ok();
        sessions
            .zip(id)
            .is_some_and(|(sessions, id)| sessions.remove(id).is_some())
    }

    /// Notes that a request has begun.
    pub(super) fn begin(&self, session: &SessionName, request: &str) -> GoingOn {
        let (sender, cancelled) = oneshot::channel();
        self.with(session, |session| {
            if session.requests.len() < MOST_REQUESTS {
                session.requests.entry(request.to_owned()).or_insert(sender);
            }
        });
        GoingOn {
            sessions: Self(self.0.clone()),
            session: session.clone(),
            request: request.to_owned(),
            cancelled,
        }
    }

    /// Cancels a request.
    pub(super) fn cancel(&self, session: &SessionName, request: &str) {
        let sender = self.with(session, |session| session.requests.remove(request));
        if let Some(sender) = sender.flatten() {
            // It may have ended meanwhile.
            let _ = sender.send(());
        }
    }

    fn with<T>(&self, name: &SessionName, action: impl FnOnce(&mut Session) -> T) -> Option<T> {
        let mut parties = self.lock();
        let session = parties.get_mut(&name.party)?.sessions.get_mut(&name.id)?;
        Some(action(session))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Party, OfParty>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for GoingOn {
    fn drop(&mut self) {
        // A request of the same id that was refused must not forget the first one.
        self.cancelled.close();
        self.sessions.with(&self.session, |session| {
            let is_over = session
                .requests
                .get(&self.request)
                .is_some_and(oneshot::Sender::is_closed);
            if is_over {
                session.requests.remove(&self.request);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Party = Party::Door(0);
    const OTHER: Party = Party::Door(1);

    #[test]
    fn a_session_belongs_to_its_party() {
        let sessions = Sessions::default();
        let id = sessions.open(ONE, Instant::now()).unwrap();
        assert!(sessions.touch(ONE, id.as_bytes()).is_some());
        assert!(sessions.touch(OTHER, id.as_bytes()).is_none());
        assert!(!sessions.end(OTHER, id.as_bytes()));
        assert!(sessions.end(ONE, id.as_bytes()));
        assert!(sessions.touch(ONE, id.as_bytes()).is_none());
    }

    #[test]
    fn a_request_is_cancelled_by_its_own_session() {
        let sessions = Sessions::default();
        let open = || {
            let id = sessions.open(ONE, Instant::now()).unwrap();
            sessions.touch(ONE, id.as_bytes()).unwrap()
        };
        let (one, other) = (open(), open());
        let mut going_on = sessions.begin(&one, "1");
        sessions.cancel(&other, "1");
        sessions.cancel(&one, "2");
        assert!(going_on.cancelled.try_recv().is_err());
        // One of the same id is refused by the door, and takes nothing away.
        drop(sessions.begin(&one, "1"));
        sessions.cancel(&one, "1");
        assert_eq!(going_on.cancelled.try_recv(), Ok(()));
    }

    #[test]
    fn sessions_and_what_goes_on_are_bounded() {
        let sessions = Sessions::default();
        let first = sessions.open(ONE, Instant::now()).unwrap();
        for _ in 0..MOST {
            sessions.open(ONE, Instant::now()).unwrap();
        }
        assert!(sessions.touch(ONE, first.as_bytes()).is_none());
        let id = sessions.open(ONE, Instant::now()).unwrap();
        let session = sessions.touch(ONE, id.as_bytes()).unwrap();
        for request in 0..MOST_REQUESTS * 2 {
            drop(sessions.begin(&session, &request.to_string()));
        }
        let left = sessions.with(&session, |session| session.requests.len());
        assert_eq!(left, Some(0));
    }
}
