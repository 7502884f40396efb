//! Puts one thing after the other into a destination.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::{FchmodatFlags, FileStat, Mode, fchmod, fchmodat, mkdirat};
use nix::unistd::{UnlinkatFlags, linkat, symlinkat, unlinkat};

use super::destination::{Destination, c_name, stat};
use super::names::{Whiteout, check_link, clean, split, whiteout};
use super::sink::{Meta, Refusal, Sink, What};
use super::sparse::{CopyError, copy};
use super::{Options, Report};
use record::error::{Result, SetupError};
use sys::beneath::{Beneath, names};
use sys::tree::{erase, set_mtime};

pub(super) struct Putter<'a> {
    to: &'a Destination,
    options: &'a Options,
    pub(super) report: Report,
    /// What this layer has made: its whiteouts are for lower layers.
    own: BTreeSet<Vec<u8>>,
}

impl<'a> Putter<'a> {
    pub(super) fn new(to: &'a Destination, options: &'a Options) -> Self {
        Self {
            to,
            options,
            report: Report::default(),
            own: BTreeSet::new(),
        }
    }

    fn directory(&mut self, path: &[u8], meta: Meta) -> Result<(), Refusal> {
        let (dir, name) = self.parent(path)?;
        match stat(&dir, name).map_err(|e| self.to.refusal("stat", e, path))? {
            Some(found) if is(&found, libc::S_IFDIR) => {}
            Some(found)
                if self.options.through_links
                    && is(&found, libc::S_IFLNK)
                    && self.to.open_directory(path, true).is_ok() =>
            {
                return Ok(());
            }
            found => {
                self.make_way(&dir, name, path, found)?;
                mkdirat(&*dir, name, Mode::S_IRWXU)
                    .map_err(|e| self.to.refusal("mkdir", e, path))?;
            }
        }
        // Whoever unpacks must be able to fill it.
        let mode = Mode::from_bits_truncate(self.mode(meta) | 0o700);
        fchmodat(&*dir, name, mode, FchmodatFlags::NoFollowSymlink)
            .map_err(|e| self.to.refusal("chmod", e, path))
    }

    fn file(
        &mut self,
        path: &[u8],
        meta: Meta,
        mut content: &mut dyn Read,
        size: u64,
        unreadable: &dyn Fn(&io::Error) -> SetupError,
    ) -> Result<(), Refusal> {
        let all = self.report.bytes.saturating_add(size);
        if all > self.options.max_bytes {
            let error = self.too_much("bytes", self.options.max_bytes);
            return Err(Refusal::Fail(error));
        }
        let (dir, name) = self.parent(path)?;
        let found = stat(&dir, name).map_err(|e| self.to.refusal("stat", e, path))?;
        self.make_way(&dir, name, path, found)?;
        let file = Beneath::new(&dir).create(name, Mode::S_IRUSR | Mode::S_IWUSR);
        let mut file = file.map_err(|e| self.to.refusal("openat2", e, path))?;
        let copied = copy(&mut content, &mut file).map_err(|error| {
            Refusal::Fail(match error {
                CopyError::Read(e) => unreadable(&e),
                CopyError::Write(e) => {
                    let errno = e.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
                    self.to.failed("write", errno, path)
                }
            })
        })?;
        if copied != size {
            let error = io::Error::from(io::ErrorKind::UnexpectedEof);
            return Err(Refusal::Fail(unreadable(&error)));
        }
        self.report.bytes = all;
        // Python compares the time with that in compiled modules.
        let time = i64::try_from(meta.mtime).unwrap_or(i64::MAX);
        set_mtime(&file, time).map_err(|e| self.to.refusal("utimensat", e, path))?;
        fchmod(&file, Mode::from_bits_truncate(self.mode(meta)))
            .map_err(|e| self.to.refusal("fchmod", e, path))
    }

    fn symbolic_link(&mut self, path: &[u8], text: &[u8]) -> Result<(), Refusal> {
        check_link(path, text)?;
        let (dir, name) = self.parent(path)?;
        let found = stat(&dir, name).map_err(|e| self.to.refusal("stat", e, path))?;
        self.make_way(&dir, name, path, found)?;
        symlinkat(text, &*dir, name).map_err(|e| self.to.refusal("symlink", e, path))
    }

    fn hard_link(&mut self, path: &[u8], target: &[u8]) -> Result<(), Refusal> {
        let target = clean(target, self.options.max_depth)
            .map_err(|reason| format!("is a hard link whose target {reason}"))?;
        if target == path {
            return Err("is a hard link to itself".into());
        }
        let links = self.options.through_links;
        let there = self.to.find(&target, links);
        match there.map_err(|e| self.to.refusal("stat", e, &target))? {
            Some(found) if is(&found, libc::S_IFREG) || is(&found, libc::S_IFLNK) => {}
            _ => return Err("is a hard link to no earlier file".into()),
        }
        let (dir, name) = self.parent(path)?;
        let found = stat(&dir, name).map_err(|e| self.to.refusal("stat", e, path))?;
        self.make_way(&dir, name, path, found)?;
        let (above, target_name) = split(&target);
        let from = self
            .to
            .open_directory(above, links)
            .map_err(|e| self.to.refusal("openat2", e, &target))?;
        linkat(&from, target_name, &*dir, name, AtFlags::empty())
            .map_err(|e| self.to.refusal("link", e, path))
    }

