//! What the descriptors are that a caller passes to its program.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, readlink};
use nix::sys::socket::sockopt::{AcceptConn, SockType as SockTypeOption};
use nix::sys::socket::{
    AddressFamily, SockType, SockaddrLike as _, SockaddrStorage, getpeername, getsockname,
    getsockopt,
};
use nix::sys::stat::{FileStat, SFlag, fstat};
use nix::sys::statfs::fstatfs;

use super::devices::danger_of;
use record::DescriptorRecord;
use spec::{Descriptor, DeviceNumber};

/// Describes a descriptor that the program is to get as `number`.
///
/// # Errors
/// Why no program gets it.
pub fn describe(fd: &OwnedFd, number: i32) -> Result<Descriptor, String> {
    let failed = |call: &str, errno: Errno| format!("{call}: {errno}");
    let flags = fcntl(fd, FcntlArg::F_GETFL).map_err(|errno| failed("fcntl", errno))?;
    let flags = OFlag::from_bits_retain(flags);
    let stat = fstat(fd).map_err(|errno| failed("fstat", errno))?;
    if flags.contains(OFlag::O_PATH) {
        return Err("was opened with O_PATH, and leads to what lies there".to_owned());
    }
    let name = readlink(format!("/proc/self/fd/{}", fd.as_raw_fd()).as_str());
    let name = name.map_err(|errno| failed("readlink", errno))?;
    let name = name.as_bytes();
    let mut is_network = false;
    let (kind, class) = match SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) {
        // The kernel's objects have names in brackets, whatever their mode says.
        _ if name.starts_with(b"anon_inode:") => ("event", event(name)?),
        SFlag::S_IFREG => ("file", file(fd, &stat, name)?),
        SFlag::S_IFIFO if name.starts_with(b"pipe:") => ("pipe", "unnamed".to_owned()),
        SFlag::S_IFIFO => ("pipe", "named".to_owned()),
        SFlag::S_IFSOCK => {
            let (class, is_inet) = socket(fd)?;
            is_network = is_inet;
            ("socket", class)
        }
        SFlag::S_IFCHR => ("device", device(&stat)?),
        SFlag::S_IFDIR => {
            return Err("is a directory, which leads to every other file of the host".to_owned());
        }
        SFlag::S_IFBLK => {
            return Err("is a block device, which holds the file systems of the host".to_owned());
        }
        _ => return Err("is no file, pipe, socket or device".to_owned()),
    };
    let mode = match flags & OFlag::O_ACCMODE {
        OFlag::O_RDONLY => "read",
        _ if flags.contains(OFlag::O_APPEND) => "append",
        OFlag::O_WRONLY => "write",
        _ => "read+write",
    };
    let record = DescriptorRecord {
        number,
        kind: kind.to_owned(),
        class,
        mode: mode.to_owned(),
    };
    Ok(Descriptor { record, is_network })
}

fn event(name: &[u8]) -> Result<String, String> {
    match name {
        b"anon_inode:[eventfd]" => Ok("eventfd".to_owned()),
        b"anon_inode:[timerfd]" => Ok("timerfd".to_owned()),
        // Others stand for processes, mounts, filters, memory or watches of the host's.
        other => {
            let other = String::from_utf8_lossy(other);
            Err(format!(
                "is `{other}`: only files, pipes, sockets, devices, eventfds and timerfds can be passed"
            ))
        }
    }
}

/// Magic numbers of file systems whose files are the kernel's own (statfs(2)): settings, other
/// processes, namespaces.
const OF_THE_KERNEL: [(u64, &str); 14] = [
    (0x9fa0, "proc"),
    (0x6265_6572, "sysfs"),
    (0x6367_7270, "cgroup2"),
    (0x27_e0eb, "cgroup"),
    (0x6462_6720, "debugfs"),
    (0x7472_6163, "tracefs"),
    (0x7363_6673, "securityfs"),
    (0xf97c_ff8c, "selinuxfs"),
    (0xcafe_4a11, "bpf"),
    (0x6e73_6673, "nsfs"),
    (0x5049_4446, "pidfs"),
    (0x6265_6570, "configfs"),
    (0xde5e_81e4, "efivarfs"),
    (0x4249_4e4d, "binfmt_misc"),
];

fn file(fd: &OwnedFd, stat: &FileStat, name: &[u8]) -> Result<String, String> {
    let found = fstatfs(fd).map_err(|errno| format!("fstatfs: {errno}"))?;
    // Its type has another width with each C library.
    let magic = found.filesystem_type().0 as u64 & 0xffff_ffff;
    if let Some((_, name)) = OF_THE_KERNEL.iter().find(|(known, _)| *known == magic) {
        return Err(format!(
            "is a file of {name}, by which the kernel is read and set"
        ));
    }
    Ok(match stat.st_nlink {
        _ if name.starts_with(b"/memfd:") => "memory",
        0 => "unnamed",
        _ => "named",
    }
    .to_owned())
}

/// Whether it is of the network as well. Unix sockets that are neither connected nor
/// listening could still be connected to abstract addresses of the host's.
fn socket(fd: &OwnedFd) -> Result<(String, bool), String> {
    let failed = |call: &str, errno: Errno| format!("{call}: {errno}");
    let own = getsockname::<SockaddrStorage>(fd.as_raw_fd());
    let family = own.map_err(|errno| failed("getsockname", errno))?.family();
    let listens = getsockopt(fd, AcceptConn).unwrap_or(false);
    let is_connected = getpeername::<SockaddrStorage>(fd.as_raw_fd()).is_ok();
    let state = match (listens, is_connected) {
        (true, _) => "listening",
        (false, true) => "connected",
        (false, false) => "unconnected",
    };
    match family {
        Some(AddressFamily::Inet | AddressFamily::Inet6) => Ok((format!("inet {state}"), true)),
        Some(AddressFamily::Unix) => {
            let kind = getsockopt(fd, SockTypeOption).map_err(|e| failed("getsockopt", e))?;
            match (kind, state) {
                (SockType::Stream | SockType::SeqPacket, "listening" | "connected") => {
                    Ok((format!("unix {state}"), false))
                }
                _ => Err(
                    "is a Unix socket that can be connected to others of the host's; only \
                          connected and listening stream sockets cannot"
                        .to_owned(),
                ),
            }
        }
        _ => Err("is a socket of the kernel's, or of other machines".to_owned()),
    }
}

fn device(stat: &FileStat) -> Result<String, String> {
    let number = DeviceNumber::of(stat.st_rdev);
    let DeviceNumber { major, minor } = number;
    match danger_of(number) {
        // Those that every cell has: null, zero, full, random and urandom.
        Some(_) if major == 1 && [3, 5, 7, 8, 9].contains(&minor) => {}
        Some(reason) => return Err(format!("is device {major}:{minor}, which {reason}")),
        None => {}
    }
    Ok(format!("{major}:{minor}"))
}
