//! The number of connections, and the parties that they count for.
//!
//! A connection counts for a party once a request on it has shown that party's token. Until then it
//! counts for no party, and any host that reaches the port can open more: such connections have
//! places of their own, where the newest takes the place of the oldest.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use tokio::sync::Notify;
use wire::{Code, Failure, Party, Shares};

/// All connections divided by this are the places for those without a token.
const UNKNOWN_DIVISOR: usize = 4;

/// The connections of all clients.
#[derive(Debug)]
pub(super) struct Places {
    /// The party of all connections, where no token is demanded.
    only: Option<Party>,
    most_unknown: usize,
    inside: Mutex<Inside>,
}

#[derive(Debug)]
struct Inside {
    known: Shares,
    /// Connections without a token, the oldest first.
    unknown: BTreeMap<u64, Arc<Notify>>,
    /// The number of the last connection.
    last: u64,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    number: u64,
    party: Mutex<Option<Party>>,
    ended: Arc<Notify>,
}

impl Places {
    /// Places for `most` connections of clients with this number of tokens.
    pub(super) fn new(most: usize, tokens: usize) -> Arc<Self> {
        let most_unknown = match tokens {
            0 => 0,
            _ => (most / UNKNOWN_DIVISOR).max(1),
        };
        let known = Shares::new(most.saturating_sub(most_unknown).max(1), tokens);
        Arc::new(Self {
            only: (tokens == 0).then_some(Party::Door(0)),
            most_unknown,
            inside: Mutex::new(Inside {
                known,
                unknown: BTreeMap::new(),
                last: 0,
            }),
        })
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a new connection, unless there are too many.
    pub(super) fn enter(self: &Arc<Self>) -> Option<Arc<Place>> {
        let mut inside = self.inside();
        inside.last += 1;
        let number = inside.last;
        let ended = Arc::new(Notify::new());
        match self.only {
            Some(party) if !inside.known.has_room_for(party) => return None,
            Some(party) => inside.known.take(party),
            None => {
                if inside.unknown.len() >= self.most_unknown
                    && let Some((_, oldest)) = inside.unknown.pop_first()
                {
                    oldest.notify_one();
                }
                inside.unknown.insert(number, Arc::clone(&ended));
            }
        }
        Some(Arc::new(Place {
            places: Arc::clone(self),
            number,
            party: Mutex::new(self.only),
            ended,
        }))
    }
}

impl Place {
    /// Waits until another connection needs this place.
    pub(super) async fn ended(&self) {
        self.ended.notified().await;
    }

    /// Notes whose requests the connection carries; returns whether that party can have another.
    fn belongs_to(&self, party: Party) -> bool {
        let mut own = self.party.lock().unwrap_or_else(PoisonError::into_inner);
        if *own == Some(party) {
            return true;
        }
        let mut inside = self.places.inside();
        if !inside.known.has_room_for(party) {
            return false;
        }
        inside.known.take(party);
        match own.replace(party) {
            Some(before) => inside.known.leave(before),
            None => drop(inside.unknown.remove(&self.number)),
        }
        true
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let own = *self.party.lock().unwrap_or_else(PoisonError::into_inner);
        let mut inside = self.places.inside();
        match own {
            Some(party) => inside.known.leave(party),
            None => drop(inside.unknown.remove(&self.number)),
        }
    }
}

/// Counts the connection of a request among those of its party.
///
/// # Errors
/// The party has used up its share of the connections.
pub(crate) fn count(request: &Request<Body>, party: Party) -> Result<(), Failure> {
    match request.extensions().get::<Arc<Place>>() {
        Some(place) if !place.belongs_to(party) => {
            let message = "this client has used up its share of the connections";
            Err(Failure::new(Code::Busy, message).retry_after(Duration::from_secs(1)))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a connection has to end.
    fn has_ended(place: &Place) -> bool {
        use futures_util::FutureExt as _;
        place.ended().now_or_never().is_some()
    }

    #[test]
    fn without_tokens_all_connections_are_alike() {
        let places = Places::new(3, 0);
        let all: Vec<_> = (0..3).map(|_| places.enter().unwrap()).collect();
        assert!(places.enter().is_none());
        assert!(all.iter().all(|place| place.belongs_to(Party::Door(0))));
        drop(all);
        assert!(places.enter().is_some());
    }

    #[test]
    fn connections_without_a_token_only_displace_each_other() {
        let places = Places::new(8, 2);
        let known = places.enter().unwrap();
        assert!(known.belongs_to(Party::Door(0)));
        let unknown: Vec<_> = (0..4).map(|_| places.enter().unwrap()).collect();
        let ended: Vec<bool> = unknown.iter().map(|place| has_ended(place)).collect();
        assert_eq!(ended, [true, true, false, false]);
        assert!(!has_ended(&known));
        // A place that was taken is not given back twice.
        drop(unknown);
        assert!(places.inside().unknown.is_empty());
    }

    #[test]
    fn each_token_has_its_share_whatever_connection_it_comes_on() {
        let places = Places::new(8, 2);
        let enter = |party| {
            let place = places.enter().unwrap();
            place.belongs_to(Party::Door(party)).then_some(place)
        };
        let mut first: Vec<_> = (0..6).map_while(|_| enter(0)).collect();
        assert_eq!(first.len(), 5);
        let second = enter(1).unwrap();
        assert!(enter(1).is_none());
        // A proxy sends requests of many clients on one connection.
        assert!(!second.belongs_to(Party::Door(0)));
        assert!(!first[0].belongs_to(Party::Door(1)));
        drop(second);
        assert!(first[0].belongs_to(Party::Door(1)));
        assert!(first[0].belongs_to(Party::Door(1)));
        assert!(enter(0).is_some());
        first.clear();
        assert!(enter(1).is_some());
    }
}
