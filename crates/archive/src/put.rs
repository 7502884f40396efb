//! Unpacks entries into a destination.

use std::ffi::{CStr, CString};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::{FchmodatFlags, Mode, SFlag, fchmod, fchmodat, fstat, mkdirat};
use nix::unistd::{UnlinkatFlags, linkat, symlinkat, unlinkat};

use super::destination::{Destination, stat};
use super::names::{LONGEST_PATH, NOT_EMPTY, Whiteout, check_target, clean, split, whiteout};
use super::own::OwnNames;
use super::sink::{Meta, Payload, Refusal, Sink};
use super::sparse::copy;
use super::{Options, Report};
use record::error::{Result, SetupError};
use sys::beneath::{Beneath, names};
use sys::tree::{erase, kind_of, set_mtime, shown};

/// Directories inside each other that a whiteout removes; each is held open meanwhile.
const DEEPEST: usize = 200;

pub(super) struct Unpacker<'a> {
    to: &'a Destination<'a>,
    options: &'a Options,
    pub(super) report: Report,
    /// What this layer has put, which its whiteouts do not remove.
    own: OwnNames,
}

impl<'a> Unpacker<'a> {
    pub(super) fn new(to: &'a Destination<'a>, options: &'a Options) -> Self {
        Self {
            to,
            options,
            report: Report::default(),
            own: OwnNames::default(),
        }
    }

    fn directory(&mut self, path: &[u8], meta: Meta) -> Result<(), Refusal> {
        let refuse = |call| self.to.refusing(call, path);
        let (dir, name) = self.parent(path)?;
        match stat(&dir, name).map_err(refuse("stat"))? {
            Some(found) if kind_of(&found) == SFlag::S_IFDIR => {}
            _ => {
                self.free_name(path)?;
                self.to.budget().take_directory(name)?;
                mkdirat(&*dir, name, Mode::S_IRWXU).map_err(self.to.refusing("mkdir", path))?;
            }
        }
        // Later entries must be able to go into it.
        let mode = Mode::from_bits_truncate(self.mode(meta) | 0o700);
        fchmodat(&*dir, name, mode, FchmodatFlags::NoFollowSymlink)
            .map_err(self.to.refusing("chmod", path))
    }

