//! Gives a finished tree the owner and the modes that every prepared tree has.
//!
//! All users may share a store, so only its owner may change it, and nothing in it
//! grants rights: set-user-ID, set-group-ID and sticky bits go, and write bits of
//! group and others. The owner can read every file and enter every directory. Other
//! read and execute bits stay. So the same content has the same digest,
//! whichever user unpacked it.

use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::{FchmodatFlags, FileStat, Mode, fchmod, fchmodat, fstat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchown, fchownat, geteuid, unlinkat};

use crate::errors::failed;
use record::error::{Result, SetupError, Step};
use sys::tree::{Entry, each, open_top, shown};

/// Bits that stay.
const KEPT: u32 = 0o755;

/// Settles the tree in `directory`. Sockets, FIFOs and device nodes are removed: no
/// process serves them any more.
///
/// # Errors
/// A file cannot be changed.
pub(super) fn settle(directory: &Path) -> Result<()> {
    let top = open_top(directory, Step::Store)?;
    let stat = fstat(&top).map_err(failed("fstat", directory))?;
    if is_foreign(&stat) {
        fchown(&top, Some(Uid::from_raw(0)), Some(Gid::from_raw(0)))
            .map_err(failed("fchown", directory))?;
    }
    each(&top, Step::Store, &mut |entry| {
        settle_entry(entry).map(|()| true)
    })?;
    // Only now may other users enter.
    fchmod(&top, Mode::from_bits_truncate(0o755)).map_err(failed("fchmod", directory))
}

fn settle_entry(entry: &Entry<'_>) -> Result<()> {
    let failed =
        |call: &str, errno: Errno| SetupError::os(Step::Store, call, errno).on(shown(entry.path));
    let owner_needs = match entry.stat.st_mode & libc::S_IFMT {
        libc::S_IFDIR => 0o700,
        libc::S_IFREG => 0o400,
        libc::S_IFLNK => 0,
        _ => {
            return unlinkat(entry.dir, entry.name, UnlinkatFlags::NoRemoveDir)
                .map_err(|e| failed("unlink", e));
        }
    };
    if is_foreign(&entry.stat) {
        let (uid, gid) = (Some(Uid::from_raw(0)), Some(Gid::from_raw(0)));
        let flags = AtFlags::AT_SYMLINK_NOFOLLOW;
        fchownat(entry.dir, entry.name, uid, gid, flags).map_err(|e| failed("fchownat", e))?;
    }
    let mode = entry.stat.st_mode & 0o7777;
    let wanted = mode & KEPT | owner_needs;
    // Links have no modes of their own.
    if owner_needs != 0 && mode != wanted {
        let wanted = Mode::from_bits_truncate(wanted);
        let flags = FchmodatFlags::NoFollowSymlink;
        fchmodat(entry.dir, entry.name, wanted, flags).map_err(|e| failed("fchmodat", e))?;
    }
    Ok(())
}

/// Whether root must take this over. Cells that root starts write with a uid that
/// another program of the host may get.
fn is_foreign(stat: &FileStat) -> bool {
    geteuid().is_root() && (stat.st_uid != 0 || stat.st_gid != 0)
}
