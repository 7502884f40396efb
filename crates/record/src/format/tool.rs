//! The result of a tool that runs a process: its streams, its status, and whether another
//! attempt makes sense.

use std::fmt;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::stream::Text;
use crate::words::readable;
use crate::{Category, Record};

/// The result of a tool that runs a process.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "Tool")]
pub struct Tool<'a> {
    /// What the program wrote to stdout; null when it was passed through.
    #[schemars(with = "Option<String>")]
    stdout: Option<&'a Text>,
    /// What the program wrote to stderr, followed by the traceback of the exception
    /// that ended the code; null when it was passed through.
    #[schemars(with = "Option<String>")]
    stderr: Option<Stderr<'a>>,
    /// The value of the last expression as text; null without one.
    result: Option<&'a str>,
    /// The exit status, as in the record.
    exit_code: i32,
    /// Seconds of real time from the program's start to its end.
    execution_time: f64,
    /// Whether the run failed in any way.
    #[serde(rename = "isError")]
    is_error: bool,
    /// The kind of failure.
    #[serde(rename = "errorCategory")]
    error_category: Option<Category>,
    /// Whether another attempt could succeed.
    #[serde(rename = "isRetryable")]
    is_retryable: bool,
    /// One sentence for the code's author.
    context: Option<&'a str>,
}

impl<'a> Tool<'a> {
    /// The record in this shape.
    pub fn of(record: &'a Record) -> Self {
        let main = record.results.iter().rfind(|item| item.is_main_result);
        let traceback = record.error.as_ref().map(|error| &*error.traceback);
        Self {
            stdout: record.stdout.as_ref(),
            stderr: record.stderr.as_ref().map(|text| Stderr {
                text,
                traceback: traceback.unwrap_or_default(),
            }),
            result: main.and_then(|item| readable(item).or(item.text.as_deref())),
            exit_code: record.exit_code,
            execution_time: record.execution_time,
            is_error: record.is_error,
            error_category: record.error_category,
            is_retryable: record.is_retryable,
            context: record.context.as_deref(),
        }
    }
}

/// A stream as an interpreter without a driver would have left it.
struct Stderr<'a> {
    text: &'a Text,
    traceback: &'a [String],
}

impl fmt::Display for Stderr<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)?;
        self.traceback
            .iter()
            .try_for_each(|line| writeln!(f, "{line}"))
    }
}

impl Serialize for Stderr<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
