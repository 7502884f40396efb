//! Paths in writable binds that the program can neither change nor make.
//!
//! A mount point can be neither renamed, removed nor replaced in the cell, so each protected
//! path becomes one, read-only, and so does each directory that leads to it, writable as
//! before. Where nothing is, a mount point has to be made on the host: an empty directory,
//! which git ignores, and which a file cannot be renamed over from outside. The supervisor
//! removes it (`workspace::Guard`).

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::sys::stat::{Mode, SFlag, fstat, mkdirat};

use super::fail::{At, Call, Fail, Site};
use super::mounts::{BASE, Root, open_in, write_all};
use plan::PLACEHOLDERS;
use sys::beneath::Beneath;
use sys::mount::{self, attr};

/// Covers `target`, which is below the writable `bind`.
pub(super) fn place(root: &mut Root, site: Site, bind: &Path, target: &Path) -> Result<(), Fail> {
    let below = target.strip_prefix(bind).unwrap_or(target);
    let mut at = bind.to_owned();
    let mut names = below.iter().peekable();
    while let Some(name) = names.next() {
        let parent = open_in(root, &at).at(site, Call::Openat2)?;
        at.push(name);
        let found = match Beneath::new(&parent).find_link(name) {
            Err(Errno::ENOENT) => {
                if !make_placeholder(site, &parent, name)? {
                    return Ok(());
                }
                let found = Beneath::new(&parent).find_link(name);
                return cover(root, site, &found.at(site, Call::Openat2)?, true);
            }
            found => found.at(site, Call::Openat2)?,
        };
        if kind(&found).at(site, Call::Openat2)? == SFlag::S_IFLNK {
            return Err(site.failed(Call::Openat2, Errno::ELOOP));
        }
        let leads_on = names.peek().is_some() && is_open(&found).at(site, Call::Openat2)?;
        if !leads_on {
            return cover(root, site, &found, true);
        }
        let is_mount_point = Beneath::new(&parent).on_one_mount().find(name);
        if is_mount_point.err() != Some(Errno::EXDEV) {
            root.forget(&at);
            cover(root, site, &found, false)?;
        }
    }
    Ok(())
}

/// Mounts what was found over itself.
fn cover(root: &mut Root, site: Site, found: &OwnedFd, is_sealed: bool) -> Result<(), Fail> {
    let tree = mount::clone_tree(found.as_raw_fd(), c"").at(site, Call::OpenTree)?;
    if is_sealed {
        mount::set_attributes(tree.as_fd(), BASE | attr::RDONLY, true)
            .at(site, Call::MountSetattr)?;
    }
    mount::attach(tree.as_fd(), found.as_fd()).at(site, Call::MoveMount)?;
    root.put_away(tree);
    Ok(())
}

/// Makes what stands for a path that is missing, which another cell may have done meanwhile;
/// false where what is there is read-only, as what stands for a directory of the path is.
fn make_placeholder(site: Site, parent: &OwnedFd, name: &OsStr) -> Result<bool, Fail> {
    let content = PLACEHOLDERS.iter().find(|(file, _)| name == *file);
    let made = match content {
        None => mkdirat(parent, name, Mode::from_bits_truncate(0o555)),
        Some((_, content)) => {
            let mode = Mode::from_bits_truncate(0o444);
            let file = Beneath::new(parent).create(name, mode);
            file.and_then(|file| write_all(&file.into(), content.as_bytes()))
        }
    };
    match made {
        Ok(()) | Err(Errno::EEXIST) => Ok(true),
        Err(Errno::EROFS) => Ok(false),
        Err(errno) => Err(site.failed(Call::Mkdir, errno)),
    }
}

/// Whether it is a directory that can be written to. One that stands for a missing path cannot.
fn is_open(found: &OwnedFd) -> Result<bool, Errno> {
    Ok(kind(found)? == SFlag::S_IFDIR && fstat(found)?.st_mode & 0o222 != 0)
}

fn kind(found: &OwnedFd) -> Result<SFlag, Errno> {
    let mode = fstat(found)?.st_mode;
    Ok(SFlag::from_bits_truncate(mode & SFlag::S_IFMT.bits()))
}
