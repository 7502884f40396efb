//! A template that a server keeps for many cells.

use std::cell::Cell;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use super::Resolved;
use carry::{Base, Refusal};
use plan::Plan;
use plan::rootfs::Lease;
use record::error::{Result, SetupError, Step};
use supervise::Cancel;
use supervise::copy::{Template, TemplateCell};
use sys::memory_file;

/// A template, and what the plans of its copies have to agree with.
#[derive(Debug)]
pub struct Stock {
    template: Template,
    plan: Plan,
    /// Its pages, which images of its copies need not have. Without it, images are whole.
    base: Option<Base>,
    /// Which of the server's templates it is, from 1 on.
    generation: u64,
    made: Instant,
    /// The supervisors that were forked with it.
    copies: Cell<u64>,
    memory: u64,
}

/// Its cell. Dropping it ends the template and all of its copies.
pub struct StockCell<'a> {
    /// What is forked from it.
    pub stock: Stock,
    _cell: TemplateCell<'a>,
    /// Keeps a tree of the store from being removed.
    _lease: Option<Arc<Lease>>,
}

impl StockCell<'_> {
    /// Makes a template for cells like this one, and returns once it has loaded
    /// `modules`.
    ///
    /// # Errors
    /// The step that failed; what the template wrote, if its modules cannot be loaded.
    pub fn make(resolved: Resolved, modules: &[String], generation: u64) -> Result<Self> {
        let Resolved {
            plan,
            driver,
            lease,
            ..
        } = resolved;
        if !driver.is_some_and(|driver| driver.is_template) {
            return Err(SetupError::new(Step::Fork, "only Python has templates"));
        }
        let cell = TemplateCell::start(Rc::new(plan.for_template(modules)), Cancel::default())
            .map_err(|error| hints::complete(error, &plan))?;
        let base = memory_file(c"cellblock-template").and_then(|file| {
            let failed = |refusal: Refusal| SetupError::new(Step::Fork, refusal.to_string());
            Base::of(cell.pid()?, file).map_err(failed)
        });
        let base = base.ok();
        let own = cell.memory().unwrap_or(0);
        let mut template = cell.template().clone();
        if let Some(base) = &base {
            template.watched = base.watched().into();
        }
        Ok(Self {
            stock: Stock {
                template,
                plan,
                memory: own + base.as_ref().map_or(0, Base::size),
                base,
                generation,
                made: Instant::now(),
                copies: Cell::new(0),
            },
            _cell: cell,
            _lease: lease,
        })
    }
}

impl Stock {
    /// Bytes of memory that the template takes by itself.
    pub const fn memory(&self) -> u64 {
        self.memory
    }

    /// Another supervisor is forked with it.
    pub fn count_copy(&self) {
        self.copies.set(self.copies.get() + 1);
    }

    /// What a record has of it.
    pub(crate) fn as_it_is(&self) -> record::Template {
        record::Template {
            generation: self.generation,
            age_ms: u64::try_from(self.made.elapsed().as_millis()).unwrap_or(u64::MAX),
            copies: self.copies.get(),
        }
    }

    /// Where the template takes requests. Its other end goes with the template.
    pub fn control(&self) -> BorrowedFd<'_> {
        let [control, ..] = self.template.descriptors();
        control
    }

    /// What a process needs so that it can ask for copies.
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let base = self.base.iter().flat_map(Base::descriptors);
        (self.template.descriptors().into_iter())
            .chain(base)
            .collect()
    }

    /// The template's pages, where it could be traced.
    pub(crate) const fn base(&self) -> Option<&Base> {
        self.base.as_ref()
    }

    /// Whether a cell of this could fork the template.
    pub fn fits(&self, resolved: &Resolved) -> bool {
        self.template_for(&resolved.plan).is_ok()
    }

    /// The template, for a cell of `plan`: one whose program is started in the same way,
    /// and which is made alike.
    ///
    /// # Errors
    /// The plan is another one.
    pub(crate) fn template_for(&self, plan: &Plan) -> Result<&Template> {
        let (own, other) = (&self.plan.program, &plan.program);
        let is_same_program =
            (&own.candidates, &own.argv, &own.env) == (&other.candidates, &other.argv, &other.env);
        let key = self.plan.key();
        match is_same_program && !other.fixed_layout && key.is_some() && key == plan.key() {
            true => Ok(&self.template),
            false => Err(SetupError::new(
                Step::Fork,
                "the template is for other cells",
            )),
        }
    }
}
