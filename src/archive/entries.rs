//! The entries of an archive, one after the other.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{FchmodatFlags, FileStat, Mode, fchmod, fchmodat, futimens, mkdirat};
use nix::sys::time::{TimeSpec, TimeValLike as _};
use nix::unistd::{UnlinkatFlags, linkat, symlinkat, unlinkat};
use tar::{Archive, Entry, EntryType};

use super::destination::{Destination, Refusal, c_name, stat};
use super::meter::{Meter, is_too_much};
use super::names::{self, Whiteout};
use super::sparse::{CopyError, Expanded, copy};
use super::{Options, Report, damaged};
use crate::erase::erase;
use crate::error::{Result, SetupError};

/// Bytes that the headers of one entry may have, with long names and maps of
/// holes: the tar reader keeps them in memory.
const LARGEST_HEADER: u64 = 1 << 20;

/// Nothing in a tree was made before 1970 or after the year 2242.
const LATEST: u64 = 1 << 33;

/// Unpacks plain tar.
pub(super) fn unpack(
    reader: impl Read,
    to: &Destination,
    options: &Options,
    tick: &mut dyn FnMut(&Report) -> Result<()>,
) -> Result<Report> {
    let (reader, allowance) = Meter::new(reader, options.max_bytes);
    let mut unpacker = Unpacker {
        to,
        options,
        report: Report::default(),
        own: BTreeSet::new(),
    };
    let mut archive = Archive::new(reader);
    let mut entries = archive.entries().map_err(|e| damaged(to.step(), &e))?;
    loop {
        tick(&unpacker.report)?;
        let entry = with_allowance(&allowance, LARGEST_HEADER, || entries.next());
        let Some(entry) = entry else {
            return Ok(unpacker.report);
        };
        let mut entry = entry.map_err(|e| unpacker.unreadable(&e))?;
        unpacker.report.entries += 1;
        if unpacker.report.entries > options.max_entries {
            return Err(unpacker.too_much("entries", options.max_entries));
        }
        unpacker.entry(&mut entry)?;
        // To the end of its data, which the next header's allowance is not for.
        io::copy(&mut entry, &mut io::sink()).map_err(|e| unpacker.unreadable(&e))?;
    }
}

/// Does `work` with no more than `most` to read.
fn with_allowance<T>(allowance: &Rc<Cell<u64>>, most: u64, work: impl FnOnce() -> T) -> T {
    let whole = allowance.get();
    let granted = whole.min(most);
    allowance.set(granted);
    let result = work();
    allowance.set(whole - (granted - allowance.get()));
    result
}

struct Unpacker<'a> {
    to: &'a Destination,
    options: &'a Options,
    report: Report,
    /// What this layer has made: its whiteouts are for lower layers.
    own: BTreeSet<Vec<u8>>,
}

