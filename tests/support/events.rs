//! Checks JSON Lines against the published schema of events.

use std::sync::LazyLock;

use jsonschema::Validator;
use serde_json::Value;

use crate::validate;

const PUBLISHED: &str = include_str!("../../docs/event.schema.json");

static VALIDATOR: LazyLock<Result<Validator, String>> =
    LazyLock::new(|| validate::compile(PUBLISHED));

/// What is wrong with an event, each with its place in it; empty when it is valid.
pub(crate) fn complaints(event: &Value) -> Vec<String> {
    validate::errors(&VALIDATOR, event)
}

/// The events in `lines`, which must satisfy the schema, be numbered without
/// gaps, go forward in time, and begin and end as they should.
pub(crate) fn assert_valid_events(lines: &str) -> Vec<Value> {
    assert!(lines.ends_with('\n'), "the last line is cut: {lines:?}");
    let mut events: Vec<Value> = Vec::new();
    for line in lines.lines() {
        let event: Value = serde_json::from_str(line).unwrap_or_default();
        let complaints = complaints(&event);
        assert!(complaints.is_empty(), "{}\n{line}", complaints.join("\n"));
        assert_eq!(event["seq"], events.len(), "{line}");
        if let Some(before) = events.last() {
            assert!(
                before["at_ms"].as_f64() <= event["at_ms"].as_f64(),
                "{line}"
            );
        }
        let is_first = events.is_empty();
        let has_started = event["event"] == "started";
        assert!(
            has_started == is_first || (is_first && event["event"] == "finished"),
            "{line}"
        );
        events.push(event);
    }
    let ends = events.iter().filter(|event| event["event"] == "finished");
    assert_eq!(ends.count(), 1, "{lines}");
    assert!(
        events
            .last()
            .is_some_and(|event| event["event"] == "finished")
    );
    events
}
