//! What a program changed in a writable view of a host directory (overlayfs).
//!
//! The upper layer holds the program's files, whiteouts for what it removed (character
//! devices 0:0), and marks of directories that it made anew (`opaque`). The host's files that
//! these replace or hide are the baseline; then the upper layer is a tree like a workspace.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use nix::dir::Type;
use nix::errno::Errno;
use nix::sys::stat::{SFlag, fstat};

use super::baseline::Original;
use super::walk::{DEEPEST, LONGEST_PATH, kind_at};
use super::{Baseline, Caps, Digest, OutDir, Outputs, Tree, collect};
use crate::plan::Plan;
use crate::spec::{Overlay, TmpfsLimit, WORKSPACE};
use record::FileChange;
use record::bytes::RawText;
use record::error::{Result, SetupError, Step};
use sys::beneath::{Beneath, entries};
use sys::tree::{kind_of, open_top};
use sys::xattr;

/// A host directory, as an overlay's lower layer.
#[derive(Debug)]
pub(crate) struct Lower {
    overlay: Overlay,
    directory: OwnedFd,
    /// What its paths begin with in the record.
    prefix: Vec<u8>,
    baseline: Baseline,
    /// Paths of which the baseline has or had the host's file.
    known: BTreeSet<RawText>,
}

/// Marks a directory that shows nothing of the one below it (`userxattr`).
const OPAQUE: &std::ffi::CStr = c"user.overlay.opaque";

impl Lower {
    /// Opens the directories of the plan's overlays.
    ///
    /// # Errors
    /// One cannot be opened.
    pub(crate) fn open_all(plan: &Plan) -> Result<Vec<Self>> {
        plan.overlays.iter().map(Self::open).collect()
    }

    fn open(overlay: &Overlay) -> Result<Self> {
        let directory = open_top(&overlay.source, Step::Inputs).map_err(|error| {
            error.hint("name a directory that you may read, as SRC in --overlay SRC[:DST]")
        })?;
        let target = &overlay.target;
        let shown = target.strip_prefix(WORKSPACE).unwrap_or(target);
        let mut prefix = shown.as_os_str().as_encoded_bytes().to_vec();
        if !prefix.is_empty() {
            prefix.push(b'/');
        }
        Ok(Self {
            overlay: overlay.clone(),
            directory,
            prefix,
            baseline: Baseline::new(),
            known: BTreeSet::new(),
        })
    }

    /// The bounds of the upper layer.
    pub(super) const fn limit(&self) -> TmpfsLimit {
        self.overlay.limit
    }

    /// Compares `upper` with the host's directory, and copies what changed to `out`.
    pub(super) fn collect(
        &mut self,
        upper: &OwnedFd,
        out: Option<&OutDir>,
        caps: &Caps,
        report: &dyn Fn(&FileChange),
    ) -> Outputs {
        let mut search = Search {
            lower: self,
            upper,
            entries_left: caps.entries,
            bytes_left: MOST_READ,
            caps,
        };
        let searched = search.layer(&mut Vec::new(), 0);
        let tree = Tree {
            dir: upper.as_fd(),
            covered: &[],
            code_file: None,
            keeps_links: false,
            prefix: &self.prefix,
            is_upper: true,
        };
        let mut outputs = collect(tree, &mut self.baseline, out, caps, report);
        if let Err(errno) = searched {
            let error = SetupError::os(Step::Outputs, "openat2", errno);
            outputs
                .error
                .get_or_insert(error.on(self.overlay.target.display()));
        }
        outputs
    }
}

/// Bytes of the host's files that are read for comparison.
const MOST_READ: u64 = 4 << 30;

/// Finds the host's files that the upper layer replaces or hides.
struct Search<'a> {
    lower: &'a mut Lower,
    upper: &'a OwnedFd,
    entries_left: u64,
    bytes_left: u64,
    caps: &'a Caps,
}

