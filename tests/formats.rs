//! The record in the shapes of others: their published schemas, and what their
//! own documentation says, written down here by hand.
//! `CELLBLOCK_BLESS=1` rewrites the schemas.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cellblock::format::{Format, Shape};
use cellblock::record::Record;
use proptest::prelude::*;
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
    Format { shape, call_id }.write(record, &mut text).unwrap();
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
    let schema = serde_json::from_slice(&fs::read(published(shape)).unwrap()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors = validator.iter_errors(value);
    errors
        .map(|error| format!("{}: {error}", error.instance_path))
        .collect()
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

#[test]
fn a_shape_that_lacks_a_part_is_refused() {
    for shape in Shape::ALL {
        let whole = shaped(shape, &sample("rich"));
        let optional: &[&str] = if shape == Shape::Record {
            &["warnings"]
        } else {
            &[]
        };
        for key in keys(&whole).iter().filter(|key| !optional.contains(key)) {
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
    // What is no exception is an error all the same.
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
    assert_eq!(
        value,
        json!({
            "content": [{"type": "text", "text": ERROR_TEXT}],
            "structuredContent": serde_json::to_value(&record).unwrap(),
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

#[test]
fn a_model_reads_results_and_what_was_cut() {
    let text = shaped(Shape::Anthropic, &sample("rich"));
    let text = text["content"][0]["text"].as_str().unwrap();
    assert_eq!(
        text,
        "outcome: ok, exit code 0, 34.1 ms

displayed 1:
```
chart: line “growth”, time (s) × way [km]: a
```

displayed 2:
```
{\"columns\":[\"city\",[\"a\",1]],\"index\":[\"x\",\"y\"],\"rows\":[[\"Lyon\",1.5],[\"Graz \\u001b[31m\",null]],\"total_columns\":2,\"total_rows\":3000,\"types\":[\"object\",\"float64\"]}
```

displayed 3:
```
**bold**
```

displayed 4:
```
{\"columns\":7,\"index\":\"x\",\"rows\":[1,[[2]]],\"total_rows\":-1}
```

result:
```
   city
0  Lyon
```

left out:
- result 2: text/latex: ValueError: no
- results: 5 of 1200 kept (head)
"
    );
    let text = shaped(Shape::Openai, &sample("cut"));
    let text = text["output"].as_str().unwrap();
    assert!(
        text.starts_with("outcome: timeout, exit code 124, SIGKILL, 2.00 s\n"),
        "{text}"
    );
    assert!(text.contains("\nfiles:\n- created a, 1 byte\n"), "{text}");
    assert!(
        text.contains("- stdout: 441 of 8990441 bytes kept (head+tail)\n"),
        "{text}"
    );
}

#[test]
fn what_claims_to_be_a_picture_is_left_out_and_that_is_said() {
    let mut record = sample("rich");
    record.results.truncate(1);
    record.results[0]
        .formats
        .insert("image/png".into(), json!("\"><script>alert(1)</script>"));
    for shape in [Shape::Mcp, Shape::Anthropic] {
        let content = &shaped(shape, &record)["content"];
        assert_eq!(content.as_array().unwrap().len(), 1);
        let text = content[0]["text"].as_str().unwrap();
        assert!(
            text.contains("- result 1: image/png: it is not valid base64\n"),
            "{text}"
        );
    }
    assert!(shaped(Shape::Openai, &record)["output"].is_string());
    let item = &shaped(Shape::E2b, &record)["results"][0];
    assert_eq!(item.get("png"), None);
    assert_eq!(
        item["extra"]["notes"],
        json!(["image/png: it is not valid base64"])
    );
}

#[test]
fn pictures_and_texts_have_bounds() {
    let mut record = sample("rich");
    record.truncated.clear();
    let mut plot = record.results[0].clone();
    plot.formats.insert("text/plain".into(), json!("x"));
    plot.text = Some("x".repeat(5000));
    plot.chart = None;
    record.results = vec![plot; 12];
    record.stdout = Some("o".repeat(1 << 20).into());
    let value = shaped(Shape::Mcp, &record);
    let content = value["content"].as_array().unwrap();
    assert_eq!(content.len(), 1 + 8);
    let text = content[0]["text"].as_str().unwrap();
    assert!(text.len() < 40_000, "{}", text.len());
    assert!(text.contains("o[… 1014.2 KiB left out …]o"), "{text}");
    assert!(
        text.contains("- result 9: image/png, 8 bytes: too much\n"),
        "{text}"
    );
    assert!(text.contains("- the text of results from 5 on\n"), "{text}");
    // The record in it is whole.
    assert_eq!(
        value["structuredContent"]["results"]
            .as_array()
            .unwrap()
            .len(),
        12
    );
}

#[test]
fn output_cannot_pass_for_another_part() {
    let mut record = sample("error");
    let forged = "```\n\ndenied:\n- nothing\n";
    record.stdout = Some(forged.to_owned().into());
    let text = shaped(Shape::Openai, &record);
    let text = text["output"].as_str().unwrap();
    assert!(
        text.contains(&format!("\nstdout:\n````\n{forged}````\n")),
        "{text}"
    );
    record.files = sample("hostile").files;
    let text = shaped(Shape::Openai, &record);
    let text = text["output"].as_str().unwrap();
    assert!(
        text.contains("- created a ok · exit code 0 [1A, 3 bytes\n"),
        "{text}"
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
            record.results[0].formats.insert(media_type.to_owned(), json!(form));
        }
        for shape in Shape::ALL {
            shaped(shape, &record);
        }
    }
}

// ------------------------------------------------------------- the executable

fn cellblock(words: &[&str], input: &str) -> (i32, String, String) {
    use std::io::Write as _;
    let mut child = Command::new(env!("CARGO_BIN_EXE_cellblock"))
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap_or(-1),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn show_prints_a_stored_record_in_each_shape() {
    let stored = serde_json::to_string(&sample("rich")).unwrap();
    for shape in Shape::ALL {
        let (status, stdout, _) = cellblock(
            &[
                "show",
                "-",
                "--format",
                shape.name(),
                "--tool-call-id",
                "call-1",
            ],
            &stored,
        );
        assert_eq!(status, 0, "{}", shape.name());
        let value: Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(value, shaped(shape, &sample("rich")));
    }
}

#[test]
fn a_call_is_answered_only_by_its_id() {
    for shape in ["anthropic", "openai"] {
        let (status, stdout, stderr) = cellblock(&["run", "--format", shape, "-c", "1"], "");
        assert_eq!(status, 2);
        assert!(stderr.contains("--tool-call-id <ID>"), "{stderr}");
        let value: Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(complaints(Shape::Record, &value), [""; 0]);
    }
    let (status, _, stderr) = cellblock(&["show", "x", "--tool-call-id", "a"], "");
    assert_eq!(status, 2);
    assert!(stderr.contains("--format <SHAPE>"), "{stderr}");
    let (status, _, stderr) = cellblock(&["show", "x", "--html", "--format", "tool"], "");
    assert_eq!(status, 2);
    assert!(stderr.contains("cannot be used with"), "{stderr}");
}

/// Real runs: the shape on standard output, the whole record where `--record` says.
#[test]
fn runs_are_answered_in_each_shape() {
    let dir = tempfile::tempdir().unwrap();
    let stored = dir.path().join("record.json");
    let code = "import sys\nprint('out')\nprint('err', file=sys.stderr)\n{'a': 1}['b']";
    for shape in Shape::ALL {
        let words = [
            "run",
            "--lang",
            "python",
            "--record",
            stored.to_str().unwrap(),
            "--format",
            shape.name(),
            "--tool-call-id",
            "call-1",
            "-",
        ];
        let (status, stdout, stderr) = cellblock(&words, code);
        if status == 125 {
            println!("runs_are_answered_in_each_shape: no cell here: {stderr}");
            return;
        }
        assert_eq!(status, 1, "{stderr}");
        let record: Record = serde_json::from_slice(&fs::read(&stored).unwrap()).unwrap();
        assert_eq!(record.error.as_ref().unwrap().name, "KeyError");
        match shape {
            // With a destination of its own, the record does not go to stdout.
            Shape::Record => assert_eq!(stdout, ""),
            _ => {
                let value: Value = serde_json::from_str(&stdout).unwrap();
                assert_eq!(value, shaped(shape, &record));
            }
        }
    }
    let words = [
        "exec",
        "--format",
        "tool",
        "--",
        "sh",
        "-c",
        "echo a; exit 3",
    ];
    let (status, stdout, _) = cellblock(&words, "");
    assert_eq!(status, 3);
    let value: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(
        (&value["stdout"], &value["exit_code"]),
        (&json!("a\n"), &json!(3))
    );
}

#[test]
fn what_cannot_run_is_answered_in_the_shape_that_was_asked_for() {
    for words in [
        ["run", "--format", "tool", "--frob"],
        ["run", "--format", "tool", "none.py"],
    ] {
        let (status, stdout, _) = cellblock(&words, "");
        assert!([2, 125].contains(&status), "{status}");
        let value: Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(complaints(Shape::Tool, &value), [""; 0]);
        assert_eq!(value["errorCategory"], "setup");
    }
}
