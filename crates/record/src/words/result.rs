//! Results in words.
#![expect(
    clippy::disallowed_types,
    reason = "Json::parse bounds what a value takes"
)]

use serde_json::Value;

use crate::ResultItem;
use crate::json::Json;

/// Elements of a chart that are named.
const ELEMENTS: usize = 12;

/// The most readable text form, unless it only names an object.
pub fn readable(result: &ResultItem) -> Option<&str> {
    let text = result.text.as_deref();
    let written = ["text/markdown", "text/latex"]
        .iter()
        .find_map(|form| result.formats.get(*form)?.as_str());
    match text {
        Some(text) if !names_an_object(text) => Some(text),
        _ if written.is_some() => written,
        _ if result.data.is_some() => None,
        text => text,
    }
}

/// Whether a text only names an object, as in `<Figure object at 0x…>`.
fn names_an_object(text: &str) -> bool {
    names_something(text) && text.contains(" object")
}

/// Whether a text is a name in angle brackets, which adds little to a picture of the
/// same thing.
pub fn names_something(text: &str) -> bool {
    text.starts_with('<') && text.ends_with('>') && !text.contains('\n')
}

/// A chart in one line.
pub fn chart(chart: &Json) -> String {
    let Some(chart) = &chart.parse() else {
        return "chart: too large to be described".to_owned();
    };
    let parts = chart.get("elements").and_then(Value::as_array);
    let parts = parts.map_or(&[][..], Vec::as_slice);
    let own = |chart: &Value, key: &str| {
        let text = chart.get(key).and_then(Value::as_str);
        text.filter(|text| !text.is_empty()).map(str::to_owned)
    };
    // What is drawn in the same axes says the same of them.
    let common = |key: &str| {
        let first = own(parts.first()?, key)?;
        let is_same = |part: &Value| own(part, key).as_deref() == Some(&first);
        parts.iter().all(is_same).then_some(first)
    };
    let text = |key: &str| own(chart, key).or_else(|| common(key)).unwrap_or_default();
    let mut line = match text("type").as_str() {
        "superchart" => "charts".to_owned(),
        kind => format!("chart: {kind}"),
    };
    if !text("title").is_empty() {
        line += &format!(" “{}”", text("title"));
    }
    let axes: Vec<String> = [text("x_label"), text("y_label"), text("z_label")]
        .into_iter()
        .filter(|label| !label.is_empty())
        .collect();
    if !axes.is_empty() {
        line += &format!(", {}", axes.join(" × "));
    }
    let names: Vec<&str> = (parts.iter())
        .filter_map(|part| part.get("label").or(part.get("type"))?.as_str())
        .filter(|name| !name.is_empty())
        .take(ELEMENTS)
        .collect();
    if !names.is_empty() {
        line += &format!(": {}", names.join(", "));
    }
    line
}
