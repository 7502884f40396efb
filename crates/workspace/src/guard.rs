//! What protected paths leave on the host: placeholders, while a cell needs them.
//!
//! Init makes one where nothing is (`jail::child::protect`). Cells share those of a
//! directory, which each locks; the last one removes them. After a supervisor that was
//! killed, the next cell of the directory does.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::stat::{FileStat, SFlag, fstat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use plan::{PLACEHOLDERS, Plan, Protected};
use record::error::{Result, SetupError, Step};
use sys::beneath::Beneath;
use sys::tree::{kind_of, open_top};

/// How long another cell may take to remove placeholders.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(5);

/// The directories of a cell's protected paths. Dropping it, which must come after the
/// cell's end, removes placeholders.
#[derive(Debug, Default)]
pub struct Guard(Vec<Held>);

#[derive(Debug)]
struct Held {
    directory: Flock<OwnedFd>,
    protected: Protected,
}

impl Guard {
    /// Keeps placeholders in the directories of the plan's protected paths from being removed
    /// by other cells.
    ///
    /// # Errors
    /// A directory cannot be opened, or is used as a kept one.
    pub fn hold(plan: &Plan) -> Result<Self> {
        let held = plan.protected.iter().map(|protected| {
            Ok(Held {
                directory: share(protected)?,
                protected: protected.clone(),
            })
        });
        held.collect::<Result<_>>().map(Self)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // One of them may be below another: this cell's own locks would be in the way.
        let held = std::mem::take(&mut self.0).into_iter().filter_map(|held| {
            let directory = held.directory.unlock().ok()?;
            Some((directory, held.protected))
        });
        for (directory, protected) in held.collect::<Vec<_>>() {
            // Another cell that shares the directory, or has one above it, may need them.
            if let Ok(directory) = Flock::lock(directory, FlockArg::LockExclusiveNonblock)
                && let Some(_above) = lock_above(&protected.source)
            {
                for path in &protected.paths {
                    let _ = remove_placeholder(&directory, path);
                }
            }
        }
    }
}

/// Locks the directories above one, as far as they can be opened: a cell of this user can use no others.
/// `None` where a cell uses one of them.
fn lock_above(source: &Path) -> Option<Vec<Flock<OwnedFd>>> {
    let above = source.ancestors().skip(1);
    let above = above.filter_map(|directory| open_top(directory, Step::Inputs).ok());
    above
        .map(|directory| lock(directory, FlockArg::LockExclusiveNonblock).ok())
        .collect()
}

/// Locks a directory. Cells that end have it for as long as they remove what is theirs.
fn lock(mut directory: OwnedFd, how: FlockArg) -> nix::Result<Flock<OwnedFd>> {
    let began = Instant::now();
    loop {
        match Flock::lock(directory, how) {
            Ok(lock) => return Ok(lock),
            Err((again, Errno::EWOULDBLOCK)) if began.elapsed() < LONGEST_WAIT => directory = again,
            Err((_, errno)) => return Err(errno),
        }
        std::thread::sleep(PAUSE);
    }
}

fn share(protected: &Protected) -> Result<Flock<OwnedFd>> {
    let directory = open_top(&protected.source, Step::Inputs).map_err(|error| {
        error.hint(
            "--protect is for a directory: name one that you may read, as SRC in --rw SRC[:DST]",
        )
    })?;
    lock(directory, FlockArg::LockSharedNonblock).map_err(|errno| {
        SetupError::os(Step::Inputs, "flock", errno)
            .on(protected.source.display())
            .hint("another program has locked the directory, such as a run with --workspace: wait for its end")
    })
}

