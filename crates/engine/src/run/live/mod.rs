//! A cell with what its records need: started for a spec, given executions, ended.
//!
//! `cellblock run` starts one and gives it one execution, which is its last; a context
//! gives it one after the other. The flow is the same.

mod driver;
mod start;

use std::borrow::Cow;
use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::run::assemble::{self, Parts};
use crate::run::events::{EventEmitter, Events};
use crate::run::measures::CgroupFacts;
use crate::run::{FilterPolicy, Info};
use jail::launch::Running;
use languages::Driver;
use plan::Plan;
use plan::rootfs::Lease;
use record::error::Result;
use record::{FileChange, Record, Start};
use spec::{Scratch, Spec};
use supervise::{Between, Cell, Control, Execution, Observer, OnStart, Request};
use workspace::baseline;
use workspace::outputs::{self, Collection, gather};
use workspace::{Baseline, CodeFile, Digest, Guard, KeptDir, Lower, OutDir, Outputs, Project};

pub(crate) use driver::{Code, code_of};
pub(crate) use start::From;

/// The warning in the records of interpreters that share a cell.
const SHARED: &str = "the cell has had other interpreters: its use, connections and changes of files in this time may be theirs";

/// A cell that was started for a spec. Dropping it ends the cell.
pub(crate) struct Live<'a> {
    pub(crate) cell: Box<Cell<'a>>,
    pub(crate) facts: Facts<'a>,
    /// For the first record.
    warnings: Vec<String>,
    /// The workspace before the next execution.
    baseline: Baseline,
    out: Option<OutDir>,
    kept: Vec<KeptDir>,
    /// Bytes that were written to the captured streams since the last execution, and were
    /// read with a description.
    between: Between,
    /// Whether the interpreter got the state of a checkpoint, and no request since.
    pub(crate) is_restored: bool,
    /// Keeps a tree of the store from being removed.
    lease: Option<Arc<Lease>>,
    /// Where what the cell is goes.
    info: Option<&'a Info>,
    /// The host's directories of its overlays.
    lowers: RefCell<Vec<Lower>>,
    /// The host's directories with protected paths.
    projects: RefCell<Vec<Project>>,
    /// Dropped after the cell.
    guard: Guard,
}

/// What a cell was made of.
pub(crate) struct Facts<'a> {
    pub(crate) spec: Cow<'a, Spec>,
    pub(crate) plan: Rc<Plan>,
    pub(in crate::run) filter: Option<FilterPolicy>,
    pub(crate) driver: Option<&'static Driver>,
}

/// One piece of work for a cell.
#[derive(Default)]
pub(crate) struct Work {
    pub(crate) execution: u64,
    /// The driver's request; empty where the program itself is the work.
    pub(crate) message: Vec<u8>,
    /// The file that the driver may have put the code into.
    pub(crate) code_file: Option<CodeFile>,
    /// Whether the program ends with it.
    pub(crate) is_last: bool,
    /// The most wall time, where that is less than the plan's.
    pub(crate) wall: Option<Duration>,
    /// The time between an interrupt and the cell's end, where the cell is to go on.
    pub(crate) grace: Option<Duration>,
    /// When the call began (monotonic, ns).
    pub(crate) began_ns: u64,
}

/// What became of a piece of work.
pub(crate) struct Executed<'a> {
    pub(crate) record: Record,
    /// The cell, or what is left of it.
    pub(crate) cell: Result<Live<'a>, Remains<'a>>,
}

/// What is left of a cell that has ended.
#[derive(Debug)]
pub(crate) struct Remains<'a> {
    /// The cell itself, where it has no process any more but may not be gone.
    pub(crate) cell: Option<Box<Cell<'a>>>,
    /// Its workspace, if it was a tmpfs of its own.
    pub(crate) workspace: Option<OwnedFd>,
}

impl<'a> Live<'a> {
    /// Whether its program was forked from a template.
    pub(crate) fn is_forked(&mut self) -> bool {
        self.cell.parts().0.start == Start::Forked
    }

    /// Notes that its interpreter waits for code.
    pub(crate) fn note_ready(&mut self) {
        self.cell.note_ready();
    }

    /// Adds to the warnings of the first record.
    pub(crate) fn warn(&mut self, warning: String) {
        self.warnings.push(warning);
    }

