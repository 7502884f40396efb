//! A cell set up ahead of its program.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Instant;

use super::Denials;
use super::cell::{Cancel, Cell};
use super::meter::Meter;
use super::verify::verify;
use super::watch::{Phase, SETUP_DEADLINE};
use jail::child::command::{send_program, send_stay};
use jail::child::parcel;
use jail::launch::{Launch, given_stdin};
use plan::Plan;
use record::Start;
use record::error::{Result, SetupError, Step};
use sys::identity::Identity;

/// A cell that is complete but for its program. It serves one program and is never
/// used again. Dropping it ends it.
#[derive(Debug)]
pub struct Blank<'a> {
    cell: Box<Cell<'a>>,
}

/// What a blank cell's program is started with.
#[derive(Debug)]
pub struct Program<'i, 'a> {
    /// The plan of the run, with the key of the plan by which the cell was made
    /// ([`Plan::key`]).
    pub plan: Rc<Plan>,
    /// Its open input files, in their order.
    pub inputs: &'i [Option<OwnedFd>],
    /// The seccomp notification handler.
    pub denials: Denials,
    /// What cancels the cell from here on.
    pub cancel: Cancel<'a>,
}

impl<'a> Blank<'a> {
    /// Starts a blank cell. Returns while init is setting it up. Input files of
    /// `start` are left out: they come with the program.
    ///
    /// # Errors
    /// The step that failed on this side.
    #[inline(never)]
    pub fn start(start: Launch<'_>, cancel: Cancel<'a>) -> Result<Self> {
        let start = Launch {
            holds: true,
            ..start
        };
        let cell = Cell::start(start, Denials::default(), cancel)?;
        // Now, while init sets the cell up.
        cell.sweep_cgroups();
        Ok(Self { cell })
    }

    /// Waits until it is set up, and looks at it from outside.
    ///
    /// # Errors
    /// The step that failed, or what is not as the plan has it.
    pub fn wait(&mut self) -> Result<()> {
        if self.settle()? {
            return self.verify();
        }
        let failure = self.cell.seen.failure.clone();
        Err(failure.unwrap_or_else(gone))
    }

    /// Waits until it is set up, which it returns, or has failed.
    ///
    /// # Errors
    /// Only when watching itself is impossible.
    pub fn settle(&mut self) -> Result<bool> {
        let mut watch = self.cell.idle();
        while !matches!(watch.cell.phase, Phase::Waiting | Phase::Over) {
            watch.step()?;
        }
        Ok(self.cell.phase == Phase::Waiting)
    }

    /// Looks at it from outside.
    ///
    /// # Errors
    /// The first thing that is not as the plan has it.
    pub fn verify(&self) -> Result<()> {
        verify(&self.cell.running, &self.cell.plan)
    }

    /// Whether its cell is one of `plan`, until the program starts.
    pub fn is_of(&self, plan: &Plan) -> bool {
        has_cell_of(&self.cell.plan, plan)
    }

    /// The cell, for those that look at it in other ways.
    pub fn running(&self) -> &jail::launch::Running {
        &self.cell.running
    }

    /// Whether it waits for a program, and init has said nothing else meanwhile.
    pub fn is_waiting(&self) -> bool {
        let now = Instant::now();
        self.cell.phase == Phase::Waiting
            && !jail::launch::wait_for(self.cell.running.report.as_fd(), now)
    }

    /// Starts its program, or has it go on without one. Returns at once; what fails inside
    /// shows at the end, also what failed before.
    ///
    /// # Errors
    /// When the plan is another than that of the cell, or what goes in cannot be read.
    /// The cell is ended then.
    pub fn begin<'b>(self, program: Program<'_, 'b>) -> Result<Box<Cell<'b>>>
    where
        'a: 'b,
    {
        let Program {
            plan,
            inputs,
            denials,
            cancel,
        } = program;
        if !self.is_of(&plan) {
            let message = "a blank cell of another plan cannot run this";
            return Err(SetupError::new(Step::Supervise, message));
        }
        let mut cell: Box<Cell<'b>> = self.cell;
        cell.cancel = cancel;
        cell.denials = denials;
        cell.meter = Meter::new(&cell.running, &plan);
        cell.plan = Rc::clone(&plan);
        cell.running.start = Start::Blank;
        cell.has_program = true;
        if cell.phase != Phase::Waiting {
            return Ok(cell);
        }
        cell.configure_broker()?;
        let parcel = parcel::pack(&plan, inputs)?;
        let stdin = given_stdin(&plan.program.stdin)?;
        if let Some(stdin) = &stdin {
            cell.running.stdin = Identity::of(stdin).ok();
        }
        cell.running.progress.forget_steps();
        // An init that is gone shows by its pidfd.
        let report = cell.running.report.as_fd();
        let _ = match plan.program.exists() {
            true => send_program(report, parcel.as_fd(), stdin.as_ref().map(AsFd::as_fd)),
            false => send_stay(report, parcel.as_fd()),
        };
        cell.phase = Phase::SetUp;
        cell.deadline = Some(Instant::now() + SETUP_DEADLINE);
        Ok(cell)
    }
}

/// Readable when its init has ended.
impl AsFd for Blank<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.cell.running.init.as_fd()
    }
}

/// Whether a cell of the plan `made` is one of `wanted` as well, until the program starts.
fn has_cell_of(made: &Plan, wanted: &Plan) -> bool {
    let keys = || made.key().zip(wanted.key());
    let serves = || keys().is_some_and(|(made, wanted)| made.serves(&wanted));
    // A key has no outer ids where each cell has its own.
    std::ptr::eq(made, wanted) || (made.ids == wanted.ids && serves())
}

fn gone() -> SetupError {
    SetupError::new(Step::Supervise, "the blank cell has ended")
}
