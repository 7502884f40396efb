//! Building the cell's file system.
//!
//! Everything is done on descriptors. Sources are opened first, with the caller's
//! ids; targets are opened beneath the new root without following any link, so that
//! nothing in a rootfs or a bind can lead a mount or a new file elsewhere.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, SFlag, fstat, mkdirat, mknodat};
use nix::unistd::symlinkat;

use super::Certificates;
use super::fail::{At, Call, Fail, Site};
use super::overlay;
use super::program::RESERVED;
use super::report::Reporter;
use crate::plan::{Mount, MountKind, Namespace, Plan, Seal, Source};
use crate::rootfs;
use crate::spec::{Bytes, DeviceNumber, WORKSPACE};
use record::error::Step;
use sys::beneath::Beneath;
use sys::mount::{self, FsContext, attr};
use sys::process::{close_together, duplicate_above};

/// Detached copies of the plan's bind sources, by index.
pub(super) type Sources = Vec<Option<OwnedFd>>;

/// The new root: the mount itself, whether it becomes read-only at the end, and other mounts
/// that do.
pub(super) struct Root {
    pub(super) mount: OwnedFd,
    is_sealed: bool,
    seals: Vec<OwnedFd>,
    /// Descriptors of mounts that are attached, to be closed together.
    spent: Vec<OwnedFd>,
    /// What the program changes in each of the plan's overlays.
    pub(super) uppers: Vec<OwnedFd>,
    /// The directory below the root that something was made in last.
    last: Option<(PathBuf, OwnedFd)>,
}

pub(super) const BASE: u64 = attr::NOSUID | attr::NODEV;

/// Opens every bind source, except those in `opened`. From here on the descriptor
/// counts, whatever the path names later.
pub(super) fn open_sources(
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
    let tree = mount::clone_tree(dir, path).map_err(|errno| (Call::OpenTree, errno))?;
    mount::set_attributes(tree.as_fd(), attributes | attr::NOSUID, true)
        .map_err(|errno| (Call::MountSetattr, errno))?;
    Ok(tree)
}

/// Puts the cell's file system together on a new root; `None` for a plan without
/// mounts.
pub(super) fn build(
    plan: &Plan,
    mut sources: Sources,
    certificates: &Certificates,
    report: &Reporter<'_>,
) -> Result<Option<Root>, Fail> {
    report.enter(Step::Mount);
    let mut root: Option<Root> = None;
    for (index, mount) in plan.mounts.iter().enumerate() {
        let site = Site::new(Step::Mount).on(index);
        let source = sources.get_mut(index).and_then(Option::take);
        match &mut root {
            None => root = Some(start(site, mount)?),
            Some(root) => match &mount.kind {
                MountKind::Certificates => {
                    make_file(root, site, &mount.target, &certificates.bundle)?;
                }
                MountKind::JavaCertificates => {
                    make_file(root, site, &mount.target, &certificates.java)?;
                }
                _ => place(root, site, mount, source)?,
            },
        }
    }
    if let Some(root) = &mut root {
        close_together(std::mem::take(&mut root.spent));
    }
    Ok(root)
}

/// The first mount is the root. Absolute paths still lead to the caller's root,
/// which the new one covers but does not replace before [`change_root`].
fn start(site: Site, mount: &Mount) -> Result<Root, Fail> {
    let (fs, seal) = file_system(site, mount)?;
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let top = open("/", flags, Mode::empty()).at(site, Call::Openat2)?;
    mount::attach(fs.as_fd(), top.as_fd()).at(site, Call::MoveMount)?;
    Ok(Root {
        mount: fs,
        is_sealed: seal == Seal::ReadOnly,
        seals: Vec::new(),
        spent: Vec::new(),
        uppers: Vec::new(),
        last: None,
    })
}

impl Root {
    /// The root directory.
    pub(super) fn top(&self) -> &OwnedFd {
        &self.mount
    }

    /// Attaches a detached file system at a place of its own.
    pub(super) fn attach(&mut self, site: Site, target: &Path, fs: &OwnedFd) -> Result<(), Fail> {
        match attach_at_new(self, site, target, fs, true)? {
            true => Ok(()),
            false => {
                let target = open_in(self, target).at(site, Call::Openat2)?;
                mount::attach(fs.as_fd(), target.as_fd()).at(site, Call::MoveMount)
            }
        }
    }

    /// Closes a descriptor with others, at the end.
    pub(super) fn put_away(&mut self, fd: OwnedFd) {
        self.spent.push(fd);
    }

    /// Makes a directory.
    pub(super) fn make(&mut self, site: Site, target: &Path) -> Result<(), Fail> {
        make_directory(self, site, target, 0o755).map(drop)
    }
}

