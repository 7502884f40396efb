//! Results of tools: text and pictures for a model, the same as data for programs, and
//! links to what does not fit.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use record::format::brief::{Brief, Room};
use record::json::text_of;
use record::picture::Picture;
use record::{Category, Change, FileChange, Outcome, Record, object};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use wire::State;

use self::cuts::Cuts;
use super::kept::Kept;
use super::resource;
use super::revision::Reply;

mod cuts;

/// Characters of base64 of one picture in an answer, and of all; larger ones are links.
const PICTURE: usize = 1 << 20;
const PICTURES: usize = 4 << 20;
/// Clients move longer texts out of the model's sight. Pictures that are too large for an
/// answer are links.
const BRIEF: Room = Room {
    all: 24 << 20,
    text: 48_000,
};
/// Entries of a list.
const ENTRIES: usize = 50;

/// What a tool answers.
#[derive(Debug, Default)]
pub(super) struct ToolResult {
    content: Vec<Part>,
    structured: Option<Box<RawValue>>,
    is_error: bool,
}

/// A part of an answer.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Part {
    Text {
        text: String,
    },
    Image {
        #[serde(rename = "mimeType")]
        media_type: &'static str,
        /// In base64.
        data: String,
    },
    ResourceLink {
        uri: String,
        name: String,
        #[serde(rename = "mimeType", skip_serializing_if = "Option::is_none")]
        media_type: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        size: Option<u64>,
    },
}

impl ToolResult {
    /// A result whose text is its data.
    pub(super) fn of(data: &impl Serialize) -> Self {
        // What this program writes has a form in JSON.
        let data = to_raw_value(data).unwrap_or_default();
        Self {
            content: vec![text(data.get())],
            structured: Some(data),
            ..Self::default()
        }
    }

    /// An error that the model can read and act on.
    pub(super) fn error(message: &str) -> Self {
        Self {
            content: vec![text(message)],
            is_error: true,
            ..Self::default()
        }
    }

    /// Adds a part.
    pub(super) fn with(mut self, part: Part) -> Self {
        self.content.push(part);
        self
    }

    /// Replaces the text.
    pub(super) fn with_text(mut self, words: &str) -> Self {
        self.content = vec![text(words)];
        self
    }
}

impl From<ToolResult> for Reply {
    fn from(result: ToolResult) -> Self {
        let mut fields = object! {"content": result.content, "isError": result.is_error};
        if let Some(structured) = &result.structured {
            fields.set("structuredContent", structured);
        }
        fields.into()
    }
}

/// A part that is text.
pub(super) fn text(text: &str) -> Part {
    Part::Text {
        text: text.to_owned(),
    }
}

/// An execution in a context.
#[derive(Clone, Debug)]
pub(super) struct InContext {
    /// The context.
    pub(super) context: String,
    /// The number of the execution in it.
    pub(super) execution: u64,
    /// What became of its variables.
    pub(super) state: State,
    /// Why, unless they were kept.
    pub(super) why: Option<String>,
}

/// What `run_code` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct RunOutput<'a> {
    /// How it ended, in one word: ok, error (the code raised), exit (another status than 0),
    /// signal, timeout, memory, processes, output, disk, denied, cancelled, setup, internal.
    outcome: Outcome,
    /// The exit status.
    exit_code: i32,
    /// Whether it failed in any way.
    is_error: bool,
    /// The kind of failure.
    error_category: Option<Category>,
    /// Whether changed code could succeed.
    is_retryable: bool,
    /// What to do about a failure, in one sentence.
    context: Option<&'a str>,
    /// Standard output; without its middle if it is long.
    stdout: String,
    /// Standard error, in the same form.
    stderr: String,
    /// The value of the last expression as text.
    value: Option<String>,
    /// All values and displays; pictures are parts of the answer.
    results: Vec<Shown>,
    /// The exception that ended the code.
    error: Option<Raised<'a>>,
    /// Files that were created, modified or deleted in the working directory.
    files: Vec<File>,
    /// What the sandbox refused.
    denied: Vec<Refused<'a>>,
    /// Seconds of real time.
    execution_time: f64,
    /// The most memory at any one time, in bytes; null when nothing measured it.
    memory_peak_bytes: Option<u64>,
    /// The names of what is not complete here.
    truncated: Vec<&'a str>,
    /// The context, if it ran in one.
    context_id: Option<&'a str>,
    /// The number of the execution in the context.
    execution: Option<u64>,
    /// What became of the context's variables.
    state: Option<State>,
    /// Why, unless they were kept.
    why: Option<&'a str>,
}

