//! What a context has executed, so that a new interpreter can execute it again.
//!
//! It is kept outside of the cell, as long as it stays within its bounds. Files that the
//! client wrote or removed are part of it, since the code reads them.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Execution;
use super::files::WorkspaceEdit;
use record::bytes::RawText;
use record::error::{Result, SetupError, Step as Stage};
use record::{Outcome, Record};

/// The most executions and files.
const MOST_STEPS: usize = 1000;
/// The most bytes of code, arguments and files. A server counts them like memory of the
/// cell.
pub const MOST_BYTES: u64 = 32 << 20;
/// The most time that the executions took.
const MOST_TIME: Duration = Duration::from_secs(300);
/// Bytes that a step counts besides those of its texts.
const STEP_BYTES: usize = 256;

/// One thing that happened in a context.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Step {
    /// Code was executed.
    Execute(Executed),
    /// The client changed the workspace.
    Edit(WorkspaceEdit),
}

/// An execution that ended by itself.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Executed {
    pub(super) number: u64,
    pub(super) code: RawText,
    pub(super) name: String,
    pub(super) args: Vec<RawText>,
    pub(super) wall: Option<Duration>,
    pub(super) grace: Option<Duration>,
    pub(super) ended: Ended,
    /// A digest of its output.
    pub(super) output: u64,
}

/// How an execution ended. All of this must be the same when it is executed again.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ended {
    outcome: Outcome,
    exit_code: i32,
    /// The class of the exception.
    exception: Option<String>,
}

/// What has been executed since an interpreter began.
#[derive(Debug, Default)]
pub(super) struct History {
    /// The workspace at the beginning; `None` for that of the spec.
    pub(super) start: Option<Rc<OwnedFd>>,
    pub(super) steps: Vec<Step>,
    /// Executions that were interrupted, which are not executed again.
    pub(super) left_out: u64,
    bytes: u64,
    time: Duration,
    /// The bound that was exceeded. No steps are kept since then.
    beyond: Option<String>,
}

/// A history as a checkpoint stores it.
#[derive(Debug, Serialize, Deserialize)]
struct Saved<S> {
    steps: S,
    left_out: u64,
    bytes: u64,
    time: Duration,
}

/// The histories of a context.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// The history of the present interpreter, or of the next one.
    pub(super) own: History,
    /// The history of the previous interpreter, whose state is lost. It is kept until something
    /// else is executed.
    pub(super) past: Option<History>,
}

impl Ended {
    pub(super) fn of(record: &Record) -> Self {
        Self {
            outcome: record.outcome,
            exit_code: record.exit_code,
            exception: record.error.as_ref().map(|error| error.name.clone()),
        }
    }

    pub(super) fn words(&self) -> String {
        match &self.exception {
            Some(exception) => format!("`{}` ({exception})", self.outcome),
            None => format!("`{}` (status {})", self.outcome, self.exit_code),
        }
    }
}

/// A digest of what was written to standard output.
pub(super) fn output_of(record: &Record) -> u64 {
    let mut digest = DefaultHasher::new();
    let stdout = record.stdout.as_ref().map(ToString::to_string);
    stdout.hash(&mut digest);
    digest.finish()
}

impl Step {
    fn of(execution: &Execution<'_>, record: &Record) -> Option<Self> {
        let (code, name, args) = execution.code?;
        Some(Self::Execute(Executed {
            number: execution.number,
            code: code.clone(),
            name: name.to_owned(),
            args: args.to_vec(),
            wall: execution.wall,
            grace: execution.grace,
            ended: Ended::of(record),
            output: output_of(record),
        }))
    }

