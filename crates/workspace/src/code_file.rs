//! The file in the workspace that a driver puts the code into.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};

use super::Digest;
use record::bytes::RawText;

/// Where it is, and what it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeFile {
    path: RawText,
    digest: Digest,
}

impl CodeFile {
    /// For code of this name.
    pub fn new(name: &str, code: &RawText) -> Self {
        Self {
            path: RawText::from(name),
            digest: Digest::of_bytes(code.as_bytes()),
        }
    }

    /// The digest of `file`, if this is the code's file. It is read from its start then,
    /// and is at its start otherwise.
    pub(super) fn recognize(&self, path: &RawText, mut file: &File, size: u64) -> Option<Digest> {
        if *path != self.path || size != self.digest.size {
            return None;
        }
        let found = Digest::of(file.take(size), |_| Ok::<_, io::Error>(())).ok();
        if found != Some(self.digest) {
            file.rewind().ok()?;
            return None;
        }
        found
    }
}
