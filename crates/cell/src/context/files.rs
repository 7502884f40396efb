//! Files below a workspace, read and written from outside.
//!
//! The workspace is a tmpfs that a hostile program fills. The cell's processes are
//! stopped meanwhile; no link is followed, no other mount entered, only regular files are
//! read, and answers are bounded.

use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};

use nix::errno::Errno;
use nix::fcntl::renameat;
use nix::sys::stat::{Mode, SFlag, fchmod, fstat, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use serde::Serialize;

use super::Context;
use crate::workspace::copy::as_owner;
use record::bytes::RawText;
use record::error::{Result, SetupError, Step};
use sys::beneath::Beneath;
use sys::tree::{self, erase, kind_of};

/// The most bytes of one answer.
const MOST_BYTES: u64 = 16 << 20;
/// The most entries of one answer.
const MOST_ENTRIES: usize = 10_000;
/// The name of a file while it is being written.
const PENDING: &str = ".cellblock-writing";

/// The answer to a file order.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FileAnswer {
    /// The file was written.
    Written {
        /// Its bytes.
        size: u64,
    },
    /// A part of a file.
    Content {
        /// The part.
        content: RawText,
        /// Where it begins.
        offset: u64,
        /// Bytes of the whole file.
        size: u64,
    },
    /// A directory's content.
    Entries {
        /// Sorted by path.
        entries: Vec<Entry>,
        /// Whether there are more.
        is_cut: bool,
    },
    /// It is gone.
    Removed {},
    /// Changes are reported from now on.
    Watching {},
    /// They no longer are.
    Unwatched {
        /// What was watched; nothing if the watch had ended before.
        path: Option<RawText>,
    },
}

/// One entry of a directory.
#[derive(Debug, Serialize)]
pub(crate) struct Entry {
    /// Relative to the workspace.
    path: RawText,
    /// `file`, `directory`, `link` or `other`.
    kind: &'static str,
    /// Bytes of a file.
    size: u64,
    /// When it was last changed, in seconds since 1970.
    mtime: i64,
    /// Permission bits.
    mode: u32,
}

/// The workspace of a cell whose processes are stopped, or which has ended.
pub(crate) struct Workspace<'w> {
    pub(super) dir: &'w OwnedFd,
    /// As whom files are made: as root, the cell's own id outside.
    owner: (u32, u32),
}

impl Context<'_> {
    /// Lets `act` use the workspace while nothing else does. A cell is started for it, if
    /// there never was one.
    ///
    /// # Errors
    /// The cell cannot be started or stopped, or has no workspace of its own; or those of
    /// `act`.
    pub(crate) fn in_workspace<T>(
        &mut self,
        act: impl FnOnce(&Workspace<'_>) -> Result<T>,
    ) -> Result<T> {
        self.note_end();
        if self.live.is_none() && self.workspace.is_none() {
            self.prepare()?;
        }
        let Some(live) = &mut self.live else {
            let dir = self.workspace.as_ref().ok_or_else(no_workspace)?;
            return act(&Workspace {
                dir,
                owner: self.owner,
            });
        };
        live.cell.settle()?;
        let place = live.facts.workspace().ok_or_else(no_workspace)?;
        let owner = live.facts.owner();
        let frozen = live.cell.freeze()?;
        let dir = frozen.scratch().get(place).ok_or_else(no_workspace)?;
        act(&Workspace { dir, owner })
    }
}

impl Context<'_> {
    /// Writes a file ([`Workspace::write`]). No execution lists it as one of its own.
    ///
    /// # Errors
    /// Those of [`Self::in_workspace`] and [`Workspace::write`].
    pub(crate) fn write_file(
        &mut self,
        path: &Path,
        content: &RawText,
        executable: bool,
    ) -> Result<FileAnswer> {
        let answer = self.in_workspace(|files| files.write(path, content, executable))?;
        if let Some(live) = &mut self.live {
            live.note_written(path, content.as_bytes());
        }
        Ok(answer)
    }

    /// Removes a file or a directory ([`Workspace::remove`]). No execution lists it as deleted.
    ///
    /// # Errors
    /// Those of [`Self::in_workspace`] and [`Workspace::remove`].
    pub(crate) fn remove_file(&mut self, path: &Path) -> Result<FileAnswer> {
        let answer = self.in_workspace(|files| files.remove(path))?;
        if let Some(live) = &mut self.live {
            live.note_removed(path);
        }
        Ok(answer)
    }
}

fn no_workspace() -> SetupError {
    SetupError::new(Step::Outputs, "the cell has no workspace of its own")
        .hint("look at the directory that is bound there")
}