impl Search<'_> {
    /// Looks at the directory `path` of the upper layer, which the program filled: nothing
    /// in it is followed.
    fn layer(&mut self, path: &mut Vec<u8>, depth: usize) -> Result<(), Errno> {
        if depth > DEEPEST || !self.caps.is_in_time() {
            return Ok(());
        }
        let mut dir = match Beneath::new(self.upper).on_one_mount().list(shown(path)) {
            Ok(dir) => dir,
            // The collection makes it readable, and lists what is in it as created.
            Err(Errno::EACCES) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        let is_opaque = xattr::get(dir.as_fd(), OPAQUE).is_ok_and(|value| value == b"y");
        let mut found = Vec::new();
        for entry in entries(&mut dir) {
            let entry = entry?;
            let Some(left) = self.entries_left.checked_sub(1) else {
                return Ok(());
            };
            self.entries_left = left;
            found.push((entry.file_name().to_owned(), entry.file_type()));
        }
        if is_opaque {
            self.hidden(path, depth);
        }
        for (name, kind) in found {
            self.at(path, &name, |search, path| match kind {
                Some(Type::Directory) => {
                    // In place of a file, or beside nothing: no more is below it.
                    search.replaced(path);
                    search.layer(path, depth + 1)
                }
                // A whiteout, or a file, link, pipe or socket in place of what was there.
                Some(Type::File) => {
                    search.replaced(path);
                    Ok(())
                }
                _ => {
                    search.replaced(path);
                    search.hidden(path, depth + 1);
                    Ok(())
                }
            })?;
        }
        Ok(())
    }

    fn at<T>(
        &mut self,
        path: &mut Vec<u8>,
        name: &CString,
        visit: impl FnOnce(&mut Self, &mut Vec<u8>) -> Result<T, Errno>,
    ) -> Result<Option<T>, Errno> {
        let length = path.len();
        if length > 0 {
            path.push(b'/');
        }
        path.extend(name.as_bytes());
        let visited = match path.len() > LONGEST_PATH {
            true => Ok(None),
            false => visit(self, path).map(Some),
        };
        path.truncate(length);
        visited
    }

    /// The host's file at `path`, if there is one, was replaced or removed.
    fn replaced(&mut self, path: &[u8]) {
        let key = RawText::from(path.to_vec());
        if self.lower.known.contains(&key) || self.lower.known.len() >= self.most() {
            return;
        }
        // Opening a device of the host's could already have an effect.
        let directory = &self.lower.directory;
        if kind_at(directory.as_fd(), &key) != Ok(SFlag::S_IFREG) {
            return;
        }
        let Ok(file) = Beneath::new(directory).on_one_mount().read(key.as_path()) else {
            return;
        };
        let Ok(stat) = fstat(&file) else { return };
        let size = stat.st_size.cast_unsigned();
        if kind_of(&stat) != SFlag::S_IFREG || size > self.bytes_left {
            return;
        }
        self.bytes_left -= size;
        let in_time = |_: &[u8]| match self.caps.is_in_time() {
            true => Ok(()),
            false => Err(std::io::Error::from(std::io::ErrorKind::TimedOut)),
        };
        if let Ok(digest) = Digest::of(&file, in_time) {
            self.lower.known.insert(key.clone());
            self.lower.baseline.insert(key, Original::File(digest));
        }
    }

    /// The host's files beneath `path` are hidden.
    fn hidden(&mut self, path: &mut Vec<u8>, depth: usize) {
        if depth > DEEPEST || !self.caps.is_in_time() || self.lower.known.len() >= self.most() {
            return;
        }
        let beneath = Beneath::new(&self.lower.directory).on_one_mount();
        let Ok(mut dir) = beneath.list(shown(path)) else {
            return;
        };
        let listed = entries(&mut dir).filter_map(|entry| entry.ok());
        let listed: Vec<_> = listed
            .map(|entry| (entry.file_name().to_owned(), entry.file_type()))
            .collect();
        for (name, kind) in listed {
            let _ = self.at(path, &name, |search, path| {
                match kind {
                    Some(Type::File) => search.replaced(path),
                    Some(Type::Directory) => search.hidden(path, depth + 1),
                    _ => {}
                }
                Ok(())
            });
        }
    }

    /// As many files are compared: more are not listed either.
    const fn most(&self) -> usize {
        16 * self.caps.listed
    }
}

/// The top of a tree is `.`.
fn shown(path: &[u8]) -> &Path {
    use std::os::unix::ffi::OsStrExt as _;
    match path {
        [] => Path::new("."),
        path => Path::new(std::ffi::OsStr::from_bytes(path)),
    }
}
