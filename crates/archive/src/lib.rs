//! Unpacks archives that nobody should trust.
//!
//! [`unpack`] reads a tar archive, plain or compressed, into a [`Destination`].
//! Nothing in the archive leads outside of it: every path is opened beneath the
//! destination by the kernel (openat2(2)), following no link, whatever earlier
//! entries have put there. What must not or cannot be unpacked is left out and
//! [reported](Report::skipped) by name and reason; what would exhaust the disk
//! or memory ends the call. Owners, extended attributes, and the bits that give
//! rights away are not restored.
#![forbid(unsafe_code)]
// Nothing that input, the kernel or a cell can influence may end in a panic.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{Read, Seek};
use std::os::fd::OwnedFd;
use std::path::Path;

use put::Putter;
use serde::Serialize;

use record::bytes::RawText;
use record::error::{Result, SetupError, Step};
use sys::tree::open_top;

mod compression;
mod destination;
mod entries;
mod folder;
mod meter;
mod names;
mod put;
mod sink;
mod sparse;

pub use compression::{decompress, is_compressed};
pub use destination::Destination;
pub use names::{check_link, clean};
pub use sink::{Meta, Refusal, Sink, What};

/// What an archive may do, and what it is.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes that it may unpack to, holes included.
    pub max_bytes: u64,
    /// Entries that it may have.
    pub max_entries: u64,
    /// Directories inside each other.
    pub max_depth: usize,
    /// Whether it is a layer of an image, in which `.wh.` names remove what
    /// lower layers have, and what is no directory takes a directory's place.
    pub is_layer: bool,
    /// Whether links to directories that are there already may be in the paths
    /// of entries: they lead where they would in a cell, with the destination as
    /// the root. Debian's packages want it on a merged `/usr`. An entry for a
    /// directory leaves a link to one in its place.
    pub through_links: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_bytes: 16 << 30,
            max_entries: 2_000_000,
            max_depth: 100,
            is_layer: false,
            through_links: false,
        }
    }
}

/// What an archive had.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Entries read, skipped ones included.
    pub entries: u64,
    /// Bytes of files' content.
    pub bytes: u64,
    /// Files and directories that lost set-user-ID, set-group-ID or sticky bits.
    pub stripped: u64,
    /// What was left out; the first [`Report::MOST_SKIPPED`].
    pub skipped: Vec<Skipped>,
    /// How many were left out in all.
    pub skipped_in_all: u64,
}

/// An entry that was left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Its name in the archive.
    pub path: RawText,
    /// Why; as the end of a sentence that begins with the name.
    pub reason: String,
}

impl Report {
    /// More names than this are only counted.
    pub const MOST_SKIPPED: usize = 1000;

    pub(crate) fn skip(&mut self, path: &[u8], reason: impl Into<String>) {
        self.skipped_in_all += 1;
        if self.skipped.len() < Self::MOST_SKIPPED {
            let path = &path[..path.len().min(names::LONGEST_PATH)];
            self.skipped.push(Skipped {
                path: path.to_vec().into(),
                reason: reason.into(),
            });
        }
    }

    /// This and what another archive had.
    pub fn add(&mut self, other: Self) {
        self.entries += other.entries;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.stripped += other.stripped;
        self.skipped_in_all += other.skipped_in_all;
        self.skipped.extend(other.skipped);
        self.skipped.truncate(Self::MOST_SKIPPED);
    }
}

/// Unpacks the archive that `reader` delivers: plain tar, or that in gzip or
/// zstd. `tick` is called before each entry with what was done so far; its error
/// ends the call.
///
/// What was unpacked before an error stays: the caller removes the destination.
///
/// # Errors
/// The archive is damaged or exceeds `options`; something cannot be written.
pub fn unpack(
    reader: impl Read,
    to: &Destination,
    options: &Options,
    tick: &mut dyn FnMut(&Report) -> Result<()>,
) -> Result<Report> {
    let stream = Stream {
        step: to.step(),
        max_bytes: options.max_bytes,
        hint: TOO_LARGE,
    };
    let mut putter = Putter::new(to, options);
    feed(reader, &mut putter, &stream, tick)?;
    Ok(putter.report)
}

/// How an archive is read.
pub struct Stream<'a> {
    /// The step that errors name.
    pub step: Step,
    /// Bytes that it may have when it is no longer compressed.
    pub max_bytes: u64,
    /// The way out when it has more.
    pub hint: &'a str,
}

/// Gives `to` what [`unpack`] would unpack.
///
/// # Errors
/// The archive is damaged or too large; those of `to`.
pub fn feed(
    reader: impl Read,
    to: &mut dyn Sink,
    stream: &Stream<'_>,
    tick: &mut dyn FnMut(&Report) -> Result<()>,
) -> Result<()> {
    let plain = decompress(reader).map_err(|e| damaged(stream.step, &e))?;
    entries::unpack(plain, to, stream, tick)
}

/// Gives `to` what [`copy_directory`] would copy of the open directory `top`,
/// whose path is `from`.
///
/// # Errors
/// Something cannot be read; those of `to`.
pub fn feed_directory(top: &OwnedFd, from: &Path, step: Step, to: &mut dyn Sink) -> Result<()> {
    folder::copy(top, from, step, None, to, &mut |_| Ok(()))
}

/// Copies the directory `from` as an archive of it would be unpacked. What is on
/// other file systems is left out.
///
/// # Errors
/// Something cannot be read or written, or exceeds `options`.
pub fn copy_directory(
    from: &Path,
    to: &Destination,
    options: &Options,
    tick: &mut dyn FnMut(&Report) -> Result<()>,
) -> Result<Report> {
    let step = to.step();
    let top = open_top(from, step)?;
    let except = Some(to.identity()?);
    let mut putter = Putter::new(to, options);
    folder::copy(&top, from, step, except, &mut putter, tick)?;
    Ok(putter.report)
}

/// An entry of an archive that is listed only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name there, as it is.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: MemberKind,
}

/// What a [`Member`] is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberKind {
    /// A file: the position of its content, and its size in bytes.
    File {
        /// From the archive's beginning.
        at: u64,
        /// In bytes.
        size: u64,
    },
    /// A symbolic link and its text.
    Link(Vec<u8>),
    /// Anything else.
    Other,
}

/// Lists the plain tar archive `reader` without unpacking it; `None` as soon as
/// there is a name that `until` accepts.
///
/// # Errors
/// The archive is damaged, or has no end.
pub fn members(
    reader: impl Read + Seek,
    step: Step,
    until: &dyn Fn(&[u8]) -> bool,
) -> Result<Option<Vec<Member>>> {
    entries::members(reader, step, until)
}

/// The way out for what exceeds its bounds.
const TOO_LARGE: &str =
    "if it is meant to be that large, unpack it yourself and name the directory instead";

/// An archive that cannot be read on.
fn damaged(step: Step, error: &std::io::Error) -> SetupError {
    match error.raw_os_error() {
        Some(_) => SetupError::io(step, "read", error).on("archive"),
        None => SetupError::new(step, format!("the archive cannot be read: {error}"))
            .hint("it is damaged or of another kind: fetch or make it again"),
    }
}

#[cfg(test)]
mod tests;
