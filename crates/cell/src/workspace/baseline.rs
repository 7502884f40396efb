//! What a workspace contains before the program changes it.

use std::collections::BTreeMap;

use nix::sys::stat::SFlag;

use super::{Digest, Kind, Stage};
use record::bytes::RawText;

/// Files, directories and links by path.
pub(crate) type Baseline = BTreeMap<RawText, Original>;

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

/// What is made of `stage`.
pub(super) fn of(stage: &Stage) -> Baseline {
    let entries = stage.entries.iter().map(|(path, entry)| {
        let original = match &entry.kind {
            Kind::Directory => Original::Directory { mode: entry.mode },
            Kind::Link(text) => Original::Link { text: text.clone() },
            Kind::File(piece) => Original::File(piece.digest),
        };
        (path.clone().into(), original)
    });
    entries.collect()
}
