//! Makes controllers available to a cgroup's children.

use nix::errno::Errno;

use super::dir::Dir;
use super::{Controller, LEAF};
use hints::own_service;
use record::error::{Result, SetupError, Step};

const ENABLED: &str = "cgroup.subtree_control";
const PROCESSES: &str = "cgroup.procs";

/// How often the processes are moved again: they may fork meanwhile.
const ROUNDS: usize = 64;

/// Enables the controllers of `dir` that cells use, and returns those that its
/// children have now.
///
/// A cgroup with processes of its own cannot have controllers enabled (the root
/// can), so the processes are moved into a leaf first, but only if a controller is
/// missing.
pub(super) fn controllers(dir: &Dir) -> Result<Vec<Controller>> {
    let enabled = Controller::in_list(&dir.read(ENABLED)?);
    let mut missing = Controller::in_list(&dir.read("cgroup.controllers")?);
    missing.retain(|controller| !enabled.contains(controller));
    if missing.is_empty() {
        return Ok(enabled);
    }
    if inhabited(dir)? || blocked(dir, &missing) {
        clear(dir, &missing)?;
    }
    Ok(Controller::in_list(&dir.read(ENABLED)?))
}

/// Whether `dir` has processes of its own that must not be there. The root may
/// have some; it is the only cgroup without a type.
///
/// The kernel itself refuses to enable `memory` then. It would enable `cpu` and
/// `pids`, which makes the cgroup a threaded domain: cells cannot be in those.
fn inhabited(dir: &Dir) -> Result<bool> {
    Ok(dir.read("cgroup.type").is_ok() && !dir.read(PROCESSES)?.is_empty())
}

/// Asks for `controllers`, for all at once and, should that fail, for each
/// alone, so that one of them does not cost the others. Returns whether processes
/// are in the way; the caller reads back what is enabled.
fn blocked(dir: &Dir, controllers: &[Controller]) -> bool {
    const BUSY: Option<i32> = Some(Errno::EBUSY as i32);
    let failure = |controllers: &[Controller]| {
        let words: Vec<String> = controllers
            .iter()
            .map(|controller| format!("+{}", controller.name()))
            .collect();
        dir.write(ENABLED, &words.join(" ")).err()?.errno
    };
    match failure(controllers) {
        None => false,
        BUSY => true,
        Some(_) => controllers.chunks(1).any(|one| failure(one) == BUSY),
    }
}

/// Moves every process of `dir` into the leaf and enables `controllers`.
fn clear(dir: &Dir, controllers: &[Controller]) -> Result<()> {
    // Hints name the service, which this process may leave here.
    own_service();
    let leaf = dir.ensure_child(LEAF)?;
    for _ in 0..ROUNDS {
        for pid in dir.read(PROCESSES)?.lines() {
            if pid == "0" {
                return Err(SetupError::new(
                    Step::Cgroup,
                    "a process of another pid namespace is in it and cannot be moved away",
                )
                .on(dir.path().display())
                .hint("start cellblock in a cgroup of its own"));
            }
            match leaf.write(PROCESSES, pid) {
                // It ended meanwhile.
                Err(error) if error.errno == Some(Errno::ESRCH as i32) => {}
                other => other?,
            }
        }
        if !blocked(dir, controllers) {
            return Ok(());
        }
    }
    Err(SetupError::new(
        Step::Cgroup,
        format!("processes keep appearing in it: controllers stayed busy through {ROUNDS} rounds"),
    )
    .on(dir.path().join(ENABLED).display())
    .hint("start cellblock in a cgroup of its own"))
}
