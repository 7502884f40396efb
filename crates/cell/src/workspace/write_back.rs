//! Writes a workspace back to the directory that keeps it.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::renameat;
use nix::sys::stat::{Mode, fchmod, mkdirat};
use nix::unistd::{UnlinkatFlags, close, symlinkat, unlinkat};

use super::baseline::Original;
use super::kept::{KeptDir, PENDING};
use super::out_dir::affects_one_name;
use super::walk::{Found, Walk, kind_at, open_file};
use super::{Caps, Tree};
use record::FileSkipped;
use record::bytes::RawText;
use record::error::{Result, SetupError, Step};
use sys::tree::{erase, set_mtime};

/// A file or link that differs from the directory's.
struct Changed {
    path: RawText,
    to: NewContent,
    /// How much larger the directory gets by it.
    growth: i128,
}

enum NewContent {
    File(Attributes),
    Link { text: Vec<u8> },
}

#[derive(Clone, Copy)]
struct Attributes {
    size: u64,
    mode: u32,
    mtime: i64,
}

impl NewContent {
    fn size(&self) -> u64 {
        match self {
            Self::File(file) => file.size,
            Self::Link { .. } => 0,
        }
    }
}

/// Directories and their permission bits, by path.
type Directories = BTreeMap<RawText, u32>;

/// Something in the directory that the workspace no longer has.
struct Removed<'a> {
    path: &'a RawText,
    was: &'a Original,
    /// Whether the workspace has something of another kind there, so that this is removed
    /// first.
    is_replaced: bool,
}

impl KeptDir {
    /// Gives the directory the content of `tree`; returns what was left out.
    ///
    /// # Errors
    /// A failure that affects more than one name. If it came before names were exchanged,
    /// the directory is as it was.
    pub(super) fn write_back(&self, tree: Tree<'_>, caps: &Caps) -> Result<Vec<FileSkipped>> {
        let mut skipped = Vec::new();
        let (directories, mut changed) = self.compare(tree, caps, &mut skipped)?;
        let removed = self.removed(tree.dir);
        self.leave_out_too_large(&mut changed, &removed, caps, &mut skipped);
        if changed.is_empty()
            && removed.is_empty()
            && !directories
                .iter()
                .any(|(path, mode)| self.differs(path, *mode))
        {
            return Ok(skipped);
        }
        let pending = self.begin()?;
        let written = self
            .copy(tree.dir, &changed, &pending, caps)
            .and_then(|()| self.exchange(&directories, &changed, &removed, &pending, &mut skipped));
        let erased = erase(self.dir(), PENDING);
        written?;
        erased.map_err(|e| self.error("unlink", &e.into(), Path::new("")))?;
        Ok(skipped)
    }

    /// The directories of `tree`, and what in it differs from the kept directory's.
    fn compare(
        &self,
        tree: Tree<'_>,
        caps: &Caps,
        skipped: &mut Vec<FileSkipped>,
    ) -> Result<(Directories, Vec<Changed>)> {
        let mut directories = Directories::new();
        let mut changed = Vec::new();
        let walk =
            Walk::new(tree, caps).map_err(|e| self.error("openat2", &e.into(), Path::new("")))?;
        for found in walk {
            self.require_time(caps)?;
            let (path, to) = match found {
                Found::Directory { path, .. }
                | Found::File { path, .. }
                | Found::Link { path, .. }
                    if is_reserved(&path) =>
                {
                    if path.as_bytes() == PENDING.to_bytes() {
                        let reason = "its name is cellblock's own in a kept directory";
                        skipped.push(left_out(path, reason));
                    }
                    continue;
                }
                Found::Directory { path, mode } => {
                    directories.insert(path, mode);
                    continue;
                }
                Found::File {
                    path,
                    file,
                    size,
                    mode,
                    mtime,
                    ..
                } if !self.has(&path, &file, size, mode) => {
                    (path, NewContent::File(Attributes { size, mode, mtime }))
                }
                Found::Link { path, text } if !self.has_link(&path, &text) => {
                    (path, NewContent::Link { text })
                }
                // Skipped files are in the workspace's own list.
                Found::File { .. } | Found::Link { .. } | Found::Skipped { .. } => continue,
            };
            let before = self.before.get(&path).map_or(0, Original::size);
            let growth = i128::from(to.size()) - i128::from(before);
            changed.push(Changed { path, to, growth });
        }
        self.leave_out_ways_to_binds(tree.covered, &mut directories, &changed);
        Ok((directories, changed))
    }

