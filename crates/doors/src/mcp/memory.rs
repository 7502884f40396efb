//! State that later requests need from earlier ones.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::kept::Kept;

/// The files that runs have left. Copies share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory(Arc<Mutex<Kept>>);

impl Memory {
    pub(super) fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
