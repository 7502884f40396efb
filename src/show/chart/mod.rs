//! Charts of plotly and Vega-Lite (altair), whose own form is data for a script: drawn
//! as pictures here, where they are of a common kind, and as tables otherwise.
//!
//! All of it is a cell's: what is read is bounded by [`Json::parse`], what is drawn by
//! the constants here, and the picture is text of ours with escaped words and finite
//! numbers.
//!
//! [`Json::parse`]: record::json::Json::parse

use record::ResultItem;
use record::json::Form;
use serde_json::Value;

mod plotly;
mod scale;
mod svg;
mod vega;

/// Series of a chart, points of all of them, and names on an axis or in a pie.
const SERIES: usize = 50;
const POINTS: usize = 20_000;
const NAMES: usize = 1000;
/// Rows and columns of a table.
const ROWS: usize = 500;
const COLUMNS: usize = 60;

/// What a chart shows, in the terms of what can be drawn.
#[derive(Debug, Default, PartialEq)]
struct Chart {
    title: String,
    x_label: String,
    y_label: String,
    series: Vec<Series>,
}

/// What is drawn in one colour.
#[derive(Debug, PartialEq)]
struct Series {
    name: String,
    mark: Mark,
    x: Vec<Value>,
    y: Vec<Value>,
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Line,
    Points,
    /// Upright, beside those of other series.
    Bars,
    /// Of a pie: `x` has their names.
    Slices,
}

/// The values of a chart, as far as they are lists.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Table {
    pub(super) header: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
    /// Rows that there are.
    pub(super) total: usize,
}

/// What the page shows of a chart.
pub(super) enum Shown {
    /// A picture, and what it leaves out.
    Picture { svg: String, note: Option<String> },
    /// Why there is no picture, and the values.
    Values { why: String, table: Table },
}

/// The chart of a result, if one of its forms is one.
pub(super) fn of(item: &ResultItem) -> Option<Shown> {
    let (name, form) = (item.formats.iter()).find(|(name, _)| is_plotly(name) || is_vega(name))?;
    let value = match form {
        Form::Json(json) => json.parse(),
        Form::Text(_) => None,
    };
    let Some(value) = value else {
        let why = format!("Not drawn: {name}, which is too large or no object");
        let table = Table::default();
        return Some(Shown::Values { why, table });
    };
    let (read, table) = match is_plotly(name) {
        true => (plotly::chart(&value), plotly::table(&value)),
        false => (vega::chart(&value), vega::table(&value)),
    };
    let drawn = read.and_then(svg::draw);
    Some(match drawn {
        Ok((svg, note)) => Shown::Picture { svg, note },
        Err(why) => Shown::Values {
            why: format!("Not drawn here: {why}"),
            table,
        },
    })
}

pub(super) fn is_plotly(name: &str) -> bool {
    name == "application/vnd.plotly.v1+json"
}

pub(super) fn is_vega(name: &str) -> bool {
    name.starts_with("application/vnd.vegalite.v") && name.ends_with("+json")
}

/// Why something is no chart that can be drawn.
type Why = String;

/// The text of a label, which may lie in an object.
fn label(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Object(object)) => label(object.get("text")),
        _ => String::new(),
    }
}

