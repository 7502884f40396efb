//! A cgroup's directory, held open, and its files.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, mkdirat};
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, fstatfs};
use nix::unistd::{AccessFlags, faccessat};

use super::{LEAF, PREFIX};
use plan::probe::contents;
use record::error::{Result, SetupError, Step};
use sys::beneath::{Beneath, names};

const DIRECTORY: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_CLOEXEC);

/// The mode of the directories that are made.
pub(super) const MODE: Mode = Mode::from_bits_truncate(0o755);

/// A cgroup. The descriptor counts; the path is for messages.
#[derive(Debug)]
pub(super) struct Dir {
    file: File,
    path: PathBuf,
}

impl Dir {
    /// Opens the cgroup at `path`.
    pub(super) fn open(path: PathBuf) -> Result<Self> {
        let file = openat(AT_FDCWD, &path, DIRECTORY, Mode::empty())
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

    /// Where it was opened.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Another descriptor for it.
    pub(super) fn try_clone(&self) -> Result<Self> {
        let file = self.file.try_clone();
        Ok(Self {
            file: file.map_err(|error| self.io_error("dup", "", &error))?,
            path: self.path.clone(),
        })
    }

    /// The same directory, opened again: each of the two can hold a lock (flock(2)) of its own.
    pub(super) fn reopen(&self) -> Result<Self> {
        Ok(Self {
            path: self.path.clone(),
            ..self.child(".")?
        })
    }

    /// The open directory.
    pub(super) fn into_file(self) -> File {
        self.file
    }

    /// Opens one of the cgroup's files.
    pub(super) fn open_file(&self, name: &str, flags: OFlag) -> Result<File> {
        openat(&self.file, name, flags | OFlag::O_CLOEXEC, Mode::empty())
            .map(File::from)
            .map_err(|errno| self.error("openat", name, errno))
    }

    /// Reads the file `name`.
    pub(super) fn read(&self, name: &str) -> Result<String> {
        self.open_file(name, OFlag::O_RDONLY)
            .map(contents)?
            .and_then(|bytes| String::from_utf8(bytes).map_err(std::io::Error::other))
            .map_err(|error| self.io_error("read", name, &error))
    }

    /// The number in the file `name`; `None` for `max`, which is no limit, and where
    /// there is no such file.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.read(name).ok()?.trim().parse().ok()
    }

    /// Quota and period of `cpu.max`, in µs; `None` for no limit.
    pub(super) fn cpu_max(&self) -> Option<(u64, u64)> {
        let text = self.read("cpu.max").ok()?;
        let (quota, period) = text.trim().split_once(' ')?;
        Some((quota.parse().ok()?, period.parse().ok()?))
    }

    /// Whether it or a cgroup below it has processes.
    pub(super) fn is_populated(&self) -> bool {
        self.read("cgroup.events")
            .is_ok_and(|events| events.contains("populated 1"))
    }

    /// The names of its files and child cgroups.
    pub(super) fn names(&self) -> Vec<String> {
        let list = Beneath::new(self).list(c".");
        let names = list.and_then(|mut list| names(&mut list));
        let names = names.unwrap_or_default().into_iter();
        names.filter_map(|name| name.into_string().ok()).collect()
    }

    /// The names of the cells' cgroups in it.
    pub(super) fn cells(&self) -> Vec<String> {
        let mut names = self.names();
        names.retain(|name| name.starts_with(PREFIX) && name != LEAF);
        names
    }

    /// Opens the child cgroup `name`, which is made if it is missing.
    pub(super) fn ensure_child(&self, name: &str) -> Result<Self> {
        match mkdirat(self, name, MODE) {
            Ok(()) | Err(Errno::EEXIST) => self.child(name),
            Err(errno) => Err(self.error("mkdirat", name, errno)),
        }
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

/// Reads a file of the kernel's to its end, mostly with one read(2) and another that
/// finds the end. [`std::fs::read`] asks for the size first, which is 0, and
/// then begins with small reads, each of which the kernel renders anew.
/// The value of `key` in a file of `KEY VALUE` lines, such as `cpu.stat`.
pub(super) fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(' ')?;
        (name == key).then(|| value.trim().parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read() {
        let stat = "usage_usec 1500\nuser_usec 1000\nsystem_usec 500\nnr_throttled 3\n";
        assert_eq!(keyed(stat, "user_usec"), Some(1000));
        assert_eq!(keyed(stat, "usec"), None);
        assert_eq!(keyed("oom_kill x\n", "oom_kill"), None);
        let place = tempfile::tempdir().unwrap();
        let dir = Dir::anywhere(place.path());
        let write = |name, text| std::fs::write(place.path().join(name), text).unwrap();
        for (text, expected) in [("max\n", None), ("65536\n", Some(65536))] {
            write("pids.max", text);
            assert_eq!(dir.number("pids.max"), expected);
        }
        assert_eq!(dir.number("memory.max"), None);
        for (text, expected) in [
            ("150000 100000\n", Some((150_000, 100_000))),
            ("max 100000\n", None),
        ] {
            write("cpu.max", text);
            assert_eq!(dir.cpu_max(), expected);
        }
    }
}
