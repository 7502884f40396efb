//! The directories that a program writes to: what goes in before it starts, and what
//! comes out when it has ended.
//!
//! In: [`inputs`] reads files, directories and archives with the caller's ids, into a
//! [`Stage`] (names, and their content in memory) that init makes the workspace of. What
//! was put in is the [`Baseline`].
//!
//! Out: [`collect`] walks the workspace, compares it with the baseline, and copies what
//! changed to `--out` ([`OutDir`]); [`KeptDir`] gets everything back that the workspace
//! contains. The workspace is a tmpfs that a hostile program filled: nothing in it is
//! followed, only regular files are read, and entries, depth and bytes are limited.

#![forbid(unsafe_code)]
// Nothing that input, the kernel or a cell can influence may end in a panic.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Instant;

use nix::sys::statfs::{Statfs, TMPFS_MAGIC, fstatfs};

use record::bytes::RawText;
use spec::{Bytes, TmpfsLimit};

pub mod baseline;
mod code_file;
mod collect;
pub mod copy;
mod digest;
mod fill;
mod guard;
pub mod inputs;
mod kept;
mod media;
mod out_dir;
pub mod outputs;
mod overlay;
mod project;
mod stage;
#[cfg(test)]
mod tests;
mod walk;
mod write_back;

pub use baseline::Baseline;
pub use code_file::CodeFile;
pub use collect::Outputs;
pub(crate) use collect::collect;
pub use digest::{Digest, Digesting};
pub use guard::Guard;
pub use kept::KeptDir;
pub use out_dir::OutDir;
pub use overlay::Lower;
pub use project::Project;
pub use stage::{Entry, Kind, Piece, Stage};

/// A tmpfs of the cell's, when no process can change it any more.
#[derive(Clone, Copy, Debug)]
pub struct Tree<'a> {
    /// Its root, open for reading.
    pub dir: BorrowedFd<'a>,
    /// Mount points of binds, relative to it: neither listed nor copied.
    pub covered: &'a [PathBuf],
    /// The file that the driver may have put the code into: neither listed nor kept, as
    /// long as it has that code.
    pub code_file: Option<&'a CodeFile>,
    /// Whether its symbolic links are kept, so that none is reported as left out.
    pub keeps_links: bool,
    /// What its paths begin with in the record and beneath `--out`.
    pub prefix: &'a [u8],
    /// The names beneath `--out` of copies of other trees' files, sorted.
    pub taken: &'a [RawText],
    /// Whether it is the upper layer of an overlay, in which character devices stand for
    /// what was removed.
    pub is_upper: bool,
}

/// Whether a tmpfs has no file at all: then its root is the only inode in use. Another file
/// system, or a tmpfs without a limit on inodes, may have some for all that is known here.
pub fn is_empty(directory: &OwnedFd) -> bool {
    let in_use = |fs: Statfs| fs.files().checked_sub(fs.files_free());
    fstatfs(directory).is_ok_and(|fs| fs.filesystem_type() == TMPFS_MAGIC && in_use(fs) == Some(1))
}

/// How much is looked at, listed and copied.
#[derive(Clone, Copy, Debug)]
pub struct Caps {
    /// Changes listed, and entries listed as skipped.
    pub(crate) listed: usize,
    /// Directory entries looked at.
    pub(crate) entries: u64,
    /// Directories within directories.
    pub(crate) depth: usize,
    /// Bytes of all files together.
    pub total_bytes: Bytes,
    /// Bytes of changed files whose content is put into the list, if any is.
    pub(crate) inline_bytes: Option<Bytes>,
    /// When to stop: what is not reached by then is listed as skipped.
    pub(crate) until: Option<Instant>,
}

impl Caps {
    /// The caps for a tmpfs with this limit. Plain files within the limit pass all of
    /// them; sparse files and hard links, which look larger than they are, may not.
    pub fn of(limit: TmpfsLimit) -> Self {
        Self {
            listed: 1000,
            entries: limit.inodes,
            depth: walk::DEEPEST,
            total_bytes: limit.size,
            inline_bytes: None,
            until: None,
        }
    }

    /// Whether there is time for more.
    pub(crate) fn is_in_time(&self) -> bool {
        self.until.is_none_or(|until| Instant::now() < until)
    }
}
