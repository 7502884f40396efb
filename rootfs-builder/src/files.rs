//! Files and directories of trees, caches and scratch directories.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::stat::SFlag;
use nix::unistd::geteuid;

use crate::errors::failed;
use record::error::{Result, Step};
use sys::beneath::Beneath;
use sys::tree::{each, kind_of, open_top};

/// Visits everything below `top` by its relative path, each directory before its
/// content. No link is followed.
pub(crate) fn walk(top: &Path, visit: &mut dyn FnMut(&Path, SFlag) -> Result<()>) -> Result<()> {
    each(&open_top(top, Step::Store)?, Step::Store, &mut |entry| {
        visit(
            Path::new(OsStr::from_bytes(entry.path)),
            kind_of(&entry.stat),
        )?;
        Ok(true)
    })
}

/// Makes a directory and its parents.
pub(crate) fn make_directory(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(failed("mkdir", path))
}

/// Makes a directory unless there is one, and locks it as soon as it is free.
pub(crate) fn lock_directory(path: &Path) -> Result<Flock<File>> {
    loop {
        make_directory(path)?;
        // Another process may remove it before it is locked.
        let file = match File::open(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            other => other.map_err(failed("open", path))?,
        };
        let lock = sys::flock(file, FlockArg::LockExclusive).map_err(failed("flock", path))?;
        let locked = lock.metadata().map_err(failed("fstat", path))?;
        if fs::metadata(path).is_ok_and(|found| found.ino() == locked.ino()) {
            return Ok(lock);
        }
    }
}

/// Makes an empty directory, in place of whatever is there.
pub(crate) fn make_empty(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed("rmdir", path)(e)),
        _ => make_directory(path),
    }
}

pub(crate) fn set_mode(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(failed("chmod", path))
}

/// Copies a file or link; one that is there is replaced and never written to,
/// since another rootfs may share it.
pub(crate) fn copy(source: &Path, target: &Path) -> Result<()> {
    match fs::remove_file(target) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed("unlink", target)(e)),
        _ => {}
    }
    let metadata = source.symlink_metadata().map_err(failed("stat", source))?;
    if metadata.is_symlink() {
        let text = fs::read_link(source).map_err(failed("readlink", source))?;
        std::os::unix::fs::symlink(text, target).map_err(failed("symlink", target))
    } else {
        fs::copy(source, target)
            .map(drop)
            .map_err(failed("copy", target))
    }
}

/// Makes `uid`, as which cells run, the owner. Only root's cells have another uid
/// than the caller.
pub(crate) fn give_to(uid: u32, path: &Path) -> Result<()> {
    if geteuid().as_raw() == uid {
        return Ok(());
    }
    chown(path, Some(uid), Some(uid)).map_err(failed("chown", path))
}

/// The text of a regular file of a tree; `None` when there is no such file.
pub(crate) fn read_beneath(tree: &Path, path: &str) -> Result<Option<String>> {
    let place = tree.join(path);
    let mut file = match Beneath::new(&open_top(tree, Step::Store)?).read(path) {
        Err(Errno::ENOENT | Errno::ENOTDIR) => return Ok(None),
        other => other.map_err(failed("openat2", &place))?,
    };
    if !file.metadata().map_err(failed("fstat", &place))?.is_file() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)
        .map_err(failed("read", &place))?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}
