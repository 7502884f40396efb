//! Compiled shims in the caller's cache: `cellblock/drivers` below `$XDG_CACHE_HOME` or `~/.cache`.
//!
//! A file is used only if it and its directory are the caller's and nobody else can write to
//! them or to a directory on the way to them: otherwise another user could lead the caller to
//! files that were collected from a cell. It is opened once, and then checked and read by its
//! descriptor. It begins
//! with a digest of the rest, so that one that was damaged or not written to its end is no file.
//! An empty content is a note: this interpreter makes no compiled form.
//!
//! Files are written without a name and get theirs when they are complete, so that nothing is
//! left of a process that ends meanwhile, and two at once do not meet.

use std::fs::{DirBuilder, File};
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, open, openat, posix_fallocate};
use nix::sys::stat::{FileStat, Mode, fstat, lstat, stat};
use nix::unistd::{UnlinkatFlags, geteuid, linkat, unlinkat};
use sha2::{Digest as _, Sha256};

use sys::beneath::{Beneath, names};

/// The bytes that a compiled shim has at most.
pub(super) const LONGEST: u64 = 1 << 20;

/// The room that is reserved for one, so that nothing is compiled in vain.
const ROOM: i64 = 256 << 10;

/// The bytes before the content.
const DIGEST: usize = 32;

/// How long a file is used. What no interpreter can use any more goes then, too.
const LIFE: Duration = Duration::from_secs(30 * 24 * 3600);

/// How long such a note is believed.
const LIFE_OF_NOTHING: Duration = Duration::from_secs(24 * 3600);

/// The caller's compiled shims.
#[derive(Debug)]
pub(super) struct Store {
    /// The cache directory that all programs share.
    base: PathBuf,
    /// What is in it, if that is there already.
    directory: Option<OwnedFd>,
}

/// What the store has.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A compiled shim.
    Content(Vec<u8>),
    /// A note that this interpreter makes none.
    Nothing,
    /// No file, or none that may be used.
    Missing,
}

impl Store {
    /// The store that the environment names. `None` where it names none.
    pub(super) fn of_caller() -> Option<Self> {
        let absolute = |name: &str| {
            let path = std::env::var_os(name).map(PathBuf::from);
            path.filter(|path| path.is_absolute())
        };
        let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
        Some(Self::at(base))
    }

    fn at(base: PathBuf) -> Self {
        Self {
            directory: open_own(&base),
            base,
        }
    }

    pub(super) fn find(&self, key: &str) -> Found {
        let read = self.directory.as_ref().map(|dir| read(dir, key));
        read.flatten().unwrap_or(Found::Missing)
    }

    /// A place for a new file. `None` where it cannot be kept.
    pub(super) fn draft<'a>(&'a self, key: &'a str) -> Option<Draft<'a>> {
        let made = match self.directory {
            Some(_) => None,
            None => Some(make_own(&self.base)?),
        };
        let directory = made.as_ref().or(self.directory.as_ref())?;
        let flags = OFlag::O_TMPFILE | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
        let file = openat(directory, ".", flags, Mode::S_IRUSR | Mode::S_IWUSR).ok()?;
        match posix_fallocate(&file, 0, ROOM) {
            // Not every file system can promise room.
            Ok(()) | Err(Errno::EOPNOTSUPP | Errno::EINVAL) => {}
            Err(_) => return None,
        }
        Some(Draft {
            directory: directory.try_clone().ok()?,
            file: file.into(),
            key,
        })
    }
}

/// A file that has no name yet.
#[derive(Debug)]
pub(super) struct Draft<'a> {
    directory: OwnedFd,
    file: File,
    key: &'a str,
}

