//! Gives a finished tree the owner and the modes that every prepared tree has.
//!
//! A store is shared: nobody but its owner may change what is in it, and nothing
//! in it gives rights away. So set-user-ID, set-group-ID and sticky bits go, as
//! do write bits of group and others; the owner can read everything and enter
//! every directory, whatever the modes were. Other read and execute bits stay as
//! they are. The same content thus has the same digest whoever unpacked it.

use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::{FchmodatFlags, Mode, fchmod, fchmodat, fstat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchown, fchownat, geteuid, unlinkat};

use record::error::{Result, SetupError, Step};
use sys::tree::{Entry, each, open_top, shown};

/// Bits that stay.
const KEPT: u32 = 0o755;

/// Settles the tree in `directory`. Sockets, FIFOs and device nodes are removed:
/// what a build leaves of them has nobody behind it.
///
/// # Errors
/// What cannot be changed, by its path.
pub(super) fn settle(directory: &Path) -> Result<()> {
    let top = open_top(directory, Step::Store)?;
    let failed =
        |call: &str, errno: Errno| SetupError::os(Step::Store, call, errno).on(directory.display());
    let stat = fstat(&top).map_err(|e| failed("fstat", e))?;
    if is_foreign(stat.st_uid, stat.st_gid) {
        fchown(&top, Some(Uid::from_raw(0)), Some(Gid::from_raw(0)))
            .map_err(|e| failed("fchown", e))?;
    }
    each(&top, Step::Store, &mut |entry| {
        settle_one(entry).map(|()| true)
    })?;
    // Every user's cells come through here, and now nobody can leave anything.
    fchmod(&top, Mode::from_bits_truncate(0o755)).map_err(|e| failed("fchmod", e))
}

fn settle_one(entry: &Entry<'_>) -> Result<()> {
    let failed =
        |call: &str, errno: Errno| SetupError::os(Step::Store, call, errno).on(shown(entry.path));
    let owner_needs = match entry.stat.st_mode & libc::S_IFMT {
        libc::S_IFDIR => 0o700,
        libc::S_IFREG => 0o400,
        libc::S_IFLNK => return own(entry),
        _ => {
            return unlinkat(entry.dir, entry.name, UnlinkatFlags::NoRemoveDir)
                .map_err(|e| failed("unlink", e));
        }
    };
    own(entry)?;
    let mode = entry.stat.st_mode & 0o7777;
    let wanted = mode & KEPT | owner_needs;
    if mode != wanted {
        let wanted = Mode::from_bits_truncate(wanted);
        fchmodat(
            entry.dir,
            entry.name,
            wanted,
            FchmodatFlags::NoFollowSymlink,
        )
        .map_err(|e| failed("fchmodat", e))?;
    }
    Ok(())
}

/// A cell that root starts writes with an id of its own, which another program
/// of the host's may have tomorrow.
fn own(entry: &Entry<'_>) -> Result<()> {
    if !is_foreign(entry.stat.st_uid, entry.stat.st_gid) {
        return Ok(());
    }
    let (uid, gid) = (Some(Uid::from_raw(0)), Some(Gid::from_raw(0)));
    fchownat(
        entry.dir,
        entry.name,
        uid,
        gid,
        AtFlags::AT_SYMLINK_NOFOLLOW,
    )
    .map_err(|e| SetupError::os(Step::Store, "fchownat", e).on(shown(entry.path)))
}

/// Whether root has this to make its own; others have only what is theirs.
fn is_foreign(uid: u32, gid: u32) -> bool {
    geteuid().is_root() && (uid != 0 || gid != 0)
}