/// What `run_command` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct CommandOutput<'a> {
    /// How it ended, in one word, as for run_code: ok, exit (another status than 0), signal,
    /// timeout and others.
    outcome: Outcome,
    /// The exit status; 128 and the signal's number, if a signal ended it.
    exit_code: i32,
    /// Whether it failed in any way.
    is_error: bool,
    /// What to do about a failure, in one sentence.
    context: Option<&'a str>,
    /// Standard output; without its middle if it is long.
    stdout: String,
    /// Standard error, in the same form.
    stderr: String,
    /// Files that were created, modified or deleted in the working directory; null with
    /// context_id, where other code can change files at the same time.
    files: Option<Vec<File>>,
    /// What the sandbox refused; null with context_id.
    denied: Option<Vec<Refused<'a>>>,
    /// Seconds of real time.
    execution_time: f64,
    /// The names of what is not complete here.
    truncated: Vec<&'a str>,
    /// The context, if it ran in one.
    context_id: Option<&'a str>,
}

/// A value or a display.
#[derive(Debug, Serialize, JsonSchema)]
struct Shown {
    /// Whether it is the value of the last expression.
    is_main_result: bool,
    /// It as text.
    text: Option<String>,
    /// The media types of its forms.
    media_types: Vec<String>,
}

/// An exception.
#[derive(Debug, Serialize, JsonSchema)]
struct Raised<'a> {
    /// Its class.
    name: &'a str,
    /// Its message; without its middle if it is long.
    message: String,
    /// The line of the code.
    line: Option<u64>,
}

/// A file that changed.
#[derive(Debug, Serialize, JsonSchema)]
struct File {
    /// Relative to the working directory.
    path: String,
    /// created, modified or deleted.
    change: Change,
    /// In bytes.
    size: Option<u64>,
    /// Its media type.
    media_type: Option<String>,
    /// Where it can be read.
    uri: Option<String>,
}

/// Something that the sandbox refused.
#[derive(Debug, Serialize, JsonSchema)]
struct Refused<'a> {
    /// syscall or network.
    kind: &'a str,
    /// The system call or the host.
    name: &'a str,
    /// How often.
    count: u64,
    /// Why.
    reason: Option<&'a str>,
}

/// The answer to an execution. What is too large for it, and what would be gone with the
/// cell, is kept to be read by its URI.
pub(super) fn of_record(record: &Record, place: Option<&InContext>, kept: &mut Kept) -> ToolResult {
    answer(record, place, kept, |files| output(record, files, place))
}

/// The answer to a command, in a context or in a cell of its own.
pub(super) fn of_command(record: &Record, context: Option<&str>, kept: &mut Kept) -> ToolResult {
    answer(record, None, kept, |files| {
        let mut cuts = Cuts::of(record);
        if context.is_none() {
            cuts.note_lists(record);
        }
        CommandOutput {
            outcome: record.outcome,
            exit_code: record.exit_code,
            is_error: record.is_error,
            context: record.context.as_deref(),
            stdout: cuts.stream("stdout", record.stdout.as_ref()),
            stderr: cuts.stream("stderr", record.stderr.as_ref()),
            files: context.is_none().then_some(files),
            denied: context.is_none().then(|| refused(record)),
            execution_time: record.execution_time,
            truncated: cuts.names(),
            context_id: context,
        }
    })
}

