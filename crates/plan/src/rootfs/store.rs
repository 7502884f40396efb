//! The store: prepared root file systems by name.
//!
//! ```text
//! STORE/python          -> .trees/python.3f9c21d07a55e1b4
//! STORE/.trees/python.3f9c21d07a55e1b4/   usr/ etc/ … manifest.json manifest.listing
//! STORE/.lock           held briefly, while names and trees are compared
//! ```
//!
//! A name is a link, so that a new tree replaces an old one in one step, and a
//! process that has followed the link keeps its tree. Each user of a tree holds a
//! lock (flock(2)) on it: a process that makes it an exclusive one, a cell a shared
//! one ([`Lease`]). The kernel releases the locks when the process ends, in whatever
//! way. A tree without a name and a lock is unused, and the next call that changes
//! the store removes it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

use record::error::{Result, SetupError, Step};
use spec::read::did_you_mean;

/// The variable that names a store.
const VARIABLE: &str = "CELLBLOCK_STORE";

/// The administrator's store, which all users may read.
const SYSTEM: &str = "/var/lib/cellblock/rootfs";

/// Names with another meaning where a rootfs is named.
const RESERVED: [&str; 2] = ["auto", "host"];

/// A store of prepared root file systems.
#[derive(Clone, Debug)]
pub struct Store {
    path: PathBuf,
    /// The administrator's store, if it is searched as well.
    system: Option<PathBuf>,
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

/// Keeps a tree from being removed as long as it exists.
#[derive(Debug)]
pub struct Lease(Flock<File>);

impl Lease {
    /// Waits while a process makes or removes the tree at `path`.
    fn take(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW)
            .open(path)?;
        Ok(Self(sys::flock(file, FlockArg::LockShared)?))
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

impl Store {
    /// The store to use: `explicit` (`--store`), `$CELLBLOCK_STORE`, or
    /// `cellblock/rootfs` in `$XDG_DATA_HOME` or `~/.local/share`. After the last
    /// two, `/var/lib/cellblock/rootfs` is searched as well. The store need not
    /// exist.
    ///
    /// # Errors
    /// Neither argument nor environment names a store.
    pub fn open(explicit: Option<&Path>) -> Result<Self> {
        Self::choose(explicit, |name| {
            std::env::var_os(name).filter(|value| !value.is_empty())
        })
    }

    /// The same to look at what there is: the system's where the environment names none, as in a service.
    ///
    /// # Errors
    /// The current directory is gone.
    pub fn open_to_read(explicit: Option<&Path>) -> Result<Self> {
        match Self::open(explicit) {
            Err(_) if explicit.is_none() => Ok(Self::of_system()),
            opened => opened,
        }
    }

    fn of_system() -> Self {
        Self {
            path: SYSTEM.into(),
            system: None,
        }
    }

