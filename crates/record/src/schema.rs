//! JSON Schemas of the documents that cellblock writes.
#![expect(clippy::disallowed_types, reason = "schemas are of the program itself")]

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value};

use crate::Record;

/// The file that holds the record's schema, beside those that refer to it.
pub const RECORD_FILE: &str = "record.schema.json";

/// The JSON Schema of `T`, as `docs/` publishes it. Documents may have fields that it
/// does not name. What the record's schema defines is not repeated: it is referred to
/// there.
pub fn of<T: JsonSchema>() -> Schema {
    let mut schema = alone::<T>();
    if T::schema_id() == Record::schema_id() {
        return schema;
    }
    let record = alone::<Record>();
    let shared = definitions(&record);
    if let Some(Value::Object(own)) = schema.get_mut("$defs") {
        own.retain(|name, definition| {
            name != Record::schema_name().as_ref() && shared.get(name) != Some(definition)
        });
        let own = own.clone();
        schema
            .as_object_mut()
            .into_iter()
            .flat_map(Map::values_mut)
            .for_each(|value| refer(value, &own));
        if own.is_empty() {
            schema.remove("$defs");
        }
    }
    schema
}

fn alone<T: JsonSchema>() -> Schema {
    SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator()
        .into_root_schema_for::<T>()
}

fn definitions(schema: &Schema) -> Map<String, Value> {
    let definitions = schema.get("$defs").and_then(Value::as_object);
    definitions.cloned().unwrap_or_default()
}

/// Has references to what is not among `own` definitions lead to the record's schema.
fn refer(value: &mut Value, own: &Map<String, Value>) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| refer(item, own)),
        Value::Object(object) => {
            for (key, value) in object {
                match (key.as_str(), value.as_str()) {
                    ("$ref", Some(to)) => {
                        let name = to.rsplit('/').next().unwrap_or_default();
                        if name == Record::schema_name() {
                            *value = RECORD_FILE.into();
                        } else if !own.contains_key(name) {
                            *value = format!("{RECORD_FILE}{to}").into();
                        }
                    }
                    _ => refer(value, own),
                }
            }
        }
        _ => {}
    }
}
