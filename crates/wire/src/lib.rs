//! The server's protocol, and what both of its sides have in common.
//!
//! Calls and answers are JSON Lines, one object each. docs/PROTOCOL.md explains them.
//!
//! ```text
//!   {"id": 1, "method": "run", "params": {…}}     client to server
//!   {"id": 1, "event": {…}}                       server to client, any number
//!   {"id": 1, "result": {…}}                      server to client, once
//!   {"id": 1, "error": {"code": …, …}}            or this instead
//! ```
//!
//! Doors and clients make calls by [`method`], each a type that names its parameters and its
//! result. Nothing here knows of cells.
#![forbid(unsafe_code)]
// Nothing that input, the kernel or a cell can influence may end in a panic.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg_attr(
    any(test, fuzzing),
    allow(
        clippy::disallowed_types,
        reason = "tests look into small values of their own"
    )
)]

mod answer;
mod budget;
mod call;
mod carried;
pub mod client;
mod failure;
mod files;
mod inside;
mod languages;
mod lines;
mod outbox;
mod params;
mod party;
mod process;
mod request;
mod said;
mod shares;

pub use answer::{
    ContextInfo, ContextList, Created, Deleted, Done, Executed, Interrupted, Line, MetricsText,
    Notice, Outcome, PoolStatus, Ran, Restarted, Start, Status, TemplateStatus, Usage, Watching,
};
pub use budget::{Budget, ONE_CALL, Share};
pub use call::{Call, CallId, METHODS, Method, Refused, id_of_beginning, method, parse, words};
pub use carried::{Branch, Checkpointed, Compared, Forked, Resumed, Rewound, Suspended};
pub use failure::{Code, Failure, Reason};
pub use files::{
    FileContent, FileEntries, FileEntry, FileFound, FileList, FileListed, FileMove, FileMoved,
    FileName, FilePart, FileRead, FileRemove, FileSize, FileUnwatch, FileWatch, FileWrite,
    FileWritten, OneEntry,
};
pub use inside::{Connections, Connector, connections};
pub use languages::Languages;
pub use lines::{Lines, TooLong};
pub use outbox::Outbox;
pub use params::{
    Cancel, ContextCreate, ContextDelete, ContextDiff, ContextForget, ContextFork,
    ContextInterrupt, ContextLabel, ContextListing, ContextName, ContextRewind, ContextRun, None,
    Run, Shutdown, Span,
};
pub use party::Party;
pub use process::{
    ProcessEvent, ProcessInfo, ProcessInput, ProcessList, ProcessName, ProcessResize,
    ProcessSignal, ProcessStart, ProcessStarted,
};
pub use record::{State, TerminalSize};
pub use request::{Request, RequestFile, RequestLimits};
pub use said::{LONGEST_ANSWER, Said, call_line, line_of};
pub use shares::Shares;

/// Longer lines end a connection: a request has at most 16 MiB, and its envelope comes on
/// top.
pub const LONGEST_LINE: usize = 17 << 20;

/// The JSON Schema of calls, as `docs/protocol-call.schema.json` publishes it. `request` adds the
/// schema of requests, `RemoteRequest`.
pub fn call_schema(request: fn(&mut schemars::SchemaGenerator)) -> schemars::Schema {
    document::<Call>(request)
}

/// The JSON Schema of the server's lines, as `docs/protocol-answer.schema.json` publishes
/// it.
pub fn answer_schema() -> schemars::Schema {
    document::<Line>(|_| {})
}

fn document<T: schemars::JsonSchema>(
    request: fn(&mut schemars::SchemaGenerator),
) -> schemars::Schema {
    let mut generator = schemars::generate::SchemaSettings::draft2020_12().into_generator();
    request(&mut generator);
    generator.into_root_schema_for::<T>()
}
