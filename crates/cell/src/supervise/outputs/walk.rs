//! Walks a hostile directory tree without following anything.

use std::cmp::Ordering;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;
use std::vec;

use nix::NixPath;
use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, OpenHow, ResolveFlag, openat2, readlinkat};
use nix::sys::stat::{FchmodatFlags, FileStat, Mode, SFlag, fchmod, fchmodat, fstat, fstatat};

use super::{Caps, Tree};
use record::bytes::RawText;

/// A thousand names in the record must not make it a hundred megabytes.
const LONGEST_PATH: usize = 1024;

/// Why links are left out.
pub(super) const IS_LINK: &str = "it is a symbolic link";

/// One thing in the tree.
pub(super) enum Found {
    /// A directory; what is in it follows.
    Directory {
        path: RawText,
        /// Permission bits.
        mode: u32,
    },
    /// A symbolic link, and its text.
    Link { path: RawText, text: Vec<u8> },
    /// A regular file, open for reading.
    File {
        path: RawText,
        file: File,
        size: u64,
        /// Bytes of it that are not holes.
        allocated: u64,
        /// Permission bits.
        mode: u32,
        /// Seconds since 1970.
        mtime: i64,
    },
    /// Anything else, with the reason for leaving it out.
    Skipped { path: RawText, reason: String },
}

/// Gives what is in the tree in the byte order of the paths.
pub(super) struct Walk<'a> {
    /// From the root to where the walk is. With a stack of its own, and names
    /// relative to open directories, no depth and no length of a path breaks it.
    stack: Vec<Level>,
    entries_left: u64,
    depth_cap: usize,
    /// What is not the cell's own: left out without a word.
    covered: &'a [PathBuf],
}

/// A directory that the walk is in.
struct Level {
    dir: Dir,
    /// Its path, empty or with a slash at the end.
    prefix: Vec<u8>,
    entries: vec::IntoIter<Entry>,
    /// Whether it has more entries than may be looked at.
    is_cut: bool,
    /// Permission bits.
    mode: u32,
}

struct Entry {
    name: CString,
    kind: SFlag,
}

impl<'a> Walk<'a> {
    pub(super) fn new(tree: Tree<'a>, caps: &Caps) -> nix::Result<Self> {
        // Even `.` cannot be opened in a directory that its owner may not enter.
        let mode = permissions(&fstat(tree.dir)?);
        if !mode.contains(Mode::S_IRWXU) {
            fchmod(tree.dir, mode | Mode::S_IRWXU)?;
        }
        let mut entries_left = caps.entries;
        let root = Level::open(tree.dir, c".", Vec::new(), &mut entries_left)?;
        Ok(Self {
            stack: vec![root],
            entries_left,
            depth_cap: caps.depth,
            covered: tree.covered,
        })
    }
}

impl Iterator for Walk<'_> {
    type Item = Found;

    fn next(&mut self) -> Option<Found> {
        loop {
            let level = self.stack.last_mut()?;
            let Some(entry) = level.entries.next() else {
                let level = self.stack.pop()?;
                if level.is_cut {
                    let reason = "it holds more than is looked at";
                    return Some(skipped(level.prefix, reason));
                }
                continue;
            };
            let path = [&level.prefix, entry.name.as_bytes()].concat();
            if self
                .covered
                .iter()
                .any(|covered| covered.as_os_str().as_bytes() == path)
            {
                continue;
            }
            if path.len() > LONGEST_PATH {
                return Some(skipped(path, "its path is too long"));
            }
            if entry.kind != SFlag::S_IFDIR {
                return Some(open_file(&level.dir, &entry, path));
            }
            if self.stack.len() > self.depth_cap {
                return Some(skipped(path, "it is nested too deep"));
            }
            let level = self.stack.last()?;
            let prefix = [&path[..], b"/"].concat();
            match Level::open(&level.dir, &entry.name, prefix, &mut self.entries_left) {
                Ok(below) => {
                    let (path, mode) = (path.into(), below.mode);
                    self.stack.push(below);
                    return Some(Found::Directory { path, mode });
                }
                Err(errno) => return Some(skipped(path, refusal(errno))),
            }
        }
    }
}

