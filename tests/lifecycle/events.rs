//! Events of a call, for different readers.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use record::Shown;
use record::order::What;
use serde_json::{Value, json};

use crate::cells::cell::Cell;
use crate::cells::prelude::*;
use crate::cells::process::{self, Finished};
use crate::events::assert_valid_events;

pub(crate) const SUITE: Suite = Suite {
    name: "events",
    covers: &[25, 30],
    attacks: &[],
    scenes: &[
        python_scene("come-while-the-program-runs", come_while_the_program_runs),
        python_scene("results-before-a-crash", results_before_a_crash),
        python_scene("as-many-of-a-kind-as-results", as_many_of_a_kind_as_results),
        python_scene("in-the-order-of-the-code", in_the_order_of_the_code),
        scene("of-a-shell", of_a_shell).needs(&[Need::Program("bash")]),
        scene(
            "beside-streams-passed-through",
            beside_streams_passed_through,
        ),
        scene("of-any-bytes", of_any_bytes),
        scene("of-a-stream-over-its-cap", of_a_stream_over_its_cap),
    ],
    actors: &[
        // Bytes that are partly text, a few at a time.
        Actor {
            name: "say-bytes",
            run: |_| {
                let mut out = std::io::stdout();
                for byte in ODD_BYTES {
                    if out.write_all(&[*byte]).and_then(|()| out.flush()).is_err() {
                        return 3;
                    }
                }
                0
            },
        },
    ],
};

/// A character of each length, a truncated one, invalid bytes, and one that the end of
/// the stream cuts.
const ODD_BYTES: &[u8] = b"a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xf0\x9f!\xff\xfe\n\xe2\x82";

pub(super) fn of_process(process: &Finished) -> Vec<Value> {
    assert_valid_events(&String::from_utf8_lossy(&process.stdout))
}

/// Runs the cell with its events on stdout.
fn events(cell: Cell<'_>) -> Check<Vec<Value>> {
    let process = cell.passed_through().option(["--events", "-"]).finish()?;
    Ok(of_process(&process))
}

pub(super) fn kinds(events: &[Value]) -> Vec<&str> {
    events
        .iter()
        .filter_map(|event| event["event"].as_str())
        .collect()
}

fn of_kind<'e>(events: &'e [Value], kind: &str) -> Vec<&'e Value> {
    events
        .iter()
        .filter(|event| event["event"] == kind)
        .collect()
}

/// The record in the last event.
pub(super) fn record(events: &[Value]) -> &Value {
    &events[events.len() - 1]["record"]
}

/// The text of a stream, put together.
pub(super) fn text(events: &[Value], stream: &str) -> String {
    let pieces = of_kind(events, stream);
    let texts = pieces.iter().filter_map(|event| event["text"].as_str());
    texts.collect()
}

/// A program that waits for a line before each step.
struct Dialogue {
    lines: BufReader<ChildStdout>,
    program: ChildStdin,
    heard: String,
}

impl Dialogue {
    /// Waits for the next event; the cell's own time limit bounds the wait.
    fn hear(&mut self) -> Check<Value> {
        let before = self.heard.len();
        self.lines.read_line(&mut self.heard)?;
        let event: Value = serde_json::from_str(&self.heard[before..])?;
        if event["event"] == "finished" {
            return Err(fail(format!("ended too early: {event}")));
        }
        Ok(event)
    }

    fn go_on(&mut self) -> Check {
        Ok(self.program.write_all(b"\n")?)
    }
}

const STEPS: &str = r#"
import os, sys
handle = display("first", display_id="name")
input()
print("out")
input()
print("err", file=sys.stderr)
input()
handle.update("second")
input()
for _ in range(3):
    try: os.chroot("/")
    except PermissionError: pass
input()
from IPython.display import clear_output
clear_output(wait=True)
input()
open("made.txt", "w").write("x")
display("third")
raise ValueError("no")
"#;

