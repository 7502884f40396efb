//! Changes below a workspace, seen from outside while code runs.
//!
//! A watch is an inotify(7) mark on each directory below it, set by a descriptor that was
//! opened without following links or entering other mounts. A hostile program makes as
//! many changes as it likes, so everything here is bounded:
//!
//! | what | bound |
//! |---|---|
//! | events that wait | the kernel's queue; it says when it was full |
//! | reading them, and finding new directories | [`Turn`]s, with a rest after each |
//! | directories | [`MOST_DIRECTORIES`] |
//! | changes in one report | [`Noted`], for all watches together |
//!
//! What is beyond a bound is said with `overflow`. The kernel sees no writes through
//! mapped memory.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::OsStr;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, Inotify, InotifyEvent, WatchDescriptor};

use super::changes::{Change, Noted, Root, Seen, is_below, join};
use super::files::{Pending, Workspace, checked, failed};
use record::bytes::RawText;
use record::error::{Result, SetupError, Step};
use supervise::turn::Turn;
use sys::beneath::{Beneath, entries};

/// The most directories of all watches of a cell.
const MOST_DIRECTORIES: usize = 1024;
/// The most entries that are read of one directory to find those below it.
const MOST_ENTRIES: usize = 10_000;
/// The most entries that are read while a cell is stopped for a new watch.
const MOST_STOPPED: usize = 100_000;
/// The most bytes of a path.
const LONGEST: usize = 4096;
/// Between two reports.
const REST: Duration = Duration::from_millis(100);

/// What a turn gave.
#[derive(Debug, Default)]
pub struct Turned {
    /// By watch.
    pub seen: Vec<(u64, Seen)>,
    /// Watches that have ended, because their directory is gone.
    pub gone: Vec<u64>,
}

/// A directory that is still to be looked at.
#[derive(Debug)]
struct Todo {
    path: Vec<u8>,
    /// Whether what is in it is new.
    is_new: bool,
}

/// The watches of one cell.
#[derive(Debug)]
pub struct Watches {
    cell: String,
    inotify: Rc<Inotify>,
    workspace: OwnedFd,
    roots: BTreeMap<u64, Root>,
    directories: HashMap<WatchDescriptor, Vec<u8>>,
    todo: VecDeque<Todo>,
    /// Whether there were too many directories.
    is_partial: bool,
    /// The inotify cookie of a written file that gets the name of the one it replaces.
    replacing: Option<u32>,
    noted: Noted,
    resumes_at: Option<Instant>,
}

