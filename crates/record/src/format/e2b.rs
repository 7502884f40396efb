//! The `Execution` of E2B's code interpreter, as its SDKs hold it.
#![expect(
    clippy::disallowed_types,
    reason = "Json::parse bounds what a value takes"
)]

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::json::{Form, Json, text_of};
use crate::stream::Text;
use crate::{Record, ResultItem, picture};

mod chart;

/// The result of a run.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "Execution")]
pub struct Execution<'a> {
    /// Values that the code produced, in order.
    results: Vec<Item<'a>>,
    /// What it wrote.
    logs: Logs<'a>,
    /// The exception that ended the code. Other failures have the record's
    /// outcome as their name and its context as their value.
    error: Option<ExecutionError<'a>>,
    /// Always 1: each run has its own cell.
    execution_count: Option<u64>,
}

/// One value; forms that it lacks are left out.
#[derive(Default, Serialize, JsonSchema)]
#[schemars(title = "Result")]
pub struct Item<'a> {
    /// Its `text/plain` form.
    pub text: Option<&'a str>,
    /// Its other forms: `html`, `markdown`, `svg`, `png`, `jpeg`, `pdf`, `latex`
    /// and `javascript`; binary forms are base64.
    #[serde(flatten)]
    pub forms: BTreeMap<&'static str, Cow<'a, str>>,
    /// Its `application/json` form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub json: Option<&'a Form>,
    /// A table, as lists of values by the columns' names.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Map<String, Value>>")]
    pub data: Option<Json>,
    /// The data behind a plot, with all the fields that E2B's charts have.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Map<String, Value>>")]
    pub chart: Option<Json>,
    /// Whether it is the value of the last expression.
    pub is_main_result: bool,
    /// Forms of other media types; `notes` lists what was left out and why.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "Map<String, Value>")]
    pub extra: BTreeMap<String, Form>,
}

/// What the code wrote, each stream in one piece.
#[derive(Serialize, JsonSchema)]
pub struct Logs<'a> {
    /// To stdout.
    #[schemars(with = "Vec<String>")]
    stdout: Vec<Cow<'a, Text>>,
    /// To stderr.
    #[schemars(with = "Vec<String>")]
    stderr: Vec<Cow<'a, Text>>,
}

/// The failure that ended the code.
#[derive(Serialize, JsonSchema)]
pub struct ExecutionError<'a> {
    /// The exception's class.
    name: Cow<'a, str>,
    /// Its message.
    value: &'a str,
    /// Its traceback.
    traceback: String,
}

impl<'a> Execution<'a> {
    /// The record in this shape.
    pub fn of(record: &'a Record) -> Self {
        let stream = |text: &'a Option<Text>| {
            let written = text.as_ref().filter(|text| text.as_str() != Some(""));
            written.into_iter().map(Cow::Borrowed).collect()
        };
        let (mut results, mut cut) = (Vec::new(), cut_results(record));
        for (index, result) in record.results.iter().enumerate() {
            let is_last = index + 1 == record.results.len();
            results.push(Item::with(result, cut.take_if(|_| is_last)));
        }
        let mut logs = Logs {
            stdout: stream(&record.stdout),
            stderr: stream(&record.stderr),
        };
        if let Some(note) = cut {
            logs.stderr.push(Cow::Owned(format!("[{note}]\n").into()));
        }
        Self {
            results,
            logs,
            error: error(record),
            execution_count: Some(1),
        }
    }
}

fn error(record: &Record) -> Option<ExecutionError<'_>> {
    match &record.error {
        Some(error) => Some(ExecutionError {
            name: Cow::Borrowed(&error.name),
            value: &error.message,
            traceback: error.traceback.join("\n"),
        }),
        None => record.is_error.then(|| ExecutionError {
            name: record.outcome.to_string().into(),
            value: record.context.as_deref().unwrap_or_default(),
            traceback: String::new(),
        }),
    }
}

/// E2B's name for the text of a media type.
fn name_of(media_type: &str) -> Option<&'static str> {
    Some(match media_type {
        "text/html" => "html",
        "text/markdown" => "markdown",
        "image/svg+xml" => "svg",
        "image/png" => "png",
        "image/jpeg" => "jpeg",
        "application/pdf" => "pdf",
        "text/latex" => "latex",
        "application/javascript" => "javascript",
        _ => return None,
    })
}

/// What the list of results lacks; the last result has it as a note.
fn cut_results(record: &Record) -> Option<String> {
    let cut = record.truncated.get("results")?;
    Some(format!("results: {} of {} kept", cut.kept, cut.total))
}

impl<'a> Item<'a> {
    /// One value.
    pub fn of(result: &'a ResultItem) -> Self {
        Self::with(result, None)
    }

    /// A value with a note about those that were left out.
    fn with(result: &'a ResultItem, note: Option<String>) -> Self {
        let mut item = Self {
            text: result.text.as_deref(),
            is_main_result: result.is_main_result,
            ..Self::default()
        };
        let mut notes = result.notes.clone();
        notes.extend(note);
        for (media_type, form) in &result.formats {
            match (media_type.as_str(), name_of(media_type), form.as_str()) {
                ("text/plain", ..) => {}
                ("application/json", ..) => item.json = Some(form),
                ("image/png" | "image/jpeg", Some(name), _) => {
                    match picture::read(media_type, form) {
                        Ok(picture) => drop(item.forms.insert(name, picture.base64)),
                        Err(complaint) => notes.push(complaint),
                    }
                }
                (_, Some(name), Some(text)) => drop(item.forms.insert(name, text.into())),
                _ => drop(item.extra.insert(media_type.clone(), form.clone())),
            }
        }
        item.chart = result
            .chart
            .as_ref()
            .and_then(|given| parsed("chart", given, &mut notes))
            .and_then(|given| chart::of(&given, &mut notes))
            .map(|chart| Json::of(&chart.into()));
        item.data = result
            .data
            .as_ref()
            .and_then(|data| parsed("data", data, &mut notes))
            .and_then(|data| table(&data, &mut notes))
            .map(|data| Json::of(&data.into()));
        if !notes.is_empty() {
            let notes = Form::Json(Json::checked(text_of(&notes)));
            item.extra.insert("notes".to_owned(), notes);
        }
        item
    }
}

/// One value at a time is parsed: together they could take many times the record.
fn parsed(what: &str, given: &Json, notes: &mut Vec<String>) -> Option<Value> {
    let value = given.parse();
    if value.is_none() {
        notes.push(format!("{what}: left out, it is too large"));
    }
    value
}

/// A table by columns.
fn table(data: &Value, notes: &mut Vec<String>) -> Option<Map<String, Value>> {
    let columns = data.get("columns")?.as_array()?;
    let rows = data.get("rows")?.as_array()?;
    let rows: Vec<&Vec<Value>> = rows.iter().filter_map(Value::as_array).collect();
    let total = data.get("total_rows").and_then(Value::as_u64);
    if let Some(total) = total.filter(|total| *total > rows.len() as u64) {
        notes.push(format!("data: {} of {total} rows", rows.len()));
    }
    let mut by_column = Map::new();
    for (index, column) in columns.iter().enumerate() {
        let name = match column {
            Value::String(name) => name.clone(),
            other => other.to_string(),
        };
        let values = rows
            .iter()
            .map(|row| row.get(index).cloned().unwrap_or_default());
        if by_column.insert(name, values.collect()).is_some() {
            notes.push("data: of columns with the same name, the last".to_owned());
        }
    }
    Some(by_column)
}
