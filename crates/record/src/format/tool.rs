//! The result of a tool that runs a process: its streams, its status, and whether another
//! attempt makes sense.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::Serialize;

use super::fit::{cut, fit, json_size};
use crate::stream::Text;
use crate::words::readable;
use crate::{Category, Record};

/// The result of a tool that runs a process.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "Tool")]
pub struct Tool<'a> {
    /// What the program wrote to stdout; null when it was passed through.
    stdout: Option<String>,
    /// What the program wrote to stderr, followed by the traceback of the exception
    /// that ended the code; null when it was passed through.
    stderr: Option<String>,
    /// The value of the last expression as text; null without one.
    result: Option<String>,
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
    context: Option<Cow<'a, str>>,
}

impl<'a> Tool<'a> {
    /// The record in this shape, in at most `max` bytes of JSON.
    pub fn of(record: &'a Record, max: usize) -> Self {
        let main = record.results.iter().rfind(|item| item.is_main_result);
        let result = main.and_then(|item| readable(item).or(item.text.as_deref()));
        let stdout = record.stdout.as_ref().map(ToString::to_string);
        let stderr = record.stderr.as_ref().map(|text| stderr(record, text));
        let part = |text: Option<&str>, most| Some(cut(text?, most).into_owned());
        fit(max, json_size, |scale| Self {
            stdout: part(stdout.as_deref(), scale.of(max)),
            stderr: part(stderr.as_deref(), scale.of(max)),
            result: part(result, scale.of(max)),
            exit_code: record.exit_code,
            execution_time: record.execution_time,
            is_error: record.is_error,
            error_category: record.error_category,
            is_retryable: record.is_retryable,
            context: record
                .context
                .as_deref()
                .map(|text| cut(text, scale.of(max))),
        })
    }
}

/// The stream as an interpreter without a driver would have left it.
fn stderr(record: &Record, text: &Text) -> String {
    let traceback = record.error.as_ref().map(|error| &*error.traceback);
    let mut all = text.to_string();
    for line in traceback.unwrap_or_default() {
        all.push_str(line);
        all.push('\n');
    }
    all
}
