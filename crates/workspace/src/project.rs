//! What a program changed in a writable bind with protected paths.
//!
//! The directory is the host's and may be large, so files are not read to compare them: the
//! kernel sets a file's ctime whenever it or its content changes, and a program cannot set
//! that. What git stores is left out; what git runs or obeys is not.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::{FileStat, SFlag, fstat, fstatat};

use super::guard::is_placeholder;
use super::walk::{DEEPEST, IS_LINK, LONGEST_PATH, kind_at};
use super::{Caps, Digest, Outputs, media};
use plan::{Plan, Protected};
use record::bytes::{RawText, hex};
use record::error::{Result, Step};
use record::{Change, FileChange, FileSkipped};
use spec::{Bytes, TmpfsLimit, WORKSPACE};
use sys::beneath::{Beneath, entries};
use sys::tree::{kind_of, open_top};

/// The most bytes that the names and times of a directory's files take: those of some hundred
/// thousand files.
const MOST_KEPT: usize = 48 << 20;
/// What one of them takes besides its name.
const EACH: usize = 96;
/// The most entries that are looked at.
const MOST_ENTRIES: usize = 2_000_000;
/// New repositories that are named; the rest is counted.
const MOST_NAMED: usize = 20;
/// The most bytes of changed files that are read for their digests.
const MOST_READ: Bytes = Bytes(256 * Bytes::MIB);
/// Files of a repository that name programs, or where git finds such files.
const OBEYED: [&str; 3] = ["config", "config.worktree", "commondir"];

/// A directory of the caller's.
#[derive(Debug)]
pub struct Project {
    protected: Protected,
    directory: OwnedFd,
    /// What its paths begin with in the record.
    prefix: Vec<u8>,
    before: Snapshot,
}

#[derive(Debug, Default)]
struct Snapshot {
    files: BTreeMap<RawText, State>,
    repositories: BTreeSet<RawText>,
    /// Directories that this process may not read. Their owner may make them readable again, and git needs
    /// no such right to find a repository there.
    unreadable: BTreeSet<RawText>,
    /// The inodes of protected directories, but for what stands for a missing path.
    directories: BTreeMap<RawText, u64>,
    /// Whether there was more.
    is_cut: bool,
}

/// A file's identity and when it last changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    inode: u64,
    size: i64,
    changed: (i64, i64),
}

impl State {
    fn of(stat: &FileStat) -> Self {
        Self {
            inode: stat.st_ino,
            size: stat.st_size,
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }
}

impl Project {
    /// Looks at the directories of the plan's protected paths.
    ///
    /// # Errors
    /// One cannot be opened.
    pub fn open_all(plan: &Plan) -> Result<Vec<Self>> {
        plan.protected.iter().map(Self::of).collect()
    }

    fn of(protected: &Protected) -> Result<Self> {
        let directory = open_top(&protected.source, Step::Inputs)?;
        let target = &protected.target;
        let shown = target.strip_prefix(WORKSPACE).unwrap_or(target);
        let mut prefix = shown.as_os_str().as_encoded_bytes().to_vec();
        if !prefix.is_empty() {
            prefix.push(b'/');
        }
        Ok(Self {
            before: Snapshot::of(&directory, &protected.paths),
            protected: protected.clone(),
            directory,
            prefix,
        })
    }

    /// The bounds of what is looked at.
    pub(super) const fn limit(&self) -> TmpfsLimit {
        TmpfsLimit {
            size: MOST_READ,
            inodes: MOST_ENTRIES as u64,
        }
    }

    /// Lists what changed since the last time.
    pub(super) fn collect(&mut self, caps: &Caps, report: &dyn Fn(&FileChange)) -> Outputs {
        let after = Snapshot::of(&self.directory, &self.protected.paths);
        let mut outputs = Outputs::default();
        let mut changes = 0;
        let mut left = MOST_READ.0;
        let created = (after.files.iter())
            .filter(|(path, state)| self.before.files.get(*path).is_none_or(|was| was != *state));
        let deleted = (self.before.files.keys()).filter(|path| !after.files.contains_key(*path));
        let all = created.map(|(path, _)| path).chain(deleted);
        for path in all {
            changes += 1;
            if outputs.files.len() >= caps.listed {
                continue;
            }
            let change = match (self.before.files.get(path), after.files.get(path)) {
                (None, _) => Change::Created,
                (Some(_), Some(_)) => Change::Modified,
                (Some(_), None) => Change::Deleted,
            };
            match self.describe(path, change, &mut left, caps.until) {
                Ok(change) => {
                    report(&change);
                    outputs.files.push(change);
                }
                Err(reason) => outputs.skipped.push(FileSkipped {
                    path: self.full(path),
                    reason,
                }),
            }
        }
        let listed = (outputs.files.len() + outputs.skipped.len()) as u64;
        outputs.note_cut("files", "head", changes, listed);
        if self.before.is_cut || after.is_cut {
            outputs.skipped.push(FileSkipped {
                path: self.protected.target.as_path().into(),
                reason: "it has more files than are compared".to_owned(),
            });
        }
        self.warn(&after, &mut outputs);
        self.before = after;
        outputs.files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        outputs
    }

