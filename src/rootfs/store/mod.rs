//! The store: where prepared root file systems are kept, by name.
//!
//! ```text
//! STORE/python          -> .trees/python.3f9c21d07a55e1b4
//! STORE/.trees/python.3f9c21d07a55e1b4/   usr/ etc/ … manifest.json manifest.listing
//! STORE/.lock           held for moments, while names and trees are matched
//! ```
//!
//! A name is a link, so that a new tree takes the place of an old one in one
//! step, and whoever has followed the link keeps the tree that it led to. Locks
//! (flock(2)) on the trees tell who needs them: a [`Draft`] holds an exclusive
//! one for as long as it is being made, a cell a shared one for as long as it
//! lives ([`Lease`]). The kernel lets go of them when the process ends, however
//! it ends; a tree without a name and without a lock is nobody's, and the next
//! call that changes the store sweeps it.

use std::collections::BTreeSet;
use std::ffi::{CString, OsString};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::Uid;

use crate::error::{Result, SetupError, Step};
use crate::rootfs::draft::Draft;
use crate::rootfs::manifest::Manifest;
use crate::spec::read::did_you_mean;
use crate::tree::erase;

/// The variable that names a store.
pub const VARIABLE: &str = "CELLBLOCK_STORE";

/// Where an administrator keeps what all users may use.
const SYSTEM: &str = "/var/lib/cellblock/rootfs";

/// The directory of a store in which the trees are.
pub(in crate::rootfs) const TREES: &str = ".trees";

/// The file of a store that is locked while names and trees are matched.
const LOCK: &str = ".lock";

/// The start of a tree's name while it is being removed. No name of a rootfs
/// begins with a dot.
const GONE: &str = ".gone-";

/// Names that mean something else where a rootfs is named.
const RESERVED: [&str; 2] = ["auto", "host"];

/// A store of prepared root file systems.
#[derive(Clone, Debug)]
pub struct Store {
    path: PathBuf,
    /// What is looked through behind it.
    behind: Option<PathBuf>,
}

/// A prepared rootfs in a store.
#[derive(Debug)]
pub struct Prepared {
    /// Its name.
    pub name: String,
    /// Its tree, by a path that stays the same when the name is given to another
    /// tree.
    pub path: PathBuf,
    /// Keeps the tree from being removed.
    pub lease: Lease,
}

/// What a list of the store says of one name.
#[derive(Debug)]
pub struct Listed {
    /// The name.
    pub name: String,
    /// The path that the name has in the store.
    pub path: PathBuf,
    /// What the tree says of itself, or why it cannot be used.
    pub manifest: Result<Manifest>,
}

/// Keeps a tree from being removed for as long as it exists.
#[derive(Debug)]
pub struct Lease(Flock<File>);

impl Store {
    /// The store to use: `explicit` (`--store`), or what `$CELLBLOCK_STORE` names,
    /// or `cellblock/rootfs` in `$XDG_DATA_HOME` or `~/.local/share`. Behind the
    /// last two, `/var/lib/cellblock/rootfs` is looked through as well. It need
    /// not exist.
    ///
    /// # Errors
    /// Nothing says where it is.
    pub fn open(explicit: Option<&Path>) -> Result<Self> {
        Self::choose(explicit, |name| {
            std::env::var_os(name).filter(|value| !value.is_empty())
        })
    }

