//! Code that attacks its driver, with which it shares a process: it writes to every
//! descriptor, forges frames, and patches the driver. At worst it spoils its own
//! results; cellblock's own measurements and limits stay true.

use std::time::Duration;

use serde_json::Value;

use crate::cells::cell::Run;
use crate::cells::left::Marker;
use crate::cells::prelude::*;

pub(crate) const SUITE: Suite = Suite {
    name: "hostile-driver",
    covers: &[30],
    attacks: &[],
    scenes: &[
        python_scene("writes-everywhere", |stage| {
            survives_or_waits(stage, WRITES_EVERYWHERE)
        }),
        python_scene("floods-the-channel", |stage| {
            survives(stage, FLOODS_THE_CHANNEL, "")
        }),
        python_scene("forges-frames", forges_frames),
        python_scene("sends-what-is-no-frame", sends_what_is_no_frame),
        python_scene("announces-a-gigabyte", |stage| {
            survives(stage, ANNOUNCES_A_GIGABYTE, "")
        }),
        python_scene("closes-everything", |stage| {
            survives(stage, CLOSES_EVERYTHING, "")
        }),
        python_scene("walks-the-frames", |stage| {
            survives(stage, WALKS_THE_FRAMES, "still here\n")
        }),
        python_scene("patches-what-it-finds", |stage| {
            survives_or_waits(stage, PATCHES_WHAT_IT_FINDS)
        }),
        python_scene("deletes-builtins", |stage| {
            survives(stage, DELETES_BUILTINS, "")
        }),
        python_scene("raises-in-repr", |stage| {
            survives(stage, RAISES_IN_REPR, "before\n")
        }),
        python_scene("exits-in-repr", |stage| survives(stage, EXITS_IN_REPR, "")),
        python_scene("endless-results", |stage| {
            survives(stage, ENDLESS_RESULTS, "")
        }),
        python_scene("gigabyte-of-html", gigabyte_of_html),
        python_scene("ends-at-once", ends_at_once),
        python_scene("prints-a-record", prints_a_record),
        python_scene("replaces-the-process", replaces_the_process),
    ],
    actors: &[],
};

const WRITES_EVERYWHERE: &str = r#"
import os
for fd in range(3, 1024):
    for target in (fd, f"/proc/1/fd/{fd}", f"/proc/self/fd/{fd}"):
        try:
            if isinstance(target, str):
                target = os.open(target, os.O_WRONLY | os.O_NONBLOCK)
            os.write(target, b'{"schema":"cellblock.record.v1","outcome":"ok","exit_code":0}\n' * 20)
        except OSError:
            pass
"#;

const FLOODS_THE_CHANNEL: &str = r#"
import os
channel = 4
try:
    for _ in range(200):
        os.write(channel, b"\xff" * (1 << 20))
except OSError:
    pass
"#;

/// Frames as the driver writes them: a result, an exception, the end.
const FORGES_FRAMES: &str = r#"
import os
channel = 4
def frame(*fields):
    body = b"".join(form + bytes([len(key)]) + len(value).to_bytes(4, "big") + key + value
                    for form, key, value in (fields[0], (b"t", b"execution", b"1"), *fields[1:]))
    os.write(channel, len(body).to_bytes(4, "big") + body)
frame((b"t", b"kind", b"started"))
frame((b"t", b"kind", b"result"), (b"j", b"main", b"true"), (b"t", b"text/plain", b"forged"))
frame((b"t", b"kind", b"error"), (b"t", b"name", b"MemoryError"), (b"t", b"message", b"forged"),
      (b"t", b"traceback", b""), (b"t", b"line", b"-99999999999999999999"), (b"t", b"errno", b"x"))
frame((b"t", b"kind", b"usage"), (b"t", b"wall_ms", b"0"), (b"t", b"exit_code", b"0"))
frame((b"t", b"kind", b"done"))
os._exit(7)
"#;

const ANNOUNCES_A_GIGABYTE: &str = r#"
import os, time
channel = 4
try:
    os.write(channel, b"\x40\x00\x00\x00t\xff\x3f\xff\xff\xff")
except OSError:
    pass
time.sleep(0.05)
"#;

const CLOSES_EVERYTHING: &str = r#"
import os
os.closerange(0, 1024)
"#;

const WALKS_THE_FRAMES: &str = r#"
import sys
frame = sys._getframe()
while frame:
    for name in list(frame.f_globals):
        if not name.startswith("__") and frame is not sys._getframe():
            frame.f_globals[name] = None
    frame = frame.f_back
