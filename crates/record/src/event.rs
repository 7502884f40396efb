//! What happens, told while it happens: JSON Lines, one event each.

use schemars::JsonSchema;
use serde::Serialize;

use super::{CodeError, FileChange, Record, ResultItem};
use crate::bytes::RawText;

/// Name and version of the events' format. A change that an old reader could
/// misunderstand gets a new number; new optional fields and new kinds of events
/// do not.
pub const SCHEMA: &str = "cellblock.event.v1";

/// One event.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Event<'a> {
    /// Its number: 0 for the first, one more for each that follows.
    pub seq: u64,
    /// When cellblock saw it, in milliseconds since the call began.
    pub at_ms: f64,
    /// What happened.
    #[serde(flatten)]
    pub what: What<'a>,
}

/// What happened.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum What<'a> {
    /// The program was executed. First of all, unless it never was.
    Started(Started<'a>),
    /// The program wrote to stdout, where that is captured.
    Stdout(Chunk<'a>),
    /// The program wrote to stderr, where that is captured.
    Stderr(Chunk<'a>),
    /// The code produced a value.
    Result {
        /// The value, as the record has it.
        result: &'a ResultItem,
    },
    /// The code gave new forms to what it displayed under a name before.
    DisplayUpdate {
        /// The forms, and the name in `display_id`.
        result: &'a ResultItem,
    },
    /// The code took back what it displayed so far, except its main result.
    Clear {
        /// Not before there is a new result.
        wait: bool,
    },
    /// The code raised an exception that nothing caught.
    Error {
        /// The exception, as the record has it.
        error: &'a CodeError,
    },
    /// The program tried something for the first time and was not allowed. How
    /// often it did is in the record.
    Denied {
        /// What kind of thing: `syscall`.
        kind: &'a str,
        /// Its name, such as `ptrace`.
        name: &'a str,
        /// What the program saw, such as `EPERM`.
        action: &'a str,
        /// Why the policy denies it.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<&'a str>,
    },
    /// A file below `/workspace` that the run created, modified or deleted, as
    /// soon as it was read. Deleted ones are the last.
    File {
        /// The file, as the record has it.
        file: &'a FileChange,
    },
    /// There are more events of one kind than are told.
    Cut {
        /// The kind: `result`, `display_update`, `clear`, `error` or `denied`.
        kind: &'a str,
    },
    /// All is over. Always the last event.
    Finished {
        /// `cellblock.event.v1`.
        #[schemars(extend("const" = SCHEMA))]
        schema: &'a str,
        /// The record.
        record: &'a Record,
    },
}

/// What is known at the start.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Started<'a> {
    /// `cellblock.event.v1`.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'a str,
    /// The execution's id, as the record has it.
    pub id: &'a str,
    /// cellblock's version.
    pub version: &'a str,
    /// The language, for `run`; null for `exec`.
    pub language: Option<&'a str>,
    /// The program's argument vector, for `exec`; null for `run`.
    pub argv: Option<&'a [RawText]>,
    /// The time of day (UTC, RFC 3339).
    pub time: String,
}

/// A piece of a stream, as it was read; never a part of a character.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Chunk<'a> {
    /// Its text; invalid UTF-8 is shown as U+FFFD.
    pub text: &'a str,
    /// Its bytes, only when they are not valid UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
    /// The stream exceeds its cap: this is its last event, though the program
    /// may write more.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schemars(default)]
    pub cut: bool,
}
