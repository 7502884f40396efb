//! Writes a workspace back to the directory that keeps it.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::renameat;
use nix::sys::stat::{FileStat, Mode, fchmod, mkdirat};
use nix::unistd::{UnlinkatFlags, close, symlinkat, unlinkat};

use super::baseline::Original;
use super::kept::{KeptDir, PENDING};
use super::out_dir::affects_one_name;
use super::walk::{Found, Walk, What, kind_at, open_file};
use super::{Caps, Tree};
use record::FileSkipped;
use record::bytes::RawText;
use record::error::{Result, SetupError, Step};
use sys::beneath::Beneath;
use sys::tree::{erase, set_mtime};

/// A file or link that differs from the directory's.
struct Changed {
    path: RawText,
    to: NewContent,
    /// How much larger the directory gets by it.
    growth: i128,
}

enum NewContent {
    File(FileStat),
    Link(Vec<u8>),
}

impl NewContent {
    fn size(&self) -> u64 {
        match self {
            Self::File(stat) => stat.st_size.cast_unsigned(),
            Self::Link(_) => 0,
        }
    }
}

/// Something in the directory that the workspace no longer has.
struct Removed<'a> {
    path: &'a RawText,
    was: &'a Original,
    /// Whether the workspace has something of another kind there, so that this is removed
    /// first.
    is_replaced: bool,
}

/// What writing back changes, and what it leaves out.
#[derive(Default)]
struct Changes<'a> {
    /// Directories and their permission bits, by path.
    directories: BTreeMap<RawText, u32>,
    changed: Vec<Changed>,
    removed: Vec<Removed<'a>>,
    skipped: Vec<FileSkipped>,
}

impl KeptDir {
    /// Gives the directory the content of `tree`; returns what was left out.
    ///
    /// # Errors
    /// A failure that affects more than one name. If it came before names were exchanged,
    /// the directory is as it was.
    pub(super) fn write_back(&self, tree: Tree<'_>, caps: &Caps) -> Result<Vec<FileSkipped>> {
        let mut changes = self.compare(tree, caps)?;
        self.leave_out_ways_to_binds(tree.covered, &mut changes);
        self.leave_out_too_large(&mut changes, caps);
        let mut directories = changes.directories.iter();
        if changes.changed.is_empty()
            && changes.removed.is_empty()
            && !directories.any(|(path, mode)| self.differs(path, *mode))
        {
            return Ok(changes.skipped);
        }
        let pending = self.begin()?;
        let written = self
            .copy(tree.dir, &changes.changed, &pending, caps)
            .and_then(|()| self.exchange(&mut changes, &pending));
        let erased = erase(&*self.dir, PENDING);
        written?;
        erased.map_err(|e| self.error("unlink", &e.into(), Path::new("")))?;
        Ok(changes.skipped)
    }

