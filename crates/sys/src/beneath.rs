//! Opens what is below a directory, and nothing else.
//!
//! Names below a rootfs, a workspace or an archive's destination come from untrusted
//! code and may lead elsewhere through links. The kernel resolves them (openat2(2)), so
//! there is no moment between a check and its use.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::NixPath;
use nix::dir::{self, Dir};
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{Mode, mkdirat};

/// How often a lookup is repeated that raced with a rename of a directory. A file's
/// lease gives the same error number, so the number of attempts has a limit.
const ATTEMPTS: usize = 16;

/// A directory that paths are opened below.
///
/// Links are refused (ELOOP) unless one of the methods below allows them, and so is a
/// path that leaves the directory (EXDEV). The empty path is the directory itself.
#[derive(Clone, Copy, Debug)]
pub struct Beneath<'a> {
    dir: BorrowedFd<'a>,
    resolve: ResolveFlag,
}

impl<'a> Beneath<'a> {
    /// Refuses all links.
    pub fn new(dir: &'a impl AsFd) -> Self {
        Self {
            dir: dir.as_fd(),
            resolve: ResolveFlag::RESOLVE_BENEATH
                | ResolveFlag::RESOLVE_NO_SYMLINKS
                | ResolveFlag::RESOLVE_NO_MAGICLINKS,
        }
    }

    /// Refuses mount points as well (EXDEV).
    pub fn on_one_mount(mut self) -> Self {
        self.resolve |= ResolveFlag::RESOLVE_NO_XDEV;
        self
    }

    /// Follows links that stay below the directory.
    pub fn following_links(mut self) -> Self {
        self.resolve -= ResolveFlag::RESOLVE_NO_SYMLINKS;
        self
    }

    /// Follows all links as if the directory were the root directory.
    pub fn as_root(mut self) -> Self {
        self.resolve = ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS;
        self
    }

    /// Finds a file of any kind without opening it (`O_PATH`).
    ///
    /// # Errors
    /// That of openat2(2).
    pub fn find<P: ?Sized + NixPath>(self, path: &P) -> nix::Result<OwnedFd> {
        self.open(path, OFlag::O_PATH, Mode::empty())
    }

    /// The same, but a link in the last component is found itself.
    ///
    /// # Errors
    /// That of openat2(2).
    pub fn find_link<P: ?Sized + NixPath>(self, path: &P) -> nix::Result<OwnedFd> {
        self.open(path, OFlag::O_PATH | OFlag::O_NOFOLLOW, Mode::empty())
    }

    /// Finds a directory, to open what is in it (`O_PATH`).
    ///
    /// # Errors
    /// That of openat2(2).
    pub fn directory<P: ?Sized + NixPath>(self, path: &P) -> nix::Result<OwnedFd> {
        self.open(path, OFlag::O_PATH | OFlag::O_DIRECTORY, Mode::empty())
    }

    /// Opens a directory to list it.
    ///
    /// # Errors
    /// That of openat2(2).
    pub fn list<P: ?Sized + NixPath>(self, path: &P) -> nix::Result<Dir> {
        Dir::from_fd(self.open_directory(path)?)
    }

    /// Opens a directory, so that what has the descriptor can list it.
    ///
    /// # Errors
    /// That of openat2(2).
    pub fn open_directory<P: ?Sized + NixPath>(self, path: &P) -> nix::Result<OwnedFd> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
        self.open(path, flags, Mode::empty())
    }

    /// Opens a file for reading. A FIFO without a writer does not block the call, and a
    /// terminal does not become the controlling one; whether it is a regular file is for
    /// the caller to check.
    ///
    /// # Errors
    /// That of openat2(2).
    pub fn read<P: ?Sized + NixPath>(self, path: &P) -> nix::Result<File> {
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        self.open(path, flags, Mode::empty()).map(File::from)
    }

    /// Creates a file and opens it for writing.
    ///
    /// # Errors
    /// That of openat2(2); EEXIST if there is something of that name.
    pub fn create<P: ?Sized + NixPath>(self, path: &P, mode: Mode) -> nix::Result<File> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL;
        self.open(path, flags, mode).map(File::from)
    }

    /// Creates a file without a name in the directory, which is gone with its last descriptor unless
    /// linkat(2) gives it one.
    ///
    /// # Errors
    /// That of openat2(2); EOPNOTSUPP if the file system has no such files.
    pub fn create_nameless(self, mode: Mode) -> nix::Result<File> {
        let flags = OFlag::O_RDWR | OFlag::O_TMPFILE;
        self.open(c"", flags, mode).map(File::from)
    }

    /// Opens a file to write at its end. Whether it is a regular file is for the caller to
    /// check, before it writes.
    ///
    /// # Errors
    /// That of openat2(2); ENXIO for a FIFO without a reader.
    pub fn append<P: ?Sized + NixPath>(self, path: &P) -> nix::Result<File> {
        let flags = OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        self.open(path, flags, Mode::empty()).map(File::from)
    }

    /// Finds a directory, and creates what is missing of its path.
    ///
    /// # Errors
    /// That of openat2(2) or mkdirat(2).
    pub fn make_directories(self, path: &Path, mode: Mode) -> nix::Result<OwnedFd> {
        match (self.directory(path), path.parent()) {
            (Err(Errno::ENOENT), Some(parent)) => {
                let parent = self.make_directories(parent, mode)?;
                let name = path.file_name().ok_or(Errno::EINVAL)?;
                match mkdirat(&parent, name, mode) {
                    Ok(()) | Err(Errno::EEXIST) => self.directory(path),
                    Err(errno) => Err(errno),
                }
            }
            (found, _) => found,
        }
    }

    fn open<P: ?Sized + NixPath>(self, path: &P, flags: OFlag, mode: Mode) -> nix::Result<OwnedFd> {
        let how = OpenHow::new()
            .flags(flags | OFlag::O_CLOEXEC)
            .mode(mode)
            .resolve(self.resolve);
        let open = || match path.is_empty() {
            true => openat2(self.dir, c".", how),
            false => openat2(self.dir, path, how),
        };
        let mut opened = open();
        for _ in 1..ATTEMPTS {
            if !matches!(opened, Err(Errno::EAGAIN)) {
                break;
            }
            opened = open();
        }
        opened
    }
}

