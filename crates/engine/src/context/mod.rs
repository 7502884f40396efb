//! A context: a cell whose interpreter stays alive between executions. A context that was made
//! without a language has no interpreter; only processes are started in it.
//!
//! Variables, imports, open files, background threads and child processes are its state.
//! Each execution has the record that `cellblock run` would have made, and says what
//! became of the state ([`State`]):
//!
//! | what happens | the state |
//! |---|---|
//! | the code ends, or raises an exception | kept |
//! | the wall time is over, too much is written, or the caller interrupts: SIGINT to the program's process group | kept if the code stops within the grace; otherwise the cell is killed |
//! | the memory or the CPU time of the cell is used up, the interpreter ends, the caller cancels | lost |
//!
//! An interpreter that was lost is started again on demand, in a new cell with what the
//! old one left in its workspace.
//!
//! Between executions a cell is watched, but what its processes write is not read: they
//! wait once the pipes are full. The next execution drops what it finds there, and its
//! record says how much that was. A thread that writes during an execution cannot be
//! told from the code.

use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Instant;

use crate::run::{self, Ahead, Live, Resolved, Stock};
use history::Log;
use jail::launch::SharedCell;
use record::error::{Result, SetupError, Step};
use spec::Spec;
use supervise::{Cancel, Cell, Control, wait};
use uploads::Uploads;

mod carried;
mod carry;
mod changes;
mod describe;
mod entries;
mod execute;
mod files;
mod history;
mod replay;
mod scratch;
mod start;
mod uploads;
mod watches;

pub use carried::execute_carried;
pub use carry::{Checkpoint, Layout};
pub use execute::{Answer, Execution};
pub use files::{FileAnswer, WorkspaceEdit};
pub use history::MOST_BYTES as MOST_HISTORY;
pub use record::State;
pub use uploads::Part;
pub use watches::{Turned, Watches};

/// A cell that is made on demand, and made anew when it was lost.
pub struct Context<'a> {
    spec: Spec,
    cancel: Cancel<'a>,
    /// What the next cell is made of, if that was found out already.
    resolved: Option<Resolved>,
    /// A blank cell for the first start.
    ahead: Option<Ahead<'a>>,
    live: Option<Live<'a>>,
    /// A cell without processes that may not be gone.
    ended: Option<Box<Cell<'a>>>,
    /// The workspace of the last cell, which has ended.
    workspace: Option<Rc<OwnedFd>>,
    /// The uid and gid that the last cell's program had outside.
    owner: (u32, u32),
    /// Files of which parts are here.
    uploads: Uploads,
    /// Why the state was lost that the last answer called kept.
    lost: Option<String>,
    /// Warnings of cells that ended before they had executed anything.
    unsaid: Vec<String>,
    /// Why the state is that of an earlier moment, until an answer has said so.
    restored: Option<String>,
    /// What was executed, if a new interpreter is to execute it again.
    log: Option<Log>,
    /// Whether the memory of interpreters that are not forked is laid out alike in every
    /// cell.
    fixed_layout: bool,
    /// Whether interpreters are to be forked from a template.
    forks: bool,
    /// Where that is.
    stock: Option<&'a Stock>,
    /// Whether an execution waits for the fork.
    is_awaited: bool,
    /// Another supervisor's cell, in which interpreters are started.
    shared: Option<&'a SharedCell>,
    /// The template that the last interpreter was forked from.
    template: Option<record::Template>,
    id: String,
    rootfs: String,
    executions: u64,
    descriptions: u64,
    began: Instant,
}

impl<'a> Context<'a> {
    /// A context for `spec`, without a cell yet. Its first cell is `ahead`, if that is one
    /// of its plan.
    ///
    /// # Errors
    /// The spec cannot be carried out on this host.
    pub fn new(spec: Spec, cancel: Cancel<'a>, ahead: Option<Ahead<'a>>) -> Result<Self> {
        let resolved = match &ahead {
            Some(ahead) => run::resolve_with(&spec, ahead.host().clone())?,
            None => run::resolve(&spec)?,
        };
        Ok(Self {
            ahead,
            spec,
            cancel,
            id: resolved.plan.id.clone(),
            rootfs: resolved.plan.rootfs.clone(),
            resolved: Some(resolved),
            live: None,
            ended: None,
            workspace: None,
            owner: (0, 0),
            uploads: Uploads::default(),
            lost: None,
            unsaid: Vec::new(),
            restored: None,
            log: None,
            fixed_layout: false,
            forks: false,
            stock: None,
            is_awaited: false,
            shared: None,
            template: None,
            executions: 0,
            descriptions: 0,
            began: Instant::now(),
        })
    }

    /// A context whose interpreters are started in another supervisor's cell.
    ///
    /// # Errors
    /// The spec cannot be carried out on this host.
    pub fn in_shared(spec: Spec, cancel: Cancel<'a>, shared: &'a SharedCell) -> Result<Self> {
        let mut context = Self::new(spec, cancel, None)?;
        context.shared = Some(shared);
        Ok(context)
    }

