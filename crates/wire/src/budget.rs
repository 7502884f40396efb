//! The bytes of clients that wait in the front end.
//!
//! What arrives is counted before it is kept, for the party that it comes from: unfinished lines
//! and bodies, calls that wait, and orders that no supervisor has read yet.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{Code, Failure, LONGEST_LINE, Party, Shares};

/// What one call of the longest kind takes on its way through HTTP: the body, what is made of it,
/// and the line that arrives. Each party has room for one, whatever the others do, where the bytes
/// are enough for all of them.
pub const ONE_CALL: usize = 3 * LONGEST_LINE;

/// The bytes that may wait, for all threads of the front end.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Mutex<Shares>>);

/// Bytes of one party that wait. They are given back when this is dropped.
#[derive(Debug)]
pub struct Share {
    budget: Budget,
    party: Party,
    bytes: usize,
}

impl Budget {
    /// `each` bytes for a party and `most` for all of at most `parties`; neither is less than one
    /// call takes.
    pub fn new(most: usize, each: usize, parties: usize) -> Self {
        Self::of(Shares::within(most, parties, each, ONE_CALL))
    }

    /// What these shares have room for.
    pub fn of(shares: Shares) -> Self {
        Self(Arc::new(Mutex::new(shares)))
    }

    fn shares(&self) -> MutexGuard<'_, Shares> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A share of a party, without bytes.
    pub fn share(&self, party: Party) -> Share {
        Share {
            budget: self.clone(),
            party,
            bytes: 0,
        }
    }

    /// Whether a party can have another byte wait.
    pub fn has_room_for(&self, party: Party) -> bool {
        self.shares().has_room_for(party)
    }

    /// Whether a party can have this many more bytes wait.
    pub fn has_room(&self, party: Party, bytes: usize) -> bool {
        self.shares().has_room(party, bytes)
    }

    /// The most bytes of a party that can wait.
    pub fn limit(&self) -> usize {
        self.shares().limit()
    }

    /// The bytes of a party that wait.
    pub fn held(&self, party: Party) -> usize {
        self.shares().held(party)
    }

    /// All bytes that wait.
    pub fn all(&self) -> usize {
        self.shares().all()
    }
}

impl Share {
    /// Has `bytes` bytes wait, if there is room for them. Fewer than before always have it.
    ///
    /// # Errors
    /// The party has used up its bytes, or all parties together have.
    pub fn try_set(&mut self, bytes: usize) -> Result<(), Failure> {
        let more = bytes.saturating_sub(self.bytes);
        let mut shares = self.budget.shares();
        if more > 0 && !shares.has_room(self.party, more) {
            let message = "too many bytes of this client's party wait already, or of all parties";
            return Err(Failure::new(Code::Busy, message).retry_after(Duration::from_secs(1)));
        }
        let others = shares.held(self.party).saturating_sub(self.bytes);
        shares.set(self.party, others.saturating_add(bytes));
        self.bytes = bytes;
        Ok(())
    }

    /// Has `bytes` bytes wait, whether there is room or not.
    pub fn set(&mut self, bytes: usize) {
        let mut shares = self.budget.shares();
        let others = shares.held(self.party).saturating_sub(self.bytes);
        shares.set(self.party, others.saturating_add(bytes));
        self.bytes = bytes;
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_given_back() {
        let (one, two) = (Party::Door(1), Party::Door(2));
        let budget = Budget::new(4 * ONE_CALL, 2 * ONE_CALL, 2);
        let mut first = budget.share(one);
        first.try_set(2 * ONE_CALL).unwrap();
        let mut second = budget.share(one);
        let failure = second.try_set(1).unwrap_err();
        assert_eq!((failure.code, second.bytes()), (Code::Busy, 0));
        assert!(failure.retry_after_ms.is_some());
        second.set(7);
        assert_eq!(budget.held(one), 2 * ONE_CALL + 7);
        // It is beyond the bound, and still gets smaller.
        second.try_set(3).unwrap();
        budget.share(two).try_set(2 * ONE_CALL - 3).unwrap();
        drop((first, second));
        assert_eq!(budget.all(), 0);
    }

    #[test]
    fn a_call_fits_each_party_where_there_are_bytes_for_all() {
        let budget = Budget::new(3 * ONE_CALL, 1, 3);
        let mut shares: Vec<Share> = (0..3).map(|n| budget.share(Party::Door(n))).collect();
        for share in &mut shares {
            share.try_set(ONE_CALL).unwrap();
            assert!(share.try_set(ONE_CALL + 1).is_err());
        }
        let budget = Budget::new(1, 1, 3);
        let mut shares: Vec<Share> = (0..3).map(|n| budget.share(Party::Door(n))).collect();
        let fitting = (shares.iter_mut()).map(|share| share.try_set(ONE_CALL / 3).is_ok());
        assert_eq!(fitting.filter(|fits| *fits).count(), 3);
        assert!(
            shares
                .iter_mut()
                .all(|share| share.try_set(ONE_CALL).is_err())
        );
        assert_eq!(budget.all(), ONE_CALL / 3 * 3);
    }
}
