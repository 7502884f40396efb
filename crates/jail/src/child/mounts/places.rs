//! Making places below the new root, and attaching mounts there.

use std::ffi::CString;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::stat::{Mode, SFlag, fstat, mkdirat, mknodat};
use nix::unistd::symlinkat;

use super::super::fail::{At, Call, Fail, Site};
use super::Root;
use plan::Mount;
use sys::beneath::Beneath;
use sys::mount;

pub(in super::super) fn attach(
    root: &mut Root,
    site: Site,
    mount: &Mount,
    source: &OwnedFd,
    directory: bool,
) -> Result<(), Fail> {
    root.forget(&mount.target);
    if mount.create && attach_at_new(root, site, &mount.target, source, directory)? {
        return Ok(());
    }
    let target = open_in(root, &mount.target).at(site, Call::Openat2)?;
    mount::attach(source.as_fd(), target.as_fd()).at(site, Call::MoveMount)
}

/// Makes a place and attaches `source` there by the place's name, which nothing else
/// can have changed; false if the name exists already.
pub(super) fn attach_at_new(
    root: &mut Root,
    site: Site,
    target: &Path,
    source: &OwnedFd,
    directory: bool,
) -> Result<bool, Fail> {
    in_parent(root, site, target, |parent, name| {
        let made = if directory {
            mkdirat(parent, name, Mode::from_bits_truncate(0o755))
        } else {
            mknodat(
                parent,
                name,
                SFlag::S_IFREG,
                Mode::from_bits_truncate(0o444),
                0,
            )
        };
        match made {
            Ok(()) => {}
            Err(Errno::EEXIST) => return Ok(false),
            Err(errno) => return Err(site.failed(Call::Mkdir, errno)),
        }
        let name = c_path(name).at(site, Call::MoveMount)?;
        mount::attach_at(source.as_fd(), parent.as_fd(), &name).at(site, Call::MoveMount)?;
        Ok(true)
    })
}

pub(in super::super) fn is_directory(fd: &OwnedFd) -> Result<bool, Errno> {
    let mode = fstat(fd)?.st_mode;
    Ok(SFlag::from_bits_truncate(mode & SFlag::S_IFMT.bits()) == SFlag::S_IFDIR)
}

pub(super) fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

pub(in super::super) fn open_in(root: &Root, target: &Path) -> Result<OwnedFd, Errno> {
    Beneath::new(&root.mount).find(relative(target))
}

/// Calls `make` with the directory that `target` is in, which is made as needed,
/// and `target`'s name in it.
pub(super) fn in_parent<T>(
    root: &mut Root,
    site: Site,
    target: &Path,
    make: impl FnOnce(&OwnedFd, &Path) -> Result<T, Fail>,
) -> Result<T, Fail> {
    let name = Path::new(target.file_name().unwrap_or_default());
    let Some(parent) = target.parent().filter(|parent| parent.parent().is_some()) else {
        return make(&root.mount, name);
    };
    if let Some(directory) = root.known(parent) {
        return make(directory, name);
    }
    let directory = make_directory(root, site, parent, 0o755)?;
    let made = make(&directory, name);
    root.remember(parent, directory);
    made
}

/// Makes `target` and what leads to it, and opens it.
pub(in super::super) fn make_directory(
    root: &mut Root,
    site: Site,
    target: &Path,
    mode: u32,
) -> Result<OwnedFd, Fail> {
    in_parent(root, site, target, |parent, name| {
        make_or_find(site, parent, name, mode)?;
        Beneath::new(parent).directory(name).at(site, Call::Openat2)
    })
}

/// Makes `target` and what leads to it. What is there already must be a directory.
pub(super) fn ensure_directory(
    root: &mut Root,
    site: Site,
    target: &Path,
    mode: u32,
) -> Result<(), Fail> {
    if root.known(target).is_some() {
        return Ok(());
    }
    in_parent(root, site, target, |parent, name| {
        match make_or_find(site, parent, name, mode)? {
            true => Ok(()),
            false => {
                let found = Beneath::new(parent).directory(name);
                found.map(drop).at(site, Call::Openat2)
            }
        }
    })
}

/// Makes a directory; false if the name exists already.
pub(super) fn make_or_find(
    site: Site,
    parent: &OwnedFd,
    name: &Path,
    mode: u32,
) -> Result<bool, Fail> {
    match mkdirat(parent, name, Mode::from_bits_truncate(mode)) {
        Ok(()) => Ok(true),
        Err(Errno::EEXIST) => Ok(false),
        Err(errno) => Err(site.failed(Call::Mkdir, errno)),
    }
}

pub(super) fn make_file(
    root: &mut Root,
    site: Site,
    target: &Path,
    content: &[u8],
    executable: bool,
) -> Result<(), Fail> {
    let mode = if executable { 0o555 } else { 0o444 };
    let file = in_parent(root, site, target, |parent, name| {
        let file = Beneath::new(parent).create(name, Mode::from_bits_truncate(mode));
        file.at(site, Call::Openat2)
    })?;
    let file = file.into();
    write_all(&file, content).at(site, Call::Write)?;
    root.put_away(file);
    Ok(())
}

pub(super) fn make_symlink(
    root: &mut Root,
    site: Site,
    target: &Path,
    to: &Path,
) -> Result<(), Fail> {
    in_parent(root, site, target, |parent, name| {
        symlinkat(to, parent, name).at(site, Call::Symlink)
    })
}

/// Writes all of `content`.
pub(in super::super) fn write_all(to: &OwnedFd, content: &[u8]) -> Result<(), Errno> {
    let mut rest = content;
    while !rest.is_empty() {
        let written = nix::unistd::write(to, rest)?;
        rest = &rest[written..];
    }
    Ok(())
}

/// Opens `path` below a directory for a new file; makes the directories that lead to
/// it.
pub(in super::super) fn create_beneath(
    top: &OwnedFd,
    site: Site,
    path: &Path,
    executable: bool,
) -> Result<OwnedFd, Fail> {
    let mode = if executable { 0o755 } else { 0o644 };
    let fail = |errno| site.failed(Call::Openat2, errno);
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(fail(Errno::EINVAL));
    };
    let parent = Beneath::new(top).make_directories(parent, Mode::from_bits_truncate(0o755));
    let file = Beneath::new(&parent.map_err(fail)?).create(name, Mode::from_bits_truncate(mode));
    file.map(OwnedFd::from).map_err(fail)
}

pub(in super::super) fn c_path(path: &Path) -> Result<CString, Errno> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)
}
