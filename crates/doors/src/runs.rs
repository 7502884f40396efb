//! What doors have in common that run code and answer with its output.

use std::time::Duration;

use record::quantity::Bound;
use record::{CodeError, Outcome, Record};
use serde::Serialize;
use wire::{Executed, Failure, Method, Ran, Request, RequestLimits, Run, Span, method};

use crate::client::Client;

/// The most that a request may ask for. The protocol refuses more; clients of other servers
/// do not know this one's limits, so they get what there is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Most {
    /// The wall time of an execution.
    pub wall: Option<Duration>,
    /// The memory of a cell in bytes.
    pub memory: Option<u64>,
}

impl Most {
    /// Limits of a request, from seconds and bytes that a client named.
    pub(crate) fn limits(&self, wall: Option<Duration>, memory: Option<u64>) -> RequestLimits {
        RequestLimits {
            wall: self.wall(wall),
            // Without a limit of its own, a request can be served by a cell that waits.
            memory: memory.filter(|memory| self.memory.is_none_or(|most| *memory < most)),
        }
    }

    /// A wall time as the protocol has it.
    pub(crate) fn wall(&self, asked: Option<Duration>) -> Option<Span> {
        let asked = asked.filter(|asked| self.wall.is_none_or(|most| *asked < most))?;
        Some(span(asked))
    }
}

/// A time as the protocol has it, in whole milliseconds and not zero.
pub(crate) fn span(time: Duration) -> Span {
    let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    Bound(Some(Duration::from_millis(ms.max(1))))
}

/// A positive number of seconds.
pub(crate) fn seconds(number: f64) -> Option<Duration> {
    (number > 0.0)
        .then(|| Duration::try_from_secs_f64(number).ok())
        .flatten()
}

/// Runs code in a cell of its own.
///
/// # Errors
/// See [`Client::ask`].
pub(crate) async fn run(client: &mut Client, request: &Request<'_>) -> Result<Record, Failure> {
    let params = Run {
        request: request.raw(),
        events: false,
    };
    let ran: Ran<Record> = client.ask_as::<method::Run, _>(&params).await?;
    Ok(ran.record)
}

/// Executes code in a context.
///
/// # Errors
/// See [`Client::ask`].
pub(crate) async fn execute(
    client: &mut Client,
    params: &ContextRun,
) -> Result<Executed<Record>, Failure> {
    client.ask_as::<method::ContextRun, _>(params).await
}

/// The parameters of `context.run`.
pub(crate) type ContextRun = <method::ContextRun as Method>::Params;

/// What a program wrote to its standard output.
pub(crate) fn stdout(record: &Record) -> String {
    record
        .stdout
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_default()
}

/// What a program wrote to its standard error, and what an interpreter would have added: its
/// traceback, and why it was ended.
pub(crate) fn stderr(record: &Record) -> String {
    let mut text = record
        .stderr
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_default();
    if let Some(error) = &record.error {
        add_line(&mut text, &error.text());
    }
    if let (true, Some(why)) = (is_cut_short(record.outcome), &record.context) {
        add_line(&mut text, why);
    }
    text
}

/// Adds a line of its own.
pub(crate) fn add_line(text: &mut String, line: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(line);
    text.push('\n');
}

/// Whether the cell ended the program by a limit or a rule, which the program cannot say.
const fn is_cut_short(outcome: Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Memory | Outcome::Processes | Outcome::Output | Outcome::Disk | Outcome::Denied
    )
}

/// Whether the code did not run at all, through no fault of its own.
pub(crate) const fn is_fault(outcome: Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Setup | Outcome::Internal | Outcome::Cancelled
    )
}

/// Why it did not run, for the client.
pub(crate) fn fault(record: &Record) -> String {
    let error = record
        .setup_error
        .as_ref()
        .map(|error| error.without_paths().to_string());
    let context = record.context.clone();
    error
        .or(context)
        .unwrap_or_else(|| record.outcome.to_string())
}

/// An exception as Jupyter's protocol has it.
#[derive(Debug, Serialize)]
pub(crate) struct JupyterError<'a> {
    ename: &'a str,
    evalue: &'a str,
    traceback: &'a [String],
}

impl<'a> JupyterError<'a> {
    pub(crate) fn of(error: &'a CodeError) -> Self {
        Self {
            ename: &error.name,
            evalue: &error.message,
            traceback: &error.traceback,
        }
    }
}
