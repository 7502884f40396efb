//! What a workspace contains before the program changes it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nix::sys::stat::{FileStat, SFlag};

use super::{Digest, Kind, Stage};
use record::bytes::RawText;

/// Files, directories and links by path.
pub type Baseline = BTreeMap<RawText, Original>;

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Original {
    /// A directory.
    Directory {
        /// Its permission bits.
        mode: u32,
    },
    /// A symbolic link.
    Link {
        /// What it leads to.
        text: Vec<u8>,
    },
    /// A regular file, by its content.
    File(Digest),
    /// A regular file that was changed when the list of changes was full: its content was not
    /// read.
    Unlisted(Stamp),
}

/// What differs once a file was changed. No program can set the time (`st_ctime`); in the tick of the
/// clock in which it was taken, a change that keeps the size is not seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl Stamp {
    pub(super) const fn of(stat: &FileStat) -> Self {
        Self {
            inode: stat.st_ino,
            size: stat.st_size.cast_unsigned(),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }
}

impl Original {
    pub(super) fn kind(&self) -> SFlag {
        match self {
            Self::Directory { .. } => SFlag::S_IFDIR,
            Self::Link { .. } => SFlag::S_IFLNK,
            Self::File(_) | Self::Unlisted(_) => SFlag::S_IFREG,
        }
    }

    /// Bytes of a file's content.
    pub(super) fn size(&self) -> u64 {
        match self {
            Self::File(digest) => digest.size,
            Self::Unlisted(stamp) => stamp.size,
            _ => 0,
        }
    }
}

/// Adds a file of this content, or replaces one.
pub fn put(baseline: &mut Baseline, path: &Path, content: Digest) {
    baseline.insert(name_of(path), Original::File(content));
}

/// Removes a path and what is below it.
pub fn take_out(baseline: &mut Baseline, path: &Path) {
    baseline.retain(|name, _| !path_of(name).starts_with(path));
}

/// Renames a path and what is below it; what had the new name is replaced.
pub fn rename(baseline: &mut Baseline, from: &Path, to: &Path) {
    let (from, to) = (plain(from), plain(to));
    if from == to {
        return;
    }
    take_out(baseline, &to);
    let names = baseline.keys();
    let moved: Vec<_> = names
        .filter(|name| path_of(name).starts_with(&from))
        .cloned()
        .collect();
    for name in moved {
        if let (Some(original), Ok(below)) =
            (baseline.remove(&name), path_of(&name).strip_prefix(&from))
        {
            baseline.insert(name_of(&to.join(below)), original);
        }
    }
}

fn path_of(name: &RawText) -> &Path {
    Path::new(OsStr::from_bytes(name.as_bytes()))
}

fn plain(path: &Path) -> PathBuf {
    path.components().collect()
}

/// A path as the walk of a workspace has it.
fn name_of(path: &Path) -> RawText {
    plain(path).as_os_str().as_bytes().to_vec().into()
}

/// What is made of `stage`.
pub(super) fn of(stage: &Stage) -> Baseline {
    let entries = stage.entries.iter().map(|(path, entry)| {
        let original = match &entry.kind {
            Kind::Directory => Original::Directory { mode: entry.mode },
            Kind::Link(text) => Original::Link { text: text.clone() },
            Kind::File(piece) => Original::File(piece.digest),
        };
        (path.clone().into(), original)
    });
    entries.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_takes_its_files_along() {
        let mut baseline = Baseline::new();
        for path in ["a/x", "a/b/y", "ab", "new/old", "other"] {
            put(
                &mut baseline,
                Path::new(path),
                Digest::of_bytes(path.as_bytes()),
            );
        }
        rename(&mut baseline, Path::new("a/"), Path::new("new"));
        let names: Vec<_> = baseline.keys().map(ToString::to_string).collect();
        assert_eq!(names, ["ab", "new/b/y", "new/x", "other"]);
        let moved = Original::File(Digest::of_bytes(b"a/x"));
        assert_eq!(
            baseline.get(&RawText::from("new/x".to_owned())),
            Some(&moved)
        );
        rename(&mut baseline, Path::new("other"), Path::new("other/"));
        assert!(baseline.contains_key(&RawText::from("other".to_owned())));
    }
}
