//! Each kind of frame with fields that are wrong, and what the record says then.

use serde_json::json;

use super::{Field, accepted, kinds, message, read};

#[test]
fn fields_that_nobody_knows_are_left_out() {
    for (mut fields, expected) in kinds() {
        for extra in [
            (b't', "future", &b"x"[..]),
            (b'\0', "", b""),
            (b't', "kind", b"error"),
            (b't', "text plain", b"x"),
            (b't', "text/\u{e9}", b"x"),
        ] {
            fields.push(extra);
        }
        assert_eq!(read([&message(&fields)[..]]), (vec![expected], None));
    }
    let bytes: [(u8, &[u8], &[u8]); 4] = [
        (b't', b"kind", b"result"),
        (b't', b"execution", b"1"),
        (b't', b"\xff\xfe", b"x"),
        (b't', b"text/\xff", b"x"),
    ];
    let nothing = json!({"is_main_result": false, "text": null, "formats": {}});
    let expected = json!({"result": nothing, "why": []});
    assert_eq!(read([&message(&bytes)[..]]), (vec![expected], None));
}

#[test]
fn fields_that_are_missing_are_empty() {
    let nothing = json!({"is_main_result": false, "text": null, "formats": {}});
    let blank = json!({"name": "", "message": "", "traceback": [], "line": null});
    for (kind, expected) in [
        ("started", json!("started")),
        ("result", json!({"result": nothing, "why": []})),
        ("clear", json!({"clear": false})),
        ("error", json!({"error": blank, "syntax": false})),
        (
            "variables",
            json!({"variables": {"total": 0, "variables": []}}),
        ),
        ("done", json!("done")),
        ("exit", json!({"exit": null})),
    ] {
        assert_eq!(accepted(kind.as_bytes(), &[]), expected);
    }
    for (status, expected) in [("7", json!(7)), ("256", json!(null)), ("-1", json!(null))] {
        let exit = accepted(b"exit", &[(b't', "status", status.as_bytes())]);
        assert_eq!(exit, json!({"exit": expected}), "{status}");
    }
    // It does not name what it updates.
    let update = accepted(b"update", &[(b't', "text/plain", b"x")]);
    assert_eq!(update, "unknown");
}

#[test]
fn of_fields_that_come_twice_the_last_counts() {
    let twice: &[Field<'_>] = &[
        (b't', "main", b"1"),
        (b't', "main", b"0"),
        (b't', "text/plain", b"first"),
        (b'j', "text/plain", b"[2]"),
        (b't', "display_id", b"a"),
        (b't', "display_id", b"b"),
        (b'j', "data", b"{}"),
        (b'j', "data", b"2"),
        (b'j', "chart", b"{"),
        (b'j', "chart", b"{\"type\": \"bar\"}"),
    ];
    let mut item = json!({"is_main_result": true, "text": null, "formats": {"text/plain": [2]},
        "chart": {"type": "bar"}, "display_id": "b"});
    let why = ["data: not a JSON object", "chart: not JSON"];
    let expected = json!({"result": item, "why": why});
    assert_eq!(accepted(b"result", twice), expected);
    item["is_main_result"] = json!(false);
    let expected = json!({"update": item, "why": why});
    assert_eq!(accepted(b"update", twice), expected);

    let twice: &[Field<'_>] = &[
        (b't', "name", b"A"),
        (b't', "name", b"B"),
        (b't', "message", b"a"),
        (b't', "message", b"b"),
        (b't', "traceback", b"a"),
        (b't', "traceback", b"b"),
        (b't', "line", b"1"),
        (b't', "line", b"x"),
        (b't', "errno", b"x"),
        (b't', "errno", b"1"),
        (b't', "syntax", b""),
        (b't', "syntax", b""),
    ];
    let error = json!({"name": "B", "message": "b", "traceback": ["a", "b"], "line": null,
        "errno": 1});
    let expected = json!({"error": error, "syntax": true});
    assert_eq!(accepted(b"error", twice), expected);
    let waits = (b't', "wait", &b"0"[..]);
    assert_eq!(accepted(b"clear", &[waits, waits]), json!({"clear": true}));
}

