//! Header fields: the media types, and the fields that since 2026-07-28 repeat parts of the body.

use crate::mcp::{REVISIONS, STATELESS};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use record::json::text_of;
use record::object;
use serde::Deserialize;
use serde_json::value::RawValue;
use wire::{Code, Failure};

use super::Answered;

/// A header field is missing, or differs from the body.
const HEADER_MISMATCH: i64 = -32020;
/// The method does not exist.
const METHOD_NOT_FOUND: i64 = -32601;
/// The header field with the client's revision.
const VERSION: &str = "mcp-protocol-version";

/// The parts of a message that the HTTP layer needs. Malformed parts are left out: the door refuses
/// such a message itself.
#[derive(Debug, Default)]
pub(super) struct Envelope<'a> {
    id: Option<&'a RawValue>,
    method: Option<String>,
    params: Params<'a>,
    version: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
struct Params<'a> {
    #[serde(borrow, default)]
    name: Option<&'a RawValue>,
    #[serde(borrow, default)]
    uri: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "requestId")]
    request_id: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

impl<'a> Envelope<'a> {
    pub(super) fn of(body: &'a [u8]) -> Self {
        #[derive(Default, Deserialize)]
        struct Message<'a> {
            #[serde(borrow, default)]
            id: Option<&'a RawValue>,
            #[serde(borrow, default)]
            method: Option<&'a RawValue>,
            #[serde(borrow, default)]
            params: Option<&'a RawValue>,
        }
        #[derive(Default, Deserialize)]
        struct Meta<'a> {
            /// Since 2026-07-28.
            #[serde(borrow, default, rename = "io.modelcontextprotocol/protocolVersion")]
            version: Option<&'a RawValue>,
        }
        let message: Message<'_> = record::json::from_slice(body).unwrap_or_default();
        let params: Params<'_> = read(message.params).unwrap_or_default();
        let meta: Meta<'_> = read(params.meta).unwrap_or_default();
        Self {
            id: message.id,
            method: read(message.method),
            params,
            version: meta.version,
        }
    }

    pub(super) fn is(&self, method: &str) -> bool {
        self.method.as_deref() == Some(method)
    }

    /// Whether the message is of 2026-07-28 or later.
    pub(super) fn is_stateless(&self) -> bool {
        self.version.is_some()
    }

    /// The request's id as JSON, if it is a request.
    pub(super) fn id(&self) -> Option<&'a str> {
        self.method.as_ref().and(self.id).map(RawValue::get)
    }

    /// The id as JSON of the request that this notification cancels.
    pub(super) fn cancelled(&self) -> Option<&'a str> {
        let request = self.params.request_id.map(RawValue::get);
        request.filter(|_| self.is("notifications/cancelled"))
    }

    /// The value that `Mcp-Name` repeats.
    fn name(&self) -> Option<String> {
        match self.method.as_deref()? {
            "tools/call" | "prompts/get" => read(self.params.name),
            "resources/read" => read(self.params.uri),
            _ => None,
        }
    }
}

/// A part as this type, if it is there and of this type.
fn read<'a, T: Deserialize<'a>>(part: Option<&'a RawValue>) -> Option<T> {
    serde_json::from_str(part?.get()).ok()
}

/// The body must be JSON, and the client must accept both JSON and a stream of events.
pub(super) fn check_media_types(fields: &HeaderMap) -> Result<(), (StatusCode, Failure)> {
    let text = |name| fields.get(name).and_then(|value| value.to_str().ok());
    let kind = text(CONTENT_TYPE).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        let message = "the Content-Type is not application/json";
        let failure = Failure::new(Code::BadRequest, message);
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, failure));
    }
    let accepts = text(ACCEPT).unwrap_or("*/*").to_ascii_lowercase();
    let wanted = ["application/json", "text/event-stream"];
    let takes = |kind: &str| {
        let (family, _) = kind.split_once('/').unwrap_or_default();
        let mut ranges = accepts
            .split(',')
            .map(|range| range.split(';').next().unwrap_or_default().trim());
        ranges.any(|range| range == kind || range == "*/*" || range == format!("{family}/*"))
    };
    if !wanted.into_iter().all(takes) {
        let message = "Accept: wants application/json and text/event-stream";
        let failure = Failure::new(Code::BadRequest, message);
        return Err((StatusCode::NOT_ACCEPTABLE, failure));
    }
    Ok(())
}

