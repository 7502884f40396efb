//! Events: JSON Lines, written while the execution goes on.

use schemars::JsonSchema;
use serde::Serialize;

use crate::bytes::RawText;
use crate::network::Connection;
use crate::{CodeError, FileChange, Record, ResultItem, Start};

/// Name and version of the events' format. The number changes with every change that
/// an old reader could misunderstand; new optional fields and kinds of events do not
/// change it.
pub const SCHEMA: &str = "cellblock.event.v1";

/// One event.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Event<'a> {
    /// The number of the event, from 0.
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
    /// The program was executed: the first event, unless that failed.
    Started(Started<'a>),
    /// The program wrote to stdout, which is captured.
    Stdout(Chunk<'a>),
    /// The program wrote to stderr, which is captured.
    Stderr(Chunk<'a>),
    /// The code produced a value.
    Result {
        /// The value, as the record has it.
        result: &'a ResultItem,
    },
    /// The code replaced a value that it had displayed under a name.
    DisplayUpdate {
        /// The new forms; the name is in `display_id`.
        result: &'a ResultItem,
    },
    /// The code cleared what it had displayed, except its main result.
    Clear {
        /// Whether to wait for the next result before clearing.
        wait: bool,
    },
    /// The code raised an exception that nothing caught.
    Error {
        /// The exception, as the record has it.
        error: &'a CodeError,
    },
    /// The policy denied something for the first time. The record has the count.
    Denied {
        /// Its kind: `syscall` or `network`.
        kind: &'a str,
        /// Its name, such as `ptrace`, or the host, such as `evil.example:443`.
        name: &'a str,
        /// What the program saw, such as `EPERM`; `refused` for a host.
        action: &'a str,
        /// Why the policy denies it.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<&'a str>,
    },
    /// A connection to an allowed host has ended, or was refused.
    Connection {
        /// The connection, as the record has it.
        connection: &'a Connection,
    },
    /// The run created, modified or deleted a file below `/workspace`. Deleted files
    /// come last.
    File {
        /// The file, as the record has it.
        file: &'a FileChange,
    },
    /// Further events of one kind are left out.
    Cut {
        /// The kind: `result`, `display_update`, `clear`, `error`, `denied` or `connection`.
        kind: &'a str,
    },
    /// The execution is over: always the last event.
    Finished {
        /// `cellblock.event.v1`.
        #[schemars(extend("const" = SCHEMA))]
        schema: &'a str,
        /// The record.
        record: &'a Record,
    },
}

/// The facts known at the start.
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
    /// How much of the cell was there when it was asked for, as the record has it.
    pub start: Start,
    /// The time of day (UTC, RFC 3339).
    pub time: String,
}

/// A piece of a stream; it never ends within a character.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Chunk<'a> {
    /// Its text; invalid UTF-8 is shown as U+FFFD.
    pub text: &'a str,
    /// Its bytes, present only when they are not valid UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
    /// The stream exceeded its cap: further output is left out.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schemars(default)]
    pub cut: bool,
}