    fn choose(
        explicit: Option<&Path>,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self> {
        let named = explicit.map(Path::to_owned);
        if let Some(path) = named.or_else(|| variable(VARIABLE).map(PathBuf::from)) {
            let path = std::path::absolute(&path)
                .map_err(|e| SetupError::io(Step::Store, "getcwd", &e).on(path.display()))?;
            return Ok(Self { path, behind: None });
        }
        // The XDG specification has relative paths ignored.
        let absolute = |path: &PathBuf| path.is_absolute();
        let data = variable("XDG_DATA_HOME")
            .map(PathBuf::from)
            .filter(absolute);
        let home = || variable("HOME").map(PathBuf::from).filter(absolute);
        let data = data.or_else(|| home().map(|home| home.join(".local/share")));
        let path = data.map(|data| data.join("cellblock/rootfs"));
        let behind = Some(PathBuf::from(SYSTEM));
        match path {
            Some(path) => Ok(Self { path, behind }),
            None if Path::new(SYSTEM).is_dir() => Ok(Self {
                path: SYSTEM.into(),
                behind: None,
            }),
            None => Err(SetupError::new(
                Step::Store,
                "neither XDG_DATA_HOME nor HOME says where prepared rootfs are kept",
            )
            .hint(format!("name a directory with --store or ${VARIABLE}"))),
        }
    }

    /// The directory that is written to.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The rootfs with this name, kept from being removed; `None` when there is
    /// none.
    ///
    /// # Errors
    /// The name is no name, or what it stands for cannot be opened.
    pub fn find(&self, name: &str) -> Result<Option<Prepared>> {
        check_name(name)?;
        for store in self.stores() {
            let link = store.join(name);
            let failed = |call: &str, e: &io::Error| {
                SetupError::io(Step::Rootfs, call, e)
                    .on(link.display())
                    .hint(format!("the rootfs is damaged or not yours to read; `cellblock rootfs build {name}` makes a new one"))
            };
            loop {
                let text = fs::read_link(&link).ok();
                let path = match fs::canonicalize(&link) {
                    // The name went to another tree, and the old one was swept.
                    Err(e) if is_absent(&e) && fs::read_link(&link).ok() != text => continue,
                    // Nothing of that name; or, under another user's HOME for
                    // example, nothing that this caller can see.
                    Err(_) if fs::symlink_metadata(&link).is_err() => break,
                    other => other.map_err(|e| failed("realpath", &e))?,
                };
                let lease = match Lease::take(&path) {
                    // It was removed just now; the name leads elsewhere.
                    Err(e) if is_absent(&e) => continue,
                    other => other.map_err(|e| failed("flock", &e))?,
                };
                // A tree is removed only after its name is: with the lock, and
                // the name still leading there, it stays.
                if lease.is_of(&link) {
                    return Ok(Some(Prepared {
                        name: name.to_owned(),
                        path,
                        lease,
                    }));
                }
            }
        }
        Ok(None)
    }

    /// The same, when there must be one.
    ///
    /// # Errors
    /// There is none; the hint says how to make one. Those of [`Store::find`].
    pub fn require(&self, name: &str) -> Result<Prepared> {
        if let Some(found) = self.find(name)? {
            return Ok(found);
        }
        let there: Vec<String> = self.names().into_keys().collect();
        let near = did_you_mean(name, there.iter().map(String::as_str));
        let looked: Vec<String> = self.stores().map(|s| s.display().to_string()).collect();
        Err(SetupError::new(
            Step::Rootfs,
            format!("there is no such rootfs in {}{near}", looked.join(" or ")),
        )
        .on(name)
        .hint(format!(
            "`cellblock rootfs build {name}` builds it where there is such a recipe, `cellblock \
             rootfs import {name} SOURCE` takes it from an image, archive or directory; a \
             directory as it is has a `/` in its path"
        )))
    }

    /// Every name, in order, and what it stands for.
    pub fn list(&self) -> Vec<Listed> {
        let describe = |(name, path): (String, PathBuf)| Listed {
            manifest: described(&path),
            name,
            path,
        };
        self.names().into_iter().map(describe).collect()
    }

    /// Begins a tree that will get the name `name`. Trees that nobody needs any
    /// more are removed first.
    ///
    /// # Errors
    /// The name is no name, the store cannot be written, or another process is
    /// making a tree of this name.
    pub fn begin(&self, name: &str) -> Result<Draft> {
        check_name(name)?;
        let trees = self.path.join(TREES);
        make_directory(&trees).map_err(|e| self.failed("mkdir", &e, &trees))?;
        // Others may look, whatever the caller's umask.
        for path in [&self.path, &trees] {
            let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o755));
        }
        self.sweep()?;
        let lock = self.lock()?;
        if self.is_being_made(name)? {
            return Err(SetupError::new(
                Step::Store,
                "another process is making a rootfs of this name",
            )
            .on(name)
            .hint("wait for it to end, or choose another name or --store"));
        }
        let draft = Draft::create(self, name, &trees);
        drop(lock);
        draft
    }

    /// Removes the rootfs with this name. Cells that run on it keep it: its tree
    /// goes with the first call that changes the store after they have ended.
    ///
    /// # Errors
    /// There is none in this store, or it cannot be removed.
    pub fn remove(&self, name: &str) -> Result<()> {
        check_name(name)?;
        let link = self.path.join(name);
        let kind = match fs::symlink_metadata(&link) {
            Ok(found) => found.file_type(),
            Err(e) if is_absent(&e) => return Err(self.not_here(name)),
            Err(e) => return Err(self.failed("stat", &e, &link)),
        };
        let lock = self.lock()?;
        if !kind.is_dir() {
            fs::remove_file(&link).map_err(|e| self.failed("unlink", &e, &link))?;
        } else {
            // Put here by hand.
            let trees = self.path.join(TREES);
            make_directory(&trees).map_err(|e| self.failed("mkdir", &e, &trees))?;
            let gone = trees.join(format!("{GONE}{}", fresh_id()));
            fs::rename(&link, &gone).map_err(|e| self.failed("rename", &e, &link))?;
        }
        drop(lock);
        self.sweep()
    }

    /// Removes every tree that has no name, is not being made, and has no cell.
    ///
    /// # Errors
    /// The store cannot be read or written.
    pub fn sweep(&self) -> Result<()> {
        let trees = self.path.join(TREES);
        if fs::symlink_metadata(&trees).is_err_and(|e| is_absent(&e)) {
            return Ok(());
        }
        let lock = self.lock()?;
        let named = self.named_trees()?;
        let mut gone = Vec::new();
        for tree in entries(&trees).map_err(|e| self.failed("readdir", &e, &trees))? {
            if named.contains(&tree) {
                continue;
            }
            let path = trees.join(&tree);
            let Some(held) = try_lock(&path, FlockArg::LockExclusiveNonblock)
                .map_err(|e| self.failed("flock", &e, &path))?
            else {
                continue;
            };
            // A name of its own says that this is not being made.
            let name = OsString::from(format!("{GONE}{}", fresh_id()));
            let to = trees.join(&name);
            fs::rename(&path, &to).map_err(|e| self.failed("rename", &e, &path))?;
            gone.push((name, held));
        }
        drop(lock);
        let dir = File::open(&trees).map_err(|e| self.failed("open", &e, &trees))?;
        for (name, held) in gone {
            let path = trees.join(&name);
            let name = CString::new(name.into_vec()).unwrap_or_default();
            erase(&dir, &name).map_err(|e| self.failed("unlink", &e.into(), &path))?;
            drop(held);
        }
        Ok(())
    }

    /// Gives the tree `.trees/tree` the name `name`, in one step, whatever had
    /// it before.
    pub(in crate::rootfs) fn name_tree(&self, name: &str, tree: &str) -> Result<()> {
        let _lock = self.lock()?;
        let link = self.path.join(name);
        // A tree that was put there by hand: a link cannot take its place.
        if fs::symlink_metadata(&link).is_ok_and(|found| found.is_dir()) {
            let gone = self.path.join(TREES).join(format!("{GONE}{}", fresh_id()));
            fs::rename(&link, &gone).map_err(|e| self.failed("rename", &e, &link))?;
        }
        let fresh = self.path.join(format!(".{tree}"));
        let target = Path::new(TREES).join(tree);
        std::os::unix::fs::symlink(target, &fresh)
            .map_err(|e| self.failed("symlink", &e, &fresh))?;
        fs::rename(&fresh, &link).map_err(|e| {
            let _ = fs::remove_file(&fresh);
            self.failed("rename", &e, &link)
        })?;
        File::open(&self.path)
            .and_then(|dir| dir.sync_all())
            .map_err(|e| self.failed("fsync", &e, &self.path))
    }

    /// A failure to change this store.
    pub(in crate::rootfs) fn failed(
        &self,
        call: &str,
        error: &io::Error,
        path: &Path,
    ) -> SetupError {
        let failure = SetupError::io(Step::Store, call, error).on(path.display());
        match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENOSPC | Errno::EDQUOT) => failure.hint(format!(
                "make room on the file system of {}, or name a store on another with --store",
                self.path.display()
            )),
            Some(Errno::EACCES | Errno::EPERM | Errno::EROFS) => failure.hint(format!(
                "name a store that you may write to with --store or ${VARIABLE}"
            )),
            Some(Errno::EBADF | Errno::ENOLCK | Errno::EOPNOTSUPP) => failure.hint(
                "a store wants a file system with locks on directories, which network file \
                 systems lack; name one on a local disk with --store",
            ),
            _ => failure,
        }
    }

    /// The directories that are looked through, in order.
    fn stores(&self) -> impl Iterator<Item = &Path> {
        std::iter::once(self.path.as_path()).chain(self.behind.as_deref())
    }

    /// Every name and its path; the first store that has a name counts.
    fn names(&self) -> std::collections::BTreeMap<String, PathBuf> {
        let mut found = std::collections::BTreeMap::new();
        for store in self.stores() {
            for name in entries(store).unwrap_or_default() {
                let path = store.join(&name);
                if let Ok(name) = name.into_string()
                    && check_name(&name).is_ok()
                {
                    found.entry(name).or_insert(path);
                }
            }
        }
        found
    }

    /// The names in `.trees` that a link of the store leads to.
    fn named_trees(&self) -> Result<BTreeSet<OsString>> {
        let names = entries(&self.path).map_err(|e| self.failed("readdir", &e, &self.path))?;
        let targets = names
            .iter()
            .filter(|name| name.to_str().is_some_and(|name| check_name(name).is_ok()))
            .filter_map(|name| fs::read_link(self.path.join(name)).ok());
        let inside = targets.filter_map(|target| {
            let tree = target.strip_prefix(TREES).ok()?;
            Some(tree.as_os_str().to_owned())
        });
        Ok(inside.collect())
    }

    /// Whether a draft of this name is held by a process. With [`Store::lock`].
    fn is_being_made(&self, name: &str) -> Result<bool> {
        let trees = self.path.join(TREES);
        let named = self.named_trees()?;
        for tree in entries(&trees).map_err(|e| self.failed("readdir", &e, &trees))? {
            let is_of_name = tree
                .to_str()
                .and_then(|tree| tree.rsplit_once('.'))
                .is_some_and(|(of, _)| of == name);
            if !is_of_name || named.contains(&tree) {
                continue;
            }
            let path = trees.join(&tree);
            // A cell that still runs on an old tree shares its lock.
            if try_lock(&path, FlockArg::LockSharedNonblock)
                .map_err(|e| self.failed("flock", &e, &path))?
                .is_none()
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Waits for the store's own lock, which nobody holds for long.
    fn lock(&self) -> Result<Flock<File>> {
        let path = self.path.join(LOCK);
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o644)
            .open(&path)
            .map_err(|e| self.failed("open", &e, &path))?;
        flock(file, FlockArg::LockExclusive).map_err(|e| self.failed("flock", &e.into(), &path))
    }

    fn not_here(&self, name: &str) -> SetupError {
        let error = SetupError::new(
            Step::Store,
            format!("there is no such rootfs in {}", self.path.display()),
        )
        .on(name);
        match &self.behind {
            Some(system) if fs::symlink_metadata(system.join(name)).is_ok() => error.hint(format!(
                "the one in {0} is the administrator's: `cellblock rootfs remove --store {0} {name}`",
                system.display()
            )),
            _ => error.hint("`cellblock rootfs list` says what there is"),
        }
    }
}