/// What an open directory contains, without `.` and `..`.
pub fn entries(dir: &mut Dir) -> impl Iterator<Item = nix::Result<dir::Entry>> + '_ {
    dir.iter().filter(
        |entry| !matches!(entry, Ok(entry) if matches!(entry.file_name().to_bytes(), b"." | b"..")),
    )
}

/// Their names.
///
/// # Errors
/// That of getdents(2).
pub fn names(dir: &mut Dir) -> nix::Result<Vec<CString>> {
    let names = entries(dir).map(|entry| Ok(entry?.file_name().to_owned()));
    names.collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn links_lead_as_far_as_they_are_allowed_to() {
        let base = tempfile::tempdir().unwrap();
        let at = |path: &str| base.path().join(path);
        fs::create_dir_all(at("top/sub")).unwrap();
        fs::write(at("secret"), "").unwrap();
        fs::write(at("top/sub/file"), "").unwrap();
        symlink("sub/file", at("top/inside")).unwrap();
        symlink("../secret", at("top/upward")).unwrap();
        symlink("/sub/file", at("top/absolute")).unwrap();
        let top = File::open(at("top")).unwrap();
        let none = Beneath::new(&top);
        let (within, root) = (none.following_links(), none.as_root());

        for (path, by_none, by_within, by_root) in [
            ("sub/file", None, None, None),
            ("inside", Some(Errno::ELOOP), None, None),
            (
                "upward",
                Some(Errno::ELOOP),
                Some(Errno::EXDEV),
                Some(Errno::ENOENT),
            ),
            ("absolute", Some(Errno::ELOOP), Some(Errno::EXDEV), None),
            (
                "../secret",
                Some(Errno::EXDEV),
                Some(Errno::EXDEV),
                Some(Errno::ENOENT),
            ),
        ] {
            let refused = [none, within, root].map(|beneath| beneath.read(path).err());
            assert_eq!(refused, [by_none, by_within, by_root], "{path}");
        }
        none.find_link("inside").unwrap();
        assert_eq!(
            none.create("inside", Mode::S_IRWXU).err(),
            Some(Errno::EEXIST)
        );
    }

    #[test]
    fn a_mount_is_entered_only_where_that_is_allowed() {
        let root = File::open("/").unwrap();
        let root = Beneath::new(&root);
        root.find("proc/version").unwrap();
        let refused = root.on_one_mount().find("proc/version").err();
        assert_eq!(refused, Some(Errno::EXDEV));
    }

    #[test]
    fn directories_are_created_as_needed() {
        let base = tempfile::tempdir().unwrap();
        symlink("/tmp", base.path().join("link")).unwrap();
        let top = File::open(base.path()).unwrap();
        let make = |path: &str| Beneath::new(&top).make_directories(Path::new(path), Mode::S_IRWXU);
        for path in ["", "a/b/c", "a/b/d", "a/b/c"] {
            make(path).unwrap();
        }
        assert!(base.path().join("a/b/d").is_dir());
        for path in ["link", "link/new"] {
            assert_eq!(make(path).err(), Some(Errno::ELOOP), "{path}");
        }
        assert_eq!(make("../outside").err(), Some(Errno::EXDEV));
    }

    #[test]
    fn a_fifo_blocks_no_reader_and_dots_are_not_listed() {
        let base = tempfile::tempdir().unwrap();
        mkfifo(&base.path().join("fifo"), Mode::S_IRWXU).unwrap();
        let top = File::open(base.path()).unwrap();
        let beneath = Beneath::new(&top);
        beneath.read("fifo").unwrap();
        let listed = names(&mut beneath.list("").unwrap());
        assert_eq!(listed, Ok(vec![c"fifo".to_owned()]));
    }
}
