//! What happens in an execution, as the lines that E2B's clients read.

use std::time::SystemTime;

use record::format::e2b::Item;
use record::{CodeError, Record, ResultItem};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::e2b::wire;

/// The line that shows, during silence, that the server is there.
pub(super) const KEEPALIVE: &str = "{\"type\":\"keepalive\"}\n";

#[derive(Deserialize)]
struct Kind<'a> {
    event: &'a str,
}

/// The line for an event of the hub; `None` for events that have no line here.
pub(super) fn of_event(event: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Chunk {
        text: String,
    }
    #[derive(Deserialize)]
    struct Result {
        result: ResultItem,
    }
    #[derive(Deserialize)]
    struct Error {
        error: CodeError,
    }
    let Kind { event: kind } = serde_json::from_str(event).ok()?;
    let value = match kind {
        "stdout" | "stderr" => {
            let Chunk { text } = serde_json::from_str(event).ok()?;
            let now = wire::time(SystemTime::now());
            json!({"type": kind, "text": text, "timestamp": now})
        }
        "result" => {
            let Result { result } = serde_json::from_str(event).ok()?;
            of_result(&result)
        }
        "error" => {
            let Error { error } = serde_json::from_str(event).ok()?;
            json!({
                "type": "error",
                "name": error.name,
                "value": error.message,
                "traceback": error.traceback.join("\n"),
            })
        }
        _ => return None,
    };
    Some(line(&value))
}

/// A value that the code produced.
fn of_result(result: &ResultItem) -> Value {
    let mut value = serde_json::to_value(Item::of(result)).unwrap_or_else(|_| json!({}));
    value["type"] = "result".into();
    // Clients expect an object here even if a value has no other forms.
    if value.get("extra").is_none() {
        value["extra"] = json!({});
    }
    if let Some(text) = value["text"].as_str() {
        value["text"] = unquoted(text).into();
    } else if let Some(fields) = value.as_object_mut() {
        fields.remove("text");
    }
    value
}

/// A text without its quotes, if it is a quoted string.
fn unquoted(text: &str) -> &str {
    let inner = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    inner('\'').or_else(|| inner('"')).unwrap_or(text)
}

/// The last lines. `hidden` executions were not the client's, and are not counted.
pub(super) fn of_end(record: &Record, execution: u64, hidden: u64) -> String {
    let count = execution.saturating_sub(hidden);
    let count = json!({"type": "number_of_executions", "execution_count": count});
    let mut text = line(&count);
    // An exception was sent as an event; another cause of the end has no line yet.
    if record.error.is_none() && record.is_error {
        let value = record.context.as_deref().unwrap_or_default();
        text.push_str(&error(&record.outcome.to_string(), value));
    }
    text + &line(&json!({"type": "end_of_execution"}))
}

/// The line for an error that is not an exception of the code.
pub(super) fn error(name: &str, value: &str) -> String {
    line(&json!({"type": "error", "name": name, "value": value, "traceback": ""}))
}

fn line(value: &Value) -> String {
    format!("{value}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(event: &Value) -> Option<Value> {
        let text = of_event(&event.to_string())?;
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        Some(serde_json::from_str(&text).unwrap())
    }

    #[test]
    fn events_become_lines() {
        let event = json!({"event": "stdout", "seq": 1, "at_ms": 1.0, "text": "a\nb"});
        let line = read(&event).unwrap();
        assert_eq!(
            (&line["type"], &line["text"]),
            (&json!("stdout"), &json!("a\nb"))
        );
        assert!(line["timestamp"].as_str().unwrap().ends_with('Z'));
        let error =
            json!({"name": "E", "message": "m", "traceback": ["a", "b"], "line": 1, "errno": null});
        let line = read(&json!({"event": "error", "error": error})).unwrap();
        let expected = json!({"type": "error", "name": "E", "value": "m", "traceback": "a\nb"});
        assert_eq!(line, expected);
        for other in ["started", "finished", "denied", "cut", "clear"] {
            assert_eq!(read(&json!({"event": other})), None);
        }
    }

    #[test]
    fn results_have_their_forms() {
        let result = json!({
            "is_main_result": true, "text": "'a'", "formats": {"text/plain": "'a'", "text/html": "<b>"},
            "notes": [],
        });
        let line = read(&json!({"event": "result", "result": result})).unwrap();
        let expected = json!({
            "type": "result", "text": "a", "html": "<b>", "is_main_result": true, "extra": {},
        });
        assert_eq!(line, expected);
        assert_eq!(unquoted("\"'\""), "'");
        assert_eq!(unquoted("'"), "'");
        let bare = json!({"is_main_result": false, "text": null, "formats": {}, "notes": []});
        let line = read(&json!({"event": "result", "result": bare})).unwrap();
        assert!(line.get("text").is_none(), "{line}");
    }
}