impl Lease {
    /// Waits for whoever is making or removing the tree at `path`.
    fn take(path: &Path) -> io::Result<Self> {
        let file = open_directory(path)?;
        Ok(Self(flock(file, FlockArg::LockShared)?))
    }

    /// Whether `link` leads to the tree.
    fn is_of(&self, link: &Path) -> bool {
        let identity = |found: fs::Metadata| (found.dev(), found.ino());
        match (self.0.metadata(), fs::metadata(link)) {
            (Ok(own), Ok(found)) => identity(own) == identity(found),
            _ => false,
        }
    }
}

/// Whether `name` can be the name of a rootfs.
///
/// # Errors
/// What is wrong with it.
pub fn check_name(name: &str) -> Result<()> {
    let wrong = |message: &str| Err(SetupError::new(Step::Store, message).on(format!("{name:?}")));
    let may_start = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let may_follow = |byte: u8| may_start(byte) || matches!(byte, b'.' | b'_' | b'-');
    if RESERVED.contains(&name) {
        return wrong("this name has a meaning of its own; choose another for the rootfs");
    }
    match name.as_bytes() {
        [first, rest @ ..]
            if rest.len() < 64 && may_start(*first) && rest.iter().all(|b| may_follow(*b)) =>
        {
            Ok(())
        }
        _ => wrong(
            "the name of a rootfs has 1 to 64 lower-case letters, digits, `.`, `_` or `-`, and \
             begins with a letter or digit",
        ),
    }
}

