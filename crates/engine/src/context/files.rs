//! Files below a workspace, read and written from outside.
//!
//! The workspace is a tmpfs that a hostile program fills. The cell's processes are
//! stopped meanwhile, unless one has itself continued; no link is followed, no other mount
//! entered, only regular files are read, and answers are bounded.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat, fstatat};
use nix::unistd::{UnlinkatFlags, linkat, unlinkat};
use serde::{Deserialize, Serialize};

use super::Context;
use super::entries::Entry;
use super::history::Step;
use super::uploads::Part;
use crate::run::Live;
use record::bytes::RawText;
use record::error::{Result, SetupError, Step as Stage};
use sys::beneath::Beneath;
use sys::random::random;
use sys::tree::kind_of;
use workspace::Digest;
use workspace::copy::as_owner;

/// The most bytes of one answer.
const MOST_BYTES: u64 = 16 << 20;
/// The temporary name of a complete file that may replace another. Programs cannot predict it, so they can
/// neither have a directory of that name nor mislead watches by files of such names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pending {
    /// It replaces no file.
    New,
    /// It replaces a file.
    Replacing,
}

impl Pending {
    /// What its names begin with.
    const fn stem(self) -> &'static str {
        match self {
            Self::New => ".cellblock-writing-",
            Self::Replacing => ".cellblock-replacing-",
        }
    }

    /// A name for one file.
    fn name(self) -> Result<String, Errno> {
        let random = u64::from_ne_bytes(random()?);
        Ok(format!(
            "{}{:016x}{random:016x}",
            self.stem(),
            own_number()?
        ))
    }

    /// The purpose of a temporary name; `None` for names that this supervisor did not make.
    pub(super) fn of(name: &OsStr) -> Option<Self> {
        let own = format!("{:016x}", own_number().ok()?);
        let is_own = |kind: &Self| {
            let rest = name
                .to_str()
                .and_then(|name| name.strip_prefix(kind.stem()));
            rest.is_some_and(|rest| rest.starts_with(&own))
        };
        [Self::New, Self::Replacing].into_iter().find(is_own)
    }
}

/// A number that this supervisor's names have in common, and that no program can know in advance.
fn own_number() -> Result<u64, Errno> {
    static OWN: OnceLock<u64> = OnceLock::new();
    match OWN.get() {
        Some(number) => Ok(*number),
        None => {
            let number = u64::from_ne_bytes(random()?);
            Ok(*OWN.get_or_init(|| number))
        }
    }
}

/// The answer to a file order.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FileAnswer {
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
    /// The entry exists.
    Found {
        /// The entry.
        entry: Entry,
    },
    /// The directory was made.
    Made {},
    /// The entry was renamed.
    Moved {
        /// The entry that has the new name.
        entry: Entry,
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

/// What a client changes in a workspace.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkspaceEdit {
    /// Writes a file, or adds content at its end.
    Write {
        /// Its path in the workspace.
        path: PathBuf,
        /// What is written.
        content: RawText,
        /// Whether it can be executed.
        executable: bool,
        /// Whether it is added at the end of what is there.
        append: bool,
    },
    /// Writes a part of a file that nobody sees before it is complete.
    WritePart(Part),
    /// Makes a directory.
    MakeDirectory {
        /// Its path in the workspace.
        path: PathBuf,
    },
    /// Gives something another name.
    Move {
        /// Its path so far.
        from: PathBuf,
        /// Its new path.
        to: PathBuf,
    },
    /// Removes a file or directory.
    Remove {
        /// Its path in the workspace.
        path: PathBuf,
    },
}

