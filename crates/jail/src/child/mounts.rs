//! Building the cell's file system.
//!
//! Everything is done on descriptors. Sources are opened first, with the caller's
//! ids; targets are opened beneath the new root without following any link, so that
//! nothing in a rootfs or a bind can lead a mount or a new file elsewhere.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use super::Certificates;
use super::fail::{At, Call, Fail, Site};
use super::overlay;
use super::program::RESERVED;
use super::protect;
use super::report::Reporter;
use plan::{Mount, MountKind, Plan, Seal};
use record::error::Step;
use spec::WORKSPACE;
use sys::beneath::Beneath;
use sys::mount::{self, attr};
use sys::process::{close_together, duplicate_above};

mod file_systems;
mod places;
mod sources;

pub(super) use file_systems::tmpfs;
pub(super) use places::{attach, create_beneath, is_directory, make_directory, open_in, write_all};
pub(crate) use sources::open_bind;
pub(super) use sources::{Sources, open_sources};

use file_systems::{file_system, mount_new};
use places::{attach_at_new, ensure_directory, make_file, make_symlink, relative};

/// Descriptors that wait to be closed, of the few hundred that a caller may have allowed.
const MOST_SPENT: usize = 64;
/// Directories below the root that are kept open: neighbours mostly follow each other in the plan.
const KEPT_OPEN: usize = 8;

/// The new root: the mount itself, whether it becomes read-only at the end, and other mounts
/// that do.
pub(super) struct Root {
    pub(super) mount: OwnedFd,
    is_sealed: bool,
    seals: Vec<OwnedFd>,
    /// Descriptors of mounts that are attached and the like, to be closed together.
    pub(super) spent: Vec<OwnedFd>,
    /// What the program changes in each of the plan's overlays.
    pub(super) uppers: Vec<OwnedFd>,
    /// Directories below the root that something was made in, the last one at the end.
    known: Vec<(PathBuf, OwnedFd)>,
}

pub(super) const BASE: u64 = attr::NOSUID | attr::NODEV;

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
                    make_file(root, site, &mount.target, &certificates.bundle, false)?;
                }
                MountKind::JavaCertificates => {
                    make_file(root, site, &mount.target, &certificates.java, false)?;
                }
                _ => place(root, site, mount, source)?,
            },
        }
    }
    if let Some(root) = &mut root {
        let known = root.known.drain(..).map(|(_, directory)| directory);
        let spent = known.chain(root.spent.drain(..)).collect();
        close_together(spent);
    }
    Ok(root)
}

/// The first mount is the root. Absolute paths still lead to the caller's root,
/// which the new one covers but does not replace before [`change_root`].
fn start(site: Site, mount: &Mount) -> Result<Root, Fail> {
    let mut spent = Vec::new();
    let (fs, seal) = file_system(site, mount, &mut spent)?;
    // The path is absolute, so that it counts alone.
    mount::attach_at(fs.as_fd(), fs.as_fd(), c"/").at(site, Call::MoveMount)?;
    Ok(Root {
        mount: fs,
        is_sealed: seal == Seal::ReadOnly,
        seals: Vec::new(),
        spent,
        uppers: Vec::new(),
        known: Vec::new(),
    })
}

impl Root {
    /// The root directory.
    pub(super) fn top(&self) -> &OwnedFd {
        &self.mount
    }

    /// Attaches a detached file system at a place of its own.
    pub(super) fn attach(&mut self, site: Site, target: &Path, fs: &OwnedFd) -> Result<(), Fail> {
        self.forget(target);
        match attach_at_new(self, site, target, fs, true)? {
            true => Ok(()),
            false => {
                let target = open_in(self, target).at(site, Call::Openat2)?;
                mount::attach(fs.as_fd(), target.as_fd()).at(site, Call::MoveMount)
            }
        }
    }

    /// Closes a descriptor with others, later.
    pub(super) fn put_away(&mut self, fd: OwnedFd) {
        self.spent.push(fd);
        if self.spent.len() > MOST_SPENT {
            close_together(std::mem::take(&mut self.spent));
        }
    }

    /// Makes a directory, on which something is about to be mounted.
    pub(super) fn make(&mut self, site: Site, target: &Path) -> Result<(), Fail> {
        self.forget(target);
        ensure_directory(self, site, target, 0o755)
    }

