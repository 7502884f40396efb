//! Checks JSON against the published schema of the record.

use std::sync::LazyLock;

use jsonschema::Validator;
use serde_json::Value;

const PUBLISHED: &str = include_str!("../../docs/record.schema.json");

static VALIDATOR: LazyLock<Result<Validator, String>> = LazyLock::new(|| {
    let schema = serde_json::from_str(PUBLISHED).map_err(|error| error.to_string())?;
    jsonschema::validator_for(&schema).map_err(|error| error.to_string())
});

/// What is wrong with a record, each with its place in it; empty when it is valid.
pub(crate) fn complaints(record: &Value) -> Vec<String> {
    match &*VALIDATOR {
        // Finding no error this way is several times faster.
        Ok(validator) if validator.is_valid(record) => Vec::new(),
        Ok(validator) => validator
            .iter_errors(record)
            .map(|error| format!("{}: {error}", error.instance_path))
            .collect(),
        Err(error) => vec![format!("the schema itself: {error}")],
    }
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
