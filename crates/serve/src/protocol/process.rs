//! Programs that are started in a context's cell beside its interpreter.

use std::collections::BTreeMap;
use std::path::PathBuf;

use record::bytes::RawText;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spec::counted;

use super::params::Span;

pub use supervisor::TerminalSize;

/// What `process.start` takes.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProcessStart {
    /// The context.
    pub context: String,
    /// The program and its arguments. Exactly one of `argv` and `command` is given.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "counted::argv"
    )]
    pub argv: Option<Vec<RawText>>,
    /// A command for `sh -c`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<RawText>,
    /// Variables besides those of the context; they replace variables of the same name.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "counted::env"
    )]
    pub env: BTreeMap<String, RawText>,
    /// Its working directory, an absolute path inside; without it, that of the context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<PathBuf>,
    /// Whether it has standard input, which `process.input` writes to. Otherwise its
    /// standard input is empty. A terminal always has input.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub input: bool,
    /// Gives it a terminal of its own, of this size, as its three standard streams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<TerminalSize>,
    /// The most real time; then SIGKILL ends its process group. Without it, it may run as
    /// long as its context exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall: Option<Span>,
    /// A text of the client's choosing, of at most 128 bytes, for `process.list`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Whether this client gets its output and its end as events of this call.
    #[serde(default)]
    pub events: bool,
    /// Whether its process group is killed (SIGKILL) when the connection of this client ends, even
    /// if the context stays.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub attached: bool,
}

/// The parameters of methods that need only a process.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProcessName {
    /// The context.
    pub context: String,
    /// The process's number in this context.
    pub process: u64,
}

/// What `process.input` takes.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProcessInput {
    /// The context.
    pub context: String,
    /// The process's number in this context.
    pub process: u64,
    /// Input for its standard input or its terminal, at most 1 MiB.
    pub data: RawText,
}

/// What `process.signal` takes.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProcessSignal {
    /// The context.
    pub context: String,
    /// The process's number in this context.
    pub process: u64,
    /// The signal's name, such as `SIGTERM` (signal(7)). It goes to the process group that
    /// the process was started as.
    pub signal: String,
}

/// What `process.resize` takes.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProcessResize {
    /// The context.
    pub context: String,
    /// The process's number in this context.
    pub process: u64,
    /// The new size of its terminal.
    pub terminal: TerminalSize,
}

/// The result of `process.start` and `process.connect`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ProcessStarted {
    /// The context.
    pub context: String,
    /// The process's number in this context; it is not used again.
    pub process: u64,
    /// Its pid in the cell's pid namespace.
    pub pid: i32,
}

/// The result of `process.list`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ProcessList {
    /// The processes that run, in the order of their start.
    pub processes: Vec<ProcessInfo>,
}

/// A process, as `process.list` shows it.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ProcessInfo {
    /// Its number in the context.
    pub process: u64,
    /// Its pid in the cell's pid namespace.
    pub pid: i32,
    /// The program and its arguments, as they were given to `process.start`.
    pub argv: Vec<RawText>,
    /// The variables that were given to `process.start`.
    pub env: BTreeMap<String, RawText>,
    /// Its working directory at the start, where one was given.
    pub cwd: Option<PathBuf>,
    /// Its tag.
    pub tag: Option<String>,
    /// Whether it has a terminal of its own.
    pub terminal: bool,
    /// Milliseconds since its start.
    pub age_ms: u64,
}

/// An event of the call `process.start` or `process.connect`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum ProcessEvent {
    /// The process wrote something.
    ProcessOutput {
        /// The process.
        process: u64,
        /// Where: `stdout`, `stderr` or `terminal`.
        stream: String,
        /// As text; invalid UTF-8 is shown as U+FFFD.
        text: String,
        /// Its bytes, only when they are not valid UTF-8.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        base64: Option<String>,
    },
    /// The process has ended: the last event.
    ProcessEnded {
        /// The process.
        process: u64,
        /// Its exit status; null when a signal ended it, or when its end was not observed.
        exit_code: Option<i32>,
        /// The signal that ended it, such as `SIGKILL`.
        signal: Option<String>,
        /// Why cellblock ended it, if it did.
        why: Option<String>,
    },
}
