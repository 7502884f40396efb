//! What the server says about checkpoints, and about contexts that go on from one.

use std::collections::BTreeMap;

use record::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::failure::Failure;

/// The result of `context.checkpoint`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Checkpointed {
    /// The context.
    pub context: String,
    /// The checkpoint's number, for `context.rewind`, `context.diff` and `context.forget`.
    pub checkpoint: u64,
    /// Bytes of memory and files in it.
    pub bytes: u64,
    /// Files of the workspace that are not in it, each with the reason.
    pub left_out: BTreeMap<String, String>,
}

/// The result of `context.rewind`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Rewound {
    /// The context.
    pub context: String,
    /// The checkpoint that it goes on from.
    pub checkpoint: u64,
    /// What became of the context's state: `lost` where a replay failed.
    pub state: State,
    /// Why.
    pub why: Option<String>,
}

/// The result of `context.suspend`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Suspended {
    /// The context, which has no processes until it has something to do.
    pub context: String,
    /// Bytes of its memory and files on the disk.
    pub bytes: u64,
}

/// The result of `context.resume`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Resumed {
    /// The context, whose interpreter waits.
    pub context: String,
    /// What the next execution finds: `kept` unless it was suspended or lost since the last one.
    pub state: State,
    /// Why, unless it was kept.
    pub why: Option<String>,
}

/// The result of `context.diff`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Compared {
    /// The context.
    pub context: String,
    /// The checkpoint that it was compared with.
    pub with: u64,
    /// Files created, modified and deleted since, as in cellblock-record(5).
    #[schemars(with = "record::json::Json")]
    pub files: Box<RawValue>,
}

/// The result of `context.fork`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Forked {
    /// The contexts that go on from the state of the one that was forked. Some may be
    /// there when others are not.
    pub branches: Vec<Branch>,
}

/// One of the contexts that a fork makes: it has an id, or an error.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Branch {
    /// The new context's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// What its state is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Why there is no such context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
}

impl Branch {
    /// A context that goes on from a checkpoint.
    pub fn restored(context: String, why: Option<String>) -> Self {
        Self {
            context: Some(context),
            state: Some(State::Restored),
            why,
            error: None,
        }
    }

    /// A context that did not come about.
    pub fn of(failure: Failure) -> Self {
        Self {
            error: Some(failure),
            ..Self::default()
        }
    }
}
