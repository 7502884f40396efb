//! Puts files into a directory of the caller's, wholly or not at all.

use std::collections::hash_map::RandomState;
use std::ffi::CString;
use std::fs::{self, File};
use std::hash::BuildHasher;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2, renameat};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{UnlinkatFlags, close, unlinkat};

use crate::bytes::RawText;
use crate::error::{Result, SetupError, Step};

/// The caller's directory for what a run leaves behind, held open: what its
/// path leads to later does not matter.
#[derive(Debug)]
pub struct OutDir {
    dir: OwnedFd,
    path: PathBuf,
}

impl OutDir {
    /// Opens the directory, and makes it when it is missing.
    ///
    /// # Errors
    /// It cannot be made, opened, or is no directory.
    pub fn open(path: &Path) -> Result<Self> {
        let fail = |call, error: &io::Error| {
            SetupError::io(Step::Outputs, call, error)
                .on(path.display())
                .hint("give --out a directory that you may write to")
        };
        fs::create_dir_all(path).map_err(|error| fail("mkdir", &error))?;
        let dir = File::open(path).map_err(|error| fail("open", &error))?;
        Ok(Self {
            dir: dir.into(),
            path: path.to_owned(),
        })
    }

    /// The open directory.
    pub fn dir(&self) -> &OwnedFd {
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
        let (temporary, file) = create_temporary(&dir).map_err(|errno| fail("create", errno))?;
        Ok(Copy {
            file,
            place: Place {
                dir,
                temporary,
                name,
                is_done: false,
            },
        })
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

/// Where a copy is and where it goes.
struct Place {
    dir: OwnedFd,
    temporary: CString,
    name: CString,
    is_done: bool,
}

impl Copy {
    /// Gives the copy its name. What had that name is replaced; a symbolic link
    /// is replaced itself and never followed.
    pub(super) fn commit(self) -> io::Result<()> {
        let Self { file, mut place } = self;
        // Network file systems report a full disk only here.
        close(file)?;
        let name = place.name.as_c_str();
        renameat(&place.dir, place.temporary.as_c_str(), &place.dir, name)?;
        place.is_done = true;
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.is_done {
            let name = self.temporary.as_c_str();
            let _ = unlinkat(&self.dir, name, UnlinkatFlags::NoRemoveDir);
        }
    }
}

/// A new file with a name that code in a cell could not have guessed.
fn create_temporary(dir: &OwnedFd) -> nix::Result<(CString, File)> {
    let random = RandomState::new().hash_one(());
    let name = CString::new(format!(".cellblock-{random:016x}")).map_err(|_| Errno::EINVAL)?;
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL;
    let file = open_beneath(dir, &name, flags)?;
    Ok((name, file.into()))
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
