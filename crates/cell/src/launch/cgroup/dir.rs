//! A cgroup's directory, held open, and its files.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat};
use nix::sys::stat::Mode;
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, fstatfs};
use nix::unistd::{AccessFlags, faccessat};

use record::error::{Result, SetupError, Step};

const DIRECTORY: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_CLOEXEC);

/// A cgroup. The descriptor counts; the path is for messages.
#[derive(Debug)]
pub(super) struct Dir {
    file: File,
    path: PathBuf,
}

impl Dir {
    /// Opens the cgroup at `path`.
    pub(super) fn open(path: PathBuf) -> Result<Self> {
        let file = open(&path, DIRECTORY, Mode::empty())
            .map_err(|errno| SetupError::os(Step::Cgroup, "open", errno).on(path.display()))?
            .into();
        Self::checked(file, path)
    }

    fn checked(file: File, path: PathBuf) -> Result<Self> {
        let kind = fstatfs(&file)
            .map_err(|errno| SetupError::os(Step::Cgroup, "fstatfs", errno).on(path.display()))?;
        if kind.filesystem_type() != CGROUP2_SUPER_MAGIC {
            return Err(SetupError::new(
                Step::Cgroup,
                "not a directory of a cgroup v2 file system",
            )
            .on(path.display()));
        }
        Ok(Self { file, path })
    }

    /// Opens a directory of any file system.
    #[cfg(test)]
    pub(super) fn anywhere(path: &Path) -> Self {
        Self {
            file: File::open(path).unwrap(),
            path: path.to_owned(),
        }
    }

    /// Opens the child cgroup `name`.
    pub(super) fn child(&self, name: &str) -> Result<Self> {
        let file = openat(
            &self.file,
            name,
            DIRECTORY | OFlag::O_NOFOLLOW,
            Mode::empty(),
        )
        .map_err(|errno| self.error("openat", name, errno))?
        .into();
        Ok(Self {
            file,
            path: self.path.join(name),
        })
    }

    /// The cgroup above; `None` at the root of the mount, above which another
    /// file system is.
    pub(super) fn above(&self) -> Option<Self> {
        let file = openat(&self.file, "..", DIRECTORY, Mode::empty()).ok()?;
        Self::checked(file.into(), self.path.join("..")).ok()
    }

    /// Where it was found.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The open directory.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Opens one of the cgroup's files.
    pub(super) fn open_file(&self, name: &str, flags: OFlag) -> Result<File> {
        openat(&self.file, name, flags | OFlag::O_CLOEXEC, Mode::empty())
            .map(File::from)
            .map_err(|errno| self.error("openat", name, errno))
    }

    /// What the file `name` holds.
    pub(super) fn read(&self, name: &str) -> Result<String> {
        self.open_file(name, OFlag::O_RDONLY)
            .map(contents)?
            .and_then(|bytes| String::from_utf8(bytes).map_err(std::io::Error::other))
            .map_err(|error| self.io_error("read", name, &error))
    }

    /// Writes `value` to the file `name`, in one call.
    pub(super) fn write(&self, name: &str, value: &str) -> Result<()> {
        self.open_file(name, OFlag::O_WRONLY)?
            .write_all(value.as_bytes())
            .map_err(|error| self.io_error("write", &format!("{name} = {value}"), &error))
    }

    /// Whether the caller may write to `name` (`.` is the directory itself).
    pub(super) fn may_write(&self, name: &str) -> Result<()> {
        faccessat(&self.file, name, AccessFlags::W_OK, AtFlags::empty())
            .map_err(|errno| self.error("access", name, errno))
    }

    /// A failure of `syscall` on `name` below this directory.
    pub(super) fn error(&self, syscall: &str, name: &str, errno: Errno) -> SetupError {
        let error = SetupError::os(Step::Cgroup, syscall, errno);
        match name {
            "." => error.on(self.path.display()),
            _ => error.on(self.path.join(name).display()),
        }
    }

    fn io_error(&self, syscall: &str, name: &str, error: &std::io::Error) -> SetupError {
        SetupError::io(Step::Cgroup, syscall, error).on(self.path.join(name).display())
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// All that a file of the kernel's holds, mostly with one read(2) and another
/// that finds the end. [`std::fs::read`] asks for the size first, which is 0, and
/// then begins with small reads, each of which the kernel renders anew.
pub(super) fn contents(file: File) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(8 * 1024);
    file.take(u64::MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}
