//! Opening what is bound, with the caller's ids.

use std::ffi::CStr;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::path::Path;

use nix::errno::Errno;
use nix::sys::stat::{SFlag, fstat};

use super::super::fail::{At, Call, Fail, Site};
use super::super::report::Reporter;
use super::places::c_path;
use plan::rootfs;
use plan::{Mount, MountKind, Namespace, Plan, Source};
use record::error::Step;
use spec::DeviceNumber;
use sys::mount::{self, OpenTreeError, attr};

/// Detached copies of the plan's bind sources, by index.
pub(in super::super) type Sources = Vec<Option<OwnedFd>>;

/// Opens every bind source, except those in `opened`. From here on the descriptor
/// counts, whatever the path names later.
pub(in super::super) fn open_sources(
    plan: &Plan,
    mut opened: Sources,
    report: &Reporter<'_>,
) -> Result<Sources, Fail> {
    if !plan.has(Namespace::Mount) {
        return Ok(Vec::new());
    }
    let site = report.enter(Step::Mount);
    mount::make_all_private().at(site, Call::MountSetattr)?;
    plan.mounts
        .iter()
        .enumerate()
        .map(
            |(index, mount)| match opened.get_mut(index).and_then(Option::take) {
                Some(tree) => Ok(Some(tree)),
                None => open_source(site.on(index), mount),
            },
        )
        .collect()
}

fn open_source(site: Site, mount: &Mount) -> Result<Option<OwnedFd>, Fail> {
    let opened = match &mount.kind {
        MountKind::Bind { .. } | MountKind::Overlay { .. } => open_bind(mount),
        MountKind::Device { source, number } => open_device(source, *number).map(Some),
        MountKind::HostProc => {
            open_tree(libc::AT_FDCWD, c"/proc", attr::RDONLY | attr::NODEV).map(Some)
        }
        _ => Ok(None),
    };
    opened.map_err(|(call, errno)| site.failed(call, errno))
}

/// A detached mount of the host's part of a bind or an overlay; `None` for another mount.
///
/// # Errors
/// The system call that failed, and its error number.
pub(crate) fn open_bind(mount: &Mount) -> Result<Option<OwnedFd>, (Call, Errno)> {
    let (source, writable, device) = match &mount.kind {
        MountKind::Bind {
            source,
            writable,
            device,
            ..
        } => (source, writable, device),
        MountKind::Overlay { source, .. } => (&Source::Host(source.clone()), &false, &false),
        _ => return Ok(None),
    };
    let attributes =
        if *writable { 0 } else { attr::RDONLY } | if *device { attr::NOEXEC } else { attr::NODEV };
    let tree = match source {
        Source::Host(path) => {
            let path = c_path(path).map_err(|errno| (Call::OpenTree, errno))?;
            open_tree(libc::AT_FDCWD, &path, attributes)
        }
        Source::Beneath { base, path } => {
            let found = rootfs::open_beneath(base, path).map_err(|errno| (Call::Openat2, errno))?;
            open_tree(found.as_raw_fd(), c"", attributes)
        }
    };
    tree.map(Some)
}

/// A detached mount of a device node, which must be the device that the plan has: only this
/// mount lets devices be opened. It is read-only so that the node's mode stays; a device
/// can be written to all the same.
fn open_device(path: &Path, number: DeviceNumber) -> Result<OwnedFd, (Call, Errno)> {
    let path = c_path(path).map_err(|errno| (Call::OpenTree, errno))?;
    let tree = open_tree(libc::AT_FDCWD, &path, attr::RDONLY | attr::NOEXEC)?;
    let stat = fstat(&tree).map_err(|errno| (Call::OpenTree, errno))?;
    let kind = SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits());
    match kind == SFlag::S_IFCHR && DeviceNumber::of(stat.st_rdev) == number {
        true => Ok(tree),
        false => Err((Call::OpenTree, Errno::ESTALE)),
    }
}

fn open_tree(dir: RawFd, path: &CStr, attributes: u64) -> Result<OwnedFd, (Call, Errno)> {
    mount::open_tree(dir, path, attributes | attr::NOSUID).map_err(|error| match error {
        OpenTreeError::Open(errno) => (Call::OpenTree, errno),
        OpenTreeError::Attributes(errno) => (Call::MountSetattr, errno),
    })
}
