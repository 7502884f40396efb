//! Specifications of Vega-Lite, as altair writes them: one view with its values.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::scale::number;
use super::{COLUMNS, Chart, Mark, ROWS, Series, Table, Why, label, word};

/// What changes the values before they are drawn, or draws several views.
const OTHER: [&str; 9] = [
    "layer",
    "hconcat",
    "vconcat",
    "concat",
    "facet",
    "repeat",
    "transform",
    "projection",
    "spec",
];
/// What an encoding may hold besides its field that changes nothing here.
const PLAIN: [&str; 9] = [
    "field",
    "type",
    "title",
    "aggregate",
    "axis",
    "legend",
    "scale",
    "sort",
    "stack",
];

/// The specification's chart.
pub(super) fn chart(spec: &Value) -> Result<Chart, Why> {
    if let Some(other) = OTHER.iter().find(|key| spec.get(**key).is_some()) {
        return Err(format!("Vega-Lite's {other}"));
    }
    let rows = rows(spec).ok_or("its data are elsewhere")?;
    let mark = spec.get("mark").unwrap_or(&Value::Null);
    let mark = mark
        .get("type")
        .unwrap_or(mark)
        .as_str()
        .unwrap_or_default();
    let channel = |name: &str| Channel::of(spec, name);
    let color = channel("color")?;
    let (mark, mut x, mut y) = match mark {
        "line" => (Mark::Line, channel("x")?, channel("y")?),
        "point" | "circle" | "square" => (Mark::Points, channel("x")?, channel("y")?),
        "bar" => (Mark::Bars, channel("x")?, channel("y")?),
        "arc" => (Mark::Slices, color.clone(), channel("theta")?),
        other => return Err(format!("Vega-Lite's mark {other}")),
    };
    if ["row", "column", "facet", "xOffset", "yOffset"]
        .iter()
        .any(|name| channel(name) != Ok(None))
    {
        return Err("Vega-Lite's charts side by side".to_owned());
    }
    if mark == Mark::Bars && y.as_ref().is_some_and(|y| y.is_discrete) {
        (x, y) = (y, x);
    }
    let (Some(x), Some(y)) = (x, y) else {
        return Err("a chart of one channel only".to_owned());
    };
    let group = color.filter(|_| mark != Mark::Slices);
    if mark == Mark::Bars && group.as_ref().is_some_and(|group| group.field != x.field) {
        return Err("Vega-Lite's stacked bars".to_owned());
    }
    let mut groups: BTreeMap<String, Vec<&Map<String, Value>>> = BTreeMap::new();
    for row in rows.iter().filter_map(Value::as_object) {
        let name = group
            .as_ref()
            .map_or_else(String::new, |group| word(group.value(row)));
        groups.entry(name).or_default().push(row);
    }
    let series = groups.into_iter().map(|(name, rows)| {
        let (x, y) = points(&x, &y, &rows, mark == Mark::Line);
        Series { name, mark, x, y }
    });
    let series: Vec<Series> = series.collect();
    for bars in series.iter().filter(|one| one.mark == Mark::Bars) {
        let names: BTreeSet<String> = bars.x.iter().map(word).collect();
        if names.len() < bars.x.len() {
            return Err("Vega-Lite's stacked bars".to_owned());
        }
    }
    let title = label(spec.get("title"));
    let (x_label, y_label) = (x.title, y.title);
    Ok(Chart {
        title,
        x_label,
        y_label,
        series,
    })
}

/// What a channel of the encoding takes from a row.
#[derive(Clone, Debug, PartialEq)]
struct Channel {
    field: String,
    aggregate: Option<String>,
    title: String,
    is_discrete: bool,
}

