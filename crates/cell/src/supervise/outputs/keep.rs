//! A workspace, or `/tmp`, that is kept in a directory of the caller's between runs.
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
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, Flock, FlockArg, OFlag, readlinkat};
use nix::sys::stat::{Mode, SFlag, fstat, umask};
use nix::unistd::{AccessFlags, faccessat};

use super::walk::{kind_of, open_beneath};
use crate::stage::{Kind, Stage};
use record::bytes::RawText;
use record::error::{Result, SetupError, Step};
use sys::tree::erase;

/// What waits in the directory until it gets its name. A killed run may leave
/// it; the next one removes it.
pub(super) const PENDING: &std::ffi::CStr = c".cellblock-pending";

/// Between two attempts to lock a directory that another run has.
const SHORTEST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// The directory of a kept place, open and locked.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(super) dir: Flock<OwnedFd>,
    pub(super) path: PathBuf,
    /// The option that named it.
    option: &'static str,
    /// What was copied in, by path.
    pub(super) before: BTreeMap<RawText, Before>,
    /// What the caller's umask takes from new files.
    pub(super) mask: u32,
}

/// What something was before the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Before {
    Directory { mode: u32 },
    Link { text: Vec<u8> },
    File { size: u64 },
}

impl Before {
    pub(super) fn kind(&self) -> SFlag {
        match self {
            Self::Directory { .. } => SFlag::S_IFDIR,
            Self::Link { .. } => SFlag::S_IFLNK,
            Self::File { .. } => SFlag::S_IFREG,
        }
    }
}

impl Kept {
    /// Opens the directory that `option` names for one run alone, and makes it when it
    /// is missing. While another run has it, it is waited for, for as long as `wait`
    /// says; `others` are those that this run has already.
    ///
    /// # Errors
    /// It cannot be made, opened, written to, or is in use.
    pub(crate) fn open(
        path: &Path,
        option: &'static str,
        others: &[Self],
        wait: Option<Duration>,
    ) -> Result<Self> {
        let fail = |call: &str, error: &io::Error| {
            SetupError::io(Step::Inputs, call, error)
                .on(path.display())
                .hint(format!(
                    "give {option} a directory that you may read and write"
                ))
        };
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(path).map_err(|e| fail("mkdir", &e))?;
        let dir = File::open(path).map_err(|e| fail("open", &e))?;
        let access = AccessFlags::W_OK | AccessFlags::X_OK;
        faccessat(&dir, c".", access, AtFlags::AT_EACCESS)
            .map_err(|e| fail("faccessat", &e.into()))?;
        for other in others {
            if other.is(&dir).map_err(|e| fail("fstat", &e.into()))? {
                let message = format!("{} and {option} name the same directory", other.option);
                return Err(SetupError::new(Step::Inputs, message)
                    .on(path.display())
                    .hint("give each a directory of its own"));
            }
        }
        let dir = lock(dir.into(), wait).map_err(|errno| match errno {
            Errno::EWOULDBLOCK => busy(path, wait),
            errno => fail("flock", &errno.into()),
        })?;
        erase(dir.as_fd(), PENDING).map_err(|e| fail("unlink", &e.into()))?;
        let usual = umask(Mode::from_bits_truncate(0o077));
        umask(usual);
        Ok(Self {
            dir,
            path: path.to_owned(),
            option,
            before: BTreeMap::new(),
            mask: usual.bits(),
        })
    }

