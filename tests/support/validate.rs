//! Validates JSON by a published schema.

use jsonschema::{Resource, Validator};
use serde_json::Value;

const RECORD: &str = include_str!("../../docs/record.schema.json");

/// Compiles a published schema, which may refer to the record's.
pub(crate) fn compile(published: &str) -> Result<Validator, String> {
    let parse = |text| serde_json::from_str::<Value>(text).map_err(|error| error.to_string());
    let record = Resource::from_contents(parse(RECORD)?).map_err(|error| error.to_string())?;
    jsonschema::options()
        .with_resource("json-schema:///record.schema.json", record)
        .build(&parse(published)?)
        .map_err(|error| error.to_string())
}

/// What is wrong with a document, each with its place in it.
pub(crate) fn errors(validator: &Result<Validator, String>, document: &Value) -> Vec<String> {
    match validator {
        // Much faster than finding no error.
        Ok(validator) if validator.is_valid(document) => Vec::new(),
        Ok(validator) => validator
            .iter_errors(document)
            .map(|error| format!("{}: {error}", error.instance_path))
            .collect(),
        Err(error) => vec![format!("the schema itself: {error}")],
    }
}
