//! Unpacks untrusted archives.
//!
//! [`unpack`] reads a tar archive, plain or compressed, into a [`Destination`]. Nothing in
//! the archive leads outside of it: the kernel resolves every path as if the destination were
//! the root directory (openat2(2)), whatever links earlier entries put there. What a tree must
//! not have is left out and [reported](Report::skipped) by name and reason; what has no place
//! in it, or would take more disk space or memory than the [`Budget`], ends the call. Owners,
//! extended attributes, and set-user-ID, set-group-ID and sticky bits are not restored.
#![forbid(unsafe_code)]
// Nothing that input, the kernel or a cell can influence may end in a panic.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::Read;
use std::path::Path;

use put::Unpacker;
use serde::Serialize;

use record::bytes::RawText;
use record::error::{Result, SetupError, Step};
use sys::tree::open_top;

mod budget;
mod compression;
mod destination;
mod entries;
mod folder;
mod names;
mod own;
mod put;
mod sink;
mod sparse;

pub use budget::Budget;
pub use compression::{decompress, is_compressed};
pub use destination::Destination;
pub use entries::{Member, Members, members};
pub use folder::feed_directory;
pub use names::{NOT_EMPTY, check_link, clean};
pub use sink::{Meta, Payload, Refusal, Sink};

/// How an archive is unpacked.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Directories inside each other in an entry's name.
    pub max_depth: usize,
    /// Whether it is a layer of an image, in which `.wh.` names remove what lower layers
    /// have, and a file may replace a directory.
    pub is_layer: bool,
    /// Whether entries that have no place are left out too.
    pub skips_unplaced: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_depth: 100,
            is_layer: false,
            skips_unplaced: false,
        }
    }
}

/// What was unpacked, and what was left out.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Entries read, skipped ones included.
    pub entries: u64,
    /// Bytes of files' content.
    pub bytes: u64,
    /// Files and directories that lost set-user-ID, set-group-ID or sticky bits.
    pub stripped: u64,
    /// The first [`Report::MOST_SKIPPED`] entries that were left out.
    pub skipped: Vec<Skipped>,
    /// The number of entries left out.
    pub skipped_in_all: u64,
}

/// An entry that was left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Its name in the archive.
    pub path: RawText,
    /// Why, as the end of a sentence that begins with the name.
    pub reason: String,
}

impl Report {
    /// Further names are only counted.
    pub const MOST_SKIPPED: usize = 1000;

    /// Adds an entry that was left out.
    pub fn skip(&mut self, path: &[u8], reason: impl Into<String>) {
        self.skipped_in_all += 1;
        if self.skipped.len() < Self::MOST_SKIPPED {
            let path = &path[..path.len().min(names::LONGEST_PATH)];
            self.skipped.push(Skipped {
                path: path.to_vec().into(),
                reason: reason.into(),
            });
        }
    }

    /// Adds the report of another archive.
    pub fn add(&mut self, other: Self) {
        self.entries += other.entries;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.stripped += other.stripped;
        self.skipped_in_all += other.skipped_in_all;
        self.skipped.extend(other.skipped);
        self.skipped.truncate(Self::MOST_SKIPPED);
    }
}

/// Unpacks the archive that `reader` gives: tar, plain or compressed by gzip or zstd.
/// `tick` is called before each entry with the report so far; its error ends the call.
///
/// What was unpacked before an error stays: the caller removes the destination.
///
/// # Errors
/// The archive is damaged or exceeds the budget of `to`; something has no place, or cannot be
/// written.
pub fn unpack(
    reader: impl Read,
    to: &Destination<'_>,
    options: &Options,
    tick: &mut dyn FnMut(&Report) -> Result<()>,
) -> Result<Report> {
    let stream = Stream {
        step: to.step(),
        max_bytes: to.budget().max_disk(),
        hint: budget::MORE_DISK,
    };
    let mut unpacker = Unpacker::new(to, options);
    feed(reader, &mut unpacker, &stream, tick)?;
    Ok(unpacker.report)
}

/// How an archive is read.
pub struct Stream<'a> {
    /// The step that errors name.
    pub step: Step,
    /// Bytes that it may have when decompressed.
    pub max_bytes: u64,
    /// The way out when it has more.
    pub hint: &'a str,
}

/// Passes the entries of the archive that `reader` gives to `to`.
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

/// Copies the directory `from` as an archive of it would be unpacked. Other file systems
/// in it are left out.
///
/// # Errors
/// Something cannot be read or written, has no place, or exceeds the budget of `to`.
pub fn copy_directory(
    from: &Path,
    to: &Destination<'_>,
    options: &Options,
    tick: &mut dyn FnMut(&Report) -> Result<()>,
) -> Result<Report> {
    let step = to.step();
    let top = open_top(from, step)?;
    let except = Some(to.identity()?);
    let mut unpacker = Unpacker::new(to, options);
    feed_directory(&top, from, step, except, &mut unpacker, tick)?;
    Ok(unpacker.report)
}

/// The error of an archive that cannot be read.
fn damaged(step: Step, error: &std::io::Error) -> SetupError {
    match error.raw_os_error() {
        Some(_) => SetupError::io(step, "read", error).on("archive"),
        None => SetupError::new(step, format!("the archive cannot be read: {error}"))
            .hint("it is damaged or of another kind: fetch or make it again"),
    }
}

#[cfg(test)]
mod tests;
