//! The record as others see it: its published schema, its JSON, and how it is
//! shown. `CELLBLOCK_BLESS=1` rewrites the files that are compared with.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::{events, schema};
use cellblock::show::{self, Style};
use proptest::prelude::*;
use record::bytes::RawText;
use record::event::Event;
use record::{CodeError, Record};
use serde_json::{Value, json};
use spec::RemoteRequest;

const SAMPLES: [&str; 6] = ["ok", "rich", "error", "cut", "hostile", "setup"];

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn sample(name: &str) -> io::Result<String> {
    fs::read_to_string(file(&format!("tests/records/{name}.json")))
}

/// Compares with a file, or rewrites it.
fn assert_is_current(path: &str, wanted: &str) -> io::Result<()> {
    if std::env::var_os("CELLBLOCK_BLESS").is_some() {
        fs::write(file(path), wanted)?;
    }
    let found = fs::read_to_string(file(path)).unwrap_or_default();
    assert!(
        found == wanted,
        "{path} is not current; CELLBLOCK_BLESS=1 rewrites it:\n{wanted}"
    );
    Ok(())
}

/// Requests have their schema where their type is.
fn add_request(generator: &mut schemars::SchemaGenerator) {
    generator.subschema_for::<RemoteRequest>();
}

#[test]
fn the_published_schemas_are_current() {
    let schema = serde_json::to_string_pretty(&record::schema::of::<Record>()).unwrap();
    assert_is_current("docs/record.schema.json", &(schema + "\n")).unwrap();
    let schema = serde_json::to_string_pretty(&record::schema::of::<Event<'_>>()).unwrap();
    assert_is_current("docs/event.schema.json", &(schema + "\n")).unwrap();
    let schema = serde_json::to_string_pretty(&RemoteRequest::json_schema_document()).unwrap();
    assert_is_current("docs/request.schema.json", &(schema + "\n")).unwrap();
    let schema = serde_json::to_string_pretty(&wire::call_schema(add_request)).unwrap();
    assert_is_current("docs/protocol-call.schema.json", &(schema + "\n")).unwrap();
    let document = serde_json::to_string_pretty(&doors::openapi(add_request)).unwrap();
    assert_is_current("docs/openapi.json", &(document + "\n")).unwrap();
    let schemas = serde_json::to_string_pretty(&doors::mcp::schemas()).unwrap();
    assert_is_current("docs/mcp-tools.schema.json", &(schemas + "\n")).unwrap();
    let schema = serde_json::to_string_pretty(&wire::answer_schema()).unwrap();
    assert_is_current("docs/protocol-answer.schema.json", &(schema + "\n")).unwrap();
}

#[test]
fn records_satisfy_the_schema_and_survive_reading() {
    for name in SAMPLES {
        let value = schema::assert_valid_record(&sample(name).unwrap());
        let record: Record = serde_json::from_value(value.clone()).unwrap();
        assert_eq!(serde_json::to_value(&record).unwrap(), value, "{name}");
    }
}

#[test]
fn the_schema_refuses_what_is_no_record() {
    let whole: Value = serde_json::from_str(&sample("ok").unwrap()).unwrap();
    let fields = whole.as_object().unwrap().keys();
    for field in fields {
        let mut part = whole.clone();
        part.as_object_mut().unwrap().remove(field);
        assert!(!schema::complaints(&part).is_empty(), "without {field}");
    }
    for (field, value) in [
        ("schema", json!("cellblock.record.v2")),
        ("outcome", json!("fine")),
        ("exit_code", json!("0")),
        ("error_category", json!("odd")),
        ("stdout", json!(3)),
        ("files", json!([{"path": "x"}])),
    ] {
        let mut broken = whole.clone();
        broken[field] = value;
        assert!(!schema::complaints(&broken).is_empty(), "{field}");
    }
}

#[test]
fn the_schema_of_events_tells_them_from_others() {
    let record: Value = serde_json::from_str(&sample("ok").unwrap()).unwrap();
    let schema = "cellblock.event.v1";
    let started = json!({"seq": 0, "at_ms": 2.5, "event": "started", "schema": schema, "id": "x",
        "version": "0", "language": null, "argv": ["a"], "start": "cold", "time": "2026-01-01T00:00:00.000Z"});
    let chunk =
        json!({"seq": 1, "at_ms": 2.5, "event": "stdout", "text": "\u{FFFD}", "base64": "/w=="});
    let finished =
        json!({"seq": 2, "at_ms": 3, "event": "finished", "schema": schema, "record": record});
    let lines = format!("{started}\n{chunk}\n{finished}\n");
    assert_eq!(events::assert_valid_events(&lines).len(), 3);

    for event in [&started, &chunk, &finished] {
        for field in event
            .as_object()
            .unwrap()
            .keys()
            .filter(|field| *field != "base64")
        {
            let mut part = event.clone();
            part.as_object_mut().unwrap().remove(field);
            assert!(
                !events::complaints(&part).is_empty(),
                "{event} without {field}"
            );
        }
    }
    for (event, field, value) in [
        (&started, "schema", json!("cellblock.event.v2")),
        (&chunk, "event", json!("stdall")),
        (&chunk, "text", json!(3)),
        (&chunk, "seq", json!(-1)),
        (&finished, "record", json!({})),
    ] {
        let mut broken = event.clone();
        broken[field] = value;
        assert!(!events::complaints(&broken).is_empty(), "{broken}");
    }
}

#[test]
fn records_are_shown_in_full_and_in_brief() {
    for name in SAMPLES {
        let record = show::read(&file(&format!("tests/records/{name}.json"))).unwrap();
        let full = show::render(&record, Style::PLAIN);
        assert_is_current(&format!("tests/records/{name}.show.txt"), &full).unwrap();
        let brief = show::render_run(&record, Style::PLAIN);
        assert_is_current(&format!("tests/records/{name}.run.txt"), &brief).unwrap();
    }
}

#[test]
fn contents_of_files_are_shown_shortened() {
    let mut record: Record = serde_json::from_str(&sample("hostile").unwrap()).unwrap();
    let mut one = record.files.remove(0);
    one.content = Some("line\n".repeat(30).into());
    record.files = (0..25)
        .map(|index| {
            let mut file = one.clone();
            file.path = format!("file-{index:02}").as_str().into();
            file
        })
        .collect();
    let shown = show::render(&record, Style::PLAIN);
    let (_, first) = shown.split_once("\ncontent of file-00\n").unwrap();
    let (first, _) = first.split_once("\n\n").unwrap();
    let lines = [
        vec!["  line"; 9],
        vec!["  … 18 more lines …"],
        vec!["  line"; 3],
    ]
    .concat();
    assert_eq!(first, lines.join("\n"));
    assert!(shown.contains("\ncontent of file-19\n") && !shown.contains("content of file-20"));
    assert!(shown.contains("\n… contents of 5 more files …\n"));
}

#[test]
fn a_terminal_gets_no_control_sequence_of_the_cell() {
    let record = |name| serde_json::from_str::<Record>(&sample(name).unwrap()).unwrap();
    for shown in ["hostile", "rich"].into_iter().flat_map(|name| {
        [
            show::render(&record(name), Style::COLOURED),
            show::render_run(&record(name), Style::COLOURED),
        ]
    }) {
        let without_colours = ["0", "1", "2", "33", "1;31", "1;32"]
            .iter()
            .fold(shown, |text, code| {
                text.replace(&format!("\x1b[{code}m"), "")
            });
        let bad: Vec<char> = without_colours
            .chars()
            .filter(|c| c.is_control() && *c != '\n' && *c != '\t')
            .collect();
        assert!(bad.is_empty(), "{bad:?}");
    }
}

#[test]
fn a_record_is_found_in_answers_and_events() {
    let text = fs::read_to_string(file("tests/records/ok.json")).unwrap();
    let line = text.replace('\n', "");
    let shown = |path: &Path| show::render(&show::read(path).unwrap(), Style::PLAIN);
    let expected = shown(&file("tests/records/ok.json"));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.json");
    for held in [
        format!("{{\"state\": \"kept\", \"record\": {text}}}\n"),
        format!("{{\"event\":\"started\"}}\n{{\"event\":\"finished\",\"record\":{line}}}\n"),
    ] {
        fs::write(&path, held).unwrap();
        assert_eq!(shown(&path), expected);
    }
}

#[test]
fn what_is_no_record_is_refused_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.json");
    let mut newer: Value = serde_json::from_str(&sample("ok").unwrap()).unwrap();
    newer["schema"] = json!("cellblock.record.v2");
    for (content, words) in [
        ("", "it is not JSON: EOF"),
        (
            "{\"schema\":",
            "it is not JSON: EOF while parsing a value at line 1 column 10",
        ),
        ("[1, 2]", "it is JSON, but no record"),
        ("{\"schema\": \"else\"}", "it is JSON, but no record"),
        (
            "{\"schema\": \"cellblock.record.v1\"}",
            "missing field `id`",
        ),
        (
            &newer.to_string(),
            "\"cellblock.record.v2\", and this is for \"cellblock.record.v1\"",
        ),
    ] {
        fs::write(&path, content).unwrap();
        let error = show::read(&path).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        assert!(error.hint.is_some());
        assert_eq!(error.operand.as_deref(), path.to_str());
    }
    let error = show::read(&dir.path().join("none")).unwrap_err();
    assert_eq!(error.errno_name.as_deref(), Some("ENOENT"));
}

proptest! {
    /// Whatever comes out of a cell, the record is valid JSON with every byte in it.
    #[test]
    fn any_content_makes_a_valid_record(
        stdout in any::<String>(),
        names in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..20), 0..4),
        class in any::<String>(),
        errno in any::<Option<i32>>(),
    ) {
        let mut record: Record = serde_json::from_str(&sample("error").unwrap()).unwrap();
        record.stdout = Some(stdout.into());
        let file = serde_json::from_str::<Record>(&sample("cut").unwrap()).unwrap().files.remove(0);
        record.files = names
            .iter()
            .map(|name| {
                let mut file = file.clone();
                file.path = RawText::from(name.clone());
                file
            })
            .collect();
        record.error = Some(CodeError {
            name: class.clone(), message: class.clone(), traceback: vec![class], line: Some(u64::MAX), errno,
        });
        let json = serde_json::to_string(&record).unwrap();
        schema::assert_valid_record(&json);
        let back: Record = serde_json::from_str(&json).unwrap();
        prop_assert_eq!(back.stdout, record.stdout);
        prop_assert_eq!(back.files, record.files);
        prop_assert_eq!(back.error, record.error);
    }
}