    /// Adds what another cell would have warned of, if it had executed anything.
    pub(crate) fn warn_of(&mut self, unsaid: Vec<String>) {
        for warning in unsaid {
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
    }

    /// Takes the warnings that no record has.
    pub(crate) fn unsaid(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// Notes which template the interpreter was forked from.
    pub(crate) const fn set_template(&mut self, template: record::Template) {
        self.cell.note_template(template);
    }

    /// Has the cell do one piece of work, and records it.
    ///
    /// # Errors
    /// Watching is impossible; the cell is ended then.
    #[inline(never)]
    pub(crate) fn execute(
        self,
        work: Work,
        events: Option<&Events>,
        control: Option<&dyn Control>,
    ) -> Result<Executed<'a>> {
        let Self {
            // The first one is dropped last.
            guard,
            mut cell,
            facts,
            mut warnings,
            mut baseline,
            out,
            kept,
            between,
            is_restored: _,
            lease,
            info,
            lowers,
            projects,
        } = self;
        // A cell that lives has other executions.
        let id = match work.is_last {
            true => facts.plan.id.clone(),
            false => format!("{}-{}", facts.plan.id, work.execution),
        };
        let emitter = events.map(|events| {
            let start = cell.parts().0.start;
            EventEmitter::new(
                events,
                &id,
                &facts.spec,
                &facts.plan,
                facts.filter.as_ref(),
                start,
            )
        });
        let wall = [work.wall, facts.plan.limits.wall]
            .into_iter()
            .flatten()
            .min();
        let mut execution = cell.execute(Request {
            execution: work.execution,
            message: work.message,
            is_last: work.is_last,
            results: facts.plan.limits.results,
            wall: work.wall,
            grace: work.grace,
            urgent_interrupts: facts.driver.is_some_and(|driver| driver.urgent_interrupts),
            settles: facts.driver.is_some_and(|driver| driver.settles),
            observer: emitter.as_ref().map(|emitter| emitter as &dyn Observer),
            on_start: info.map(|info| info as &dyn OnStart),
            control,
        })?;
        execution.between.add(between);
        warnings.extend(cell.is_shared().then(|| SHARED.to_owned()));
        let on_file = |file: &FileChange| {
            if let Some(emitter) = &emitter {
                emitter.file(file);
            }
        };
        let mut collection = Collection {
            plan: &facts.plan,
            scratch: &[],
            began_ns: execution.began_ns,
            was_set_up: true,
            out: out.as_ref(),
            code_file: work.code_file.as_ref(),
            // They are written back when the cell has ended.
            kept: &[],
            lowers: &lowers,
            projects: &projects,
            report: &on_file,
        };
        let began_ns = work.began_ns;
        if let Some(mut outputs) =
            gather_alive(&mut cell, &collection, &mut baseline, &mut warnings)
        {
            warnings.append(&mut outputs.warnings);
            warnings.extend(outputs::not_listed(&facts.plan));
            note_lost_events(&mut warnings, events);
            let (running, observed) = cell.parts();
            let record = assemble::record(Parts {
                cgroup: cgroup_facts(running, &execution),
                cell: running,
                observed,
                lives: true,
                execution,
                outputs,
                warnings,
                wall,
                began_ns,
                id: id.clone(),
                facts: &facts,
            });
            drop(emitter);
            let live = Self {
                cell,
                facts,
                warnings: Vec::new(),
                baseline,
                out,
                kept,
                between: Between::default(),
                is_restored: false,
                info: None,
                lowers,
                projects,
                guard,
                lease,
            };
            return Ok(Executed {
                record,
                cell: Ok(live),
            });
        }
        // A caller that waits for the record does not wait for init and the cgroup to go.
        let early = control.is_some();
        let observer = emitter.as_ref().map(|emitter| emitter as &dyn Observer);
        cell.end_processes(early, observer)?;
        let cgroup = cgroup_facts(cell.parts().0, &execution);
        if !early {
            warnings.extend(cell.remove_cgroup().err().map(|error| error.to_string()));
        }
        let (running, observed) = cell.parts();
        (collection.scratch, collection.kept) = (&observed.scratch, &kept);
        collection.was_set_up = observed.failure.is_none();
        let mut outputs = gather(&collection, &mut baseline);
        warnings.append(&mut outputs.warnings);
        warnings.extend(outputs::not_listed(&facts.plan).filter(|_| collection.was_set_up));
        note_lost_events(&mut warnings, events);
        let record = assemble::record(Parts {
            cell: running,
            cgroup,
            observed,
            lives: false,
            execution,
            outputs,
            warnings,
            wall,
            began_ns,
            id: id.clone(),
            facts: &facts,
        });
        let scratch = cell.take_scratch();
        Ok(Executed {
            record,
            cell: Err(Remains {
                cell: early.then_some(cell),
                ..Remains::of(&facts.plan, scratch)
            }),
        })
    }

    /// Notes what is in the workspace of a cell that had it before this interpreter.
    ///
    /// # Errors
    /// Watching is impossible.
    fn look_around(&mut self) -> Result<()> {
        self.cell.settle()?;
        let collection = Collection {
            plan: &self.facts.plan,
            scratch: &[],
            began_ns: sys::process::monotonic_ns(),
            was_set_up: true,
            out: None,
            code_file: None,
            kept: &[],
            lowers: &self.lowers,
            projects: &self.projects,
            report: &|_| {},
        };
        let (cell, baseline) = (&mut self.cell, &mut self.baseline);
        gather_alive(cell, &collection, baseline, &mut self.warnings);
        Ok(())
    }

    /// Sets what the workspace contains before the next execution.
    pub(crate) fn set_baseline(&mut self, baseline: Baseline) {
        self.baseline = baseline;
    }

    /// Notes a file that the caller has written into the workspace.
    pub(crate) fn note_written(&mut self, path: &Path, content: Digest) {
        baseline::put(&mut self.baseline, path, content);
    }

    /// Notes what the caller has removed from the workspace.
    pub(crate) fn note_removed(&mut self, path: &Path) {
        baseline::take_out(&mut self.baseline, path);
    }

    /// Notes that the caller has renamed an entry of the workspace.
    pub(crate) fn note_renamed(&mut self, from: &Path, to: &Path) {
        baseline::rename(&mut self.baseline, from, to);
    }

    /// Ends the cell.
    ///
    /// # Errors
    /// Watching is impossible; the cell is ended then too.
    pub(crate) fn end(self) -> Result<Remains<'a>> {
        let observed = self.cell.end()?;
        Ok(Remains::of(&self.facts.plan, observed.scratch))
    }
}

