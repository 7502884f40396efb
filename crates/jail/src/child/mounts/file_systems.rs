//! The cell's own file systems.

use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::mount::MsFlags;

use super::super::fail::{At, Call, Fail, Site};
use super::places::{in_parent, make_or_find};
use super::{BASE, Root};
use plan::{Mount, MountKind, Seal};
use spec::Bytes;
use sys::mount::{FsContext, attr};

/// Creates the file system that `mount` describes, not yet attached. What was needed for that goes
/// to `spent`.
pub(super) fn file_system(
    site: Site,
    mount: &Mount,
    spent: &mut Vec<OwnedFd>,
) -> Result<(OwnedFd, Seal), Fail> {
    let open = |name: &CStr| FsContext::open(name).at(site, Call::Fsopen);
    let set =
        |fs: &FsContext, key: &CStr, value: &CStr| fs.set(key, value).at(site, Call::Fsconfig);
    let number = |text: String| CString::new(text).unwrap_or_default();
    let (fs, attributes, seal) = match &mount.kind {
        MountKind::Tmpfs {
            size,
            inodes,
            mode,
            seal,
        } => {
            return tmpfs(site, *size, *inodes, *mode, spent).map(|fs| (fs, *seal));
        }
        MountKind::Proc => {
            let fs = open(c"proc")?;
            set(&fs, c"subset", c"pid")?;
            set(&fs, c"hidepid", c"invisible")?;
            (fs, BASE | attr::NOEXEC | attr::RDONLY, Seal::Writable)
        }
        MountKind::Devpts { max } => {
            let fs = open(c"devpts")?;
            set(&fs, c"max", &number(max.to_string()))?;
            set(&fs, c"ptmxmode", c"0666")?;
            set(&fs, c"mode", c"0620")?;
            (fs, attr::NOSUID | attr::NOEXEC, Seal::Writable)
        }
        _ => return Err(site.failed(Call::Fsopen, Errno::EINVAL)),
    };
    let mount = fs.mount(attributes).at(site, Call::Fsmount)?;
    spent.push(fs.into());
    Ok((mount, seal))
}

/// Mounts a file system that nobody needs a descriptor of at a new place, by mount(2), which takes
/// all options at once. False where that does not work: the other calls say better why.
pub(super) fn mount_new(root: &mut Root, site: Site, mount: &Mount) -> Result<bool, Fail> {
    let (name, flags, options) = match &mount.kind {
        MountKind::Tmpfs {
            size,
            inodes,
            mode,
            seal: Seal::Writable,
        } => (
            "tmpfs",
            MsFlags::MS_NODEV,
            format!("size={},nr_inodes={inodes},mode={mode:o}", size.0),
        ),
        MountKind::Devpts { max } => (
            "devpts",
            MsFlags::MS_NOEXEC,
            format!("max={max},ptmxmode=0666,mode=0620"),
        ),
        _ => return Ok(false),
    };
    if sys::mount::has_noted_filter() {
        return Ok(false);
    }
    in_parent(root, site, &mount.target, |parent, place| {
        if !make_or_find(site, parent, place, 0o755)? {
            return Ok(false);
        }
        // Nothing else can have put a link there.
        nix::unistd::fchdir(parent).at(site, Call::Fchdir)?;
        let flags = flags | MsFlags::MS_NOSUID;
        Ok(nix::mount::mount(Some(name), place, Some(name), flags, Some(&*options)).is_ok())
    })
}

/// A new tmpfs, not yet attached.
pub(in super::super) fn tmpfs(
    site: Site,
    size: Bytes,
    inodes: u64,
    mode: u32,
    spent: &mut Vec<OwnedFd>,
) -> Result<OwnedFd, Fail> {
    let fs = FsContext::open(c"tmpfs").at(site, Call::Fsopen)?;
    // The kernel's own default needs no call.
    let mode = (mode != 0o1777).then(|| (c"mode", format!("{mode:o}")));
    let limits = [
        (c"size", size.0.to_string()),
        (c"nr_inodes", inodes.to_string()),
    ];
    for (key, value) in limits.into_iter().chain(mode) {
        let value = CString::new(value).unwrap_or_default();
        fs.set(key, &value).at(site, Call::Fsconfig)?;
    }
    let mount = fs.mount(BASE).at(site, Call::Fsmount)?;
    spent.push(fs.into());
    Ok(mount)
}
