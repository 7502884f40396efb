//! A whole `/proc` and a `/sys` that show the cell and hide the host.
//!
//! The kernel's own `/proc` is mounted, and every entry of its top that is not a
//! process is covered: by a prepared file where the cell shows one, else by a file or
//! directory that nobody may open. What the kernel lists decides what is covered, so
//! entries of later kernels are hidden as well. An entry that the host adds while the cell
//! runs, by loading a module, is not.
//!
//! The prepared files are part of the root's tmpfs, which becomes read-only like all covers
//! before anything of the caller's runs.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::time::Duration;

use nix::fcntl::{AtFlags, OFlag, openat};
use nix::mount::MsFlags;
use nix::sys::stat::{Mode, fstatat, mkdirat};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::linkat;

use super::fail::{At, Call, Fail, Site};
use super::mounts::{self, BASE, Root, write_all};
use plan::machine::{
    BOOT_ID, COPIED, DENIED_DIRECTORY, DENIED_FILE, Machine, Moment, PREPARED, Prepared, UUID,
};
use sys::listing::{self, Kind, Listed};
use sys::mount::{self, FsContext, attr};
use sys::process::close_together;

/// What shows the machine can be neither changed nor executed.
const READ_ONLY: u64 = BASE | attr::NOEXEC | attr::RDONLY;

/// Files of `/proc` that nobody but the host's root can open on most kernels: then they need no
/// cover. Whether that is so on this one is looked up.
const CLOSED: &[&[u8]] = &[
    b"allocinfo",
    b"kmsg",
    b"kpagecgroup",
    b"kpagecount",
    b"kpageflags",
    b"pagetypeinfo",
    b"slabinfo",
    b"timer_list",
    b"vmallocinfo",
];

/// Puts `/proc` and `/sys` in place.
pub(super) fn place(root: &mut Root, site: Site, machine: &Machine) -> Result<(), Fail> {
    let fs = FsContext::open(c"proc").at(site, Call::Fsopen)?;
    fs.set(c"hidepid", c"invisible").at(site, Call::Fsconfig)?;
    let proc = fs.mount(READ_ONLY).at(site, Call::Fsmount)?;
    let files = files(site, machine, &proc)?;
    let top = mounts::make_directory(root, site, Path::new(PREPARED), 0o755)?;
    prepare(site, &top, &files)?;
    root.attach(site, Path::new("/proc"), &proc)?;
    root.make(site, Path::new("/sys"))?;

    nix::unistd::fchdir(root.top()).at(site, Call::Fchdir)?;
    // A read-only mount, and so is its bind.
    bind(site, UUID.as_bytes(), &below_prepared(UUID.as_bytes()))?;
    bind(site, &below_prepared(b"sys"), b"sys")?;
    remount_read_only(site, b"sys")?;
    cover(site, &proc, &files)?;
    // The covers, all at once.
    mount::set_attributes(proc.as_fd(), READ_ONLY, true).at(site, Call::MountSetattr)?;
    for spent in [fs.into(), top, proc] {
        root.put_away(spent);
    }
    Ok(())
}

/// Covers all of the top of `/proc` but processes and links. Nothing can be mounted on a
/// link, which shows no more than its text: it leads to what the cell shows at that path.
fn cover(site: Site, proc: &OwnedFd, files: &[Prepared]) -> Result<(), Fail> {
    let top = |path: &str| Some(path.strip_prefix("proc/")?.split('/').next()?.to_owned());
    let shown: BTreeSet<String> = files.iter().filter_map(|(path, _)| top(path)).collect();
    let own = nix::unistd::geteuid().as_raw();
    for Listed { name, kind } in names(site, proc)? {
        if kind == Kind::Symlink || name.iter().all(u8::is_ascii_digit) {
            continue;
        }
        let target = [b"proc/", name.as_slice()].concat();
        let source = match kind {
            _ if shown.iter().any(|shown| shown.as_bytes() == name) => &target,
            Kind::Directory => DENIED_DIRECTORY.as_bytes(),
            _ if CLOSED.contains(&name.as_slice()) && is_closed(proc, &name, own) => continue,
            _ => DENIED_FILE.as_bytes(),
        };
        bind(site, &below_prepared(source), &target)?;
    }
    Ok(())
}

