//! What the caller added to the file system, for the record.

use std::os::fd::OwnedFd;
use std::path::Path;

use nix::sys::statvfs::fstatvfs;

use crate::plan::Plan;
use crate::spec::{Placed, Spec, WORKSPACE};
use record::PlaceRecord;

/// In the order of paths. `tmpfs` are open directories of [`Plan::writable_tmpfs`].
pub(super) fn places(spec: &Spec, plan: &Plan, tmpfs: &[OwnedFd]) -> Vec<PlaceRecord> {
    let place = |path: &Path, kind: &str, writable| PlaceRecord {
        path: path.to_string_lossy().into_owned(),
        kind: kind.to_owned(),
        writable,
        size: None,
    };
    let size = |path: &Path| {
        let mut all = plan.writable_tmpfs().zip(tmpfs);
        let (_, directory) = all.find(|(place, _)| *place == path)?;
        let fs = fstatvfs(directory).ok()?;
        Some(fs.blocks() * fs.fragment_size())
    };
    let binds = (spec.binds.iter()).map(|bind| place(&bind.target, "bind", bind.writable));
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
    let mut all: Vec<PlaceRecord> = binds.chain(absent).chain(made).chain(files).collect();
    all.sort_by(|a, b| a.path.cmp(&b.path));
    all
}

/// Whether what lies at `path` is in a file system that the program writes to.
fn is_writable(spec: &Spec, plan: &Plan, path: &Path) -> bool {
    let binds = (spec.binds.iter()).map(|bind| (bind.target.as_path(), bind.writable));
    let all = binds.chain(plan.writable_tmpfs().map(|tmpfs| (tmpfs, true)));
    let innermost = all
        .filter(|(place, _)| path.starts_with(place))
        .max_by_key(|(place, _)| place.components().count());
    innermost.is_some_and(|(_, writable)| writable)
}
