//! What methods take.

use std::time::Duration;

use record::bytes::RawText;
use record::counted;
use record::quantity::Bound;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::CallId;
use crate::request::RemoteRequest;

/// A duration above zero: text such as `500ms` or `1m 30s`, or a number of seconds.
pub type Span = Bound<Duration>;

/// No parameters.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct None {}

/// What `run` takes.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// What to run: see cellblock-request(5).
    #[schemars(with = "RemoteRequest")]
    pub request: Box<RawValue>,
    /// Whether events are sent while it goes on.
    #[serde(default)]
    pub events: bool,
}

/// What `context.create` takes.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ContextCreate {
    /// The language, environment, files and limits: see cellblock-request(5). It has no code, name,
    /// arguments or standard input. Without a language, the context has no interpreter; only
    /// processes are started in it.
    #[schemars(with = "RemoteRequest")]
    pub request: Box<RawValue>,
    /// Its id, of 1 to 64 letters, digits, `-` and `_`; without it, the server chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// A text of the client's choosing, of at most 128 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// How long it may have nothing to do before it is deleted, at most what the server
    /// allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<Span>,
    /// Whether it goes on existing when its client has gone, until it is idle for too
    /// long. Clients of the same user reach it by its id.
    #[serde(default)]
    pub keep: bool,
    /// How long it may have nothing to do before it is suspended. Only where it can be
    /// forked, or with `replay`. A state that cannot be carried stays where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend_after: Option<Span>,
    /// Whether `context.fork` can make others of it. Where no template can be forked for
    /// it, its interpreter's memory is laid out without randomisation. Only for `python`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub branches: bool,
    /// Whether its checkpoints hold what was executed instead of memory: to rewind, to fork and to
    /// resume it, a new interpreter executes everything again. For all languages; not with
    /// `branches`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replay: bool,
    /// The context whose cell this one shares, with its files, limits, network and processes, but
    /// with an interpreter of its own. The request then has only a language and an environment.
    /// This context ends with that cell. Neither can be forked, rewound or suspended, or make
    /// checkpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell_of: Option<String>,
}

impl ContextCreate {
    /// A context for this request, which ends with its client.
    pub fn new(request: Box<RawValue>) -> Self {
        Self {
            request,
            context: Option::None,
            label: Option::None,
            idle: Option::None,
            keep: false,
            suspend_after: Option::None,
            branches: false,
            replay: false,
            cell_of: Option::None,
        }
    }
}

/// What `context.run` takes.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ContextRun")]
pub struct ContextRun<Text = RawText> {
    /// The context.
    pub context: String,
    /// The code.
    pub code: Text,
    /// Its file name in tracebacks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Arguments that the code sees.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "counted::args"
    )]
    pub args: Vec<RawText>,
    /// The most wall time, at most what the context's limits allow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall: Option<Span>,
    /// The time between the interrupt at the end of the wall time and the kill.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace: Option<Span>,
    /// Whether events are sent while it goes on.
    #[serde(default)]
    pub events: bool,
}

impl<Text> ContextRun<Text> {
    /// Executes this code, with nothing besides.
    pub fn new(context: impl Into<String>, code: impl Into<Text>) -> Self {
        Self {
            context: context.into(),
            code: code.into(),
            name: Option::None,
            args: Vec::new(),
            wall: Option::None,
            grace: Option::None,
            events: false,
        }
    }
}

/// What methods take that need a context and nothing else.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ContextName {
    /// The context.
    pub context: String,
}

impl ContextName {
    /// This context.
    pub fn new(context: impl Into<String>) -> Self {
        let context = context.into();
        Self { context }
    }
}

/// What `context.fork` takes.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ContextFork {
    /// The context: one whose `start` was `forked`, or that was created with `branches` or
    /// `replay`.
    pub context: String,
    /// How many contexts go on from its state, 1 to 32.
    pub n: usize,
}

/// What `context.rewind` takes.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ContextRewind {
    /// The context.
    pub context: String,
    /// Which of its checkpoints; without it, the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<u64>,
}

/// What `context.diff` takes.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ContextDiff {
    /// The context.
    pub context: String,
    /// Which of its checkpoints the workspace is compared with.
    pub with: u64,
}

/// What `context.forget` takes.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ContextForget {
    /// The context.
    pub context: String,
    /// Which of its checkpoints is removed.
    pub checkpoint: u64,
}

/// What `context.delete` takes.
pub type ContextDelete = ContextName;

/// What `context.interrupt` takes.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ContextInterrupt {
    /// The context.
    pub context: String,
    /// The number of the execution to interrupt; without it, the one that goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<u64>,
    /// The time that the code gets to end by itself before the interpreter is killed;
    /// 2s when it is left out, at most 60s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace: Option<Span>,
}

/// What `context.label` takes.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ContextLabel {
    /// The context.
    pub context: String,
    /// The new label, of at most 128 bytes; null removes it.
    pub label: Option<String>,
    /// Whether the context stays from now on when its client has gone, as with `keep` of
    /// `context.create`. If it is left out, nothing changes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep: bool,
}

/// What `context.list` takes.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ContextListing {
    /// Only contexts with this label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Only this context, if it exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
}

/// What `cancel` takes.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    /// The id of the call to cancel.
    pub call: CallId,
    /// Interrupts code in a context, and is the time that the code then gets to end by itself
    /// before its interpreter is killed, at most 60s. Without it, the interpreter is killed at
    /// once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace: Option<Span>,
}

/// What `shutdown` takes.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Shutdown {
    /// How long executions may go on, at most what the server was started with, which is
    /// also what it is without this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<Span>,
}