impl Level {
    /// Opens a directory and lists it.
    fn open(
        parent: impl AsFd,
        name: &CStr,
        prefix: Vec<u8>,
        entries_left: &mut u64,
    ) -> nix::Result<Self> {
        let fd = open_readable(&parent, name, OFlag::O_DIRECTORY)?;
        // Listing it took the read bit; opening what is in it takes the others.
        let mode = permissions(&fstat(&fd)?);
        if !mode.contains(Mode::S_IRWXU) {
            fchmod(&fd, mode | Mode::S_IRWXU)?;
        }
        let mut dir = Dir::from_fd(fd)?;
        let mut names = Vec::new();
        let mut is_cut = false;
        for entry in dir.iter() {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            if *entries_left == 0 {
                is_cut = true;
                break;
            }
            *entries_left -= 1;
            names.push((name.to_owned(), entry.file_type()));
        }
        let mut entries = Vec::with_capacity(names.len());
        for (name, kind) in names {
            let kind = match kind {
                Some(kind) => kind_of_entry(kind),
                None => kind_of(&fstatat(
                    &dir,
                    name.as_c_str(),
                    AtFlags::AT_SYMLINK_NOFOLLOW,
                )?),
            };
            entries.push(Entry { name, kind });
        }
        entries.sort_by(Entry::cmp_paths);
        Ok(Self {
            dir,
            prefix,
            entries: entries.into_iter(),
            is_cut,
            mode: mode.bits() & 0o777,
        })
    }
}

impl Entry {
    /// Orders entries so that whole paths come in the order of their bytes: a
    /// directory sorts by the slash behind its name.
    fn cmp_paths(&self, other: &Self) -> Ordering {
        self.sort_key().cmp(other.sort_key())
    }

    fn sort_key(&self) -> impl Iterator<Item = &u8> {
        let slash: &[u8] = if self.kind == SFlag::S_IFDIR {
            b"/"
        } else {
            b""
        };
        self.name.as_bytes().iter().chain(slash)
    }
}

