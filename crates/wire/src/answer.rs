//! What the server says.

use record::json::Json;
use record::{State, Template};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::CallId;
use crate::failure::Failure;

/// A line from the server: an event or the answer to a call.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Line {
    /// The id of the call; null for a line that was not a call, and for news that no
    /// call asked for.
    pub id: Option<CallId>,
    /// What it says.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// What a line says.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Something happened meanwhile: see cellblock-events(5).
    Event(Json),
    /// The call's result: [`Ran`], [`Executed`] and so on.
    Result(Json),
    /// Why there is no result.
    Error(Failure),
}

/// Where a cell comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// It was made for this call.
    Cold,
    /// Its interpreter waited in the pool.
    Ready,
    /// Its interpreter was forked from a template that has loaded modules. Where none
    /// waited in the pool, that was done for this call.
    Forked,
    /// It waited in the pool, without a program.
    Blank,
    /// It is that of another context.
    Shared,
}

impl From<record::Start> for Start {
    fn from(start: record::Start) -> Self {
        match start {
            record::Start::Cold => Self::Cold,
            record::Start::Blank => Self::Blank,
            record::Start::Ready => Self::Ready,
            record::Start::Forked => Self::Forked,
            record::Start::Shared => Self::Shared,
        }
    }
}

/// The result of `run`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Ran")]
pub struct Ran<Record = Box<RawValue>> {
    /// Where the cell comes from; without it, no cell was made.
    pub start: Option<Start>,
    /// The record: see cellblock-record(5).
    #[schemars(with = "Json")]
    pub record: Record,
}

/// The result of `context.create`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Created {
    /// The context's id.
    pub context: String,
    /// Its language.
    pub language: Option<String>,
    /// Its prepared rootfs, with the digest.
    pub rootfs: String,
    /// How much of its cell was there when the context was asked for. Its executions find
    /// an interpreter that waits, and their records say so.
    pub start: Start,
    /// The template that its interpreter was forked from, if it was.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub template: Option<Template>,
}

/// The result of `context.run`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Executed")]
pub struct Executed<Record = Box<RawValue>> {
    /// The context.
    pub context: String,
    /// The number of the execution.
    pub execution: u64,
    /// What became of the context's state.
    pub state: State,
    /// Why, unless the state was kept after a normal end.
    pub why: Option<String>,
    /// The record: see cellblock-record(5).
    #[schemars(with = "Json")]
    pub record: Record,
}

/// The result of `context.interrupt`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Interrupted {
    /// Whether an execution or a replay was interrupted, and not over already. Its own answer says what
    /// became of it.
    pub interrupted: bool,
    /// The number of the execution; null for a replay.
    pub execution: Option<u64>,
}

/// The result of `context.restart`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Restarted {
    /// The context.
    pub context: String,
    /// What became of the context's state.
    pub state: State,
    /// Why.
    pub why: Option<String>,
}

/// The result of `context.delete`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Deleted {
    /// The context that is gone.
    pub deleted: String,
}

/// The result of calls that just happen.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Done {
    /// Whether it happened.
    pub done: bool,
}

/// The result of `file.watch`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Watching {
    /// The watch's number in this context, for `file.unwatch`.
    pub watch: u64,
}

/// The result of `metrics`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct MetricsText {
    /// Counters in Prometheus's text format.
    pub text: String,
}

/// The result of `context.list`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ContextList {
    /// The contexts of this client, and those that its user keeps.
    pub contexts: Vec<ContextInfo>,
}

/// A context, as `context.list` shows it.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ContextInfo {
    /// Its id.
    pub context: String,
    /// Its label.
    pub label: Option<String>,
    /// Its language, once its cell exists.
    pub language: Option<String>,
    /// `starting`, `idle`, `busy` or `suspended`.
    pub doing: String,
    /// Whether its interpreter runs, as `context.describe` says it: as of the last answer.
    #[serde(default)]
    pub is_alive: bool,
    /// Calls that wait for the one that goes on.
    pub waiting: usize,
    /// Executions that it has begun.
    pub executions: u64,
    /// Milliseconds since its creation.
    pub age_ms: u64,
    /// Milliseconds since it had something to do.
    pub idle_ms: u64,
    /// Milliseconds without anything to do after which it is deleted.
    pub idle_limit_ms: u64,
    /// Whether it goes on existing without its client.
    pub keep: bool,
    /// The context whose cell it shares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell_of: Option<String>,
    /// While it is suspended: bytes of its memory and files on the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended_bytes: Option<u64>,
}

/// The result of `status`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// cellblock's version.
    pub version: String,
    /// Milliseconds since the server's start.
    pub uptime_ms: u64,
    /// Whether the server is ending.
    pub draining: bool,
    /// Clients that are connected.
    pub clients: usize,
    /// Contexts that exist.
    pub contexts: usize,
    /// How many of them are suspended.
    #[serde(default)]
    pub suspended: usize,
    /// Cells of runs and contexts.
    pub cells: Usage,
    /// Their memory limits in bytes, together; null as a limit when memory is not counted.
    pub memory: Usage,
    /// Checkpoints, with those of forks that have not been answered.
    pub checkpoints: Usage,
    /// Their bytes and those of suspended contexts.
    pub checkpoint_bytes: Usage,
    /// Calls that wait for a cell.
    pub queue: Usage,
    /// Bytes of clients that wait: of unfinished lines and bodies, and of calls.
    pub waiting: Usage,
    /// Bytes of answers and events that clients have not read. With more, their programs wait.
    pub unread: Usage,
    /// Cells that wait for calls.
    pub pools: Vec<PoolStatus>,
    /// The memory limits of the cells that wait and the memory of templates, together; the
    /// limit is `--warm-memory`.
    pub warm_memory: Usage,
    /// Templates that interpreters are or were forked from.
    #[serde(default)]
    pub templates: Vec<TemplateStatus>,
}

/// A template.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct TemplateStatus {
    /// Which of the server's templates, from 1 on. The last one gets new copies.
    pub generation: u64,
    /// Milliseconds since it was made.
    pub age_ms: u64,
    /// The cells that were made with it.
    pub copies: u64,
    /// Bytes of memory that it takes by itself, with the copy of its pages that checkpoints
    /// are compared with.
    pub memory: u64,
}

/// How much of something is in use.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// What is in use.
    pub used: u64,
    /// The most that may be.
    pub limit: Option<u64>,
}

/// Cells of one kind that wait for calls.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct PoolStatus {
    /// What `--warm` named.
    pub name: String,
    /// How many shall wait.
    pub wanted: usize,
    /// How many wait.
    pub ready: usize,
    /// How many are being opened.
    pub opening: usize,
    /// Calls that got one.
    pub hits: u64,
    /// Calls that would have taken one but started cold.
    pub misses: u64,
    /// Why the last one could not be opened.
    pub error: Option<String>,
}

/// News that no call asked for.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Notice {
    /// A context is gone, and its client did not ask for it.
    ContextEnded {
        /// The context.
        context: String,
        /// Why.
        why: String,
    },
    /// A watch has ended, and its client did not ask for it. An event of `file.watch`.
    WatchEnded {
        /// Why.
        why: String,
    },
}