fn place(root: &mut Root, site: Site, mount: &Mount, source: Option<OwnedFd>) -> Result<(), Fail> {
    match (&mount.kind, source) {
        (MountKind::Directory { mode }, _) if mount.create => {
            make_directory(root, site, &mount.target, *mode).map(drop)
        }
        (MountKind::Directory { .. }, _) => {
            let directory = Beneath::new(&root.mount).directory(relative(&mount.target));
            directory.map(drop).at(site, Call::Openat2)
        }
        (MountKind::File { content }, _) => {
            make_file(root, site, &mount.target, content.as_bytes())
        }
        (MountKind::Symlink { to }, _) => make_symlink(root, site, &mount.target, to),
        (MountKind::Machine(machine), _) => super::machine::place(root, site, machine),
        (MountKind::Cover { from }, _) => {
            let file = open_in(root, from).at(site, Call::Openat2)?;
            let file = mount::clone_tree(file.as_raw_fd(), c"").at(site, Call::OpenTree)?;
            mount::set_attributes(file.as_fd(), BASE | attr::RDONLY | attr::NOEXEC, false)
                .at(site, Call::MountSetattr)?;
            attach(root, site, mount, &file, false)
        }
        (MountKind::Workspace, _) => {
            let workspace = open_in(root, Path::new(WORKSPACE)).at(site, Call::Openat2)?;
            let workspace =
                mount::clone_tree(workspace.as_raw_fd(), c"").at(site, Call::OpenTree)?;
            attach(root, site, mount, &workspace, true)
        }
        (MountKind::Overlay { .. }, Some(lower)) => overlay::place(root, site, mount, &lower),
        (_, Some(source)) => {
            let is_directory =
                !mount.kind.is_device() && is_directory(&source).at(site, Call::OpenTree)?;
            attach(root, site, mount, &source, is_directory)?;
            root.spent.push(source);
            Ok(())
        }
        (_, None) => {
            let (fs, seal) = file_system(site, mount)?;
            attach(root, site, mount, &fs, true)?;
            match seal {
                Seal::ReadOnly => root.seals.push(fs),
                Seal::Writable => root.spent.push(fs),
            }
            Ok(())
        }
    }
}

pub(super) fn attach(
    root: &mut Root,
    site: Site,
    mount: &Mount,
    source: &OwnedFd,
    directory: bool,
) -> Result<(), Fail> {
    // It may cover the directory that is remembered.
    root.last
        .take_if(|(path, _)| path.starts_with(&mount.target));
    if mount.create && attach_at_new(root, site, &mount.target, source, directory)? {
        return Ok(());
    }
    let target = open_in(root, &mount.target).at(site, Call::Openat2)?;
    mount::attach(source.as_fd(), target.as_fd()).at(site, Call::MoveMount)
}

/// Makes a place and attaches `source` there by the place's name, which nothing else
/// can have changed; false if the name exists already.
fn attach_at_new(
    root: &mut Root,
    site: Site,
    target: &Path,
    source: &OwnedFd,
    directory: bool,
) -> Result<bool, Fail> {
    in_parent(root, site, target, |parent, name| {
        let made = if directory {
            mkdirat(parent, name, Mode::from_bits_truncate(0o755))
        } else {
            mknodat(
                parent,
                name,
                SFlag::S_IFREG,
                Mode::from_bits_truncate(0o444),
                0,
            )
        };
        match made {
            Ok(()) => {}
            Err(Errno::EEXIST) => return Ok(false),
            Err(errno) => return Err(site.failed(Call::Mkdir, errno)),
        }
        let name = c_path(name).at(site, Call::MoveMount)?;
        mount::attach_at(source.as_fd(), parent.as_fd(), &name).at(site, Call::MoveMount)?;
        Ok(true)
    })
}

pub(super) fn is_directory(fd: &OwnedFd) -> Result<bool, Errno> {
    let mode = fstat(fd)?.st_mode;
    Ok(SFlag::from_bits_truncate(mode & SFlag::S_IFMT.bits()) == SFlag::S_IFDIR)
}

/// Creates the file system that `mount` describes, not yet attached.
fn file_system(site: Site, mount: &Mount) -> Result<(OwnedFd, Seal), Fail> {
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
            return tmpfs(site, *size, *inodes, *mode).map(|fs| (fs, *seal));
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
    let fs = fs.mount(attributes).at(site, Call::Fsmount)?;
    Ok((fs, seal))
}

/// A new tmpfs, not yet attached.
pub(super) fn tmpfs(site: Site, size: Bytes, inodes: u64, mode: u32) -> Result<OwnedFd, Fail> {
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
    fs.mount(BASE).at(site, Call::Fsmount)
}