    fn file(
        &mut self,
        path: &[u8],
        meta: Meta,
        content: &mut dyn Read,
        size: u64,
    ) -> Result<(), Refusal> {
        let (dir, name) = self.free_name(path)?;
        self.to.budget().take_entry(name, size)?;
        let refuse = |call| self.to.refusing(call, path);
        let file = Beneath::new(&dir).create(name, Mode::S_IRUSR | Mode::S_IWUSR);
        let mut file = file.map_err(refuse("openat2"))?;
        let copied = copy(content, &mut file, &|error| {
            let errno = error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
            Refusal::Fail(self.to.failed("write", errno, path))
        })?;
        if copied != size {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        // Python compares the time with that in compiled modules.
        set_mtime(&file, meta.mtime).map_err(refuse("utimensat"))?;
        self.report.bytes += size;
        let mode = Mode::from_bits_truncate(self.mode(meta));
        fchmod(&file, mode).map_err(self.to.refusing("fchmod", path))
    }

    fn symbolic_link(&mut self, path: &[u8], text: &[u8]) -> Result<(), Refusal> {
        check_target(text)?;
        let (dir, name) = self.free_name(path)?;
        self.to.budget().take_entry(name, text.len() as u64)?;
        self.keep(text.len() as u64)?;
        symlinkat(text, &*dir, name).map_err(self.to.refusing("symlink", path))
    }

    fn hard_link(&mut self, path: &[u8], target: &[u8]) -> Result<(), Refusal> {
        let target = clean(target, self.options.max_depth)
            .map_err(|reason| format!("is a hard link whose target {reason}"))?;
        let missing = || "is a hard link to no earlier file".into();
        let (above, target_name) = split(&target);
        let from = match self.to.find_directory(above) {
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => return Err(missing()),
            other => other.map_err(self.to.refusing("openat2", &target))?,
        };
        let found = stat(&from, target_name).map_err(self.to.refusing("stat", &target))?;
        let found = match found {
            Some(found) if matches!(kind_of(&found), SFlag::S_IFREG | SFlag::S_IFLNK) => found,
            _ => return Err(missing()),
        };
        let (dir, name) = self.parent(path)?;
        let there = stat(&dir, name).map_err(self.to.refusing("stat", path))?;
        // To remove a file's only name first would lose the file.
        if there.is_some_and(|there| there.st_ino == found.st_ino) {
            return Ok(());
        }
        self.free_name(path)?;
        self.to.budget().take_entry(name, 0)?;
        match linkat(&from, target_name, &*dir, name, AtFlags::empty()) {
            // It was in a directory whose name the link has taken.
            Err(Errno::ENOENT) => Err(missing()),
            linked => linked.map_err(self.to.refusing("link", path)),
        }
    }

    /// Removes what a whiteout names, but nothing of its own layer.
    fn white_out(&mut self, path: &[u8], whiteout: &Whiteout<'_>) -> Result<(), Refusal> {
        let (above, _) = split(path);
        let dir = match self.to.find_directory(above) {
            Err(Errno::ENOENT | Errno::ENOTDIR) => return Ok(()),
            other => other.map_err(self.to.refusing("openat2", path))?,
        };
        self.to.forget();
        match whiteout {
            Whiteout::Note => Err(Refusal::Unwanted("is a storage driver's note".to_owned())),
            Whiteout::Nothing => Err("is a whiteout of nothing".into()),
            Whiteout::Directory => self.clear(&dir, path, 0),
            Whiteout::Name(name) => {
                let inode = fstat(&dir).map_err(self.to.refusing("fstat", path))?.st_ino;
                let name = CString::new(*name).map_err(|_| Errno::EINVAL);
                let name = name.map_err(self.to.refusing("unlink", path))?;
                self.remove_lower(&dir, inode, &name, path, 0)
            }
        }
    }

    /// Removes everything in `dir` that is of lower layers. `path` is the whiteout's.
    fn clear(&self, dir: &OwnedFd, path: &[u8], depth: usize) -> Result<(), Refusal> {
        if depth > DEEPEST {
            return Err(
                format!("removes more than {DEEPEST} directories inside each other").into(),
            );
        }
        let inode = fstat(dir).map_err(self.to.refusing("fstat", path))?.st_ino;
        let listed = Beneath::new(dir)
            .list("")
            .and_then(|mut dir| names(&mut dir));
        for name in listed.map_err(self.to.refusing("readdir", path))? {
            self.remove_lower(dir, inode, &name, path, depth)?;
        }
        Ok(())
    }

    /// Removes `name` of `dir`, which has this inode, and what is below it, where that is of
    /// lower layers.
    fn remove_lower(
        &self,
        dir: &OwnedFd,
        inode: u64,
        name: &CStr,
        path: &[u8],
        depth: usize,
    ) -> Result<(), Refusal> {
        let is_own = self.own.contains(inode, name.to_bytes());
        let flag = match Beneath::new(dir).directory(name) {
            Ok(inner) => {
                self.clear(&inner, path, depth + 1)?;
                UnlinkatFlags::RemoveDir
            }
            Err(Errno::ENOTDIR | Errno::ELOOP) => UnlinkatFlags::NoRemoveDir,
            Err(Errno::ENOENT) => return Ok(()),
            Err(errno) => return Err(self.to.refusing("openat2", path)(errno)),
        };
        if is_own {
            return Ok(());
        }
        match unlinkat(dir, name, flag) {
            // Something in it is of this layer.
            Err(Errno::ENOTEMPTY | Errno::EEXIST) => Ok(()),
            removed => removed.map_err(self.to.refusing("unlink", path)),
        }
    }

    /// The directory of a new entry, and its name there. What has that name is removed.
    fn free_name<'p>(&self, path: &'p [u8]) -> Result<(Rc<OwnedFd>, &'p [u8]), Refusal> {
        let (dir, name) = self.parent(path)?;
        let refuse = |call| self.to.refusing(call, path);
        let Some(found) = stat(&dir, name).map_err(refuse("stat"))? else {
            return Ok((dir, name));
        };
        self.to.forget();
        let removed = match kind_of(&found) == SFlag::S_IFDIR {
            true if self.options.is_layer => {
                let name = CString::new(name).map_err(|_| Errno::EINVAL);
                name.and_then(|name| erase(&dir, &name))
            }
            true => unlinkat(&*dir, name, UnlinkatFlags::RemoveDir),
            false => unlinkat(&*dir, name, UnlinkatFlags::NoRemoveDir),
        };
        match removed {
            Err(Errno::ENOTEMPTY | Errno::EEXIST) => Err(NOT_EMPTY.into()),
            removed => removed.map(|()| (dir, name)).map_err(refuse("unlink")),
        }
    }