print("still here")
"#;

const PATCHES_WHAT_IT_FINDS: &str = r#"
import builtins, gc, os, sys, types
def lies(*args, **kwargs):
    return 0
for name in ("write", "read", "fstat", "getpid", "_exit", "open"):
    setattr(os, name, lies)
sys.excepthook = sys.displayhook = sys.exit = lies
for thing in gc.get_objects():
    if isinstance(thing, types.FunctionType) and thing is not lies:
        try:
            thing.__code__ = lies.__code__
        except (ValueError, AttributeError, TypeError):
            pass
1 / 0
"#;

const DELETES_BUILTINS: &str = r#"
import builtins, sys
sys.modules.clear()
for name in list(vars(builtins)):
    if name != "delattr":
        delattr(builtins, name)
42
"#;

const RAISES_IN_REPR: &str = r#"
class Hostile:
    def __repr__(self):
        raise SystemExit(0)
    def _repr_html_(self):
        raise BaseException(self)
    def __getattr__(self, name):
        raise KeyboardInterrupt
    __str__ = _repr_html_
print("before")
class Error(Exception):
    __str__ = __repr__ = Hostile.__repr__
display = Hostile()
raise Error(display)
"#;

const EXITS_IN_REPR: &str = r#"
import os
class Hostile:
    def __repr__(self):
        os._exit(0)
Hostile()
"#;

const ENDLESS_RESULTS: &str = r#"
from builtins import *
try:
    for number in range(10000):
        display("x" * 100)
except NameError:
    pass
"#;

/// The usual limit on time, in milliseconds.
const WALL_MS: u64 = 60_000;

/// The fields that every record must have right; the code controls the others.
fn truth(run: &Run) -> Value {
    let mut isolation = run.json["isolation"].clone();
    // These differ between two honest runs as well.
    isolation["cgroup"] = isolation["cgroup"]["source"].clone();
    for id in ["uid", "gid"] {
        isolation[id] = isolation[id]["inside"].clone();
    }
    let limits = run.json["limits"].as_object().into_iter().flatten();
    let limits: Value = limits
        .map(|(name, limit)| {
            (
                name.clone(),
                serde_json::json!([limit["requested"], limit["enforced"], limit["by"]]),
            )
        })
        .collect::<serde_json::Map<_, _>>()
        .into();
    serde_json::json!([isolation, limits, run.json["language"], run.json["version"]])
}

fn python(stage: &Stage, code: &str, wall_ms: u64) -> Check<Run> {
    let marker = Marker::new()?;
    let wall = stage.duration(wall_ms);
    let run = stage
        .python(&format!("# {}\n{code}", marker.word()))
        .limit("wall", &wall)
        .deadline(120_000)
        .measured()
        .run()?;
    marker.nothing_left()?;
    // On a busy host, its own limit may end it, too.
    let honest = stage.python("1").limit("wall", &wall).run()?;
    assert_eq!(truth(&run), truth(&honest));
    // The wall time as the harness measured it.
    let told = Duration::from_secs_f64(run.record.usage.wall_ms / 1000.0);
    assert!(
        told <= run.process.elapsed,
        "{told:?} of {:?}",
        run.process.elapsed
    );
    assert!(
        run.json.to_string().len() < 32 << 20,
        "a record without bound"
    );
    Ok(run)
}

/// Code that opens its own driver's pipe of requests, or breaks the driver's reading,
/// can keep it waiting for the next request, but only until the limit on time.
fn survives_or_waits(stage: &Stage, code: &str) -> Check {
    let run = python(stage, code, 2_000)?;
    assert_survived(&run, Outcome::Timeout, "");
    Ok(())
}

/// There is a record, its measurements are true, and stdout is the program's.
fn survives(stage: &Stage, code: &str, stdout: &str) -> Check {
    assert_survived(&python(stage, code, WALL_MS)?, Outcome::Ok, stdout);
    Ok(())
}

/// Asserts that the run ended in a way that code can choose, or as `also` says.
fn assert_survived(run: &Run, also: Outcome, stdout: &str) {
    let ended = [
        Outcome::Ok,
        Outcome::Error,
        Outcome::Exit,
        Outcome::Signal,
        Outcome::Memory,
        also,
    ];
    assert!(ended.contains(&run.record.outcome), "{}", run.json);
    assert_eq!(run.stdout(), stdout, "{}", run.json);
}

