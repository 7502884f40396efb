//! Descriptors that a caller passes on and names by their numbers.

use std::fs::File;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};

use crate::process::duplicate_above;

/// Copies of the descriptors that a caller named.
///
/// A number says nothing about who opened the descriptor. So all numbers are
/// looked at together, before this process opens anything of its own, and what is
/// kept are copies: neither can a number lead to a descriptor that was opened
/// since, nor does a descriptor get two owners.
#[derive(Debug, Default)]
pub struct Inherited(Vec<(RawFd, Result<Held, Errno>)>);

/// A copy, and how it is open.
#[derive(Debug)]
struct Held {
    copy: OwnedFd,
    access: OFlag,
}

impl Inherited {
    /// Copies the descriptors with these `numbers`, and keeps them from every
    /// program that this process executes. To be called before anything is opened.
    pub fn copy(mut numbers: Vec<RawFd>) -> Self {
        numbers.sort_unstable();
        numbers.dedup();
        // All are checked before one is copied: a copy could get a number that
        // comes later.
        let checked: Vec<_> = numbers
            .into_iter()
            .map(|number| (number, access(number)))
            .collect();
        let copied = checked
            .into_iter()
            .map(|(number, checked)| (number, checked.and_then(|access| copy(number, access))));
        Self(copied.collect())
    }

    /// The descriptor with this number, to write to; each is given out once.
    ///
    /// # Errors
    /// EBADF when it was not open at the start or has been given out already,
    /// EACCES when it is not open for writing, EMFILE when there was no room for
    /// the copy.
    pub fn take(&mut self, number: RawFd) -> Result<File, Errno> {
        self.take_unless(number, OFlag::O_RDONLY)
    }

    /// The same, to read from.
    ///
    /// # Errors
    /// Those of [`Self::take`]; EACCES when it is not open for reading.
    pub fn take_readable(&mut self, number: RawFd) -> Result<File, Errno> {
        self.take_unless(number, OFlag::O_WRONLY)
    }

    /// The descriptor with this number, however it is open, to pass it on. The caller's own
    /// copy of it is closed here, so that its other end sees when the program closes it.
    ///
    /// # Errors
    /// Those of [`Self::take`], without EACCES.
    pub fn take_over(&mut self, number: RawFd) -> Result<OwnedFd, Errno> {
        let held = self.take_held(number)?;
        // SAFETY: it was open before this process opened anything, so no value owns it,
        // and `take_held` gives each number out once.
        Errno::result(unsafe { libc::close(number) })?;
        Ok(held.copy)
    }

    fn take_held(&mut self, number: RawFd) -> Result<Held, Errno> {
        let at = self.0.iter().position(|(known, _)| *known == number);
        self.0.swap_remove(at.ok_or(Errno::EBADF)?).1
    }

    fn take_unless(&mut self, number: RawFd, refused: OFlag) -> Result<File, Errno> {
        match self.take_held(number)? {
            // A path only is open for nothing.
            Held { access, .. } if access.contains(OFlag::O_PATH) => Err(Errno::EACCES),
            Held { access, .. } if access & OFlag::O_ACCMODE == refused => Err(Errno::EACCES),
            Held { copy, .. } => Ok(File::from(copy)),
        }
    }
}

fn access(number: RawFd) -> Result<OFlag, Errno> {
    // SAFETY: no pointers; asking changes nothing.
    let flags = Errno::result(unsafe { libc::fcntl(number, libc::F_GETFL) })?;
    Ok(OFlag::from_bits_retain(flags))
}

fn copy(number: RawFd, access: OFlag) -> Result<Held, Errno> {
    /// Standard streams have lower numbers.
    const LOWEST: libc::c_int = 3;
    // SAFETY: it is open, as `access` found, and nothing in this process closes it.
    let named = unsafe { BorrowedFd::borrow_raw(number) };
    let copied = duplicate_above(named, LOWEST)?;
    fcntl(named, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    debug_assert_ne!(copied.as_raw_fd(), number);
    Ok(Held {
        copy: copied,
        access,
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Seek as _, Write as _};

    use super::*;

    #[test]
    fn what_is_given_out_is_a_copy_and_given_out_once() {
        let mut file = tempfile::tempfile().unwrap();
        let number = file.as_raw_fd();
        let mut inherited = Inherited::copy(vec![number, number]);
        let mut copy = inherited.take(number).unwrap();
        assert_ne!(copy.as_raw_fd(), number);
        copy.write_all(b"record").unwrap();
        drop(copy);
        assert_eq!(inherited.take(number).unwrap_err(), Errno::EBADF);
        // The original still belongs to its owner.
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "record");
    }

    #[test]
    fn what_is_closed_or_for_reading_is_not_given_out() {
        let read_only = File::open("/dev/null").unwrap();
        let number = read_only.as_raw_fd();
        let mut inherited = Inherited::copy(vec![number, 9_999_999]);
        assert_eq!(inherited.take(number).unwrap_err(), Errno::EACCES);
        let mut again = Inherited::copy(vec![number]);
        again.take_readable(number).unwrap();
        assert_eq!(inherited.take(9_999_999).unwrap_err(), Errno::EBADF);
        assert_eq!(inherited.take(4).unwrap_err(), Errno::EBADF);
        assert_eq!(inherited.take_over(4).unwrap_err(), Errno::EBADF);
    }
}
