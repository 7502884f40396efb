//! Unpacks entries into a destination.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::{FchmodatFlags, FileStat, Mode, SFlag, fchmod, fchmodat, mkdirat};
use nix::unistd::{UnlinkatFlags, linkat, symlinkat, unlinkat};

use super::destination::{Destination, stat};
use super::names::{NOT_EMPTY, Whiteout, check_link, clean, split, whiteout};
use super::sink::{Meta, Payload, Refusal, Sink};
use super::sparse::copy;
use super::{Options, Report};
use record::error::{Result, SetupError};
use sys::beneath::{Beneath, names};
use sys::tree::{erase, kind_of, set_mtime};

pub(super) struct Unpacker<'a> {
    to: &'a Destination,
    options: &'a Options,
    pub(super) report: Report,
    /// Paths of this layer, which its whiteouts do not remove.
    own: BTreeSet<Vec<u8>>,
}

impl<'a> Unpacker<'a> {
    pub(super) fn new(to: &'a Destination, options: &'a Options) -> Self {
        Self {
            to,
            options,
            report: Report::default(),
            own: BTreeSet::new(),
        }
    }

    fn directory(&mut self, path: &[u8], meta: Meta) -> Result<(), Refusal> {
        let refuse = |call| self.to.refusing(call, path);
        let (dir, name) = self.parent(path)?;
        match stat(&dir, name).map_err(refuse("stat"))? {
            Some(found) if kind_of(&found) == SFlag::S_IFDIR => {}
            _ => {
                self.free_name(path)?;
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
        let all = self.report.bytes.saturating_add(size);
        if all > self.options.max_bytes {
            let error = self.too_much("bytes", self.options.max_bytes);
            return Err(Refusal::Fail(error));
        }
        let (dir, name) = self.free_name(path)?;
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
        self.report.bytes = all;
        let mode = Mode::from_bits_truncate(self.mode(meta));
        fchmod(&file, mode).map_err(self.to.refusing("fchmod", path))
    }

    fn symbolic_link(&mut self, path: &[u8], text: &[u8]) -> Result<(), Refusal> {
        check_link(path, text)?;
        let (dir, name) = self.free_name(path)?;
        symlinkat(text, &*dir, name).map_err(self.to.refusing("symlink", path))
    }

    fn hard_link(&mut self, path: &[u8], target: &[u8]) -> Result<(), Refusal> {
        let target = clean(target, self.options.max_depth)
            .map_err(|reason| format!("is a hard link whose target {reason}"))?;
        if target == path {
            return Err("is a hard link to itself".into());
        }
        let missing = || "is a hard link to no earlier file".into();
        let (above, target_name) = split(&target);
        let from = match self.to.find_directory(above) {
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => return Err(missing()),
            other => other.map_err(self.to.refusing("openat2", &target))?,
        };
        let found = stat(&from, target_name).map_err(self.to.refusing("stat", &target))?;
        match found.map(|found| kind_of(&found)) {
            Some(SFlag::S_IFREG | SFlag::S_IFLNK) => {}
            _ => return Err(missing()),
        }
        let (dir, name) = self.free_name(path)?;
        linkat(&from, target_name, &*dir, name, AtFlags::empty())
            .map_err(self.to.refusing("link", path))
    }

    /// Removes what a whiteout names, but nothing of its own layer.
    fn white_out(&mut self, path: &[u8], whiteout: &Whiteout<'_>) -> Result<(), Refusal> {
        let (above, _) = split(path);
        let dir = match self.to.find_directory(above) {
            Err(Errno::ENOENT) => return Ok(()),
            other => other.map_err(self.to.refusing("openat2", path))?,
        };
        match whiteout {
            Whiteout::Nothing => Err("is a whiteout of nothing".into()),
            Whiteout::Directory => self.clear(&dir, above),
            Whiteout::Name(name) => {
                let target = join(above, name);
                match stat(&dir, *name).map_err(self.to.refusing("stat", &target))? {
                    None => Ok(()),
                    Some(found) => self.remove_lower(&dir, name, &target, &found),
                }
            }
        }
    }

    /// Removes everything in `dir` that is of lower layers.
    fn clear(&mut self, dir: &OwnedFd, path: &[u8]) -> Result<(), Refusal> {
        let listed = Beneath::new(dir)
            .list("")
            .and_then(|mut dir| names(&mut dir));
        let listed = listed.map_err(self.to.refusing("readdir", path))?;
        for name in listed {
            let inner = join(path, name.as_bytes());
            let found = stat(dir, name.as_c_str());
            if let Some(found) = found.map_err(self.to.refusing("stat", path))? {
                self.remove_lower(dir, name.as_bytes(), &inner, &found)?;
            }
        }
        Ok(())
    }

    fn remove_lower(
        &mut self,
        dir: &OwnedFd,
        name: &[u8],
        path: &[u8],
        found: &FileStat,
    ) -> Result<(), Refusal> {
        let beneath = join(path, b"");
        let mut below = self.own.range(beneath.clone()..);
        let holds_own = below.next().is_some_and(|own| own.starts_with(&beneath));
        if holds_own || self.own.contains(path) {
            if kind_of(found) != SFlag::S_IFDIR {
                return Ok(());
            }
            let inner = self.to.find_directory(path);
            let inner = inner.map_err(self.to.refusing("openat2", path))?;
            return self.clear(&inner, path);
        }
        self.to.forget();
        // A clean name has no NUL byte.
        let name = CString::new(name).unwrap_or_default();
        erase(dir, &name).map_err(self.to.refusing("unlink", path))
    }

    /// The directory of a new entry, and its name there. What has that name is removed.
    fn free_name<'p>(&mut self, path: &'p [u8]) -> Result<(Rc<OwnedFd>, &'p [u8]), Refusal> {
        let (dir, name) = self.parent(path)?;
        let refuse = |call| self.to.refusing(call, path);
        let Some(found) = stat(&dir, name).map_err(refuse("stat"))? else {
            return Ok((dir, name));
        };
        if kind_of(&found) != SFlag::S_IFDIR {
            let removed = unlinkat(&*dir, name, UnlinkatFlags::NoRemoveDir);
            removed.map_err(refuse("unlink"))?;
            return Ok((dir, name));
        }
        if self.options.is_layer {
            self.remove_lower(&dir, name, path, &found)?;
        }
        self.to.forget();
        match unlinkat(&*dir, name, UnlinkatFlags::RemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok((dir, name)),
            Err(Errno::ENOTEMPTY | Errno::EEXIST) => Err(NOT_EMPTY.into()),
            Err(errno) => Err(self.to.refusing("rmdir", path)(errno)),
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

    fn too_much(&self, what: &str, most: u64) -> SetupError {
        SetupError::new(self.to.step(), format!("there are more than {most} {what}"))
            .hint(super::TOO_LARGE)
    }
}

impl Sink for Unpacker<'_> {
    fn place(&mut self, name: &[u8], meta: Meta, what: Payload<'_>) -> Result<(), Refusal> {
        let path = clean(name, self.options.max_depth)?;
        if self.options.is_layer
            && let Some(whiteout) = whiteout(split(&path).1)
        {
            return self.white_out(&path, &whiteout);
        }
        match what {
            Payload::Unsupported(reason) => Err(reason.into()),
            Payload::Directory if path.is_empty() => Ok(()),
            _ if path.is_empty() => Err("would replace the whole tree".into()),
            Payload::Directory => self.directory(&path, meta),
            Payload::File(content, size) => self.file(&path, meta, content, size),
            Payload::Link(text) => self.symbolic_link(&path, text),
            Payload::HardLink(target) => self.hard_link(&path, target),
        }?;
        if self.options.is_layer && !path.is_empty() {
            self.own.insert(path);
        }
        Ok(())
    }

    fn admit(&self, entries: u64) -> Result<()> {
        match self.options.max_entries {
            most if entries > most => Err(self.too_much("entries", most)),
            _ => Ok(()),
        }
    }

    fn report(&mut self) -> &mut Report {
        &mut self.report
    }
}

fn join(above: &[u8], name: &[u8]) -> Vec<u8> {
    match above {
        [] => name.to_vec(),
        above => [above, b"/", name].concat(),
    }
}
