//! `run_code` and `run_command`.

use std::time::Duration;

use record::json::{List, Object};
use record::{Record, object};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Begun, Finish, OfResult};
use crate::mcp::kept::Kept;
use crate::mcp::output::{InContext, ToolResult, of_command, of_record};
use crate::protocol::{Executed, Ran};

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

pub(super) fn code(code: Code) -> Result<Begun, String> {
    let wall = checked(code.timeout)?;
    let Some(context) = code.context_id else {
        let language = code.language.as_deref().unwrap_or(languages::USUAL);
        let files = code.files.iter().map(file);
        let files = files.collect::<Result<Vec<_>, _>>()?;
        let mut request = fresh(language, &code.code, wall);
        request.set("files", &files);
        if let Some(stdin) = &code.stdin {
            request.set("stdin", stdin);
        }
        return Ok(run(&request, ran));
    };
    if code.stdin.is_some() || !code.files.is_empty() {
        return Err("stdin and files are for runs without context_id; use write_file".to_owned());
    }
    if code.language.is_some() {
        return Err("language: a context has its own; leave it out with context_id".to_owned());
    }
    Ok(in_context(context, &code.code, wall))
}

/// The call for `run_command`. In a context, the command gets at most `most` of real time.
pub(super) fn command(command: Command, most: Option<Duration>) -> Result<Begun, String> {
    let wall = checked(command.timeout)?;
    let Some(context) = command.context_id else {
        return Ok(run(&fresh("bash", &command.command, wall), commanded));
    };
    let most = most.map(|most| most.as_secs_f64());
    let wall = wall.map_or(most, |wall| Some(most.map_or(wall, |most| wall.min(most))));
    let argv = ["bash", "-c", &command.command];
    let mut params = object! {"context": context, "argv": argv, "events": true, "attached": true};
    if let Some(wall) = wall {
        params.set("wall", &wall);
    }
    Ok(Begun {
        method: "process.start",
        params,
        // It does not wait for the interpreter.
        finish: Finish::Process { context },
    })
}

fn checked(timeout: Option<f64>) -> Result<Option<f64>, String> {
    match timeout {
        Some(seconds) if !(seconds.is_finite() && seconds > 0.0) => {
            Err(format!("timeout: is {seconds}, but wants seconds above 0"))
        }
        timeout => Ok(timeout),
    }
}

fn file(InputFile { path, text, base64 }: &InputFile) -> Result<Object<'static>, String> {
    match (text, base64) {
        (Some(text), None) => Ok(object! {"path": path, "text": text}),
        (None, Some(base64)) => Ok(object! {"path": path, "base64": base64}),
        _ => Err(format!(
            "files: {path:?} wants exactly one of `text` and `base64`"
        )),
    }
}

fn fresh(language: &str, code: &str, wall: Option<f64>) -> Object<'static> {
    let mut request = object! {"language": language, "code": code};
    if let Some(wall) = wall {
        request.set("limits", &object! {"wall": wall});
    }
    request
}

fn run(request: &Object<'_>, finish: OfResult) -> Begun {
    Begun {
        method: "run",
        params: object! {"request": request},
        finish: Finish::Result(finish),
    }
}

fn in_context(context: String, code: &str, wall: Option<f64>) -> Begun {
    let mut params = object! {"context": context, "code": code};
    if let Some(wall) = wall {
        params.set("wall", &wall);
    }
    Begun {
        method: "context.run",
        params,
        finish: Finish::Result(executed),
    }
}

fn ran(result: &str, kept: &mut Kept) -> Result<ToolResult, serde_json::Error> {
    let ran: Ran = serde_json::from_str(result)?;
    let record: Record = serde_json::from_str(ran.record.get())?;
    Ok(of_record(&record, None, kept))
}

fn commanded(result: &str, kept: &mut Kept) -> Result<ToolResult, serde_json::Error> {
    let ran: Ran = serde_json::from_str(result)?;
    let record: Record = serde_json::from_str(ran.record.get())?;
    Ok(of_command(&record, None, kept))
}

fn executed(result: &str, kept: &mut Kept) -> Result<ToolResult, serde_json::Error> {
    let executed: Executed = serde_json::from_str(result)?;
    let record: Record = serde_json::from_str(executed.record.get())?;
    let place = InContext {
        context: executed.context,
        execution: executed.execution,
        state: executed.state,
        why: executed.why,
    };
    Ok(of_record(&record, Some(&place), kept))
}
