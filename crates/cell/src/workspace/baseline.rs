//! What a workspace contains before the program changes it.

use std::collections::BTreeMap;

use nix::sys::stat::SFlag;

use super::{Digest, Kind, Stage};
use record::bytes::RawText;

/// Files, directories and links by path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Baseline(BTreeMap<RawText, Original>);

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Original {
    Directory { mode: u32 },
    Link { text: Vec<u8> },
    File(Digest),
}

impl Original {
    pub(super) fn kind(&self) -> SFlag {
        match self {
            Self::Directory { .. } => SFlag::S_IFDIR,
            Self::Link { .. } => SFlag::S_IFLNK,
            Self::File(_) => SFlag::S_IFREG,
        }
    }

    /// Bytes of a file's content.
    pub(super) fn size(&self) -> u64 {
        match self {
            Self::File(digest) => digest.size,
            _ => 0,
        }
    }
}

impl Baseline {
    /// What is made of `stage`.
    pub(crate) fn of(stage: &Stage) -> Self {
        let entries = stage.entries().map(|(path, entry)| {
            let original = match &entry.kind {
                Kind::Directory => Original::Directory { mode: entry.mode },
                Kind::Link(text) => Original::Link { text: text.clone() },
                Kind::File(piece) => Original::File(piece.digest),
            };
            (path.to_vec().into(), original)
        });
        Self(entries.collect())
    }

    pub(crate) fn insert(&mut self, path: impl Into<RawText>, original: Original) {
        self.0.insert(path.into(), original);
    }

    pub(super) fn remove(&mut self, path: &RawText) {
        self.0.remove(path);
    }

    pub(super) fn get(&self, path: &RawText) -> Option<&Original> {
        self.0.get(path)
    }

    /// The digest of the file at `path`.
    pub(super) fn file(&self, path: &RawText) -> Option<Digest> {
        match self.0.get(path) {
            Some(Original::File(digest)) => Some(*digest),
            _ => None,
        }
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (&RawText, &Original)> {
        self.0.iter()
    }
}