    fn choose(
        explicit: Option<&Path>,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self> {
        let named = explicit.map(Path::to_owned);
        if let Some(path) = named.or_else(|| variable(VARIABLE).map(PathBuf::from)) {
            let path = std::path::absolute(&path)
                .map_err(|e| SetupError::io(Step::Store, "getcwd", &e).on(path.display()))?;
            return Ok(Self { path, system: None });
        }
        // By the XDG specification, relative paths are ignored.
        let absolute = |name: &str| {
            let path = variable(name).map(PathBuf::from);
            path.filter(|path| path.is_absolute())
        };
        let data = absolute("XDG_DATA_HOME");
        let data = data.or_else(|| Some(absolute("HOME")?.join(".local/share")));
        let path = data.map(|data| data.join("cellblock/rootfs"));
        let system = Some(PathBuf::from(SYSTEM));
        match path {
            Some(path) => Ok(Self { path, system }),
            None if Path::new(SYSTEM).is_dir() => Ok(Self::of_system()),
            None => Err(SetupError::new(
                Step::Store,
                "there is no directory for prepared rootfs: neither XDG_DATA_HOME nor HOME is set",
            )
            .hint(format!("name a directory with --store or ${VARIABLE}"))),
        }
    }

    /// The directory that new trees go to.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The administrator's store, if it is searched as well.
    pub fn system(&self) -> Option<&Path> {
        self.system.as_deref()
    }

    /// The rootfs with this name, kept from being removed; `None` when it does not
    /// exist.
    ///
    /// # Errors
    /// The name is invalid, or the tree cannot be opened.
    pub fn find(&self, name: &str) -> Result<Option<Prepared>> {
        check_name(name)?;
        for store in self.stores() {
            let link = store.join(name);
            let failed = |call: &str, e: &io::Error| {
                SetupError::io(Step::Rootfs, call, e)
                    .on(link.display())
                    .hint(format!("the rootfs is damaged or you may not read it; `cellblock rootfs build {name}` makes a new one"))
            };
            loop {
                let text = fs::read_link(&link).ok();
                let path = match fs::canonicalize(&link) {
                    // The name was given to another tree, and the old one removed.
                    Err(e) if is_absent(&e) && fs::read_link(&link).ok() != text => continue,
                    // The name does not exist, or the caller cannot see it, for
                    // example below another user's HOME.
                    Err(_) if fs::symlink_metadata(&link).is_err() => break,
                    other => other.map_err(|e| failed("realpath", &e))?,
                };
                let lease = match Lease::take(&path) {
                    // It was removed just now, and the name leads elsewhere.
                    Err(e) if is_absent(&e) => continue,
                    other => other.map_err(|e| failed("flock", &e))?,
                };
                // Names are removed before trees: with the lock and the name, the
                // tree stays.
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

    /// Finds a rootfs that must exist.
    ///
    /// # Errors
    /// It does not exist; those of [`Store::find`].
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
            "`cellblock rootfs build {name}` builds it if there is such a recipe, and `cellblock \
             rootfs import {name} SOURCE` imports an image, archive or directory; a path of a \
             directory has a `/` in it"
        )))
    }

    /// The directories to search, in order.
    pub(super) fn stores(&self) -> impl Iterator<Item = &Path> {
        std::iter::once(self.path.as_path()).chain(self.system.as_deref())
    }

    /// Every name and its path; of two stores with a name, the first counts.
    pub fn names(&self) -> BTreeMap<String, PathBuf> {
        let stores = self.stores();
        let entries = stores.flat_map(|store| fs::read_dir(store).into_iter().flatten().flatten());
        let mut found = BTreeMap::new();
        for entry in entries {
            if let Ok(name) = entry.file_name().into_string()
                && check_name(&name).is_ok()
            {
                found.entry(name).or_insert_with(|| entry.path());
            }
        }
        found
    }
}

/// Checks the name of a rootfs.
///
/// # Errors
/// It is reserved or has other characters than allowed.
pub fn check_name(name: &str) -> Result<()> {
    let wrong = |message: &str| Err(SetupError::new(Step::Store, message).on(format!("{name:?}")));
    let may_start = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let may_follow = |byte: u8| may_start(byte) || matches!(byte, b'.' | b'_' | b'-');
    if RESERVED.contains(&name) {
        return wrong("this name is reserved; choose another for the rootfs");
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

/// Whether there is nothing of the name that a call was about.
pub fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        for good in ["python", "a", "0", "python-3.13_x", &"a".repeat(64)] {
            check_name(good).unwrap();
        }
        let long = "a".repeat(65);
        for bad in [
            "", ".x", "-x", "a/b", "..", "A", "a b", "a\0", "é", "host", "auto", &long,
        ] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_caller_chooses_the_store() {
        let chosen = |explicit: Option<&str>, variables: &[(&str, &str)]| {
            let variable = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| OsString::from(value))
            };
            let store = Store::choose(explicit.map(Path::new), variable).unwrap();
            (store.path.display().to_string(), store.system.is_some())
        };
        let all = [(VARIABLE, "/v"), ("XDG_DATA_HOME", "/x"), ("HOME", "/h")];
        assert_eq!(chosen(Some("/e"), &all), ("/e".into(), false));
        assert_eq!(chosen(None, &all), ("/v".into(), false));
        assert_eq!(
            chosen(None, &all[1..]),
            ("/x/cellblock/rootfs".into(), true)
        );
        assert_eq!(
            chosen(None, &[("XDG_DATA_HOME", "x"), ("HOME", "/h")]),
            ("/h/.local/share/cellblock/rootfs".into(), true)
        );
    }
}
