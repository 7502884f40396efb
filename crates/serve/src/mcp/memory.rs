//! What later requests must know of earlier ones.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::kept::Kept;
use super::tools::Languages;

/// The most contexts whose language is remembered; the oldest go first.
const MOST_CONTEXTS: usize = 4096;

/// The languages of the contexts that were created, and what runs have left. Copies share it.
#[derive(Clone, Debug, Default)]
pub struct Memory(Arc<Mutex<Remembered>>);

#[derive(Debug, Default)]
pub(super) struct Remembered {
    languages: Languages,
    /// The contexts of `languages`, the oldest first.
    order: VecDeque<String>,
    pub(super) kept: Kept,
}

impl Memory {
    pub(super) fn lock(&self) -> MutexGuard<'_, Remembered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Remembered {
    pub(super) const fn languages(&self) -> &Languages {
        &self.languages
    }

    pub(super) fn add(&mut self, context: String, language: String) {
        self.forget(&context);
        self.order.push_back(context.clone());
        self.languages.insert(context, language);
        while self.order.len() > MOST_CONTEXTS {
            if let Some(oldest) = self.order.pop_front() {
                self.languages.remove(&oldest);
            }
        }
    }

    pub(super) fn forget(&mut self, context: &str) {
        if self.languages.remove(context).is_some() {
            self.order.retain(|known| known != context);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_contexts_are_forgotten() {
        let memory = Memory::default();
        for number in 0..=MOST_CONTEXTS {
            let mut known = memory.lock();
            known.add(number.to_string(), "python".to_owned());
        }
        let mut known = memory.lock();
        assert_eq!(known.languages().len(), MOST_CONTEXTS);
        assert!(!known.languages().contains_key("0"));
        known.forget("1");
        known.add("2".to_owned(), "bash".to_owned());
        assert_eq!(known.languages()["2"], "bash");
        assert_eq!(known.order.len(), known.languages().len());
    }
}
