//! What one build works with.

use std::collections::{BTreeMap, BTreeSet};

use nix::sys::signalfd::siginfo;

use super::cache::Cache;
use super::progress::Progress;
use super::scratch::{Scratch, Writer};
use super::tool::Tool;
use cell::BlockedSignals;
use cell::run;
use record::error::Result;

/// One file to fetch.
#[derive(Clone, Debug)]
pub(super) struct Item {
    /// For people: name and version.
    pub(super) name: String,
    pub(super) sha256: String,
    /// In bytes; 0 when nobody said.
    pub(super) size: u64,
}

/// The places and the state of one build.
#[derive(Debug)]
pub(super) struct Shop {
    pub(super) cache: Cache,
    pub(super) scratch: Scratch,
    /// Who writes what cells write.
    pub(super) writer: Writer,
    pub(super) progress: Progress,
    /// Sizes of files that some lock file knows, by SHA-256: pip does not say.
    pub(super) sizes: BTreeMap<String, u64>,
    /// Package lists that are as new as this build.
    pub(super) updated: BTreeSet<String>,
    signals: BlockedSignals,
}

impl Shop {
    /// # Errors
    /// No place for the cache, or a host that cannot have cells.
    pub(super) fn open(quiet: bool) -> Result<Self> {
        // From here on an interrupt is an error like any other: what was begun is
        // undone on the way out.
        let signals = BlockedSignals::block()?;
        let cache = Cache::open()?;
        let resolved = run::resolve(&Tool::new("true", ["true"]).spec()?)?;
        Ok(Self {
            scratch: Scratch::new(&cache.scratch())?,
            cache,
            writer: Writer(resolved.plan.ids.outer_uid),
            progress: Progress::new(quiet),
            sizes: BTreeMap::new(),
            updated: BTreeSet::new(),
            signals,
        })
    }

    /// # Errors
    /// The caller has interrupted the build.
    pub(super) fn check(&self) -> Result<()> {
        let caught: Option<siginfo> = self.signals.fd().read_signal().unwrap_or(None);
        match caught {
            Some(_) => Err(super::cancelled()),
            None => Ok(()),
        }
    }

    /// Those of `items` that the cache lacks.
    pub(super) fn missing<'a>(&self, items: &'a [Item]) -> Vec<&'a Item> {
        let lacks = |item: &&Item| self.cache.find(&item.sha256).is_none();
        items.iter().filter(lacks).collect()
    }
}
