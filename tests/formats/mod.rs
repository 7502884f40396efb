//! The record in the shapes of others: their published schemas, and what their
//! own documentation says, written down here by hand.
//! `CELLBLOCK_BLESS=1` rewrites the schemas.

mod bounds;
mod brief;
mod calls;
mod charts;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::validate;
use jsonschema::Validator;
use proptest::prelude::*;
use record::format::{Format, Shape};
use record::{FileSkipped, Record};
use serde_json::{Value, json};

const SAMPLES: [&str; 6] = ["ok", "rich", "error", "cut", "hostile", "setup"];
const PNG: &str = "iVBORw0KGgo=";

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn sample(name: &str) -> Record {
    let text = fs::read(file(&format!("tests/records/{name}.json"))).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// The record in a shape, which has to satisfy that shape's published schema.
fn shaped(shape: Shape, record: &Record) -> Value {
    let mut text = Vec::new();
    let call_id = "call-1".to_owned();
    let max = None;
    let format = Format {
        shape,
        call_id,
        max,
    };
    format.write(record, &mut text).unwrap();
    let value = serde_json::from_slice(&text).unwrap();
    assert_eq!(
        complaints(shape, &value),
        [""; 0],
        "{}: {value}",
        shape.name()
    );
    value
}

fn published(shape: Shape) -> PathBuf {
    match shape {
        Shape::Record => file("docs/record.schema.json"),
        _ => file(&format!("docs/format-{}.schema.json", shape.name())),
    }
}

fn complaints(shape: Shape, value: &Value) -> Vec<String> {
    static VALIDATORS: LazyLock<Vec<Result<Validator, String>>> = LazyLock::new(|| {
        let compile = |shape: &Shape| {
            let schema = fs::read_to_string(published(*shape)).unwrap();
            validate::compile(&schema)
        };
        Shape::ALL.iter().map(compile).collect()
    });
    let index = Shape::ALL.iter().position(|one| *one == shape).unwrap();
    validate::errors(&VALIDATORS[index], value)
}

/// The keys of an object, sorted.
fn keys(value: &Value) -> Vec<&str> {
    value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect()
}

#[test]
fn the_published_schemas_are_current() {
    for shape in Shape::ALL {
        let schema = serde_json::to_string_pretty(&shape.json_schema_document()).unwrap() + "\n";
        if std::env::var_os("CELLBLOCK_BLESS").is_some() {
            fs::write(published(shape), &schema).unwrap();
        }
        let found = fs::read_to_string(published(shape)).unwrap_or_default();
        let name = shape.name();
        assert!(
            found == schema,
            "{name} is not current; CELLBLOCK_BLESS=1 rewrites it"
        );
    }
}

#[test]
fn every_sample_satisfies_every_schema() {
    for name in SAMPLES {
        for shape in Shape::ALL {
            shaped(shape, &sample(name));
        }
    }
}

/// What only the records of some cells have: those that may reach named hosts.
const OPTIONAL: [&str; 1] = ["network"];

#[test]
fn a_shape_that_lacks_a_part_is_refused() {
    for shape in Shape::ALL {
        let whole = shaped(shape, &sample("rich"));
        for key in keys(&whole).iter().filter(|key| !OPTIONAL.contains(key)) {
            let mut part = whole.clone();
            part.as_object_mut().unwrap().remove(*key);
            let name = shape.name();
            assert!(!complaints(shape, &part).is_empty(), "{name} without {key}");
        }
    }
}

#[test]
fn the_record_is_the_default() {
    let record = sample("rich");
    let value = shaped(Shape::default(), &record);
    assert_eq!(value, serde_json::to_value(&record).unwrap());
}

#[test]
fn tool_has_streams_status_and_what_to_do_about_it() {
    assert_eq!(
        shaped(Shape::Tool, &sample("error")),
        json!({
            "stdout": "",
            "stderr": "a warning\nTraceback (most recent call last):\n  File \"main.py\", line 3, in <module>\nZeroDivisionError: division by zero\n",
            "result": null,
            "exit_code": 1,
            "execution_time": 0.0341,
            "isError": true,
            "errorCategory": "value",
            "isRetryable": true,
            "context": "the code raised ZeroDivisionError on line 3: a value, key or index is not what that operation takes; the policy denied ptrace (2 times)"
        })
    );
    let setup = shaped(Shape::Tool, &sample("setup"));
    assert_eq!(setup["stdout"], Value::Null);
    assert_eq!(
        (&setup["exit_code"], &setup["isError"]),
        (&json!(125), &json!(true))
    );
    let rich = shaped(Shape::Tool, &sample("rich"));
    assert_eq!(rich["result"], "   city\n0  Lyon");
    let ok = shaped(Shape::Tool, &sample("ok"));
    assert_eq!(
        (&ok["isError"], &ok["errorCategory"]),
        (&json!(false), &Value::Null)
    );
}

/// As the SDK's `Execution` has it (`results`, `logs`, `error`,
/// `execution_count`), with the fields of `Result` by E2B's names.
#[test]
fn e2b_has_an_execution() {
    let value = shaped(Shape::E2b, &sample("rich"));
    assert_eq!(
        keys(&value),
        ["error", "execution_count", "logs", "results"]
    );
    assert_eq!(value["logs"], json!({"stdout": [], "stderr": []}));
    assert_eq!(value["error"], Value::Null);
    assert_eq!(value["execution_count"], 1);
    let results = value["results"].as_array().unwrap();
    assert_eq!(
        keys(&results[0]),
        ["chart", "is_main_result", "png", "text"]
    );
    assert_eq!(results[0]["png"], PNG);
    assert_eq!(results[0]["chart"]["type"], "line");
    assert_eq!(
        results[1],
        json!({
            "text": "<pandas.io.formats.style.Styler object at 0x7f00>",
            "html": "<table>",
            "data": {"city": ["Lyon", "Graz \u{1b}[31m"], "[\"a\",1]": [1.5, null]},
            "is_main_result": false,
            "extra": {"notes": ["text/latex: ValueError: no", "data: 2 of 3000 rows"]}
        })
    );
    assert_eq!(results[2]["markdown"], "**bold**");
    assert_eq!(
        (&results[3]["text"], &results[3]["html"]),
        (&Value::Null, &json!("<b>"))
    );
    assert_eq!(results[4]["is_main_result"], true);

    let value = shaped(Shape::E2b, &sample("error"));
    assert_eq!(
        value["logs"],
        json!({"stdout": [], "stderr": ["a warning\n"]})
    );
    assert_eq!(
        value["error"],
        json!({
            "name": "ZeroDivisionError",
            "value": "division by zero",
            "traceback": "Traceback (most recent call last):\n  File \"main.py\", line 3, in <module>\nZeroDivisionError: division by zero"
        })
    );
    // A failure that is not an exception is an error all the same.
    let value = shaped(Shape::E2b, &sample("cut"));
    assert_eq!(
        value["error"],
        json!({
            "name": "timeout",
            "value": "the code ran longer than its limit of 2s; make it faster, do less, or ask for more time",
            "traceback": ""
        })
    );
}

const ERROR_TEXT: &str = "outcome: error, exit code 1, 34.1 ms
the code raised ZeroDivisionError on line 3: a value, key or index is not what that operation takes; the policy denied ptrace (2 times)

stderr:
```
a warning
```

error:
```
Traceback (most recent call last):
  File \"main.py\", line 3, in <module>
ZeroDivisionError: division by zero
```

denied:
- syscall ptrace, 2 times, EPERM: reads and writes other processes
";

/// `CallToolResult` of the protocol's revisions from 2025-06-18 on.
#[test]
fn mcp_has_a_tool_result() {
    let record = sample("error");
    let value = shaped(Shape::Mcp, &record);
    let mut whole = serde_json::to_value(&record).unwrap();
    // The cgroup's path on the host stays on the host.
    let path = &mut whole["isolation"]["cgroup"]["path"];
    *path = json!(path.as_str().unwrap().rsplit('/').next());
    assert_eq!(
        value,
        json!({
            "content": [{"type": "text", "text": ERROR_TEXT}],
            "structuredContent": whole,
            "isError": true
        })
    );
    let value = shaped(Shape::Mcp, &sample("rich"));
    assert_eq!(value["content"].as_array().unwrap().len(), 2);
    assert_eq!(
        value["content"][1],
        json!({"type": "image", "data": PNG, "mimeType": "image/png"})
    );
    assert_eq!(value["isError"], false);
}

/// A model learns what failed, but nothing of the host's file system.
#[test]
fn no_shape_for_models_names_the_hosts_paths() {
    const PRIVATE: &str = "/srv/private";
    let mut record = sample("setup");
    let error = record.setup_error.as_mut().unwrap();
    error.operand = Some(format!("{PRIVATE}/rootfs"));
    error.hint = Some(format!("look into {PRIVATE}"));
    record.warnings = vec![format!("{PRIVATE}: gone"), "a warning".to_owned()];
    record.isolation = sample("error").isolation;
    let isolation = record.isolation.as_mut().unwrap();
    isolation.rootfs = format!("{PRIVATE}/rootfs");
    isolation.cgroup.as_mut().unwrap().path = format!("{PRIVATE}/cell");
    record.files_skipped = vec![FileSkipped {
        path: "x".into(),
        reason: format!("{PRIVATE}: full"),
    }];
    assert!(serde_json::to_string(&record).unwrap().contains(PRIVATE));
    for shape in Shape::ALL
        .into_iter()
        .filter(|shape| *shape != Shape::Record)
    {
        let text = shaped(shape, &record).to_string();
        assert!(!text.contains(PRIVATE), "{}: {text}", shape.name());
        assert!(text.contains("clone3"), "{}: {text}", shape.name());
    }
    let value = shaped(Shape::Mcp, &record);
    let structured = &value["structuredContent"];
    assert_eq!(structured["setup_error"]["errno_name"], "EPERM");
    assert_eq!(structured["warnings"], json!(["a warning"]));
}

/// `ToolResultBlockParam` of the Messages API.
#[test]
fn anthropic_has_a_tool_result_block() {
    assert_eq!(
        shaped(Shape::Anthropic, &sample("error")),
        json!({
            "type": "tool_result",
            "tool_use_id": "call-1",
            "content": [{"type": "text", "text": ERROR_TEXT}],
            "is_error": true
        })
    );
    let value = shaped(Shape::Anthropic, &sample("rich"));
    assert_eq!(
        value["content"][1],
        json!({
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": PNG}
        })
    );
    assert_eq!(value["is_error"], false);
}

/// `FunctionCallOutput` of the Responses API.
#[test]
fn openai_has_a_function_call_output() {
    assert_eq!(
        shaped(Shape::Openai, &sample("error")),
        json!({"type": "function_call_output", "call_id": "call-1", "output": ERROR_TEXT})
    );
    let value = shaped(Shape::Openai, &sample("rich"));
    let parts = value["output"].as_array().unwrap();
    assert_eq!(parts[0]["type"], "input_text");
    assert_eq!(
        parts[1],
        json!({"type": "input_image", "image_url": format!("data:image/png;base64,{PNG}")})
    );
}

proptest! {
    #[test]
    fn any_content_has_every_shape(text in any::<String>(), form in any::<String>()) {
        let mut record = sample("rich");
        record.stdout = Some(text.clone().into());
        record.error = sample("error").error;
        if let Some(error) = &mut record.error {
            error.traceback = vec![text.clone()];
        }
        record.results[0].text = Some(text.clone());
        for media_type in ["image/png", "image/jpeg", "text/html", text.as_str()] {
            record.results[0].formats.insert(media_type.to_owned(), json!(form).into());
        }
        for shape in Shape::ALL {
            shaped(shape, &record);
        }
    }
}