#[test]
fn a_type_that_does_not_fit_is_no_other_value() {
    let fields: &[Field<'_>] = &[
        (b'b', "main", b"\0"),
        (b'z', "text/plain", b"z"),
        (b'b', "text/html", b"<b>"),
        (b'j', "image/png", b"no png"),
        (b'b', "display_id", b"a"),
        (b'b', "failed", b"why"),
        (b't', "metadata", b"{}"),
        (b'b', "chart", b"\x89PNG"),
        (0, "data", b"null"),
    ];
    let mut item = json!({"is_main_result": true, "text": "z", "display_id": "a", "metadata": {},
        "formats": {"text/plain": "z", "text/html": "PGI+", "image/png": "no png"}});
    let why = ["why", "chart: not JSON", "data: not a JSON object"];
    let expected = json!({"result": item, "why": why});
    assert_eq!(accepted(b"result", fields), expected);
    item["is_main_result"] = json!(false);
    let expected = json!({"update": item, "why": why});
    assert_eq!(accepted(b"update", fields), expected);

    let fields: &[Field<'_>] = &[
        (b'b', "name", b"E"),
        (b'j', "message", b"{}"),
        (b'z', "traceback", b"t"),
        (b'j', "line", b"3.0"),
        (b'b', "errno", b"\x02"),
        (b'j', "syntax", b"false"),
    ];
    let error = json!({"name": "E", "message": "{}", "traceback": ["t"], "line": null});
    let expected = json!({"error": error, "syntax": true});
    assert_eq!(accepted(b"error", fields), expected);
    let waits = (b'j', "wait", &b"false"[..]);
    assert_eq!(accepted(b"clear", &[waits]), json!({"clear": true}));
}

#[test]
fn names_are_cut_and_what_is_no_text_is_replaced() {
    let long = [b'n'; 300];
    let cut = "n".repeat(256);
    let fields: &[Field<'_>] = &[
        (b't', "display_id", &long),
        (b't', "failed", &long),
        (b't', "text/plain", b"\xffa\xed\xa0\x80"),
        (b'j', "application/json", b"\"\xff\""),
    ];
    let item = json!({"is_main_result": false, "text": "\u{fffd}a\\ud800", "display_id": cut,
        "formats": {"text/plain": "\u{fffd}a\\ud800", "application/json": "\"\u{fffd}\""}});
    for kind in ["result", "update"] {
        let expected = json!({kind: item, "why": [cut]});
        assert_eq!(accepted(kind.as_bytes(), fields), expected);
    }
    let line = [b'l'; 9000];
    let fields: &[Field<'_>] = &[
        (b't', "name", &long),
        (b't', "message", b"\xff"),
        (b't', "traceback", &line),
        (b't', "line", b"\xff"),
    ];
    let error = json!({"name": cut, "message": "\u{fffd}", "traceback": ["l".repeat(8192)],
        "line": null});
    let expected = json!({"error": error, "syntax": false});
    assert_eq!(accepted(b"error", fields), expected);
    // No key is longer.
    let key = format!("text/{}", "k".repeat(250));
    let frame = accepted(b"result", &[(b't', &key, b"x")]);
    assert_eq!(frame["result"]["formats"], json!({key: "x"}));
}

#[test]
fn json_is_parsed_127_deep_and_no_deeper() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    let object = |depth: usize| format!("{{\"a\":{}}}", nested(depth - 1));
    for (depth, is_parsed, why) in [
        (127, true, json!([])),
        (128, false, json!(["metadata: not JSON"])),
        (99_999, false, json!(["metadata: more than 65536 bytes"])),
    ] {
        let (list, map) = (nested(depth), object(depth));
        let fields: &[Field<'_>] = &[
            (b'j', "application/json", list.as_bytes()),
            (b'j', "metadata", map.as_bytes()),
        ];
        let frame = accepted(b"result", fields);
        let result = &frame["result"];
        assert_eq!(result["formats"]["application/json"].is_array(), is_parsed);
        assert_eq!(result["formats"]["application/json"] == list, !is_parsed);
        assert_eq!(result["metadata"].is_object(), is_parsed);
        assert_eq!(frame["why"], why);
    }
}

#[test]
fn variables_are_capped_in_number_and_length() {
    let long = vec![b'x'; 9 << 10];
    let one: [Field<'_>; 4] = [
        (b't', "name", &long),
        (b't', "type", &long),
        (b't', "size", b"-1"),
        (b't', "preview", &long),
    ];
    let mut fields = vec![(b't', "preview", &b"of nothing"[..])];
    fields.extend(one.iter().cycle().take(4 * 1500));
    fields.push((b't', "preview", b"of another"));
    fields.push((b't', "total", b"1500"));
    let shown = accepted(b"variables", &fields);
    let list = shown["variables"]["variables"].as_array().unwrap();
    assert_eq!(
        (list.len(), &shown["variables"]["total"]),
        (1000, &json!(1500))
    );
    for (key, length) in [("name", 256), ("type", 256), ("preview", 400)] {
        assert_eq!(list[999][key].as_str().unwrap().len(), length);
    }
    assert_eq!(list[0]["size_bytes"], json!(null));
    for total in [&b"-3"[..], b"1e3", b"", b"\xff", b"0"] {
        let fields: [Field<'_>; 2] = [(b't', "name", b"\x1b\0"), (b't', "total", total)];
        let shown = accepted(b"variables", &fields);
        assert_eq!(shown["variables"]["total"], 1);
        assert_eq!(shown["variables"]["variables"][0]["name"], "\u{1b}\0");
    }
}