fn come_while_the_program_runs(stage: &Stage) -> Check {
    let mut child = Command::new(&stage.cellblock)
        .args(["run", "--lang", "python", "--events", "-", "--wall"])
        .args([&stage.duration(20_000), "-c", STEPS])
        .env("CELLBLOCK_STORE", stage.dir.join("no-store"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let (Some(program), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(fail("no pipes"));
    };
    let mut dialogue = Dialogue {
        lines: BufReader::new(stdout),
        program,
        heard: String::new(),
    };
    let started = dialogue.hear()?;
    assert_eq!(
        (&started["event"], &started["language"], &started["argv"]),
        (&json!("started"), &json!("python"), &Value::Null)
    );
    // Each event comes before the program may go on.
    for (kind, field, expected) in [
        ("result", "/result/text", json!("'first'")),
        ("stdout", "/text", json!("out\n")),
        ("stderr", "/text", json!("err\n")),
        ("display_update", "/result/text", json!("'second'")),
        ("denied", "/name", json!("chroot")),
        ("clear", "/wait", json!(true)),
    ] {
        let event = dialogue.hear()?;
        assert_eq!(event["event"], kind, "{event}");
        assert_eq!(event.pointer(field), Some(&expected), "{event}");
        dialogue.go_on()?;
    }
    let Dialogue {
        mut lines,
        mut heard,
        ..
    } = dialogue;
    std::io::Read::read_to_string(&mut lines, &mut heard)?;
    assert_eq!(child.wait()?.code(), Some(1));

    let events = assert_valid_events(&heard);
    let rest = &events[events.len() - 4..];
    assert_eq!(kinds(rest), ["result", "error", "file", "finished"]);
    let record = record(&events);
    assert_eq!(record["id"], started["id"]);
    // The events and the record agree.
    assert_eq!(json!([rest[0]["result"]]), record["results"]);
    assert_eq!(rest[1]["error"], record["error"]);
    assert_eq!(json!([rest[2]["file"]]), record["files"]);
    assert_eq!(rest[2]["file"]["path"], "made.txt");
    assert_eq!(record["denied"][0]["count"], 3);
    Ok(())
}

fn results_before_a_crash(stage: &Stage) -> Check {
    let code = "display(1); display('two')\nimport os; os.kill(os.getpid(), 9)";
    let events = events(stage.python(code))?;
    let results = of_kind(&events, "result");
    let texts: Vec<&Value> = results
        .iter()
        .map(|event| &event["result"]["text"])
        .collect();
    assert_eq!(texts, ["1", "'two'"]);
    assert_eq!(record(&events)["outcome"], "signal");
    Ok(())
}

fn as_many_of_a_kind_as_results(stage: &Stage) -> Check {
    let code = "h = display(0, display_id=True)\nfor n in range(1, 1006): h.update(n)";
    let events = events(stage.python(code))?;
    assert_eq!(of_kind(&events, "display_update").len(), 1000);
    let cut = of_kind(&events, "cut");
    assert_eq!((cut.len(), &cut[0]["kind"]), (1, &json!("display_update")));
    assert_eq!(record(&events)["results"][0]["text"], "1005");
    Ok(())
}

/// Nothing but the code's order orders these: a program's output, a process's, both streams
/// and results go through three pipes.
const MIXED: &str = r#"
import subprocess, sys
for n in range(100):
    print("o%d" % n)
    display(n)
    subprocess.run(["echo", "s%d" % n])
    print("e%d" % n, file=sys.stderr)
    handle = display("r%d" % n, display_id=True)
    sys.stdout.write("x")
    handle.update("u%d" % n)
"#;

const CLEARED: &str = r#"
from IPython.display import clear_output, update_display
print("before")
display("gone")
clear_output(wait=True)
print("after")
display("kept", display_id="name")
print("between")
update_display("new", display_id="name")
clear_output(wait=True)
"#;

fn in_the_order_of_the_code(stage: &Stage) -> Check {
    let events = events(stage.python(MIXED))?;
    let mut seen = String::new();
    for event in &events {
        let text = match event["event"].as_str() {
            Some("stdout" | "stderr") => &event["text"],
            Some("result" | "display_update") => &event["result"]["text"],
            _ => continue,
        };
        seen += &format!("{} ", text.as_str().unwrap_or_default());
    }
    let all: String = (0..100)
        .map(|n| format!("o{n}\n {n} s{n}\n e{n}\n 'r{n}' x 'u{n}' "))
        .collect();
    assert_eq!(seen, all);

    let record: record::Record = serde_json::from_value(record(&events).clone())?;
    let pieces = record::order::pieces(&record);
    let shown: Vec<String> = (pieces.iter())
        .map(|piece| match &piece.what {
            What::Stdout(text) | What::Stderr(text) => text.clone(),
            What::Result(_, item) => item.text.clone().unwrap_or_default(),
        })
        .collect();
    let round = |n: usize| {
        let x = if n == 0 { "" } else { "x" };
        let round = [
            format!("{x}o{n}\n"),
            n.to_string(),
            format!("s{n}\n"),
            format!("e{n}\n"),
        ];
        round.into_iter().chain([format!("'u{n}'")])
    };
    let mut all: Vec<String> = (0..100).flat_map(round).collect();
    all.push("x".to_owned());
    assert_eq!(shown, all);

    let record = stage.python(CLEARED).run()?.record;
    let stdout = |bytes| Shown::Stdout { bytes };
    let expected = [
        stdout(7),
        Shown::Clear,
        stdout(6),
        Shown::Result { index: 0 },
        stdout(8),
    ];
    assert_eq!(record.order, expected);
    // The last clear waits for something that does not come.
    assert_eq!(record.results[0].text.as_deref(), Some("'new'"));
    let printed = record.stdout.as_ref().map(ToString::to_string);
    assert_eq!(printed.as_deref(), Some("before\nafter\nbetween\n"));
    Ok(())
}

fn of_a_shell(stage: &Stage) -> Check {
    let events = events(stage.code("bash", "echo out; echo err >&2; exit 3"))?;
    assert_eq!(events[0]["language"], "bash");
    assert_eq!(text(&events, "stdout"), "out\n");
    assert_eq!(text(&events, "stderr"), "err\n");
    assert_eq!(record(&events)["exit_code"], 3);
    Ok(())
}

/// The program writes to the caller's own streams, which are in no event.
fn beside_streams_passed_through(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let path = scratch.join("events.jsonl");
    let mut command = stage
        .probe("record/say", ["hello", "3"])
        .passed_through()
        .option(["--events", &path.to_string_lossy()])
        .command();
    let process = process::finish(&mut command, stage.patience())?;
    assert_eq!(
        (process.code(), process.stdout.as_slice()),
        (3, &b"hello"[..])
    );
    let events = assert_valid_events(&fs::read_to_string(path)?);
    assert_eq!(kinds(&events), ["started", "finished"]);
    assert_eq!(events[0]["argv"][2], "record/say");
    Ok(())
}

fn of_any_bytes(stage: &Stage) -> Check {
    let events = events(stage.probe("events/say-bytes", []))?;
    assert_eq!(
        text(&events, "stdout"),
        String::from_utf8_lossy(ODD_BYTES).into_owned()
    );
    let mut bytes = Vec::new();
    for event in of_kind(&events, "stdout") {
        let text = event["text"].as_str().unwrap_or_default();
        match event["base64"].as_str() {
            Some(base64) => bytes.extend(BASE64.decode(base64).map_err(fail)?),
            None => bytes.extend(text.as_bytes()),
        }
        assert_eq!(text.contains('\u{FFFD}'), event["base64"].is_string());
    }
    assert_eq!(bytes, ODD_BYTES);
    Ok(())
}

fn of_a_stream_over_its_cap(stage: &Stage) -> Check {
    let cell = stage.probe("output/flood", ["1000000", "1000"]);
    let events = events(cell.limit("output", "64K"))?;
    assert_eq!(text(&events, "stdout"), "x".repeat(64 << 10));
    let pieces = of_kind(&events, "stdout");
    let cut = pieces.iter().filter(|event| event["cut"] == true);
    assert_eq!(cut.count(), 1);
    assert_eq!(pieces[pieces.len() - 1]["cut"], true);
    assert_eq!(record(&events)["outcome"], "ok");
    assert_eq!(record(&events)["truncated"]["stdout"]["total"], 1_000_000);
    Ok(())
}
