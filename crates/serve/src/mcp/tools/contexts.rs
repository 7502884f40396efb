//! Tools that make, list and end contexts.

use record::json::Object;
use record::object;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use supervisor::State;

use super::{Begun, Finish, OfResult};
use crate::mcp::output::ToolResult;
use crate::protocol::{self, ContextInfo, ContextList, Created as Made, Deleted, Failure};

/// No arguments.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

/// What `create_context` takes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Create {
    /// The language; python without it.
    #[serde(default)]
    language: Option<String>,
    /// A name for people, of at most 128 bytes.
    #[serde(default)]
    label: Option<String>,
    /// Whether fork_context can copy it. For languages other than python, a copy executes
    /// again what the context has executed.
    #[serde(default)]
    forkable: bool,
    /// The id of a context whose cell it shares: its files, processes and limits. Each of the two
    /// has its own variables. The new context ends with that one, and neither can be forked.
    #[serde(default)]
    shares_with: Option<String>,
}

/// A context.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Name {
    /// The context.
    context_id: String,
}

/// What `fork_context` takes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Fork {
    /// The context.
    context_id: String,
    /// How many copies, 1 to 32; 1 without it.
    #[serde(default)]
    count: Option<usize>,
}

/// What `create_context` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Created {
    /// The context.
    context_id: String,
    /// Its language.
    language: Option<String>,
    /// Its prepared root file system.
    rootfs: String,
}

/// What `list_contexts` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Contexts {
    /// The contexts.
    contexts: Vec<Listed>,
}

/// A context.
#[derive(Debug, Serialize, JsonSchema)]
struct Listed {
    /// The context.
    context_id: String,
    /// Its name for people.
    label: Option<String>,
    /// Its language.
    language: Option<String>,
    /// starting, idle, busy or suspended.
    doing: String,
    /// Executions that it has begun.
    executions: u64,
    /// Seconds since its creation.
    age: f64,
    /// Seconds since it was used.
    idle: f64,
    /// Seconds without use after which it is deleted.
    idle_limit: f64,
}

/// What `restart_context` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Restarted {
    /// The context.
    context_id: String,
    /// What became of its variables.
    state: State,
    /// Why.
    why: Option<String>,
}

/// What `close_context` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Closed {
    /// The context that is gone.
    closed: String,
}

/// What `fork_context` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Forked {
    /// The copies; some may be there when others are not.
    branches: Vec<Branch>,
}

/// A copy of a context, or the reason why it could not be made.
#[derive(Debug, Serialize, JsonSchema)]
struct Branch {
    /// The copy.
    context_id: Option<String>,
    /// The reason why it could not be made.
    error: Option<String>,
}

pub(super) fn create(create: Create) -> Result<Begun, String> {
    let language = create.language.as_deref().unwrap_or(languages::USUAL);
    let mut params = object! {"request": object! {"language": language}};
    if let Some(label) = create.label {
        params.set("label", &label);
    }
    if create.forkable {
        let way = match crate::language(language) {
            Some("python") => "branches",
            _ => "replay",
        };
        params.set(way, &true);
    }
    if let Some(host) = create.shares_with {
        params.set("cell_of", &host);
    }
    Ok(begun("context.create", params, |result, _| {
        let made: Made = serde_json::from_str(result)?;
        Ok(ToolResult::of(&Created {
            context_id: made.context,
            language: made.language,
            rootfs: made.rootfs,
        }))
    }))
}

pub(super) fn list(_: Nothing) -> Result<Begun, String> {
    Ok(begun("context.list", object! {}, |result, _| {
        let list: ContextList = serde_json::from_str(result)?;
        let contexts = list.contexts.into_iter().map(listed).collect();
        Ok(ToolResult::of(&Contexts { contexts }))
    }))
}

pub(super) fn fork(fork: Fork) -> Result<Begun, String> {
    let n = fork.count.unwrap_or(1);
    let params = object! {"context": fork.context_id, "n": n};
    Ok(begun("context.fork", params, |result, _| {
        let forked: protocol::Forked = serde_json::from_str(result)?;
        let branches = forked.branches.into_iter().map(|branch| Branch {
            context_id: branch.context,
            error: branch.error.as_ref().map(Failure::to_string),
        });
        Ok(ToolResult::of(&Forked {
            branches: branches.collect(),
        }))
    }))
}

pub(super) fn restart(name: Name) -> Result<Begun, String> {
    let params = object! {"context": name.context_id};
    Ok(begun("context.restart", params, |result, _| {
        let restarted: protocol::Restarted = serde_json::from_str(result)?;
        Ok(ToolResult::of(&Restarted {
            context_id: restarted.context,
            state: restarted.state,
            why: restarted.why,
        }))
    }))
}

pub(super) fn close(name: Name) -> Result<Begun, String> {
    let params = object! {"context": name.context_id};
    Ok(begun("context.delete", params, |result, _| {
        let Deleted { deleted } = serde_json::from_str(result)?;
        Ok(ToolResult::of(&Closed { closed: deleted }))
    }))
}

fn begun(method: &'static str, params: Object<'static>, finish: OfResult) -> Begun {
    Begun {
        method,
        params,
        finish: Finish::Result(finish),
    }
}

fn listed(info: ContextInfo) -> Listed {
    let seconds = |ms: u64| ms as f64 / 1000.0;
    Listed {
        context_id: info.context,
        label: info.label,
        language: info.language,
        doing: info.doing,
        executions: info.executions,
        age: seconds(info.age_ms),
        idle: seconds(info.idle_ms),
        idle_limit: seconds(info.idle_limit_ms),
    }
}
