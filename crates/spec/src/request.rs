//! A request from an untrusted party.
//!
//! A command line, a spec file and a profile are the caller's own: they may name host
//! paths and give up security layers. A request comes from a party whom the caller
//! does not trust with the host. Its type lists everything that it can say: what runs,
//! with what input, and lower limits. All else stays as the caller has it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Deserialize;

use super::counted::{self, Files, LARGEST_ENVIRONMENT};
use super::limits::PartialLimits;
use super::network::{MIRROR, PartialNetwork};
use super::partial::{CodeFrom, Partial, PartialFile};
use super::validate::Fault;
use super::{Bytes, OnOutput, Unread, WORKSPACE};
use record::bytes::{RawText, decode_base64};

/// Larger requests are refused.
pub(super) const LARGEST: Bytes = Bytes::mib(16);
/// Longer standard input is refused: it has to fit into a pipe, and this is the
/// largest that the kernel grants by default.
const LONGEST_STDIN: Bytes = Bytes::mib(1);

/// How far the author of a layer is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The caller, who may do what cellblock may do.
    Caller,
    /// An untrusted party, which may choose the program and lower limits.
    Remote,
}

/// What an untrusted party asks the caller to run.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "RemoteRequest")]
pub struct RemoteRequest<Code: Default = Option<RawText>, List: Default = Files> {
    /// The language of the code, for `run`. It cannot replace one that the caller
    /// names.
    pub language: Option<String>,
    /// The code, for `run`.
    #[schemars(with = "Option<RawText>", extend("default" = null))]
    pub code: Code,
    /// The file name of the code in tracebacks. Without `language`, its ending selects
    /// the language.
    pub name: Option<String>,
    /// Arguments of the code, for `run`.
    #[serde(deserialize_with = "counted::args")]
    pub args: Option<Vec<RawText>>,
    /// The program and its arguments, for `exec`.
    #[serde(deserialize_with = "counted::argv")]
    pub argv: Option<Vec<RawText>>,
    /// Standard input, at most 1M; empty when it is left out.
    pub stdin: Option<RawText>,
    /// Environment variables. They cannot replace those that the caller or the profile
    /// sets.
    #[serde(deserialize_with = "counted::env")]
    pub env: BTreeMap<String, RawText>,
    /// Files to put into `/workspace`. They cannot replace one that the caller names.
    #[schemars(with = "Vec<RemoteFile>")]
    pub files: List,
    /// Lower limits than the caller's.
    pub limits: PartialLimits,
    /// A smaller network than the caller's: `"none"`, or a table with some of the hosts
    /// that the caller allows.
    pub network: Option<PartialNetwork>,
}

/// A request whose large parts are only passed on.
pub type UnreadRequest = RemoteRequest<Option<Unread<RawText>>, Option<Unread<Files>>>;

/// A file to put into `/workspace`. It has exactly one of `text` and `base64`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoteFile {
    /// Its path relative to `/workspace`.
    pub path: PathBuf,
    /// Its content as text.
    #[serde(default)]
    pub text: Option<String>,
    /// Its content in base64.
    #[serde(default)]
    pub base64: Option<String>,
    /// Whether it can be executed.
    #[serde(default)]
    pub executable: bool,
}

impl RemoteFile {
    /// Its content.
    ///
    /// # Errors
    /// It has not exactly one of `text` and `base64`.
    pub fn content(self) -> Result<RawText, String> {
        match (self.text, self.base64) {
            (Some(text), None) => Ok(text.into()),
            (None, Some(text)) => decode_base64(&text).map(RawText::from),
            _ => Err("wants exactly one of text and base64".to_owned()),
        }
    }
}

impl<Code: Default, List: Default> RemoteRequest<Code, List> {
    /// What is wrong with its environment: the front end keeps it as long as the context exists.
    pub fn environment_fault(&self) -> Option<String> {
        let bytes = |(name, value): (&String, &RawText)| name.len() + value.as_bytes().len();
        let bytes: usize = self.env.iter().map(bytes).sum();
        (bytes > LARGEST_ENVIRONMENT)
            .then(|| format!("has {bytes} bytes, but wants at most {LARGEST_ENVIRONMENT}"))
    }
}

impl RemoteRequest {
    /// The JSON Schema of requests, as `docs/request.schema.json` publishes it.
    pub fn json_schema_document() -> schemars::Schema {
        SchemaSettings::draft2020_12()
            .into_generator()
            .into_root_schema_for::<Self>()
    }

