//! The descriptors of a process: those of the driver, and files that have a name.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStringExt as _;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::{SFlag, stat};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::refusal::Refusal;
use super::status;
use record::bytes::RawText;
use sys::identity::Identity;
use sys::tree::kind_of;

/// The most descriptors that are carried.
const MOST: usize = 1024;

/// The open descriptors of a process by number.
pub(super) type Descriptors = BTreeMap<RawFd, Descriptor>;

/// One descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Descriptor {
    pub(super) what: What,
    /// The flags of open(2), without O_CLOEXEC.
    pub(super) flags: i32,
    pub(super) close_on_exec: bool,
}

/// What a descriptor refers to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum What {
    /// The driver's own with this number, which every sibling has.
    Own(usize),
    /// The same open file as this lower number.
    Same(RawFd),
    /// A regular file, at this offset.
    File { path: RawText, offset: u64 },
    /// A directory, at this offset.
    Directory { path: RawText, offset: u64 },
    /// A device without state, such as `/dev/null`.
    Device { path: RawText },
    /// Anything else, which cannot be carried.
    Other(String),
}

/// Devices that have no state.
const DEVICES: [&str; 5] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
];

/// Finds what the descriptors of `pid` are. `own` are those of the driver.
pub(super) fn of(pid: Pid, own: &[Identity]) -> Result<Descriptors, Refusal> {
    let failed = |error: std::io::Error| {
        let errno = error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
        Refusal::System("readdir", errno)
    };
    let mut numbers = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        numbers.extend(name.to_str().and_then(|name| name.parse::<RawFd>().ok()));
        if numbers.len() > MOST {
            return Err(Refusal::TooMuch {
                what: "descriptors",
                most: MOST as u64,
            });
        }
    }
    numbers.sort_unstable();
    let mut found = Descriptors::new();
    let mut by_file: BTreeMap<(u64, u64), Vec<RawFd>> = BTreeMap::new();
    for number in numbers {
        let (mut descriptor, Identity(device, inode)) = one(pid, number, own)?;
        let others = by_file.entry((device, inode)).or_default();
        let shares = |other: &&RawFd| sys::process::share_file(pid, **other, number);
        if !matches!(descriptor.what, What::Own(_)) {
            if let Some(other) = others.iter().find(shares) {
                descriptor.what = What::Same(*other);
            }
            others.push(number);
        }
        found.insert(number, descriptor);
    }
    Ok(found)
}

fn one(pid: Pid, number: RawFd, own: &[Identity]) -> Result<(Descriptor, Identity), Refusal> {
    let place = format!("/proc/{pid}/fd/{number}");
    let stat = stat(place.as_str()).map_err(|errno| Refusal::System("stat", errno))?;
    let identity = Identity::from(&stat);
    // Offset, flags and the first lock come before everything that a process can make long.
    let info = status::read_start(pid, &format!("fdinfo/{number}"))?;
    let field = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name));
        line.map(str::trim)
    };
    let flags = field("flags:").and_then(|text| i32::from_str_radix(text, 8).ok());
    let flags = OFlag::from_bits_retain(flags.unwrap_or_default());
    let offset = field("pos:")
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    let what = match own.iter().position(|own| *own == identity) {
        Some(index) => What::Own(index),
        None => {
            let link = fs::read_link(&place)
                .map_err(|_| Refusal::System("readlink", Errno::EIO))?
                .into_os_string();
            let name = link.to_string_lossy().into_owned();
            let path = RawText::from(link.into_vec());
            // A name may end like this by itself; then the file is not carried either.
            let is_named = path.as_bytes().starts_with(b"/")
                && !path.as_bytes().ends_with(b" (deleted)")
                && !flags.contains(OFlag::O_TMPFILE);
            let is_locked = field("lock:").is_some();
            match kind_of(&stat) {
                SFlag::S_IFREG if is_locked => What::Other(format!("locked: {name}")),
                SFlag::S_IFREG if is_named => What::File { path, offset },
                SFlag::S_IFREG => What::Other(format!("a file without a name: {name}")),
                SFlag::S_IFDIR if is_named => What::Directory { path, offset },
                SFlag::S_IFCHR if DEVICES.contains(&name.as_str()) => What::Device { path },
                SFlag::S_IFSOCK => What::Other("a socket".to_owned()),
                SFlag::S_IFIFO => What::Other("a pipe".to_owned()),
                _ => What::Other(name),
            }
        }
    };
    let descriptor = Descriptor {
        what,
        flags: (flags - OFlag::O_CLOEXEC).bits(),
        close_on_exec: flags.contains(OFlag::O_CLOEXEC),
    };
    Ok((descriptor, identity))
}

