//! One execution in a context, and what its answer says about the state.

use std::time::Duration;

use super::{Context, State, replay};
use crate::run::{self, Code, Events, Resolved, Work};
use record::error::{Result, SetupError, Step};
use record::{Outcome, Record};
use spec::Command;
use supervise::Control;
use sys::process::monotonic_ns;

/// The time between an interrupt and the kill, unless the caller gives another.
const GRACE: Duration = Duration::from_millis(500);

/// One execution in a context.
#[derive(Clone, Copy)]
pub struct Execution<'e> {
    /// Its number, larger than the one before.
    pub number: u64,
    /// The code; `None` for that of the spec.
    pub code: Option<Code<'e>>,
    /// The most wall time, where that is less than the spec's.
    pub wall: Option<Duration>,
    /// The time between an interrupt and the kill.
    pub grace: Option<Duration>,
    /// Whether the cell ends with it.
    pub is_last: bool,
}

/// The result of an execution.
pub struct Answer {
    /// What happened.
    pub record: Record,
    /// What became of the state.
    pub state: State,
    /// Why, unless the state was kept.
    pub why: Option<String>,
}

impl Context<'_> {
    /// Executes code. Whatever happens is in the record.
    pub fn execute(
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

    pub(super) fn execute_once(
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

    /// If the code has to be a file in the cell, the cell is made with that file.
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

    /// The state that the next execution finds, and why, unless it was kept.
    pub fn next_state(&self) -> (State, Option<String>) {
        if self.live.is_none() && self.lost.is_none() {
            let why = "the interpreter ended; the next execution begins with a new one";
            return (State::Lost, Some(why.to_owned()));
        }
        self.state()
    }

    /// What became of the state since the last answer of an execution, and why.
    pub(super) fn state(&self) -> (State, Option<String>) {
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
    pub fn cancelled(&self) -> Answer {
        // The answer to the next execution that begins reports the state again.
        let (state, why) = self.state();
        Answer {
            record: run::cancelled(&self.spec),
            state,
            why,
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
        _ if record.timing.interpreter_ms.is_none() => {
            let status = record.exit_code;
            format!("the interpreter ended with status {status} before the code began")
        }
        _ => format!("the code ended the interpreter with status {}", record.exit_code),
    }
}
