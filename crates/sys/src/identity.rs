//! What identifies an open file.

use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::sys::stat::{FileStat, fstat};

/// What identifies an open pipe or file: device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity(pub u64, pub u64);

impl Identity {
    /// That of an open descriptor. Both ends of a pipe have the same.
    ///
    /// # Errors
    /// That of fstat(2).
    pub fn of(fd: impl AsFd) -> Result<Self, Errno> {
        fstat(fd).map(|stat| Self::from(&stat))
    }
}

impl From<&FileStat> for Identity {
    fn from(stat: &FileStat) -> Self {
        Self(stat.st_dev, stat.st_ino)
    }
}