    /// What a person should know before a program outside uses the directory.
    fn warn(&self, after: &Snapshot, outputs: &mut Outputs) {
        let made = after.repositories.difference(&self.before.repositories);
        for path in made.clone().take(MOST_NAMED) {
            outputs.warnings.push(format!(
                "the run made a repository of git, {}: git runs what its settings and hooks name, outside too",
                self.full(path)
            ));
        }
        let more = made.count().saturating_sub(MOST_NAMED);
        if more > 0 {
            let more = format!("the run made {more} more repositories of git");
            outputs.warnings.push(more);
        }
        let changed = |path: &&RawText| self.before.files.get(*path) != after.files.get(*path);
        let leading = after.files.keys().filter(|path| {
            let name = path.as_path().file_name();
            name.is_some_and(|name| leads(name.as_bytes()))
        });
        for path in leading.filter(changed).take(MOST_NAMED) {
            outputs.warnings.push(format!(
                "the run made or changed {}, which leads git to a repository that can be anywhere: git in and above that directory runs what its settings name, outside too",
                self.full(path)
            ));
        }
        let closed = after.unreadable.difference(&self.before.unreadable);
        for path in closed.take(MOST_NAMED) {
            outputs.warnings.push(format!(
                "{} cannot be read any more: what git would find there is not known",
                self.full(path)
            ));
        }
        for path in &self.protected.paths {
            let key = RawText::from(path.as_path());
            let (was, is) = (self.before.files.get(&key), after.files.get(&key));
            let directories = [&self.before, after].map(|at| at.directories.get(&key));
            if was != is || directories[0] != directories[1] {
                outputs.warnings.push(format!(
                    "{} is protected and was changed from outside while the cell ran: from then on, the program could change it too",
                    self.full(&key)
                ));
            }
        }
    }

    /// A path as the record has it; `.` for the directory itself, where that is the workspace.
    fn full(&self, path: &RawText) -> RawText {
        match [self.prefix.as_slice(), path.as_bytes()].concat() {
            whole if whole.is_empty() => RawText::from("."),
            whole => whole.into(),
        }
    }

    /// # Errors
    /// Why the file is not described.
    fn describe(
        &self,
        path: &RawText,
        change: Change,
        left: &mut u64,
        until: Option<Instant>,
    ) -> Result<FileChange, String> {
        let mut listed = FileChange {
            path: self.full(path),
            change,
            size: None,
            sha256: None,
            media_type: None,
            content: None,
            content_base64: None,
        };
        if change == Change::Deleted {
            return Ok(listed);
        }
        let (file, stat) = self.open(path)?;
        let size = stat.st_size.cast_unsigned();
        listed.size = Some(size);
        let is_in_time = until.is_none_or(|until| Instant::now() < until);
        let Some(rest) = left.checked_sub(size).filter(|_| is_in_time) else {
            return Ok(listed);
        };
        *left = rest;
        let mut start = Vec::new();
        let digest = Digest::of(file.take(size), |piece: &[u8]| {
            if start.is_empty() {
                start.extend_from_slice(&piece[..piece.len().min(media::START)]);
            }
            Ok::<(), std::io::Error>(())
        });
        let digest = digest.map_err(|error| format!("reading it failed: {error}"))?;
        listed.size = Some(digest.size);
        listed.sha256 = Some(hex(&digest.sha256));
        listed.media_type = Some(media::type_of(path.as_bytes(), &start).to_owned());
        Ok(listed)
    }

    /// Opens a changed file.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn open(&self, path: &RawText) -> Result<(File, FileStat), String> {
        match kind_at(self.directory.as_fd(), path) {
            Ok(SFlag::S_IFLNK) => return Err(IS_LINK.to_owned()),
            Ok(_) => {}
            Err(errno) => return Err(unreadable(errno)),
        }
        let file = Beneath::new(&self.directory)
            .on_one_mount()
            .read(path.as_path());
        let file = file.map_err(unreadable)?;
        let stat = fstat(&file).map_err(unreadable)?;
        match kind_of(&stat) {
            SFlag::S_IFREG => Ok((file, stat)),
            _ => Err("it is not a regular file".to_owned()),
        }
    }
}

