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

use std::borrow::Cow;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::run::{self, Ahead, Code, Events, From, Live, Resolved, Stock, Work};
use crate::spec::{Command, Spec};
use crate::supervise::{Cancel, Cell, Control, wait};
use crate::workspace::inputs::Staged;
use history::Log;
use record::error::{Result, SetupError, Step};
use record::{Outcome, Record};
use sys::process::monotonic_ns;

mod carried;
mod carry;
mod changes;
mod describe;
mod entries;
mod files;
mod history;
mod replay;
mod watches;

pub use carried::execute_carried;
pub(crate) use carry::Checkpoint;
pub use carry::Layout;
pub(crate) use files::{FileAnswer, WorkspaceEdit};
pub use history::MOST_BYTES as MOST_HISTORY;
pub(crate) use watches::{Turned, Watches};

/// The time between an interrupt and the kill, unless the caller gives another.
const GRACE: Duration = Duration::from_millis(500);

/// What the first record of such an interpreter says.
const FIXED: &str = "the interpreter's memory is laid out without randomisation, so that the context can be forked: code in the cell can predict its addresses";

/// What became of the state of an interpreter: its variables, imports and open files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// All of it is still there.
    Kept,
    /// The interpreter ended. The next execution begins with a new one; the workspace is
    /// kept.
    Lost,
    /// It is that of an earlier moment.
    Restored,
}

/// One execution in a context.
#[derive(Clone, Copy)]
pub(crate) struct Execution<'e> {
    /// Its number, larger than the one before.
    pub(crate) number: u64,
    /// The code; `None` for that of the spec.
    pub(crate) code: Option<Code<'e>>,
    /// The most wall time, where that is less than the spec's.
    pub(crate) wall: Option<Duration>,
    /// The time between an interrupt and the kill.
    pub(crate) grace: Option<Duration>,
    /// Whether the cell ends with it.
    pub(crate) is_last: bool,
}

/// What an execution gave.
pub(crate) struct Answer {
    pub(crate) record: Record,
    pub(crate) state: State,
    /// Why, unless the state was kept.
    pub(crate) why: Option<String>,
}

