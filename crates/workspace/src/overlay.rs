//! What a program changed in a writable view of a host directory (overlayfs).
//!
//! The upper layer holds the program's files, whiteouts for what it removed (character
//! devices 0:0), and marks of directories that it made anew (`opaque`). The host's files that
//! these replace or hide are the baseline; then the upper layer is a tree like a workspace.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::dir::Type;
use nix::errno::Errno;
use nix::sys::stat::{SFlag, fstat};

use super::baseline::Original;
use super::walk::{DEEPEST, LONGEST_PATH, kind_at};
use super::{Baseline, Caps, Digest, OutDir, Outputs, Tree, collect};
use plan::Plan;
use record::bytes::RawText;
use record::error::{Result, SetupError, Step};
use record::{FileChange, FileSkipped};
use spec::{Overlay, TmpfsLimit, WORKSPACE};
use sys::beneath::{Beneath, entries};
use sys::tree::{kind_of, open_top};
use sys::xattr;

/// A host directory, as an overlay's lower layer.
#[derive(Debug)]
pub struct Lower {
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
    pub fn open_all(plan: &Plan) -> Result<Vec<Self>> {
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

    /// Compares `upper` with the host's directory, and copies what changed to `out`, except
    /// over what is `taken` there.
    pub(super) fn collect(
        &mut self,
        upper: &OwnedFd,
        out: Option<&OutDir>,
        taken: &[RawText],
        caps: &Caps,
        report: &dyn Fn(&FileChange),
    ) -> Outputs {
        let mut search = Search {
            lower: self,
            upper,
            entries_left: caps.entries,
            host_entries_left: MOST_ENTRIES,
            bytes_left: MOST_READ,
            until: caps.until.or_else(|| Instant::now().checked_add(LONGEST)),
            most: 16 * caps.listed,
            is_cut: false,
        };
        let searched = search.layer(&mut Vec::new(), 0);
        let is_cut = search.is_cut;
        let tree = Tree {
            dir: upper.as_fd(),
            covered: &[],
            code_file: None,
            keeps_links: false,
            prefix: &self.prefix,
            taken,
            is_upper: true,
        };
        let mut outputs = collect(tree, &mut self.baseline, out, caps, report);
        if is_cut {
            let skipped = FileSkipped {
                path: self.overlay.target.as_path().into(),
                reason: NOT_COMPARED.to_owned(),
            };
            outputs.add(Ok(vec![skipped]), caps);
        }
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
/// Entries of the host's directories that are looked at where the program hides one.
const MOST_ENTRIES: usize = 100_000;
/// How long the host's files are looked at where nothing else limits the time.
const LONGEST: Duration = Duration::from_secs(60);
/// Why changes are missing, or are listed as creations.
const NOT_COMPARED: &str = "not all of the host's files were compared: there are too many, or they are too large; some that were removed may be missing here, and some that were changed be listed as created";

/// Finds the host's files that the upper layer replaces or hides.
struct Search<'a> {
    lower: &'a mut Lower,
    upper: &'a OwnedFd,
    entries_left: u64,
    host_entries_left: usize,
    bytes_left: u64,
    until: Option<Instant>,
    /// The most files that are compared: more are not listed either.
    most: usize,
    /// Whether something was left out.
    is_cut: bool,
}

impl Search<'_> {
    /// Looks at the directory `path` of the upper layer, which the program filled: nothing
    /// in it is followed.
    fn layer(&mut self, path: &mut Vec<u8>, depth: usize) -> Result<(), Errno> {
        if depth > DEEPEST || !self.goes_on() {
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
                self.is_cut = true;
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
        if self.lower.known.contains(&key) || !self.goes_on() {
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
        if kind_of(&stat) != SFlag::S_IFREG {
            return;
        }
        if size > self.bytes_left {
            self.is_cut = true;
            return;
        }
        self.bytes_left -= size;
        let until = self.until;
        let in_time = |_: &[u8]| match is_before(until) {
            true => Ok(()),
            false => Err(std::io::Error::from(std::io::ErrorKind::TimedOut)),
        };
        if let Ok(digest) = Digest::of(file.take(size), in_time) {
            self.lower.known.insert(key.clone());
            self.lower.baseline.insert(key, Original::File(digest));
        }
        self.is_cut |= !is_before(until);
    }

    /// The host's files beneath `path` are hidden.
    fn hidden(&mut self, path: &mut Vec<u8>, depth: usize) {
        if depth > DEEPEST || !self.goes_on() {
            return;
        }
        let beneath = Beneath::new(&self.lower.directory).on_one_mount();
        let Ok(mut dir) = beneath.list(shown(path)) else {
            return;
        };
        let listed = entries(&mut dir).filter_map(|entry| entry.ok());
        // One more than may be looked at shows that there are more.
        let mut listed: Vec<_> = listed
            .take(self.host_entries_left + 1)
            .map(|entry| (entry.file_name().to_owned(), entry.file_type()))
            .collect();
        self.is_cut |= listed.len() > self.host_entries_left;
        listed.truncate(self.host_entries_left);
        self.host_entries_left -= listed.len();
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

    /// Whether there is time and room for more.
    fn goes_on(&mut self) -> bool {
        let goes_on = is_before(self.until) && self.lower.known.len() < self.most;
        self.is_cut |= !goes_on;
        goes_on
    }
}

fn is_before(until: Option<Instant>) -> bool {
    until.is_none_or(|until| Instant::now() < until)
}

/// The top of a tree is `.`.
fn shown(path: &[u8]) -> &Path {
    use std::os::unix::ffi::OsStrExt as _;
    match path {
        [] => Path::new("."),
        path => Path::new(std::ffi::OsStr::from_bytes(path)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;
    use record::Change;
    use spec::Bytes;

    #[test]
    fn what_a_program_hides_is_compared_up_to_a_bound() {
        const FILES: usize = 40;
        let (host, upper) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        fs::create_dir(host.path().join("sub")).unwrap();
        for number in 0..FILES {
            fs::write(host.path().join(format!("sub/{number}")), "x").unwrap();
        }
        // Anything but a directory hides the directory below it.
        symlink("x", upper.path().join("sub")).unwrap();
        let upper = OwnedFd::from(File::open(upper.path()).unwrap());
        let limit = TmpfsLimit {
            size: Bytes::mib(1),
            inodes: 1000,
        };
        let overlay = Overlay {
            source: host.path().to_owned(),
            target: "/data".into(),
            limit,
        };
        for (listed, is_cut) in [(100, false), (2, true)] {
            let caps = Caps {
                listed,
                ..Caps::of(limit)
            };
            let mut lower = Lower::open(&overlay).unwrap();
            let outputs = lower.collect(&upper, None, &[], &caps, &|_| {});
            let says = |skipped: &FileSkipped| skipped.reason == NOT_COMPARED;
            assert_eq!(outputs.skipped.iter().any(says), is_cut, "{listed}");
            assert_eq!(outputs.files.len(), FILES.min(listed));
            let mut files = outputs.files.iter();
            assert!(files.all(|file| file.change == Change::Deleted));
            let most = if is_cut { 16 * listed } else { FILES };
            assert_eq!(lower.known.len(), most);
        }
    }
}
