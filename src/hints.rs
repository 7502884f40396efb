//! The way out of a failure: a pure function of step, error and host.

use nix::errno::Errno;

use crate::error::{SetupError, Step};
use crate::plan::{MountKind, Plan, Source};

/// Adds the way out to an error that has none.
pub fn complete(mut error: SetupError, plan: &Plan) -> SetupError {
    if error.hint.is_none() {
        error.hint = hint(&error, plan);
    }
    error
}

fn hint(error: &SetupError, plan: &Plan) -> Option<String> {
    let errno = error.errno.map(Errno::from_raw)?;
    let own = |target: &str| {
        plan.mounts
            .iter()
            .any(|m| m.target.to_string_lossy() == target && !is_callers_bind(&m.kind))
    };
    let operand = error.operand.as_deref().unwrap_or("");
    let text = match (error.step, errno) {
        (Step::Clone, errno) => return for_clone(errno).map(str::to_owned),
        (Step::IdMap, Errno::EACCES | Errno::EPERM)
        | (Step::Network | Step::Hostname, Errno::EPERM) => APPARMOR,
        (Step::Mount, Errno::EPERM | Errno::EACCES) if operand == "/proc" => {
            "parts of the host's /proc are masked or read-only, as in a container: start the container with an unmasked /proc (docker: --security-opt systempaths=unconfined), or give this layer up with --without proc --without userns-limit"
        }
        (Step::Mount, Errno::EACCES | Errno::EPERM) if own(operand) => APPARMOR,
        (Step::Mount, Errno::ENOENT) if error.syscall.as_deref() == Some("open_tree") => {
            "name a path that exists on the host, as SRC in --ro SRC[:DST] or --rw SRC[:DST]"
        }
        (Step::Mount, Errno::ENOENT | Errno::EROFS) => {
            "there is no such place in the rootfs or bind that holds it, and cellblock makes none there: choose a target below /mnt, /workspace or a new top-level directory"
        }
        (Step::Mount, Errno::ELOOP) => {
            "a symbolic link stands in the way, and none is followed below a rootfs: name the real path"
        }
        (Step::Mount, Errno::ENOTDIR) => {
            "a file and a directory cannot cover each other: choose another target"
        }
        (Step::Mount, Errno::EACCES) => {
            "you need to be able to read the source and to search the directories above it"
        }
        (Step::CopyIn, Errno::ENOSPC) => {
            "the workspace is too small for the files that go in: raise --workspace-size"
        }
        (Step::CopyIn, Errno::EEXIST) => "two files go to the same place: name another target",
        (Step::CopyIn, Errno::ENOTDIR) => {
            "one file's target lies below another file: name another target"
        }
        (Step::Nesting, _) => {
            "the limit on nested user namespaces could not be set or does not hold here; seccomp denies them as well, so the layer can be given up with --without userns-limit"
        }
        (Step::Seccomp, Errno::EBUSY) => {
            "another sandbox around this one listens to seccomp already: run cellblock outside of it"
        }
        (Step::Landlock, Errno::ENOENT) => "a path that Landlock should open up does not exist",
        (Step::Chdir, _) => "name a directory inside the cell with --cwd",
        (Step::Exec, Errno::ENOENT) => {
            "no such program in the cell, or its loader is missing there: the cell sees the rootfs, not the host's whole file system (use --ro to show more of it)"
        }
        (Step::Exec, Errno::EACCES) => {
            "the file is not executable, lies on a noexec mount, or Landlock denies executing it (--no-exec)"
        }
        (Step::Exec, Errno::ENOEXEC) => {
            "the file is neither a program for this machine nor a script with a #! line"
        }
        (Step::Exec, Errno::E2BIG) => "arguments and environment are too long together",
        (_, Errno::ENOMEM) => "the cell's memory limit is too low to set it up: raise --memory",
        (_, Errno::EMFILE | Errno::ENFILE) => {
            "too many open files: close some, or raise the limit (ulimit -n)"
        }
        _ => return None,
    };
    Some(text.to_owned())
}

/// The fix for a user namespace that exists but has no power.
const APPARMOR: &str = "this host lets user namespaces be made but takes their capabilities away (Ubuntu's AppArmor does): `cellblock doctor` prints the profile to install";

/// What clone3(2)'s error means for a cell.
pub fn for_clone(errno: Errno) -> Option<&'static str> {
    Some(match errno {
        Errno::EPERM => {
            "unprivileged user namespaces are switched off here: sysctl kernel.unprivileged_userns_clone=1, or in a container allow them in its seccomp profile (docker: --security-opt seccomp=unconfined)"
        }
        Errno::ENOSPC => {
            "the limit on namespaces is reached or zero: sysctl user.max_user_namespaces (and its siblings for other kinds) must be above 0"
        }
        Errno::ENOSYS => "a sandbox around this one hides clone3: allow it there",
        Errno::EUSERS => "too many user namespaces are nested already",
        Errno::EAGAIN => {
            "too many processes: the caller's limit (ulimit -u) or its cgroup's pids.max is reached"
        }
        Errno::ENOMEM => "not enough memory",
        Errno::EACCES => {
            "the cgroup does not let this process in: give one that is delegated to you"
        }
        Errno::EBUSY => {
            "the cgroup has controllers enabled for children and takes no processes: give its parent instead"
        }
        _ => return None,
    })
}

const fn is_callers_bind(kind: &MountKind) -> bool {
    matches!(
        kind,
        MountKind::Bind {
            source: Source::Host(_),
            device: false,
            ..
        }
    )
}
