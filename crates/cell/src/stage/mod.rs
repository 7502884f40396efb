//! What a workspace begins with, read before anything is started.
//!
//! A directory or an archive that the caller names is read by the supervisor,
//! with the caller's ids: names into a list, content into one file in memory.
//! Init makes the workspace of these (`child/tree.rs`), and so neither parses
//! what nobody should trust nor opens anything of the host's. What was digested
//! is what is put in, whatever becomes of the source.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::ops::Bound::{Excluded, Unbounded};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nix::unistd::{SysconfVar, sysconf};

use crate::spec::{Bytes, Scratch, TmpfsLimit};
use record::error::{Result, SetupError, Step};

mod fill;
#[cfg(test)]
mod tests;

pub(crate) use fill::Source;

/// Files, directories and links for one of the places that a program writes to.
#[derive(Debug)]
pub(crate) struct Stage {
    place: Scratch,
    /// By path; whatever leads to an entry is one itself, a directory.
    entries: BTreeMap<Vec<u8>, Entry>,
    /// The content of all files, one after the other. No file with content, no
    /// memory.
    content: Option<File>,
    /// Where the next file's content goes.
    end: u64,
}

/// One thing in a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// What it is.
    pub kind: Kind,
    /// Permission bits, none of those that give rights away.
    pub mode: u32,
    /// Seconds since 1970.
    pub mtime: u64,
}

/// What an [`Entry`] is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A directory.
    Directory,
    /// A regular file.
    File(Piece),
    /// A symbolic link and its text.
    Link(Vec<u8>),
}

/// A file's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Where it begins in [`Stage::content`].
    pub at: u64,
    /// Size in bytes.
    pub size: u64,
    /// SHA-256 of the content.
    pub sha256: [u8; 32],
}

impl Stage {
    /// Nothing yet, for `place`.
    pub(crate) fn new(place: Scratch) -> Self {
        Self {
            place,
            entries: BTreeMap::new(),
            content: None,
            end: 0,
        }
    }

    /// Where all of it goes.
    pub(crate) fn place(&self) -> Scratch {
        self.place
    }

    /// Takes out what lies at or below one of `targets`, where binds go, and what is
    /// in the way of the directories that lead there. Returns the paths.
    pub(crate) fn give_way_to_binds(&mut self, targets: &[PathBuf]) -> Vec<PathBuf> {
        let is_in_the_way = |path: &[u8], entry: &Entry| {
            let path = Path::new(OsStr::from_bytes(path));
            targets.iter().any(|target| {
                path.starts_with(target)
                    || (target.starts_with(path) && entry.kind != Kind::Directory)
            })
        };
        let mut taken_out = Vec::new();
        self.entries.retain(|path, entry| {
            let goes = is_in_the_way(path, entry);
            if goes {
                taken_out.push(OsStr::from_bytes(path).into());
            }
            !goes
        });
        taken_out
    }

    /// Everything, each directory before what is in it.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&[u8], &Entry)> {
        let entries = self.entries.iter();
        entries.map(|(path, entry)| (path.as_slice(), entry))
    }

    /// Holds the content of all files; `None` when there is none.
    pub(crate) fn content(&self) -> Option<BorrowedFd<'_>> {
        self.content.as_ref().map(std::os::fd::AsFd::as_fd)
    }

    /// Makes way for a file that is put in on top of these.
    ///
    /// # Errors
    /// A directory is in its place, or something else in its path.
    pub(crate) fn give_way(&mut self, target: &Path) -> Result<()> {
        let refused = |message: &str| {
            SetupError::new(Step::Inputs, message)
                .on(target.display())
                .hint("give this file another path, or leave the other one out")
        };
        for parent in target.ancestors().skip(1) {
            match self.entries.get(parent.as_os_str().as_bytes()) {
                None => {}
                Some(entry) if entry.kind == Kind::Directory => {}
                Some(_) => {
                    return Err(refused(
                        "a file or link that is put in stands in the path of this file",
                    ));
                }
            }
        }
        let path = target.as_os_str().as_bytes();
        match self.entries.get(path) {
            Some(entry) if entry.kind == Kind::Directory => Err(refused(
                "a directory that is put in stands in the place of this file",
            )),
            _ => {
                self.entries.remove(path);
                Ok(())
            }
        }
    }

    /// Whether a tmpfs with this limit has room for all of it, and a cell with
    /// this much memory, which a tmpfs takes from.
    ///
    /// # Errors
    /// It has not.
    pub(crate) fn check(&self, limit: TmpfsLimit, memory: Option<Bytes>) -> Result<()> {
        let page = page_size();
        let bytes = |kind: &Kind| match kind {
            Kind::File(piece) => piece.size.div_ceil(page).saturating_mul(page),
            _ => 0,
        };
        let all = (self.entries.values())
            .fold(0_u64, |all, entry| all.saturating_add(bytes(&entry.kind)));
        if all > limit.size.0 {
            return Err(too_large(
                self.place,
                limit.size,
                "what is put in takes",
                Bytes(all),
            ));
        }
        if let Some(memory) = memory.filter(|memory| all > memory.0) {
            let message = format!("what is put in takes {all} bytes, but the cell has {memory}");
            return Err(SetupError::new(Step::Inputs, message).hint(format!(
                "raise --memory (`limits.memory`), which {} is part of",
                self.place.path()
            )));
        }
        // The workspace itself is one.
        if self.entries.len() as u64 >= limit.inodes {
            return Err(too_many(self.place, limit.inodes));
        }
        Ok(())
    }

    fn has_content(&self, directory: &[u8]) -> bool {
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

fn too_large(place: Scratch, limit: Bytes, what: &str, bytes: Bytes) -> SetupError {
    let message = format!(
        "{what} {} bytes, but {} holds {limit}",
        bytes.0,
        place.path()
    );
    SetupError::new(Step::Inputs, message).hint(more_bytes(place))
}

/// The way out of a tmpfs that is too small.
fn more_bytes(place: Scratch) -> String {
    let name = place.name();
    format!("raise --{name}-size (`limits.{name}.size`), or put less in")
}

fn too_many(place: Scratch, limit: u64) -> SetupError {
    let (path, name) = (place.path(), place.name());
    SetupError::new(
        Step::Inputs,
        format!("there are more files and directories than the {limit} that {path} holds"),
    )
    .hint(format!(
        "raise `limits.{name}.inodes` in a spec file or profile, or put less in"
    ))
}
