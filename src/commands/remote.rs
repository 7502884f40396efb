//! `cellblock run --server`: a run whose cell a server makes.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use record::Record;
use record::bytes::RawText;
use record::error::{Result, SetupError, Step};
use serde_json::value::to_raw_value;
use serde_json::{Map, Value, json};

use super::heard;
use crate::cli::Options;
use crate::show::Live;
use spec::Partial;
use spec::partial::{GivenContent, PartialFile};
use wire::client::Client;
use wire::{Ran, Run, method};

/// Longer files are refused: a request has at most 16M.
const LONGEST: u64 = 16 << 20;

/// Runs `flags` on the server that listens at `socket`, and shows it in the `view` as it goes on.
///
/// # Errors
/// An option that a request cannot express, a file that cannot be read, or the server's
/// error.
pub(super) fn run(
    socket: &Path,
    options: &Options,
    flags: Partial,
    view: Option<&RefCell<Live>>,
) -> Result<Record> {
    for (option, is_given) in [
        ("--spec", options.spec.is_some()),
        ("--request", options.request.is_some()),
        ("--events", options.outputs.events.is_some()),
        ("--die-with-parent", options.die_with_parent),
    ] {
        if is_given {
            let message = "cannot be combined with --server";
            return Err(SetupError::new(Step::Spec, message).on(option));
        }
    }
    let request = to_raw_value(&request(flags)?)
        .map_err(|error| SetupError::new(Step::Spec, error.to_string()))?;
    let events = view.is_some();
    let params = Run { request, events };
    let mut client = Client::connect(socket)?;
    let ran: Ran = match view {
        Some(view) => heard::ask::<method::Run>(&mut client, &params, view)?,
        None => client.ask::<method::Run>(&params)?,
    };
    serde_json::from_str(ran.record.get()).map_err(|error| {
        SetupError::new(Step::Outputs, format!("the record cannot be read: {error}"))
    })
}

/// The flags as a request from an untrusted party.
fn request(mut flags: Partial) -> Result<Value> {
    let mut request = Map::new();
    let (code, name) = match (flags.code.take(), flags.code_file.take()) {
        (Some(code), _) => (code, None),
        (None, Some(path)) => read_code(&path)?,
        (None, None) => {
            let message = "no code is given";
            return Err(SetupError::new(Step::Spec, message)
                .hint("give FILE, -c CODE, or - for standard input"));
        }
    };
    let files = std::mem::take(&mut flags.files);
    let files: Vec<Value> = files.iter().map(read_input).collect::<Result<_>>()?;
    for (field, value) in [
        ("code", Some(json!(code))),
        ("name", name.map(Value::from)),
        ("language", flags.language.take().map(Value::from)),
        ("args", flags.args.take().map(|args| json!(args))),
        ("env", Some(json!(std::mem::take(&mut flags.env)))),
        ("files", Some(Value::from(files))),
        ("limits", Some(json!(std::mem::take(&mut flags.limits)))),
        (
            "network",
            flags.network.take().map(|network| json!(network)),
        ),
    ] {
        request.extend(value.map(|value| (field.to_owned(), value)));
    }
    refuse_rest(&flags)?;
    Ok(Value::Object(request))
}

/// Refuses what only the server's own options decide.
fn refuse_rest(rest: &Partial) -> Result<()> {
    let rest = json!(rest);
    match rest.as_object().and_then(|rest| rest.keys().next()) {
        Some(field) => {
            let message = "cannot be set per request";
            Err(SetupError::new(Step::Spec, message)
                .on(field)
                .hint("leave the option out, or start the server with it"))
        }
        None => Ok(()),
    }
}

fn read_code(path: &Path) -> Result<(RawText, Option<String>)> {
    if path.as_os_str() == "-" {
        let code = read_all(io::stdin().lock(), Path::new("standard input"))?;
        return Ok((code.into(), None));
    }
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    Ok((read_file(path)?.into(), name))
}

fn read_input(file: &PartialFile) -> Result<Value> {
    let (content, is_executable) = match (&file.source, &file.given) {
        (Some(source), _) => (read_file(source)?, is_executable(source)?),
        (None, Some(GivenContent::Read(content))) => (content.as_bytes().to_vec(), file.executable),
        (None, _) => (Vec::new(), file.executable),
    };
    let mut input = json!({"path": file.path, "base64": BASE64.encode(content)});
    // Servers of earlier versions do not have this field.
    if is_executable {
        input["executable"] = true.into();
    }
    Ok(input)
}

fn is_executable(path: &Path) -> Result<bool> {
    let status = path
        .metadata()
        .map_err(|error| SetupError::io(Step::Spec, "stat", &error).on(path.display()))?;
    Ok(status.permissions().mode() & 0o111 != 0)
}

fn read_file(path: &Path) -> Result<Vec<u8>> {
    let file = File::open(path)
        .map_err(|error| SetupError::io(Step::Spec, "open", &error).on(path.display()))?;
    read_all(file, path)
}

fn read_all(input: impl io::Read, name: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = input.take(LONGEST + 1).read_to_end(&mut bytes);
    read.map_err(|error| SetupError::io(Step::Spec, "read", &error).on(name.display()))?;
    match bytes.len() as u64 > LONGEST {
        true => {
            let message = "is larger than 16M, the most that a request has";
            Err(SetupError::new(Step::Spec, message).on(name.display()))
        }
        false => Ok(bytes),
    }
}
