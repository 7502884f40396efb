//! A blank cell with what the record of its program needs.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use super::{FilterPolicy, Resolved, fallback_warning, hold_limits, instructions};
use cgroup::CellCgroup;
use jail::child::{Content, Filter};
use jail::launch::{Launch, Role, SharedCell, idmap};
use plan::probe::HostFacts;
use plan::rootfs::Lease;
use plan::{Fallback, Plan};
use record::error::{Result, SetupError, Step};
use supervise::{Blank, Cancel, Cell, Denials, Program};
use workspace::{Guard, Stage};

/// What a cell is made with, whatever its program.
pub(super) struct Frame {
    pub(super) plan: Rc<Plan>,
    pub(super) filter: Option<FilterPolicy>,
    program: Option<Filter>,
    mapped: Vec<Option<OwnedFd>>,
    cgroup: Option<CellCgroup>,
    fallback: Fallback,
    /// Descriptors of the caller's that the program gets.
    pub(super) passed: Vec<(i32, OwnedFd)>,
    /// What the caller should know of its limits.
    pub(super) warnings: Vec<String>,
    /// Dropped after the cell.
    pub(super) guard: Guard,
}

impl Frame {
    /// # Errors
    /// The step that failed.
    #[inline(never)]
    pub(super) fn of(plan: Plan, filter: Option<FilterPolicy>) -> Result<Self> {
        let guard = Guard::hold(&plan)?;
        let mapped = idmap::map_binds(&plan)?;
        let mut warnings = Vec::new();
        let (cgroup, fallback) = hold_limits(&plan, &mut warnings)?;
        let filter = filter
            .map(|policy| policy.without(fallback.unheld()))
            .transpose()?;
        let program = filter.as_ref().map(|policy| Filter {
            program: instructions(policy.compiled(), plan.ids.inner_uid),
            notify: true,
        });
        Ok(Self {
            plan: Rc::new(plan),
            filter,
            program,
            mapped,
            cgroup,
            fallback,
            passed: Vec::new(),
            warnings,
            guard,
        })
    }

    /// What is known of an interpreter in another supervisor's cell, whose limits and filter it
    /// has.
    ///
    /// # Errors
    /// The policy cannot be completed.
    pub(super) fn in_shared(
        plan: Plan,
        filter: Option<FilterPolicy>,
        shared: &SharedCell,
    ) -> Result<Self> {
        let held = shared.fallback();
        let unheld = held.unheld();
        let filter = filter.map(|policy| policy.without(unheld)).transpose()?;
        Ok(Self {
            plan: Rc::new(plan),
            filter,
            program: None,
            mapped: Vec::new(),
            cgroup: None,
            fallback: Fallback::default(),
            passed: Vec::new(),
            warnings: fallback_warning(held).into_iter().collect(),
            // That of the cell.
            guard: Guard::default(),
        })
    }

    /// The launch of its cell. It can be taken once.
    pub(super) fn launch(
        &mut self,
        inputs: Vec<Option<OwnedFd>>,
        stages: Vec<Stage>,
    ) -> Launch<'_> {
        Launch {
            role: Role::Program,
            plan: Rc::clone(&self.plan),
            filter: self.program.as_ref(),
            content: Content {
                inputs,
                stages,
                binds: std::mem::take(&mut self.mapped),
                passed: std::mem::take(&mut self.passed),
                ..Content::default()
            },
            cgroup: self.cgroup.take(),
            fallback: std::mem::take(&mut self.fallback),
            until: Step::Exec,
            holds: false,
        }
    }
}

/// A blank cell that waits for any program of its plan. Dropping it ends it.
pub struct Ahead<'a> {
    pub(super) blank: Blank<'a>,
    pub(super) frame: Frame,
    /// The host when it was made.
    host: HostFacts,
    /// Keeps a tree of the store from being removed.
    _lease: Option<Arc<Lease>>,
}

impl<'a> Ahead<'a> {
    /// Makes one, and returns when it waits and was looked at from outside.
    ///
    /// # Errors
    /// The step that failed, or what is not as planned.
    pub fn make(resolved: Resolved, cancel: Cancel<'a>) -> Result<Self> {
        let Resolved {
            plan,
            host,
            filter,
            lease,
            ..
        } = resolved;
        if plan.key().is_none() {
            let message = "a cell with a kept or filled workspace cannot be made ahead";
            return Err(SetupError::new(Step::Inputs, message)
                .hint("leave out --workspace, --keep-tmp and --files-from"));
        }
        let mut frame = Frame::of(plan, filter)?;
        let started = Blank::start(frame.launch(Vec::new(), Vec::new()), cancel);
        let waits = started.and_then(|mut blank| blank.wait().map(|()| blank));
        let blank = waits.map_err(|error| hints::complete(error, &frame.plan))?;
        Ok(Self {
            blank,
            frame,
            host,
            _lease: lease,
        })
    }

    /// The host when it was made. Gathering that again takes longer than all else that is
    /// resolved for a program.
    pub(crate) fn host(&self) -> &HostFacts {
        &self.host
    }

    /// Whether it can run the program of `plan`.
    pub(crate) fn serves(&self, plan: &Plan) -> bool {
        self.blank.is_waiting() && self.blank.is_of(plan)
    }

    /// Starts the program of `plan` in it.
    ///
    /// # Errors
    /// The step that failed on this side.
    pub(super) fn begin(
        self,
        plan: Plan,
        inputs: &[Option<OwnedFd>],
        denials: Denials,
        cancel: Cancel<'a>,
    ) -> Result<(Box<Cell<'a>>, Frame)> {
        let Self {
            blank, mut frame, ..
        } = self;
        frame.plan = Rc::new(plan);
        let cell = blank.begin(Program {
            plan: Rc::clone(&frame.plan),
            inputs,
            denials,
            cancel,
        })?;
        Ok((cell, frame))
    }
}
