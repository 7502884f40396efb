//! Header fields: the media types, and the fields that since 2026-07-28 repeat parts of the body.

use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};
use serve::mcp::{REVISIONS, STATELESS};
use serve::protocol::{Code, Failure};

use super::Answered;

/// A header field is missing, or differs from the body.
const HEADER_MISMATCH: i64 = -32020;
/// The method does not exist.
const METHOD_NOT_FOUND: i64 = -32601;
/// The header field with the client's revision.
const VERSION: &str = "mcp-protocol-version";
/// The body's key for the revision, since 2026-07-28.
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";

/// The parts of a message that the HTTP layer needs. Malformed parts are left out: the door refuses
/// such a message itself.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Envelope {
    #[serde(default)]
    id: Value,
    #[serde(default)]
    method: Value,
    #[serde(default)]
    params: Value,
}

impl Envelope {
    pub(super) fn of(body: &[u8]) -> Self {
        record::json::from_slice(body).unwrap_or_default()
    }

    pub(super) fn is(&self, method: &str) -> bool {
        self.method == method
    }

    /// Whether the message is of 2026-07-28 or later.
    pub(super) fn is_stateless(&self) -> bool {
        !self.version().is_null()
    }

    fn version(&self) -> &Value {
        &self.params["_meta"][VERSION_KEY]
    }

    /// The request's id as JSON, if it is a request.
    pub(super) fn id(&self) -> Option<String> {
        (!self.id.is_null() && self.method.is_string()).then(|| self.id.to_string())
    }

    /// The id as JSON of the request that this notification cancels.
    pub(super) fn cancelled(&self) -> Option<String> {
        let request = &self.params["requestId"];
        let is_one = self.is("notifications/cancelled") && !request.is_null();
        is_one.then(|| request.to_string())
    }

    /// The value that `Mcp-Name` repeats.
    fn name(&self) -> Option<&str> {
        match self.method.as_str()? {
            "tools/call" | "prompts/get" => self.params["name"].as_str(),
            "resources/read" => self.params["uri"].as_str(),
            _ => None,
        }
    }
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
pub(super) fn check(fields: &HeaderMap, envelope: &Envelope) -> Result<(), String> {
    let fault = |message: &str| {
        let error = json!({"code": HEADER_MISMATCH, "message": message});
        json!({"jsonrpc": "2.0", "id": envelope.id, "error": error}).to_string()
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
    if version != envelope.version().as_str() {
        return Err(fault(
            "MCP-Protocol-Version: is not the revision of the body",
        ));
    }
    if text("mcp-method") != envelope.method.as_str() {
        return Err(fault("Mcp-Method: is not the method of the body"));
    }
    if let Some(name) = envelope.name()
        && text("mcp-name").and_then(decoded).as_deref() != Some(name)
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
    use super::*;
    use axum::http::{HeaderName, HeaderValue};

    fn fields(fields: &[(&'static str, &str)]) -> HeaderMap {
        let fields = fields.iter().map(|(name, value)| {
            let value = HeaderValue::from_str(value).unwrap();
            (HeaderName::from_static(name), value)
        });
        fields.collect()
    }

    fn envelope(method: &str, params: Value) -> Envelope {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        Envelope::of(body.to_string().as_bytes())
    }

    #[test]
    fn fields_repeat_the_body() {
        let meta = json!({VERSION_KEY: STATELESS});
        let call = envelope("tools/call", json!({"name": "run_code", "_meta": meta}));
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
        let list = envelope("tools/list", json!({}));
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
