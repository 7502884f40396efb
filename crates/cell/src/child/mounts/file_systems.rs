//! The cell's own file systems.

use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;

use nix::errno::Errno;

use super::super::fail::{At, Call, Fail, Site};
use super::BASE;
use crate::plan::{Mount, MountKind, Seal};
use crate::spec::Bytes;
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
