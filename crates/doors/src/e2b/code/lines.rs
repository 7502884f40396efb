//! What happens in an execution, as the lines that E2B's clients read.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::SystemTime;

use record::format::e2b::Item;
use record::json::{Form, Json, text_of};
use record::{CodeError, Record, ResultItem};
use serde::{Deserialize, Serialize};

use crate::e2b::answers;

/// The line that shows, during silence, that the server is there.
pub(super) const KEEPALIVE: &str = "{\"type\":\"keepalive\"}\n";

#[derive(Deserialize)]
struct Kind<'a> {
    event: &'a str,
}

/// A line. Values of the code are written from the text that they came as.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line<'a> {
    Stdout(Chunk),
    Stderr(Chunk),
    Result(Value<'a>),
    Error {
        name: &'a str,
        value: &'a str,
        traceback: &'a str,
    },
    NumberOfExecutions {
        execution_count: u64,
    },
    EndOfExecution,
}

#[derive(Serialize)]
struct Chunk {
    text: String,
    timestamp: String,
}

/// A value that the code produced; forms that it lacks are left out.
#[derive(Serialize)]
struct Value<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(flatten)]
    forms: BTreeMap<&'static str, Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    json: Option<&'a Form>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    chart: Option<Json>,
    is_main_result: bool,
    /// Clients expect an object here even if a value has no other forms.
    extra: BTreeMap<String, Form>,
}

impl<'a> Value<'a> {
    fn of(result: &'a ResultItem) -> Self {
        let item = Item::of(result);
        Self {
            text: item.text.map(unquoted),
            forms: item.forms,
            json: item.json,
            data: item.data,
            chart: item.chart,
            is_main_result: item.is_main_result,
            extra: item.extra,
        }
    }
}

/// The line for an event of the hub; `None` for events that have no line here.
pub(super) fn of_event(event: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Output {
        text: String,
        /// The stream has reached its limit, and no event follows.
        #[serde(default)]
        cut: bool,
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
    match kind {
        "stdout" | "stderr" => {
            let Output { mut text, cut } = serde_json::from_str(event).ok()?;
            if cut {
                text += &format!("\n[… the rest of {kind} left out: it has reached its limit …]\n");
            }
            let timestamp = answers::time(SystemTime::now());
            let chunk = Chunk { text, timestamp };
            Some(line(&match kind {
                "stdout" => Line::Stdout(chunk),
                _ => Line::Stderr(chunk),
            }))
        }
        "result" => {
            let Result { result } = serde_json::from_str(event).ok()?;
            Some(line(&Line::Result(Value::of(&result))))
        }
        "error" => {
            let Error { error } = serde_json::from_str(event).ok()?;
            Some(line(&Line::Error {
                name: &error.name,
                value: &error.message,
                traceback: &error.traceback.join("\n"),
            }))
        }
        _ => None,
    }
}

/// A text without its quotes, if it is a quoted string.
fn unquoted(text: &str) -> &str {
    let inner = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    inner('\'').or_else(|| inner('"')).unwrap_or(text)
}

/// The last lines. `hidden` executions were not the client's, and are not counted.
pub(super) fn of_end(record: &Record, execution: u64, hidden: u64) -> String {
    let mut text = line(&Line::NumberOfExecutions {
        execution_count: execution.saturating_sub(hidden),
    });
    // An exception was sent as an event; another cause of the end has no line yet.
    if record.error.is_none() && record.is_error {
        let value = record.context.as_deref().unwrap_or_default();
        text.push_str(&error(&record.outcome.to_string(), value));
    }
    text + &line(&Line::EndOfExecution)
}

/// The line for an error that is not an exception of the code.
pub(super) fn error(name: &str, value: &str) -> String {
    line(&Line::Error {
        name,
        value,
        traceback: "",
    })
}

fn line(line: &Line<'_>) -> String {
    text_of(line) + "\n"
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{of_event, unquoted};

    fn read(event: &Value) -> Option<Value> {
        let text = of_event(&event.to_string())?;
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        Some(serde_json::from_str(&text).unwrap())
    }

    #[test]
    fn a_stream_at_its_limit_says_so() {
        let event = json!({"event": "stderr", "seq": 1, "at_ms": 1.0, "text": "a", "cut": true});
        let line = read(&event).unwrap();
        let text = line["text"].as_str().unwrap();
        assert!(
            text.starts_with("a\n[… the rest of stderr left out"),
            "{text}"
        );
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