impl Unpacker<'_> {
    fn entry(&mut self, entry: &mut Entry<'_, impl Read>) -> Result<()> {
        let sparse = gnu_sparse(entry).map_err(|e| self.unreadable(&e))?;
        let name = match &sparse {
            Sparse::File { name, .. } => name.clone(),
            _ => entry.path_bytes().into_owned(),
        };
        match self.place(entry, &name, &sparse) {
            Ok(()) => Ok(()),
            Err(Refusal::Fail(error)) => Err(error),
            Err(Refusal::Skip(reason)) => {
                self.report.skip(&name, reason);
                Ok(())
            }
        }
    }

    fn place(
        &mut self,
        entry: &mut Entry<'_, impl Read>,
        name: &[u8],
        sparse: &Sparse,
    ) -> Result<(), Refusal> {
        let kind = entry.header().entry_type();
        if kind.is_pax_global_extensions() {
            return Ok(());
        }
        let path = names::clean(name, self.options.max_depth)?;
        if self.options.is_layer
            && let Some(whiteout) = names::whiteout(names::split(&path).1)
        {
            return self.white_out(&path, &whiteout);
        }
        if path.is_empty() {
            return match kind {
                EntryType::Directory => Ok(()),
                _ => Err("would take the place of the whole tree".into()),
            };
        }
        match kind {
            EntryType::Directory => self.directory(entry, &path),
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => match sparse {
                Sparse::Unknown => Err("is a sparse file of an old form".into()),
                Sparse::File { size, .. } => {
                    let size = *size;
                    let expanded = Expanded::new(&mut *entry, size);
                    let mut expanded = expanded.map_err(|e| self.unreadable_entry(&e))?;
                    self.file(&mut expanded, size, &path)?;
                    self.finish_file(entry, &path)
                }
                Sparse::No => {
                    let size = entry.size();
                    self.file(entry, size, &path)?;
                    self.finish_file(entry, &path)
                }
            },
            EntryType::Symlink => self.symbolic_link(entry, &path),
            EntryType::Link => self.hard_link(entry, &path),
            EntryType::Char | EntryType::Block => Err("is a device node".into()),
            EntryType::Fifo => Err("is a named pipe".into()),
            _ => Err("is of a kind that has no place in a tree".into()),
        }
    }

    fn directory(&mut self, entry: &Entry<'_, impl Read>, path: &[u8]) -> Result<(), Refusal> {
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
                mkdirat(&dir, name, Mode::S_IRWXU)
                    .map_err(|e| self.to.refusal("mkdir", e, path))?;
            }
        }
        // Whoever unpacks must be able to fill it.
        let mode = self.mode(entry)? | 0o700;
        let mode = Mode::from_bits_truncate(mode);
        fchmodat(&*dir, name, mode, FchmodatFlags::NoFollowSymlink)
            .map_err(|e| self.to.refusal("chmod", e, path))?;
        self.note(path);
        Ok(())
    }

    fn file(&mut self, content: &mut impl Read, size: u64, path: &[u8]) -> Result<(), Refusal> {
        let all = self.report.bytes.saturating_add(size);
        if all > self.options.max_bytes {
            return Err(Refusal::Fail(
                self.too_much("bytes", self.options.max_bytes),
            ));
        }
        let (dir, name) = self.parent(path)?;
        let found = stat(&dir, name).map_err(|e| self.to.refusal("stat", e, path))?;
        self.make_way(&dir, name, path, found)?;
        let flags =
            OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        let file =
            openat(&*dir, name, flags, mode).map_err(|e| self.to.refusal("open", e, path))?;
        let mut file = File::from(file);
        let copied = copy(content, &mut file).map_err(|error| match error {
            CopyError::Read(e) => self.unreadable_entry(&e),
            CopyError::Write(e) => {
                let errno = e.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
                Refusal::Fail(self.to.failed("write", errno, path))
            }
        })?;
        if copied != size {
            return Err(self.unreadable_entry(&io::ErrorKind::UnexpectedEof.into()));
        }
        self.report.bytes = all;
        self.note(path);
        Ok(())
    }

    /// Mode and time: Python compares the time with that in compiled modules.
    fn finish_file(&mut self, entry: &Entry<'_, impl Read>, path: &[u8]) -> Result<(), Refusal> {
        let (dir, name) = self.parent(path)?;
        let failed = |call: &str, e: Errno| self.to.refusal(call, e, path);
        let flags = OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let file = openat(&*dir, name, flags, Mode::empty()).map_err(|e| failed("open", e))?;
        let seconds = entry.header().mtime().unwrap_or(0).min(LATEST);
        let time = TimeSpec::seconds(i64::try_from(seconds).unwrap_or(0));
        futimens(&file, &time, &time).map_err(|e| failed("utimensat", e))?;
        let mode = Mode::from_bits_truncate(self.mode(entry)?);
        fchmod(&file, mode).map_err(|e| self.to.refusal("fchmod", e, path))
    }

    fn symbolic_link(&mut self, entry: &Entry<'_, impl Read>, path: &[u8]) -> Result<(), Refusal> {
        let text = entry.link_name_bytes().unwrap_or_default();
        names::check_link(path, &text)?;
        let (dir, name) = self.parent(path)?;
        let found = stat(&dir, name).map_err(|e| self.to.refusal("stat", e, path))?;
        self.make_way(&dir, name, path, found)?;
        symlinkat(&*text, &*dir, name).map_err(|e| self.to.refusal("symlink", e, path))?;
        self.note(path);
        Ok(())
    }

    fn hard_link(&mut self, entry: &Entry<'_, impl Read>, path: &[u8]) -> Result<(), Refusal> {
        let target = entry.link_name_bytes().unwrap_or_default();
        let target = names::clean(&target, self.options.max_depth)
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
        let (above, target_name) = names::split(&target);
        let from = self
            .to
            .open_directory(above, links)
            .map_err(|e| self.to.refusal("openat2", e, &target))?;
        linkat(&from, target_name, &*dir, name, AtFlags::empty())
            .map_err(|e| self.to.refusal("link", e, path))?;
        self.note(path);
        Ok(())
    }

    /// What a layer's whiteout says is removed, but nothing of the layer itself.
    fn white_out(&mut self, path: &[u8], whiteout: &Whiteout<'_>) -> Result<(), Refusal> {
        let (above, _) = names::split(path);
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
        let failed = |to: &Destination, call: &str, e: Errno| to.refusal(call, e, path);
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let mut listing = openat(dir, c".", flags, Mode::empty())
            .and_then(Dir::from_fd)
            .map_err(|e| failed(self.to, "open", e))?;
        let mut names = Vec::new();
        for entry in listing.iter() {
            let entry = entry.map_err(|e| failed(self.to, "readdir", e))?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                names.push(name.to_vec());
            }
        }
        for name in names {
            let inner = join(path, &name);
            let found = stat(dir, name.as_slice()).map_err(|e| failed(self.to, "stat", e))?;
            if let Some(found) = found {
                self.remove_lower(dir, &name, &inner, &found)?;
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
        let (above, name) = names::split(path);
        let dir = self.to.directory(above, self.options.through_links)?;
        Ok((dir, name))
    }

    /// An entry's mode without the bits that give rights away.
    fn mode(&mut self, entry: &Entry<'_, impl Read>) -> Result<u32, Refusal> {
        let mode = entry
            .header()
            .mode()
            .map_err(|_| Refusal::from("has no readable mode"))?;
        if mode & 0o7000 != 0 {
            self.report.stripped += 1;
        }
        Ok(mode & 0o755)
    }

    /// Notes what this layer has made.
    fn note(&mut self, path: &[u8]) {
        if self.options.is_layer {
            self.own.insert(path.to_vec());
        }
    }

    fn unreadable(&self, error: &io::Error) -> SetupError {
        if is_too_much(error) {
            return self.too_much(
                "bytes, or a header of more than a megabyte",
                self.options.max_bytes,
            );
        }
        match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                damaged(self.to.step(), &io::Error::other("it ends too early"))
            }
            _ => damaged(self.to.step(), error),
        }
    }

    fn unreadable_entry(&self, error: &io::Error) -> Refusal {
        Refusal::Fail(self.unreadable(error))
    }

    fn too_much(&self, what: &str, most: u64) -> SetupError {
        SetupError::new(
            self.to.step(),
            format!("the archive has more than {most} {what}"),
        )
        .hint("if it is meant to be that large, unpack it yourself and use the directory")
    }
}