/// # Errors
/// The message that answers a request whose fields do not fit its body.
pub(super) fn check(fields: &HeaderMap, envelope: &Envelope<'_>) -> Result<(), String> {
    let fault = |message: &str| {
        let error = object! {"code": HEADER_MISMATCH, "message": message};
        text_of(&object! {"jsonrpc": "2.0", "id": envelope.id, "error": error})
    };
    let text = |name: &str| {
        let value = fields.get(name)?;
        Some(value.to_str().unwrap_or_default().trim())
    };
    let version = text(VERSION);
    if !envelope.is_stateless() {
        // The first request has no such field, and revisions before 2025-06-18 have none at all.
        return match version {
            Some(version) if version == STATELESS => {
                Err(fault("MCP-Protocol-Version: the body names no revision"))
            }
            Some(version) if !REVISIONS.contains(&version) => Err(fault(
                "MCP-Protocol-Version: is not a revision of this server",
            )),
            _ => Ok(()),
        };
    }
    let own: Option<String> = read(envelope.version);
    if version != own.as_deref() {
        return Err(fault(
            "MCP-Protocol-Version: is not the revision of the body",
        ));
    }
    if text("mcp-method") != envelope.method.as_deref() {
        return Err(fault("Mcp-Method: is not the method of the body"));
    }
    if let Some(name) = envelope.name()
        && text("mcp-name").and_then(decoded).as_deref() != Some(&*name)
    {
        return Err(fault("Mcp-Name: is not the name in the body"));
    }
    Ok(())
}

/// The value of a field; characters that a field cannot have are in base64.
fn decoded(value: &str) -> Option<String> {
    let coded = value.strip_prefix("=?base64?");
    match coded.and_then(|coded| coded.strip_suffix("?=")) {
        Some(coded) => String::from_utf8(STANDARD.decode(coded).ok()?).ok(),
        None => Some(value.to_owned()),
    }
}

/// The status of an answer: the protocol's own errors have special ones.
pub(super) fn status(envelope: &Envelope, line: &str) -> StatusCode {
    let answered: Option<Answered> = serde_json::from_str(line).ok();
    let code = answered.and_then(|answered| answered.error);
    match code.map(|fault| fault.code) {
        None => StatusCode::OK,
        Some(METHOD_NOT_FOUND) if envelope.is_stateless() => StatusCode::NOT_FOUND,
        Some(-32700 | -32600 | -32022..=-32020) => StatusCode::BAD_REQUEST,
        Some(_) => StatusCode::OK,
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};
    use serde_json::{Value, json};

    use super::*;

    fn fields(fields: &[(&'static str, &str)]) -> HeaderMap {
        let fields = fields.iter().map(|(name, value)| {
            let value = HeaderValue::from_str(value).unwrap();
            (HeaderName::from_static(name), value)
        });
        fields.collect()
    }

    fn body(method: &str, params: Value) -> String {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        body.to_string()
    }

    #[test]
    fn fields_repeat_the_body() {
        let meta = json!({"io.modelcontextprotocol/protocolVersion": STATELESS});
        let body = body("tools/call", json!({"name": "run_code", "_meta": meta}));
        let call = Envelope::of(body.as_bytes());
        let whole = [
            (VERSION, STATELESS),
            ("mcp-method", "tools/call"),
            ("mcp-name", "run_code"),
        ];
        assert_eq!(check(&fields(&whole), &call), Ok(()));
        for (index, wrong) in [
            (0, "2025-11-25"),
            (1, "tools/list"),
            (2, "other"),
            (2, "=?base64?%?="),
        ] {
            let mut some = whole.to_vec();
            some[index].1 = wrong;
            let fault = check(&fields(&some), &call).unwrap_err();
            assert!(
                fault.contains("-32020") && fault.contains("\"id\":1"),
                "{fault}"
            );
            some.remove(index);
            assert!(check(&fields(&some), &call).is_err(), "{index} is missing");
        }
        let mut coded = whole.to_vec();
        coded[2].1 = "=?base64?cnVuX2NvZGU=?=";
        assert_eq!(check(&fields(&coded), &call), Ok(()));
    }

    #[test]
    fn older_requests_need_no_fields() {
        let body = body("tools/list", json!({}));
        let list = Envelope::of(body.as_bytes());
        assert_eq!(check(&fields(&[]), &list), Ok(()));
        assert_eq!(check(&fields(&[(VERSION, "2025-06-18")]), &list), Ok(()));
        assert!(check(&fields(&[(VERSION, "2019-01-01")]), &list).is_err());
        assert!(check(&fields(&[(VERSION, STATELESS)]), &list).is_err());
    }

    #[test]
    fn both_media_types_are_accepted() {
        let json = ("content-type", "application/json; charset=utf-8");
        for (accept, served) in [
            ("application/json, text/event-stream", true),
            ("text/*;q=0.5, application/json", true),
            ("*/*", true),
            ("application/json", false),
            ("text/html", false),
        ] {
            let found = check_media_types(&fields(&[json, ("accept", accept)]));
            assert_eq!(found.is_ok(), served, "{accept}");
        }
        assert!(check_media_types(&fields(&[json])).is_ok());
        let (status, _) =
            check_media_types(&fields(&[("content-type", "text/plain")])).unwrap_err();
        assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    }
}
