//! Puts files into a directory of the caller's, wholly or not at all.
//!
//! A copy has no name until it is complete (O_TMPFILE, Linux 3.11), so that a killed
//! cellblock leaves nothing. Two kinds of copies have a name of cellblock's own for some
//! time: one that replaces a file, between linkat(2) and rename(2), and one on a file
//! system without O_TMPFILE. They lie at the top of the directory, locked; the next run
//! removes those that nobody has locked.

use std::collections::hash_map::RandomState;
use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::hash::BuildHasher;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{
    AT_FDCWD, AtFlags, Flock, FlockArg, OFlag, OpenHow, ResolveFlag, openat2, renameat,
};
use nix::sys::stat::{Mode, SFlag, fstat, mkdirat};
use nix::unistd::{UnlinkatFlags, close, linkat, unlinkat};

use record::bytes::RawText;
use record::error::{Result, SetupError, Step};

/// The caller's directory for what a run leaves behind, held open: what its
/// path leads to later does not matter.
#[derive(Debug)]
pub(crate) struct OutDir {
    dir: OwnedFd,
    path: PathBuf,
}

impl OutDir {
    /// Opens the directory, and makes it when it is missing.
    ///
    /// # Errors
    /// It cannot be made, opened, or is no directory.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let fail = |call, error: &io::Error| {
            SetupError::io(Step::Outputs, call, error)
                .on(path.display())
                .hint("give --out a directory that you may write to")
        };
        fs::create_dir_all(path).map_err(|error| fail("mkdir", &error))?;
        let dir = OwnedFd::from(File::open(path).map_err(|error| fail("open", &error))?);
        // What cannot be removed harms nothing.
        let _ = remove_leftovers(&dir);
        Ok(Self {
            dir,
            path: path.to_owned(),
        })
    }

    /// The open directory.
    pub(crate) fn dir(&self) -> &OwnedFd {
        &self.dir
    }

    /// Begins the copy of a file, with the directories above it.
    ///
    /// Directories and the file are made as the caller's umask says, the file
    /// never executable: what comes out of a cell is data.
    pub(super) fn begin(&self, path: &RawText) -> Result<Copy> {
        let fail = |call, errno: Errno| self.error(call, &errno.into(), path);
        let mut names: Vec<CString> = path
            .as_bytes()
            .split(|byte| *byte == b'/')
            .map(|name| CString::new(name).map_err(|_| fail("open", Errno::EINVAL)))
            .collect::<Result<_>>()?;
        let name = names.pop().unwrap_or_default();
        let mut dir = self
            .dir
            .try_clone()
            .map_err(|error| self.error("dup", &error, path))?;
        for parent in names {
            match mkdirat(&dir, parent.as_c_str(), Mode::from_bits_truncate(0o777)) {
                Ok(()) | Err(Errno::EEXIST) => {}
                Err(errno) => return Err(fail("mkdir", errno)),
            }
            let flags = OFlag::O_PATH | OFlag::O_DIRECTORY;
            dir = open_beneath(&dir, &parent, flags).map_err(|errno| fail("open", errno))?;
        }
        let aside = self.aside(&dir);
        let aside = aside.map_err(|error| self.error("dup", &error, path))?;
        let (file, temporary) = match create_unnamed(&dir) {
            // NFS and FUSE have no files without a name; some say so by EISDIR.
            Err(Errno::EOPNOTSUPP | Errno::EISDIR | Errno::ENOENT | Errno::EINVAL) => {
                let temporary = new_name();
                let file = create_named(&aside, &temporary).map_err(|e| fail("create", e))?;
                (file, Some(temporary))
            }
            other => (other.map_err(|e| fail("create", e))?, None),
        };
        // Others see by it that this copy is no leftover. Where there are no locks,
        // nothing is removed either.
        let lock = file.try_clone().ok();
        let lock = lock.and_then(|file| Flock::lock(file, FlockArg::LockExclusiveNonblock).ok());
        Ok(Copy {
            file,
            place: Place {
                dir,
                name,
                aside,
                temporary,
                _lock: lock,
            },
        })
    }

    /// Where names of cellblock's own go: at the top, where they are looked for, unless
    /// `dir` is on another file system.
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

