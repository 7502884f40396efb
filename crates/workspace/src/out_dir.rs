//! Copies files into a directory of the caller's, wholly or not at all.
//!
//! A copy has no name until it is complete (`O_TMPFILE`), so that a killed cellblock
//! leaves nothing. Two kinds of copies have a temporary name for some time: one that
//! replaces a file, between linkat(2) and rename(2), and one on a file system without
//! `O_TMPFILE`. They lie at the top of the directory, locked; the next run removes those
//! that are not.

use std::collections::hash_map::RandomState;
use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::hash::BuildHasher;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, Flock, FlockArg, OFlag, openat, renameat};
use nix::sys::stat::{Mode, fstat};
use nix::unistd::{UnlinkatFlags, close, linkat, unlinkat};

use record::bytes::RawText;
use record::error::{Result, SetupError, Step};
use sys::beneath::{Beneath, entries};

/// The directory of `--out`, held open: where its path leads later does not matter.
#[derive(Debug)]
pub struct OutDir {
    pub(super) dir: OwnedFd,
    path: PathBuf,
}

impl OutDir {
    /// Opens the directory, and creates it if it is missing.
    ///
    /// # Errors
    /// It cannot be created or opened, or is not a directory.
    pub fn open(path: &Path) -> Result<Self> {
        let fail = |call, error: &io::Error| {
            SetupError::io(Step::Outputs, call, error)
                .on(path.display())
                .hint("give --out a directory that you may write to")
        };
        fs::create_dir_all(path).map_err(|error| fail("mkdir", &error))?;
        let dir = OwnedFd::from(File::open(path).map_err(|error| fail("open", &error))?);
        // A leftover that cannot be removed does no harm.
        let _ = remove_leftovers(&dir);
        Ok(Self {
            dir,
            path: path.to_owned(),
        })
    }

    /// Writes a file of these pieces, wholly or not at all, with the directories above it.
    ///
    /// # Errors
    /// A piece is missing, or the file cannot be written.
    pub fn write(
        &self,
        path: &RawText,
        pieces: impl IntoIterator<Item = Result<Vec<u8>>>,
    ) -> Result<()> {
        let mut copy = self.begin(path)?;
        for piece in pieces {
            copy.write(&piece?);
        }
        copy.commit()
            .map_err(|(call, error)| self.error(call, &error, path))
    }

    /// Begins the copy of a file, with the directories above it.
    ///
    /// The caller's umask decides on modes, and the file is never executable: what comes
    /// out of a cell is data.
    pub(super) fn begin(&self, path: &RawText) -> Result<Copy> {
        let fail = |call, error: io::Error| self.error(call, &error, path);
        let name = path.as_path().file_name().unwrap_or_default();
        let name = CString::new(name.as_encoded_bytes()).map_err(|e| fail("open", e.into()))?;
        let parent = path.as_path().parent().unwrap_or(Path::new(""));
        let dir = Beneath::new(&self.dir)
            .make_directories(parent, Mode::from_bits_truncate(0o777))
            .map_err(|e| fail("openat2", e.into()))?;
        let aside = self.aside(&dir).map_err(|e| fail("dup", e))?;
        let (file, temporary) = match create_unnamed(&dir) {
            // NFS and FUSE have no files without a name; some report that by EISDIR.
            Err(Errno::EOPNOTSUPP | Errno::EISDIR | Errno::ENOENT | Errno::EINVAL) => {
                let temporary = new_name();
                let mode = Mode::from_bits_truncate(0o666);
                let file = Beneath::new(&aside).create(temporary.as_c_str(), mode);
                (file.map_err(|e| fail("create", e.into()))?, Some(temporary))
            }
            other => (other.map_err(|e| fail("create", e.into()))?, None),
        };
        // The lock shows other runs that this copy is not a leftover. Where there are no
        // locks, they remove nothing either.
        let lock = file.try_clone().ok();
        let lock = lock.and_then(|file| sys::flock(file, FlockArg::LockExclusiveNonblock).ok());
        Ok(Copy {
            file,
            write_error: None,
            target: Target {
                dir,
                name,
                aside,
                temporary,
                _lock: lock,
            },
        })
    }

    /// Where temporary names go: at the top, where leftovers are looked for, unless `dir`
    /// is on another file system.
    fn aside(&self, dir: &OwnedFd) -> io::Result<OwnedFd> {
        let is_same = fstat(&self.dir)?.st_dev == fstat(dir)?.st_dev;
        if is_same { &self.dir } else { dir }.try_clone()
    }

    /// A failure to copy `path` out.
    pub(super) fn error(&self, call: &str, error: &io::Error, path: &RawText) -> SetupError {
        let target = self.path.join(path.as_path());
        let failure = SetupError::io(Step::Outputs, call, error).on(target.display());
        match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENOSPC | Errno::EDQUOT) => {
                failure.hint("make room there, or give --out a directory on another file system")
            }
            Some(Errno::ELOOP | Errno::ENOTDIR) => {
                failure.hint("something other than a directory is in its way there; move that away")
            }
            _ => failure,
        }
    }
}