impl Draft<'_> {
    /// Writes the content, and gives the file its name instead of another one that has it. Where
    /// that fails there is no file.
    pub(super) fn keep(mut self, content: &[u8]) {
        if content.len() as u64 > LONGEST {
            return;
        }
        let all = [&*Sha256::digest(content), content].concat();
        let is_written = self.file.write_all(&all).is_ok();
        if is_written && self.file.set_len(all.len() as u64).is_ok() {
            self.remove_old();
            if self.link() == Err(Errno::EEXIST) {
                // It is damaged or too old; or another call was as fast.
                let _ = unlinkat(&self.directory, self.key, UnlinkatFlags::NoRemoveDir);
                let _ = self.link();
            }
        }
    }

    fn link(&self) -> nix::Result<()> {
        let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let follow = AtFlags::AT_SYMLINK_FOLLOW;
        linkat(AT_FDCWD, &*own, &self.directory, self.key, follow)
    }

    /// Removes what is too old to be used.
    fn remove_old(&self) {
        let Ok(mut directory) = Beneath::new(&self.directory).list(".") else {
            return;
        };
        for name in names(&mut directory).unwrap_or_default() {
            let status = Beneath::new(&self.directory).find_link(&*name).map(fstat);
            if let Ok(Ok(status)) = status
                && is_file(&status)
                && !is_younger(&status, LIFE)
            {
                let _ = unlinkat(&self.directory, &*name, UnlinkatFlags::NoRemoveDir);
            }
        }
    }
}

/// The store's directory in the cache at `base`.
fn directory_in(base: &Path) -> PathBuf {
    base.join("cellblock/drivers")
}

/// Opens the store's directory, if it is the caller's own.
fn open_own(base: &Path) -> Option<OwnedFd> {
    if !leads_there(&directory_in(base)) {
        return None;
    }
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_RDONLY;
    let directory = open(&directory_in(base), flags, Mode::empty()).ok()?;
    let status = fstat(&directory).ok()?;
    is_own(&status).then_some(directory)
}

/// Makes it first, in a cache of the caller's own: with sudo(8), HOME may be another user's.
fn make_own(base: &Path) -> Option<OwnedFd> {
    let above = stat(base).or_else(|_| stat(base.parent().unwrap_or(base)));
    if above.ok()?.st_uid != geteuid().as_raw() {
        return None;
    }
    for (path, mode) in [
        (base.to_owned(), 0o700),
        (base.join("cellblock"), 0o755),
        (directory_in(base), 0o700),
    ] {
        // It may be there; the next step tells.
        let _ = DirBuilder::new().mode(mode).create(path);
    }
    open_own(base)
}

/// Whether no other user but root decides where this path leads.
fn leads_there(path: &Path) -> bool {
    let mut has_link = false;
    let is_settled = |at: &Path| {
        lstat(at).is_ok_and(|status| {
            let owner = status.st_uid;
            let is_sticky = status.st_mode & libc::S_ISVTX != 0;
            let is_link = status.st_mode & libc::S_IFMT == libc::S_IFLNK;
            has_link |= is_link;
            (owner == 0 || owner == geteuid().as_raw())
                && (is_link || is_sticky || status.st_mode & 0o022 == 0)
        })
    };
    if !path.ancestors().all(is_settled) {
        return false;
    }
    // A link to follow, such as that of a home on another disk.
    !has_link || path.canonicalize().is_ok_and(|real| leads_there(&real))
}

fn read(directory: &OwnedFd, key: &str) -> Option<Found> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let mut file = File::from(openat(directory, key, flags, Mode::empty()).ok()?);
    let status = fstat(file.as_fd()).ok()?;
    let is_usable = is_file(&status) && is_own(&status) && status.st_nlink == 1;
    let most = LONGEST as usize + DIGEST;
    let length = usize::try_from(status.st_size).ok()?;
    if !is_usable || !(DIGEST..=most).contains(&length) {
        return None;
    }
    let mut digest = [0; DIGEST];
    file.read_exact(&mut digest).ok()?;
    let mut content = vec![0; length - DIGEST];
    file.read_exact(&mut content).ok()?;
    if *Sha256::digest(&content) != digest {
        return None;
    }
    match content.is_empty() {
        true => is_younger(&status, LIFE_OF_NOTHING).then_some(Found::Nothing),
        false => is_younger(&status, LIFE).then_some(Found::Content(content)),
    }
}

fn is_file(status: &FileStat) -> bool {
    status.st_mode & libc::S_IFMT == libc::S_IFREG
}

/// Whether only the caller can change it.
fn is_own(status: &FileStat) -> bool {
    status.st_uid == geteuid().as_raw() && status.st_mode & 0o022 == 0
}

fn is_younger(status: &FileStat, life: Duration) -> bool {
    let changed = u64::try_from(status.st_mtime).map(Duration::from_secs);
    let until = changed
        .ok()
        .and_then(|changed| UNIX_EPOCH.checked_add(changed + life));
    until.is_some_and(|until| SystemTime::now() < until)
}

#[cfg(test)]
mod tests;