/// The workspace of a cell whose processes are stopped, or which has ended.
pub struct Workspace<'w> {
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
    pub fn in_workspace<T>(&mut self, act: impl FnOnce(&Workspace<'_>) -> Result<T>) -> Result<T> {
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

    /// Changes the workspace for the client, and notes that for a replay.
    ///
    /// # Errors
    /// Those of [`Self::in_workspace`], and of the change.
    pub fn edit(&mut self, edit: WorkspaceEdit) -> Result<FileAnswer> {
        let answer = self.apply(&edit)?;
        // Without a cell, the change is in the workspace with which the next cell begins.
        if let (Some(log), Some(_)) = (&mut self.log, &self.live) {
            log.add(Step::Edit(edit));
        }
        Ok(answer)
    }

    /// Changes the workspace. No execution lists the change as its own, unless content was added to
    /// a file.
    pub(super) fn apply(&mut self, edit: &WorkspaceEdit) -> Result<FileAnswer> {
        match edit {
            WorkspaceEdit::Write {
                path,
                content,
                append: true,
                ..
            } => self.in_workspace(|files| files.append(path, content)),
            WorkspaceEdit::Write {
                path,
                content,
                executable,
                ..
            } => {
                let digest = Digest::of_bytes(content.as_bytes());
                let write = |files: &Workspace<'_>| files.write(path, content, *executable);
                self.change(write, |live| live.note_written(path, digest))
            }
            WorkspaceEdit::WritePart(part) => self.add_part(part),
            WorkspaceEdit::MakeDirectory { path } => {
                self.in_workspace(|files| files.make_directory(path))
            }
            WorkspaceEdit::Move { from, to } => self.change(
                |files| files.rename(from, to),
                |live| live.note_renamed(from, to),
            ),
            WorkspaceEdit::Remove { path } => {
                self.change(|files| files.remove(path), |live| live.note_removed(path))
            }
        }
    }

    /// Changes the workspace, and notes that for records.
    fn change(
        &mut self,
        act: impl FnOnce(&Workspace<'_>) -> Result<FileAnswer>,
        note: impl FnOnce(&mut Live<'_>),
    ) -> Result<FileAnswer> {
        let answer = self.in_workspace(act)?;
        self.live.as_mut().map(note);
        Ok(answer)
    }
}

fn no_workspace() -> SetupError {
    SetupError::new(Stage::Outputs, "the cell has no workspace of its own")
        .hint("look at the directory that is bound there")
}

/// A file that nobody sees.
pub(super) struct Nameless(File);

impl Nameless {
    pub(super) fn write(&mut self, bytes: &[u8], path: &Path) -> Result<()> {
        (self.0.write_all(bytes))
            .map_err(|e| SetupError::io(Stage::Outputs, "write", &e).on(path.display()))
    }
}

impl<'w> Workspace<'w> {
    #[cfg(test)]
    pub(super) const fn of(dir: &'w OwnedFd, owner: (u32, u32)) -> Self {
        Self { dir, owner }
    }
}

impl Workspace<'_> {
    /// Writes a file, and makes the directories above it. A file of its name is replaced
    /// as a whole.
    ///
    /// # Errors
    /// The path is not allowed, or the workspace is full.
    fn write(&self, path: &Path, content: &RawText, executable: bool) -> Result<FileAnswer> {
        let mut file = self.nameless(path)?;
        let bytes = content.as_bytes();
        file.write(bytes, path)?;
        self.name(&file, path, executable)?;
        let size = bytes.len() as u64;
        Ok(FileAnswer::Written { size })
    }

    /// Makes a file that has no name yet, in the directory of its path.
    ///
    /// # Errors
    /// The path is not allowed, or the workspace is full.
    pub(super) fn nameless(&self, path: &Path) -> Result<Nameless> {
        name_of(path)?;
        let mode = Mode::from_bits_truncate(0o600);
        self.as_owner(|| {
            let parent = self.make_parent(path)?;
            let file = Beneath::new(&parent).create_nameless(mode);
            file.map(Nameless)
                .map_err(|errno| failed("create", errno, path))
        })
    }

    /// Gives a file its name, and makes the directories above it. A file that has this name is replaced.
    ///
    /// # Errors
    /// There is a directory of its name.
    pub(super) fn name(&self, file: &Nameless, path: &Path, executable: bool) -> Result<()> {
        let name = name_of(path)?;
        let Nameless(file) = file;
        let mode = if executable { 0o755 } else { 0o644 };
        self.as_owner(|| {
            let parent = self.make_parent(path)?;
            // linkat(2) replaces nothing. The temporary name shows watches whether the file is new.
            let pending = match fstatat(&parent, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
                Ok(_) => Pending::Replacing,
                Err(_) => Pending::New,
            };
            let pending = pending
                .name()
                .map_err(|errno| failed("getrandom", errno, path))?;
            let pending = pending.as_str();
            let own = format!("/proc/self/fd/{}", file.as_raw_fd());
            fchmod(file, Mode::from_bits_truncate(mode))
                .map_err(|errno| failed("fchmod", errno, path))?;
            linkat(
                AT_FDCWD,
                own.as_str(),
                &parent,
                pending,
                AtFlags::AT_SYMLINK_FOLLOW,
            )
            .map_err(|errno| failed("linkat", errno, path))?;
            renameat(&parent, pending, &parent, name).map_err(|errno| {
                let _ = unlinkat(&parent, pending, UnlinkatFlags::NoRemoveDir);
                failed("rename", errno, path)
            })
        })
    }

    /// Adds content at the end of a file that exists.
    fn append(&self, path: &Path, content: &RawText) -> Result<FileAnswer> {
        let path = checked(path)?;
        let opened = self.as_owner(|| self.beneath().append(path));
        let mut file = opened.map_err(|e| failed("openat2", e, path))?;
        let stat = fstat(&file).map_err(|e| failed("fstat", e, path))?;
        refuse_others(&stat, path)?;
        file.write_all(content.as_bytes())
            .map_err(|e| SetupError::io(Stage::Outputs, "write", &e).on(path.display()))?;
        let stat = fstat(&file).map_err(|e| failed("fstat", e, path))?;
        Ok(FileAnswer::Written {
            size: stat.st_size.cast_unsigned(),
        })
    }

    /// Reads a part of a file.
    ///
    /// # Errors
    /// It is missing, or no regular file.
    pub fn read(&self, path: &Path, offset: u64, limit: u64) -> Result<FileAnswer> {
        let path = checked(path)?;
        let mut file = self
            .beneath()
            .read(path)
            .map_err(|e| failed("openat2", e, path))?;
        let stat = fstat(&file).map_err(|e| failed("fstat", e, path))?;
        refuse_others(&stat, path)?;
        let mut content = Vec::new();
        let io = |e: std::io::Error| SetupError::io(Stage::Outputs, "read", &e).on(path.display());
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

    pub(super) fn beneath(&self) -> Beneath<'_> {
        Beneath::new(self.dir).on_one_mount()
    }

    /// Opens the directory that has this entry.
    pub(super) fn parent(&self, path: &Path) -> Result<OwnedFd> {
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => self.beneath().directory(parent),
            _ => self.beneath().directory(c"."),
        };
        parent.map_err(|e| failed("openat2", e, path))
    }

    /// Opens the directory of this entry, and makes missing ones.
    pub(super) fn make_parent(&self, path: &Path) -> Result<OwnedFd> {
        let mode = Mode::from_bits_truncate(0o755);
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => {
                self.beneath().make_directories(parent, mode)
            }
            _ => self.beneath().directory(c"."),
        };
        parent.map_err(|e| failed("openat2", e, path))
    }

    pub(super) fn as_owner<T>(&self, act: impl FnOnce() -> T) -> T {
        as_owner(self.owner, act)
    }
}

pub(super) fn failed(call: &str, errno: Errno, path: &Path) -> SetupError {
    SetupError::os(Stage::Outputs, call, errno).on(path.display())
}

fn refuse_others(stat: &FileStat, path: &Path) -> Result<()> {
    match kind_of(stat) == SFlag::S_IFREG {
        true => Ok(()),
        false => Err(SetupError::new(Stage::Outputs, "not a regular file").on(path.display())),
    }
}

pub(super) fn not_allowed(path: &Path) -> SetupError {
    SetupError::new(
        Stage::Spec,
        "a path is relative to the workspace, without `..`",
    )
    .on(path.display())
}

/// The path, if it leads downwards from the workspace.
/// The name of what a path leads to.
pub(super) fn name_of(path: &Path) -> Result<&OsStr> {
    checked(path)?.file_name().ok_or_else(|| not_allowed(path))
}

pub(super) fn checked(path: &Path) -> Result<&Path> {
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    match path.components().all(is_plain) && !path.as_os_str().is_empty() {
        true => Ok(path),
        false => Err(not_allowed(path)),
    }
}