    /// What a layer's whiteout says is removed, but nothing of the layer itself.
    fn white_out(&mut self, path: &[u8], whiteout: &Whiteout<'_>) -> Result<(), Refusal> {
        let (above, _) = split(path);
        let dir = match self.to.open_directory(above, false) {
            Err(Errno::ENOENT) => return Ok(()),
            other => other.map_err(|e| self.to.refusal("openat2", e, path))?,
        };
        match whiteout {
            Whiteout::Nothing => Err("is a whiteout of nothing".into()),
            Whiteout::Directory => self.clear(&dir, above),
            Whiteout::Name(name) => {
                let target = join(above, name);
                match stat(&dir, *name).map_err(|e| self.to.refusal("stat", e, &target))? {
                    None => Ok(()),
                    Some(found) => self.remove_lower(&dir, name, &target, &found),
                }
            }
        }
    }

    /// Removes everything in `dir` that lower layers have there.
    fn clear(&mut self, dir: &OwnedFd, path: &[u8]) -> Result<(), Refusal> {
        let listed = Beneath::new(dir)
            .list("")
            .and_then(|mut dir| names(&mut dir));
        let listed = listed.map_err(|e| self.to.refusal("readdir", e, path))?;
        for name in listed {
            let inner = join(path, name.as_bytes());
            let found = stat(dir, name.as_c_str());
            if let Some(found) = found.map_err(|e| self.to.refusal("stat", e, path))? {
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
            if !is(found, libc::S_IFDIR) {
                return Ok(());
            }
            let inner = self.to.open_directory(path, false);
            let inner = inner.map_err(|e| self.to.refusal("openat2", e, path))?;
            return self.clear(&inner, path);
        }
        self.to.forget();
        erase(dir, &c_name(name)).map_err(|e| self.to.refusal("unlink", e, path))
    }

    /// Removes what is in the place of a new entry.
    fn make_way(
        &mut self,
        dir: &OwnedFd,
        name: &[u8],
        path: &[u8],
        found: Option<FileStat>,
    ) -> Result<(), Refusal> {
        let Some(found) = found else { return Ok(()) };
        if !is(&found, libc::S_IFDIR) {
            return unlinkat(dir, name, UnlinkatFlags::NoRemoveDir)
                .map_err(|e| self.to.refusal("unlink", e, path));
        }
        if self.options.is_layer {
            self.remove_lower(dir, name, path, &found)?;
        }
        self.to.forget();
        match unlinkat(dir, name, UnlinkatFlags::RemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(Errno::ENOTEMPTY | Errno::EEXIST) => {
                Err("would take the place of a directory with content".into())
            }
            Err(errno) => Err(self.to.refusal("rmdir", errno, path)),
        }
    }

    /// The directory of an entry, and its name there.
    fn parent<'p>(&self, path: &'p [u8]) -> Result<(Rc<OwnedFd>, &'p [u8]), Refusal> {
        let (above, name) = split(path);
        let dir = self.to.directory(above, self.options.through_links)?;
        Ok((dir, name))
    }

    /// Mode bits without those that give rights away.
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

impl Sink for Putter<'_> {
    fn place(
        &mut self,
        name: &[u8],
        meta: Meta,
        what: What<'_>,
        unreadable: &dyn Fn(&io::Error) -> SetupError,
    ) -> Result<(), Refusal> {
        let path = clean(name, self.options.max_depth)?;
        if self.options.is_layer
            && let Some(whiteout) = whiteout(split(&path).1)
        {
            return self.white_out(&path, &whiteout);
        }
        match what {
            What::Nothing(reason) => Err(reason.into()),
            What::Directory if path.is_empty() => Ok(()),
            _ if path.is_empty() => Err("would take the place of the whole tree".into()),
            What::Directory => self.directory(&path, meta),
            What::File(content, size) => self.file(&path, meta, content, size, unreadable),
            What::Link(text) => self.symbolic_link(&path, text),
            What::HardLink(target) => self.hard_link(&path, target),
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

    fn report(&self) -> &Report {
        &self.report
    }

    fn report_mut(&mut self) -> &mut Report {
        &mut self.report
    }
}

fn is(found: &FileStat, kind: u32) -> bool {
    found.st_mode & libc::S_IFMT == kind
}

fn join(above: &[u8], name: &[u8]) -> Vec<u8> {
    match above {
        [] => name.to_vec(),
        above => [above, b"/", name].concat(),
    }
}
