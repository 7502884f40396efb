//! The entries of a workspace, listed, made, moved and removed from outside. `files.rs` says what
//! is guaranteed meanwhile.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, readlinkat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use serde::Serialize;

use super::files::{FileAnswer, Workspace, checked, failed, name_of, not_allowed};
use record::bytes::RawText;
use record::error::{Result, SetupError, Step};
use sys::tree::{self, erase, kind_of};

/// The most entries of one answer.
const MOST_ENTRIES: usize = 10_000;
/// The most bytes of their paths and of the targets of links together: programs choose the length
/// of each.
const MOST_TEXT: usize = 16 << 20;

/// One entry of a directory.
#[derive(Debug, Serialize)]
pub struct Entry {
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
    /// The text of a link.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<RawText>,
}

impl Entry {
    fn of(path: Vec<u8>, stat: &FileStat, target: Option<RawText>) -> Self {
        let kind = kind_of(stat);
        Self {
            path: path.into(),
            kind: match kind {
                SFlag::S_IFREG => "file",
                SFlag::S_IFDIR => "directory",
                SFlag::S_IFLNK => "link",
                _ => "other",
            },
            size: match kind {
                SFlag::S_IFREG => stat.st_size.cast_unsigned(),
                _ => 0,
            },
            mtime: stat.st_mtime,
            mode: stat.st_mode & 0o7777,
            target,
        }
    }
}

/// The text of a link, which is not followed.
fn target(dir: impl AsFd, name: &OsStr, stat: &FileStat) -> Option<RawText> {
    if kind_of(stat) != SFlag::S_IFLNK {
        return None;
    }
    let target = readlinkat(dir, name).ok()?;
    Some(target.into_vec().into())
}