    /// Values that are not allowed in a request, besides those that no layer allows.
    pub(super) fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut push = |field: &str, message: String| {
            faults.push(Fault {
                field: field.to_owned(),
                message,
            });
        };
        if let Some(name) = self.name.as_ref().filter(|name| !is_file_name(name)) {
            let shown: String = name.chars().take(64).collect();
            push(
                "name",
                format!("is {shown:?}, but wants a file name of at most 255 bytes"),
            );
        }
        if let Some(message) = self.environment_fault() {
            push("env", message);
        }
        let stdin = self.stdin.as_ref().map_or(0, |text| text.as_bytes().len());
        if stdin as u64 > LONGEST_STDIN.0 {
            push(
                "stdin",
                format!("has {stdin} bytes, but wants at most {LONGEST_STDIN}"),
            );
        }
        if let Some(PartialNetwork::Hosts(egress)) = &self.network
            && let Some(entry) = egress.allow.iter().find(|entry| entry.starts_with(MIRROR))
        {
            push(
                "network.allow",
                format!("is `{entry}`, but only the caller can name what this host has"),
            );
        }
        faults
    }

    /// As a layer of a spec.
    pub(super) fn into_partial(self) -> Partial {
        let file = |file: RemoteFile| PartialFile {
            path: file.path,
            text: file.text,
            base64: file.base64,
            source: None,
            executable: file.executable,
            given: None,
        };
        Partial {
            language: self.language,
            code: self.code,
            code_from: self.name.map(|name| CodeFrom::File(name.into())),
            args: self.args,
            argv: self.argv,
            stdin: Some(self.stdin.unwrap_or_default()),
            env: self.env,
            files: self.files.0.into_iter().map(file).collect(),
            limits: self.limits,
            network: self.network,
            ..Partial::default()
        }
    }
}

fn is_file_name(name: &str) -> bool {
    let is_odd = |c: char| c == '/' || c.is_control();
    (1..=255).contains(&name.len()) && !name.contains(is_odd) && !matches!(name, "." | "..")
}

/// What `request` asks for and `caller`, all layers beneath it, does not allow.
pub(super) fn overreach(request: &Partial, caller: &Partial) -> Option<Fault> {
    let fault = |field: String, message: String| Some(Fault { field, message });
    let says_what_runs = [
        ("argv", request.argv.is_some()),
        ("code", request.code.is_some()),
        ("name", request.code_from.is_some()),
        ("args", request.args.is_some()),
    ];
    let given = says_what_runs.iter().find(|(_, is_given)| *is_given);
    if let (true, Some((field, _))) = (caller.names_command(), given) {
        let message = "the caller says what runs, so a request cannot".to_owned();
        return fault((*field).to_owned(), message);
    }
    // Both may be an alias.
    let driver = |name| languages::find(name).map_or(name, |driver| driver.name);
    if let (Some(asked), Some(allowed)) = (&request.language, &caller.language)
        && driver(asked) != driver(allowed)
    {
        let message = format!("is {asked:?}, but the caller allows only {allowed:?}");
        return fault("language".to_owned(), message);
    }
    if let Some(name) = request
        .env
        .keys()
        .find(|name| caller.env.contains_key(*name))
    {
        let message = "is set by the caller, and a request cannot replace it".to_owned();
        return fault(format!("env.{}", super::read::quoted_key(name)), message);
    }
    if let Some(index) = request
        .files
        .iter()
        .position(|file| file.path.is_absolute())
    {
        let path = request.files[index].path.display();
        let message = format!("is `{path}`, but wants a path relative to {WORKSPACE}");
        return fault(format!("files[{index}].path"), message);
    }
    let is_callers = |file: &PartialFile| caller.files.iter().any(|own| own.path == file.path);
    if let Some(index) = request.files.iter().position(is_callers) {
        let path = request.files[index].path.display();
        let message =
            format!("is `{path}`, a file of the caller's, and a request cannot replace it");
        return fault(format!("files[{index}].path"), message);
    }
    let lax = Some(OnOutput::Truncate);
    if request.limits.on_output == lax && caller.limits.on_output == Some(OnOutput::Kill) {
        let message = "is \"truncate\", but the caller allows only \"kill\"".to_owned();
        return fault("limits.on_output".to_owned(), message);
    }
    request.limits.exceeding(&caller.limits)
}
