//! JSON-RPC 2.0, as far as MCP uses it: one message per line, no batches.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::protocol::{CallId, words};

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

/// What a client sends.
#[derive(Debug, PartialEq)]
pub(super) enum Message {
    /// It waits for an answer.
    Request {
        /// Of the client's choosing.
        id: CallId,
        /// What it asks for.
        method: String,
        /// The rest.
        params: Map<String, Value>,
    },
    /// It waits for nothing.
    Notification {
        /// What it reports.
        method: String,
        /// The rest.
        params: Map<String, Value>,
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
    pub(super) data: Option<Value>,
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
struct Envelope {
    #[serde(default)]
    jsonrpc: Value,
    #[serde(default, deserialize_with = "present")]
    id: Option<Value>,
    method: Option<String>,
    params: Option<Map<String, Value>>,
}

/// Tells `null` from a field that is missing.
fn present<'de, D: serde::Deserializer<'de>>(value: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(value).map(Some)
}

/// Reads a message.
///
/// # Errors
/// The fault, with the id of the request if it has one.
pub(super) fn parse(line: &[u8]) -> Result<Message, (Option<CallId>, Fault)> {
    let value: Value = record::json::from_slice(line)
        .map_err(|error| (None, Fault::new(PARSE_ERROR, words(&error))))?;
    let without_id = |message: &str| (None, Fault::new(INVALID_REQUEST, message));
    if value.is_array() {
        return Err(without_id(
            "batches are not part of MCP: send one message per line",
        ));
    }
    let envelope: Envelope = serde_json::from_value(value)
        .map_err(|error| (None, Fault::new(INVALID_REQUEST, words(&error))))?;
    let id = match envelope.id {
        None => None,
        Some(id) => Some(read_id(id).ok_or_else(|| {
            without_id("id: wants a whole number or a text of at most 256 bytes")
        })?),
    };
    if envelope.jsonrpc != "2.0" {
        return Err((id, Fault::new(INVALID_REQUEST, "jsonrpc: wants \"2.0\"")));
    }
    let params = envelope.params.unwrap_or_default();
    Ok(match (id, envelope.method) {
        (Some(id), Some(method)) => Message::Request { id, method, params },
        (None, Some(method)) => Message::Notification { method, params },
        (_, None) => Message::Answer,
    })
}

/// An id as a client writes it.
pub(super) fn read_id(id: Value) -> Option<CallId> {
    match serde_json::from_value(id).ok()? {
        CallId::Text(text) if text.len() > LONGEST_ID => None,
        id => Some(id),
    }
}

/// The line that answers a request with its result.
pub(super) fn result(id: &CallId, result: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string()
}

/// The line that answers a request with a fault. A line that could not be read has no id.
pub(super) fn fault(id: Option<&CallId>, fault: &Fault) -> String {
    json!({"jsonrpc": "2.0", "id": id, "error": fault}).to_string()
}

/// The line of a notification.
pub(super) fn notification(method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read() {
        let line = br#"{"jsonrpc":"2.0","id":"a","method":"ping"}"#;
        let expected = Message::Request {
            id: CallId::Text("a".into()),
            method: "ping".into(),
            params: Map::new(),
        };
        assert_eq!(parse(line), Ok(expected));
        let line = br#"{"jsonrpc":"2.0","method":"notifications/initialized","params":{}}"#;
        assert!(matches!(parse(line), Ok(Message::Notification { .. })));
        assert_eq!(
            parse(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#),
            Ok(Message::Answer)
        );
    }

    #[test]
    fn what_is_no_message_is_refused_with_its_id() {
        for (line, id, code) in [
            ("{", None, PARSE_ERROR),
            ("[]", None, INVALID_REQUEST),
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
                None,
                INVALID_REQUEST,
            ),
        ] {
            let (seen, fault) = parse(line.as_bytes()).unwrap_err();
            assert_eq!((seen, fault.code), (id.map(CallId::Number), code), "{line}");
        }
    }
}
