//! A whole `/proc` and a `/sys` that show the cell and hide the host.
//!
//! The kernel's own `/proc` is mounted, and every entry of its top that is not a
//! process is covered: by a prepared file where the cell shows one, else by a file or
//! directory that nobody may open. What the kernel lists decides what is covered, so
//! entries of later kernels are hidden as well. An entry that the host adds while the cell
//! runs, by loading a module, is not.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::time::Duration;

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::mount::MsFlags;
use nix::sys::stat::{Mode, mkdirat};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::linkat;

use super::fail::{At, Call, Fail, Site};
use super::mounts::{BASE, Root, write_all};
use crate::plan::machine::{
    BOOT_ID, COPIED, DENIED_DIRECTORY, DENIED_FILE, Machine, Moment, PREPARED, Prepared, UUID,
};
use sys::mount::{self, FsContext, attr};

/// Puts `/proc` and `/sys` in place.
pub(super) fn place(root: &mut Root, site: Site, machine: &Machine) -> Result<(), Fail> {
    let proc = FsContext::open(c"proc").at(site, Call::Fsopen)?;
    proc.set(c"hidepid", c"invisible")
        .at(site, Call::Fsconfig)?;
    let proc = proc.mount(BASE | attr::NOEXEC | attr::RDONLY);
    let proc = proc.at(site, Call::Fsmount)?;
    let files = files(site, machine, &proc)?;
    let prepared = prepare(site, &files)?;
    root.attach(site, Path::new(PREPARED), &prepared)?;
    root.attach(site, Path::new("/proc"), &proc)?;
    root.make(site, Path::new("/sys"))?;

    nix::unistd::fchdir(root.top()).at(site, Call::Fchdir)?;
    // Sources are read-only mounts, and so are their binds.
    bind(site, UUID.as_bytes(), &below_prepared(UUID.as_bytes()))?;
    bind(site, &below_prepared(b"sys"), b"sys")?;
    cover(site, &proc, &files)
}

/// Covers all of the top of `/proc` but processes and links. Nothing can be mounted on a
/// link, which shows no more than its text: it leads to what the cell shows at that path.
fn cover(site: Site, proc: &OwnedFd, files: &[Prepared]) -> Result<(), Fail> {
    let top = |path: &str| Some(path.strip_prefix("proc/")?.split('/').next()?.to_owned());
    let shown: BTreeSet<String> = files.iter().filter_map(|(path, _)| top(path)).collect();
    for (name, kind) in names(site, proc)? {
        if kind == Some(Type::Symlink) || name.iter().all(u8::is_ascii_digit) {
            continue;
        }
        let own = [b"proc/", name.as_slice()].concat();
        let source = match kind {
            _ if shown.iter().any(|shown| shown.as_bytes() == name) => &own,
            Some(Type::Directory) => DENIED_DIRECTORY.as_bytes(),
            _ => DENIED_FILE.as_bytes(),
        };
        bind(site, &below_prepared(source), &own)?;
    }
    Ok(())
}

/// What the cell shows: the machine's files, and what the kernel says itself.
fn files(site: Site, machine: &Machine, proc: &OwnedFd) -> Result<Vec<Prepared>, Fail> {
    let mut files = machine.files(moment(site)?);
    if let Some(random) = read(proc, UUID) {
        files.push((BOOT_ID.to_owned(), random));
    }
    for path in COPIED {
        if let Some(value) = read(proc, path) {
            files.push((path.to_owned(), value));
        }
    }
    Ok(files)
}

