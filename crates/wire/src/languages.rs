//! The names of languages, which the executable has from the drivers.

use std::fmt;

/// The languages that code can be in.
#[derive(Clone, Copy)]
pub struct Languages {
    /// The language of code that nothing shows the language of.
    pub usual: &'static str,
    /// The canonical name of a language, also for an alias; `None` for an unknown language.
    pub canonical: fn(&str) -> Option<&'static str>,
}

impl Default for Languages {
    fn default() -> Self {
        Self {
            usual: "python",
            canonical: |_| None,
        }
    }
}

impl fmt::Debug for Languages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Languages").finish_non_exhaustive()
    }
}