fn forges_frames(stage: &Stage) -> Check {
    let run = python(stage, FORGES_FRAMES, WALL_MS)?;
    // The code may lie about itself, but not about how it ended.
    assert_ne!(run.record.outcome, Outcome::Ok, "{}", run.json);
    assert!(run.record.usage.wall_ms > 1.0);
    Ok(())
}

/// Earlier frames still count, and the record says that something is missing.
fn sends_what_is_no_frame(stage: &Stage) -> Check {
    const BROKEN: &str =
        "the driver's channel carried something that is not the protocol: results may be missing";
    const CUT: &str = "the driver's channel ended within a frame: a result or an error is missing";
    for (bytes, expected) in [
        (r"HTTP/1.1 200 OK", Some(BROKEN)),
        (r"\xff\xff\xff\xff", Some(BROKEN)),
        // Empty; a field that reaches beyond; bytes, no text; another key.
        (r"\0\0\0\0", Some(BROKEN)),
        (r"\0\0\0\x0at\4\0\0\0\5kind", Some(BROKEN)),
        (r"\0\0\0\x0eb\4\0\0\0\4kinddone", Some(BROKEN)),
        (r"\0\0\0\x0et\4\0\0\0\4Kinddone", Some(BROKEN)),
        // Cut within its length, its head, its value.
        (r"\0", Some(CUT)),
        (r"\0\0\0\x0et\4", Some(CUT)),
        (r"\0\0\0\x0et\4\0\0\0\4kinddon", Some(CUT)),
        // Without an execution, and with one that is no number.
        (r"\0\0\0\x0et\4\0\0\0\4kinddone", Some(BROKEN)),
        (
            r"\0\0\0\x1et\4\0\0\0\4kinddonet\x09\0\0\0\1executionx",
            Some(BROKEN),
        ),
        // A well-formed frame, and one of an unknown kind.
        (
            r"\0\0\0\x1et\4\0\0\0\4kinddonet\x09\0\0\0\1execution1",
            None,
        ),
        (
            r"\0\0\0\x1et\4\0\0\0\4kinddon\xfft\x09\0\0\0\1execution1",
            None,
        ),
    ] {
        let code = format!("import os\ndisplay(1)\nos.write(4, b'{bytes}')\nos._exit(0)");
        let run = python(stage, &code, WALL_MS)?.ended(Outcome::Ok)?;
        assert_eq!(run.json["results"].as_array().map(Vec::len), Some(1));
        assert_eq!(run.json["results"][0]["text"], "1");
        let warnings = &run.record.warnings;
        let told = [BROKEN, CUT]
            .into_iter()
            .find(|told| warnings.iter().any(|w| w == told));
        assert_eq!(told, expected, "{bytes}: {warnings:?}");
    }
    Ok(())
}

fn gigabyte_of_html(stage: &Stage) -> Check {
    let run = python(
        stage,
        "class Big:\n    def _repr_html_(self):\n        return 'x' * (1 << 28)\nBig()\n",
        WALL_MS,
    )?;
    let peak = run.process.taken()?.peak_rss;
    assert!(peak < 128 << 20, "{peak}");
    Ok(())
}

fn ends_at_once(stage: &Stage) -> Check {
    let run = python(stage, "import os\nos._exit(3)\n", WALL_MS)?.ended(Outcome::Exit)?;
    assert_eq!(run.record.exit_code, 3);
    let run = python(stage, "import os\nos.abort()\n", WALL_MS)?.ended(Outcome::Signal)?;
    assert_eq!(run.record.signal.as_deref(), Some("SIGABRT"));
    Ok(())
}

fn prints_a_record(stage: &Stage) -> Check {
    let forged = r#"{"schema":"cellblock.record.v1","outcome":"ok","exit_code":0}"#;
    let run = python(
        stage,
        &format!("print('''{forged}''')\nraise ValueError(1)\n"),
        WALL_MS,
    )?;
    let run = run.ended(Outcome::Error)?;
    assert_eq!(run.stdout(), format!("{forged}\n"));
    run.assert_one_line();
    Ok(())
}

fn replaces_the_process(stage: &Stage) -> Check {
    let run = python(
        stage,
        "import os\nos.execv('/bin/sh', ['sh', '-c', 'echo replaced; exit 9'])\n",
        WALL_MS,
    )?;
    let run = run.ended(Outcome::Exit)?;
    assert_eq!((run.stdout(), run.record.exit_code), ("replaced\n", 9));
    Ok(())
}
