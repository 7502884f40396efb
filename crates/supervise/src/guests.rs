//! Guests: further interpreters in a cell that runs.
//!
//! Each has a supervisor of its own, so that executions in them go on at once, and neither waits
//! for the other. To its supervisor, the interpreter is the program of a cell; what differs is
//! that the cell is not ended with it.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use super::Denials;
use super::cell::{Cancel, Cell};
use jail::child::parcel;
use jail::launch::SharedCell;
use plan::Plan;
use record::error::{Result, SetupError, Step};

impl<'a> Cell<'a> {
    /// What the supervisor of a guest needs of this cell.
    ///
    /// # Errors
    /// Init does not take the order, or there is no descriptor left.
    pub fn share(&self) -> Result<SharedCell> {
        let shared = SharedCell::new(&self.running, &self.plan, &self.seen.scratch)?;
        self.was_shared.set(true);
        Ok(shared)
    }

    /// Starts the interpreter of `plan` in another supervisor's cell, with these open input files.
    /// Returns at once; what fails inside shows at the end.
    ///
    /// # Errors
    /// The plan is not that of the cell; the step that failed on this side.
    pub fn start_in(
        shared: &SharedCell,
        plan: Rc<Plan>,
        inputs: &[Option<OwnedFd>],
        denials: Denials,
        cancel: Cancel<'a>,
    ) -> Result<Box<Self>> {
        if !is_cell_of(&shared.plan, &plan) {
            let message = "an interpreter of another plan cannot be started in this cell";
            return Err(SetupError::new(Step::Supervise, message)
                .hint("create a context of its own for it"));
        }
        let parcel = parcel::pack(&plan, inputs)?;
        let running = shared.launch(&parcel)?;
        let mut cell = Box::new(Self::of(running, plan, denials, cancel, true));
        cell.seen.scratch = shared.scratch()?;
        Ok(cell)
    }
}

/// Whether an interpreter of the plan `wanted` gets, in a cell of the plan `made`, all that a cell
/// of its own would have.
fn is_cell_of(made: &Plan, wanted: &Plan) -> bool {
    let keys = made.key().zip(wanted.key());
    made.ids == wanted.ids && keys.is_some_and(|(made, wanted)| made.admits(&wanted))
}
