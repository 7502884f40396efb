//! How a cell is started for a spec: in one go, in a blank cell, forked from a template, or as a
//! guest in the cell of another supervisor.

use std::borrow::Cow;
use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use super::{Facts, Live};
use crate::run::ahead::{Ahead, Frame};
use crate::run::{Info, Resolved};
use jail::launch::{Launch, SharedCell};
use languages::Driver;
use record::error::Result;
use spec::Spec;
use supervise::copy::Template;
use supervise::{Between, Blank, Cancel, Cell, Denials, Program};
use workspace::inputs::{self, Staged};
use workspace::outputs;
use workspace::{Lower, OutDir, Project};

/// What exists of a cell before it is started.
pub(crate) enum From<'a> {
    /// Nothing. All of it is made in one go.
    Nothing,
    /// Nothing. A blank cell is made first, then its program is started.
    ///
    /// The cell is described there, if the caller asks for that (`--info-fd`).
    Blank(Option<&'a Info>),
    /// A blank cell of the same plan.
    Ahead(Box<Ahead<'a>>),
    /// A template that loaded modules before.
    Template {
        /// The template.
        template: &'a Template,
        /// Whether an execution waits for the cell.
        is_awaited: bool,
    },
    /// Everything but the interpreter, which is started in the cell of another supervisor.
    Shared(&'a SharedCell),
}

impl<'a> Live<'a> {
    /// Starts a cell. Returns while init is setting it up; what fails there is in the
    /// record of the first execution.
    ///
    /// # Errors
    /// The step that failed on this side.
    #[inline(never)]
    pub(crate) fn start(
        spec: Cow<'a, Spec>,
        resolved: Resolved,
        staged: Staged,
        cancel: Cancel<'a>,
        from: From<'a>,
    ) -> Result<Self> {
        let Resolved {
            plan,
            filter,
            mut warnings,
            driver,
            lease,
            ..
        } = resolved;
        let Staged {
            stages,
            kept,
            passed,
            warnings: left_out,
        } = staged;
        let (inputs, baseline) = inputs::open(&plan.files, &stages)?;
        let out = plan.watch.out.as_deref().map(OutDir::open).transpose()?;
        outputs::refuse_same(out.as_ref(), &kept)?;
        let lowers = Lower::open_all(&plan)?;
        let projects = Project::open_all(&plan)?;
        let mut info = None;
        let (cell, frame) = match from {
            From::Ahead(ahead) => {
                let denials = denials(&ahead.frame, driver, false);
                ahead.begin(plan, &inputs, denials, cancel)?
            }
            From::Shared(shared) => {
                let frame = Frame::in_shared(plan, filter, shared)?;
                let denials = denials(&frame, driver, true);
                let plan = Rc::clone(&frame.plan);
                let cell = Cell::start_in(shared, plan, &inputs, denials, cancel)?;
                (cell, frame)
            }
            From::Nothing | From::Blank(_) | From::Template { .. } => {
                let mut frame = Frame::of(plan, filter)?;
                frame.passed = passed;
                let denials = denials(&frame, driver, false);
                let started = match from {
                    From::Template {
                        template,
                        is_awaited,
                    } => {
                        let launch = frame.launch(inputs, stages);
                        Cell::fork(launch, template, is_awaited, denials, cancel)
                    }
                    From::Blank(about) => {
                        info = about;
                        let launch = frame.launch(Vec::new(), stages);
                        start_in_blank(launch, &inputs, denials, cancel, info)
                    }
                    From::Nothing | From::Ahead(_) | From::Shared(_)
                        if !frame.plan.program.exists() =>
                    {
                        let launch = frame.launch(Vec::new(), stages);
                        start_in_blank(launch, &inputs, denials, cancel, None)
                    }
                    From::Nothing | From::Ahead(_) | From::Shared(_) => {
                        Cell::start(frame.launch(inputs, stages), denials, cancel)
                    }
                };
                let cell = started.map_err(|e| hints::complete(e, &frame.plan))?;
                // Now, while init sets the cell up and nothing is to be watched yet.
                cell.sweep_cgroups();
                (cell, frame)
            }
        };
        let Frame {
            plan,
            filter,
            warnings: of_limits,
            guard,
            ..
        } = frame;
        warnings.extend(of_limits);
        warnings.extend(left_out);
        let mut live = Self {
            cell,
            facts: Facts {
                spec,
                plan,
                filter,
                driver,
            },
            warnings,
            baseline,
            out,
            kept,
            between: Between::default(),
            is_restored: false,
            lease,
            info,
            lowers: RefCell::new(lowers),
            projects: RefCell::new(projects),
            guard,
        };
        if live.cell.parts().0.is_guest {
            live.look_around()?;
        }
        Ok(live)
    }
}

/// Starts a blank cell, and its program in it.
#[inline(never)]
fn start_in_blank<'a>(
    launch: Launch<'_>,
    inputs: &[Option<OwnedFd>],
    denials: Denials,
    cancel: Cancel<'a>,
    info: Option<&Info>,
) -> Result<Box<Cell<'a>>> {
    let plan = Rc::clone(&launch.plan);
    let has_program = plan.program.exists();
    let mut blank = Blank::start(launch, cancel)?;
    // What fails in there is in the record, as of any cell.
    if blank.settle()? {
        blank.verify()?;
        if let Some(info) = info {
            info.look(blank.running(), &plan)?;
        }
    }
    let mut cell = blank.begin(Program {
        plan,
        inputs,
        denials,
        cancel,
    })?;
    if info.is_some() || !has_program {
        // It was made for this execution, and waited only to be described.
        cell.note_cold();
    }
    Ok(cell)
}

fn denials(frame: &Frame, driver: Option<&Driver>, is_guest: bool) -> Denials {
    let probes = driver.map_or(&[][..], |driver| driver.probes);
    let limits = &frame.plan.limits;
    let (memory, threads) = (limits.memory, limits.processes);
    (frame.filter.as_ref())
        .map(|policy| policy.denials(probes, memory, threads, is_guest))
        .unwrap_or_default()
}