    /// What in `tree` differs from the directory.
    fn compare(&self, tree: Tree<'_>, caps: &Caps) -> Result<Changes<'_>> {
        let mut changes = Changes::default();
        let walk =
            Walk::new(tree, caps).map_err(|e| self.error("openat2", &e.into(), Path::new("")))?;
        for Found { path, what } in walk {
            self.require_time(caps)?;
            if is_reserved(&path) {
                if path.as_bytes() == PENDING.to_bytes() {
                    let reason = "cellblock reserves this name in a kept directory";
                    changes.skipped.push(left_out(path, reason));
                }
                continue;
            }
            let to = match what {
                What::Directory(mode) => {
                    changes.directories.insert(path, mode);
                    continue;
                }
                What::File(file, stat) if self.is_code(tree, &path, &file, &stat) => continue,
                What::File(file, stat) if !self.has(&path, &file, &stat) => NewContent::File(stat),
                What::Link(text) if !self.has_link(&path, &text) => NewContent::Link(text),
                // Skipped files are in the workspace's own list.
                What::File(..) | What::Link(_) | What::Skipped(_) => continue,
            };
            let before = self.before.get(&path).map_or(0, Original::size);
            let growth = i128::from(to.size()) - i128::from(before);
            changes.changed.push(Changed { path, to, growth });
        }
        changes.removed = self.removed(tree.dir);
        Ok(changes)
    }

    /// Whether a file is the one that the driver has put the code into.
    fn is_code(&self, tree: Tree<'_>, path: &RawText, file: &File, stat: &FileStat) -> bool {
        let size = stat.st_size.cast_unsigned();
        let code_file = tree.code_file.filter(|_| !self.before.contains_key(path));
        code_file.is_some_and(|code_file| code_file.recognize(path, file, size).is_some())
    }

    /// Leaves out directories that exist only as the way to a mount point.
    fn leave_out_ways_to_binds(&self, covered: &[PathBuf], changes: &mut Changes<'_>) {
        let leads_to_bind = |path: &Path| covered.iter().any(|bind| bind.starts_with(path));
        let directories = changes.directories.keys().map(RawText::as_path);
        let changed = changes.changed.iter().map(|changed| changed.path.as_path());
        let others: Vec<PathBuf> = (directories.filter(|path| !leads_to_bind(path)))
            .chain(changed)
            .filter(|_| !covered.is_empty())
            .map(Path::to_owned)
            .collect();
        changes.directories.retain(|path, _| {
            let own = path.as_path();
            self.before.contains_key(path)
                || !leads_to_bind(own)
                || others.iter().any(|other| other.starts_with(own))
        });
    }

    /// Either all changes are written back or none: some could lack what they refer to.
    fn require_time(&self, caps: &Caps) -> Result<()> {
        if caps.is_in_time() {
            return Ok(());
        }
        Err(SetupError::new(
            Step::Outputs,
            "no time is left to write the workspace back; the directory is as it was",
        )
        .on(self.path.display())
        .hint("a call ends at most a second after its limit on real time: raise --wall, or have the code end before it"))
    }

    /// What the workspace no longer has. A cap may have hidden things from the walk, so
    /// each is looked up by its name.
    fn removed(&self, workspace: BorrowedFd<'_>) -> Vec<Removed<'_>> {
        let mut removed = Vec::new();
        for (path, was) in &self.before {
            let is_replaced = match kind_at(workspace, path) {
                Ok(kind) if kind == was.kind() => continue,
                Ok(_) | Err(Errno::ENOTDIR | Errno::ELOOP) => true,
                Err(Errno::ENOENT) => false,
                Err(_) => continue,
            };
            removed.push(Removed {
                path,
                was,
                is_replaced,
            });
        }
        removed
    }

    /// Holes and hard links make files look larger than the workspace is; they must not
    /// make the directory larger.
    fn leave_out_too_large(&self, changes: &mut Changes<'_>, caps: &Caps) {
        let limit = caps.total_bytes;
        let before: u64 = self.before.values().map(Original::size).sum();
        let freed: u64 = (changes.removed.iter()).map(|it| it.was.size()).sum();
        let mut room = i128::from(limit.0) - i128::from(before) + i128::from(freed);
        // What shrinks makes room for what grows.
        changes.changed.sort_by_key(|changed| changed.growth);
        changes.changed.retain(|changed| {
            let fits = changed.growth <= room;
            if fits {
                room -= changed.growth;
            } else {
                let size = changed.to.size();
                let reason = format!(
                    "not written back: with its {size} bytes the kept directory would be over its limit of {limit}"
                );
                changes.skipped.push(left_out(changed.path.clone(), reason));
            }
            fits
        });
    }

    fn begin(&self) -> Result<OwnedFd> {
        let fail = |call: &str, errno: Errno| self.error(call, &errno.into(), Path::new(""));
        mkdirat(&*self.dir, PENDING, Mode::S_IRWXU).map_err(|e| fail("mkdir", e))?;
        let pending = self.beneath().directory(PENDING);
        pending.map_err(|e| fail("openat2", e))
    }

    /// Copies each changed file and link to a number in `pending`.
    fn copy(
        &self,
        workspace: BorrowedFd<'_>,
        changed: &[Changed],
        pending: &OwnedFd,
        caps: &Caps,
    ) -> Result<()> {
        for (number, changed) in changed.iter().enumerate() {
            self.require_time(caps)?;
            let number = number.to_string();
            let copied = match &changed.to {
                // Only its text: where it leads does not matter.
                NewContent::Link(text) => symlinkat(text.as_slice(), pending, number.as_str())
                    .map_err(|errno| ("symlink", errno.into())),
                NewContent::File(stat) => {
                    self.copy_file(workspace, &changed.path, stat, (pending, &number))
                }
            };
            copied.map_err(|(call, error)| self.error(call, &error, changed.path.as_path()))?;
        }
        Ok(())
    }

    fn copy_file(
        &self,
        workspace: BorrowedFd<'_>,
        path: &RawText,
        stat: &FileStat,
        (pending, number): (&OwnedFd, &str),
    ) -> Result<(), (&'static str, io::Error)> {
        let on = |call: &'static str| move |errno: Errno| (call, io::Error::from(errno));
        let name = CString::new(path.as_bytes()).map_err(|e| ("openat2", e.into()))?;
        let (from, _) = open_file(&workspace, &name).map_err(on("openat2"))?;
        let owners = Mode::S_IRUSR | Mode::S_IWUSR;
        let to = Beneath::new(pending).create(number, owners);
        let mut to = to.map_err(on("create"))?;
        io::copy(&mut from.take(stat.st_size.cast_unsigned()), &mut to)
            .map_err(|e| ("write", e))?;
        set_mtime(&to, stat.st_mtime).map_err(on("utimensat"))?;
        let mode = std::fs::Permissions::from_mode(self.mode(stat.st_mode));
        to.set_permissions(mode).map_err(|e| ("fchmod", e))?;
        // Network file systems report a full disk only here.
        close(to).map_err(on("close"))
    }

    /// Gives everything its name. Removals come last, so that a file which was moved is
    /// never missing; but what is in the way of something is removed first.
    fn exchange(&self, changes: &mut Changes<'_>, pending: &OwnedFd) -> Result<()> {
        let Changes {
            directories,
            changed,
            removed,
            skipped,
        } = changes;
        let mut note = |path: &RawText, done: Result<(), (&str, Errno)>| match done {
            Ok(()) => Ok(()),
            Err((call, errno)) => {
                let error = self.error(call, &errno.into(), path.as_path());
                if !affects_one_name(&error) {
                    return Err(error);
                }
                skipped.push(left_out(path.clone(), format!("not written back: {error}")));
                Ok(())
            }
        };
        // A directory comes after its content, the list being reversed.
        let (first, last): (Vec<_>, Vec<_>) =
            (removed.iter().rev()).partition(|removed| removed.is_replaced);
        for removed in first {
            note(removed.path, self.remove(removed))?;
        }
        let differ = |(path, mode): &(&RawText, &u32)| self.differs(path, **mode);
        for (path, _) in directories.iter().filter(differ) {
            let made = self.in_parent(path, |dir, name| match mkdirat(dir, name, Mode::S_IRWXU) {
                Ok(()) | Err(Errno::EEXIST) => Ok(()),
                Err(errno) => Err(errno),
            });
            note(path, made.map_err(|errno| ("mkdir", errno)))?;
        }
        for (number, changed) in changed.iter().enumerate() {
            let number = number.to_string();
            let renamed = self.in_parent(&changed.path, |dir, name| {
                renameat(pending, number.as_str(), dir, name)
            });
            note(&changed.path, renamed.map_err(|errno| ("rename", errno)))?;
        }
        for removed in last {
            note(removed.path, self.remove(removed))?;
        }
        // From the inside out: a new mode may take the rights that lead to the content.
        for (path, mode) in directories.iter().rev().filter(differ) {
            let set = self.set_directory_mode(path, *mode);
            note(path, set.map_err(|errno| ("fchmod", errno)))?;
        }
        Ok(())
    }

    /// Whether the directory had no directory at `path`, or one with another mode.
    fn differs(&self, path: &RawText, mode: u32) -> bool {
        self.before.get(path) != Some(&Original::Directory { mode })
    }

    fn set_directory_mode(&self, path: &RawText, mode: u32) -> nix::Result<()> {
        let dir = match self.beneath().list(path.as_path()) {
            // Something of the caller's is in its place, which was noted.
            Err(Errno::ENOTDIR | Errno::ELOOP | Errno::ENOENT) => return Ok(()),
            other => other?,
        };
        fchmod(&dir, Mode::from_bits_truncate(self.directory_mode(mode)))
    }

    fn remove(&self, removed: &Removed<'_>) -> Result<(), (&'static str, Errno)> {
        let (flag, call) = match removed.was {
            Original::Directory { .. } => (UnlinkatFlags::RemoveDir, "rmdir"),
            _ => (UnlinkatFlags::NoRemoveDir, "unlink"),
        };
        match self.in_parent(removed.path, |dir, name| unlinkat(dir, name, flag)) {
            // It was removed meanwhile, or contains what was left out of the run.
            Ok(()) | Err(Errno::ENOENT | Errno::ENOTEMPTY | Errno::EEXIST | Errno::EBUSY) => Ok(()),
            Err(errno) => Err((call, errno)),
        }
    }

    /// Calls `act` with the directory that `path` is in, and its name there.
    fn in_parent(
        &self,
        path: &RawText,
        act: impl FnOnce(BorrowedFd<'_>, &Path) -> nix::Result<()>,
    ) -> nix::Result<()> {
        let path = path.as_path();
        let parent = path.parent().unwrap_or(Path::new(""));
        let parent = self.beneath().directory(parent)?;
        act(
            parent.as_fd(),
            Path::new(path.file_name().unwrap_or_default()),
        )
    }
}

/// Whether it is, or is in, what [`PENDING`] names.
fn is_reserved(path: &RawText) -> bool {
    path.as_path()
        .starts_with(OsStr::from_bytes(PENDING.to_bytes()))
}

fn left_out(path: RawText, reason: impl Into<String>) -> FileSkipped {
    FileSkipped {
        path,
        reason: reason.into(),
    }
}