    /// Its path, as it was named.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The option that named it.
    pub(crate) fn option(&self) -> &'static str {
        self.option
    }

    /// The open directory.
    pub(crate) fn dir(&self) -> &OwnedFd {
        &self.dir
    }

    /// Whether `other` is the same directory.
    ///
    /// # Errors
    /// That of fstat(2).
    pub(crate) fn is(&self, other: impl AsFd) -> nix::Result<bool> {
        let (own, other) = (fstat(&*self.dir)?, fstat(other)?);
        Ok((own.st_dev, own.st_ino) == (other.st_dev, other.st_ino))
    }

    /// Notes what was read of the directory: this alone may be removed from it.
    pub(crate) fn note(&mut self, stage: &Stage) {
        self.before = stage
            .entries()
            .map(|(path, entry)| {
                let before = match &entry.kind {
                    Kind::Directory => Before::Directory { mode: entry.mode },
                    Kind::Link(text) => Before::Link { text: text.clone() },
                    Kind::File(piece) => Before::File { size: piece.size },
                };
                (path.to_vec().into(), before)
            })
            .collect();
    }

    /// The permissions that a file of the cell's gets outside: its own, less what the
    /// caller's umask takes. The next run must be able to read it.
    pub(super) fn mode(&self, inside: u32) -> u32 {
        inside & 0o777 & !self.mask | 0o400
    }

    /// The same for a directory, which its owner can always fill and empty.
    pub(super) fn directory_mode(&self, inside: u32) -> u32 {
        inside & 0o777 & !self.mask | 0o700
    }

    /// Whether the directory has this symbolic link as the cell does.
    pub(super) fn has_link(&self, path: &RawText, text: &[u8]) -> bool {
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW;
        open_beneath(&*self.dir, path.as_path(), flags)
            .and_then(|link| readlinkat(&link, c""))
            .is_ok_and(|own| own.as_encoded_bytes() == text)
    }

    /// Whether the directory has this file as the cell does.
    pub(super) fn has(&self, path: &RawText, file: &File, size: u64, mode: u32) -> bool {
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let Ok(own) = open_beneath(&*self.dir, path.as_path(), flags) else {
            return false;
        };
        let is_file = fstat(&own).is_ok_and(|stat| kind_of(&stat) == SFlag::S_IFREG);
        let own = File::from(own);
        is_file
            && own.metadata().is_ok_and(|own| {
                let own_mode = own.mode() & 0o777;
                own.len() == size && (own_mode == mode || own_mode == self.mode(mode))
            })
            && same(&own, file).unwrap_or(false)
    }

    /// A failure to write `path` back.
    pub(super) fn error(&self, call: &str, error: &io::Error, path: &Path) -> SetupError {
        let failure = SetupError::io(Step::Outputs, call, error).on(self.path.join(path).display());
        match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENOSPC | Errno::EDQUOT) => failure
                .hint("make room there: nothing was written back, and the directory is as it was"),
            _ => failure,
        }
    }
}

/// Locks `dir`. flock(2) has no deadline, and a signal that ended the wait would be the
/// caller's, so a lock that is taken is tried again.
fn lock(mut dir: OwnedFd, wait: Option<Duration>) -> nix::Result<Flock<OwnedFd>> {
    let began = Instant::now();
    let mut pause = SHORTEST_PAUSE;
    loop {
        match Flock::lock(dir, FlockArg::LockExclusiveNonblock) {
            Ok(locked) => return Ok(locked),
            Err((back, Errno::EWOULDBLOCK)) => dir = back,
            Err((_, errno)) => return Err(errno),
        }
        let left = match wait {
            None => LONGEST_PAUSE,
            Some(wait) => wait.saturating_sub(began.elapsed()),
        };
        if left.is_zero() {
            return Err(Errno::EWOULDBLOCK);
        }
        std::thread::sleep(pause.min(left));
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Another run has the directory. Later it may not: a call that does not wait is
/// worth repeating ([`SetupError::is_busy`]).
fn busy(path: &Path, wait: Option<Duration>) -> SetupError {
    let hint = match wait {
        Some(Duration::ZERO) => {
            "wait for its end with --workspace-wait DUR, or give this run a directory of its own"
        }
        _ => {
            "try again, wait longer with --workspace-wait, or give this run a directory of its own"
        }
    };
    SetupError {
        message: "another run is using this directory".to_owned(),
        ..SetupError::os(Step::Inputs, "flock", Errno::EWOULDBLOCK)
    }
    .on(path.display())
    .hint(hint)
}

fn same(mut one: &File, mut other: &File) -> io::Result<bool> {
    let mut buffers = [vec![0; 64 << 10], vec![0; 64 << 10]];
    loop {
        let [a, b] = &mut buffers;
        let got = fill(&mut one, a)?;
        if fill(&mut other, b)? != got || a[..got] != b[..got] {
            return Ok(false);
        }
        if got == 0 {
            return Ok(true);
        }
    }
}

fn fill(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
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
