//! The names that a layer has put into a tree.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};

/// Names by the inode of their directory, since a directory has several paths where links
/// lead to it. Instead of a name, which may be long, its digest is kept; its key is random,
/// so that no archive can have two names with one digest.
#[derive(Default)]
pub(super) struct OwnNames {
    key: RandomState,
    names: HashSet<(u64, u64)>,
}

impl OwnNames {
    pub(super) fn insert(&mut self, directory: u64, name: &[u8]) {
        self.names.insert((directory, self.key.hash_one(name)));
    }

    pub(super) fn contains(&self, directory: u64, name: &[u8]) -> bool {
        self.names.contains(&(directory, self.key.hash_one(name)))
    }
}