/// Removes the placeholder at the first part of `path` that is one.
fn remove_placeholder(directory: &OwnedFd, path: &Path) -> nix::Result<()> {
    for part in path.ancestors().collect::<Vec<_>>().into_iter().rev() {
        let (Some(parent), Some(name)) = (part.parent(), part.file_name()) else {
            continue;
        };
        // A cell of an inner directory needs its own.
        let within = (parent.ancestors()).filter(|within| !within.as_os_str().is_empty());
        let within = within.map(|within| Beneath::new(directory).open_directory(within).ok());
        let lock = |within| Flock::lock(within, FlockArg::LockExclusiveNonblock).ok();
        let within: Option<Vec<_>> = within.map(|within| lock(within?)).collect();
        let Some(_within) = within else { return Ok(()) };
        let parent = Beneath::new(directory).directory(parent)?;
        let stat = fstat(Beneath::new(&parent).find_link(name)?)?;
        let is_writable = stat.st_mode & 0o222 != 0;
        match kind_of(&stat) {
            SFlag::S_IFDIR if is_writable => {}
            // One with anything in it stays.
            SFlag::S_IFDIR => return unlinkat(&parent, name, UnlinkatFlags::RemoveDir),
            SFlag::S_IFREG if is_placeholder(&parent, name, &stat) => {
                return unlinkat(&parent, name, UnlinkatFlags::NoRemoveDir);
            }
            _ => return Ok(()),
        }
    }
    Ok(())
}

/// Whether the file `name` stands for one that is missing.
pub(super) fn is_placeholder(parent: &impl AsFd, name: &OsStr, stat: &FileStat) -> bool {
    let known = PLACEHOLDERS.iter().find(|(file, _)| name == *file);
    known.is_some_and(|(_, content)| {
        let mut buffer = [0; 16];
        stat.st_mode & 0o222 == 0
            && stat.st_size == content.len() as i64
            && Beneath::new(parent).read(name).is_ok_and(|file| {
                let read = nix::unistd::read(&file, &mut buffer);
                read.is_ok_and(|length| &buffer[..length] == content.as_bytes())
            })
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};

    use super::*;

    #[test]
    fn placeholders_go_and_all_else_stays() {
        let base = tempfile::tempdir().unwrap();
        let at = |path: &str| base.path().join(path);
        for kept in ["own", "full", ".git"] {
            fs::create_dir(at(kept)).unwrap();
        }
        let mut placeholder = fs::DirBuilder::new();
        placeholder.mode(0o555);
        for gone in ["gone", "own/gone"] {
            placeholder.create(at(gone)).unwrap();
        }
        fs::write(at("full/file"), "").unwrap();
        fs::set_permissions(at("full"), fs::Permissions::from_mode(0o555)).unwrap();
        fs::write(at(".git/commondir"), ".\n").unwrap();
        fs::set_permissions(at(".git/commondir"), fs::Permissions::from_mode(0o444)).unwrap();
        fs::write(at("own/commondir"), "..\n").unwrap();
        fs::set_permissions(at("own/commondir"), fs::Permissions::from_mode(0o444)).unwrap();

        let directory = open_top(base.path(), Step::Inputs).unwrap();
        for path in [
            "gone/deeper",
            "own",
            "own/gone",
            "full",
            ".git/commondir",
            "own/commondir",
            "missing/x",
        ] {
            let _ = remove_placeholder(&directory, Path::new(path));
        }
        // A cell of an inner directory needs what is there.
        fs::create_dir(at("inner")).unwrap();
        placeholder.create(at("inner/.vscode")).unwrap();
        let inner = open_top(&at("inner"), Step::Inputs).unwrap();
        let inner = Flock::lock(inner, FlockArg::LockSharedNonblock).unwrap();
        remove_placeholder(&directory, Path::new("inner/.vscode")).unwrap();
        assert!(at("inner/.vscode").exists());
        drop(inner);
        remove_placeholder(&directory, Path::new("inner/.vscode")).unwrap();
        assert!(!at("inner/.vscode").exists());
        let there = |path: &str| at(path).exists();
        assert!(!there("gone") && !there("own/gone") && !there(".git/commondir"));
        assert!(there("own/commondir") && there("full/file"));
        fs::set_permissions(at("full"), fs::Permissions::from_mode(0o755)).unwrap();
    }
}
