//! Descriptors that a caller passes on and names by their numbers.

use std::fs::File;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};

use crate::process::duplicate_above;

/// Copies of the descriptors that a caller named.
///
/// A number says nothing about who opened the descriptor. So all numbers are
/// looked at together, before this process opens anything of its own, and what is
/// kept are copies: neither can a number lead to a descriptor that was opened
/// since, nor does a descriptor get two owners.
#[derive(Debug, Default)]
pub struct Inherited(Vec<(RawFd, Result<OwnedFd, Errno>)>);

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
            .map(|number| (number, is_writable(number)))
            .collect();
        let copied = checked
            .into_iter()
            .map(|(number, checked)| (number, checked.and_then(|()| copy(number))));
        Self(copied.collect())
    }

    /// The descriptor with this number; each is given out once.
    ///
    /// # Errors
    /// EBADF when it was not open at the start or has been given out already,
    /// EACCES when it is not open for writing, EMFILE when there was no room for
    /// the copy.
    pub fn take(&mut self, number: RawFd) -> Result<File, Errno> {
        let at = self.0.iter().position(|(known, _)| *known == number);
        let (_, copied) = self.0.swap_remove(at.ok_or(Errno::EBADF)?);
        copied.map(File::from)
    }
}

fn is_writable(number: RawFd) -> Result<(), Errno> {
    // SAFETY: no pointers; asking changes nothing.
    let flags = Errno::result(unsafe { libc::fcntl(number, libc::F_GETFL) })?;
    match flags & libc::O_ACCMODE {
        libc::O_RDONLY => Err(Errno::EACCES),
        _ => Ok(()),
    }
}

fn copy(number: RawFd) -> Result<OwnedFd, Errno> {
    /// Standard streams have lower numbers.
    const LOWEST: libc::c_int = 3;
    // SAFETY: it is open, as `is_writable` found, and nothing in this process closes it.
    let named = unsafe { BorrowedFd::borrow_raw(number) };
    let copied = duplicate_above(named, LOWEST)?;
    fcntl(named, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    debug_assert_ne!(copied.as_raw_fd(), number);
    Ok(copied)
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
        assert_eq!(inherited.take(9_999_999).unwrap_err(), Errno::EBADF);
        assert_eq!(inherited.take(4).unwrap_err(), Errno::EBADF);
    }
}
