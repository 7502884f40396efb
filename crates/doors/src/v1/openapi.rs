//! The description of the interface, from the types themselves.
#![expect(
    clippy::disallowed_types,
    reason = "the document is of the program itself, and made by a test"
)]

use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};
use wire::Failure;

use super::forms::{self, Forms};
use super::table::{AnswerForm, Kind, Route, TABLE};

/// The OpenAPI document that `docs/openapi.json` publishes. The server has it packed, so that the
/// executable holds no code that makes schemas. `request` adds the schema of requests,
/// `RemoteRequest`.
pub fn openapi(request: fn(&mut SchemaGenerator)) -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    let mut generator = settings.into_generator();
    request(&mut generator);
    let error = generator.subschema_for::<Failure>();
    let mut paths = Map::new();
    for route in TABLE {
        let path = route.path.replace("{*", "{");
        let operations = paths.entry(path).or_insert_with(|| json!({}));
        if let Value::Object(operations) = operations
            && let Some(forms) = forms::of(route.call, &mut generator)
        {
            let operation = operation(route, forms, &generator);
            operations.insert(route.verb.name().to_owned(), operation);
        }
    }
    // Parameters are with their operations.
    let mut components: Map<String, Value> = generator.take_definitions(true);
    let all = json!([&paths, &components]).to_string();
    components.retain(|name, _| all.contains(&format!("\"#/components/schemas/{name}\"")));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "cellblock",
            "version": "1",
            "description": "The methods of docs/PROTOCOL.md as resources of `cellblock serve --http`.",
            "license": {"name": "MIT OR Apache-2.0"},
        },
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": {"error": {
                "description": "The error of the call",
                "content": {"application/json": {"schema": {
                    "type": "object",
                    "properties": {"error": error},
                    "required": ["error"],
                }}},
            }},
        },
    })
}

fn operation(route: &Route, forms: Forms, generator: &SchemaGenerator) -> Value {
    let params = inline(forms.takes, generator);
    let in_path: Vec<_> = route.in_path().collect();
    let in_query = route.fields.iter().map(|(name, _)| *name);
    let in_query = in_query.filter(|name| !in_path.contains(name));
    let described = |place: &str, name: &str| {
        let about = params["properties"][name]["description"].clone();
        let kind = route.kind(name).unwrap_or(Kind::Text);
        let is_required = place == "path" || names(&params["required"]).any(|own| own == name);
        json!({
            "name": name, "in": place, "required": is_required, "description": about,
            "schema": {"type": kind.schema()},
        })
    };
    let mut parameters: Vec<Value> = in_path.iter().map(|name| described("path", name)).collect();
    parameters.extend(in_query.map(|name| described("query", name)));
    let mut operation = json!({
        "operationId": route.call,
        "summary": route.about,
        "parameters": parameters,
        "responses": {
            status(route): success(route, forms.gives),
            "default": {"$ref": "#/components/responses/error"},
        },
    });
    if let Some(body) = request_body(route, params) {
        operation["requestBody"] = body;
    }
    operation
}

const fn status(route: &Route) -> &'static str {
    match route.reply {
        AnswerForm::Created => "201",
        _ => "200",
    }
}

fn success(route: &Route, result: Schema) -> Value {
    let bytes = json!({});
    let text = json!({"type": "string"});
    let json = json!({"schema": result});
    let events = json!({"schema": text});
    let content = match route.reply {
        AnswerForm::Json | AnswerForm::Created | AnswerForm::Upload => {
            json!({"application/json": json})
        }
        AnswerForm::Streams | AnswerForm::Starts => {
            json!({"application/json": json, "text/event-stream": events})
        }
        AnswerForm::Watches => json!({"text/event-stream": events}),
        AnswerForm::Text => json!({"text/plain": {"schema": text}}),
        AnswerForm::Content => json!({"application/octet-stream": bytes}),
    };
    let about = match route.reply {
        AnswerForm::Streams => {
            "The result. With `events`, or if `text/event-stream` is accepted, what happens as server-sent events: each has the name of its kind, and the last is `answer` or `failure`"
        }
        AnswerForm::Starts => {
            "The result. With `events`, or if `text/event-stream` is accepted, server-sent events: the result as `answer`, the output, and `process_ended`"
        }
        AnswerForm::Watches => {
            "The result as `answer`, and then what happens, as server-sent events"
        }
        AnswerForm::Content => "The file",
        _ => "The result",
    };
    json!({"description": about, "content": content})
}

/// What is not in the path or the query is in the body.
fn request_body(route: &Route, mut params: Value) -> Option<Value> {
    if route.reply == AnswerForm::Upload {
        let content = json!({"application/octet-stream": {}});
        return Some(json!({"required": true, "content": content}));
    }
    if !route.has_object() {
        return None;
    }
    let elsewhere: Vec<&str> = route.in_path().chain(route.fixed.iter().copied()).collect();
    if let Value::Object(properties) = &mut params["properties"] {
        properties.retain(|name, _| !elsewhere.contains(&name.as_str()));
        if properties.is_empty() {
            return None;
        }
    }
    let required: Vec<String> = names(&params["required"])
        .filter(|name| !elsewhere.contains(name))
        .map(str::to_owned)
        .collect();
    let is_required = !required.is_empty();
    params["required"] = json!(required);
    let content = json!({"application/json": {"schema": params}});
    Some(json!({"required": is_required, "content": content}))
}

fn names(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

/// A schema itself, where there is a reference to it.
fn inline(schema: Schema, generator: &SchemaGenerator) -> Value {
    let name = schema
        .get("$ref")
        .and_then(Value::as_str)
        .and_then(|path| path.rsplit('/').next());
    let own = name.and_then(|name| generator.definitions().get(name));
    own.cloned().unwrap_or_else(|| schema.to_value())
}
