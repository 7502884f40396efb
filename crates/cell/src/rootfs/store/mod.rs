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

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::Uid;

use crate::rootfs::manifest::Manifest;
use crate::spec::read::did_you_mean;
use record::error::{Result, SetupError, Step};

pub use lock::Lease;
pub(in crate::rootfs) use lock::create_locked;

mod change;
mod lock;

/// The variable that names a store.
pub const VARIABLE: &str = "CELLBLOCK_STORE";

/// Where an administrator keeps what all users may use.
const SYSTEM: &str = "/var/lib/cellblock/rootfs";

/// The directory of a store in which the trees are.
pub(in crate::rootfs) const TREES: &str = ".trees";

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
    fn names(&self) -> BTreeMap<String, PathBuf> {
        let mut found = BTreeMap::new();
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