/// The answer whose data `data_of` makes from the changed files.
fn answer<T: Serialize>(
    record: &Record,
    place: Option<&InContext>,
    kept: &mut Kept,
    data_of: impl FnOnce(Vec<File>) -> T,
) -> ToolResult {
    let Brief {
        text: brief,
        pictures,
    } = Brief::of(record, BRIEF);
    let (mut parts, large) = inline(pictures);
    let mut links = Vec::new();
    for (number, picture) in large.iter().enumerate() {
        let uri = resource::of_result(&record.id, number + 1);
        let bytes = BASE64.decode(picture.base64.as_bytes()).unwrap_or_default();
        if kept.keep(&uri, picture.media_type, bytes) {
            links.push(Part::ResourceLink {
                uri,
                name: "picture".to_owned(),
                media_type: Some(picture.media_type.to_owned()),
                size: Some(picture.size),
            });
        }
    }
    let files: Vec<File> = record
        .files
        .iter()
        .take(ENTRIES)
        .map(|file| file_of(file, &record.id, place, kept))
        .collect();
    links.extend(files.iter().filter_map(|file| {
        let name = file.path.rsplit('/').next().unwrap_or_default();
        Some(Part::ResourceLink {
            uri: file.uri.clone()?,
            name: name.to_owned(),
            media_type: file.media_type.clone(),
            size: file.size,
        })
    }));
    let mut content = vec![text(&format!("{}{brief}", headline(place)))];
    content.append(&mut parts);
    content.append(&mut links);
    ToolResult {
        content,
        structured: to_raw_value(&data_of(files)).ok(),
        is_error: record.is_error,
    }
}

/// The pictures that fit into an answer, as parts of it, and the others.
fn inline(pictures: Vec<Picture<'_>>) -> (Vec<Part>, Vec<Picture<'_>>) {
    let (mut parts, mut large, mut room) = (Vec::new(), Vec::new(), PICTURES);
    for picture in pictures {
        let length = picture.base64.len();
        match length <= PICTURE.min(room) {
            true => {
                room -= length;
                parts.push(Part::Image {
                    media_type: picture.media_type,
                    data: picture.base64.into_owned(),
                });
            }
            false => large.push(picture),
        }
    }
    (parts, large)
}

/// What a model must know about a context's variables, before all else.
fn headline(place: Option<&InContext>) -> String {
    match place {
        Some(InContext {
            context,
            state,
            why: Some(why),
            ..
        }) => {
            let state = text_of(state);
            let state = state.trim_matches('"');
            format!("context {context}: the state is {state}: {why}\n")
        }
        _ => String::new(),
    }
}

fn file_of(file: &FileChange, run: &str, place: Option<&InContext>, kept: &mut Kept) -> File {
    let path = file.path.as_bytes();
    let uri = match (file.change, place) {
        (Change::Deleted, _) => None,
        (_, Some(place)) => std::str::from_utf8(path)
            .ok()
            .map(|path| resource::of_context(&place.context, Path::new(path))),
        (_, None) => content_of(file).and_then(|bytes| {
            let uri = resource::of_run(run, path);
            let media_type = file
                .media_type
                .as_deref()
                .unwrap_or("application/octet-stream");
            kept.keep(&uri, media_type, bytes).then_some(uri)
        }),
    };
    File {
        path: file.path.to_lossy().into_owned(),
        change: file.change,
        size: file.size,
        media_type: file.media_type.clone(),
        uri,
    }
}

/// The content that the record holds.
fn content_of(file: &FileChange) -> Option<Vec<u8>> {
    match (&file.content, &file.content_base64) {
        (Some(text), _) => Some(text.to_string().into_bytes()),
        (_, Some(base64)) => BASE64.decode(base64.to_string()).ok(),
        _ => None,
    }
}

fn output<'a>(record: &'a Record, files: Vec<File>, place: Option<&'a InContext>) -> RunOutput<'a> {
    let mut cuts = Cuts::of(record);
    cuts.note_lists(record);
    let (results, value) = cuts.results(record);
    RunOutput {
        outcome: record.outcome,
        exit_code: record.exit_code,
        is_error: record.is_error,
        error_category: record.error_category,
        is_retryable: record.is_retryable,
        context: record.context.as_deref(),
        stdout: cuts.stream("stdout", record.stdout.as_ref()),
        stderr: cuts.stream("stderr", record.stderr.as_ref()),
        value,
        results,
        error: record.error.as_ref().map(|error| cuts.raised(error)),
        files,
        denied: refused(record),
        execution_time: record.execution_time,
        memory_peak_bytes: record.usage.memory_peak_bytes,
        truncated: cuts.names(),
        context_id: place.map(|place| place.context.as_str()),
        execution: place.map(|place| place.execution),
        state: place.map(|place| place.state),
        why: place.and_then(|place| place.why.as_deref()),
    }
}

fn refused(record: &Record) -> Vec<Refused<'_>> {
    let refused = record.denied.iter().take(ENTRIES).map(|denied| Refused {
        kind: &denied.kind,
        name: &denied.name,
        count: denied.count,
        reason: denied.reason.as_deref(),
    });
    refused.collect()
}
