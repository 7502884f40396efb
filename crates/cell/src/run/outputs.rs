//! What comes out of the workspace when the cell has ended.

use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use crate::plan::{Plan, Storage};
use crate::spec::Scratch;
use crate::supervise::Observed;
use crate::supervise::outputs::{Baseline, Caps, Kept, OutDir, Outputs, Tree, collect};
use record::error::{Result, SetupError, Step};
use record::{FileChange, FileSkipped};
use sys::process::monotonic_ns;

/// Files copied out beside the kept ones would come in with the next run.
pub(super) fn refuse_same(out: Option<&OutDir>, kept: &[Kept]) -> Result<()> {
    let Some(out) = out else {
        return Ok(());
    };
    for kept in kept {
        let option = kept.option();
        match kept.is(out.dir()) {
            Ok(false) => {}
            Ok(true) => {
                let message = format!("--out and {option} name the same directory");
                return Err(SetupError::new(Step::Inputs, message).hint(format!(
                    "leave --out away: what the run changes is written back by {option}"
                )));
            }
            Err(errno) => return Err(SetupError::os(Step::Inputs, "fstat", errno)),
        }
    }
    Ok(())
}

/// A call ends within a second of its limit on real time, its files included.
const AFTER_WALL: Duration = Duration::from_millis(600);
/// But for an end that took long already, there is this much for them.
const AT_LEAST: Duration = Duration::from_millis(200);

/// When to stop collecting files.
fn until(plan: &Plan, began_ns: u64) -> Option<Instant> {
    let now = Instant::now();
    let ran = Duration::from_nanos(monotonic_ns().saturating_sub(began_ns));
    let left = (plan.watch.wall?.saturating_add(AFTER_WALL)).saturating_sub(ran);
    now.checked_add(left.max(AT_LEAST))
}

/// Lists what changed and tells of it meanwhile, copies it out, and writes kept
/// places back. Binds are the host's: nothing of theirs is looked at.
pub(super) fn gather(
    plan: &Plan,
    observed: &Observed,
    began_ns: u64,
    baseline: &Baseline,
    out: Option<&OutDir>,
    kept: &[Kept],
    tell: &dyn Fn(&FileChange),
) -> Outputs {
    let mut outputs = Outputs::default();
    let until = until(plan, began_ns);
    for (scratch, directory) in observed.own_scratch(plan) {
        let caps = Caps {
            inline_bytes: plan.watch.inline_files,
            until,
            ..Caps::of(scratch.limit)
        };
        let kept = kept
            .iter()
            .find(|kept| scratch.kept_in() == Some(kept.path()));
        let tree = Tree {
            dir: directory.as_fd(),
            covered: &scratch.covered,
            keeps_links: kept.is_some() && out.is_none(),
        };
        if scratch.name == Scratch::Workspace {
            outputs = collect(tree, baseline, out, &caps, tell);
        }
        // A cell that was not set up has nothing to keep.
        if let Some(kept) = kept.filter(|_| observed.failure.is_none()) {
            let mut written = kept.write_back(tree, &caps);
            if let Ok(skipped) = &mut written
                && scratch.name != Scratch::Workspace
            {
                name_in_full(skipped, scratch.name);
            }
            outputs.add(written, &caps);
        }
    }
    outputs
}

/// Paths in the record are relative to the workspace; others are absolute.
fn name_in_full(skipped: &mut [FileSkipped], place: Scratch) {
    for skipped in skipped {
        let full = [place.path().as_bytes(), b"/", skipped.path.as_bytes()].concat();
        skipped.path = full.into();
    }
}

/// Says why changes in a workspace are not listed.
pub(super) fn not_listed(plan: &Plan) -> Option<String> {
    match &plan.workspace()?.storage {
        Storage::Bind {
            source,
            writable: true,
        } => Some(format!(
            "files that the run changed are not listed: /workspace is a bind, and they are in {}",
            source.display()
        )),
        _ => None,
    }
}