/// A cell that is made on demand, and made anew when it was lost.
pub(crate) struct Context<'a> {
    spec: Spec,
    cancel: Cancel<'a>,
    /// What the next cell is made of, if that was found out already.
    resolved: Option<Resolved>,
    /// A blank cell for the first start.
    ahead: Option<Ahead<'a>>,
    live: Option<Live<'a>>,
    /// A cell without processes that may not be gone.
    ended: Option<Cell<'a>>,
    /// The workspace of the last cell, which has ended.
    workspace: Option<Rc<OwnedFd>>,
    /// The uid and gid that the last cell's program had outside.
    owner: (u32, u32),
    /// Why the state was lost that the last answer called kept.
    lost: Option<String>,
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
    pub(crate) fn new(spec: Spec, cancel: Cancel<'a>, ahead: Option<Ahead<'a>>) -> Result<Self> {
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
            lost: None,
            restored: None,
            log: None,
            fixed_layout: false,
            forks: false,
            stock: None,
            template: None,
            executions: 0,
            descriptions: 0,
            began: Instant::now(),
        })
    }

    /// Has the memory of interpreters that are not forked laid out without randomisation
    /// from the next start on, so that their state can be put into another cell.
    pub(crate) fn fix_layout(&mut self) {
        self.fixed_layout = true;
    }

    /// Has interpreters forked from a template, if that is possible. Otherwise they are
    /// started as usual, and their first record says why.
    pub(crate) fn fork_from(&mut self, stock: Option<&'a Stock>) {
        (self.forks, self.stock) = (true, stock);
    }

    /// The template that the interpreter was forked from.
    pub(crate) const fn template(&self) -> Option<record::Template> {
        self.template
    }

    /// Whether the interpreter was forked from a template.
    pub(crate) fn is_forked(&mut self) -> bool {
        self.live.as_mut().is_some_and(Live::is_forked)
    }

    /// The id of the cell.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The id of the cell that is there now.
    pub(crate) fn cell(&self) -> Option<&str> {
        self.live.as_ref().map(|_| self.id.as_str())
    }

    /// The prepared rootfs, with its digest.
    pub(crate) fn rootfs(&self) -> &str {
        &self.rootfs
    }

    /// The language, for code.
    pub(crate) fn language(&self) -> Option<&str> {
        self.spec.language()
    }

    /// Refuses what a cell that serves several executions cannot have.
    ///
    /// # Errors
    /// Names it.
    pub(crate) fn require_lasting(&self) -> Result<()> {
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

    /// Starts the interpreter, if none runs.
    ///
    /// # Errors
    /// The step that failed on this side.
    pub(crate) fn prepare(&mut self) -> Result<()> {
        self.note_end();
        if self.live.is_none() {
            self.live = Some(self.start()?);
        }
        Ok(())
    }

    fn start(&mut self) -> Result<Live<'a>> {
        if !self.forks {
            return self.start_from(None);
        }
        self.start_forked().or_else(|error| {
            let mut live = self.start_from(None)?;
            live.warn(format!("the cell was started without a template: {error}"));
            Ok(live)
        })
    }

    fn start_forked(&mut self) -> Result<Live<'a>> {
        let missing = || SetupError::new(Step::Fork, "the server has no template at the moment");
        let stock = self.stock.ok_or_else(missing)?;
        self.start_from(Some(stock))
    }

    fn start_from(&mut self, stock: Option<&'a Stock>) -> Result<Live<'a>> {
        let mut spec = self.spec.clone();
        if self.workspace.is_some() {
            // They are among what the last cell left.
            spec.files.clear();
            spec.files_from = None;
        }
        let mut resolved = match self.resolved.take() {
            Some(resolved) => resolved,
            None => run::resolve(&spec)?,
        };
        let is_fixed = self.fixed_layout && stock.is_none();
        resolved.plan.program.fixed_layout = is_fixed;
        let staged = match &self.workspace {
            Some(workspace) => Staged::carry(&resolved.plan, workspace)?,
            None => Staged::read(&resolved.plan)?,
        };
        self.id.clone_from(&resolved.plan.id);
        // Without a blank cell, or with one of another plan, all of it is made now.
        // An init that waits does not get to know of another layout.
        let is_usual = staged.is_empty() && !is_fixed;
        let ahead = self.ahead.take();
        let had_ahead = ahead.is_some();
        let fits = |ahead: &Ahead<'_>| is_usual && ahead.serves(&resolved.plan);
        let from = match (stock, ahead.filter(fits)) {
            (Some(stock), _) => From::Template(stock.template_for(&resolved.plan)?),
            (None, Some(ahead)) => From::Ahead(Box::new(ahead)),
            (None, None) => {
                if had_ahead {
                    // The facts about the host are as old as that cell.
                    resolved = run::resolve(&spec)?;
                    resolved.plan.id.clone_from(&self.id);
                    resolved.plan.program.fixed_layout = is_fixed;
                }
                From::Nothing
            }
        };
        let mut live = Live::start(Cow::Owned(spec), resolved, staged, self.cancel, from)?;
        self.template = stock.map(Stock::as_it_is);
        if let Some(template) = self.template {
            live.set_template(template);
        }
        if is_fixed {
            live.warn(FIXED.to_owned());
        }
        self.owner = live.facts.owner();
        Ok(live)
    }

    /// Executes code. Whatever happens is in the record.
    pub(crate) fn execute(
        &mut self,
        execution: &Execution<'_>,
        events: Option<&Events>,
        control: Option<&dyn Control>,
    ) -> Answer {
        self.executions += 1;
        let mut answer = self.execute_once(execution, events, control);
        if let Some(log) = &mut self.log {
            if self.live.is_some() {
                log.add_execution(execution, &answer.record);
            } else if let (State::Lost, Some(why), true) =
                (answer.state, &mut answer.why, log.past.is_some())
            {
                why.push_str("; ");
                why.push_str(replay::RESUME_HINT);
            }
        }
        answer
    }

    fn execute_once(
        &mut self,
        execution: &Execution<'_>,
        events: Option<&Events>,
        control: Option<&dyn Control>,
    ) -> Answer {
        let began_ns = monotonic_ns();
        self.note_end();
        if let Some(live) = &mut self.live {
            live.note_ready();
        }
        if let Err(error) = self.take_code(execution).and_then(|()| self.prepare()) {
            return self.not_started(error);
        }
        let Some(live) = self.live.take() else {
            let error = SetupError::new(Step::Supervise, "the cell is not there");
            return self.not_started(error);
        };
        let grace = execution.grace.or(self.spec.limits.grace).unwrap_or(GRACE);
        let code = execution.code.or_else(|| run::code_of(&self.spec));
        let message = match live.message(execution.number, code, execution.is_last) {
            Ok(message) => message,
            Err(error) => {
                self.live = Some(live);
                return self.refused(error);
            }
        };
        let work = Work {
            execution: execution.number,
            message,
            code_file: live.facts.code_file(code),
            is_last: execution.is_last,
            wall: execution.wall,
            grace: (!execution.is_last).then_some(grace),
            began_ns,
        };
        match live.execute(work, events, control) {
            Err(error) => self.not_started(error),
            Ok(executed) => match executed.cell {
                Ok(live) => {
                    self.live = Some(live);
                    self.kept(executed.record)
                }
                Err(remains) => {
                    self.ended = remains.cell;
                    self.take_workspace(remains.workspace);
                    (self.lost, self.restored) = (None, None);
                    let why = match execution.is_last {
                        true => "the cell served its last execution".to_owned(),
                        false => why_lost(&executed.record),
                    };
                    Answer {
                        record: executed.record,
                        state: State::Lost,
                        why: Some(why),
                    }
                }
            },
        }
    }

    /// Where the code is a file of the cell's, the cell is made with it.
    fn take_code(&mut self, execution: &Execution<'_>) -> Result<()> {
        let is_file = (self.resolved.as_ref())
            .and_then(Resolved::driver)
            .is_some_and(|driver| !driver.has_channel());
        if let (true, Some((code, name, args))) = (is_file, execution.code)
            && let Command::Run {
                code: own,
                name: own_name,
                args: own_args,
                ..
            } = &mut self.spec.command
        {
            own.clone_from(code);
            name.clone_into(own_name);
            args.clone_into(own_args);
            self.resolved = Some(run::resolve(&self.spec)?);
        }
        Ok(())
    }

    fn kept(&mut self, record: Record) -> Answer {
        let (state, why) = self.state();
        (self.lost, self.restored) = (None, None);
        Answer { record, state, why }
    }

    /// What became of the state since the last answer of an execution, and why.
    fn state(&self) -> (State, Option<String>) {
        match (&self.lost, &self.restored) {
            (Some(why), _) => (State::Lost, Some(why.clone())),
            (None, Some(why)) => (State::Restored, Some(why.clone())),
            (None, None) => (State::Kept, None),
        }
    }

    /// The execution was refused before it had any effect.
    fn refused(&mut self, error: SetupError) -> Answer {
        let record = run::not_set_up(&self.spec, error);
        self.kept(record)
    }

    fn not_started(&mut self, error: SetupError) -> Answer {
        let had_state = self.executions > 1;
        let why = self.lost.take();
        Answer {
            record: run::not_set_up(&self.spec, error),
            state: State::Lost,
            why: why.or_else(|| had_state.then(|| "no interpreter could be started".to_owned())),
        }
    }

    /// The answer to an execution that was cancelled before it began.
    pub(crate) fn cancelled(&self) -> Answer {
        // The next answer says it again, of an execution that did begin.
        let (state, why) = self.state();
        Answer {
            record: run::cancelled(&self.spec),
            state,
            why,
        }
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
    fn leave(&mut self, live: Live<'a>) {
        let remains = live.end();
        self.take_workspace(remains.ok().and_then(|remains| remains.workspace));
    }

    /// Keeps a cell's workspace for the next one.
    fn take_workspace(&mut self, workspace: Option<OwnedFd>) {
        self.workspace = workspace.map(Rc::new).or(self.workspace.take());
        if let Some(log) = &mut self.log {
            log.end(self.workspace.clone());
        }
    }

    /// Waits until a cell that has ended is gone, cgroup and all.
    pub(crate) fn clear(&mut self) {
        self.ended = None;
    }

    /// Watches the cell while it executes nothing, until `control` has work, or `until`.
    ///
    /// # Errors
    /// Watching is impossible.
    pub(crate) fn rest(&mut self, control: &dyn Control, until: Option<Instant>) -> Result<()> {
        match &mut self.live {
            Some(live) => live.cell.rest(control, until)?,
            None => wait(control, until)?,
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
    pub(crate) fn restart(&mut self) -> Result<()> {
        if let Some(live) = self.live.take() {
            self.leave(live);
        }
        (self.lost, self.restored) = (None, None);
        self.prepare()
    }

    /// Ends the cell.
    pub(crate) fn end(mut self) {
        if let Some(live) = self.live.take() {
            self.leave(live);
        }
    }
}

/// Why the state is gone, in one sentence.
fn why_lost(record: &Record) -> String {
    match (record.outcome, &record.signal) {
        (Outcome::Timeout | Outcome::Cancelled | Outcome::Output, Some(_))
            if record.timing.grace_ms.is_some() =>
        {
            "the code did not stop within the grace after its interrupt, so the interpreter was killed".to_owned()
        }
        (Outcome::Timeout, _) => "the cell has used up its CPU time".to_owned(),
        (Outcome::Cancelled, _) => "the execution was cancelled, which ends its cell".to_owned(),
        (Outcome::Memory, _) => "the cell has used up its memory".to_owned(),
        (Outcome::Setup, _) => "no interpreter could be started".to_owned(),
        (_, Some(signal)) => format!("{signal} ended the interpreter"),
        _ => format!("the code ended the interpreter with status {}", record.exit_code),
    }
}
