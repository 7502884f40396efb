//! Charts as E2B's SDKs read them: the types and fields of `e2b_code_interpreter`'s
//! `charts.py` (2.11), written down by hand. It drops a chart that lacks a field.

use record::format::Shape;
use record::json::Json;
use serde_json::{Value, json};

use super::{sample, shaped};

/// The chart, and the notes that go with it.
fn chart(given: Value) -> (Value, Value) {
    let mut record = sample("rich");
    record.results.truncate(1);
    record.truncated.clear();
    record.results[0].chart = Some(Json::of(&given));
    let mut value = shaped(Shape::E2b, &record);
    let result = &mut value["results"][0];
    (result["chart"].take(), result["extra"]["notes"].take())
}

/// A chart as the Python shim makes it, and the fields of its elements.
fn of_the_shim(kind: &str) -> Value {
    let elements = match kind {
        "line" => json!([
            {"label": "a", "points": [[0, 0.5], ["2024-01-01", null]], "total_points": 9},
            {"label": "b", "points": []}
        ]),
        "scatter" => json!([{"label": "s", "points": [["x", 1], ["y", 2]]}]),
        "bar" => json!([{"label": "x", "group": "b", "value": 2.5}]),
        "pie" => json!([{"label": "x", "angle": 90.0, "radius": 1}]),
        "box_and_whisker" => json!([{
            "label": "1", "min": 1, "first_quartile": 1.75, "median": 2.5,
            "third_quartile": 4.75, "max": 4.75, "outliers": [10]
        }]),
        _ => json!([]),
    };
    json!({
        "type": kind, "title": "growth",
        "x_label": "time (s)", "x_unit": "s", "x_scale": "log",
        "x_ticks": [0, 1], "x_tick_labels": ["0", "1"],
        "y_label": "way", "y_unit": null, "y_scale": "categorical",
        "y_ticks": ["x", "y"], "y_tick_labels": ["x", "y"],
        "elements": elements,
        "total_elements": 60
    })
}

const SHIM: [&str; 6] = [
    "line",
    "scatter",
    "bar",
    "pie",
    "box_and_whisker",
    "unknown",
];

#[test]
fn charts_of_the_shim_are_left_as_they_are() {
    for kind in SHIM {
        let whole = of_the_shim(kind);
        assert_eq!(chart(whole.clone()), (whole, Value::Null), "{kind}");
    }
    let all = json!({
        "type": "superchart", "title": "all", "elements": SHIM.map(of_the_shim)
    });
    assert_eq!(chart(all.clone()), (all, Value::Null));
}

#[test]
fn what_a_chart_lacks_is_added() {
    let axes = json!({
        "title": null,
        "x_label": null, "x_unit": null, "y_label": null, "y_unit": null,
    });
    let ticks = json!({
        "x_scale": "unknown", "x_ticks": [], "x_tick_labels": [],
        "y_scale": "unknown", "y_ticks": [], "y_tick_labels": [],
    });
    let series = json!({"label": "", "points": []});
    let bar = json!({"label": "", "group": "", "value": null});
    let slice = json!({"label": "", "angle": null, "radius": null});
    let whisker = json!({
        "label": "", "min": null, "first_quartile": null, "median": null,
        "third_quartile": null, "max": null, "outliers": []
    });
    let title = json!({"title": null});
    for (kind, parts, element) in [
        ("line", vec![&axes, &ticks], &series),
        ("scatter", vec![&axes, &ticks], &series),
        ("bar", vec![&axes], &bar),
        ("pie", vec![&title], &slice),
        ("box_and_whisker", vec![&axes], &whisker),
    ] {
        let mut expected = json!({"type": kind, "elements": [element]});
        for part in parts {
            let fields = part.as_object().unwrap().clone();
            expected.as_object_mut().unwrap().extend(fields);
        }
        let given = json!({"type": kind, "elements": [{}]});
        assert_eq!(chart(given), (expected, Value::Null), "{kind}");
    }
    for kind in ["superchart", "unknown"] {
        let expected = json!({"type": kind, "title": null, "elements": []});
        assert_eq!(
            chart(json!({"type": kind})),
            (expected.clone(), Value::Null)
        );
        // No text is no title there, and no label of an axis.
        assert_eq!(
            chart(json!({"type": kind, "title": ""})),
            (expected, Value::Null)
        );
    }
}

#[test]
fn what_has_no_place_in_a_chart_is_noted() {
    for kind in [json!(5), json!("radar"), Value::Null] {
        let given = json!({"type": kind, "title": 7, "elements": [1, "x"], "more": true});
        let expected =
            json!({"type": "unknown", "title": null, "elements": [1, "x"], "more": true});
        let note = json!(["chart: E2B has no such type"]);
        assert_eq!(chart(given), (expected, note));
    }
    for given in [json!(null), json!("line"), json!([1])] {
        let note = json!(["chart: left out, it is no object"]);
        assert_eq!(chart(given), (Value::Null, note));
    }
    let given = json!({"type": "pie", "elements": [3, {"label": null, "angle": "wide"}]});
    let expected = json!({
        "type": "pie", "title": null, "elements": [{"label": "", "angle": "wide", "radius": null}]
    });
    let note = json!(["chart: 1 of 2 elements"]);
    assert_eq!(chart(given), (expected, note));
    // A point is a pair: the SDKs take it apart.
    let given = json!({"type": "line", "elements": [{"points": [[1, 2], [1], 3, "ab"]}]});
    let (found, _) = chart(given);
    assert_eq!(found["elements"][0]["points"], json!([[1, 2]]));
    let given = json!({"type": "superchart", "elements": [{"type": 1}, 2]});
    let expected = json!({
        "type": "superchart", "title": null,
        "elements": [{"type": "unknown", "title": null, "elements": []}]
    });
    let notes = json!([
        "chart: E2B has no such type",
        "chart: left out, it is no object",
        "chart: 1 of 2 elements"
    ]);
    assert_eq!(chart(given), (expected, notes));
}