impl Watches {
    /// None yet, of the workspace of a cell.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn new(cell: String, inotify: &Rc<Inotify>, workspace: &Workspace<'_>) -> Result<Self> {
        let dir = (workspace.dir.try_clone())
            .map_err(|error| SetupError::io(Step::Outputs, "dup", &error))?;
        Ok(Self {
            cell,
            inotify: Rc::clone(inotify),
            workspace: dir,
            roots: BTreeMap::new(),
            directories: HashMap::new(),
            todo: VecDeque::new(),
            is_partial: false,
            replacing: None,
            noted: Noted::default(),
            resumes_at: None,
        })
    }

    /// The id of the cell.
    pub fn cell(&self) -> &str {
        &self.cell
    }

    /// Begins to watch a directory, the workspace itself for an empty path. The cell's
    /// processes are stopped meanwhile, so that nothing is missed.
    ///
    /// # Errors
    /// It is missing, or no directory.
    pub fn add(&mut self, id: u64, path: &Path) -> Result<()> {
        let plain: PathBuf = match path.as_os_str().is_empty() {
            true => PathBuf::new(),
            false => checked(path)?.components().collect(),
        };
        let top = Todo {
            path: plain.into_os_string().into_vec(),
            is_new: false,
        };
        self.roots.insert(id, Root::new(top.path.clone()));
        let mut read = match self.look(&top) {
            Ok(read) => read,
            Err(errno) => {
                self.remove(id);
                return Err(failed("inotify_add_watch", errno, path));
            }
        };
        while let Some(todo) = self.todo.pop_front() {
            read += self.look_if_there(&todo);
            if read > MOST_STOPPED {
                // The rest is looked at while the program runs.
                self.overflow(b"");
                break;
            }
        }
        self.resumes_at = Some(Instant::now());
        Ok(())
    }

    /// Ends a watch; returns its path, unless it had ended before.
    pub fn remove(&mut self, id: u64) -> Option<RawText> {
        let removed = self.roots.remove(&id)?;
        let Self { roots, todo, .. } = self;
        let is_covered = |path: &[u8]| roots.values().any(|root| root.covers(path));
        todo.retain(|todo| is_covered(&todo.path));
        let (inotify, roots) = (&self.inotify, &self.roots);
        let is_covered = |path: &[u8]| roots.values().any(|root| root.covers(path));
        (self.directories).retain(|wd, path| is_covered(path) || unmark(inotify, *wd));
        Some(removed.path.into())
    }

    /// Their numbers.
    pub fn ids(&self) -> Vec<u64> {
        self.roots.keys().copied().collect()
    }

    /// When the rest ends that follows a turn. Changes wait until then.
    pub fn resumes_at(&self) -> Option<Instant> {
        self.resumes_at
    }

    /// Takes in changes, unless it rests, and returns what each watch has seen.
    pub fn turn(&mut self) -> Turned {
        if self
            .resumes_at
            .is_some_and(|resume| resume > Instant::now())
        {
            return Turned::default();
        }
        let is_busy = self.take_events() | self.take_todo();
        self.resumes_at = is_busy.then(|| Instant::now() + REST);
        self.seen()
    }

    /// What was seen until now, however short the time since the last turn.
    pub fn last_turn(&mut self) -> Turned {
        self.resumes_at = None;
        self.turn()
    }

    /// Returns whether there was any.
    fn take_events(&mut self) -> bool {
        let mut turn = Turn::begin();
        let mut is_busy = false;
        loop {
            match self.inotify.read_events() {
                Ok(events) => {
                    is_busy = true;
                    for event in events {
                        self.take(&event);
                    }
                }
                Err(Errno::EAGAIN) => return is_busy,
                Err(Errno::EINTR) => {}
                Err(_) => {
                    self.overflow(b"");
                    return true;
                }
            }
            if !turn.goes_on(0) {
                return true;
            }
        }
    }

    /// Returns whether there was any.
    fn take_todo(&mut self) -> bool {
        if self.is_partial && self.todo.is_empty() && self.directories.len() < MOST_DIRECTORIES / 2
        {
            self.look_again();
        }
        let mut turn = Turn::begin();
        let is_busy = !self.todo.is_empty();
        while let Some(todo) = self.todo.pop_front() {
            self.look_if_there(&todo);
            if !turn.goes_on(0) {
                break;
            }
        }
        is_busy
    }

    fn take(&mut self, event: &InotifyEvent) {
        let mask = event.mask;
        if mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
            self.overflow(b"");
            return self.look_again();
        }
        if mask.contains(AddWatchFlags::IN_IGNORED) {
            self.directories.remove(&event.wd);
            return;
        }
        let Some(directory) = self.directories.get(&event.wd) else {
            return;
        };
        let Some(name) = &event.name else {
            if mask.intersects(AddWatchFlags::IN_DELETE_SELF | AddWatchFlags::IN_MOVE_SELF) {
                let own = self.roots.values_mut();
                own.filter(|root| root.path == *directory)
                    .for_each(|root| root.is_gone = true);
            }
            return;
        };
        // A file that a client writes is reported only under its final name.
        let is_directory = mask.contains(AddWatchFlags::IN_ISDIR);
        if let Some(pending) = Pending::of(name).filter(|_| !is_directory) {
            if pending == Pending::Replacing && mask.contains(AddWatchFlags::IN_MOVED_FROM) {
                self.replacing = Some(event.cookie);
            }
            return;
        }
        if is_nameless(name) && !mask.intersects(OF_NAMES) {
            return;
        }
        let path = join(directory, name.as_bytes());
        if mask.intersects(AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO) {
            let is_replaced = self.replacing == Some(event.cookie);
            self.note(
                &path,
                if is_replaced {
                    Change::Modified
                } else {
                    Change::Created
                },
            );
            if is_directory {
                self.look_later(path, true);
            }
        } else if mask.intersects(AddWatchFlags::IN_DELETE | AddWatchFlags::IN_MOVED_FROM) {
            self.note(&path, Change::Deleted);
            if is_directory {
                self.forget(&path);
            }
        } else {
            self.note(&path, Change::Modified);
        }
    }

    /// A directory is not there any more.
    fn forget(&mut self, gone: &[u8]) {
        let is_gone = |path: &[u8]| path == gone || is_below(path, gone);
        let inotify = &self.inotify;
        (self.directories).retain(|wd, path| !is_gone(path) || unmark(inotify, *wd));
        self.todo.retain(|todo| !is_gone(&todo.path));
        for root in self.roots.values_mut() {
            root.is_gone |= is_gone(&root.path);
        }
    }

    fn look_later(&mut self, path: Vec<u8>, is_new: bool) {
        match self.todo.len() < MOST_DIRECTORIES && path.len() <= LONGEST {
            true => self.todo.push_back(Todo { path, is_new }),
            false => self.is_too_much(&path),
        }
    }

    /// Finds the directories of all watches anew, when some were missed.
    fn look_again(&mut self) {
        self.is_partial = false;
        self.todo.clear();
        let tops: Vec<_> = self.roots.values().map(|root| root.path.clone()).collect();
        for top in tops {
            self.look_later(top, false);
        }
    }

    fn look_if_there(&mut self, todo: &Todo) -> usize {
        match self.look(todo) {
            Ok(read) => read,
            // Gone, replaced by something else, or another mount.
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::EXDEV) => 0,
            Err(_) => {
                self.overflow(&todo.path);
                0
            }
        }
    }

    /// Marks a directory and notes those in it; returns how many entries it read.
    fn look(&mut self, todo: &Todo) -> nix::Result<usize> {
        if self.directories.len() >= MOST_DIRECTORIES {
            self.is_too_much(&todo.path);
            return Ok(0);
        }
        let beneath = Beneath::new(&self.workspace).on_one_mount();
        let path = match todo.path.is_empty() {
            true => &b"."[..],
            false => &todo.path,
        };
        let mut dir = beneath.list(path)?;
        let opened = format!("/proc/self/fd/{}", dir.as_raw_fd());
        let mark = AddWatchFlags::IN_ONLYDIR
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_MODIFY
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_MOVE
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_MOVE_SELF;
        let wd = self.inotify.add_watch(opened.as_str(), mark)?;
        self.directories.insert(wd, todo.path.clone());
        let mut read = 0;
        for entry in entries(&mut dir) {
            let entry = entry?;
            read += 1;
            if read > MOST_ENTRIES {
                self.overflow(&todo.path);
                break;
            }
            let path = join(&todo.path, entry.file_name().to_bytes());
            if todo.is_new {
                self.note(&path, Change::Created);
            }
            if entry.file_type() == Some(nix::dir::Type::Directory) {
                self.look_later(path, todo.is_new);
            }
        }
        Ok(read)
    }

    /// A directory cannot be watched for their number.
    fn is_too_much(&mut self, path: &[u8]) {
        self.is_partial = true;
        self.overflow(path);
    }

    /// Changes at or below a path are missed; all of them for an empty one.
    fn overflow(&mut self, path: &[u8]) {
        for root in self.roots.values_mut() {
            root.overflow |= path.is_empty() || root.covers(path);
        }
    }

    fn note(&mut self, path: &[u8], change: Change) {
        for root in self.roots.values_mut() {
            root.note(path, change, &mut self.noted);
        }
    }

    /// What the watches have seen since the last report.
    fn seen(&mut self) -> Turned {
        self.noted = Noted::default();
        let mut turned = Turned::default();
        for (id, root) in &mut self.roots {
            let seen = root.seen(self.is_partial);
            turned.seen.extend(seen.map(|seen| (*id, seen)));
            if root.is_gone {
                turned.gone.push(*id);
            }
        }
        for id in &turned.gone {
            self.remove(*id);
        }
        turned
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        for wd in self.directories.keys() {
            unmark(&self.inotify, *wd);
        }
    }
}

/// Removes a mark; a directory that is gone has none. Returns false, for `retain`.
fn unmark(inotify: &Inotify, wd: WatchDescriptor) -> bool {
    let _ = inotify.rm_watch(wd);
    false
}
/// Events of names, and not of what a file has.
const OF_NAMES: AddWatchFlags = AddWatchFlags::IN_CREATE
    .union(AddWatchFlags::IN_DELETE)
    .union(AddWatchFlags::IN_MOVED_FROM)
    .union(AddWatchFlags::IN_MOVED_TO);

/// Whether the kernel calls a file so that has no name, such as one that a client has sent parts of:
/// `#` and its number.
fn is_nameless(name: &OsStr) -> bool {
    let number = name.as_bytes().strip_prefix(b"#");
    number.is_some_and(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit))
}