impl Workspace<'_> {
    /// Writes a file, and makes the directories above it. A file of its name is replaced
    /// as a whole.
    ///
    /// # Errors
    /// The path is not allowed, or the workspace is full.
    fn write(&self, path: &Path, content: &RawText, executable: bool) -> Result<FileAnswer> {
        let name = checked(path)?
            .file_name()
            .ok_or_else(|| not_allowed(path))?;
        let bytes = content.as_bytes();
        self.as_owner(|| {
            let parent = path.parent().unwrap_or(Path::new(""));
            let parent = match parent.as_os_str().is_empty() {
                true => self.beneath().directory(c"."),
                false => self
                    .beneath()
                    .make_directories(parent, Mode::from_bits_truncate(0o755)),
            };
            let parent = parent.map_err(|e| failed("openat2", e, path))?;
            let pending = |errno| failed("create", errno, path);
            let _ = unlinkat(&parent, PENDING, UnlinkatFlags::NoRemoveDir);
            let mode = if executable { 0o755 } else { 0o644 };
            let usual = Mode::from_bits_truncate(0o600);
            let mut file = Beneath::new(&parent)
                .create(PENDING, usual)
                .map_err(pending)?;
            let written = (file.write_all(bytes))
                .map_err(|e| SetupError::io(Step::Outputs, "write", &e).on(path.display()))
                .and_then(|()| {
                    fchmod(&file, Mode::from_bits_truncate(mode))
                        .and_then(|()| renameat(&parent, PENDING, &parent, name))
                        .map_err(|e| failed("rename", e, path))
                });
            if written.is_err() {
                let _ = unlinkat(&parent, PENDING, UnlinkatFlags::NoRemoveDir);
            }
            written
        })?;
        let size = bytes.len() as u64;
        Ok(FileAnswer::Written { size })
    }

    /// Reads a part of a file.
    ///
    /// # Errors
    /// It is missing, or no regular file.
    pub(crate) fn read(&self, path: &Path, offset: u64, limit: u64) -> Result<FileAnswer> {
        let path = checked(path)?;
        let mut file = self
            .beneath()
            .read(path)
            .map_err(|e| failed("openat2", e, path))?;
        let stat = fstat(&file).map_err(|e| failed("fstat", e, path))?;
        if kind_of(&stat) != SFlag::S_IFREG {
            return Err(SetupError::new(Step::Outputs, "not a regular file").on(path.display()));
        }
        let mut content = Vec::new();
        let io = |e: std::io::Error| SetupError::io(Step::Outputs, "read", &e).on(path.display());
        file.seek(SeekFrom::Start(offset)).map_err(io)?;
        file.take(limit.min(MOST_BYTES))
            .read_to_end(&mut content)
            .map_err(io)?;
        Ok(FileAnswer::Content {
            content: content.into(),
            offset,
            size: stat.st_size.cast_unsigned(),
        })
    }

    /// Lists a directory, the workspace itself for an empty path.
    ///
    /// # Errors
    /// It is missing, or no directory.
    pub(crate) fn list(&self, path: &Path, recursive: bool) -> Result<FileAnswer> {
        let is_top = path.as_os_str().is_empty();
        let top = match is_top {
            true => self.beneath().directory(c"."),
            false => self.beneath().directory(checked(path)?),
        };
        let top = top.map_err(|e| failed("openat2", e, path))?;
        let own = fstat(&top).map_err(|e| failed("fstat", e, path))?;
        let mut entries = Vec::new();
        let mut is_cut = false;
        let stop = || SetupError::new(Step::Outputs, "enough was listed");
        let listed = tree::each(&top, Step::Outputs, &mut |entry| {
            if entries.len() >= MOST_ENTRIES {
                is_cut = true;
                return Err(stop());
            }
            let kind = kind_of(&entry.stat);
            let path = match is_top {
                true => entry.path.to_vec(),
                false => [path.as_os_str().as_bytes(), b"/", entry.path].concat(),
            };
            entries.push(Entry {
                path: path.into(),
                kind: match kind {
                    SFlag::S_IFREG => "file",
                    SFlag::S_IFDIR => "directory",
                    SFlag::S_IFLNK => "link",
                    _ => "other",
                },
                size: match kind {
                    SFlag::S_IFREG => entry.stat.st_size.cast_unsigned(),
                    _ => 0,
                },
                mtime: entry.stat.st_mtime,
                mode: entry.stat.st_mode & 0o7777,
            });
            // A bind beneath the workspace is the host's.
            Ok(recursive && entry.stat.st_dev == own.st_dev)
        });
        if !is_cut {
            listed?;
        }
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(FileAnswer::Entries { entries, is_cut })
    }

    /// Removes a file, or a directory with everything in it.
    ///
    /// # Errors
    /// It is missing, or in use as a mount point.
    fn remove(&self, path: &Path) -> Result<FileAnswer> {
        let name = checked(path)?
            .file_name()
            .ok_or_else(|| not_allowed(path))?;
        let fail = |call: &str, errno| failed(call, errno, path);
        let parent = path.parent().unwrap_or(Path::new(""));
        let parent = match parent.as_os_str().is_empty() {
            true => self.beneath().directory(c"."),
            false => self.beneath().directory(parent),
        };
        let parent = parent.map_err(|e| fail("openat2", e))?;
        let flags = nix::fcntl::AtFlags::AT_SYMLINK_NOFOLLOW;
        let stat = fstatat(&parent, name, flags).map_err(|e| fail("stat", e))?;
        if kind_of(&stat) == SFlag::S_IFDIR {
            let name = std::ffi::CString::new(name.as_bytes()).map_err(|_| not_allowed(path))?;
            (self.as_owner(|| erase(parent.as_fd(), &name))).map_err(|e| fail("rmdir", e))?;
        } else {
            unlinkat(&parent, name, UnlinkatFlags::NoRemoveDir).map_err(|e| fail("unlink", e))?;
        }
        Ok(FileAnswer::Removed {})
    }

    fn beneath(&self) -> Beneath<'_> {
        Beneath::new(self.dir).on_one_mount()
    }

    fn as_owner<T>(&self, act: impl FnOnce() -> T) -> T {
        as_owner(self.owner, act)
    }
}

pub(super) fn failed(call: &str, errno: Errno, path: &Path) -> SetupError {
    SetupError::os(Step::Outputs, call, errno).on(path.display())
}

fn not_allowed(path: &Path) -> SetupError {
    SetupError::new(
        Step::Spec,
        "a path is relative to the workspace, without `..`",
    )
    .on(path.display())
}

/// The path, if it leads downwards from the workspace.
pub(super) fn checked(path: &Path) -> Result<&Path> {
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    match path.components().all(is_plain) && !path.as_os_str().is_empty() {
        true => Ok(path),
        false => Err(not_allowed(path)),
    }
}