/// A value as a word.
fn word(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn shown(name: &str, value: &Value) -> Shown {
        let item = ResultItem {
            formats: [(name.to_owned(), value.clone().into())].into(),
            ..ResultItem::default()
        };
        of(&item).unwrap()
    }

    const PLOTLY: &str = "application/vnd.plotly.v1+json";
    const VEGA: &str = "application/vnd.vegalite.v5+json";

    fn picture(name: &str, value: &Value) -> String {
        match shown(name, value) {
            Shown::Picture { svg, .. } => svg,
            Shown::Values { why, .. } => panic!("{why}"),
        }
    }

    fn why(name: &str, value: &Value) -> (String, Table) {
        match shown(name, value) {
            Shown::Picture { svg, .. } => panic!("{svg}"),
            Shown::Values { why, table } => (why, table),
        }
    }

    #[test]
    fn common_kinds_are_drawn() {
        let svg = picture(
            PLOTLY,
            &json!({"data": [
                {"type": "scatter", "mode": "lines", "name": "l<1>", "x": [1, 2, 3], "y": [1, 4, 9]},
                {"type": "scatter", "mode": "markers", "x": [1, 2], "y": [2, null]},
            ], "layout": {"title": {"text": "T & U"}, "xaxis": {"title": "x axis"}}}),
        );
        assert_eq!(svg.matches("<polyline").count(), 1, "{svg}");
        assert_eq!(svg.matches("<circle").count(), 1, "{svg}");
        for part in ["T &amp; U", "l&lt;1&gt;", ">x axis<"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        let svg = picture(
            PLOTLY,
            &json!({"data": [{"type": "bar", "x": ["a", "b"], "y": {"dtype": "i1", "bdata": "AQI="}}]}),
        );
        assert_eq!(svg.matches("class=\"bar\"").count(), 2, "{svg}");
        let svg = picture(
            PLOTLY,
            &json!({"data": [{"type": "pie", "labels": ["a", "b"], "values": [1, 3]}]}),
        );
        assert_eq!(svg.matches("<path").count(), 2, "{svg}");
        let svg = picture(
            PLOTLY,
            &json!({"data": [{"type": "histogram", "x": [1, 1, 2, 3, 3, 3]}]}),
        );
        assert!(svg.matches("class=\"bar\"").count() > 1, "{svg}");
    }

    #[test]
    fn vega_lite_is_drawn() {
        let spec = |mark: &str| {
            json!({"mark": {"type": mark}, "data": {"name": "d"}, "title": "T",
                "encoding": {"x": {"field": "a", "type": "quantitative"},
                    "y": {"field": "b", "aggregate": "mean"}, "color": {"field": "k"}},
                "datasets": {"d": [{"a": 1, "b": 3, "k": "x"}, {"a": 1, "b": 5, "k": "x"},
                    {"a": 2, "b": 1, "k": "x"}, {"a": 2, "b": 1, "k": "y"}]}})
        };
        let chart = vega::chart(&spec("line")).unwrap();
        let first = &chart.series[0];
        assert_eq!((first.name.as_str(), chart.series.len()), ("x", 2));
        assert_eq!(
            (&first.x, &first.y),
            (&vec![json!(1), json!(2)], &vec![json!(4.0), json!(1.0)])
        );
        assert!(picture(VEGA, &spec("line")).contains("<polyline"));
        assert!(picture(VEGA, &spec("point")).contains("<circle"));
        let (why, table) = why(VEGA, &spec("geoshape"));
        assert!(why.contains("geoshape"), "{why}");
        assert_eq!(
            (table.header.join(" "), table.rows.len()),
            ("a b k".to_owned(), 4)
        );
    }

    #[test]
    fn other_kinds_are_tables() {
        let (why, table) = why(
            PLOTLY,
            &json!({"data": [{"type": "scatter3d", "name": "s", "x": [1, 2], "y": ["a"], "z": [3.5, null]}]}),
        );
        assert!(why.contains("scatter3d"), "{why}");
        assert_eq!(table.header, ["s x", "s y", "s z"]);
        assert_eq!(table.rows, [["1", "a", "3.5"], ["2", "", ""]]);
    }

    /// What would be drawn as something else is not drawn.
    #[test]
    fn a_chart_is_not_drawn_wrong() {
        let bar = json!({"type": "bar", "x": ["a"], "y": [1]});
        for figure in [
            json!({"data": [bar, bar], "layout": {"barmode": "relative"}}),
            json!({"data": [bar, bar], "layout": {"barmode": "stack"}}),
            json!({"data": [{"type": "bar", "x": ["a", "a"], "y": [1, 2]}],
                "layout": {"barmode": "relative"}}),
            json!({"data": [bar], "layout": {"yaxis": {"type": "log"}}}),
            json!({"data": [bar], "layout": {"yaxis": {"autorange": "reversed"}}}),
            json!({"data": [{"type": "scatter", "y": [1], "stackgroup": "one"}]}),
            json!({"data": [{"type": "scatter", "y": [1], "xaxis": "x2"}]}),
            json!({"data": []}),
        ] {
            assert!(!why(PLOTLY, &figure).0.is_empty(), "{figure}");
        }
        picture(PLOTLY, &json!({"data": [bar, bar]}));
        let rows = json!([{"a": "p", "b": 1}, {"a": "p", "b": 2}]);
        let spec = |mark: &str, more: Value| {
            let y = json!({"field": "b"});
            json!({"mark": mark, "data": {"values": rows}, "encoding": {"x": more, "y": y}})
        };
        for spec in [
            spec("bar", json!({"field": "a"})),
            spec("line", json!({"field": "a", "timeUnit": "year"})),
            spec("line", json!({"field": "a", "bin": true})),
            json!({"layer": [], "data": {"values": []}}),
            json!({"mark": "line", "data": {"url": "http://h/x.csv"}}),
        ] {
            assert!(!why(VEGA, &spec).0.is_empty(), "{spec}");
        }
        picture(VEGA, &spec("line", json!({"field": "a"})));
    }

    #[test]
    fn hostile_numbers_and_sizes_are_bounded() {
        for (traces, y) in [
            (60, json!([1e308, -1e308])),
            (60, json!([1e308, 1e308])),
            (60, json!([5e-324, 0])),
            (60, json!([u64::MAX, i64::MIN])),
            (60, json!(vec![json!([[[]]]); 10])),
            (
                60,
                json!({"dtype": "f8", "bdata": "AAAAAAAA8H8AAAAAAADwfw=="}),
            ),
            (60, json!({"dtype": "f8", "bdata": "!!"})),
            (60, json!({"dtype": "x", "bdata": {}})),
            (
                60,
                json!(["9999-99-99", "0000-00-00", "999999999999-01-01"]),
            ),
            (60, json!(vec![1; 2_000])),
            (1, json!(vec![1; 100_000])),
        ] {
            for kind in ["scatter", "bar", "histogram"] {
                let trace = json!({"type": kind, "mode": "markers", "x": y, "y": y});
                let figure = json!({"data": vec![trace; traces]});
                if let Shown::Picture { svg, .. } = shown(PLOTLY, &figure) {
                    assert!(svg.len() < 4 << 20, "{kind}: {}", svg.len());
                    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{kind}");
                }
            }
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<f64>().prop_map(|number| json!(number)),
            any::<i64>().prop_map(|number| json!(number)),
            ".{0,8}".prop_map(Value::from),
            Just(Value::Null),
            Just(json!("2024-02-30T25:00:00")),
        ];
        leaf.prop_recursive(3, 30, 6, |inner| {
            let key = "x|y|type|mode|labels|values|mark|field|encoding|dtype|bdata";
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                proptest::collection::btree_map(key, inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn nothing_in_a_chart_becomes_a_tag(
            x in any_json(), y in any_json(), name in ".{0,9}",
            kind in "scatter|bar|pie|histogram|box", mark in "line|point|bar|arc|area",
        ) {
            let figure = json!({"layout": {"title": name, "xaxis": x}, "data": [
                {"type": kind, "name": name, "x": x, "y": y, "labels": x, "values": y, "mode": "lines+markers"},
            ]});
            let spec = json!({"mark": mark, "title": name, "data": {"values": [{"a": x, "b": y}, x, y]},
                "encoding": {"x": {"field": "a"}, "y": {"field": "b"}, "theta": {"field": "b"}, "color": {"field": name}}});
            for (form, value) in [(PLOTLY, &figure), (VEGA, &spec)] {
                if let Shown::Picture { svg, .. } = shown(form, value) {
                    let allowed = ["svg", "rect", "text", "line", "polyline", "circle", "path"];
                    for tag in svg.split('<').skip(1) {
                        let tag = tag.trim_start_matches('/');
                        let end = tag.find([' ', '>', '/']).unwrap();
                        prop_assert!(allowed.contains(&&tag[..end]), "{}", svg);
                    }
                    prop_assert!(!svg.contains("NaN") && !svg.contains("\"inf"));
                }
            }
        }
    }
}
