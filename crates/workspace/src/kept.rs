//! A directory of the caller's in which a workspace, or `/tmp`, is kept between runs.
//!
//! The directory may contain anything the caller put there, and what goes back into it is
//! a hostile program's: nothing in either is followed. Files come back whole, in two
//! steps. First all that changed is copied to a directory of cellblock's own inside it,
//! and as long as that can fail the files stay as they were; then names are exchanged.
//! So each file is the old or the new one, whenever this process ends.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, Flock, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, umask};
use nix::unistd::{AccessFlags, faccessat};

use super::Baseline;
use record::bytes::RawText;
use record::error::{Result, SetupError, Step};
use sys::beneath::Beneath;
use sys::tree::{erase, kind_of};

/// Holds copies in the directory until they get their names. A killed run may leave it;
/// the next one removes it.
pub(super) const PENDING: &std::ffi::CStr = c".cellblock-pending";

/// Bytes compared at once.
const PIECE: u64 = 64 << 10;

/// The directory, open and locked.
#[derive(Debug)]
pub struct KeptDir {
    pub(super) dir: Flock<OwnedFd>,
    /// Its path, as it was named.
    pub(super) path: PathBuf,
    /// The option that named it.
    pub(super) option: &'static str,
    /// What it contained when it was read: nothing else is removed from it.
    pub(super) before: Baseline,
    /// What the caller's umask takes from new files.
    mask: u32,
}

impl KeptDir {
    /// Opens the directory that `option` names for one run alone, and creates it if it is
    /// missing. While another run has locked it, this waits, for at most `wait`. `others`
    /// are the ones that this run has opened already.
    ///
    /// # Errors
    /// It cannot be created, opened, or written to, or is in use.
    pub(super) fn open(
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
        let dir = sys::flock_within(OwnedFd::from(dir), wait).map_err(|errno| match errno {
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
            before: Baseline::default(),
            mask: usual.bits(),
        })
    }

    /// Its files, without those of other file systems.
    pub(super) fn beneath(&self) -> Beneath<'_> {
        Beneath::new(&*self.dir).on_one_mount()
    }

    /// Whether `other` is the same directory.
    ///
    /// # Errors
    /// That of fstat(2).
    pub(super) fn is(&self, other: impl AsFd) -> nix::Result<bool> {
        let (own, other) = (fstat(&*self.dir)?, fstat(other)?);
        Ok((own.st_dev, own.st_ino) == (other.st_dev, other.st_ino))
    }

    /// The permissions that a file of the cell's gets in the directory: its own, without
    /// those that the caller's umask takes. The next run must be able to read it.
    pub(super) fn mode(&self, inside: u32) -> u32 {
        inside & 0o777 & !self.mask | 0o400
    }

    /// The mode of a directory, which its owner can always fill and empty.
    pub(super) fn directory_mode(&self, inside: u32) -> u32 {
        inside & 0o777 & !self.mask | 0o700
    }

    /// Whether the directory has this symbolic link as the cell does.
    pub(super) fn has_link(&self, path: &RawText, text: &[u8]) -> bool {
        let link = self.beneath().find_link(path.as_path());
        link.and_then(|link| readlinkat(&link, c""))
            .is_ok_and(|own| own.as_encoded_bytes() == text)
    }

    /// Whether the directory has this file as the cell does.
    pub(super) fn has(&self, path: &RawText, file: &File, stat: &FileStat) -> bool {
        let Ok(own) = self.beneath().read(path.as_path()) else {
            return false;
        };
        let mode = stat.st_mode & 0o777;
        let is_alike = fstat(&own).is_ok_and(|own| {
            let own_mode = own.st_mode & 0o777;
            kind_of(&own) == SFlag::S_IFREG
                && own.st_size == stat.st_size
                && (own_mode == mode || own_mode == self.mode(mode))
        });
        is_alike && same(&own, file).unwrap_or(false)
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

/// Another run has locked the directory. A call that does not wait may succeed later
/// ([`SetupError::is_busy`]).
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

/// Whether two files have the same content.
fn same(one: &File, other: &File) -> io::Result<bool> {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    loop {
        a.clear();
        b.clear();
        one.take(PIECE).read_to_end(&mut a)?;
        other.take(PIECE).read_to_end(&mut b)?;
        if a != b {
            return Ok(false);
        }
        if a.is_empty() {
            return Ok(true);
        }
    }
}
