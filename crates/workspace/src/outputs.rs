//! Collects files when the cell has ended.

use std::cell::RefCell;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use super::{
    Baseline, Caps, CodeFile, KeptDir, Lower, OutDir, Outputs, Project, Tree, collect, is_empty,
};
use plan::{Plan, Storage};
use record::error::{Result, SetupError, Step};
use record::{FileChange, FileSkipped};
use spec::Scratch;
use sys::process::monotonic_ns;

/// Refuses `--out` in a kept directory: the next run would read the copies.
pub fn refuse_same(out: Option<&OutDir>, kept: &[KeptDir]) -> Result<()> {
    let Some(out) = out else {
        return Ok(());
    };
    for kept in kept {
        let is_same = kept.is(&out.dir);
        if is_same.map_err(|e| SetupError::os(Step::Inputs, "fstat", e))? {
            let option = kept.option;
            let message = format!("--out and {option} name the same directory");
            return Err(SetupError::new(Step::Inputs, message).hint(format!(
                "omit --out: what the run changes is written back by {option}"
            )));
        }
    }
    Ok(())
}

/// A call ends within a second of its limit on real time, its files included.
const AFTER_WALL: Duration = Duration::from_millis(600);
/// Files get at least this much time, even if the end took long already.
const AT_LEAST: Duration = Duration::from_millis(200);

/// The files to collect, and where they go.
pub struct Collection<'a> {
    /// The cell.
    pub plan: &'a Plan,
    /// The plan's own directories, in its order.
    pub scratch: &'a [OwnedFd],
    /// When the execution started, on the monotonic clock.
    pub began_ns: u64,
    /// Whether the cell was set up: otherwise there is nothing to keep.
    pub was_set_up: bool,
    /// Where copies go, if anywhere.
    pub out: Option<&'a OutDir>,
    /// The file that the driver may have put the code into.
    pub code_file: Option<&'a CodeFile>,
    /// The directories that are written back.
    pub kept: &'a [KeptDir],
    /// The host's directories of the plan's overlays, in its order.
    pub lowers: &'a RefCell<Vec<Lower>>,
    /// The host's directories with protected paths.
    pub projects: &'a RefCell<Vec<Project>>,
    /// Called with each change as soon as it is known.
    pub report: &'a dyn Fn(&FileChange),
}

/// Lists what changed, copies it out, and writes kept directories back. Binds are the
/// host's: nothing in them is looked at, unless paths in them are protected.
pub fn gather(from: &Collection<'_>, baseline: &mut Baseline) -> Outputs {
    let mut outputs = Outputs::default();
    if from.kept.is_empty() && !from.has_files(from.scratch, baseline) {
        return outputs;
    }
    let until = from.deadline();
    for (scratch, directory) in from.plan.own_scratch().zip(from.scratch) {
        let caps = Caps {
            inline_bytes: from.plan.watch.inline_files,
            until,
            ..Caps::of(scratch.limit)
        };
        let mut kept = from.kept.iter();
        let kept = kept.find(|kept| scratch.kept_in() == Some(kept.path.as_path()));
        let tree = Tree {
            dir: directory.as_fd(),
            covered: &scratch.covered,
            keeps_links: kept.is_some() && from.out.is_none(),
            code_file: from
                .code_file
                .filter(|_| scratch.name == Scratch::Workspace),
            prefix: b"",
            taken: &[],
            is_upper: false,
        };
        if scratch.name == Scratch::Workspace {
            outputs = collect(tree, baseline, from.out, &caps, from.report);
        }
        if let Some(kept) = kept.filter(|_| from.was_set_up) {
            let mut written = kept.write_back(tree, &caps);
            if let Ok(skipped) = &mut written
                && scratch.name != Scratch::Workspace
            {
                name_in_full(skipped, scratch.name);
            }
            outputs.add(written, &caps);
        }
    }
    let uppers = from.scratch.iter().skip(from.plan.writable_tmpfs().count());
    for (lower, upper) in from.lowers.borrow_mut().iter_mut().zip(uppers) {
        let caps = Caps {
            inline_bytes: from.plan.watch.inline_files,
            until,
            ..Caps::of(lower.limit())
        };
        let taken = from.out.map(|_| outputs.names_below_out());
        let taken = taken.unwrap_or_default();
        outputs.join(
            lower.collect(upper, from.out, &taken, &caps, from.report),
            &caps,
        );
    }
    for project in from.projects.borrow_mut().iter_mut() {
        let caps = Caps {
            until,
            ..Caps::of(project.limit())
        };
        outputs.join(project.collect(&caps, from.report), &caps);
    }
    outputs
}

impl Collection<'_> {
    /// Whether there may be files to list in these open directories of the plan's own, or
    /// missing from them.
    pub fn has_files(&self, scratch: &[OwnedFd], baseline: &Baseline) -> bool {
        let mut own = self.plan.own_scratch().zip(scratch);
        let workspace = own.find(|(scratch, _)| scratch.name == Scratch::Workspace);
        !self.lowers.borrow().is_empty()
            || !self.projects.borrow().is_empty()
            || !baseline.is_empty()
            || workspace.is_some_and(|(_, directory)| !is_empty(directory))
    }

    /// When to stop collecting files.
    fn deadline(&self) -> Option<Instant> {
        let ran = Duration::from_nanos(monotonic_ns().saturating_sub(self.began_ns));
        let end = self.plan.limits.wall?.saturating_add(AFTER_WALL);
        Instant::now().checked_add(end.saturating_sub(ran).max(AT_LEAST))
    }
}

/// Paths in the record are relative to the workspace; others are absolute.
fn name_in_full(skipped: &mut [FileSkipped], place: Scratch) {
    for skipped in skipped {
        let full = [place.path().as_bytes(), b"/", skipped.path.as_bytes()].concat();
        skipped.path = full.into();
    }
}

/// Says why changes in a workspace are not listed.
pub fn not_listed(plan: &Plan) -> Option<String> {
    let workspace = plan.workspace()?;
    let is_protected = |source: &Path| plan.protected.iter().any(|own| own.source == source);
    match &workspace.storage {
        Storage::Bind {
            source,
            writable: true,
        } if !is_protected(source) => Some(format!(
            "files that the run changed are not listed: /workspace is a bind, and they are in {0}; with --workspace {0} they are",
            source.display()
        )),
        _ => None,
    }
}