/// The files on a tmpfs that is read-only and not yet attached. Files that are alike are
/// one file: a link costs a fifth of an inode with its page, which also has to be freed.
fn prepare(site: Site, files: &[Prepared]) -> Result<OwnedFd, Fail> {
    let fs = FsContext::open(c"tmpfs").at(site, Call::Fsopen)?;
    let pages: usize = files.iter().map(|(_, text)| text.len() / 4096 + 1).sum();
    for (key, value) in [
        (c"size", pages * 4096),
        // A file's, and those of the directories that lead to it.
        (c"nr_inodes", files.len() * 4 + 16),
        (c"mode", 755),
    ] {
        let value = CString::new(value.to_string()).unwrap_or_default();
        fs.set(key, &value).at(site, Call::Fsconfig)?;
    }
    let fs = fs.mount(BASE | attr::NOEXEC).at(site, Call::Fsmount)?;
    let mut made = BTreeSet::new();
    let mut written = BTreeMap::new();
    for (path, text) in files {
        make_parents(site, &fs, &mut made, path)?;
        if let Some(like) = written.insert(text.as_str(), path.as_str()) {
            linkat(&fs, like, &fs, path.as_str(), AtFlags::empty()).at(site, Call::Link)?;
            continue;
        }
        let file = create(site, &fs, path, Mode::from_bits_truncate(0o444))?;
        write_all(&file, text.as_bytes()).at(site, Call::Write)?;
    }
    make_parents(site, &fs, &mut made, DENIED_FILE)?;
    create(site, &fs, DENIED_FILE, Mode::empty())?;
    mkdirat(&fs, DENIED_DIRECTORY, Mode::empty()).at(site, Call::Mkdir)?;
    let read_only = BASE | attr::NOEXEC | attr::RDONLY;
    mount::set_attributes(fs.as_fd(), read_only, false).at(site, Call::MountSetattr)?;
    Ok(fs)
}

fn moment(site: Site) -> Result<Moment, Fail> {
    let read = |clock| {
        let time = clock_gettime(clock).map(Duration::from);
        time.at(site, Call::ClockGettime)
    };
    Ok(Moment {
        uptime: read(ClockId::CLOCK_BOOTTIME)?,
        now: read(ClockId::CLOCK_REALTIME)?,
    })
}

/// A setting of the kernel; `None` where it has none of that name.
fn read(proc: &OwnedFd, path: &str) -> Option<String> {
    let below = path.strip_prefix("proc/")?;
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    let file = openat(proc, below, flags, Mode::empty()).ok()?;
    let mut text = [0; 64];
    let count = nix::unistd::read(&file, &mut text).ok()?;
    String::from_utf8(text.get(..count)?.to_vec()).ok()
}

fn make_parents<'a>(
    site: Site,
    top: &OwnedFd,
    made: &mut BTreeSet<&'a str>,
    path: &'a str,
) -> Result<(), Fail> {
    let Some((parent, _)) = path.rsplit_once('/') else {
        return Ok(());
    };
    if made.insert(parent) {
        make_parents(site, top, made, parent)?;
        mkdirat(top, parent, Mode::from_bits_truncate(0o755)).at(site, Call::Mkdir)?;
    }
    Ok(())
}

fn create(site: Site, top: &OwnedFd, path: &str, mode: Mode) -> Result<OwnedFd, Fail> {
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
    openat(top, path, flags, mode).at(site, Call::Open)
}

/// A name in a directory, and what has it.
type Named = (Vec<u8>, Option<Type>);

/// What a directory holds.
fn names(site: Site, top: &OwnedFd) -> Result<Vec<Named>, Fail> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let list = Dir::openat(top, c".", flags, Mode::empty()).at(site, Call::Open)?;
    list.into_iter()
        .filter(|entry| {
            !entry
                .as_ref()
                .is_ok_and(|entry| matches!(entry.file_name().to_bytes(), b"." | b".."))
        })
        .map(|entry| entry.map(|entry| (entry.file_name().to_bytes().to_vec(), entry.file_type())))
        .collect::<Result<_, Errno>>()
        .at(site, Call::Getdents)
}

fn below_prepared(path: &[u8]) -> Vec<u8> {
    let top = PREPARED.as_bytes();
    [top.strip_prefix(b"/").unwrap_or(top), b"/", path].concat()
}

/// Both paths start at the current directory, the new root.
fn bind(site: Site, source: &[u8], target: &[u8]) -> Result<(), Fail> {
    let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
    nix::mount::mount(Some(source), target, None::<&[u8]>, flags, None::<&[u8]>)
        .at(site, Call::Mount)
}