/// Opens the tmpfs that the program writes to, for the supervisor to look into
/// once all is dead. They are opened before the program can change their modes, and
/// above the numbers that the program's descriptors get.
pub(super) fn open_scratch(plan: &Plan, root: &Root) -> Result<Vec<OwnedFd>, Fail> {
    let site = Site::new(Step::Mount);
    plan.writable_tmpfs()
        .map(|path| {
            let low = Beneath::new(&root.mount).open_directory(relative(path));
            let low = low.at(site, Call::Openat2)?;
            duplicate_above(&low, RESERVED).at(site, Call::Dup)
        })
        .chain(
            (root.uppers.iter()).map(|upper| duplicate_above(upper, RESERVED).at(site, Call::Dup)),
        )
        .collect()
}

fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

pub(super) fn open_in(root: &Root, target: &Path) -> Result<OwnedFd, Errno> {
    Beneath::new(&root.mount).find(relative(target))
}

/// Calls `make` with the directory that `target` is in, which is made as needed,
/// and `target`'s name in it. Neighbours follow each other in the plan, so the
/// directory opened last mostly is the one wanted next.
fn in_parent<T>(
    root: &mut Root,
    site: Site,
    target: &Path,
    make: impl FnOnce(&OwnedFd, &Path) -> Result<T, Fail>,
) -> Result<T, Fail> {
    let name = Path::new(target.file_name().unwrap_or_default());
    let Some(parent) = target.parent().filter(|parent| parent.parent().is_some()) else {
        return make(&root.mount, name);
    };
    if let Some((path, directory)) = &root.last
        && path == parent
    {
        return make(directory, name);
    }
    let directory = make_directory(root, site, parent, 0o755)?;
    let made = make(&directory, name);
    root.last = Some((parent.to_owned(), directory));
    made
}

/// Makes `target` and what leads to it, and opens it.
pub(super) fn make_directory(
    root: &mut Root,
    site: Site,
    target: &Path,
    mode: u32,
) -> Result<OwnedFd, Fail> {
    in_parent(root, site, target, |parent, name| {
        match mkdirat(parent, name, Mode::from_bits_truncate(mode)) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(site.failed(Call::Mkdir, errno)),
        }
        Beneath::new(parent).directory(name).at(site, Call::Openat2)
    })
}

fn make_file(root: &mut Root, site: Site, target: &Path, content: &[u8]) -> Result<(), Fail> {
    let file = in_parent(root, site, target, |parent, name| {
        let file = Beneath::new(parent).create(name, Mode::from_bits_truncate(0o444));
        file.at(site, Call::Openat2)
    })?;
    write_all(&file.into(), content).at(site, Call::Write)
}

fn make_symlink(root: &mut Root, site: Site, target: &Path, to: &Path) -> Result<(), Fail> {
    in_parent(root, site, target, |parent, name| {
        symlinkat(to, parent, name).at(site, Call::Symlink)
    })
}

/// Writes all of `content`.
pub(super) fn write_all(to: &OwnedFd, content: &[u8]) -> Result<(), Errno> {
    let mut rest = content;
    while !rest.is_empty() {
        let written = nix::unistd::write(to, rest)?;
        rest = &rest[written..];
    }
    Ok(())
}

/// Opens `path` below a directory for a new file; makes the directories that lead to
/// it.
pub(super) fn create_beneath(top: &OwnedFd, site: Site, path: &Path) -> Result<OwnedFd, Fail> {
    let fail = |errno| site.failed(Call::Openat2, errno);
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(fail(Errno::EINVAL));
    };
    let parent = Beneath::new(top).make_directories(parent, Mode::from_bits_truncate(0o755));
    let file = Beneath::new(&parent.map_err(fail)?).create(name, Mode::from_bits_truncate(0o644));
    file.map(OwnedFd::from).map_err(fail)
}

/// Makes the scaffolding read-only and the new root the root directory.
pub(super) fn change_root(root: Option<Root>, report: &Reporter<'_>) -> Result<(), Fail> {
    let Some(root) = root else {
        return Ok(());
    };
    let site = report.enter(Step::Pivot);
    let root_seal = root.is_sealed.then_some(&root.mount);
    for seal in root_seal.into_iter().chain(&root.seals) {
        mount::set_attributes(seal.as_fd(), BASE | attr::RDONLY, false)
            .at(site, Call::MountSetattr)?;
    }
    nix::unistd::fchdir(&root.mount).at(site, Call::Fchdir)?;
    mount::pivot_to_cwd().at(site, Call::PivotRoot)
}

pub(super) fn c_path(path: &Path) -> Result<CString, Errno> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)
}
