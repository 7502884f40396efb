//! Writable views of host directories (overlayfs).
//!
//! The kernel takes layers by path. They are mounted for that moment in a directory of the
//! cell's own, and named relative to it, so that no path of the host is used a second time
//! or shown in the cell. Then they are detached: the overlay has mounts of its own, and the
//! program finds its upper layer nowhere.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::sys::stat::{Mode, fchmod, fstat, mkdirat};

use super::fail::{At, Call, Fail, Site};
use super::mounts::{self, BASE, Root, is_directory};
use languages::DIRECTORY;
use plan::{Mount, MountKind};
use sys::beneath::Beneath;
use sys::mount::{self, FsContext};
use sys::xattr;

/// Puts an overlay over the host's directory `lower` in its place.
pub(super) fn place(
    root: &mut Root,
    site: Site,
    mount: &Mount,
    lower: &OwnedFd,
) -> Result<(), Fail> {
    let MountKind::Overlay { size, inodes, .. } = &mount.kind else {
        return Err(site.failed(Call::Fsopen, Errno::EINVAL));
    };
    if !is_directory(lower).at(site, Call::OpenTree)? {
        return Err(site.failed(Call::OpenTree, Errno::ENOTDIR));
    }
    let layers = Path::new(DIRECTORY).join("overlay");
    let layers = mounts::make_directory(root, site, &layers, 0o700)?;
    let scratch = mounts::tmpfs(site, *size, *inodes, 0o700, &mut root.spent)?;
    for (name, layer) in [(c"lower", lower), (c"scratch", &scratch)] {
        match mkdirat(&layers, name, Mode::S_IRWXU) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(site.failed(Call::Mkdir, errno)),
        }
        mount::attach_at(layer.as_fd(), layers.as_fd(), name).at(site, Call::MoveMount)?;
    }
    let upper = make_upper(site, &scratch, lower)?;
    nix::unistd::fchdir(&layers).at(site, Call::Fchdir)?;
    let merged = merge().map_err(|(call, errno)| site.failed(call, errno))?;
    for name in [c"lower", c"scratch"] {
        mount::detach_in_cwd(name).at(site, Call::Umount)?;
    }
    mounts::attach(root, site, mount, &merged, true)?;
    root.uppers.push(upper);
    Ok(())
}

/// The upper layer. Its root has the mode of the directory that it covers.
fn make_upper(site: Site, scratch: &OwnedFd, lower: &OwnedFd) -> Result<OwnedFd, Fail> {
    for name in [c"upper", c"work"] {
        mkdirat(scratch, name, Mode::S_IRWXU).at(site, Call::Mkdir)?;
    }
    let upper = Beneath::new(scratch).list(c"upper");
    let upper = upper.at(site, Call::Openat2)?;
    let mode = fstat(lower).at(site, Call::OpenTree)?.st_mode;
    let mode = Mode::from_bits_truncate(mode) | Mode::S_IRWXU;
    fchmod(&upper, mode).at(site, Call::Mkdir)?;
    // Without such attributes a directory that was removed and made again would show the
    // content of the old one.
    let tried = c"user.cellblock";
    xattr::set(upper.as_fd(), tried, b"y").at(site, Call::Fsetxattr)?;
    xattr::remove(upper.as_fd(), tried).at(site, Call::Fsetxattr)?;
    upper
        .as_fd()
        .try_clone_to_owned()
        .map_err(|_| site.failed(Call::Dup, Errno::EMFILE))
}

/// Of the layers in the current directory.
fn merge() -> Result<OwnedFd, (Call, Errno)> {
    let failed = |call: Call| move |errno: Errno| (call, errno);
    let fs = FsContext::open(c"overlay").map_err(failed(Call::Fsopen))?;
    for (key, layer) in [
        (c"lowerdir", c"lower"),
        (c"upperdir", c"scratch/upper"),
        (c"workdir", c"scratch/work"),
    ] {
        fs.set(key, layer).map_err(failed(Call::Fsconfig))?;
    }
    // In a user namespace the attributes of overlayfs are the user's.
    fs.set_flag(c"userxattr").map_err(failed(Call::Fsconfig))?;
    fs.mount(BASE).map_err(failed(Call::Fsmount))
}