impl Channel {
    fn of(spec: &Value, name: &str) -> Result<Option<Self>, Why> {
        let channel = spec.get("encoding").and_then(|encoding| encoding.get(name));
        let Some(channel) = channel.and_then(Value::as_object) else {
            return Ok(None);
        };
        if channel.contains_key("value") {
            return Ok(None);
        }
        let is_log =
            channel.get("scale").and_then(|scale| scale.get("type")) == Some(&json!("log"));
        if let Some(other) = channel.keys().find(|key| !PLAIN.contains(&key.as_str())) {
            return Err(format!("Vega-Lite's {other}"));
        }
        if is_log {
            return Err("Vega-Lite's logarithmic axes".to_owned());
        }
        let text = |key: &str| channel.get(key).and_then(Value::as_str).map(str::to_owned);
        let aggregate = text("aggregate");
        let field = text("field").unwrap_or_default();
        let title = match (text("title"), &aggregate) {
            (Some(title), _) => title,
            (None, Some(aggregate)) => format!("{aggregate} of {field}"),
            (None, None) => field.clone(),
        };
        let kind = text("type").unwrap_or_default();
        let is_discrete = kind == "nominal" || kind == "ordinal";
        if let Some(other) = aggregate
            .as_deref()
            .filter(|name| aggregated(name, &[]).is_none())
        {
            return Err(format!("Vega-Lite's aggregate {other}"));
        }
        Ok(Some(Self {
            field,
            aggregate,
            title,
            is_discrete,
        }))
    }

    fn value<'a>(&self, row: &'a Map<String, Value>) -> &'a Value {
        row.get(&self.field).unwrap_or(&Value::Null)
    }
}

/// The points of one series; a line goes from left to right.
fn points(
    x: &Channel,
    y: &Channel,
    rows: &[&Map<String, Value>],
    is_sorted: bool,
) -> (Vec<Value>, Vec<Value>) {
    let mut points: Vec<(Value, Value)> = match &y.aggregate {
        None => rows
            .iter()
            .map(|row| (x.value(row).clone(), y.value(row).clone()))
            .collect(),
        Some(name) => {
            let mut order = Vec::new();
            let mut groups: BTreeMap<String, Vec<f64>> = BTreeMap::new();
            for row in rows {
                let at = x.value(row);
                let group = groups.entry(at.to_string()).or_insert_with(|| {
                    order.push(at.clone());
                    Vec::new()
                });
                match name.as_str() {
                    "count" => group.push(1.0),
                    _ => group.extend(number(y.value(row))),
                }
            }
            let value = |at: &Value| {
                let numbers = groups.get(&at.to_string()).map_or(&[][..], Vec::as_slice);
                aggregated(name, numbers).map_or(Value::Null, Value::from)
            };
            order.iter().map(|at| (at.clone(), value(at))).collect()
        }
    };
    if is_sorted {
        points.sort_by(
            |(one, _), (other, _)| match (one.as_f64(), other.as_f64()) {
                (Some(one), Some(other)) => one.total_cmp(&other),
                _ => word(one).cmp(&word(other)),
            },
        );
    }
    points.into_iter().unzip()
}

/// One number for several; `None` for an aggregate that is not known.
fn aggregated(name: &str, numbers: &[f64]) -> Option<f64> {
    let sum = || numbers.iter().sum::<f64>();
    Some(match name {
        "count" | "sum" => sum(),
        "mean" | "average" => sum() / numbers.len() as f64,
        "min" => numbers.iter().copied().fold(f64::INFINITY, f64::min),
        "max" => numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        _ => return None,
    })
}

/// The rows that the specification brings.
fn rows(spec: &Value) -> Option<&Vec<Value>> {
    let data = spec.get("data")?;
    if let Some(values) = data.get("values") {
        return values.as_array();
    }
    let name = data.get("name")?.as_str()?;
    spec.get("datasets")?.get(name)?.as_array()
}

/// The rows as a table.
pub(super) fn table(spec: &Value) -> Table {
    let Some(rows) = rows(spec) else {
        return Table::default();
    };
    let first = rows.iter().find_map(Value::as_object);
    let header: Vec<String> =
        first.map_or_else(Vec::new, |row| row.keys().take(COLUMNS).cloned().collect());
    let cell = |row: &Value, key: &String| row.get(key).map(word).unwrap_or_default();
    let cells = |row: &Value| header.iter().map(|key| cell(row, key)).collect();
    Table {
        rows: rows.iter().take(ROWS).map(cells).collect(),
        total: rows.len(),
        header,
    }
}