impl Workspace<'_> {
    /// Describes the entry at a path: a link itself, and the workspace for an empty path.
    ///
    /// # Errors
    /// It is missing.
    pub fn stat(&self, path: &Path) -> Result<FileAnswer> {
        let entry = self.entry(path)?;
        Ok(FileAnswer::Found { entry })
    }

    fn entry(&self, path: &Path) -> Result<Entry> {
        if path.as_os_str().is_empty() {
            let stat = fstat(self.dir).map_err(|e| failed("fstat", e, path))?;
            return Ok(Entry::of(Vec::new(), &stat, None));
        }
        let name = name_of(path)?;
        let parent = self.parent(path)?;
        let stat = fstatat(&parent, name, AtFlags::AT_SYMLINK_NOFOLLOW)
            .map_err(|e| failed("stat", e, path))?;
        let target = target(&parent, name, &stat);
        Ok(Entry::of(
            path.as_os_str().as_bytes().to_vec(),
            &stat,
            target,
        ))
    }

    /// Makes a directory and those above it.
    ///
    /// # Errors
    /// Something has this name already, or the workspace is full.
    pub(super) fn make_directory(&self, path: &Path) -> Result<FileAnswer> {
        if path.as_os_str().is_empty() {
            return Err(failed("mkdir", Errno::EEXIST, path));
        }
        let name = name_of(path)?;
        self.as_owner(|| {
            let parent = self.make_parent(path)?;
            mkdirat(&parent, name, Mode::from_bits_truncate(0o755))
                .map_err(|e| failed("mkdir", e, path))
        })?;
        Ok(FileAnswer::Made {})
    }

    /// Renames an entry, and makes the directories above its new name. A file of that name is
    /// replaced.
    ///
    /// # Errors
    /// It is missing, or cannot have that name.
    pub(super) fn rename(&self, from: &Path, to: &Path) -> Result<FileAnswer> {
        let (old, new) = (name_of(from)?, name_of(to)?);
        let source = self.parent(from)?;
        fstatat(&source, old, AtFlags::AT_SYMLINK_NOFOLLOW).map_err(|e| failed("stat", e, from))?;
        self.as_owner(|| {
            let target = self.make_parent(to)?;
            renameat(&source, old, &target, new).map_err(|e| failed("rename", e, to))
        })?;
        let entry = self.entry(to)?;
        Ok(FileAnswer::Moved { entry })
    }

    /// Lists a directory, or the workspace itself for an empty path. The entries of `depth` levels
    /// of directories are listed; this directory is the first level.
    ///
    /// # Errors
    /// It is missing, or is not a directory.
    pub fn list(&self, path: &Path, depth: usize) -> Result<FileAnswer> {
        let is_top = path.as_os_str().is_empty();
        let top = match is_top {
            true => self.beneath().directory(c"."),
            false => self.beneath().directory(checked(path)?),
        };
        let top = top.map_err(|e| failed("openat2", e, path))?;
        let own = fstat(&top).map_err(|e| failed("fstat", e, path))?;
        let mut entries = Vec::new();
        let mut text = 0;
        let mut is_cut = false;
        let stop = || SetupError::new(Step::Outputs, "enough was listed");
        let listed = tree::each(&top, Step::Outputs, &mut |entry| {
            let path = match is_top {
                true => entry.path.to_vec(),
                false => [path.as_os_str().as_bytes(), b"/", entry.path].concat(),
            };
            let name = Path::new(OsStr::from_bytes(&path)).file_name();
            let target = name.and_then(|name| target(entry.dir, name, &entry.stat));
            text += path.len() + target.as_ref().map_or(0, |text| text.as_bytes().len());
            if entries.len() >= MOST_ENTRIES || text > MOST_TEXT {
                is_cut = true;
                return Err(stop());
            }
            entries.push(Entry::of(path, &entry.stat, target));
            // A bind beneath the workspace is the host's.
            let level = entry.path.iter().filter(|byte| **byte == b'/').count();
            Ok(level + 1 < depth && entry.stat.st_dev == own.st_dev)
        });
        if !is_cut {
            listed?;
        }
        entries.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(FileAnswer::Entries { entries, is_cut })
    }

    /// Removes a file, or a directory with everything in it.
    ///
    /// # Errors
    /// It is missing, or in use as a mount point.
    pub(super) fn remove(&self, path: &Path) -> Result<FileAnswer> {
        let name = name_of(path)?;
        let fail = |call: &str, errno| failed(call, errno, path);
        let parent = self.parent(path)?;
        let flags = AtFlags::AT_SYMLINK_NOFOLLOW;
        let stat = fstatat(&parent, name, flags).map_err(|e| fail("stat", e))?;
        if kind_of(&stat) == SFlag::S_IFDIR {
            let name = std::ffi::CString::new(name.as_bytes()).map_err(|_| not_allowed(path))?;
            (self.as_owner(|| erase(parent.as_fd(), &name))).map_err(|e| fail("rmdir", e))?;
        } else {
            unlinkat(&parent, name, UnlinkatFlags::NoRemoveDir).map_err(|e| fail("unlink", e))?;
        }
        Ok(FileAnswer::Removed {})
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, hard_link};
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_list_of_long_texts_is_cut() {
        const LENGTH: usize = 4000;
        const FIT: usize = MOST_TEXT / (LENGTH + 4);
        let directory = tempfile::tempdir().unwrap();
        let top = File::open(directory.path()).unwrap().into();
        let workspace = Workspace::of(&top, (0, 0));
        let text = "x".repeat(LENGTH);
        let count = || match workspace.list(Path::new(""), 1).unwrap() {
            FileAnswer::Entries { entries, is_cut } => (entries.len(), is_cut),
            other => panic!("{other:?}"),
        };
        let at = |number: usize| directory.path().join(format!("{number:04}"));
        symlink(&text, at(0)).unwrap();
        // Of the link itself.
        let more = |number| hard_link(at(0), at(number)).unwrap();
        (1..FIT).for_each(more);
        assert_eq!(count(), (FIT, false));
        more(FIT);
        assert_eq!(count(), (FIT, true));
    }
}
