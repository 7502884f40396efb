//! JSON-RPC 2.0, as far as MCP uses it: one message per line, no batches.

use std::borrow::Cow;

use record::json::{Object, text_of};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::error::Category;
use serde_json::value::RawValue;
use wire::{CallId, words};

/// The JSON text is malformed.
pub(super) const PARSE_ERROR: i64 = -32700;
/// The JSON is not a request.
pub(super) const INVALID_REQUEST: i64 = -32600;
/// The method does not exist, or not in this revision.
pub(super) const METHOD_NOT_FOUND: i64 = -32601;
/// The parameters are not those of the method.
pub(super) const INVALID_PARAMS: i64 = -32602;
/// The server failed.
pub(super) const INTERNAL_ERROR: i64 = -32603;
/// A resource does not exist; before revision 2026-07-28.
pub(super) const RESOURCE_NOT_FOUND: i64 = -32002;
/// A revision that the server does not speak.
pub(super) const UNSUPPORTED_REVISION: i64 = -32022;

/// Longer ids are refused, as in the server's own protocol.
const LONGEST_ID: usize = 256;

/// What a client sends. Parameters stay text until their method is known.
#[derive(Debug)]
pub(super) enum Message<'a> {
    /// It waits for an answer.
    Request {
        /// Of the client's choosing.
        id: CallId,
        /// What it asks for.
        method: Cow<'a, str>,
        /// The rest, an object.
        params: &'a str,
    },
    /// It waits for nothing.
    Notification {
        /// What it reports.
        method: Cow<'a, str>,
        /// The rest, an object.
        params: &'a str,
    },
    /// An answer. The server asks its clients nothing, so it belongs to nothing.
    Answer,
}

/// Why a request has no result.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Fault {
    pub(super) code: i64,
    pub(super) message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) data: Option<Object<'static>>,
}

impl Fault {
    pub(super) fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default)]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

/// Tells `null` from a field that is missing.
fn present<'de, D: serde::Deserializer<'de>>(id: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(id).map(Some)
}

/// Reads a message.
///
/// # Errors
/// The fault, with the id of the request if it has one.
pub(super) fn parse(line: &[u8]) -> Result<Message<'_>, (Option<CallId>, Fault)> {
    let without_id = |code, message: String| (None, Fault::new(code, message));
    let unreadable = |error: serde_json::Error| match error.classify() {
        Category::Data => without_id(INVALID_REQUEST, words(&error)),
        _ => without_id(PARSE_ERROR, words(&error)),
    };
    // A list would be read as the fields of an envelope.
    if line.trim_ascii_start().starts_with(b"[") {
        let IgnoredAny = record::json::from_slice(line).map_err(unreadable)?;
        let message = "batches are not part of MCP: send one message per line";
        return Err(without_id(INVALID_REQUEST, message.to_owned()));
    }
    let envelope: Envelope<'_> = record::json::from_slice(line).map_err(unreadable)?;
    let id = match envelope.id {
        None => None,
        Some(id) => Some(read_id(id).ok_or_else(|| {
            let message = "id: wants a whole number or a text of at most 256 bytes";
            without_id(INVALID_REQUEST, message.to_owned())
        })?),
    };
    let fault = |message: &str| (id.clone(), Fault::new(INVALID_REQUEST, message));
    if envelope.jsonrpc.map(RawValue::get) != Some("\"2.0\"") {
        return Err(fault("jsonrpc: wants \"2.0\""));
    }
    let params = envelope.params.map_or("{}", RawValue::get);
    if !params.starts_with('{') {
        return Err(fault("params: wants an object"));
    }
    Ok(match (id, envelope.method) {
        (Some(id), Some(method)) => Message::Request { id, method, params },
        (None, Some(method)) => Message::Notification { method, params },
        (_, None) => Message::Answer,
    })
}

/// Parameters of a method.
///
/// # Errors
/// What is wrong with them.
pub(super) fn read<'a, T: Deserialize<'a>>(params: &'a str) -> Result<T, Fault> {
    serde_json::from_str(params)
        .map_err(|error| Fault::new(INVALID_PARAMS, format!("params: {}", words(&error))))
}

/// An id as a client writes it.
pub(super) fn read_id(id: &RawValue) -> Option<CallId> {
    let text = id.get();
    match text.starts_with('"') {
        // Each byte may be escaped.
        true if text.len() > 6 * LONGEST_ID + 2 => None,
        true => serde_json::from_str(text)
            .ok()
            .filter(|text: &String| text.len() <= LONGEST_ID)
            .map(CallId::Text),
        false => serde_json::from_str(text).ok().map(CallId::Number),
    }
}

/// A line of the protocol.
#[derive(Serialize)]
struct Line<'a> {
    jsonrpc: &'static str,
    #[serde(flatten)]
    content: Content<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Result {
        id: &'a CallId,
        result: &'a Object<'a>,
    },
    Error {
        id: Option<&'a CallId>,
        error: &'a Fault,
    },
    Notification {
        method: &'a str,
        params: &'a Object<'a>,
    },
}

fn line(content: Content<'_>) -> String {
    text_of(&Line {
        jsonrpc: "2.0",
        content,
    })
}

/// The line that answers a request with its result.
pub(super) fn result(id: &CallId, result: &Object<'_>) -> String {
    line(Content::Result { id, result })
}

/// The line that answers a request with a fault. A line that could not be read has no id.
pub(super) fn fault(id: Option<&CallId>, fault: &Fault) -> String {
    line(Content::Error { id, error: fault })
}

/// The line of a notification.
pub(super) fn notification(method: &str, params: &Object<'_>) -> String {
    line(Content::Notification { method, params })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read() {
        let line = br#"{"jsonrpc":"2.0","id":"a","method":"ping"}"#;
        let Ok(Message::Request { id, method, params }) = parse(line) else {
            panic!("not a request");
        };
        assert_eq!(
            (id, &*method, params),
            (CallId::Text("a".into()), "ping", "{}")
        );
        let line = br#"{"jsonrpc":"2.0","method":"notifications/initialized","params":{}}"#;
        assert!(matches!(parse(line), Ok(Message::Notification { .. })));
        let line = br#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        assert!(matches!(parse(line), Ok(Message::Answer)));
    }

    #[test]
    fn what_is_no_message_is_refused_with_its_id() {
        for (line, id, code) in [
            (
                r#"{"jsonrpc":"2.0","id":7,"method":5}"#,
                None,
                INVALID_REQUEST,
            ),
            (r#"[{}"#, None, PARSE_ERROR),
            ("{", None, PARSE_ERROR),
            ("[]", None, INVALID_REQUEST),
            (r#"["2.0", 1, "ping", {}]"#, None, INVALID_REQUEST),
            (r#"[{}, {}, {}, {}, {}]"#, None, INVALID_REQUEST),
            ("1", None, INVALID_REQUEST),
            (
                r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
                None,
                INVALID_REQUEST,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#,
                None,
                INVALID_REQUEST,
            ),
            (r#"{"id":7,"method":"ping"}"#, Some(7), INVALID_REQUEST),
            (
                r#"{"jsonrpc":"2.0","id":7,"method":"ping","params":[]}"#,
                Some(7),
                INVALID_REQUEST,
            ),
        ] {
            let (seen, fault) = parse(line.as_bytes()).unwrap_err();
            assert_eq!((seen, fault.code), (id.map(CallId::Number), code), "{line}");
        }
    }
}
