//! Requests: what of them the front end has to know.

use std::collections::BTreeMap;

use record::bytes::RawText;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use spec::counted::Files;
use spec::network::PartialNetwork;
use spec::quantity::Bound;
use spec::{PartialLimits, Unread, UnreadRequest};
use supervisor::FileOrder;
use wire::{Code, Failure};

/// A request whose code and files are still text. What it asks for is checked by the supervisor.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) parsed: UnreadRequest,
}

impl Request {
    /// # Errors
    /// It is not a request; names what is allowed.
    pub(super) fn read(raw: &RawValue) -> Result<Self, Failure> {
        let wrong = |why: &str| {
            Failure::new(Code::BadParams, format!("request: {why}"))
                .hint("cellblock-request(5) lists the fields")
        };
        let parsed: UnreadRequest =
            serde_json::from_str(raw.get()).map_err(|error| wrong(&wire::words(&error)))?;
        match parsed.environment_fault() {
            Some(fault) => Err(wrong(&format!("env: {fault}"))),
            None => Ok(Self { parsed }),
        }
    }

    /// As a supervisor gets it, with or without its files.
    pub(super) fn text(&self, with_files: bool) -> Box<RawValue> {
        let own = &self.parsed;
        let fields = Fields {
            language: own.language.as_deref(),
            code: own.code.as_ref(),
            name: own.name.as_deref(),
            args: own.args.as_deref(),
            argv: own.argv.as_deref(),
            stdin: own.stdin.as_ref(),
            env: &own.env,
            files: own.files.as_ref().filter(|_| with_files),
            limits: &own.limits,
            network: own.network.as_ref(),
        };
        // The supervisor refuses what could not be written.
        to_raw_value(&fields).unwrap_or_else(|_| RawValue::NULL.to_owned())
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

    /// Its language, if it asks for nothing else but what travels with an execution, and files: then
    /// any interpreter of this language can serve it.
    pub(super) fn plain_language(&self) -> Option<&str> {
        let own = &self.parsed;
        let has_input = (own.stdin.as_ref()).is_some_and(|text| !text.as_bytes().is_empty());
        let limits = PartialLimits {
            wall: None,
            grace: None,
            ..own.limits.clone()
        };
        let is_plain = own.argv.is_none()
            && !has_input
            && own.env.is_empty()
            && own.network.is_none()
            && limits == PartialLimits::default();
        own.language.as_deref().filter(|_| is_plain).map(own_name)
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

    /// Its wall time and grace in milliseconds.
    pub(super) fn times(&self) -> (Option<u64>, Option<u64>) {
        let limits = &self.parsed.limits;
        (limits.wall.and_then(millis), limits.grace.and_then(millis))
    }

    /// Its files as an order.
    pub(super) fn file_order(&self) -> Option<FileOrder> {
        let files = self.parsed.files.clone()?;
        Some(FileOrder::WriteAll { files })
    }

    /// The request that opens branches of a context of this request: their files come with the
    /// checkpoint.
    pub(super) fn without_files(&self) -> Self {
        let own = &self.parsed;
        let parsed = UnreadRequest {
            language: own.language.clone(),
            env: own.env.clone(),
            limits: own.limits.clone(),
            network: own.network.clone(),
            ..UnreadRequest::default()
        };
        Self { parsed }
    }
}

/// The fields of a request.
#[derive(Serialize)]
struct Fields<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    language: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a Unread<RawText>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<&'a [RawText]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    argv: Option<&'a [RawText]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stdin: Option<&'a RawText>,
    env: &'a BTreeMap<String, RawText>,
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<&'a Unread<Files>>,
    limits: &'a PartialLimits,
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<&'a PartialNetwork>,
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use spec::{Bytes, RemoteRequest};
    use wire::{RequestFile, RequestLimits};

    use super::*;

    /// The type that clients write and the one that is read have the same fields.
    #[test]
    fn what_clients_write_is_read() {
        let env = BTreeMap::from([("A".to_owned(), "b".to_owned())]);
        let wall = Duration::from_millis(1500);
        let file = |path, text, base64: Option<&'static str>| RequestFile {
            path,
            text,
            base64: base64.map(Into::into),
        };
        let whole = wire::Request {
            language: Some("python"),
            code: Some("1"),
            stdin: Some("in"),
            env: Some(&env),
            files: vec![file("a", Some("x"), None), file("b", None, Some("eA=="))],
            limits: RequestLimits {
                wall: Some(Bound(Some(wall))),
                memory: Some(64 << 20),
            },
            network: serde_json::from_str("\"none\"").unwrap(),
        };
        let text = whole.raw();
        assert!(Request::read(&text).is_ok(), "{text}");
        let read: RemoteRequest = serde_json::from_str(text.get()).unwrap();
        assert_eq!(read.language.as_deref(), Some("python"));
        assert_eq!(read.code, Some(RawText::from("1")));
        assert_eq!(read.stdin, Some(RawText::from("in")));
        assert_eq!(read.env["A"], RawText::from("b"));
        let contents = read.files.0.into_iter().map(|file| file.content().unwrap());
        assert!(contents.eq([RawText::from("x"), RawText::from("x")]));
        assert_eq!(read.limits.wall, Some(Bound(Some(wall))));
        assert_eq!(read.limits.memory, Some(Bound(Some(Bytes(64 << 20)))));
        assert!(read.network.is_some());
        let none = wire::Request::default().raw();
        assert_eq!(none.get(), "{}");
    }
}
