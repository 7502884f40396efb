//! Why a call has no result.

use std::fmt;
use std::time::Duration;

use record::State;
use record::error::{SetupError, Step};
use record::json::text_of;
use record::unread::is_unreadable;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why a call has no result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Failure {
    /// The kind of error.
    pub code: Code,
    /// The cause, for programs, where one code has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// What went wrong; lower case, no full stop.
    pub message: String,
    /// How to fix it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The step that failed, as in a record's `setup_error`: `interpreter` where the rootfs does not
    /// have the language.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Step>,
    /// The name of the error number (errno(3)) that the kernel gave, such as `ENOSPC`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<String>,
    /// For `busy`: when it makes sense to try again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// For a call to a context: what became of its state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// For a call to a context: why its state is not what it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// The kind of an error.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// The line is not a call.
    BadRequest,
    /// The method does not exist.
    UnknownMethod,
    /// The parameters are not those of the method.
    BadParams,
    /// The client has a call with this id that has not been answered.
    DuplicateId,
    /// The line is too long. The connection ends.
    TooLong,
    /// No context, call or watch has this name.
    NotFound,
    /// The client may not do this.
    NotAllowed,
    /// Too much is going on; try again after `retry_after_ms`.
    Busy,
    /// The call was cancelled before it began.
    Cancelled,
    /// The server cannot do this.
    Failed,
    /// The cell or its supervisor ended before there was an answer.
    Lost,
    /// The server is ending.
    ShuttingDown,
}

/// A cause of an error that programs tell apart from others with the same code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// A context has this name already.
    Exists,
    /// The interpreter's memory is laid out at random, so its state fits no other interpreter.
    RandomLayout,
    /// The cell has several interpreters.
    SharedCell,
}

impl Code {
    /// Its name in JSON.
    pub fn name(self) -> String {
        text_of(&self).trim_matches('"').to_owned()
    }
}

impl Failure {
    /// A failure.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            reason: None,
            message: message.into(),
            hint: None,
            step: None,
            errno: None,
            retry_after_ms: None,
            state: None,
            why: None,
        }
    }

    /// Names the way out.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Names the cause for programs.
    #[must_use]
    pub fn because(mut self, reason: Reason) -> Self {
        self.reason = Some(reason);
        self
    }

    /// Says when to try again.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after_ms = Some(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        self
    }

    /// Says what became of the context's state.
    #[must_use]
    pub fn with_state(mut self, state: State, why: impl Into<String>) -> Self {
        self.state = Some(state);
        self.why = Some(why.into());
        self
    }

    /// A supervisor's error, for a client that need not learn the host's paths.
    pub fn of(error: &SetupError) -> Self {
        let code = match is_unreadable(error) {
            true => Code::BadParams,
            false => Code::Failed,
        };
        let error = error.without_paths();
        let failure = Self::new(code, error.to_string());
        Self {
            hint: error.hint,
            step: Some(error.step),
            errno: error.errno_name,
            ..failure
        }
    }
}

impl std::error::Error for Failure {}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.name(), self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_language_is_recognized_where_the_path_of_the_rootfs_is_withheld() {
        let error = SetupError::new(Step::Interpreter, "no r in the rootfs `/home/a/tree`");
        let failure = Failure::of(&error);
        assert!(!failure.message.contains("/home"), "{failure}");
        assert_eq!(failure.step, Some(Step::Interpreter));
    }
}