    fn bytes(&self) -> u64 {
        let own = match self {
            Self::Execute(executed) => {
                let args = executed.args.iter().map(|arg| arg.as_bytes().len());
                executed.code.as_bytes().len() + executed.name.len() + args.sum::<usize>()
            }
            Self::Edit(edit) => match edit {
                WorkspaceEdit::Write { path, content, .. } => {
                    path.as_os_str().len() + content.as_bytes().len()
                }
                WorkspaceEdit::WritePart(part) => {
                    part.path.as_os_str().len() + part.content.as_bytes().len()
                }
                WorkspaceEdit::MakeDirectory { path } | WorkspaceEdit::Remove { path } => {
                    path.as_os_str().len()
                }
                WorkspaceEdit::Move { from, to } => from.as_os_str().len() + to.as_os_str().len(),
            },
        };
        (own + STEP_BYTES) as u64
    }
}

impl History {
    /// A history that begins with this workspace.
    fn since(start: Option<Rc<OwnedFd>>) -> Self {
        Self {
            start,
            ..Self::default()
        }
    }

    /// The executions in it.
    pub(super) fn executions(&self) -> usize {
        let is_execution = |step: &&Step| matches!(step, Step::Execute(_));
        self.steps.iter().filter(is_execution).count()
    }

    /// Whether its interpreter is still like a new one.
    pub(super) fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.left_out == 0 && self.beyond.is_none()
    }

    /// Refuses a history that is no longer complete.
    ///
    /// # Errors
    /// Names the bound that was exceeded.
    pub(super) fn check(&self) -> Result<()> {
        let Some(beyond) = &self.beyond else {
            return Ok(());
        };
        let message = format!("what the context has executed cannot be executed again: {beyond}");
        Err(SetupError::new(Stage::State, message)
            .on("replay")
            .hint("go back to an earlier checkpoint, or create a new context"))
    }

    fn add(&mut self, step: Step, time: Duration) {
        if self.beyond.is_some() {
            return;
        }
        self.bytes += step.bytes();
        self.time += time;
        self.steps.push(step);
        let beyond = if self.steps.len() > MOST_STEPS {
            format!("it is more than {MOST_STEPS} executions and files")
        } else if self.bytes > MOST_BYTES {
            format!("its code and files have more than {MOST_BYTES} bytes")
        } else if self.time > MOST_TIME {
            format!("it took more than {}s", MOST_TIME.as_secs())
        } else {
            return;
        };
        *self = Self {
            beyond: Some(beyond),
            ..Self::default()
        };
    }

    /// As JSON, without the workspace at the beginning.
    ///
    /// # Errors
    /// It does not serialise.
    pub(super) fn to_json(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(&Saved {
            steps: &self.steps[..],
            left_out: self.left_out,
            bytes: self.bytes,
            time: self.time,
        })
    }

    /// # Errors
    /// The text is not a history.
    pub(super) fn from_json(text: &[u8], start: Option<Rc<OwnedFd>>) -> serde_json::Result<Self> {
        let saved: Saved<Vec<Step>> = record::json::from_slice(text)?;
        Ok(Self {
            start,
            steps: saved.steps,
            left_out: saved.left_out,
            bytes: saved.bytes,
            time: saved.time,
            beyond: None,
        })
    }
}

impl Log {
    /// Notes that the interpreter has ended, and has left this workspace.
    pub(super) fn end(&mut self, workspace: Option<Rc<OwnedFd>>) {
        let own = std::mem::replace(&mut self.own, History::since(workspace));
        if own.executions() > 0 || own.beyond.is_some() {
            self.past = Some(own);
        }
    }

    /// Adds a step that is not an execution.
    pub(super) fn add(&mut self, step: Step) {
        self.add_within(step, Duration::ZERO);
    }

    fn add_within(&mut self, step: Step, time: Duration) {
        let past = self.past.as_ref().map_or(0, |past| past.bytes);
        if past + self.own.bytes + step.bytes() > MOST_BYTES {
            self.past = None;
        }
        self.own.add(step, time);
    }

