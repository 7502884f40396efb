//! What the caller added to the file system, for the record.

use std::os::fd::OwnedFd;
use std::path::Path;

use nix::sys::statvfs::fstatvfs;

use plan::{MountKind, Plan};
use record::PlaceRecord;
use spec::{Placed, Spec, WORKSPACE};

/// In the order of paths. `tmpfs` are open directories of [`Plan::writable_tmpfs`], and then
/// those of the plan's overlays.
pub(super) fn places(spec: &Spec, plan: &Plan, tmpfs: &[OwnedFd]) -> Vec<PlaceRecord> {
    let place = |path: &Path, kind: &str, writable| PlaceRecord {
        path: path.to_string_lossy().into_owned(),
        kind: kind.to_owned(),
        writable,
        size: None,
        device: None,
    };
    let size = |path: &Path| {
        let mut all = plan.writable_tmpfs().zip(tmpfs);
        let (_, directory) = all.find(|(place, _)| *place == path)?;
        size_of(directory)
    };
    let uppers = tmpfs
        .get(plan.writable_tmpfs().count()..)
        .unwrap_or_default();
    let binds = (spec.binds.iter()).map(|bind| place(&bind.target, "bind", bind.writable));
    let overlays = spec.overlays.iter().map(|overlay| {
        let mut all = plan.overlays.iter().zip(uppers);
        let upper = all.find(|(other, _)| other.target == overlay.target);
        PlaceRecord {
            size: upper.and_then(|(_, upper)| size_of(upper)),
            ..place(&overlay.target, "overlay", true)
        }
    });
    let absent = spec.absent.iter().map(|path| place(path, "absent", false));
    let made = spec.places.iter().map(|made| match made.what {
        Placed::Tmpfs { .. } => PlaceRecord {
            size: size(&made.path),
            ..place(&made.path, "tmpfs", true)
        },
        Placed::Directory => place(&made.path, "directory", is_writable(spec, plan, &made.path)),
        Placed::Symlink { .. } => place(&made.path, "symlink", false),
        Placed::Workspace => {
            let writable = is_writable(spec, plan, Path::new(WORKSPACE));
            place(&made.path, "workspace", writable)
        }
    });
    let files = (spec.read_only_files.iter()).map(|file| place(&file.path, "file", false));
    let devices = spec.devices.iter().map(|device| PlaceRecord {
        device: number(plan, &device.path()),
        ..place(&device.path(), "device", !device.read_only)
    });
    let protected = plan.protected.iter().flat_map(|protected| {
        let paths = protected.paths.iter();
        paths.map(|path| place(&protected.target.join(path), "protected", false))
    });
    let callers = binds.chain(overlays).chain(absent).chain(made).chain(files);
    let callers = callers.chain(protected);
    let mut all: Vec<PlaceRecord> = callers.chain(devices).collect();
    all.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    all
}

fn size_of(directory: &OwnedFd) -> Option<u64> {
    let fs = fstatvfs(directory).ok()?;
    Some(fs.blocks() * fs.fragment_size())
}

/// The number of the device at `path`.
fn number(plan: &Plan, path: &Path) -> Option<String> {
    plan.mounts.iter().find_map(|mount| match mount.kind {
        MountKind::Device { number, .. } if mount.target == path => {
            Some(format!("{}:{}", number.major, number.minor))
        }
        _ => None,
    })
}

/// Whether what lies at `path` is in a file system that the program writes to.
fn is_writable(spec: &Spec, plan: &Plan, path: &Path) -> bool {
    let binds = (spec.binds.iter()).map(|bind| (bind.target.as_path(), bind.writable));
    let overlays = plan.overlays.iter();
    let overlays = overlays.map(|overlay| (overlay.target.as_path(), true));
    let all = binds
        .chain(overlays)
        .chain(plan.writable_tmpfs().map(|tmpfs| (tmpfs, true)));
    let innermost = all
        .filter(|(place, _)| path.starts_with(place))
        .max_by_key(|(place, _)| place.components().count());
    innermost.is_some_and(|(_, writable)| writable)
}
