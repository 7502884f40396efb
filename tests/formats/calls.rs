//! The executable answers in the requested format.

use std::fs;
use std::process::{Command, Stdio};

use record::Record;
use record::format::Shape;
use serde_json::{Value, json};

use super::{complaints, sample, shaped};

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
fn pictures_and_charts_become_files() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("plots");
    let mut record = sample("rich");
    let figure = json!({"data": [{"type": "bar", "x": ["a"], "y": [1]}]});
    let form = figure.into();
    (record.results[3].formats).insert("application/vnd.plotly.v1+json".to_owned(), form);
    let stored = serde_json::to_string(&record).unwrap();
    let words = ["show", "-", "--plots", to.to_str().unwrap()];
    let (status, stdout, stderr) = cellblock(&words, &stored);
    assert_eq!(status, 0, "{stderr}");
    let paths = [to.join("result-1.png"), to.join("result-4.svg")];
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(lines, paths.each_ref().map(|path| path.to_str().unwrap()));
    assert_eq!(fs::read(&paths[0]).unwrap(), b"\x89PNG\r\n\x1a\n");
    assert!(fs::read_to_string(&paths[1]).unwrap().starts_with("<svg"));
    // A link that stands there is not followed.
    fs::remove_file(&paths[0]).unwrap();
    std::os::unix::fs::symlink(dir.path().join("precious"), &paths[0]).unwrap();
    let (status, _, stderr) = cellblock(&words, &stored);
    assert_eq!((status, stderr.contains("ELOOP")), (125, true), "{stderr}");

    let code =
        "class P:\n  def _repr_png_(self): return b'\\x89PNG\\r\\n\\x1a\\n'\ndisplay(1)\nP()";
    let to = dir.path().join("of-a-run");
    let words = ["run", "--plots", to.to_str().unwrap(), "--json", "-c", code];
    let (status, stdout, stderr) = cellblock(&words, "");
    if status == 125 {
        println!("pictures_and_charts_become_files: no cell here: {stderr}");
        return;
    }
    assert!(to.join("result-2.png").exists(), "{stdout}");
}

#[test]
fn a_call_is_answered_only_by_its_id() {
    for shape in ["anthropic", "openai"] {
        let (status, stdout, stderr) = cellblock(&["run", "--format", shape, "-c", "1"], "");
        assert_eq!(status, 125);
        assert!(stderr.contains("--tool-call-id <ID>"), "{stderr}");
        let value: Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(complaints(Shape::Record, &value), [""; 0]);
    }
    let (status, _, stderr) = cellblock(&["show", "x", "--tool-call-id", "a"], "");
    assert_eq!(status, 125);
    assert!(stderr.contains("--format <SHAPE>"), "{stderr}");
    let stored = serde_json::to_string(&sample("rich")).unwrap();
    let show = |words: &str| {
        let words: Vec<&str> = ["show", "-"].into_iter().chain(words.split(' ')).collect();
        cellblock(&words, &stored)
    };
    let (status, stdout, _) = show("--format e2b --format-max 8K");
    assert_eq!((status, stdout.len() <= 8 << 10), (0, true), "{stdout}");
    for (words, said) in [
        ("--format tool --format-max 8191", "give 8K or more"),
        ("--format tool --format-max x", "is not a size"),
        (
            "--format record --format-max 8K",
            "bound its parts by limits",
        ),
        ("--format-max 8K", "--format <SHAPE>"),
    ] {
        let (status, _, stderr) = show(words);
        assert_eq!(status, 125, "{words}");
        assert!(stderr.contains(said), "{words}: {stderr}");
    }
    let (status, _, stderr) = cellblock(&["show", "x", "--html", "--format", "tool"], "");
    assert_eq!(status, 125);
    assert!(stderr.contains("cannot be used with"), "{stderr}");
}

/// Real runs: the format goes to standard output, the whole record to `--record`.
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
        let value: Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(value, shaped(shape, &record));
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

/// The details are for the caller: in the record and on stderr.
#[test]
fn a_set_up_error_names_the_hosts_paths_only_in_the_record() {
    let dir = tempfile::tempdir().unwrap();
    let stored = dir.path().join("record.json");
    let missing = dir.path().join("no-such-rootfs");
    let missing = missing.to_str().unwrap();
    for shape in Shape::ALL
        .into_iter()
        .filter(|shape| *shape != Shape::Record)
    {
        let words = [
            "run",
            "--lang",
            "python",
            "--rootfs",
            missing,
            "--record",
            stored.to_str().unwrap(),
            "--format",
            shape.name(),
            "--tool-call-id",
            "call-1",
            "-c",
            "1",
        ];
        let (status, stdout, stderr) = cellblock(&words, "");
        assert_eq!(status, 125, "{stderr}");
        assert!(!stdout.contains("no-such-rootfs"), "{stdout}");
        assert!(stderr.contains(missing), "{stderr}");
        let record = fs::read_to_string(&stored).unwrap();
        let record: Record = serde_json::from_str(&record).unwrap();
        assert!(!record.context.unwrap().contains("no-such-rootfs"));
        let error = record.setup_error.unwrap();
        assert!(error.to_string().contains(missing), "{error}");
    }
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
