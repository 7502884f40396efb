//! What a workspace contains before the program changes it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

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

/// Adds a file of this content, or replaces one.
pub(crate) fn put(baseline: &mut Baseline, path: &Path, content: &[u8]) {
    let file = Original::File(Digest::of_bytes(content));
    baseline.insert(name_of(path), file);
}

/// Removes a path and what is below it.
pub(crate) fn take_out(baseline: &mut Baseline, path: &Path) {
    baseline.retain(|name, _| !Path::new(OsStr::from_bytes(name.as_bytes())).starts_with(path));
}

/// A path as the walk of a workspace has it.
fn name_of(path: &Path) -> RawText {
    let plain: PathBuf = path.components().collect();
    plain.as_os_str().as_bytes().to_vec().into()
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
