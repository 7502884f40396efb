//! What the entries of an archive are passed to: a destination on disk, or memory.

use std::io::{self, Read};

use super::Report;
use record::error::{Result, SetupError};

/// What an entry consists of, besides its name and metadata.
pub enum Payload<'a> {
    /// A directory.
    Directory,
    /// A file's content and its size.
    File(&'a mut dyn Read, u64),
    /// A symbolic link's text.
    Link(&'a [u8]),
    /// The path of an earlier entry.
    HardLink(&'a [u8]),
    /// Something that no destination takes, for this reason.
    Unwanted(&'static str),
    /// Something that this reader cannot read, for this reason.
    Unknown(&'static str),
}

/// An entry's metadata.
#[derive(Clone, Copy)]
pub struct Meta {
    /// All mode bits.
    pub mode: u32,
    /// Seconds since 1970.
    pub mtime: i64,
}

/// Why an entry is not put.
#[derive(Debug)]
pub enum Refusal {
    /// It is left out on purpose, for this reason.
    Unwanted(String),
    /// It has no place, for this reason.
    Unplaced(String),
    /// The call ends with this error.
    Fail(SetupError),
    /// The call ends: the content cannot be read.
    Unreadable(io::Error),
}

impl From<String> for Refusal {
    fn from(reason: String) -> Self {
        Self::Unplaced(reason)
    }
}

impl From<&str> for Refusal {
    fn from(reason: &str) -> Self {
        Self::Unplaced(reason.to_owned())
    }
}

impl From<SetupError> for Refusal {
    fn from(error: SetupError) -> Self {
        Self::Fail(error)
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Unreadable(error)
    }
}

/// Takes the entries of an archive or a directory, one after the other.
pub trait Sink {
    /// Puts `what` at `name`.
    ///
    /// # Errors
    /// Why that was not done.
    fn place(&mut self, name: &[u8], meta: Meta, what: Payload<'_>) -> Result<(), Refusal>;

    /// Checks the number of entries.
    ///
    /// # Errors
    /// It is too large.
    fn admit(&self, _entries: u64) -> Result<()> {
        Ok(())
    }

    /// Counts bytes of memory that are kept about entries until the last one.
    ///
    /// # Errors
    /// There are too many.
    fn keep(&self, _bytes: u64) -> Result<()> {
        Ok(())
    }

    /// What was done so far.
    fn report(&mut self) -> &mut Report;

    /// Puts `what` at `name`, or reports why that was not done. `unreadable` makes the
    /// error of content that cannot be read.
    ///
    /// # Errors
    /// A failure that affects more than this name.
    fn put(
        &mut self,
        name: &[u8],
        meta: Meta,
        what: Payload<'_>,
        unreadable: &dyn Fn(&io::Error) -> SetupError,
    ) -> Result<()> {
        let report = self.report();
        report.entries += 1;
        let entries = report.entries;
        self.admit(entries)?;
        match self.place(name, meta, what) {
            Ok(()) => Ok(()),
            Err(Refusal::Fail(error)) => Err(error),
            Err(Refusal::Unreadable(error)) => Err(unreadable(&error)),
            Err(Refusal::Unwanted(reason) | Refusal::Unplaced(reason)) => {
                self.report().skip(name, reason);
                Ok(())
            }
        }
    }
}