/// Refuses descriptors that cannot be carried.
pub(super) fn refuse_unfit(descriptors: &Descriptors) -> Result<(), Refusal> {
    for (number, descriptor) in descriptors {
        if let What::Other(what) = &descriptor.what {
            return Err(Refusal::Descriptor {
                number: *number,
                what: what.clone(),
            });
        }
    }
    Ok(())
}

/// One change of a process's descriptors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change<'d> {
    /// Duplicates the driver's own with this number out of the way.
    Save {
        from: RawFd,
        to: RawFd,
    },
    Close(RawFd),
    /// Opens the file at this number.
    Open(RawFd, &'d Descriptor),
    /// Makes one a copy of another.
    Copy {
        from: RawFd,
        to: RawFd,
        close_on_exec: bool,
    },
}

/// The changes after which `to` is like `from`.
pub(super) fn changes<'d>(
    from: &'d Descriptors,
    to: &Descriptors,
) -> Result<Vec<Change<'d>>, Refusal> {
    let mut free = (0..).filter(|number| !from.contains_key(number) && !to.contains_key(number));
    let mut changes = Vec::new();
    let differs = |number: &RawFd| to.get(number) != from.get(number);
    // Where each of the driver's own is while the others change: copies that are closed at
    // the end, since their places may be wanted for something else.
    let mut saved: BTreeMap<usize, RawFd> = BTreeMap::new();
    for (number, descriptor) in from {
        let What::Own(index) = descriptor.what else {
            continue;
        };
        if !differs(number) || saved.contains_key(&index) {
            continue;
        }
        let there = to.iter().find(|(_, one)| one.what == What::Own(index));
        let (source, _) = there.ok_or(Refusal::Unlike("a descriptor of the driver's"))?;
        let place = free.next().unwrap_or(0);
        saved.insert(index, place);
        changes.push(Change::Save {
            from: *source,
            to: place,
        });
    }
    let closed = to.keys().filter(|number| differs(number));
    changes.extend(closed.map(|number| Change::Close(*number)));
    for (number, descriptor) in from.iter().filter(|(number, _)| differs(number)) {
        let copy = |source: RawFd| Change::Copy {
            from: source,
            to: *number,
            close_on_exec: descriptor.close_on_exec,
        };
        changes.push(match &descriptor.what {
            What::Own(index) => copy(saved.get(index).copied().unwrap_or(*number)),
            What::Same(other) => copy(*other),
            _ => Change::Open(*number, descriptor),
        });
    }
    changes.extend(saved.values().map(|place| Change::Close(*place)));
    Ok(changes)
}

/// Whether descriptors from an image can be those of a process.
pub(super) fn check(descriptors: &Descriptors) -> Result<(), Refusal> {
    let is_fit = |(number, descriptor): (&RawFd, &Descriptor)| match &descriptor.what {
        What::Same(other) => other < number && descriptors.contains_key(other),
        What::Own(index) => *index < MOST,
        What::File { path, .. } | What::Directory { path, .. } | What::Device { path } => {
            is_path(path)
        }
        What::Other(_) => false,
    };
    let in_range = |number: &RawFd| (0..1 << 20).contains(number);
    match descriptors.len() <= MOST
        && descriptors.keys().all(in_range)
        && descriptors.iter().all(is_fit)
    {
        true => Ok(()),
        false => Err(Refusal::Damaged("its descriptors make no sense")),
    }
}

/// Whether it can be given to the kernel as an absolute path.
pub(super) fn is_path(path: &RawText) -> bool {
    let bytes = path.as_bytes();
    bytes.starts_with(b"/") && bytes.len() < libc::PATH_MAX as usize && !bytes.contains(&0)
}
