//! What the cell's writable file systems had none left of.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::fcntl::AtFlags;
use nix::sys::stat::fstatat;
use nix::sys::statvfs::fstatvfs;

use sys::beneath::{Beneath, entries};

/// Things looked at in search of a file of a certain size.
const MOST_ENTRIES: usize = 4096;
/// Directories inside each other that this search goes into.
const DEEPEST: usize = 16;

/// What one file system had none left of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shortage {
    /// Blocks: no byte could be added.
    pub space: bool,
    /// Inodes: no file could be made.
    pub inodes: bool,
}

/// One file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Disk {
    /// When it was last looked at.
    pub now: Shortage,
    /// At any of these times.
    pub ever: Shortage,
}

/// The tmpfs of a cell's own ([`crate::plan::Plan::own_scratch`], in that order), as
/// often as someone looked. A disk that
/// was filled and emptied between two looks was full all the same: a shortage that
/// was not seen is not known to be none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Disks(pub [Disk; 3]);

impl Disks {
    /// Looks at these directories' file systems.
    pub(crate) fn look(&mut self, directories: &[OwnedFd]) {
        for (disk, directory) in self.0.iter_mut().zip(directories) {
            let Ok(fs) = fstatvfs(directory) else {
                continue;
            };
            // Without a limit of its own a file system states no inodes at all.
            disk.now = Shortage {
                space: fs.blocks() > 0 && fs.blocks_available() == 0,
                inodes: fs.files() > 0 && fs.files_available() == 0,
            };
            disk.ever.space |= disk.now.space;
            disk.ever.inodes |= disk.now.inodes;
        }
    }
}

/// Whether one of these directories holds a regular file of exactly this size:
/// what a program leaves behind whose writing RLIMIT_FSIZE ended. No link is
/// followed. Not finding one says nothing.
pub(crate) fn hold_file_of(directories: &[OwnedFd], size: u64) -> bool {
    let mut left = MOST_ENTRIES;
    (directories.iter()).any(|directory| holds_file_of(directory.as_fd(), c".", size, 0, &mut left))
}

fn holds_file_of(
    parent: BorrowedFd<'_>,
    name: &std::ffi::CStr,
    size: u64,
    depth: usize,
    left: &mut usize,
) -> bool {
    // A bind beneath a tmpfs is the host's.
    let Ok(mut dir) = Beneath::new(&parent).on_one_mount().list(name) else {
        return false;
    };
    let mut inner = Vec::new();
    for entry in entries(&mut dir).flatten() {
        let Some(fewer) = left.checked_sub(1) else {
            return false;
        };
        *left = fewer;
        inner.push(entry.file_name().to_owned());
    }
    inner.iter().any(|name| {
        let Ok(stat) = fstatat(&dir, name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW) else {
            return false;
        };
        match stat.st_mode & libc::S_IFMT {
            libc::S_IFREG => u64::try_from(stat.st_size) == Ok(size),
            libc::S_IFDIR if depth < DEEPEST => {
                holds_file_of(dir.as_fd(), name, size, depth + 1, left)
            }
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_at_its_limit_is_found_beneath_directories_and_behind_no_link() {
        let top = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(top.path().join("a/b")).unwrap();
        std::fs::write(other.path().join("x"), [0; 1000]).unwrap();
        std::os::unix::fs::symlink(other.path(), top.path().join("link")).unwrap();
        let found = |size| {
            let directory = OwnedFd::from(std::fs::File::open(top.path()).unwrap());
            hold_file_of(&[directory], size)
        };
        assert!(!found(1000));
        std::fs::write(top.path().join("a/b/x"), [0; 1000]).unwrap();
        assert!(found(1000));
        assert!(!found(999) && !found(1001));
    }

    #[test]
    fn a_shortage_is_remembered() {
        let mut disks = Disks::default();
        disks.0[1].ever.space = true;
        let here = || OwnedFd::from(std::fs::File::open("/").unwrap());
        disks.look(&[here(), here(), here()]);
        assert!(disks.0[1].ever.space);
        assert!(!disks.0[1].now.inodes);
    }
}
