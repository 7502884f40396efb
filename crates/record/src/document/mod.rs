//! The record: the one JSON document that every call writes.

mod isolation;
mod measures;

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bytes::RawText;
use crate::error::SetupError;
use crate::json::{Form, Json};
use crate::network::NetworkRecord;
use crate::order::Shown;
use crate::stream::{Base64, Text};

pub use isolation::*;
pub use measures::*;

/// Name and version of the record's format. The number changes with every change that
/// an old reader could misunderstand; new optional fields do not change it.
pub const SCHEMA: &str = "cellblock.record.v1";

/// The record of one execution.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Record {
    /// `cellblock.record.v1`.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// Unique to this execution.
    pub id: String,
    /// cellblock's version.
    pub version: String,
    /// The time of day when it was asked for (UTC, RFC 3339).
    #[serde(default)]
    #[schemars(required)]
    pub started_at: String,
    /// The language, for `run`; null for `exec`.
    pub language: Option<String>,
    /// The program's argument vector, for `exec`; null for `run`.
    pub argv: Option<Vec<RawText>>,
    /// How the execution ended, in one word.
    pub outcome: Outcome,
    /// The exit status: the program's own; 124 for a time limit; 125 when the cell
    /// could not be set up; 126 or 127 when the program could not be executed;
    /// 128+n for signal n. A program can use these numbers too: `outcome`
    /// distinguishes the cases.
    pub exit_code: i32,
    /// The signal that ended the program, such as `SIGSEGV`, even if cellblock sent it.
    pub signal: Option<String>,
    /// Seconds of real time from the program's start to its end.
    pub execution_time: f64,
    /// Whether the run failed in any way.
    pub is_error: bool,
    /// The kind of failure.
    pub error_category: Option<Category>,
    /// Whether another attempt could succeed: with changed code, or, while another
    /// run uses a directory of `--workspace` or `--keep-tmp`, with the same call
    /// later. False for outcomes `setup`, `internal` and `cancelled`, and when the
    /// code needs a host that the cell's network does not reach.
    pub is_retryable: bool,
    /// One sentence for the code's author.
    pub context: Option<String>,
    /// What the operator can do about it, in one sentence, where the code's author can
    /// only do without: such as the command that adds a missing package.
    #[serde(default)]
    pub operator_hint: Option<String>,
    /// What the program wrote to stdout; invalid UTF-8 is shown as U+FFFD. Null
    /// when it was passed through.
    #[schemars(with = "Option<String>")]
    pub stdout: Option<Text>,
    /// What the program wrote to stderr, in the same form.
    #[schemars(with = "Option<String>")]
    pub stderr: Option<Text>,
    /// The kept bytes of stdout, present only when they are not valid UTF-8.
    #[schemars(with = "Option<String>")]
    pub stdout_base64: Option<Base64>,
    /// The kept bytes of stderr, present only when they are not valid UTF-8.
    #[schemars(with = "Option<String>")]
    pub stderr_base64: Option<Base64>,
    /// Values that the code produced, in order.
    pub results: Vec<ResultItem>,
    /// In which order output and results came, where there were results: exact for Python;
    /// for other languages, output may come before a result that was shown a little
    /// earlier. Of more than 2000 steps, later output counts for an earlier step.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub order: Vec<Shown>,
    /// The exception that ended the code.
    pub error: Option<CodeError>,
    /// Files below `/workspace` that the run created, modified or deleted, by
    /// path; directories are not listed.
    pub files: Vec<FileChange>,
    /// Files that could not be listed or copied out, and why.
    #[serde(default)]
    #[schemars(required)]
    pub files_skipped: Vec<FileSkipped>,
    /// The parts of the record that were cut: `stdout`, `stderr`, `files`,
    /// `files_skipped`, `inline_files`, `results`, `denied`.
    pub truncated: BTreeMap<String, Truncation>,
    /// What the program tried and the policy denied.
    pub denied: Vec<Denied>,
    /// What the policy denied to the interpreter itself, which tries it at every
    /// start before it runs the code, and works without it.
    pub denied_to_interpreter: Vec<Denied>,
    /// What the program did on the network; present where hosts were allowed by name.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub network: Option<NetworkRecord>,
    /// What the execution used.
    pub usage: Usage,
    /// Each limit: what was requested, what is enforced, and by which mechanism.
    pub limits: BTreeMap<String, LimitRecord>,
    /// The security layers in force; null when there was no cell.
    pub isolation: Option<Isolation>,
    /// How much of the cell was there when the execution was asked for; null when there was
    /// no cell.
    #[serde(default)]
    pub start: Option<Start>,
    /// The template that the interpreter was forked from, if it was.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub template: Option<Template>,
    /// Where the time went.
    pub timing: Timing,
    /// Why the cell could not be set up, for outcome `setup` and `internal`.
    pub setup_error: Option<SetupError>,
    /// What the caller should know, such as that a fallback was used.
    #[serde(default)]
    #[schemars(required)]
    pub warnings: Vec<String>,
}