    /// Leaves out directories that exist only as the way to a mount point.
    fn leave_out_ways_to_binds(
        &self,
        covered: &[PathBuf],
        directories: &mut Directories,
        changed: &[Changed],
    ) {
        let leads_to_bind = |path: &Path| covered.iter().any(|bind| bind.starts_with(path));
        let others = directories.keys().map(RawText::as_path);
        let others: Vec<PathBuf> = (others.filter(|path| !leads_to_bind(path)))
            .chain(changed.iter().map(|changed| changed.path.as_path()))
            .filter(|_| !covered.is_empty())
            .map(Path::to_owned)
            .collect();
        directories.retain(|path, _| {
            let own = path.as_path();
            self.before.get(path).is_some()
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
        for (path, was) in self.before.iter() {
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
    fn leave_out_too_large(
        &self,
        changed: &mut Vec<Changed>,
        removed: &[Removed<'_>],
        caps: &Caps,
        skipped: &mut Vec<FileSkipped>,
    ) {
        let before: u64 = self.before.iter().map(|(_, was)| was.size()).sum();
        let freed: u64 = removed.iter().map(|removed| removed.was.size()).sum();
        let mut room = i128::from(caps.total_bytes.0) - i128::from(before) + i128::from(freed);
        // What shrinks makes room for what grows.
        changed.sort_by_key(|changed| changed.growth);
        changed.retain(|changed| {
            let fits = changed.growth <= room;
            if fits {
                room -= changed.growth;
            } else {
                let reason = format!(
                    "not written back: with its {} bytes the kept directory would be over its limit of {}",
                    changed.to.size(),
                    caps.total_bytes
                );
                skipped.push(left_out(changed.path.clone(), reason));
            }
            fits
        });
    }

    fn begin(&self) -> Result<OwnedFd> {
        let fail = |call: &str, errno: Errno| self.error(call, &errno.into(), Path::new(""));
        mkdirat(self.dir(), PENDING, Mode::S_IRWXU).map_err(|e| fail("mkdir", e))?;
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
                NewContent::Link { text } => symlinkat(text.as_slice(), pending, number.as_str())
                    .map_err(|errno| ("symlink", errno.into())),
                NewContent::File(attributes) => {
                    self.copy_file(workspace, &changed.path, *attributes, (pending, &number))
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
        attributes: Attributes,
        (pending, number): (&OwnedFd, &str),
    ) -> Result<(), (&'static str, io::Error)> {
        let on = |call: &'static str| move |errno: Errno| (call, io::Error::from(errno));
        let name = CString::new(path.as_bytes()).map_err(|e| ("openat2", e.into()))?;
        let (from, _) = open_file(&workspace, &name).map_err(on("openat2"))?;
        let owners = Mode::S_IRUSR | Mode::S_IWUSR;
        let to = sys::beneath::Beneath::new(pending).create(number, owners);
        let mut to = to.map_err(on("create"))?;
        io::copy(&mut from.take(attributes.size), &mut to).map_err(|e| ("write", e))?;
        set_mtime(&to, attributes.mtime).map_err(on("utimensat"))?;
        let mode = std::fs::Permissions::from_mode(self.mode(attributes.mode));
        to.set_permissions(mode).map_err(|e| ("fchmod", e))?;
        // Network file systems report a full disk only here.
        close(to).map_err(on("close"))
    }

    /// Gives everything its name. Removals come last, so that a file which was moved is
    /// never missing; but what is in the way of something is removed first.
    fn exchange(
        &self,
        directories: &Directories,
        changed: &[Changed],
        removed: &[Removed<'_>],
        pending: &OwnedFd,
        skipped: &mut Vec<FileSkipped>,
    ) -> Result<()> {
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
    let first = path.as_path().components().next();
    first.is_some_and(|first| first.as_os_str().as_bytes() == PENDING.to_bytes())
}

fn left_out(path: RawText, reason: impl Into<String>) -> FileSkipped {
    FileSkipped {
        path,
        reason: reason.into(),
    }
}
