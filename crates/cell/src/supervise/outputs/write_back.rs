//! Writes a place back to the directory that keeps it.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, renameat};
use nix::sys::stat::{Mode, SFlag, fchmod, fstat, mkdirat};
use nix::unistd::{UnlinkatFlags, close, symlinkat, unlinkat};

use super::copy_out::concerns_one_name;
use super::keep::{Before, Kept, PENDING};
use super::walk::{Found, Walk, kind_at, kind_of, open_beneath, open_readable};
use super::{Caps, Tree};
use record::FileSkipped;
use record::bytes::RawText;
use record::error::{Result, SetupError, Step};
use sys::tree::{erase, set_mtime};

/// A file or link that differs from the directory's.
struct Changed {
    path: RawText,
    content: Content,
    /// How much more the directory holds with it.
    growth: i128,
}

enum Content {
    File { size: u64, mode: u32, mtime: i64 },
    Link { text: Vec<u8> },
}

impl Content {
    fn size(&self) -> u64 {
        match self {
            Self::File { size, .. } => *size,
            Self::Link { .. } => 0,
        }
    }
}

/// Directories and their permission bits, by path.
type Directories = BTreeMap<RawText, u32>;

/// Something of the directory's that the workspace no longer has.
struct Gone<'a> {
    path: &'a RawText,
    was: &'a Before,
    /// Whether something else is in its way, so that it goes first.
    is_replaced: bool,
}

