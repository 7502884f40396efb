//! The forms of the tools' arguments and answers, as JSON Schemas.
#![expect(clippy::disallowed_types, reason = "schemas are of the program itself")]

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::super::output::{CommandOutput, RunOutput};
use super::{contexts, files, run};

/// The schemas by the names of the tools, as `docs/mcp-tools.schema.json` publishes them. A server
/// has the [`Schemas::published`] ones, so that the executable holds no code that makes schemas.
pub fn schemas() -> Value {
    json!({
        "run_code": forms::<run::Code, RunOutput<'_>>(),
        "run_command": forms::<run::Command, CommandOutput<'_>>(),
        "create_context": forms::<contexts::Create, contexts::Created>(),
        "list_contexts": forms::<contexts::Nothing, contexts::Contexts>(),
        "fork_context": forms::<contexts::Fork, contexts::Forked>(),
        "restart_context": forms::<contexts::Name, contexts::Restarted>(),
        "close_context": forms::<contexts::Name, contexts::Closed>(),
        "read_file": forms::<files::Read, files::Content>(),
        "write_file": forms::<files::Write, files::Written>(),
        "list_files": forms::<files::List, files::Entries>(),
    })
}

/// The published schemas, which are small and the program's own.
pub(super) struct Schemas(Value);

impl Schemas {
    pub(super) fn published() -> Self {
        let text = include_str!("../../../../../docs/mcp-tools.schema.json");
        // This cannot fail: a test reads the same text.
        Self(record::json::from_slice(text.as_bytes()).unwrap_or_default())
    }

    /// The schemas of a tool's arguments, of which the language is one of these, and of its answer.
    pub(super) fn of(&self, tool: &str, languages: &[&str]) -> (Value, &Value) {
        let mut input = self.0[tool]["input"].clone();
        if let Some(language) = input.pointer_mut("/properties/language") {
            language["enum"] = languages.into();
        }
        (input, &self.0[tool]["output"])
    }
}

fn forms<Input: JsonSchema, Output: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12;
    json!({
        "input": schema::<Input>(settings()),
        "output": schema::<Output>(settings().for_serialize()),
    })
}

/// Some clients cannot follow references in schemas.
fn schema<T: JsonSchema>(settings: SchemaSettings) -> Value {
    let settings = settings.with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    schema.remove("title");
    let mut schema = schema.to_value();
    without_formats(&mut schema);
    schema
}

/// Removes formats that JSON Schema does not define, such as `uint64`: clients warn about them.
fn without_formats(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.retain(|name, value| name != "format" || !value.is_string());
            fields.values_mut().for_each(without_formats);
        }
        Value::Array(values) => values.iter_mut().for_each(without_formats),
        _ => {}
    }
}