/// Whether no process of the cell can open a file, none of which has a capability, and whether
/// its size says nothing either.
fn is_closed(proc: &OwnedFd, name: &[u8], own: u32) -> bool {
    fstatat(proc, name, AtFlags::AT_SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| stat.st_mode & 0o077 == 0 && stat.st_size == 0 && stat.st_uid != own)
}

/// What the cell shows: the machine's files, and what the kernel says itself.
fn files(site: Site, machine: &Machine, proc: &OwnedFd) -> Result<Vec<Prepared>, Fail> {
    let mut files = machine.files(moment(site)?);
    let mut opened = Vec::with_capacity(COPIED.len() + 1);
    let settings = COPIED.into_iter().map(|path| (path, path));
    for (shown, path) in settings.chain([(BOOT_ID, UUID)]) {
        if let Some(value) = read(proc, path, &mut opened) {
            files.push((shown.to_owned(), value));
        }
    }
    close_together(opened);
    Ok(files)
}

/// Files that may be open at once, of the few hundred that a caller may have allowed.
const OPEN_AT_ONCE: usize = 32;

/// Makes the files below `top`. Files that are alike are one file: a link costs a fifth of an
/// inode with its page, which also has to be freed.
fn prepare(site: Site, top: &OwnedFd, files: &[Prepared]) -> Result<(), Fail> {
    let mut made = BTreeSet::new();
    let mut written = BTreeMap::new();
    let mut opened = Vec::with_capacity(OPEN_AT_ONCE);
    for (path, text) in files {
        make_parents(site, top, &mut made, path)?;
        if let Some(like) = written.insert(text.as_str(), path.as_str()) {
            linkat(top, like, top, path.as_str(), AtFlags::empty()).at(site, Call::Link)?;
            continue;
        }
        let file = create(site, top, path, Mode::from_bits_truncate(0o444))?;
        if !text.is_empty() {
            write_all(&file, text.as_bytes()).at(site, Call::Write)?;
        }
        opened.push(file);
        if opened.len() == OPEN_AT_ONCE {
            close_together(std::mem::take(&mut opened));
        }
    }
    make_parents(site, top, &mut made, DENIED_FILE)?;
    opened.push(create(site, top, DENIED_FILE, Mode::empty())?);
    close_together(opened);
    mkdirat(top, DENIED_DIRECTORY, Mode::empty()).at(site, Call::Mkdir)
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

/// A setting of the kernel; `None` where it has none of that name. The file goes to `opened`.
fn read(proc: &OwnedFd, path: &str, opened: &mut Vec<OwnedFd>) -> Option<String> {
    let below = path.strip_prefix("proc/")?;
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    let file = openat(proc, below, flags, Mode::empty()).ok()?;
    let mut text = [0; 64];
    let count = nix::unistd::read(&file, &mut text);
    opened.push(file);
    let count = count.ok()?;
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

/// What a directory holds.
fn names(site: Site, top: &OwnedFd) -> Result<Vec<Listed>, Fail> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let list = openat(top, c".", flags, Mode::empty()).at(site, Call::Open)?;
    listing::read(list.as_fd()).at(site, Call::Getdents)
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

fn remount_read_only(site: Site, target: &[u8]) -> Result<(), Fail> {
    let none = None::<&[u8]>;
    let flags = MsFlags::MS_BIND
        | MsFlags::MS_REMOUNT
        | MsFlags::MS_RDONLY
        | MsFlags::MS_NOSUID
        | MsFlags::MS_NODEV
        | MsFlags::MS_NOEXEC;
    nix::mount::mount(none, target, none, flags, none).at(site, Call::Mount)
}