    /// The directory of an entry, and its name there.
    fn parent<'p>(&self, path: &'p [u8]) -> Result<(Rc<OwnedFd>, &'p [u8]), Refusal> {
        let (above, name) = split(path);
        Ok((self.to.make_directory(above)?, name))
    }

    /// Mode bits without set-user-ID, set-group-ID, sticky, and write access for group and
    /// others.
    fn mode(&mut self, meta: Meta) -> u32 {
        if meta.mode & 0o7000 != 0 {
            self.report.stripped += 1;
        }
        meta.mode & 0o755
    }

    /// Puts what has a place in a tree.
    fn put_at(&mut self, path: &[u8], meta: Meta, what: Payload<'_>) -> Result<(), Refusal> {
        match what {
            Payload::Unwanted(reason) => return Err(Refusal::Unwanted(reason.to_owned())),
            Payload::Unknown(reason) => return Err(reason.into()),
            Payload::Directory if path.is_empty() => return Ok(()),
            _ if path.is_empty() => return Err("would replace the whole tree".into()),
            Payload::Directory => self.directory(path, meta),
            Payload::File(content, size) => self.file(path, meta, content, size),
            Payload::Link(text) => self.symbolic_link(path, text),
            Payload::HardLink(target) => self.hard_link(path, target),
        }?;
        if self.options.is_layer {
            let (dir, name) = self.parent(path)?;
            let dir = fstat(dir.as_fd()).map_err(self.to.refusing("fstat", path))?;
            self.own.insert(dir.st_ino, name);
        }
        Ok(())
    }

    /// The error for an entry that has no place, if it must have one.
    fn unplaced(&self, name: &[u8], refusal: Refusal) -> Refusal {
        match refusal {
            Refusal::Unplaced(reason) if !self.options.skips_unplaced => {
                let error = SetupError::new(self.to.step(), format!("this entry {reason}"));
                let name = &name[..name.len().min(LONGEST_PATH)];
                Refusal::Fail(error.on(shown(name)).hint(
                    "make the archive or image again without it, or add --skip-unplaced, which leaves \
                     out entries that have no place and lists them",
                ))
            }
            refusal => refusal,
        }
    }
}

impl Sink for Unpacker<'_> {
    fn place(&mut self, name: &[u8], meta: Meta, what: Payload<'_>) -> Result<(), Refusal> {
        let placed = clean(name, self.options.max_depth)
            .map_err(Refusal::from)
            .and_then(|path| match whiteout(split(&path).1) {
                Some(whiteout) if self.options.is_layer => self.white_out(&path, &whiteout),
                _ => self.put_at(&path, meta, what),
            });
        placed.map_err(|refusal| self.unplaced(name, refusal))
    }

    fn keep(&self, bytes: u64) -> Result<()> {
        self.to.budget().take_memory(bytes)
    }

    fn report(&mut self) -> &mut Report {
        &mut self.report
    }
}
