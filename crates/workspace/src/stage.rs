//! What a workspace starts with, read before anything is started.
//!
//! The supervisor reads the directory or archive that the caller names, with the caller's
//! ids: names into a list, content into one file in memory. Init makes the workspace of
//! these (`jail/child/tree.rs`), so it neither parses untrusted data nor opens files of the
//! host's. What was digested is what is put in, even if the source changes meanwhile.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::ops::Bound::{Excluded, Unbounded};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nix::unistd::{SysconfVar, sysconf};

use super::Digest;
use archive::Report;
use record::error::{Result, SetupError, Step};
use spec::{Bytes, Scratch, TmpfsLimit};

/// Files, directories and links for one of the directories that a program writes to.
#[derive(Debug)]
pub struct Stage {
    /// Where all of it goes.
    pub scratch: Scratch,
    /// By path. The directories that lead to an entry are entries themselves.
    pub entries: BTreeMap<Vec<u8>, Entry>,
    /// The content of all files, one after the other, if any has content.
    pub content: Option<File>,
    /// Where the next file's content goes.
    pub(super) end: u64,
}

/// One thing in a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it is.
    pub kind: Kind,
    /// Permission bits, none of those that give rights away.
    pub mode: u32,
    /// Seconds since 1970.
    pub mtime: i64,
}

/// What an [`Entry`] is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file.
    File(Piece),
    /// A symbolic link and its text.
    Link(Vec<u8>),
}

/// A file's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where it starts in [`Stage::content`].
    pub at: u64,
    /// Its size and digest.
    pub digest: Digest,
}

impl Stage {
    /// Nothing yet, for `scratch`.
    pub(crate) fn new(scratch: Scratch) -> Self {
        Self {
            scratch,
            entries: BTreeMap::new(),
            content: None,
            end: 0,
        }
    }

    /// Leaves out what is at or below one of `targets`, the mount points of binds, and what
    /// is in the way of the directories that lead there.
    pub(crate) fn give_way_to_binds(&mut self, targets: &[PathBuf], report: &mut Report) {
        let is_in_the_way = |path: &[u8], entry: &Entry| {
            let path = Path::new(OsStr::from_bytes(path));
            targets.iter().any(|target| {
                path.starts_with(target)
                    || (target.starts_with(path) && entry.kind != Kind::Directory)
            })
        };
        self.entries.retain(|path, entry| {
            let goes = is_in_the_way(path, entry);
            if goes {
                report.skip(path, "is covered by a bind");
            }
            !goes
        });
    }

    /// Makes way for a file that is put in afterwards.
    ///
    /// # Errors
    /// There is a directory of its name, or its path leads through something else.
    pub(crate) fn give_way(&mut self, target: &Path) -> Result<()> {
        let refused = |message: &str| {
            SetupError::new(Step::Inputs, message)
                .on(target.display())
                .hint("give this file another path, or omit the other one")
        };
        for parent in target.ancestors().skip(1) {
            match self.entries.get(parent.as_os_str().as_bytes()) {
                None => {}
                Some(entry) if entry.kind == Kind::Directory => {}
                Some(_) => {
                    return Err(refused(
                        "its path leads through a file or link that is put in",
                    ));
                }
            }
        }
        let path = target.as_os_str().as_bytes();
        match self.entries.get(path) {
            Some(entry) if entry.kind == Kind::Directory => {
                Err(refused("a directory of this name is put in"))
            }
            _ => {
                self.entries.remove(path);
                Ok(())
            }
        }
    }

    /// Checks that a tmpfs with this limit has room for all of it, and so has a cell with
    /// this much memory, which includes its tmpfs.
    ///
    /// # Errors
    /// There is too little room.
    pub(crate) fn check(&self, limit: TmpfsLimit, memory: Option<Bytes>) -> Result<()> {
        let page = page_size();
        let bytes = |entry: &Entry| match &entry.kind {
            Kind::File(piece) => piece.digest.size.div_ceil(page).saturating_mul(page),
            _ => 0,
        };
        let all = (self.entries.values().map(bytes)).fold(0, u64::saturating_add);
        if all > limit.size.0 {
            return Err(too_large(self.scratch, limit.size, all));
        }
        if let Some(memory) = memory.filter(|memory| all > memory.0) {
            let message = format!("the files put in take {all} bytes, but the cell has {memory}");
            return Err(SetupError::new(Step::Inputs, message).hint(format!(
                "raise --memory (`limits.memory`), which {} is part of",
                self.scratch.path()
            )));
        }
        // The root directory takes an inode too.
        if self.entries.len() as u64 >= limit.inodes {
            return Err(too_many(self.scratch, limit.inodes));
        }
        Ok(())
    }

    /// Whether there is anything in a directory.
    pub(super) fn has_content(&self, directory: &[u8]) -> bool {
        let beneath = [directory, b"/"].concat();
        let behind = (Excluded(beneath.clone()), Unbounded);
        let mut below = self.entries.range::<Vec<u8>, _>(behind);
        below
            .next()
            .is_some_and(|(path, _)| path.starts_with(&beneath))
    }
}

fn page_size() -> u64 {
    let size = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
    size.and_then(|size| u64::try_from(size).ok())
        .unwrap_or(4096)
}

pub(super) fn too_large(scratch: Scratch, limit: Bytes, bytes: u64) -> SetupError {
    let path = scratch.path();
    let message = format!("the files put in take {bytes} bytes, but {path} has room for {limit}");
    SetupError::new(Step::Inputs, message).hint(more_bytes(scratch))
}

/// The hint for a tmpfs that is too small.
pub(super) fn more_bytes(scratch: Scratch) -> String {
    let name = scratch.name();
    format!("raise --{name}-size (`limits.{name}.size`), or put less in")
}

pub(super) fn too_many(scratch: Scratch, limit: u64) -> SetupError {
    let (path, name) = (scratch.path(), scratch.name());
    SetupError::new(
        Step::Inputs,
        format!("more files and directories are put in than the {limit} that {path} has room for"),
    )
    .hint(format!(
        "raise `limits.{name}.inodes` in a spec file or profile, or put less in"
    ))
}
