//! Writable binds for cells that root starts.
//!
//! The program runs as an outer uid that owns nothing, so a directory of root's would
//! not be writable to it. Such a bind becomes an idmapped mount (mount_setattr(2), Linux
//! 5.12): files of the directory's owner appear as the program's, and what it makes
//! belongs to that owner on the disk. Files of others stay unmapped; they show the
//! overflow uid and cannot be written. The mount is `nosuid`, and nothing runs as the owner.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sched::CloneFlags;
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::{Pid, pipe2};

use super::{map_ids, require_one_thread};
use plan::seccomp::BUILTIN;
use plan::{Ids, MountKind, Plan, Source};
use record::error::{Result, SetupError, Step};
use sys::clone::{Fork, fork_into};
use sys::mount::{self, Owner, attr};
use sys::process::exit_now;

/// Maps every writable bind that the program could otherwise not write to: detached
/// mounts to use in place of the plan's, by its index. Only root may, so that nothing is
/// done for others.
///
/// Where a path leads through a file system that does not answer, opening it waits: this
/// is called while the caller's signals still end this process.
///
/// # Errors
/// A bind cannot be mapped, and its permissions do not let the program write either.
pub fn map_binds(plan: &Plan) -> Result<Vec<Option<OwnedFd>>> {
    if !plan.ids.privileged {
        return Ok(Vec::new());
    }
    let mut namespaces = BTreeMap::new();
    plan.mounts
        .iter()
        .map(|mount| match &mount.kind {
            MountKind::Bind {
                source: Source::Host(path),
                writable: true,
                device: false,
                ..
            } => map_bind(plan, path, &mut namespaces),
            MountKind::Overlay { source, .. } => map_bind(plan, source, &mut namespaces),
            _ => Ok(None),
        })
        .collect()
}

/// User namespaces by the owner, uid and gid, that they map.
type Namespaces = BTreeMap<(u32, u32), OwnedFd>;

fn map_bind(plan: &Plan, path: &Path, namespaces: &mut Namespaces) -> Result<Option<OwnedFd>> {
    let failed = |call: &str, errno| SetupError::os(Step::Mount, call, errno).on(path.display());
    let name = std::ffi::CString::new(path.as_os_str().as_bytes())
        .map_err(|_| failed("open_tree", Errno::EINVAL))?;
    let tree =
        mount::clone_tree(libc::AT_FDCWD, &name).map_err(|errno| failed("open_tree", errno))?;
    let found = mount::known_owner(tree.as_fd()).map_err(|errno| failed("statx", errno))?;
    let owner = (found.uid, found.gid);
    if owner.0 == plan.ids.outer_uid {
        return Ok(None);
    }
    // A file with that bit and root's uid would be a way to root for every user of the
    // host. `nosuid` does not keep it from being made; the built-in policies do.
    if !has_builtin_policy(plan) {
        let message = "without one of cellblock's own seccomp policies, a program could make \
                       set-user-ID files that belong to the directory's owner";
        return refuse_unless_open(
            &found,
            SetupError::new(Step::Mount, message).on(path.display()),
        );
    }
    let mapped = namespace(owner, &plan.ids, namespaces).and_then(|userns| {
        let attributes = attr::NOSUID | attr::NODEV;
        mount::set_idmap(tree.as_fd(), userns.as_fd(), attributes)
            .map_err(|errno| failed("mount_setattr", errno))
    });
    match mapped {
        Ok(()) => Ok(Some(tree)),
        Err(error) => refuse_unless_open(&found, error),
    }
}

fn has_builtin_policy(plan: &Plan) -> bool {
    let policy = plan.seccomp.as_deref();
    policy.is_some_and(|name| BUILTIN.iter().any(|(builtin, _)| *builtin == name))
}

/// A directory that everyone may write to needs no mapping.
fn refuse_unless_open(found: &Owner, error: SetupError) -> Result<Option<OwnedFd>> {
    if found.mode & 0o002 != 0 {
        return Ok(None);
    }
    Err(error.hint(
        "the program's uid cannot write there: chown the directory to an unprivileged uid and \
         name that with --outer-uid, or bind it with --ro",
    ))
}

fn namespace<'a>(
    owner: (u32, u32),
    ids: &Ids,
    namespaces: &'a mut Namespaces,
) -> Result<&'a OwnedFd> {
    use std::collections::btree_map::Entry;
    match namespaces.entry(owner) {
        Entry::Occupied(known) => Ok(known.into_mut()),
        Entry::Vacant(new) => Ok(new.insert(make_namespace(owner, ids)?)),
    }
}

/// A user namespace that serves as a table of ids only: no process stays in it.
fn make_namespace((uid, gid): (u32, u32), ids: &Ids) -> Result<OwnedFd> {
    require_one_thread()?;
    let failed = |call: &str, errno| SetupError::os(Step::IdMap, call, errno);
    let (hold, keep) = pipe2(OFlag::O_CLOEXEC).map_err(|e| failed("pipe2", e))?;
    // SAFETY: this process has one thread, as just checked.
    let forked = unsafe { fork_into(CloneFlags::CLONE_NEWUSER, None) };
    match forked.map_err(|e| failed("clone3", e))? {
        Fork::Child => {
            // Until the parent has opened the namespace, or is gone.
            drop(keep);
            let _ = File::from(hold).read(&mut [0; 1]);
            exit_now(0)
        }
        Fork::Parent { pid, pidfd } => {
            let table = Ids {
                inner_uid: uid,
                inner_gid: gid,
                ..ids.clone()
            };
            let opened = map_ids(pid, &table, false).and_then(|()| open_namespace(pid));
            drop(keep);
            let _ = waitid(Id::PIDFd(pidfd.as_fd()), WaitPidFlag::WEXITED);
            opened
        }
    }
}

fn open_namespace(pid: Pid) -> Result<OwnedFd> {
    let path = format!("/proc/{pid}/ns/user");
    File::open(&path)
        .map(OwnedFd::from)
        .map_err(|e| SetupError::io(Step::IdMap, "open", &e).on(path))
}
