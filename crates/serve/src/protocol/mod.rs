//! The protocol: JSON Lines, one object each. docs/PROTOCOL.md explains it.
//!
//! ```text
//!   {"id": 1, "method": "run", "params": {…}}     client to server
//!   {"id": 1, "event": {…}}                       server to client, any number
//!   {"id": 1, "result": {…}}                      server to client, once
//!   {"id": 1, "error": {"code": …, …}}            or this instead
//! ```

mod answer;
mod call;
mod carried;
mod params;
mod process;

pub use answer::{
    Code, ContextInfo, ContextList, Created, Deleted, Done, Executed, Failure, Interrupted, Line,
    MetricsText, Notice, Outcome, PoolStatus, Ran, Reason, Restarted, Start, State, Status,
    TemplateStatus, Usage, Watching,
};
pub(crate) use call::id_of_beginning;
pub(crate) use call::words;
pub use call::{Call, CallId, METHODS, Refused, parse};
pub use carried::{Branch, Checkpointed, Compared, Forked, Resumed, Rewound, Suspended};
pub use params::{
    Cancel, ContextCreate, ContextDelete, ContextDiff, ContextForget, ContextFork,
    ContextInterrupt, ContextLabel, ContextListing, ContextName, ContextRewind, ContextRun,
    FileList, FileMove, FileName, FileRead, FileRemove, FileUnwatch, FileWatch, FileWrite, None,
    Run, Shutdown, Span,
};

pub use process::{
    ProcessEvent, ProcessInfo, ProcessInput, ProcessList, ProcessName, ProcessResize,
    ProcessSignal, ProcessStart, ProcessStarted, TerminalSize,
};

/// Longer lines end a connection: a request has at most 16 MiB, and its envelope comes on
/// top.
pub const LONGEST_LINE: usize = 17 << 20;

/// The JSON Schema of calls, as `docs/protocol-call.schema.json` publishes it.
pub fn call_schema() -> schemars::Schema {
    document::<Call>()
}

/// The JSON Schema of the server's lines, as `docs/protocol-answer.schema.json` publishes
/// it.
pub fn answer_schema() -> schemars::Schema {
    document::<Line>()
}

fn document<T: schemars::JsonSchema>() -> schemars::Schema {
    schemars::generate::SchemaSettings::draft2020_12()
        .into_generator()
        .into_root_schema_for::<T>()
}
