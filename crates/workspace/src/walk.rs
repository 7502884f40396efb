//! Walks a hostile directory tree without following anything.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;
use std::vec;

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::readlinkat;
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat};

use super::{Caps, Tree};
use record::bytes::RawText;
use sys::beneath::{Beneath, entries as listed};
use sys::tree::{kind_of, set_mode};

/// A thousand names in the record must not make it a hundred megabytes.
pub(super) const LONGEST_PATH: usize = 1024;

/// The maximum depth of directories.
pub(super) const DEEPEST: usize = 64;

/// Why links are left out.
pub(super) const IS_LINK: &str = "it is a symbolic link";

/// One thing in the tree.
pub(super) struct Found {
    pub(super) path: RawText,
    pub(super) what: What,
}

pub(super) enum What {
    /// A directory, and its permission bits; its content follows.
    Directory(u32),
    /// A symbolic link's text.
    Link(Vec<u8>),
    /// A regular file, open for reading, and its metadata.
    File(File, FileStat),
    /// Anything else, with the reason for leaving it out.
    Skipped(String),
}

/// Gives the content of the tree in the byte order of the paths.
pub(super) struct Walk<'a> {
    /// From the root to where the walk is. With a stack of its own, and names relative to
    /// open directories, the walk works at any depth and length of path.
    stack: Vec<Level>,
    entries_left: u64,
    depth_cap: usize,
    /// Mount points, left out silently.
    covered: &'a [PathBuf],
    /// Whether character devices stand for what was removed, and are left out silently.
    has_whiteouts: bool,
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
    /// A tmpfs reports the kind of each entry.
    kind: Option<Type>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(tree: Tree<'a>, caps: &Caps) -> nix::Result<Self> {
        // Even `.` cannot be opened in a directory that its owner may not enter.
        allow_owner(tree.dir)?;
        let mut entries_left = caps.entries;
        let root = Level::open(&tree.dir, c".", Vec::new(), &mut entries_left)?;
        Ok(Self {
            stack: vec![root],
            entries_left,
            depth_cap: caps.depth,
            covered: tree.covered,
            has_whiteouts: tree.is_upper,
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
                    let reason = "it has more entries than are looked at";
                    return Some(skipped(level.prefix, reason));
                }
                continue;
            };
            if self.has_whiteouts && entry.kind == Some(Type::CharacterDevice) {
                continue;
            }
            let path = [&level.prefix, entry.name.as_bytes()].concat();
            let mut covered = self.covered.iter();
            if covered.any(|covered| covered.as_os_str().as_bytes() == path) {
                continue;
            }
            if path.len() > LONGEST_PATH {
                return Some(skipped(path, "its path is too long"));
            }
            if entry.kind != Some(Type::Directory) {
                return Some(open_entry(&level.dir, &entry, path));
            }
            if self.stack.len() > self.depth_cap {
                return Some(skipped(path, "it is nested too deeply"));
            }
            let level = self.stack.last()?;
            let prefix = [&path[..], b"/"].concat();
            match Level::open(&level.dir, &entry.name, prefix, &mut self.entries_left) {
                Ok(below) => {
                    let what = What::Directory(below.mode);
                    self.stack.push(below);
                    let path = path.into();
                    return Some(Found { path, what });
                }
                Err(errno) => return Some(skipped(path, refusal(errno))),
            }
        }
    }
}