impl Record {
    /// The signal that ended the program, for a reader. Of an execution that was cancelled, it is only how
    /// that was carried out: `context` names what cancelled it.
    pub fn signal_shown(&self) -> Option<&str> {
        let signal = self.signal.as_deref();
        signal.filter(|_| self.outcome != Outcome::Cancelled)
    }
}

/// How much of a cell was there when something was asked for. An execution in a context
/// finds an interpreter that waits, also the first one: the context was asked for before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// Nothing: it was made for this execution.
    Cold,
    /// A blank cell: set up completely, and its program was still to be started.
    Blank,
    /// A cell whose interpreter had been started and waited for code.
    Ready,
    /// A cell whose interpreter had been forked from a preloaded template and waited
    /// for code.
    Forked,
    /// The cell of another context, in which its interpreter was started.
    Shared,
}

/// A template of a server, as it was when an interpreter was forked from it. Interpreters of
/// the same generation share a hash seed and an address layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Template {
    /// Which of the server's templates, from 1 on.
    pub generation: u64,
    /// Its age in milliseconds.
    pub age_ms: u64,
    /// The cells that it had been kept for up to then, with this one.
    pub copies: u64,
}

/// How an execution ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The program ended by itself with status 0.
    Ok,
    /// The code raised an exception.
    Error,
    /// The program ended by itself with another status.
    Exit,
    /// A signal that cellblock did not send ended it.
    Signal,
    /// The wall time or CPU time limit ended it.
    Timeout,
    /// It ran out of memory, as measured.
    Memory,
    /// It hit the limit on processes, as measured.
    Processes,
    /// It exceeded the output cap, which the caller chose to end it.
    Output,
    /// It filled a disk of the cell or hit the limit on a file's size, as measured.
    Disk,
    /// The system call filter killed it. SIGSYS alone is no proof, since a program
    /// can send it to itself: the outcome is then `signal`.
    Denied,
    /// The caller cancelled it.
    Cancelled,
    /// The cell could not be set up; the program did not run.
    Setup,
    /// cellblock itself failed.
    #[default]
    Internal,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The kind of failure, from measurements where there are any, otherwise (outcomes
/// `error` and `exit`) from what the code reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// The code does not parse.
    Syntax,
    /// An unknown name or attribute.
    Name,
    /// A missing or broken module.
    Import,
    /// A value of the wrong type.
    Type,
    /// A value out of range, a missing key or index.
    Value,
    /// A missing or unusable file.
    File,
    /// An operation that the cell forbids.
    Permission,
    /// The network, or its absence.
    Network,
    /// Memory ran out.
    Memory,
    /// Time ran out.
    Timeout,
    /// Too much output.
    Output,
    /// The disk filled up.
    Disk,
    /// Too many processes.
    Processes,
    /// Ended by a signal.
    Killed,
    /// The cell could not be set up.
    Setup,
    /// Any other exception, or a non-zero exit status.
    Runtime,
    /// cellblock itself failed.
    Internal,
}