/// Whether a failure concerns one file's name, so that others can do better.
pub(super) fn concerns_one_name(error: &SetupError) -> bool {
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

/// A copy in progress: it has its name only once it is complete.
pub(super) struct Copy {
    pub(super) file: File,
    place: Place,
}

/// Where a copy goes, and the name that it has meanwhile.
struct Place {
    dir: OwnedFd,
    name: CString,
    aside: OwnedFd,
    temporary: Option<CString>,
    _lock: Option<Flock<File>>,
}

impl Copy {
    /// Gives the copy its name. What had that name is replaced; a symbolic link
    /// is replaced itself and never followed.
    pub(super) fn commit(self) -> io::Result<()> {
        let Self { file, mut place } = self;
        // Network file systems report a full disk only when a file is closed.
        close(file.try_clone()?)?;
        place.take(&file).map_err(Into::into)
    }
}

impl Place {
    fn take(&mut self, file: &File) -> nix::Result<()> {
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

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            let _ = unlinkat(
                &self.aside,
                temporary.as_c_str(),
                UnlinkatFlags::NoRemoveDir,
            );
        }
    }
}

/// What names of cellblock's own begin with.
const OWN: &[u8] = b".cellblock-";
/// Hexadecimal digits after it.
const DIGITS: usize = 16;

/// A name that code in a cell could not have guessed.
fn new_name() -> CString {
    let random = RandomState::new().hash_one(());
    let name = format!("{}{random:0DIGITS$x}", String::from_utf8_lossy(OWN));
    CString::new(name).unwrap_or_default()
}

/// Whether a file of this name at the top of the directory would be taken for a
/// leftover.
pub(super) fn is_reserved(path: &[u8]) -> bool {
    path.strip_prefix(OWN)
        .is_some_and(|digits| digits.len() == DIGITS && digits.iter().all(u8::is_ascii_hexdigit))
}

/// Removes what runs left that were killed. A run that lives has its copies locked.
fn remove_leftovers(dir: &OwnedFd) -> nix::Result<()> {
    let mut names = Vec::new();
    for entry in Dir::openat(dir, c".", OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?.iter() {
        let name = entry?.file_name().to_owned();
        if is_reserved(name.as_bytes()) {
            names.push(name);
        }
    }
    for name in names {
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK;
        let Ok(file) = open_beneath(dir, &name, flags) else {
            continue;
        };
        let is_file = fstat(&file).is_ok_and(|stat| {
            SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFREG
        });
        if is_file && Flock::lock(file, FlockArg::LockExclusiveNonblock).is_ok() {
            let _ = unlinkat(dir, name.as_c_str(), UnlinkatFlags::NoRemoveDir);
        }
    }
    Ok(())
}

fn create_unnamed(dir: &OwnedFd) -> nix::Result<File> {
    let how = OpenHow::new()
        .flags(OFlag::O_TMPFILE | OFlag::O_WRONLY | OFlag::O_CLOEXEC)
        .mode(Mode::from_bits_truncate(0o666));
    openat2(dir, c".", how).map(File::from)
}

fn create_named(dir: &OwnedFd, name: &CString) -> nix::Result<File> {
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL;
    open_beneath(dir, name, flags).map(File::from)
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

fn open_beneath(dir: &OwnedFd, name: &CString, flags: OFlag) -> nix::Result<OwnedFd> {
    let resolve = ResolveFlag::RESOLVE_BENEATH
        | ResolveFlag::RESOLVE_NO_SYMLINKS
        | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    let mut how = OpenHow::new()
        .flags(flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
        .resolve(resolve);
    if flags.contains(OFlag::O_CREAT) {
        how = how.mode(Mode::from_bits_truncate(0o666));
    }
    openat2(dir, name.as_c_str(), how)
}