    /// The directory at `path`, if it is open.
    fn known(&self, path: &Path) -> Option<&OwnedFd> {
        let mut known = self.known.iter().rev();
        known.find_map(|(other, directory)| (other == path).then_some(directory))
    }

    /// Keeps a directory open for a while.
    fn remember(&mut self, path: &Path, directory: OwnedFd) {
        if self.known.len() == KEPT_OPEN {
            let (_, oldest) = self.known.remove(0);
            self.spent.push(oldest);
        }
        self.known.push((path.to_owned(), directory));
    }

    /// Forgets the directories that something on `path` covers.
    pub(super) fn forget(&mut self, path: &Path) {
        let covered = |(known, _): &mut (PathBuf, OwnedFd)| known.starts_with(path);
        let covered = self.known.extract_if(.., covered);
        self.spent.extend(covered.map(|(_, directory)| directory));
    }
}

fn place(root: &mut Root, site: Site, mount: &Mount, source: Option<OwnedFd>) -> Result<(), Fail> {
    match (&mount.kind, source) {
        (MountKind::Directory { mode }, _) if mount.create => {
            ensure_directory(root, site, &mount.target, *mode)
        }
        (MountKind::Directory { .. }, _) => {
            let directory = Beneath::new(&root.mount).directory(relative(&mount.target));
            directory.map(drop).at(site, Call::Openat2)
        }
        (
            MountKind::File {
                content,
                executable,
            },
            _,
        ) => make_file(root, site, &mount.target, content.as_bytes(), *executable),
        (MountKind::Symlink { to }, _) => make_symlink(root, site, &mount.target, to),
        (MountKind::Machine(machine), _) => super::machine::place(root, site, machine),
        (MountKind::Cover { from, executable }, _) => {
            let noexec = if *executable { 0 } else { attr::NOEXEC };
            let file = open_in(root, from).at(site, Call::Openat2)?;
            let file = mount::clone_tree(file.as_raw_fd(), c"").at(site, Call::OpenTree)?;
            mount::set_attributes(file.as_fd(), BASE | attr::RDONLY | noexec, false)
                .at(site, Call::MountSetattr)?;
            attach(root, site, mount, &file, false)
        }
        (MountKind::Workspace, _) => {
            let workspace = open_in(root, Path::new(WORKSPACE)).at(site, Call::Openat2)?;
            let workspace =
                mount::clone_tree(workspace.as_raw_fd(), c"").at(site, Call::OpenTree)?;
            attach(root, site, mount, &workspace, true)
        }
        (MountKind::Protected { bind }, _) => protect::place(root, site, bind, &mount.target),
        (MountKind::Overlay { .. }, Some(lower)) => overlay::place(root, site, mount, &lower),
        (_, Some(source)) => {
            let is_directory = match mount.kind {
                MountKind::Bind {
                    is_directory: Some(known),
                    ..
                } => known,
                _ if mount.kind.is_device() => false,
                _ => is_directory(&source).at(site, Call::OpenTree)?,
            };
            attach(root, site, mount, &source, is_directory)?;
            root.spent.push(source);
            Ok(())
        }
        (_, None) if mount.create && mount_new(root, site, mount)? => Ok(()),
        (_, None) => {
            let (fs, seal) = file_system(site, mount, &mut root.spent)?;
            attach(root, site, mount, &fs, true)?;
            match seal {
                Seal::ReadOnly => root.seals.push(fs),
                Seal::Writable => root.spent.push(fs),
            }
            Ok(())
        }
    }
}

/// Opens the tmpfs that the program writes to, for the supervisor to look into
/// once all is dead. They are opened before the program can change their modes, and
/// above the numbers that the program's descriptors get.
pub(super) fn open_scratch(plan: &Plan, root: &Root) -> Result<Vec<OwnedFd>, Fail> {
    let site = Site::new(Step::Mount);
    let open = |path: &Path| {
        let low = Beneath::new(&root.mount).open_directory(relative(path));
        low.at(site, Call::Openat2)
    };
    let low: Vec<OwnedFd> = plan
        .writable_tmpfs()
        .map(open)
        .collect::<Result<_, Fail>>()?;
    let high = (low.iter().chain(&root.uppers))
        .map(|low| duplicate_above(low, RESERVED).at(site, Call::Dup))
        .collect();
    close_together(low);
    high
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
