//! Making what was staged for a scratch place.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::sys::sendfile::sendfile;
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat, mkdirat, umask};
use nix::unistd::symlinkat;

use super::fail::{At, Call, Fail, Site};
use super::mounts::{Root, open_in};
use super::report::Reporter;
use record::error::Step;
use sys::beneath::Beneath;
use sys::tree::set_mtime;
use workspace::{Entry, Kind, Piece, Stage};

/// Makes everything that `stage` holds. From here on the cell is charged for its
/// memory, and the stage's own memory is freed.
pub(super) fn make(stage: Stage, root: &Root, report: &Reporter<'_>) -> Result<(), Fail> {
    let site = report.enter(Step::CopyIn);
    let top = open_in(root, Path::new(stage.scratch.path())).at(site, Call::Openat2)?;
    // The modes are the stage's, whatever the caller's umask.
    let usual = umask(Mode::empty());
    let made = each(&stage, &top);
    umask(usual);
    made
}

fn each(stage: &Stage, top: &OwnedFd) -> Result<(), Fail> {
    // Neighbours follow each other: the directory opened last mostly serves.
    let mut last: Option<(&[u8], OwnedFd)> = None;
    for (path, entry) in &stage.entries {
        let (above, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => (&path[..slash], &path[slash + 1..]),
            None => (&path[..0], path.as_slice()),
        };
        if above.is_empty() {
            place(top, name, entry, stage)?;
            continue;
        }
        let dir = match last.take() {
            Some((open, dir)) if open == above => dir,
            _ => Beneath::new(top)
                .directory(above)
                .at(Site::new(Step::CopyIn), Call::Openat2)?,
        };
        place(&dir, name, entry, stage)?;
        last = Some((above, dir));
    }
    Ok(())
}

fn place(dir: &OwnedFd, name: &[u8], entry: &Entry, stage: &Stage) -> Result<(), Fail> {
    let site = Site::new(Step::CopyIn);
    let mode = Mode::from_bits_truncate(entry.mode);
    match &entry.kind {
        Kind::Directory => match mkdirat(dir, name, mode) {
            Ok(()) => Ok(()),
            // It leads to a bind, and was made with that.
            Err(Errno::EEXIST) => {
                fchmodat(dir, name, mode, FchmodatFlags::FollowSymlink).at(site, Call::Mkdir)
            }
            Err(errno) => Err(site.failed(Call::Mkdir, errno)),
        },
        Kind::Link(text) => symlinkat(text.as_slice(), dir, name).at(site, Call::Symlink),
        Kind::File(piece) => {
            let file = Beneath::new(dir).create(name, mode);
            let file = file.at(site, Call::Openat2)?;
            if let Some(content) = &stage.content {
                send(content, *piece, &file).at(site, Call::Sendfile)?;
            }
            // Of use for make(1) and compiled modules; a file without is as good.
            let _ = set_mtime(&file, entry.mtime);
            Ok(())
        }
    }
}

fn send(content: &File, piece: Piece, to: impl AsFd) -> Result<(), Errno> {
    const CHUNK: u64 = 1 << 30;
    let mut at = i64::try_from(piece.at).map_err(|_| Errno::EOVERFLOW)?;
    let mut left = piece.digest.size;
    while left > 0 {
        let wanted = usize::try_from(left.min(CHUNK)).map_err(|_| Errno::EOVERFLOW)?;
        match sendfile(&to, content, Some(&mut at), wanted)? as u64 {
            0 => return Err(Errno::EIO),
            sent => left = left.saturating_sub(sent),
        }
    }
    Ok(())
}
