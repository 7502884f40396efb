//! Requests: what of them the front end has to know.

use std::path::PathBuf;

use cell::server::FileOrder;
use cell::spec::network::PartialNetwork;
use cell::spec::quantity::Bound;
use cell::spec::{PartialLimits, RemoteRequest};
use record::bytes::{RawText, decode_base64};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::protocol::{Code, Failure};

/// A request that has been read. What it asks for is checked by the supervisor.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) raw: Box<RawValue>,
    pub(super) parsed: RemoteRequest,
}

impl Request {
    /// # Errors
    /// It is not a request; names what is allowed.
    pub(super) fn read(raw: Box<RawValue>) -> Result<Self, Failure> {
        let parsed = serde_json::from_str(raw.get()).map_err(|error| {
            let words = crate::protocol::words(&error);
            Failure::new(Code::BadParams, format!("request: {words}"))
                .hint("cellblock-request(5) lists the fields")
        })?;
        Ok(Self { raw, parsed })
    }

    /// Its memory limit in bytes, when a cell has `usual` without a request.
    pub(super) fn memory(&self, usual: Option<u64>) -> u64 {
        let asked = match self.parsed.limits.memory {
            Some(Bound(Some(bytes))) => Some(bytes.0),
            _ => None,
        };
        let both = [asked, usual];
        both.into_iter().flatten().min().unwrap_or(0)
    }

    /// What says which cell can serve it: everything but what travels with an execution
    /// and files. `None` when it needs a cell of its own.
    pub(super) fn key(&self) -> Option<String> {
        let has_input =
            (self.parsed.stdin.as_ref()).is_some_and(|text| !text.as_bytes().is_empty());
        if self.parsed.argv.is_some() || has_input {
            return None;
        }
        let mut fields: Map<String, Value> = serde_json::from_str(self.raw.get()).ok()?;
        for field in ["code", "name", "args", "argv", "files", "stdin"] {
            fields.remove(field);
        }
        let language = self.parsed.language.as_deref()?;
        if let Some(Value::Object(limits)) = fields.get_mut("limits") {
            limits.remove("wall");
            limits.remove("grace");
        }
        let is_empty = |value: &Value| match value {
            Value::Null => true,
            Value::Object(fields) => fields.is_empty(),
            _ => false,
        };
        fields.retain(|_, value| !is_empty(value));
        fields.insert("language".to_owned(), own_name(language).into());
        serde_json::to_string(&fields).ok()
    }

    /// Whether a blank cell can serve it. A blank cell's network and limits are set up already. A
    /// request can only choose among hosts, where all cells have them (`named_hosts`), and set
    /// limits that only the supervisor enforces.
    pub(super) fn fits_blank(&self, named_hosts: bool) -> bool {
        let own = PartialLimits {
            wall: None,
            grace: None,
            output: None,
            on_output: None,
            results: None,
            ..self.parsed.limits.clone()
        };
        let fits_network = match &self.parsed.network {
            None => true,
            Some(network) => named_hosts && matches!(network, PartialNetwork::Hosts(_)),
        };
        own == PartialLimits::default() && fits_network
    }

    /// Whether the memory of contexts of its language can be carried to others.
    ///
    /// # Errors
    /// It cannot; the hint names the alternative.
    pub(super) fn forkable(&self) -> Result<(), Failure> {
        let language = self.parsed.language.as_deref().map(own_name);
        if language != Some("python") {
            let shown = language.unwrap_or_default();
            let message = format!("branches: contexts of {shown} cannot be forked");
            return Err(Failure::new(Code::BadParams, message).hint(
                "only those of python can; with --replay (\"replay\": true) instead, forks execute again what was executed",
            ));
        }
        Ok(())
    }

    /// The request that opens branches of a context of this request: their files come with the
    /// checkpoint.
    ///
    /// # Errors
    /// It is not a JSON object.
    pub(super) fn without_files(&self) -> Result<Box<RawValue>, Failure> {
        let unreadable = |error| {
            let words = crate::protocol::words(&error);
            Failure::new(Code::BadParams, format!("request: {words}"))
        };
        let mut fields: Map<String, Value> =
            serde_json::from_str(self.raw.get()).map_err(unreadable)?;
        fields.remove("files");
        serde_json::value::to_raw_value(&fields).map_err(unreadable)
    }

    /// Its wall time and grace in milliseconds.
    pub(super) fn times(&self) -> (Option<u64>, Option<u64>) {
        let limits = &self.parsed.limits;
        (limits.wall.and_then(millis), limits.grace.and_then(millis))
    }

    /// Its files as orders.
    ///
    /// # Errors
    /// A file has not exactly one of `text` and `base64`.
    pub(super) fn file_orders(&self) -> Result<Vec<FileOrder>, Failure> {
        let order = |file: &cell::spec::RemoteFile| {
            let content = match (&file.text, &file.base64) {
                (Some(text), None) => RawText::from(text.as_str()),
                (None, Some(text)) => decode_base64(text).map(RawText::from)?,
                _ => return Err("wants exactly one of `text` and `base64`".to_owned()),
            };
            Ok(write(file.path.clone(), content))
        };
        let named = |file: &cell::spec::RemoteFile| {
            order(file).map_err(|why| {
                let message = format!("request: files: {}: {why}", file.path.display());
                Failure::new(Code::BadParams, message)
            })
        };
        self.parsed.files.iter().map(named).collect()
    }
}

fn write(path: PathBuf, content: RawText) -> FileOrder {
    FileOrder::Write {
        path,
        content,
        executable: false,
        append: false,
    }
}

/// The key of requests that name a language and nothing else.
pub(super) fn plain_key(language: &str) -> String {
    let mut fields = Map::new();
    fields.insert("language".to_owned(), own_name(language).into());
    Value::Object(fields).to_string()
}

/// A language's own name, which may be called by an alias.
fn own_name(language: &str) -> &str {
    crate::language(language).unwrap_or(language)
}

/// A duration in whole milliseconds, at least one.
pub(super) fn millis(span: Bound<std::time::Duration>) -> Option<u64> {
    let Bound(span) = span;
    span.map(|span| u64::try_from(span.as_millis()).unwrap_or(u64::MAX).max(1))
}
