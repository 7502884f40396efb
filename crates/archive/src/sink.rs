//! What entries are given to, whether they end on a disk or in memory.

use std::io::{self, Read};

use super::Report;
use record::error::{Result, SetupError};

/// What is put somewhere.
pub enum What<'a> {
    /// A directory.
    Directory,
    /// A file's content and its size.
    File(&'a mut dyn Read, u64),
    /// A symbolic link's text.
    Link(&'a [u8]),
    /// The path of something that was put there before.
    HardLink(&'a [u8]),
    /// Nothing, for this reason.
    Nothing(&'static str),
}

/// What else there is to say of it.
#[derive(Clone, Copy)]
pub struct Meta {
    /// All mode bits.
    pub mode: u32,
    /// Seconds since 1970.
    pub mtime: u64,
}

/// Why an entry is not put.
#[derive(Debug)]
pub enum Refusal {
    /// It is left out, for this reason.
    Skip(String),
    /// The call ends.
    Fail(SetupError),
}

impl From<String> for Refusal {
    fn from(reason: String) -> Self {
        Self::Skip(reason)
    }
}

impl From<&str> for Refusal {
    fn from(reason: &str) -> Self {
        Self::Skip(reason.to_owned())
    }
}

impl From<SetupError> for Refusal {
    fn from(error: SetupError) -> Self {
        Self::Fail(error)
    }
}

/// Takes the entries of an archive or a directory, one after the other.
pub trait Sink {
    /// Puts `what` at `name`. A failure to read a file's content is what
    /// `unreadable` makes of it.
    ///
    /// # Errors
    /// Why not.
    fn place(
        &mut self,
        name: &[u8],
        meta: Meta,
        what: What<'_>,
        unreadable: &dyn Fn(&io::Error) -> SetupError,
    ) -> Result<(), Refusal>;

    /// Whether there may be so many entries.
    ///
    /// # Errors
    /// There may not.
    fn admit(&self, entries: u64) -> Result<()>;

    /// What was done so far.
    fn report(&self) -> &Report;

    /// The same, to be added to.
    fn report_mut(&mut self) -> &mut Report;

    /// Puts `what` at `name`, or reports why not.
    ///
    /// # Errors
    /// What concerns more than this name.
    fn put(
        &mut self,
        name: &[u8],
        meta: Meta,
        what: What<'_>,
        unreadable: &dyn Fn(&io::Error) -> SetupError,
    ) -> Result<()> {
        self.report_mut().entries += 1;
        self.admit(self.report().entries)?;
        match self.place(name, meta, what, unreadable) {
            Ok(()) => Ok(()),
            Err(Refusal::Fail(error)) => Err(error),
            Err(Refusal::Skip(reason)) => {
                self.report_mut().skip(name, reason);
                Ok(())
            }
        }
    }
}
