//! Counts what is read, and stops what would have no end.

use std::cell::Cell;
use std::io::{self, Read, Seek, SeekFrom};
use std::rc::Rc;

/// A reader that delivers no more than it is allowed to.
pub(super) struct Meter<R> {
    inner: R,
    allowance: Rc<Cell<u64>>,
}

impl<R: Read> Meter<R> {
    /// The reader, and what it may still deliver.
    pub(super) fn new(inner: R, allowed: u64) -> (Self, Rc<Cell<u64>>) {
        let allowance = Rc::new(Cell::new(allowed));
        let meter = Self {
            inner,
            allowance: Rc::clone(&allowance),
        };
        (meter, allowance)
    }
}

impl<R: Read> Read for Meter<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.allowance.get();
        let most = usize::try_from(left).map_or(buffer.len(), |left| buffer.len().min(left));
        if most == 0 && !buffer.is_empty() {
            return Err(io::Error::other(TooMuch));
        }
        let length = self.inner.read(&mut buffer[..most])?;
        self.allowance.set(left - length as u64);
        Ok(length)
    }
}

impl<R: Seek> Seek for Meter<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.inner.seek(to)
    }
}

/// The allowance is used up.
#[derive(Debug, thiserror::Error)]
#[error("it is larger than it may be")]
pub(super) struct TooMuch;

/// Whether reading ended for that reason.
pub(super) fn is_too_much(error: &io::Error) -> bool {
    let mut source = error
        .get_ref()
        .map(|error| error as &(dyn std::error::Error + 'static));
    while let Some(error) = source {
        if error.is::<TooMuch>() {
            return true;
        }
        let inner = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        source = match inner {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    false
}