    /// Adds an execution that left the interpreter alive.
    pub(super) fn add_execution(&mut self, execution: &Execution<'_>, record: &Record) {
        if record.outcome == Outcome::Setup {
            // It had no effect.
            return;
        }
        self.past = None;
        match record.outcome {
            // Where an interrupt takes effect depends on timing.
            Outcome::Timeout | Outcome::Cancelled | Outcome::Output => self.own.left_out += 1,
            _ => {
                if let Some(step) = Step::of(execution, record) {
                    let time = Duration::try_from_secs_f64(record.execution_time);
                    self.add_within(step, time.unwrap_or_default());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn executed(log: &mut Log, code: &str, record: &Record) {
        let code = RawText::from(code);
        let execution = Execution {
            number: 1,
            code: Some((&code, "main", &[])),
            wall: None,
            grace: None,
            is_last: false,
        };
        log.add_execution(&execution, record);
    }

    fn ended(outcome: Outcome, seconds: f64) -> Record {
        Record {
            outcome,
            execution_time: seconds,
            ..Record::default()
        }
    }

    fn removal() -> Step {
        Step::Edit(WorkspaceEdit::Remove { path: "f".into() })
    }

    fn file(bytes: usize) -> Step {
        Step::Edit(WorkspaceEdit::Write {
            path: "f".into(),
            content: vec![b'x'; bytes].into(),
            executable: false,
            append: false,
        })
    }

    fn why(history: &History) -> String {
        history.check().unwrap_err().message
    }

    #[test]
    fn what_ended_by_itself_is_kept_and_comes_back_from_the_disk() {
        let mut log = Log::default();
        executed(&mut log, "a", &ended(Outcome::Ok, 1.0));
        executed(&mut log, "b", &ended(Outcome::Error, 1.0));
        executed(&mut log, "c", &ended(Outcome::Timeout, 1.0));
        executed(&mut log, "d", &ended(Outcome::Setup, 0.0));
        log.add(removal());
        let text = log.own.to_json().unwrap();
        let back = History::from_json(&text, None).unwrap();
        for history in [&log.own, &back] {
            assert_eq!((history.executions(), history.steps.len()), (2, 3));
            assert_eq!((history.left_out, history.time.as_secs()), (1, 2));
            assert_eq!(history.bytes, log.own.bytes);
        }
    }

    #[test]
    fn a_history_without_bounds_is_given_up_and_named() {
        let mut log = Log::default();
        for _ in 0..MOST_STEPS {
            log.add(removal());
        }
        log.own.check().unwrap();
        executed(&mut log, "", &ended(Outcome::Ok, 0.0));
        assert!(why(&log.own).contains("1000 executions"), "{log:?}");
        assert!(log.own.steps.is_empty() && !log.own.is_empty());

        let mut log = Log::default();
        log.add(file(MOST_BYTES as usize - 2 * STEP_BYTES));
        log.own.check().unwrap();
        log.add(file(STEP_BYTES));
        assert!(why(&log.own).contains("33554432 bytes"));

        let mut log = Log::default();
        executed(&mut log, "", &ended(Outcome::Ok, 299.0));
        log.own.check().unwrap();
        executed(&mut log, "", &ended(Outcome::Ok, 2.0));
        assert!(why(&log.own).contains("300s"));
    }

    #[test]
    fn a_lost_interpreter_can_be_replayed_until_something_is_executed() {
        let mut log = Log::default();
        executed(&mut log, "a", &ended(Outcome::Ok, 0.0));
        log.end(None);
        assert!(log.own.is_empty());
        // Another loss before anything was executed changes nothing.
        log.add(removal());
        log.end(None);
        assert_eq!(log.past.as_ref().map(History::executions), Some(1));
        // Both together are bounded.
        log.add(file(MOST_BYTES as usize - 2 * STEP_BYTES));
        assert!(log.past.is_none() && log.own.check().is_ok());
        log.past = Some(History::default());
        executed(&mut log, "b", &ended(Outcome::Ok, 0.0));
        assert!(log.past.is_none());
    }
}
