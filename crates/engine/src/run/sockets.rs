//! Unix sockets beneath the directories that a cell is shown: no namespace keeps
//! a program from connecting to one that it can name.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nix::dir::Type;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

use plan::Plan;
use plan::probe::mounts::{MOUNTINFO, mounts};
use spec::{Bind, Spec};
use sys::beneath::{Beneath, entries};
use sys::mount::mount_id;

/// The policy under which no socket can be connected to one in a directory.
const WITHOUT: &str = "no-unix-sockets";

/// Entries of one directory tree that are looked at: where there are sockets,
/// they are near the top, and a launch must not wait for a large tree.
const MOST_ENTRIES: usize = 2000;
/// Directories of it.
const MOST_DIRECTORIES: usize = 100;

/// A warning for each bind of the caller's that holds sockets.
pub(super) fn warnings(spec: &Spec, plan: &Plan) -> Vec<String> {
    if plan.seccomp.as_deref() == Some(WITHOUT) {
        return Vec::new();
    }
    spec.binds.iter().filter_map(warning).collect()
}

fn warning(bind: &Bind) -> Option<String> {
    let found = sockets(&bind.source);
    let first = found.first()?;
    let inside = bind.target.join(first.strip_prefix(&bind.source).ok()?);
    let more = match found.len() - 1 {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let option = if bind.writable { "--rw" } else { "--ro" };
    Some(format!(
        "{option} {:?} shows a Unix socket ({inside:?}{more}), to which the program can connect without network: show a directory without it, or use --seccomp {WITHOUT}",
        bind.source
    ))
}

/// File systems that answer without a server. Others are not looked at: a launch
/// must not wait for a server that is gone.
const LOCAL: [&str; 10] = [
    "bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs",
];

/// Whether `file` is on one of these, by what the kernel itself knows.
fn is_local(file: &OwnedFd) -> bool {
    let Ok(id) = mount_id(file.as_fd()) else {
        return false;
    };
    let mountinfo = fs::read(MOUNTINFO).unwrap_or_default();
    let mount = mounts(&mountinfo).find(|mount| mount.has_id(id));
    mount.is_some_and(|mount| LOCAL.iter().any(|kind| mount.is_of(kind)))
}

/// Sockets beneath a directory, as far as it is looked at: not into other mounts.
/// What cannot be read is left out, and so is a socket that the caller names itself.
fn sockets(top: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(root) = open(top, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()) else {
        return found;
    };
    if !is_local(&root) {
        return found;
    }
    let mut directories = VecDeque::from([PathBuf::new()]);
    let mut left = MOST_ENTRIES;
    for _ in 0..MOST_DIRECTORIES {
        let Some(path) = directories.pop_front() else {
            break;
        };
        let Ok(mut directory) = Beneath::new(&root).on_one_mount().list(&path) else {
            continue;
        };
        for entry in entries(&mut directory).take(left).flatten() {
            left -= 1;
            let name = entry.file_name().to_bytes();
            let inside = path.join(OsStr::from_bytes(name));
            match entry.file_type() {
                Some(Type::Directory) => directories.push_back(inside),
                Some(Type::Socket) => found.push(top.join(inside)),
                _ => {}
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn sockets_are_found_within_bounds() {
        let top = tempfile::tempdir().unwrap();
        assert_eq!(sockets(top.path()), Vec::<PathBuf>::new());
        let deep = top.path().join("a/b");
        fs::create_dir_all(&deep).unwrap();
        let path = deep.join("s");
        let _listener = UnixListener::bind(&path).unwrap();
        std::os::unix::fs::symlink(top.path(), deep.join("loop")).unwrap();
        assert_eq!(sockets(top.path()), std::slice::from_ref(&path));
        assert!(sockets(&path).is_empty(), "it is named by the caller");
        for number in 0..MOST_DIRECTORIES {
            fs::create_dir(top.path().join(format!("d{number}"))).unwrap();
        }
        assert!(sockets(top.path()).len() <= 1);
    }
}
