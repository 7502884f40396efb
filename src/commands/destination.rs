//! The files that `--record` and `--events` name.
//!
//! A directory that one cell could write to may hold links of that cell's own
//! making, and a later call must not write through them with the caller's
//! rights. The last component of a path is therefore never followed, but in
//! `/dev` and `/proc`; beneath the directories that this call's cell can write
//! to, no component is.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, open, openat, openat2};
use nix::sys::stat::{Mode, SFlag, fstat};
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};

use spec::Spec;

const DIRECTORY: OFlag = OFlag::O_PATH
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_CLOEXEC);
const FILE: OFlag = OFlag::O_WRONLY
    .union(OFlag::O_CREAT)
    .union(OFlag::O_NOCTTY)
    .union(OFlag::O_CLOEXEC);

/// Directories of the host that this call's cell, or what collects its files,
/// writes to.
pub(super) fn shared(spec: &Spec) -> Vec<PathBuf> {
    let binds = spec.binds.iter().filter(|bind| bind.writable);
    binds
        .map(|bind| &bind.source)
        .chain(&spec.out)
        .chain(&spec.workspace)
        .chain(&spec.keep_tmp)
        .cloned()
        .collect()
}

/// Creates or empties the file `path`.
///
/// # Errors
/// The error number of open(2); ELOOP for a link that is not followed.
pub(super) fn create(path: &Path, shared: &[PathBuf]) -> Result<File, Errno> {
    let name = path.file_name().ok_or(Errno::EISDIR)?;
    let (directory, is_shared) = parent(path, shared)?;
    let mode = Mode::from_bits_truncate(0o666);
    // A FIFO would wait for a reader: from a cell, there comes none.
    let waits = if is_shared {
        OFlag::O_NONBLOCK
    } else {
        OFlag::empty()
    };
    let flags = FILE | OFlag::O_NOFOLLOW | waits;
    let file = match openat(&directory, name, flags, mode) {
        Err(Errno::ELOOP) if !is_shared && has_system_links(&directory)? => {
            openat(&directory, name, FILE, mode)?
        }
        opened => opened?,
    };
    let kind = SFlag::from_bits_truncate(fstat(&file)?.st_mode & SFlag::S_IFMT.bits());
    if kind == SFlag::S_IFREG {
        nix::unistd::ftruncate(&file, 0)?;
    } else if is_shared {
        return Err(Errno::EEXIST);
    }
    Ok(file.into())
}

/// The directory that holds `path`, and whether a cell can write to it.
fn parent(path: &Path, shared: &[PathBuf]) -> Result<(OwnedFd, bool), Errno> {
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let Some(top) = shared_ancestor(parent, shared) else {
        return Ok((open(parent, DIRECTORY, Mode::empty())?, false));
    };
    let directory = open(&top, DIRECTORY, Mode::empty())?;
    let rest = parent.strip_prefix(&top).unwrap_or(parent);
    if rest == Path::new("") {
        return Ok((directory, true));
    }
    let how = OpenHow::new()
        .flags(DIRECTORY)
        .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    Ok((openat2(&directory, rest, how)?, true))
}

/// The first part of `path` that is one of the directories `shared` or lies
/// beneath one, by whatever name.
fn shared_ancestor(path: &Path, shared: &[PathBuf]) -> Option<PathBuf> {
    let shared: Vec<PathBuf> = shared
        .iter()
        .filter_map(|directory| directory.canonicalize().ok())
        .collect();
    let mut ancestors: Vec<&Path> = path.ancestors().collect();
    ancestors.reverse();
    ancestors
        .into_iter()
        .map(|part| match part {
            empty if empty == Path::new("") => Path::new("."),
            part => part,
        })
        .find(|part| {
            let real = part.canonicalize();
            real.is_ok_and(|real| shared.iter().any(|top| real.starts_with(top)))
        })
        .map(Path::to_owned)
}

/// Whether links in this directory are the system's: `/dev/stdout`, and the
/// descriptors in `/proc`.
fn has_system_links(directory: &OwnedFd) -> Result<bool, Errno> {
    let dev = openat(AT_FDCWD, "/dev", DIRECTORY, Mode::empty()).and_then(fstat);
    let here = fstat(directory)?;
    let is_dev = dev.is_ok_and(|dev| (dev.st_dev, dev.st_ino) == (here.st_dev, here.st_ino));
    Ok(is_dev || fstatfs(directory)?.filesystem_type() == PROC_SUPER_MAGIC)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_not_followed() {
        let top = tempfile::tempdir().unwrap();
        let at = |name: &str| top.path().join(name);
        std::fs::write(at("secret"), "kept").unwrap();
        std::fs::create_dir(at("shared")).unwrap();
        std::fs::create_dir(at("elsewhere")).unwrap();
        symlink(at("secret"), at("shared/r.json")).unwrap();
        symlink(at("elsewhere"), at("shared/sub")).unwrap();
        symlink(at("shared"), at("by-another-name")).unwrap();
        let shared = [at("shared")];

        // What File::create does.
        File::create(at("shared/r.json")).unwrap();
        assert_eq!(std::fs::read(at("secret")).unwrap(), b"");
        std::fs::write(at("secret"), "kept").unwrap();

        let refused = |path: &str, shared: &[PathBuf]| create(&at(path), shared).unwrap_err();
        assert_eq!(refused("shared/r.json", &[]), Errno::ELOOP);
        assert_eq!(refused("shared/r.json", &shared), Errno::ELOOP);
        assert_eq!(refused("shared/sub/r.json", &shared), Errno::ELOOP);
        assert_eq!(refused("by-another-name/sub/r.json", &shared), Errno::ELOOP);
        assert_eq!(std::fs::read(at("secret")).unwrap(), b"kept");
        assert!(!at("elsewhere/r.json").exists());

        create(&at("by-another-name/new.json"), &shared).unwrap();
        create(&at("by-another-name/new.json"), &[]).unwrap();
        assert!(at("shared/new.json").exists());
    }

    #[test]
    fn a_fifo_of_a_cell_holds_nobody_up() {
        let top = tempfile::tempdir().unwrap();
        let fifo = top.path().join("r.json");
        nix::unistd::mkfifo(&fifo, Mode::from_bits_truncate(0o600)).unwrap();
        let shared = [top.path().to_owned()];
        assert_eq!(create(&fifo, &shared).unwrap_err(), Errno::ENXIO);
    }

    #[test]
    fn the_systems_own_links_are_followed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "old").unwrap();
        use std::os::fd::AsRawFd as _;
        for directory in ["/proc/self/fd", "/dev/fd"] {
            let path = format!("{directory}/{}", file.as_raw_fd());
            create(Path::new(&path), &[]).unwrap();
        }
        assert_eq!(std::fs::read(file.path()).unwrap(), b"");
    }
}
