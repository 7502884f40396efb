//! Checks JSON against the published schema of the record.

use std::sync::LazyLock;

use jsonschema::Validator;
use serde_json::Value;

use crate::validate;

const PUBLISHED: &str = include_str!("../../docs/record.schema.json");

static VALIDATOR: LazyLock<Result<Validator, String>> =
    LazyLock::new(|| validate::compile(PUBLISHED));

/// What is wrong with a record, each with its place in it; empty when it is valid.
pub(crate) fn complaints(record: &Value) -> Vec<String> {
    validate::errors(&VALIDATOR, record)
}

/// The record in `json`, which must satisfy the schema and agree with itself.
pub(crate) fn assert_valid_record(json: &str) -> Value {
    let record: Value = serde_json::from_str(json).unwrap_or_default();
    assert!(record.is_object(), "not one JSON object: {json}");
    let complaints = complaints(&record);
    assert!(complaints.is_empty(), "{}\n{json}", complaints.join("\n"));
    let is_ok = record["outcome"] == "ok";
    assert_eq!(record["is_error"], !is_ok, "{json}");
    assert_eq!(record["exit_code"] == 0, is_ok, "{json}");
    assert_eq!(record["error_category"].is_null(), is_ok, "{json}");
    assert_eq!(record["context"].is_null(), is_ok, "{json}");
    record
}