impl Kept {
    /// Makes the directory hold what `tree` does; returns what it does not.
    ///
    /// # Errors
    /// A failure that concerns more than one name. If it came before names were
    /// exchanged, the directory is as it was.
    pub(crate) fn write_back(&self, tree: Tree<'_>, caps: &Caps) -> Result<Vec<FileSkipped>> {
        let mut skipped = Vec::new();
        let (directories, mut changed) = self.compare(tree, caps, &mut skipped)?;
        let gone = self.gone(tree.dir);
        self.leave_out_too_large(&mut changed, &gone, caps, &mut skipped);
        let has = |(path, mode): (&RawText, &u32)| {
            self.before.get(path) == Some(&Before::Directory { mode: *mode })
        };
        if changed.is_empty() && gone.is_empty() && directories.iter().all(has) {
            return Ok(skipped);
        }
        let pending = self.begin()?;
        let written = self
            .copy(tree.dir, &changed, &pending, caps)
            .and_then(|()| self.exchange(&directories, &changed, &gone, &pending, &mut skipped));
        let erased = erase(&*self.dir, PENDING);
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
            let (path, content) = match found {
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
                    (path, Content::File { size, mode, mtime })
                }
                Found::Link { path, text } if !self.has_link(&path, &text) => {
                    (path, Content::Link { text })
                }
                // What is left out of the workspace is in its list already.
                Found::File { .. } | Found::Link { .. } | Found::Skipped { .. } => continue,
            };
            let growth = i128::from(content.size()) - self.size_before(&path);
            changed.push(Changed {
                path,
                content,
                growth,
            });
        }
        self.leave_out_ways_to_binds(tree.covered, &mut directories, &changed);
        Ok((directories, changed))
    }

    /// Directories that were made for binds only are not the program's.
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
            self.before.contains_key(path)
                || !leads_to_bind(own)
                || others.iter().any(|other| other.starts_with(own))
        });
    }

    /// All that changed is written back or nothing: a part of it could lack what
    /// another part refers to.
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

    fn size_before(&self, path: &RawText) -> i128 {
        match self.before.get(path) {
            Some(Before::File { size }) => i128::from(*size),
            _ => 0,
        }
    }

    /// What the workspace no longer has. A cap may have hidden things from the
    /// walk, so each is looked up by its name.
    fn gone(&self, workspace: BorrowedFd<'_>) -> Vec<Gone<'_>> {
        let mut gone = Vec::new();
        for (path, was) in &self.before {
            let is_replaced = match kind_at(workspace, path) {
                Ok(kind) if kind == was.kind() => continue,
                Ok(_) | Err(Errno::ENOTDIR | Errno::ELOOP) => true,
                Err(Errno::ENOENT) => false,
                Err(_) => continue,
            };
            gone.push(Gone {
                path,
                was,
                is_replaced,
            });
        }
        gone
    }

    /// Holes and hard links make files look larger than the workspace is; they
    /// must not make the directory larger.
    fn leave_out_too_large(
        &self,
        changed: &mut Vec<Changed>,
        gone: &[Gone<'_>],
        caps: &Caps,
        skipped: &mut Vec<FileSkipped>,
    ) {
        let sum = |sizes: &mut dyn Iterator<Item = &Before>| -> i128 {
            let size = |was: &Before| match was {
                Before::File { size } => i128::from(*size),
                _ => 0,
            };
            sizes.map(size).sum()
        };
        let before = sum(&mut self.before.values());
        let freed = sum(&mut gone.iter().map(|gone| gone.was));
        let mut room = i128::from(caps.total_bytes.0) - before + freed;
        // What shrinks makes room for what grows.
        changed.sort_by_key(|changed| changed.growth);
        changed.retain(|changed| {
            let fits = changed.growth <= room;
            if fits {
                room -= changed.growth;
            } else {
                let reason = format!(
                    "not written back: with its {} bytes the kept directory would be over its limit of {}",
                    changed.content.size(),
                    caps.total_bytes
                );
                skipped.push(left_out(changed.path.clone(), reason));
            }
            fits
        });
    }

    fn begin(&self) -> Result<OwnedFd> {
        let fail = |call: &str, errno: Errno| self.error(call, &errno.into(), Path::new(""));
        mkdirat(&*self.dir, PENDING, Mode::S_IRWXU).map_err(|e| fail("mkdir", e))?;
        open_beneath(&*self.dir, PENDING, OFlag::O_PATH | OFlag::O_DIRECTORY)
            .map_err(|e| fail("open", e))
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
            let copied = match &changed.content {
                // Its text alone: where it leads is not looked at.
                Content::Link { text } => symlinkat(text.as_slice(), pending, number.as_str())
                    .map_err(|errno| ("symlink", errno.into())),
                Content::File { size, mode, mtime } => {
                    let attributes = (*size, *mode, *mtime);
                    self.copy_file(workspace, &changed.path, attributes, (pending, &number))
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
        (size, mode, mtime): (u64, u32, i64),
        (pending, number): (&OwnedFd, &str),
    ) -> Result<(), (&'static str, io::Error)> {
        let on = |call: &'static str| move |errno: Errno| (call, io::Error::from(errno));
        let name = CString::new(path.as_bytes()).map_err(|e| ("open", e.into()))?;
        let from = open_readable(workspace, &name, OFlag::empty()).map_err(on("openat2"))?;
        let is_file = fstat(&from).is_ok_and(|stat| kind_of(&stat) == SFlag::S_IFREG);
        if !is_file {
            return Err(("openat2", Errno::EINVAL.into()));
        }
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        let owners = Mode::S_IRUSR | Mode::S_IWUSR;
        let to = openat(pending, number, flags, owners).map_err(on("create"))?;
        let mut to = File::from(to);
        io::copy(&mut File::from(from).take(size), &mut to).map_err(|e| ("write", e))?;
        set_mtime(&to, mtime).map_err(on("utimensat"))?;
        let mode = std::fs::Permissions::from_mode(self.mode(mode));
        to.set_permissions(mode).map_err(|e| ("fchmod", e))?;
        // Network file systems report a full disk only here.
        close(to).map_err(on("close"))
    }

    /// Gives everything its name. What goes, goes last, so that a file which was
    /// moved is never missing; but what is in the way of something goes first.
    fn exchange(
        &self,
        directories: &Directories,
        changed: &[Changed],
        gone: &[Gone<'_>],
        pending: &OwnedFd,
        skipped: &mut Vec<FileSkipped>,
    ) -> Result<()> {
        let mut note = |path: &RawText, done: Result<(), (&str, Errno)>| match done {
            Ok(()) => Ok(()),
            Err((call, errno)) => {
                let error = self.error(call, &errno.into(), path.as_path());
                if !concerns_one_name(&error) {
                    return Err(error);
                }
                skipped.push(left_out(path.clone(), format!("not written back: {error}")));
                Ok(())
            }
        };
        // What is in a directory comes behind it in the list.
        let (first, last): (Vec<_>, Vec<_>) = gone.iter().rev().partition(|gone| gone.is_replaced);
        for gone in first {
            note(gone.path, self.remove(gone))?;
        }
        let differ = |(path, mode): &(&RawText, &u32)| {
            self.before.get(*path) != Some(&Before::Directory { mode: **mode })
        };
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
        for gone in last {
            note(gone.path, self.remove(gone))?;
        }
        // What is in a directory comes first: this may take rights that lead there.
        for (path, mode) in directories.iter().rev().filter(differ) {
            let set = self.set_directory_mode(path, *mode);
            note(path, set.map_err(|errno| ("fchmod", errno)))?;
        }
        Ok(())
    }

    fn set_directory_mode(&self, path: &RawText, mode: u32) -> nix::Result<()> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
        let dir = match open_beneath(&*self.dir, path.as_path(), flags) {
            // Something of the caller's is in its place; that was noted.
            Err(Errno::ENOTDIR | Errno::ELOOP | Errno::ENOENT) => return Ok(()),
            other => other?,
        };
        fchmod(&dir, Mode::from_bits_truncate(self.directory_mode(mode)))
    }

    fn remove(&self, gone: &Gone<'_>) -> Result<(), (&'static str, Errno)> {
        let (flag, call) = match gone.was {
            Before::Directory { .. } => (UnlinkatFlags::RemoveDir, "rmdir"),
            _ => (UnlinkatFlags::NoRemoveDir, "unlink"),
        };
        match self.in_parent(gone.path, |dir, name| unlinkat(dir, name, flag)) {
            // Somebody was faster; or it holds what was left out of the run.
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
        let name = Path::new(path.file_name().unwrap_or_default());
        match path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
        {
            None => act(self.dir.as_fd(), name),
            Some(parent) => {
                let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
                act(open_beneath(&*self.dir, parent, flags)?.as_fd(), name)
            }
        }
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