impl Level {
    /// Opens a directory and lists it.
    fn open(
        parent: &impl AsFd,
        name: &CStr,
        prefix: Vec<u8>,
        entries_left: &mut u64,
    ) -> nix::Result<Self> {
        let mut dir = readable(parent, name, |beneath| beneath.list(name))?;
        // Listing it took the read bit; opening its content takes the others.
        let mode = allow_owner(&dir)?;
        let mut entries = Vec::new();
        let mut is_cut = false;
        for entry in listed(&mut dir) {
            let entry = entry?;
            if *entries_left == 0 {
                is_cut = true;
                break;
            }
            *entries_left -= 1;
            let (name, kind) = (entry.file_name().to_owned(), entry.file_type());
            entries.push(Entry { name, kind });
        }
        entries.sort_by(|a, b| a.sort_key().cmp(b.sort_key()));
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
    /// Orders entries so that whole paths come in the order of their bytes: a directory
    /// sorts by the slash behind its name.
    fn sort_key(&self) -> impl Iterator<Item = &u8> {
        let slash: &[u8] = match self.kind {
            Some(Type::Directory) => b"/",
            _ => b"",
        };
        self.name.as_bytes().iter().chain(slash)
    }
}

/// The kind of `path` below `root`, a link not followed.
pub(super) fn kind_at(root: BorrowedFd<'_>, path: &RawText) -> nix::Result<SFlag> {
    let found = Beneath::new(&root)
        .on_one_mount()
        .find_link(path.as_path())?;
    Ok(kind_of(&fstat(&found)?))
}

fn open_entry(dir: &Dir, entry: &Entry, path: Vec<u8>) -> Found {
    let name = entry.name.as_c_str();
    let opened = match entry.kind {
        Some(Type::Symlink) => readlinkat(dir, name).map(|text| What::Link(text.into_vec())),
        Some(Type::File) => open_file(dir, name).map(|(file, stat)| What::File(file, stat)),
        kind => return skipped(path, kind_reason(kind)),
    };
    match opened {
        Ok(what) => Found {
            path: path.into(),
            what,
        },
        Err(errno) => skipped(path, refusal(errno)),
    }
}

/// Opens a regular file for reading.
///
/// # Errors
/// That of openat2(2); EINVAL if it is of another kind.
pub(super) fn open_file(dir: &impl AsFd, path: &CStr) -> nix::Result<(File, FileStat)> {
    let file = readable(dir, path, |beneath| beneath.read(path))?;
    let stat = fstat(&file)?;
    match kind_of(&stat) {
        SFlag::S_IFREG => Ok((file, stat)),
        _ => Err(Errno::EINVAL),
    }
}

/// Gives the owner of an open directory all rights; returns its mode before.
fn allow_owner(dir: impl AsFd) -> nix::Result<Mode> {
    let mode = Mode::from_bits_truncate(fstat(&dir)?.st_mode);
    if !mode.contains(Mode::S_IRWXU) {
        fchmod(&dir, mode | Mode::S_IRWXU)?;
    }
    Ok(mode)
}

/// Opens `path` by `open`. What its owner may not read is made readable first: the cell's
/// outer uid is the supervisor's own, or the supervisor is root.
fn readable<T>(
    dir: &impl AsFd,
    path: &CStr,
    open: impl Fn(Beneath<'_>) -> nix::Result<T>,
) -> nix::Result<T> {
    let beneath = Beneath::new(dir).on_one_mount();
    match open(beneath) {
        Err(Errno::EACCES) => {
            make_readable(beneath, path)?;
            open(beneath)
        }
        opened => opened,
    }
}

fn make_readable(beneath: Beneath<'_>, path: &CStr) -> nix::Result<()> {
    let found = beneath.find(path)?;
    let stat = fstat(&found)?;
    let missing = match kind_of(&stat) {
        SFlag::S_IFREG => Mode::S_IRUSR,
        SFlag::S_IFDIR => Mode::S_IRWXU,
        _ => return Err(Errno::EACCES),
    };
    set_mode(&found, Mode::from_bits_truncate(stat.st_mode) | missing)
}

fn kind_reason(kind: Option<Type>) -> &'static str {
    match kind {
        Some(Type::Fifo) => "it is a named pipe",
        Some(Type::Socket) => "it is a socket",
        Some(Type::CharacterDevice | Type::BlockDevice) => "it is a device",
        _ => "it is not a regular file",
    }
}

fn refusal(errno: Errno) -> String {
    match errno {
        Errno::EXDEV => "it is a mount of another file system".to_owned(),
        Errno::ELOOP => IS_LINK.to_owned(),
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
    Found {
        path: path.into(),
        what: What::Skipped(reason.into()),
    }
}
