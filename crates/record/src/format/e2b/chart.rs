//! Charts with every field that E2B's SDKs read: they drop a whole chart, or fail,
//! when it lacks one of them or its type is none of theirs.
#![expect(
    clippy::disallowed_types,
    reason = "Json::parse bounds what a value takes"
)]

use serde_json::{Map, Value};

/// What a field has to hold; something else becomes the least that does.
#[derive(Clone, Copy)]
enum Field {
    /// A text.
    Text,
    /// A text that is not empty, or null.
    OptionalText,
    /// A number, or a text for one; or null.
    Quantity,
    /// One of E2B's names of scales.
    Scale,
    /// A list.
    List,
    /// Pairs of values.
    Pairs,
}

type Fields = &'static [(&'static str, Field)];

const PLAIN: Fields = &[("title", Field::OptionalText), ("elements", Field::List)];
const AXES: Fields = &[
    ("x_label", Field::OptionalText),
    ("y_label", Field::OptionalText),
    ("x_unit", Field::OptionalText),
    ("y_unit", Field::OptionalText),
];
const TICKS: Fields = &[
    ("x_ticks", Field::List),
    ("x_tick_labels", Field::List),
    ("x_scale", Field::Scale),
    ("y_ticks", Field::List),
    ("y_tick_labels", Field::List),
    ("y_scale", Field::Scale),
];
const SERIES: Fields = &[("label", Field::Text), ("points", Field::Pairs)];
const BAR: Fields = &[
    ("label", Field::Text),
    ("group", Field::Text),
    ("value", Field::Quantity),
];
const SLICE: Fields = &[
    ("label", Field::Text),
    ("angle", Field::Quantity),
    ("radius", Field::Quantity),
];
const BOX: Fields = &[
    ("label", Field::Text),
    ("min", Field::Quantity),
    ("first_quartile", Field::Quantity),
    ("median", Field::Quantity),
    ("third_quartile", Field::Quantity),
    ("max", Field::Quantity),
    ("outliers", Field::List),
];

/// E2B's names of scales.
const SCALES: [&str; 10] = [
    "linear",
    "datetime",
    "categorical",
    "log",
    "symlog",
    "logit",
    "function",
    "functionlog",
    "asinh",
    "unknown",
];

/// Fields of a chart of this type, and of each of its elements.
fn fields_of(kind: &str) -> Option<(&'static [Fields], Fields)> {
    Some(match kind {
        "line" | "scatter" => (&[PLAIN, AXES, TICKS], SERIES),
        "bar" => (&[PLAIN, AXES], BAR),
        "pie" => (&[PLAIN], SLICE),
        "box_and_whisker" => (&[PLAIN, AXES], BOX),
        "superchart" | "unknown" => (&[PLAIN], &[]),
        _ => return None,
    })
}

/// The chart as E2B has it; one of a type without a name there is `unknown`.
pub(super) fn of(given: &Value, notes: &mut Vec<String>) -> Option<Map<String, Value>> {
    let Some(given) = given.as_object() else {
        notes.push("chart: left out, it is no object".to_owned());
        return None;
    };
    let mut chart = given.clone();
    let kind = given
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let known = fields_of(kind);
    if known.is_none() {
        notes.push("chart: E2B has no such type".to_owned());
        chart.insert("type".to_owned(), "unknown".into());
    }
    let (groups, of_element) = known.unwrap_or((&[PLAIN], &[]));
    for fields in groups {
        complete(&mut chart, fields);
    }
    let elements = chart.get_mut("elements").and_then(Value::as_array_mut)?;
    let before = elements.len();
    if kind == "superchart" {
        let parts = elements.iter().filter_map(|part| of(part, notes));
        *elements = parts.map(Value::Object).collect();
    } else if !of_element.is_empty() {
        elements.retain(Value::is_object);
        let objects = elements.iter_mut().filter_map(Value::as_object_mut);
        objects.for_each(|element| complete(element, of_element));
    }
    if elements.len() < before {
        notes.push(format!("chart: {} of {before} elements", elements.len()));
    }
    Some(chart)
}

fn complete(object: &mut Map<String, Value>, fields: Fields) {
    for (name, field) in fields {
        let value = object.entry(*name).or_insert(Value::Null);
        field.settle(value);
    }
}

impl Field {
    fn settle(self, value: &mut Value) {
        let is_pair = |value: &Value| value.as_array().is_some_and(|pair| pair.len() == 2);
        match (self, &mut *value) {
            (Self::OptionalText, Value::String(text)) if text.is_empty() => *value = Value::Null,
            (Self::Text | Self::OptionalText | Self::Quantity, Value::String(_))
            | (Self::Quantity, Value::Number(_))
            | (Self::List, Value::Array(_)) => {}
            (Self::Scale, Value::String(name)) if SCALES.contains(&name.as_str()) => {}
            (Self::Pairs, Value::Array(points)) => points.retain(is_pair),
            (Self::Text, _) => *value = "".into(),
            (Self::OptionalText | Self::Quantity, _) => *value = Value::Null,
            (Self::Scale, _) => *value = "unknown".into(),
            (Self::List | Self::Pairs, _) => *value = Value::Array(Vec::new()),
        }
    }
}