/// Whether `path` below `root` is a regular file.
pub(super) fn is_file(root: BorrowedFd<'_>, path: &RawText) -> nix::Result<bool> {
    match kind_at(root, path) {
        Ok(kind) => Ok(kind == SFlag::S_IFREG),
        // ELOOP and ENOTDIR: a directory of the path was replaced.
        Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// What `path` below `root` is, a link itself.
pub(super) fn kind_at(root: BorrowedFd<'_>, path: &RawText) -> nix::Result<SFlag> {
    let fd = open_beneath(root, path.as_path(), OFlag::O_PATH | OFlag::O_NOFOLLOW)?;
    Ok(kind_of(&fstat(&fd)?))
}

fn open_file(dir: &Dir, entry: &Entry, path: Vec<u8>) -> Found {
    if entry.kind == SFlag::S_IFLNK
        && let Ok(text) = readlinkat(dir, entry.name.as_c_str())
    {
        let (path, text) = (path.into(), text.into_vec());
        return Found::Link { path, text };
    }
    if entry.kind != SFlag::S_IFREG {
        return skipped(path, kind_reason(entry.kind));
    }
    let opened = open_readable(dir, &entry.name, OFlag::empty())
        .and_then(|fd| fstat(&fd).map(|stat| (fd, stat)));
    match opened {
        Ok((fd, stat)) if kind_of(&stat) == SFlag::S_IFREG => Found::File {
            path: path.into(),
            file: fd.into(),
            size: u64::try_from(stat.st_size).unwrap_or(0),
            allocated: u64::try_from(stat.st_blocks)
                .unwrap_or(0)
                .saturating_mul(512),
            mode: stat.st_mode & 0o777,
            mtime: stat.st_mtime,
        },
        Ok((_, stat)) => skipped(path, kind_reason(kind_of(&stat))),
        Err(errno) => skipped(path, refusal(errno)),
    }
}

/// Opens for reading. What its owner may not read is made readable first: the
/// cell's outer uid is the supervisor's own, or the supervisor is root.
pub(super) fn open_readable(dir: impl AsFd, name: &CStr, flags: OFlag) -> nix::Result<OwnedFd> {
    let flags = flags | OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    match open_beneath(&dir, name, flags) {
        Err(Errno::EACCES) => {
            make_readable(&dir, name)?;
            open_beneath(&dir, name, flags)
        }
        result => result,
    }
}

fn make_readable(dir: impl AsFd, name: &CStr) -> nix::Result<()> {
    let fd = open_beneath(dir, name, OFlag::O_PATH | OFlag::O_NOFOLLOW)?;
    let stat = fstat(&fd)?;
    let mode = permissions(&stat)
        | match kind_of(&stat) {
            SFlag::S_IFREG => Mode::S_IRUSR,
            SFlag::S_IFDIR => Mode::S_IRWXU,
            _ => return Err(Errno::EACCES),
        };
    // fchmod(2) refuses a descriptor opened with O_PATH; its name in /proc does
    // not lead through the tree again.
    let name = format!("/proc/self/fd/{}", fd.as_raw_fd());
    fchmodat(AT_FDCWD, name.as_str(), mode, FchmodatFlags::FollowSymlink)
}

/// Opens without leaving `dir`, by links or by mounts.
pub(super) fn open_beneath<P: ?Sized + NixPath>(
    dir: impl AsFd,
    path: &P,
    flags: OFlag,
) -> nix::Result<OwnedFd> {
    let resolve = ResolveFlag::RESOLVE_BENEATH
        | ResolveFlag::RESOLVE_NO_SYMLINKS
        | ResolveFlag::RESOLVE_NO_MAGICLINKS
        | ResolveFlag::RESOLVE_NO_XDEV;
    let how = OpenHow::new()
        .flags(flags | OFlag::O_CLOEXEC)
        .resolve(resolve);
    openat2(dir, path, how)
}

pub(super) fn kind_of(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}

fn permissions(stat: &FileStat) -> Mode {
    Mode::from_bits_truncate(stat.st_mode)
}

fn kind_of_entry(kind: Type) -> SFlag {
    match kind {
        Type::File => SFlag::S_IFREG,
        Type::Directory => SFlag::S_IFDIR,
        Type::Symlink => SFlag::S_IFLNK,
        Type::Fifo => SFlag::S_IFIFO,
        Type::Socket => SFlag::S_IFSOCK,
        Type::CharacterDevice => SFlag::S_IFCHR,
        Type::BlockDevice => SFlag::S_IFBLK,
    }
}

fn kind_reason(kind: SFlag) -> &'static str {
    match kind {
        SFlag::S_IFLNK => IS_LINK,
        SFlag::S_IFIFO => "it is a named pipe",
        SFlag::S_IFSOCK => "it is a socket",
        SFlag::S_IFCHR | SFlag::S_IFBLK => "it is a device",
        _ => "it is not a regular file",
    }
}

fn refusal(errno: Errno) -> String {
    match errno {
        Errno::EXDEV => "it is a mount of another file system".to_owned(),
        Errno::ELOOP => kind_reason(SFlag::S_IFLNK).to_owned(),
        _ => format!(
            "it cannot be opened: {errno:?} ({})",
            errno.desc().to_lowercase()
        ),
    }
}

fn skipped(mut path: Vec<u8>, reason: impl Into<String>) -> Found {
    if path.last() == Some(&b'/') {
        path.pop();
    }
    if path.is_empty() {
        path.push(b'.');
    }
    Found::Skipped {
        path: path.into(),
        reason: reason.into(),
    }
}
