//! Shortage of space and inodes in the cell's writable file systems.

use std::os::fd::OwnedFd;

use nix::sys::stat::fstat;
use nix::sys::statvfs::{Statvfs, fstatvfs};

use record::error::{SetupError, Step};
use sys::tree;
use workspace::is_empty;

/// The most entries that a search for a file looks at.
const MOST_ENTRIES: usize = 4096;
/// The most nested directories that it enters.
const DEEPEST: usize = 16;

/// What ran out in one file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shortage {
    /// Blocks: no byte could be added.
    pub space: bool,
    /// Inodes: no file could be made.
    pub inodes: bool,
}

/// One file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disk {
    /// When it was last looked at.
    pub now: Shortage,
    /// At any of these times.
    pub ever: Shortage,
    /// Its size, once it has been looked at.
    pub size: Option<DiskSize>,
    /// Bytes of content when it was last looked at.
    pub used: u64,
    /// The most at any of these times.
    pub most: u64,
}

/// The size of a file system, as it states it itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSize {
    /// In bytes.
    pub space: u64,
    /// In files.
    pub inodes: u64,
}

impl DiskSize {
    /// That of the file system that `directory` is in.
    pub fn of(directory: &OwnedFd) -> Option<Self> {
        fstatvfs(directory).ok().map(|fs| Self::stated(&fs))
    }

    fn stated(fs: &Statvfs) -> Self {
        Self {
            space: fs.blocks() * fs.fragment_size(),
            inodes: fs.files(),
        }
    }
}

/// The cell's own tmpfs ([`plan::Plan::own_scratch`], in that order), as last
/// looked at. A disk that was filled and emptied between two looks was full all the
/// same: a shortage that was not seen may have been there.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disks(pub [Disk; 3]);

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
            disk.size = Some(DiskSize::stated(&fs));
            disk.used = fs.blocks().saturating_sub(fs.blocks_free()) * fs.fragment_size();
            disk.most = disk.most.max(disk.used);
            disk.ever.space |= disk.now.space;
            disk.ever.inodes |= disk.now.inodes;
        }
    }
}

/// Whether one of these directories holds a regular file of exactly this size:
/// what a program leaves when RLIMIT_FSIZE stops it. No link is followed. A file that
/// is not found may exist all the same.
pub fn hold_file_of(directories: &[OwnedFd], size: u64) -> bool {
    let stop = || SetupError::new(Step::Supervise, "enough was looked at");
    let mut left = MOST_ENTRIES;
    let mut filled = directories.iter().filter(|place| !is_empty(place));
    filled.any(|directory| {
        let Ok(top) = fstat(directory) else {
            return false;
        };
        let mut found = false;
        let _ = tree::each(directory, Step::Supervise, &mut |entry| {
            left = left.checked_sub(1).ok_or_else(stop)?;
            let is_file = entry.stat.st_mode & libc::S_IFMT == libc::S_IFREG;
            if is_file && u64::try_from(entry.stat.st_size) == Ok(size) {
                found = true;
                return Err(stop());
            }
            let depth = entry.path.iter().filter(|byte| **byte == b'/').count();
            // A bind beneath a tmpfs is the host's.
            Ok(depth < DEEPEST && entry.stat.st_dev == top.st_dev)
        });
        found
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
