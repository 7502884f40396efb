//! What doors have in common that run code and answer with its output.

use std::time::Duration;

use record::json::Object;
use record::{CodeError, Outcome, Record, object};
use serde::{Deserialize, Serialize};
use serve::protocol::Failure;

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
    pub(crate) fn limits(&self, wall: Option<Duration>, memory: Option<u64>) -> Object<'static> {
        let mut limits = Object::default();
        if let Some(wall) = self.wall(wall) {
            limits.set("wall", &wall);
        }
        // Without a limit of its own, a request can be served by a cell that waits.
        if let Some(memory) = memory
            && self.memory.is_none_or(|most| memory < most)
        {
            limits.set("memory", &memory.to_string());
        }
        limits
    }

    /// A wall time as the protocol has it.
    pub(crate) fn wall(&self, asked: Option<Duration>) -> Option<String> {
        let asked = asked.filter(|asked| self.wall.is_none_or(|most| *asked < most))?;
        Some(format!("{}ms", asked.as_millis().max(1)))
    }
}

/// A positive number of seconds.
pub(crate) fn seconds(number: f64) -> Option<Duration> {
    (number > 0.0)
        .then(|| Duration::try_from_secs_f64(number).ok())
        .flatten()
}

/// The result of `run` and of `context.run`, as far as doors need it.
#[derive(Debug, Deserialize)]
pub(crate) struct Ran {
    /// What became of the state of a context.
    #[serde(default)]
    pub(crate) state: Option<serve::protocol::State>,
    pub(crate) record: Record,
}

/// Runs code in a cell of its own.
///
/// # Errors
/// See [`Client::ask`].
pub(crate) async fn run(client: &mut Client, request: &Object<'_>) -> Result<Record, Failure> {
    let params = object! {"request": request};
    let ran: Ran = client.ask_for("run", &params).await?;
    Ok(ran.record)
}

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
