//! Device nodes of this host.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::stat::{SFlag, fstat};
use nix::unistd::{AccessFlags, access};
use serde::Serialize;

use record::error::{Result, SetupError, Step};
use spec::{Device, DeviceNumber};
use sys::beneath::Beneath;

/// A character device that a cell may have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HostDevice {
    /// Its path.
    pub path: PathBuf,
    /// Which device it is.
    pub number: DeviceNumber,
    /// Its owner's uid.
    pub owner: u32,
    /// Its permissions.
    pub mode: u32,
    /// Whether the caller may open it as the program is to.
    pub is_open_to_caller: bool,
}

/// Finds a device of the host's. No link is followed: `/dev` has some that lead to
/// descriptors.
///
/// # Errors
/// The host has no such character device, or it would be a way out of every cell.
pub fn find(device: &Device) -> Result<HostDevice> {
    let path = device.path();
    let operand = format!("--dev {}", device.name.display());
    let failed = |call: &str, errno| SetupError::os(Step::Mount, call, errno).on(&operand);
    let refused = |message: String| SetupError::new(Step::Mount, message).on(&operand);
    let node = open(&device.name).map_err(|errno| match errno {
        Errno::ELOOP => failed("openat2", errno).hint(format!(
            "a symbolic link is on the path, and none is followed: name what {} leads to",
            path.display()
        )),
        _ => failed("openat2", errno).hint("name a device that `ls /dev` shows on the host"),
    })?;
    let stat = fstat(&node).map_err(|errno| failed("fstat", errno))?;
    let kind = SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits());
    if kind == SFlag::S_IFBLK {
        let message = "is a block device, which holds the file systems of the host";
        return Err(refused(message.to_owned())
            .hint("mount it on the host, and show what is needed with --ro or --rw"));
    }
    if kind != SFlag::S_IFCHR {
        return Err(refused("is not a character device".to_owned())
            .hint("--ro and --rw show files and directories"));
    }
    let number = DeviceNumber::of(stat.st_rdev);
    if let Some(reason) = danger_of(number) {
        let DeviceNumber { major, minor } = number;
        return Err(
            refused(format!("is device {major}:{minor}, which {reason}"))
                .hint("no option gives it to a cell: have a process outside use it"),
        );
    }
    let wanted = match device.read_only {
        true => AccessFlags::R_OK,
        false => AccessFlags::R_OK | AccessFlags::W_OK,
    };
    Ok(HostDevice {
        is_open_to_caller: access(&path, wanted).is_ok(),
        path,
        number,
        owner: stat.st_uid,
        mode: stat.st_mode & 0o7777,
    })
}

fn open(name: &Path) -> Result<OwnedFd, Errno> {
    let dev = File::open("/dev").map_err(|_| Errno::last())?;
    Beneath::new(&dev).find(name)
}

/// The names of character devices' drivers by major number (proc_devices(5)).
fn drivers() -> Vec<(u64, String)> {
    let text = std::fs::read_to_string("/proc/devices").unwrap_or_default();
    let characters = text.split("Block devices:").next().unwrap_or_default();
    let pair = |line: &str| {
        let (number, name) = line.trim().split_once(' ')?;
        Some((number.parse().ok()?, name.to_owned()))
    };
    characters.lines().filter_map(pair).collect()
}

/// What a program could do with this device that no cell may do.
pub(super) fn danger_of(number: DeviceNumber) -> Option<&'static str> {
    match consoles().contains(&number) {
        true => Some("is a console of the host's kernel"),
        false => danger(number, &drivers()),
    }
}

/// The devices that the kernel writes its messages to (/proc/consoles), serial lines among
/// them: administrators of the host log in there.
fn consoles() -> Vec<DeviceNumber> {
    let text = std::fs::read_to_string("/proc/consoles").unwrap_or_default();
    text.lines().filter_map(console).collect()
}

/// The number in a line like `ttyS0  -W- (EC p a)  4:64`.
fn console(line: &str) -> Option<DeviceNumber> {
    let (major, minor) = line.split_whitespace().next_back()?.split_once(':')?;
    Some(DeviceNumber {
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
    })
}

/// What a program could do with a device that no cell may do. Nodes are known by their
/// numbers (Documentation/admin-guide/devices.txt of the kernel), whatever their names are;
/// majors that the kernel hands out by the names of their drivers.
fn danger(number: DeviceNumber, drivers: &[(u64, String)]) -> Option<&'static str> {
    const MEMORY: &str = "is memory, ports or messages of the host's kernel";
    const TERMINAL: &str = "is a terminal of the host's, on which others type";
    const DISK: &str = "reads and writes whole disks";
    const INPUT: &str = "is a keyboard, mouse or other input device of the host";
    const MAKES_DISKS: &str = "makes block devices out of files and disks";
    let DeviceNumber { major, minor } = number;
    let named = |names: &[&str]| {
        let mut all = drivers.iter().filter(|(known, _)| *known == major);
        all.any(|(_, driver)| names.contains(&driver.as_str()))
    };
    match (major, minor) {
        (1, _) => Some(MEMORY),
        (4, 0..64) | (5 | 7 | 128..=143, _) => Some(TERMINAL),
        (10, 130) => Some("restarts the host (watchdog)"),
        (10, 144) => Some("is the host's firmware memory (nvram)"),
        (10, 223) => Some("types and clicks for the host's users (uinput)"),
        (10, 234 | 236 | 237) => Some(MAKES_DISKS),
        (13, _) => Some(INPUT),
        (21 | 90 | 162, _) => Some(DISK),
        (202, _) => Some("is the registers of the host's processors (msr)"),
        _ if named(&["bsg", "nvme", "nvme-generic", "raw", "mpt2ctl", "mpt3ctl"]) => Some(DISK),
        _ if named(&["hidraw"]) => Some(INPUT),
        _ if named(&["watchdog"]) => Some("restarts the host (watchdog)"),
        _ if named(&["ptm", "pts", "vcs"]) => Some(TERMINAL),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dangerous_devices_are_known_by_their_numbers() {
        let drivers = [(240, "nvme"), (241, "nvidia-uvm"), (242, "hidraw")];
        let drivers = drivers.map(|(major, name)| (major, name.to_owned()));
        let cases = [
            ((1, 1), true),
            ((1, 11), true),
            ((4, 1), true),
            ((4, 64), false),
            ((5, 1), true),
            ((7, 1), true),
            ((10, 200), false),
            ((10, 229), false),
            ((10, 232), false),
            ((10, 237), true),
            ((13, 63), true),
            ((13, 64), true),
            ((21, 0), true),
            ((90, 0), true),
            ((136, 0), true),
            ((195, 0), false),
            ((202, 0), true),
            ((226, 128), false),
            ((240, 0), true),
            ((241, 0), false),
            ((242, 0), true),
        ];
        for ((major, minor), refused) in cases {
            let found = danger(DeviceNumber { major, minor }, &drivers);
            assert_eq!(found.is_some(), refused, "{major}:{minor} {found:?}");
        }
    }

    #[test]
    fn consoles_are_known_by_the_kernels_list() {
        for (line, expected) in [
            ("ttyS0                -W- (EC  p a)    4:64", Some((4, 64))),
            ("tty0                 -WU (E  p  )    4:7", Some((4, 7))),
            ("netcon0              -W- (E   p  )", None),
            ("", None),
        ] {
            let found = console(line).map(|DeviceNumber { major, minor }| (major, minor));
            assert_eq!(found, expected, "{line}");
        }
    }
}
