//! Idempotency keys: a client that did not get the answer to its creation of a sandbox repeats the
//! request with the same key.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};
use tokio::sync::OwnedMutexGuard;
use wire::{Code, Failure, Party};

/// The most bytes of a key.
const LONGEST: usize = 256;
/// The most keys of a party that are remembered.
const MOST: usize = 1024;
/// How long a key is remembered.
const REMEMBERED_FOR: Duration = Duration::from_secs(3600);

/// The keys of all parties, the oldest first.
#[derive(Debug, Default)]
pub(in crate::e2b) struct Keys(Mutex<BTreeMap<Party, VecDeque<Key>>>);

/// A key. Its lock is held while a request with it makes a sandbox.
#[derive(Debug)]
struct Key {
    name: Vec<u8>,
    since: Instant,
    made: Arc<tokio::sync::Mutex<Made>>,
}

/// The sandbox that was made for a request with a key.
#[derive(Debug, Default)]
pub(in crate::e2b) struct Made {
    request: Option<[u8; 32]>,
    /// The id of the sandbox. It may be gone.
    pub(in crate::e2b) sandbox: Option<String>,
}

impl Key {
    /// Whether a request is making its sandbox, or waits for that.
    fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.made) > 1
    }
}

impl Keys {
    /// The sandbox of a key. Waits for earlier requests with the same key; later ones wait until
    /// the result is dropped.
    ///
    /// # Errors
    /// The key is too long, or was used for another request before; too many are in use.
    pub(in crate::e2b) async fn hold(
        &self,
        party: Party,
        name: &[u8],
        request: &[u8],
    ) -> Result<OwnedMutexGuard<Made>, Failure> {
        let mut made = self.find(party, name, Instant::now())?.lock_owned().await;
        let request = Some(Sha256::digest(request).into());
        if made.sandbox.is_none() {
            made.request = request;
        }
        match made.request == request {
            true => Ok(made),
            false => {
                let message = "Idempotency-Key: was used for another request before";
                Err(Failure::new(Code::BadParams, message))
            }
        }
    }

    fn find(
        &self,
        party: Party,
        name: &[u8],
        now: Instant,
    ) -> Result<Arc<tokio::sync::Mutex<Made>>, Failure> {
        if name.len() > LONGEST {
            let message = format!("Idempotency-Key: wants at most {LONGEST} bytes");
            return Err(Failure::new(Code::BadParams, message));
        }
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = all.entry(party).or_default();
        own.retain(|key| {
            key.is_in_use() || now.saturating_duration_since(key.since) < REMEMBERED_FOR
        });
        if let Some(found) = own.iter().find(|key| key.name == name) {
            return Ok(Arc::clone(&found.made));
        }
        if own.len() >= MOST {
            let Some(oldest) = own.iter().position(|key| !key.is_in_use()) else {
                let message = format!("{MOST} sandboxes with keys are being created");
                let failure = Failure::new(Code::Busy, message);
                return Err(failure.retry_after(Duration::from_secs(1)));
            };
            own.remove(oldest);
        }
        let made = Arc::default();
        own.push_back(Key {
            name: name.to_owned(),
            since: now,
            made: Arc::clone(&made),
        });
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Party = Party::Door(1);

    #[tokio::test]
    async fn a_request_waits_for_the_one_before_with_its_key() {
        let keys = Keys::default();
        let mut first = keys.hold(ONE, b"k", b"{}").await.unwrap();
        let mut second = Box::pin(keys.hold(ONE, b"k", b"{}"));
        let waits = tokio::time::timeout(Duration::from_millis(10), &mut second);
        assert!(waits.await.is_err());
        // Other keys and parties do not.
        keys.hold(ONE, b"l", b"{}").await.unwrap();
        keys.hold(Party::Door(2), b"k", b"{}").await.unwrap();
        first.sandbox = Some("id".to_owned());
        drop(first);
        assert_eq!(second.await.unwrap().sandbox.as_deref(), Some("id"));
        assert!(keys.hold(ONE, b"k", b"[]").await.is_err());
        // A first request that failed does not count.
        keys.hold(ONE, b"l", b"[]").await.unwrap();
        let long = [b'k'; LONGEST + 1];
        assert!(keys.hold(ONE, &long, b"").await.is_err());
    }

    #[test]
    fn keys_are_bounded_in_number_and_time() {
        let keys = Keys::default();
        let count = || keys.0.lock().unwrap()[&ONE].len();
        let now = Instant::now();
        let held = keys.find(ONE, b"held", now).unwrap();
        for number in 0..2 * MOST {
            keys.find(ONE, number.to_string().as_bytes(), now).unwrap();
        }
        assert_eq!(count(), MOST);
        let later = now + REMEMBERED_FOR;
        keys.find(ONE, b"new", later).unwrap();
        // One that is in use stays.
        assert_eq!(count(), 2);
        drop(held);
        keys.find(ONE, b"new", later).unwrap();
        assert_eq!(count(), 1);
        let names = (0..MOST).map(|number| number.to_string());
        let all: Vec<_> = names
            .map(|name| keys.find(ONE, name.as_bytes(), later).unwrap())
            .collect();
        assert!(keys.find(ONE, b"more", later).is_err());
        drop(all);
        assert!(keys.find(ONE, b"more", later).is_ok());
    }
}