/// Whether a file of this name leads git to a repository, also on file systems that ignore case.
fn leads(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b".git")
}

fn unreadable(errno: Errno) -> String {
    format!("it cannot be read: {}", errno.desc().to_lowercase())
}

impl Snapshot {
    fn of(directory: &OwnedFd, protected: &[PathBuf]) -> Self {
        let mut look = Look {
            top: directory,
            protected,
            snapshot: Self::default(),
            room: MOST_KEPT,
            entries_left: MOST_ENTRIES,
        };
        look.directory(&mut Vec::new(), 0, false);
        let mut snapshot = look.snapshot;
        for path in protected {
            let found = Beneath::new(directory)
                .on_one_mount()
                .directory(path.as_path());
            let stat = found.and_then(|found| fstat(&found));
            if let Ok(stat) = stat.as_ref()
                && stat.st_mode & 0o222 != 0
            {
                snapshot
                    .directories
                    .insert(path.as_path().into(), stat.st_ino);
            }
        }
        snapshot
    }
}

/// A walk through the directory, which follows nothing.
struct Look<'a> {
    top: &'a OwnedFd,
    protected: &'a [PathBuf],
    snapshot: Snapshot,
    /// Bytes that there is room for.
    room: usize,
    entries_left: usize,
}

impl Look<'_> {
    /// Looks at the directory `path`. `in_git` is whether it lies in one of git's own.
    fn directory(&mut self, path: &mut Vec<u8>, depth: usize, in_git: bool) {
        let shown = match path.as_slice() {
            [] => Path::new("."),
            path => Path::new(OsStr::from_bytes(path)),
        };
        let mut dir = match Beneath::new(self.top).on_one_mount().list(shown) {
            Ok(dir) => dir,
            Err(Errno::EACCES) if self.takes(path) => {
                self.snapshot.unreadable.insert(RawText::from(path.clone()));
                return;
            }
            Err(_) => return,
        };
        let found: Vec<(CString, Option<Type>)> = entries(&mut dir)
            .flatten()
            .take(self.entries_left)
            .map(|entry| (entry.file_name().to_owned(), entry.file_type()))
            .collect();
        self.entries_left -= found.len();
        self.snapshot.is_cut |= self.entries_left == 0;
        let has = |name: &str| (found.iter()).any(|(other, _)| other.as_bytes() == name.as_bytes());
        let is_repository = has("HEAD") && (has("objects") || has("commondir"));
        if is_repository && self.takes(path) {
            let repository = RawText::from(path.clone());
            self.snapshot.repositories.insert(repository);
        }
        for (name, kind) in found {
            let length = path.len();
            if length + name.as_bytes().len() >= LONGEST_PATH {
                self.snapshot.is_cut = true;
                continue;
            }
            if length > 0 {
                path.push(b'/');
            }
            path.extend(name.as_bytes());
            self.entry(&dir, &name, kind, path, depth, in_git || is_repository);
            path.truncate(length);
        }
    }

    /// Looks at the entry `name` of `dir`, at `path`.
    fn entry(
        &mut self,
        dir: &Dir,
        name: &CString,
        kind: Option<Type>,
        path: &mut Vec<u8>,
        depth: usize,
        in_git: bool,
    ) {
        let is = |names: &[&str]| names.iter().any(|own| name.as_bytes() == own.as_bytes());
        match kind {
            Some(Type::Directory) if depth < DEEPEST => {
                self.directory(path, depth + 1, in_git && !is(&["hooks"]));
            }
            Some(Type::Directory) => self.snapshot.is_cut = true,
            _ if in_git && !is(&OBEYED) && !leads(name.as_bytes()) && !self.is_protected(path) => {}
            Some(Type::File | Type::Symlink) => {
                let stat = fstatat(dir, name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW);
                if let Ok(stat) = stat
                    && !is_placeholder(dir, OsStr::from_bytes(name.as_bytes()), &stat)
                    && self.takes(path)
                {
                    let path = RawText::from(path.clone());
                    self.snapshot.files.insert(path, State::of(&stat));
                }
            }
            _ => {}
        }
    }

    fn is_protected(&self, path: &[u8]) -> bool {
        let path = Path::new(OsStr::from_bytes(path));
        self.protected.iter().any(|other| other == path)
    }

    /// Whether there is room for a path.
    fn takes(&mut self, path: &[u8]) -> bool {
        let left = self.room.checked_sub(path.len() + EACH);
        self.snapshot.is_cut |= left.is_none();
        self.room = left.unwrap_or(0);
        left.is_some()
    }
}