fn described(path: &Path) -> Result<Manifest> {
    let broken = |message: &str| {
        SetupError::new(Step::Rootfs, message)
            .on(path.display())
            .hint("remove it, and build or import it again")
    };
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => return Err(broken("it is not a directory")),
        Err(_) => return Err(broken("its tree is missing or not yours to read")),
    }
    Manifest::read(path)?.ok_or_else(|| broken("it has no manifest"))
}

/// A new exclusively locked directory, which no sweep takes for a left-over one:
/// made with [`Store::lock`].
pub(in crate::rootfs) fn create_locked(path: &Path) -> io::Result<Flock<File>> {
    // Nobody else comes in before owners and modes are settled.
    DirBuilder::new().mode(0o700).create(path)?;
    Ok(flock(
        open_directory(path)?,
        FlockArg::LockExclusiveNonblock,
    )?)
}

/// `None` when somebody else's lock is in the way, or the directory is gone.
fn try_lock(path: &Path, how: FlockArg) -> io::Result<Option<Flock<File>>> {
    let file = match open_directory(path) {
        Err(e) if is_absent(&e) => return Ok(None),
        // A draft to which nobody may enter is no one's.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
            open_directory(path)?
        }
        other => other?,
    };
    match flock(file, how) {
        Ok(lock) => Ok(Some(lock)),
        Err(Errno::EWOULDBLOCK) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

fn flock(file: File, how: FlockArg) -> nix::Result<Flock<File>> {
    let mut file = file;
    loop {
        match Flock::lock(file, how) {
            Ok(lock) => return Ok(lock),
            Err((again, Errno::EINTR)) => file = again,
            Err((_, errno)) => return Err(errno),
        }
    }
}

fn open_directory(path: &Path) -> io::Result<File> {
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(path)
}

/// The names in a directory, in order; nothing for one that is missing.
fn entries(path: &Path) -> io::Result<Vec<OsString>> {
    let found = match fs::read_dir(path) {
        Err(e) if is_absent(&e) => return Ok(Vec::new()),
        other => other?,
    };
    let names: io::Result<Vec<OsString>> = found
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect();
    let mut names = names?;
    names.sort_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
    Ok(names)
}

fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error().map(Errno::from_raw),
        Some(Errno::ENOENT | Errno::ENOTDIR)
    )
}

/// Sixteen hexadecimal digits that no other tree has.
pub(in crate::rootfs) fn fresh_id() -> String {
    use std::hash::{BuildHasher as _, RandomState};
    format!(
        "{:016x}",
        RandomState::new().hash_one(Uid::current().as_raw())
    )
}

#[cfg(test)]
mod tests;
