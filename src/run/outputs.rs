//! What comes out of the workspace when the cell has ended.

use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use crate::error::{Result, SetupError, Step};
use crate::plan::Plan;
use crate::record::FileChange;
use crate::supervise::Observed;
use crate::supervise::outputs::{Baseline, Caps, Kept, OutDir, Outputs, collect};
use crate::sys::process::monotonic_ns;

/// Files copied out beside the kept ones would come in with the next run.
pub(super) fn refuse_same(out: Option<&OutDir>, kept: Option<&Kept>) -> Result<()> {
    let (Some(out), Some(kept)) = (out, kept) else {
        return Ok(());
    };
    match kept.is(out.dir()) {
        Ok(false) => Ok(()),
        Ok(true) => Err(SetupError::new(
            Step::Inputs,
            "--out and --workspace name the same directory",
        )
        .hint("leave --out away: what the run changes is written back to the workspace")),
        Err(errno) => Err(SetupError::os(Step::Inputs, "fstat", errno)),
    }
}

/// A call ends within a second of its limit on real time, its files included.
const AFTER_WALL: Duration = Duration::from_millis(600);
/// But for an end that took long already, there is this much for them.
const AT_LEAST: Duration = Duration::from_millis(200);

/// When to stop collecting files.
fn until(plan: &Plan, observed: &Observed) -> Option<Instant> {
    let now = Instant::now();
    let ran = Duration::from_nanos(monotonic_ns().saturating_sub(observed.began_ns));
    let left = (plan.watch.wall?.saturating_add(AFTER_WALL)).saturating_sub(ran);
    now.checked_add(left.max(AT_LEAST))
}

/// Lists what changed and tells of it meanwhile, copies it out, and writes a kept
/// workspace back.
pub(super) fn gather(
    plan: &Plan,
    observed: &Observed,
    baseline: &Baseline,
    out: Option<&OutDir>,
    kept: Option<&Kept>,
    tell: &dyn Fn(&FileChange),
) -> Outputs {
    let Some(workspace) = observed.directories.first() else {
        return Outputs::default();
    };
    let caps = Caps {
        inline_bytes: plan.watch.inline_files,
        until: until(plan, observed),
        ..Caps::of(plan.limits.workspace)
    };
    let mut outputs = collect(workspace.as_fd(), baseline, out, &caps, tell);
    // A cell that was not set up has no workspace to speak of.
    if let Some(kept) = kept.filter(|_| observed.failure.is_none()) {
        outputs.add(kept.write_back(workspace.as_fd(), &caps), &caps);
    }
    outputs
}
