//! The directory that an archive is unpacked into.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use nix::NixPath;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat};
use nix::sys::stat::{FileStat, Mode, fstat, fstatat};

use super::sink::Refusal;
use record::error::{Result, SetupError, Step};
use sys::beneath::Beneath;

/// A directory held open, beneath which all paths are opened.
#[derive(Debug)]
pub struct Destination {
    top: OwnedFd,
    path: PathBuf,
    step: Step,
    /// The directory that was opened last: entries of one follow each other.
    last: RefCell<Option<(Vec<u8>, Rc<OwnedFd>)>>,
}

impl Destination {
    /// Opens an existing directory. `step` is the one that errors name.
    ///
    /// # Errors
    /// It cannot be opened, or is not a directory.
    pub fn open(path: &Path, step: Step) -> Result<Self> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let top = openat(AT_FDCWD, path, flags, Mode::empty())
            .map_err(|e| SetupError::os(step, "open", e).on(path.display()))?;
        Ok(Self {
            top,
            path: path.to_owned(),
            step,
            last: RefCell::new(None),
        })
    }

    /// The step that errors name.
    pub fn step(&self) -> Step {
        self.step
    }

    /// Its device and inode numbers.
    pub(super) fn identity(&self) -> Result<(u64, u64)> {
        let found = fstat(&self.top)
            .map_err(|e| SetupError::os(self.step, "fstat", e).on(self.path.display()))?;
        Ok((found.st_dev, found.st_ino))
    }

    /// The directory at the clean path `path`, created if it is missing.
    pub(super) fn make_directory(&self, path: &[u8]) -> Result<Rc<OwnedFd>, Refusal> {
        if let Some((last, dir)) = &*self.last.borrow()
            && last == path
        {
            return Ok(Rc::clone(dir));
        }
        let mode = Mode::from_bits_truncate(0o755);
        let beneath = Beneath::new(&self.top);
        let dir = beneath.make_directories(Path::new(OsStr::from_bytes(path)), mode);
        let dir = Rc::new(dir.map_err(self.refusing("openat2", path))?);
        *self.last.borrow_mut() = Some((path.to_vec(), Rc::clone(&dir)));
        Ok(dir)
    }

    /// The directory that is at the clean path `path`.
    pub(super) fn find_directory(&self, path: &[u8]) -> nix::Result<OwnedFd> {
        Beneath::new(&self.top).directory(path)
    }

    /// To be called whenever a directory may have been removed or replaced.
    pub(super) fn forget(&self) {
        *self.last.borrow_mut() = None;
    }

    /// Makes a refusal of an error number: the entry is left out if its name is at fault,
    /// and the call fails if other entries would fail too.
    pub(super) fn refusing<'a>(
        &'a self,
        call: &'a str,
        path: &'a [u8],
    ) -> impl FnOnce(Errno) -> Refusal + use<'a> {
        move |errno| match errno {
            Errno::ELOOP => "has a link in its path".into(),
            Errno::ENOTDIR => "has something other than a directory in its path".into(),
            Errno::ENOENT => "has a dangling link in its path".into(),
            Errno::EXDEV => "has a path that leads outside".into(),
            Errno::ENAMETOOLONG => "has a name that is too long".into(),
            Errno::EINVAL | Errno::EILSEQ => "has a name that the file system refuses".into(),
            Errno::EMLINK => "has more hard links than the file system allows".into(),
            errno => Refusal::Fail(self.failed(call, errno, path)),
        }
    }

    pub(super) fn failed(&self, call: &str, errno: Errno, path: &[u8]) -> SetupError {
        let target = self.path.join(OsStr::from_bytes(path));
        let error = SetupError::os(self.step, call, errno).on(target.display());
        match errno {
            Errno::ENOSPC | Errno::EDQUOT => error.hint(format!(
                "make room on the file system of {}, or choose a directory on another",
                self.path.display()
            )),
            _ => error,
        }
    }
}

/// The metadata of `name` in `dir`, if there is something of that name; a link is not
/// followed.
pub(super) fn stat<P: ?Sized + NixPath>(dir: &OwnedFd, name: &P) -> nix::Result<Option<FileStat>> {
    match fstatat(dir, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(Some(found)),
        Err(Errno::ENOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}
