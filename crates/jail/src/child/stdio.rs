//! The caller's files as standard streams.
//!
//! A file's owner may change its mode, times and attributes through any descriptor,
//! and outside the cell the program has the caller's uid. A terminal, and a file
//! that is open for reading, are therefore opened anew through a read-only mount:
//! there fchmod(2) and its kin fail with EROFS, while devices can still be written.
//! That does not work for a file that is open for writing: a read-only mount allows
//! no writer.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, readlink};
use nix::sys::stat::{FileStat, Mode, fstat};
use nix::unistd::{Whence, lseek};

use super::Shield;
use super::fail::{Call, Fail, Site};
use super::report::Reporter;
use record::error::Step;
use sys::{self, mount, mount::attr};

/// A stream, and a read-only mount of its file alone.
pub(super) type Shielded<'a> = (&'a Shield, OwnedFd);

/// Mounts the streams' files read-only, with the caller's ids.
///
/// # Errors
/// When a required one has no name that leads to it.
pub(super) fn shield<'a>(
    streams: &'a [Shield],
    report: &Reporter<'_>,
) -> Result<Vec<Shielded<'a>>, Fail> {
    let mut found = Vec::new();
    for shield in streams {
        report.enter(Step::Stdio);
        if let Some(tree) = unless_required(shield, read_only_mount(shield.stream))? {
            found.push((shield, tree));
        }
    }
    Ok(found)
}

/// Opens the streams anew, with the program's ids: a file that it may not open is
/// not its own.
///
/// # Errors
/// When a required one cannot be opened.
pub(super) fn reopen(streams: Vec<Shielded<'_>>, report: &Reporter<'_>) -> Result<(), Fail> {
    for (shield, tree) in streams {
        report.enter(Step::Stdio);
        unless_required(shield, open_anew(shield, &tree))?;
    }
    Ok(())
}

fn unless_required<T>(shield: &Shield, tried: Result<T, (Call, Errno)>) -> Result<Option<T>, Fail> {
    match tried {
        Ok(done) => Ok(Some(done)),
        Err((call, errno)) if shield.required => {
            let number = shield.stream.as_raw_fd() as usize;
            Err(Site::new(Step::Stdio).on(number).failed(call, errno))
        }
        Err(_) => Ok(None),
    }
}

const fn at(call: Call) -> impl Fn(Errno) -> (Call, Errno) {
    move |errno| (call, errno)
}

fn open_anew(shield: &Shield, tree: &OwnedFd) -> Result<(), (Call, Errno)> {
    let path = format!("/proc/self/fd/{}", tree.as_raw_fd());
    let flags = shield.access | OFlag::O_CLOEXEC | OFlag::O_NOCTTY;
    let file = open(path.as_str(), flags, Mode::empty()).map_err(at(Call::Open))?;
    match lseek(shield.stream, 0, Whence::SeekCur) {
        Ok(position) => lseek(&file, position, Whence::SeekSet).map(drop),
        Err(Errno::ESPIPE) => Ok(()),
        Err(errno) => Err(errno),
    }
    .map_err(at(Call::Lseek))?;
    sys::process::place(&file, shield.stream.as_raw_fd()).map_err(at(Call::Dup))
}

/// A mount of this file alone, found by the name that the kernel knows for it:
/// mounts of the caller's own namespace cannot be copied by descriptor here.
fn read_only_mount(given: BorrowedFd<'_>) -> Result<OwnedFd, (Call, Errno)> {
    let tree = find(given).map_err(at(Call::OpenTree))?;
    mount::set_attributes(tree.as_fd(), attr::RDONLY | attr::NOSUID, true)
        .map_err(at(Call::MountSetattr))?;
    Ok(tree)
}

fn find(given: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let name = readlink(format!("/proc/self/fd/{}", given.as_raw_fd()).as_str())?;
    let name = CString::new(name.as_bytes()).map_err(|_| Errno::EINVAL)?;
    let tree = mount::clone_tree(libc::AT_FDCWD, &name)?;
    let identity = |stat: FileStat| (stat.st_dev, stat.st_ino);
    if identity(fstat(given)?) == identity(fstat(&tree)?) {
        Ok(tree)
    } else {
        Err(Errno::ESTALE)
    }
}
