//! Figures of plotly.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::scale::number;
use super::{COLUMNS, Chart, Mark, ROWS, Series, Table, Why, label, word};

/// The figure's chart.
pub(super) fn chart(figure: &Value) -> Result<Chart, Why> {
    let layout = figure.get("layout").unwrap_or(&Value::Null);
    let axis = |name: &str, key: &str| layout.get(name).and_then(|axis| axis.get(key));
    let axes = ["xaxis", "yaxis"];
    let is_reversed = |name: &str| axis(name, "autorange") == Some(&json!("reversed"));
    if axes.iter().any(|name| is_reversed(name)) {
        return Err("plotly's reversed axes".to_owned());
    }
    if axes
        .iter()
        .any(|name| axis(name, "type") == Some(&json!("log")))
    {
        return Err("plotly's logarithmic axes".to_owned());
    }
    if traces(figure).is_empty() {
        return Err("it has no traces".to_owned());
    }
    let mut series = Vec::new();
    for trace in traces(figure) {
        add(trace, &mut series)?;
    }
    let count = |name: &str| {
        let is_one = |trace: &&Value| trace.get("type").map_or("", kind) == name;
        traces(figure).iter().filter(is_one).count()
    };
    let barmode = layout.get("barmode").map_or("group", kind);
    // Bars at one place are stacked as well.
    let repeats = |series: &Series| {
        let places: Vec<String> = series.x.iter().map(word).collect();
        series.mark == Mark::Bars && places.iter().collect::<BTreeSet<_>>().len() < places.len()
    };
    let stacks = barmode != "group" && count("bar") > 0;
    let is_stacked = stacks && (count("bar") > 1 || series.iter().any(repeats));
    if count("histogram") > 1 || is_stacked {
        return Err("plotly's stacked bars".to_owned());
    }
    Ok(Chart {
        title: label(layout.get("title")),
        x_label: label(axis("xaxis", "title")),
        y_label: label(axis("yaxis", "title")),
        series,
    })
}

fn kind(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn traces(figure: &Value) -> &[Value] {
    let traces = figure.get("data").and_then(Value::as_array);
    traces.map_or(&[], Vec::as_slice)
}

fn add(trace: &Value, series: &mut Vec<Series>) -> Result<(), Why> {
    let text = |key: &str| trace.get(key).and_then(Value::as_str).unwrap_or_default();
    let is_other = |key: &str, first: &str| !["", first].contains(&text(key));
    if is_other("xaxis", "x") || is_other("yaxis", "y") {
        return Err("plotly's charts side by side".to_owned());
    }
    for other in ["base", "stackgroup", "histnorm", "histfunc", "cumulative"] {
        if trace.get(other).is_some() {
            return Err(format!("plotly's {other}"));
        }
    }
    let list = |key: &str| trace.get(key).and_then(values).unwrap_or_default();
    let mut push = |mark, x, y| {
        let name = text("name").to_owned();
        series.push(Series { name, mark, x, y });
    };
    let counted = |y: &[Value]| (0..y.len()).map(Value::from).collect();
    match text("type") {
        "" | "scatter" | "scattergl" => {
            let (x, y) = (list("x"), list("y"));
            let x = if x.is_empty() { counted(&y) } else { x };
            let mode = match text("mode") {
                "" => "lines+markers",
                mode => mode,
            };
            if mode.contains("lines") {
                push(Mark::Line, x.clone(), y.clone());
            }
            if mode.contains("markers") {
                push(Mark::Points, x, y);
            }
        }
        "bar" if text("orientation") == "h" => push(Mark::Bars, list("y"), list("x")),
        "bar" => {
            let (x, y) = (list("x"), list("y"));
            push(Mark::Bars, if x.is_empty() { counted(&y) } else { x }, y);
        }
        "pie" => push(Mark::Slices, list("labels"), list("values")),
        "histogram" => {
            let (names, counts) = bins(&list("x"))?;
            push(Mark::Bars, names, counts);
        }
        other => return Err(format!("plotly's {other}")),
    }
    Ok(())
}

/// The bins of a histogram: those of numbers are equally wide, names are their own.
fn bins(values: &[Value]) -> Result<(Vec<Value>, Vec<Value>), Why> {
    let numbers: Vec<f64> = values.iter().filter_map(number).collect();
    if numbers.len() < values.len() {
        return Err("plotly's histogram of other values than numbers".to_owned());
    }
    let low = numbers.iter().copied().fold(f64::INFINITY, f64::min);
    let high = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    // Sturges' rule, by which most programs choose.
    let count = (numbers.len() as f64).log2().ceil().clamp(1.0, 30.0) as usize + 1;
    let width = (high - low) / count as f64;
    if !width.is_finite() {
        return Err("its numbers are too far apart".to_owned());
    }
    let mut counts = vec![0_u64; count];
    for number in &numbers {
        let at = if width > 0.0 {
            (number - low) / width
        } else {
            0.0
        };
        counts[(at as usize).min(count - 1)] += 1;
    }
    let name = |at: usize| {
        let from = low + at as f64 * width;
        Value::from(format!("{} – {}", short(from), short(from + width)))
    };
    Ok((
        (0..count).map(name).collect(),
        counts.into_iter().map(Value::from).collect(),
    ))
}

fn short(value: f64) -> String {
    match value == 0.0 || (1e-3..1e6).contains(&value.abs()) {
        true => format!("{}", (value * 1000.0).round() / 1000.0),
        false => format!("{value:.2e}"),
    }
}

/// A list, which plotly writes as such or as the bytes of its numbers.
fn values(value: &Value) -> Option<Vec<Value>> {
    if let Some(list) = value.as_array() {
        return Some(list.clone());
    }
    let bytes = BASE64.decode(value.get("bdata")?.as_str()?).ok()?;
    macro_rules! read {
        ($kind:ty) => {
            bytes
                .as_chunks()
                .0
                .iter()
                .map(|bytes| json!(<$kind>::from_le_bytes(*bytes)))
                .collect()
        };
    }
    Some(match value.get("dtype")?.as_str()? {
        "i1" => read!(i8),
        "u1" => read!(u8),
        "i2" => read!(i16),
        "u2" => read!(u16),
        "i4" => read!(i32),
        "u4" => read!(u32),
        "f4" => read!(f32),
        "f8" => read!(f64),
        _ => return None,
    })
}

/// The lists of all traces, side by side.
pub(super) fn table(figure: &Value) -> Table {
    let mut columns = Vec::new();
    for (index, trace) in traces(figure).iter().enumerate() {
        let name = match trace.get("name").and_then(Value::as_str) {
            None | Some("") => format!("trace {}", index + 1),
            Some(name) => name.to_owned(),
        };
        let fields = trace.as_object().into_iter().flatten();
        let lists = fields.filter_map(|(key, value)| Some((key, values(value)?)));
        columns.extend(lists.map(|(key, values)| (format!("{name} {key}"), values)));
        if columns.len() > COLUMNS {
            break;
        }
    }
    columns.truncate(COLUMNS);
    let total = columns
        .iter()
        .map(|(_, values)| values.len())
        .max()
        .unwrap_or(0);
    let cell = |at: usize, values: &[Value]| values.get(at).map(word).unwrap_or_default();
    let row = |at: usize| columns.iter().map(|(_, values)| cell(at, values)).collect();
    Table {
        rows: (0..total.min(ROWS)).map(row).collect(),
        header: columns.iter().map(|(name, _)| name.clone()).collect(),
        total,
    }
}