impl Facts<'_> {
    /// The place of the workspace among the cell's own scratch places.
    pub(crate) fn workspace(&self) -> Option<usize> {
        let mut own = self.plan.own_scratch();
        own.position(|scratch| scratch.name == Scratch::Workspace)
    }

    /// The uid and gid that the program has outside.
    pub(crate) fn owner(&self) -> (u32, u32) {
        (self.plan.ids.outer_uid, self.plan.ids.outer_gid)
    }

    /// The file that the driver may put the code into: in a workspace of the cell's own.
    pub(crate) fn code_file(&self, code: Option<Code<'_>>) -> Option<CodeFile> {
        self.workspace()?;
        self.driver.filter(|driver| driver.has_channel())?;
        code.map(|(code, name, _)| CodeFile::new(name, code))
    }
}

impl Remains<'_> {
    fn of(plan: &Plan, scratch: Vec<OwnedFd>) -> Self {
        let mut own = plan.own_scratch().zip(scratch);
        let workspace = own.find(|(scratch, _)| scratch.name == Scratch::Workspace);
        Self {
            cell: None,
            workspace: workspace.map(|(_, directory)| directory),
        }
    }
}

/// Collects files while all processes are stopped; `None` when the cell has ended.
fn gather_alive(
    cell: &mut Cell<'_>,
    collection: &Collection<'_>,
    baseline: &mut Baseline,
    warnings: &mut Vec<String>,
) -> Option<Outputs> {
    if !cell.lives() {
        return None;
    }
    if !collection.has_files(&cell.parts().1.scratch, baseline) {
        return Some(Outputs::default());
    }
    let gathered = cell.freeze().map(|frozen| {
        let collection = Collection {
            scratch: frozen.scratch(),
            ..*collection
        };
        gather(&collection, baseline)
    });
    match gathered {
        Ok(outputs) => Some(outputs),
        // The interpreter has ended right after the execution.
        Err(_) if !cell.lives() => None,
        Err(error) => {
            warnings.push(format!("files are not listed: {error}"));
            Some(Outputs::default())
        }
    }
}

fn cgroup_facts(cell: &Running, execution: &Execution) -> Option<CgroupFacts> {
    let cgroup = cell.cgroup.as_ref()?;
    Some(CgroupFacts::of(cgroup, &execution.cgroup_before))
}

fn note_lost_events(warnings: &mut Vec<String>, events: Option<&Events>) {
    if let Some(trouble) = events.and_then(Events::trouble) {
        warnings.push(format!("events are missing: {trouble}"));
    }
}
