//! The directory that an archive is unpacked into.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use nix::NixPath;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, fstat, fstatat, mkdirat};

use super::Budget;
use super::sink::Refusal;
use record::error::{Result, SetupError, Step};
use sys::beneath::Beneath;

/// Links without a target that one path may lead through; the kernel follows as many.
const MOST_LINKS: usize = 40;

/// A directory held open, beneath which all paths are opened. Links in the paths of
/// directories are followed as if it were the root directory, which it is for a cell.
#[derive(Debug)]
pub struct Destination<'a> {
    top: OwnedFd,
    path: PathBuf,
    budget: &'a Budget,
    /// The directory that was opened last: entries of one follow each other.
    last: RefCell<Option<(Vec<u8>, Rc<OwnedFd>)>>,
}

impl<'a> Destination<'a> {
    /// Opens an existing directory, in which `budget` may be used up.
    ///
    /// # Errors
    /// It cannot be opened, or is not a directory.
    pub fn open(path: &Path, budget: &'a Budget) -> Result<Self> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let top = openat(AT_FDCWD, path, flags, Mode::empty())
            .map_err(|e| SetupError::os(budget.step(), "open", e).on(path.display()))?;
        Ok(Self {
            top,
            path: path.to_owned(),
            budget,
            last: RefCell::new(None),
        })
    }

    /// The step that errors name.
    pub fn step(&self) -> Step {
        self.budget.step()
    }

    pub(super) fn budget(&self) -> &'a Budget {
        self.budget
    }

    /// Its device and inode numbers.
    pub(super) fn identity(&self) -> Result<(u64, u64)> {
        let found = fstat(&self.top)
            .map_err(|e| SetupError::os(self.step(), "fstat", e).on(self.path.display()))?;
        Ok((found.st_dev, found.st_ino))
    }

    /// The directory at the clean path `path`, created if it is missing.
    pub(super) fn make_directory(&self, path: &[u8]) -> Result<Rc<OwnedFd>, Refusal> {
        if let Some((last, dir)) = &*self.last.borrow()
            && last == path
        {
            return Ok(Rc::clone(dir));
        }
        let mut way = path.to_vec();
        for _ in 0..MOST_LINKS {
            match self.make_way(&way)? {
                Way::Directory(dir) => {
                    let dir = Rc::new(dir);
                    *self.last.borrow_mut() = Some((path.to_vec(), Rc::clone(&dir)));
                    return Ok(dir);
                }
                Way::Detour(next) => way = next,
            }
        }
        Err(self.refusing("openat2", path)(Errno::ELOOP))
    }

    /// Makes the directories that are missing on the way to `path`, up to the first link
    /// without a target.
    fn make_way(&self, path: &[u8]) -> Result<Way, Refusal> {
        let refuse = |call| self.refusing(call, path);
        match self.find_directory(path) {
            Err(Errno::ENOENT) => {}
            found => return Ok(Way::Directory(found.map_err(refuse("openat2"))?)),
        }
        let mut above = self.find_directory(b"").map_err(refuse("openat2"))?;
        let mut start = 0;
        for name in path.split(|byte| *byte == b'/') {
            let end = start + name.len();
            above = match self.find_directory(&path[..end]) {
                Err(Errno::ENOENT) => {
                    self.budget.take_directory(name)?;
                    match mkdirat(&above, name, Mode::from_bits_truncate(0o755)) {
                        Err(Errno::EEXIST) => {
                            let target = readlinkat(&above, name).map_err(refuse("readlink"))?;
                            let target = target.as_encoded_bytes();
                            let from = match target {
                                [b'/', ..] => b"".as_slice(),
                                _ => &path[..start],
                            };
                            return Ok(Way::Detour([from, target, &path[end..]].concat()));
                        }
                        made => made.map_err(refuse("mkdir"))?,
                    }
                    let made = Beneath::new(&above).directory(name);
                    made.map_err(refuse("openat2"))?
                }
                found => found.map_err(refuse("openat2"))?,
            };
            start = end + 1;
        }
        Ok(Way::Directory(above))
    }

    /// The directory that is at the path `path`.
    pub(super) fn find_directory(&self, path: &[u8]) -> nix::Result<OwnedFd> {
        Beneath::new(&self.top).as_root().directory(path)
    }

    /// To be called whenever a directory or link may have been removed or replaced.
    pub(super) fn forget(&self) {
        *self.last.borrow_mut() = None;
    }

    /// Makes a refusal of an error number: the entry is left out if its name is at fault,
    /// and the call fails if other entries would fail too.
    pub(super) fn refusing(&self, call: &str, path: &[u8]) -> impl FnOnce(Errno) -> Refusal {
        move |errno| match errno {
            Errno::ELOOP => "has links in its path that lead in a circle".into(),
            Errno::ENOTDIR => "has something other than a directory in its path".into(),
            Errno::ENAMETOOLONG => "has a name that is too long".into(),
            Errno::EINVAL | Errno::EILSEQ => "has a name that the file system refuses".into(),
            Errno::EMLINK => "has more hard links than the file system allows".into(),
            errno => Refusal::Fail(self.failed(call, errno, path)),
        }
    }

    pub(super) fn failed(&self, call: &str, errno: Errno, path: &[u8]) -> SetupError {
        let target = self.path.join(OsStr::from_bytes(path));
        let error = SetupError::os(self.step(), call, errno).on(target.display());
        match errno {
            Errno::ENOSPC | Errno::EDQUOT => error.hint(format!(
                "make room on the file system of {}, or choose a directory on another",
                self.path.display()
            )),
            _ => error,
        }
    }
}

/// How far the way to a directory leads.
enum Way {
    Directory(OwnedFd),
    /// A link leads to a directory that is missing, and by this path to the wanted one.
    Detour(Vec<u8>),
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
