//! Requests whose answers need the server.

use std::time::{Duration, Instant};

use record::object;
use serde_json::value::RawValue;
use wire::{CallId, Failure};

use super::command::Command;
use super::output::ToolResult;
use super::resource::no_resource;
use super::revision::{Reply, Revision};
use super::rpc::{self, Fault};
use super::tools::{self, OfResult};

/// How often a client hears that a call goes on, if it asked for that.
pub(super) const PROGRESS_EVERY: Duration = Duration::from_secs(5);
/// Output is shown in between, but not more often than this.
pub(super) const OUTPUT_EVERY: Duration = Duration::from_secs(1);

/// A request whose answer needs the server.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) request: CallId,
    pub(super) revision: Revision,
    pub(super) what: What,
    /// The client wants no answer any more.
    pub(super) is_cancelled: bool,
    pub(super) progress: Option<Progress>,
}

#[derive(Debug)]
pub(super) enum What {
    Tool(OfResult),
    Command(Command),
    Resource { uri: String },
}

/// Reports of progress for one request.
#[derive(Debug)]
pub(super) struct Progress {
    pub(super) token: Box<RawValue>,
    pub(super) began: Instant,
    pub(super) last: Instant,
    /// The value of the last report, which only grows.
    pub(super) value: f64,
}

impl Pending {
    /// The answer when the server has no result.
    pub(super) fn failed(&self, failure: &Failure) -> Result<Reply, Fault> {
        match &self.what {
            What::Resource { uri } => Err(no_resource(self.revision, uri, &failure.message)),
            What::Tool(_) | What::Command(_) => {
                let failure = &tools::in_own_words(failure);
                let mut message = failure.to_string();
                if let Some(wait) = failure.retry_after_ms {
                    message.push_str(&format!("; try again after {} s", wait.div_ceil(1000)));
                }
                if let Some(hint) = &failure.hint {
                    message.push_str(&format!("\nhint: {hint}"));
                }
                if let Some(why) = &failure.why {
                    message.push_str(&format!("\nthe context's variables: {why}"));
                }
                Ok(Reply {
                    meta: object! {"cellblock/error": failure},
                    ..ToolResult::error(&message).into()
                })
            }
        }
    }
}

impl Progress {
    /// The line of a report.
    pub(super) fn report(&mut self, now: Instant, message: &str) -> String {
        let elapsed = now.saturating_duration_since(self.began).as_secs_f64();
        self.value = elapsed.max(self.value + 0.001);
        self.last = now;
        let params =
            object! {"progressToken": self.token, "progress": self.value, "message": message};
        rpc::notification("notifications/progress", &params)
    }
}
