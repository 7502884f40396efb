//! A workspace that is kept in a directory of the caller's between runs.
//!
//! The directory may hold anything the caller put there, and what goes back into
//! it is a hostile program's: nothing in either is followed. Files come back
//! whole, in two steps. First all that changed is copied beside the directory's
//! own files, and as long as that can fail these stay as they were; then names
//! are exchanged. Each file is thus the old or the new one, whenever this process
//! ends.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, Flock, FlockArg, OFlag};
use nix::sys::stat::{Mode, SFlag, fstat, umask};
use nix::unistd::{AccessFlags, faccessat};

use super::walk::{kind_of, open_beneath};
use crate::bytes::RawText;
use crate::error::{Result, SetupError, Step};
use crate::stage::{Kind, Stage};
use crate::tree::erase;

/// What waits in the directory until it gets its name. A killed run may leave
/// it; the next one removes it.
pub(super) const PENDING: &std::ffi::CStr = c".cellblock-pending";

/// The directory of a kept workspace, open and locked.
#[derive(Debug)]
pub struct Kept {
    pub(super) dir: Flock<OwnedFd>,
    pub(super) path: PathBuf,
    /// What was copied in, by path.
    pub(super) before: BTreeMap<RawText, Before>,
    /// What the caller's umask takes from new files.
    pub(super) mask: u32,
}

/// What something was before the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    Directory,
    Link,
    File { size: u64 },
}

impl Before {
    pub(super) fn kind(self) -> SFlag {
        match self {
            Self::Directory => SFlag::S_IFDIR,
            Self::Link => SFlag::S_IFLNK,
            Self::File { .. } => SFlag::S_IFREG,
        }
    }
}

impl Kept {
    /// Opens the directory for one run alone, and makes it when it is missing.
    ///
    /// # Errors
    /// It cannot be made, opened, written to, or another run has it.
    pub fn open(path: &Path) -> Result<Self> {
        let fail = |call: &str, error: &io::Error| {
            SetupError::io(Step::Inputs, call, error)
                .on(path.display())
                .hint("give --workspace a directory that you may read and write")
        };
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(path).map_err(|e| fail("mkdir", &e))?;
        let dir = File::open(path).map_err(|e| fail("open", &e))?;
        let access = AccessFlags::W_OK | AccessFlags::X_OK;
        faccessat(&dir, c".", access, AtFlags::AT_EACCESS)
            .map_err(|e| fail("faccessat", &e.into()))?;
        let lock = FlockArg::LockExclusiveNonblock;
        let dir = Flock::lock(OwnedFd::from(dir), lock).map_err(|(_, errno)| match errno {
            Errno::EWOULDBLOCK => {
                SetupError::new(Step::Inputs, "another run is using this workspace")
                    .on(path.display())
                    .hint("wait for its end, or give this run a workspace of its own")
            }
            errno => fail("flock", &errno.into()),
        })?;
        erase(dir.as_fd(), PENDING).map_err(|e| fail("unlink", &e.into()))?;
        let usual = umask(Mode::from_bits_truncate(0o077));
        umask(usual);
        Ok(Self {
            dir,
            path: path.to_owned(),
            before: BTreeMap::new(),
            mask: usual.bits(),
        })
    }

    /// The open directory.
    pub fn dir(&self) -> &OwnedFd {
        &self.dir
    }

    /// Whether `other` is the same directory.
    ///
    /// # Errors
    /// That of fstat(2).
    pub fn is(&self, other: impl AsFd) -> nix::Result<bool> {
        let (own, other) = (fstat(&*self.dir)?, fstat(other)?);
        Ok((own.st_dev, own.st_ino) == (other.st_dev, other.st_ino))
    }

    /// Notes what was read of the directory: this alone may be removed from it.
    pub fn note(&mut self, stage: &Stage) {
        self.before = stage
            .entries()
            .map(|(path, entry)| {
                let before = match &entry.kind {
                    Kind::Directory => Before::Directory,
                    Kind::Link(_) => Before::Link,
                    Kind::File(piece) => Before::File { size: piece.size },
                };
                (path.to_vec().into(), before)
            })
            .collect();
    }

    /// The permissions that a file of the cell's gets outside.
    pub(super) fn mode(&self, inside: u32) -> u32 {
        inside & 0o777 & !self.mask | 0o600
    }

    /// Whether the directory has this file as the cell does.
    pub(super) fn has(&self, path: &RawText, file: &mut File, size: u64, mode: u32) -> bool {
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let Ok(own) = open_beneath(&*self.dir, path.as_path(), flags) else {
            return false;
        };
        let is_file = fstat(&own).is_ok_and(|stat| kind_of(&stat) == SFlag::S_IFREG);
        let mut own = File::from(own);
        is_file
            && own.metadata().is_ok_and(|own| {
                let own_mode = own.mode() & 0o777;
                own.len() == size && (own_mode == mode || own_mode == self.mode(mode))
            })
            && same(&mut own, file).unwrap_or(false)
    }

    /// A failure to write `path` back.
    pub(super) fn error(&self, call: &str, error: &io::Error, path: &Path) -> SetupError {
        let failure = SetupError::io(Step::Outputs, call, error).on(self.path.join(path).display());
        match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENOSPC | Errno::EDQUOT) => failure.hint(
                "make room there: the workspace was not written back, and the directory is as it was",
            ),
            _ => failure,
        }
    }
}

fn same(one: &mut File, other: &mut File) -> io::Result<bool> {
    let mut buffers = [vec![0; 64 << 10], vec![0; 64 << 10]];
    loop {
        let [a, b] = &mut buffers;
        let got = fill(one, a)?;
        if fill(other, b)? != got || a[..got] != b[..got] {
            return Ok(false);
        }
        if got == 0 {
            return Ok(true);
        }
    }
}

fn fill(from: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match from.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(got) => filled += got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