/// How a file's holes are written down.
enum Sparse {
    /// In no extension; the tar reader knows the older way in headers.
    No,
    /// A map before the data; the header has a made-up name and size.
    File { name: Vec<u8>, size: u64 },
    /// In a form that only GNU tar 1.14 and 1.15 wrote.
    Unknown,
}

fn gnu_sparse(entry: &mut Entry<'_, impl Read>) -> io::Result<Sparse> {
    let Some(extensions) = entry.pax_extensions()? else {
        return Ok(Sparse::No);
    };
    let (mut is_sparse, mut major, mut name, mut size) = (false, None, None, None);
    for extension in extensions {
        let extension = extension?;
        let value = extension.value_bytes();
        let Some(key) = extension.key_bytes().strip_prefix(b"GNU.sparse.") else {
            continue;
        };
        is_sparse = true;
        match key {
            b"major" => major = Some(value.to_vec()),
            b"name" => name = Some(value.to_vec()),
            b"realsize" => size = std::str::from_utf8(value).ok().and_then(|v| v.parse().ok()),
            _ => {}
        }
    }
    match (is_sparse, major.as_deref(), name, size) {
        (false, ..) => Ok(Sparse::No),
        (true, Some(b"1"), Some(name), Some(size)) => Ok(Sparse::File { name, size }),
        _ => Ok(Sparse::Unknown),
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
