//! What a watch has seen, until it is reported.

use std::collections::BTreeMap;

use serde::Serialize;

use record::bytes::RawText;

/// The most changes of one report of all watches.
const MOST_CHANGES: usize = 1000;
/// The most bytes of their paths.
const MOST_BYTES: usize = 256 << 10;

/// What became of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Change {
    Created,
    Modified,
    Deleted,
}

/// What a watch has seen since its last report.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Seen {
    /// Changes.
    FilesChanged {
        /// Sorted by path, each path once, with the last that became of it.
        changes: Vec<Changed>,
        /// Whether there were more, or not all directories can be watched.
        overflow: bool,
    },
}

/// A path and what became of it.
#[derive(Debug, Serialize)]
pub struct Changed {
    /// Relative to the workspace.
    path: RawText,
    change: Change,
}

/// A directory whose changes are reported.
#[derive(Debug, Default)]
pub(super) struct Root {
    pub(super) path: Vec<u8>,
    changes: BTreeMap<Vec<u8>, Change>,
    pub(super) overflow: bool,
    pub(super) is_gone: bool,
}

/// What all watches have noted since the last report.
#[derive(Debug, Default)]
pub(super) struct Noted {
    changes: usize,
    bytes: usize,
}

impl Root {
    pub(super) fn new(path: Vec<u8>) -> Self {
        Self {
            path,
            ..Self::default()
        }
    }

    pub(super) fn covers(&self, path: &[u8]) -> bool {
        path == self.path || is_below(path, &self.path)
    }

    pub(super) fn note(&mut self, path: &[u8], change: Change, noted: &mut Noted) {
        if !is_below(path, &self.path) {
            return;
        }
        if let Some(last) = self.changes.get_mut(path) {
            // What was created has no earlier content.
            if (*last, change) != (Change::Created, Change::Modified) {
                *last = change;
            }
            return;
        }
        if noted.changes >= MOST_CHANGES || noted.bytes + path.len() > MOST_BYTES {
            self.overflow = true;
            return;
        }
        noted.changes += 1;
        noted.bytes += path.len();
        self.changes.insert(path.to_vec(), change);
    }

    /// What is to be reported, which is then forgotten.
    pub(super) fn seen(&mut self, is_partial: bool) -> Option<Seen> {
        let changes = std::mem::take(&mut self.changes);
        let overflow = std::mem::take(&mut self.overflow);
        if changes.is_empty() && !overflow {
            return None;
        }
        let changed = |(path, change): (Vec<u8>, Change)| Changed {
            path: path.into(),
            change,
        };
        Some(Seen::FilesChanged {
            changes: changes.into_iter().map(changed).collect(),
            overflow: overflow || is_partial,
        })
    }
}

pub(super) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    match directory.is_empty() {
        true => name.to_vec(),
        false => [directory, b"/", name].concat(),
    }
}

pub(super) fn is_below(path: &[u8], directory: &[u8]) -> bool {
    match path.strip_prefix(directory) {
        Some(rest) if directory.is_empty() => !rest.is_empty(),
        Some(rest) => rest.first() == Some(&b'/'),
        None => false,
    }
}
