//! `run_code` and `run_command`.

use std::time::Duration;

use record::Record;
use record::bytes::RawText;
use record::json::List;
use record::quantity::Bound;
use schemars::JsonSchema;
use serde::Deserialize;
use wire::{Executed, ProcessStart, Ran, Request, RequestFile, RequestLimits, Run, Span, method};

use super::{Begun, Finish, OfResult, Terms};
use crate::mcp::kept::Kept;
use crate::mcp::output::{InContext, ToolResult, of_command, of_record};
use crate::runs::ContextRun;

record::bounds! {
    /// The files of a call.
    Files = "files", 1 << 16;
}

/// What `run_code` takes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Code {
    /// The code. The value of its last expression is returned.
    code: String,
    /// The language of the code; python without it. With context_id, the context's own.
    #[serde(default)]
    language: Option<String>,
    /// A context of create_context to run in; without it, a new sandbox.
    #[serde(default)]
    context_id: Option<String>,
    /// The most seconds of real time.
    #[serde(default)]
    timeout: Option<f64>,
    /// Standard input, without context_id.
    #[serde(default)]
    stdin: Option<String>,
    /// Files to put into the working directory first, without context_id.
    #[serde(default)]
    files: List<InputFile, Files>,
}

/// A file to put into the working directory. It has exactly one of `text` and `base64`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct InputFile {
    /// Relative to the working directory.
    path: String,
    /// Its content as text.
    #[serde(default)]
    text: Option<String>,
    /// Its content in base64.
    #[serde(default)]
    base64: Option<String>,
}

/// What `run_command` takes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Command {
    /// The command, as bash reads it.
    command: String,
    /// A context of create_context to run in; without it, a new sandbox.
    #[serde(default)]
    context_id: Option<String>,
    /// The most seconds of real time.
    #[serde(default)]
    timeout: Option<f64>,
}

pub(super) fn code(code: Code, terms: &Terms) -> Result<Begun, String> {
    let wall = checked(code.timeout)?;
    let Some(context) = code.context_id else {
        let language = code.language.as_deref().unwrap_or(terms.languages.usual);
        let files = code.files.iter().map(file);
        let request = Request {
            stdin: code.stdin.as_deref(),
            files: files.collect::<Result<_, _>>()?,
            ..fresh(language, &code.code, wall)
        };
        return Ok(run(&request, terms, ran));
    };
    if code.stdin.is_some() || !code.files.is_empty() {
        return Err("stdin and files are for runs without context_id; use write_file".to_owned());
    }
    if code.language.is_some() {
        return Err("language: a context has its own; leave it out with context_id".to_owned());
    }
    let params = ContextRun {
        wall: wall.map(span),
        events: terms.events,
        ..ContextRun::new(context, code.code.as_str())
    };
    Ok(Begun::of::<method::ContextRun>(&params, executed))
}

/// The call for `run_command`. In a context, the command gets at most what the terms allow.
pub(super) fn command(command: Command, terms: &Terms) -> Result<Begun, String> {
    let wall = checked(command.timeout)?;
    let Some(context) = command.context_id else {
        let request = fresh("bash", &command.command, wall);
        return Ok(run(&request, terms, commanded));
    };
    let argv = ["bash", "-c", &command.command];
    let params = ProcessStart {
        context: context.clone(),
        argv: Some(argv.map(RawText::from).into()),
        wall: [wall, terms.wall].into_iter().flatten().min().map(span),
        events: true,
        attached: true,
        ..ProcessStart::default()
    };
    // It does not wait for the interpreter.
    let finish = Finish::Process { context };
    Ok(Begun::new::<method::ProcessStart>(&params, finish))
}

fn checked(timeout: Option<f64>) -> Result<Option<Duration>, String> {
    let Some(seconds) = timeout else {
        return Ok(None);
    };
    let time = Duration::try_from_secs_f64(seconds).ok();
    match time.filter(|time| !time.is_zero()) {
        Some(time) => Ok(Some(time)),
        None => Err(format!("timeout: is {seconds}, but wants seconds above 0")),
    }
}

const fn span(time: Duration) -> Span {
    Bound(Some(time))
}

fn file(InputFile { path, text, base64 }: &InputFile) -> Result<RequestFile<'_>, String> {
    if text.is_some() == base64.is_some() {
        return Err(format!(
            "files: {path:?} wants exactly one of `text` and `base64`"
        ));
    }
    Ok(RequestFile {
        path,
        text: text.as_deref(),
        base64: base64.as_deref().map(Into::into),
    })
}

fn fresh<'a>(language: &'a str, code: &'a str, wall: Option<Duration>) -> Request<'a> {
    Request {
        language: Some(language),
        code: Some(code),
        limits: RequestLimits {
            wall: wall.map(span),
            memory: None,
        },
        ..Request::default()
    }
}

fn run(request: &Request<'_>, terms: &Terms, finish: OfResult) -> Begun {
    let params = Run {
        request: request.raw(),
        events: terms.events,
    };
    Begun::of::<method::Run>(&params, finish)
}

fn ran(result: &str, kept: &mut Kept) -> Result<ToolResult, serde_json::Error> {
    let ran: Ran<Record> = serde_json::from_str(result)?;
    Ok(of_record(&ran.record, None, kept))
}

fn commanded(result: &str, kept: &mut Kept) -> Result<ToolResult, serde_json::Error> {
    let ran: Ran<Record> = serde_json::from_str(result)?;
    Ok(of_command(&ran.record, None, kept))
}

fn executed(result: &str, kept: &mut Kept) -> Result<ToolResult, serde_json::Error> {
    let executed: Executed<Record> = serde_json::from_str(result)?;
    let place = InContext {
        context: executed.context,
        execution: executed.execution,
        state: executed.state,
        why: executed.why,
    };
    Ok(of_record(&executed.record, Some(&place), kept))
}