    /// Has the memory of interpreters that are not forked laid out without randomisation
    /// from the next start on, so that their state can be put into another cell.
    pub fn fix_layout(&mut self) {
        self.fixed_layout = true;
    }

    /// Has interpreters forked from a template, if that is possible. Otherwise they are
    /// started as usual, and their first record says why. Where an execution waits for the fork,
    /// nothing is prepared for it that it may not need.
    pub fn fork_from(&mut self, stock: Option<&'a Stock>, is_awaited: bool) {
        (self.forks, self.stock, self.is_awaited) = (true, stock, is_awaited);
    }

    /// The template that the interpreter was forked from.
    pub const fn template(&self) -> Option<record::Template> {
        self.template
    }

    /// Whether the interpreter was forked from a template.
    pub fn is_forked(&mut self) -> bool {
        self.live.as_mut().is_some_and(Live::is_forked)
    }

    /// Whether its interpreter is there.
    pub const fn is_alive(&self) -> bool {
        self.live.is_some()
    }

    /// The id of the cell.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The id of the cell that is there now.
    pub fn cell(&self) -> Option<&str> {
        self.live.as_ref().map(|_| self.id.as_str())
    }

    /// The prepared rootfs, with its digest.
    pub fn rootfs(&self) -> &str {
        &self.rootfs
    }

    /// The language, for code.
    pub fn language(&self) -> Option<&str> {
        self.spec.language()
    }

    /// Refuses what a cell that serves several executions cannot have.
    ///
    /// # Errors
    /// Names it.
    pub fn require_lasting(&self) -> Result<()> {
        let refused = |message: &str| SetupError::new(Step::Spec, message);
        let driver = self.resolved.as_ref().and_then(Resolved::driver);
        let has_program = (self.resolved.as_ref()).is_some_and(|all| all.plan.program.exists());
        if has_program && !driver.is_some_and(|driver| driver.has_channel()) {
            let error = refused("a context needs code in a language whose interpreter can stay");
            return Err(error
                .on(self.language().unwrap_or("argv"))
                .hint("run it by itself"));
        }
        if self.spec.workspace.is_some() || self.spec.keep_tmp.is_some() {
            return Err(refused("a context keeps its workspace itself")
                .on("workspace, keep_tmp")
                .hint("leave both out"));
        }
        Ok(())
    }

    /// Notes that the cell has ended by itself, if it has.
    fn note_end(&mut self) {
        if self.live.as_ref().is_some_and(|live| live.cell.is_over())
            && let Some(live) = self.live.take()
        {
            let why = live.cell.why_over();
            self.lost = Some(format!(
                "{why} between two executions; a new interpreter was started"
            ));
            self.restored = None;
            self.leave(live);
        }
    }

    /// Ends a cell, and keeps its workspace for the next one.
    fn leave(&mut self, mut live: Live<'a>) {
        self.unsaid.append(&mut live.unsaid());
        let remains = live.end();
        self.take_workspace(remains.ok().and_then(|remains| remains.workspace));
    }

    /// Keeps a cell's workspace for the next one.
    fn take_workspace(&mut self, workspace: Option<OwnedFd>) {
        if self.shared.is_some() {
            // It stays in the cell, where the next interpreter finds it.
            return;
        }
        self.workspace = workspace.map(Rc::new).or(self.workspace.take());
        if let Some(log) = &mut self.log {
            log.end(self.workspace.clone());
        }
    }

    /// Waits until a cell that has ended is gone, cgroup and all.
    pub fn clear(&mut self) {
        self.ended = None;
    }

    /// Watches the cell while it executes nothing, until `control` has work, or `until`.
    ///
    /// # Errors
    /// Watching is impossible.
    pub fn rest(&mut self, control: &dyn Control, until: Option<Instant>) -> Result<()> {
        match &mut self.live {
            Some(live) => live.cell.rest(control, until)?,
            None => wait(control, until, self.shared.map(AsFd::as_fd))?,
        }
        self.note_end();
        Ok(())
    }

    /// Whether the caller has cancelled the cell's work.
    fn is_cancelled(&self) -> bool {
        let live = self.live.as_ref();
        live.is_some_and(|live| live.cell.is_cancelled())
    }

    /// Ends the cell and starts a new one with its workspace.
    ///
    /// # Errors
    /// The step that failed on this side.
    pub fn restart(&mut self) -> Result<()> {
        if let Some(live) = self.live.take() {
            self.leave(live);
        }
        (self.lost, self.restored) = (None, None);
        self.prepare().inspect_err(|_| {
            self.lost = Some("no interpreter could be started".to_owned());
        })
    }

    /// Ends the cell.
    pub fn end(mut self) {
        if let Some(live) = self.live.take() {
            self.leave(live);
        }
    }
}