/// Whether a failure concerns one file's name only, and other files may still succeed.
pub(super) fn affects_one_name(error: &SetupError) -> bool {
    [
        Errno::ELOOP,
        Errno::ENOTDIR,
        Errno::EISDIR,
        Errno::ENOTEMPTY,
        Errno::ENAMETOOLONG,
        Errno::EINVAL,
        Errno::EILSEQ,
    ]
    .iter()
    .any(|errno| error.errno == Some(*errno as i32))
}

/// A copy in progress: it gets its name when it is complete.
pub(super) struct Copy {
    file: File,
    write_error: Option<io::Error>,
    target: Target,
}

/// The name that a copy gets, and the one it has meanwhile.
struct Target {
    dir: OwnedFd,
    name: CString,
    /// Holds the temporary name.
    aside: OwnedFd,
    temporary: Option<CString>,
    _lock: Option<Flock<File>>,
}

impl Copy {
    /// Writes the next piece. After a failure, which [`Copy::commit`] returns, it does
    /// nothing.
    pub(super) fn write(&mut self, piece: &[u8]) {
        if self.write_error.is_none() {
            self.write_error = self.file.write_all(piece).err();
        }
    }

    /// Gives the copy its name. What had that name is replaced; a symbolic link is
    /// replaced itself and never followed.
    ///
    /// # Errors
    /// The call that failed, and its error.
    pub(super) fn commit(self) -> Result<(), (&'static str, io::Error)> {
        let Self {
            file,
            write_error,
            mut target,
        } = self;
        if let Some(error) = write_error {
            return Err(("write", error));
        }
        // Network file systems report a full disk only when a file is closed.
        let closed = file.try_clone().and_then(|file| Ok(close(file)?));
        closed.map_err(|error| ("close", error))?;
        target.name(&file).map_err(|errno| ("rename", errno.into()))
    }
}

impl Target {
    fn name(&mut self, file: &File) -> nix::Result<()> {
        let name = self.name.as_c_str();
        if self.temporary.is_none() {
            match link(file, &self.dir, name) {
                Err(Errno::EEXIST) => {
                    let temporary = new_name();
                    link(file, &self.aside, &temporary)?;
                    self.temporary = Some(temporary);
                }
                other => return other,
            }
        }
        if let Some(temporary) = &self.temporary {
            renameat(&self.aside, temporary.as_c_str(), &self.dir, name)?;
            self.temporary = None;
        }
        Ok(())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            let flags = UnlinkatFlags::NoRemoveDir;
            let _ = unlinkat(&self.aside, temporary.as_c_str(), flags);
        }
    }
}

/// What temporary names begin with.
const PREFIX: &[u8] = b".cellblock-";
/// Hexadecimal digits after it.
const DIGITS: usize = 16;

/// A name that code in a cell could not have guessed.
fn new_name() -> CString {
    let random = RandomState::new().hash_one(());
    let name = format!("{}{random:0DIGITS$x}", String::from_utf8_lossy(PREFIX));
    CString::new(name).unwrap_or_default()
}

/// Whether a file of this name at the top of the directory would be taken for a
/// leftover.
pub(super) fn is_reserved(path: &[u8]) -> bool {
    path.strip_prefix(PREFIX)
        .is_some_and(|digits| digits.len() == DIGITS && digits.iter().all(u8::is_ascii_hexdigit))
}

/// Removes what killed runs left. Those that live have their copies locked.
fn remove_leftovers(dir: &OwnedFd) -> nix::Result<()> {
    let beneath = Beneath::new(dir);
    let mut names = Vec::new();
    for entry in entries(&mut beneath.list("")?) {
        let name = entry?.file_name().to_owned();
        if is_reserved(name.as_bytes()) {
            names.push(name);
        }
    }
    for name in names {
        let Ok(file) = beneath.read(name.as_c_str()) else {
            continue;
        };
        let is_file = file.metadata().is_ok_and(|found| found.is_file());
        if is_file && sys::flock(file, FlockArg::LockExclusiveNonblock).is_ok() {
            let _ = unlinkat(dir, name.as_c_str(), UnlinkatFlags::NoRemoveDir);
        }
    }
    Ok(())
}

fn create_unnamed(dir: &OwnedFd) -> nix::Result<File> {
    let flags = OFlag::O_TMPFILE | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
    openat(dir, c".", flags, Mode::from_bits_truncate(0o666)).map(File::from)
}

/// Gives an unnamed file a name. AT_EMPTY_PATH would want CAP_DAC_READ_SEARCH before
/// Linux 6.10.
fn link(file: &File, dir: &OwnedFd, name: &CStr) -> nix::Result<()> {
    let own = format!("/proc/self/fd/{}", file.as_raw_fd());
    linkat(
        AT_FDCWD,
        own.as_str(),
        dir,
        name,
        AtFlags::AT_SYMLINK_FOLLOW,
    )
}