/// One value that the code produced: a mimebundle in Jupyter's terms.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResultItem {
    /// Whether it is the value of the last expression.
    pub is_main_result: bool,
    /// Its `text/plain` form.
    pub text: Option<String>,
    /// Its forms by media type; binary forms are base64.
    pub formats: BTreeMap<String, Form>,
    /// The data behind a plot: `type` (`line`, `scatter`, `bar`, `pie`,
    /// `box_and_whisker`, `superchart` for several charts, or `unknown`; in three
    /// dimensions `line_3d`, `scatter_3d`, `surface`, `wireframe`, or plotly's name),
    /// `title`, the labels, units, scales and ticks of the axes, and `elements`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub chart: Option<Json>,
    /// A table: `columns` and `rows`; `total_rows` and `total_columns` when it was
    /// cut; `index` when the row labels are more than row numbers.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub data: Option<Json>,
    /// Metadata of the forms, by media type, as the code gave it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub metadata: Option<Json>,
    /// The name under which the code could replace the forms; these are the last
    /// ones.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub display_id: Option<String>,
    /// Which forms were left out or cut, and why.
    #[serde(default)]
    #[schemars(required)]
    pub notes: Vec<String>,
}

/// An exception that ended the code.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CodeError {
    /// Its class, such as `ValueError`.
    pub name: String,
    /// Its message.
    pub message: String,
    /// Its traceback, line by line, without frames of cellblock's driver.
    pub traceback: Vec<String>,
    /// The innermost line of the caller's code in the traceback, from 1.
    pub line: Option<u64>,
    /// The error number (errno(3)), for errors that carry one.
    pub errno: Option<i32>,
}

impl CodeError {
    /// Its traceback; without one, its class and message.
    pub fn text(&self) -> String {
        match self.traceback.is_empty() {
            true => format!("{}: {}", self.name, self.message),
            false => self.traceback.join("\n"),
        }
    }
}

/// How a file changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// The run created it.
    Created,
    /// Its content differs from before the run.
    Modified,
    /// It existed before the run and is gone.
    Deleted,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// A file that the run changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FileChange {
    /// Path below `/workspace`; absolute for a file of an overlay, or of a bind with protected
    /// paths, elsewhere.
    pub path: RawText,
    /// How it changed.
    pub change: Change,
    /// Size in bytes; null for a deleted file.
    pub size: Option<u64>,
    /// SHA-256 of the content in hexadecimal; null for a deleted file, and for one in a bind that
    /// is too large to be read.
    pub sha256: Option<String>,
    /// Media type, from the content and the name; null where `sha256` is.
    pub media_type: Option<String>,
    /// The whole content, when it was requested, fits and is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(with = "Option<String>")]
    pub content: Option<Text>,
    /// The whole content, when it was requested, fits and is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(with = "Option<String>")]
    pub content_base64: Option<Base64>,
}

/// A file that was skipped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FileSkipped {
    /// Path below `/workspace`; absolute for a file of an overlay elsewhere.
    pub path: RawText,
    /// Why, in words.
    pub reason: String,
}

/// How a part of the record was cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Truncation {
    /// The whole size, in bytes (in items for lists and `inline_files`).
    pub total: u64,
    /// The size of what the record holds.
    pub kept: u64,
    /// Which part the record holds: `head` or `head+tail`; for `inline_files`
    /// `whole`: whole files, in the order of their paths, as long as they fit.
    pub part: String,
    /// Bytes of the head, for `head+tail`. The gap follows them: the text has a line
    /// there that says so, the base64 form has nothing.
    pub head: Option<u64>,
}

/// Something that the program tried and the policy denied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Denied {
    /// Its kind: `syscall` or `network`.
    pub kind: String,
    /// Its name, such as `ptrace`, or the host, such as `evil.example:443`.
    pub name: String,
    /// How often.
    pub count: u64,
    /// What the program saw, such as `EPERM`; `refused` for a host.
    pub action: String,
    /// Why the policy denies it.
    pub reason: Option<String>,
}
