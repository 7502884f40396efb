//! Programs that keep the supervisor busy or fill its memory with frames, output,
//! denied calls, files, and memory to free. Limits are still checked, a run ends soon
//! after its wall-clock limit, and the supervisor stays small.

use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;

use record::Enforced;

use crate::cells::cell::{Cell, Run};
use crate::cells::left::Marker;
use crate::cells::prelude::*;
use crate::cells::start::Start;

pub(crate) const SUITE: Suite = Suite {
    name: "floods",
    covers: &[30, 37],
    attacks: &[],
    scenes: &[
        python_scene("lingering-close", lingering_close),
        python_scene("lingering-close-and-a-signal", lingering_close_and_a_signal),
        scene("lingering-close-from-node", lingering_close_from_node)
            .needs(&[Need::Program("python3"), Need::Program("node")]),
        python_scene("frames-of-json", |stage| {
            let code = with_frames(stage, include_str!("floods/json.py"));
            let cell = stage.python(&code).limit("results", "256K");
            are_dropped(&floods(stage, &cell, WALL)?)
        }),
        python_scene("frames-as-long-as-can-be", |stage| {
            let run = frames(stage, include_str!("floods/one_frame.py"))?;
            let is_said = |warning: &String| warning.contains("within a frame");
            assert!(run.record.warnings.iter().any(is_said), "{}", run.json);
            Ok(())
        }),
        python_scene("frames-as-many-as-can-be", |stage| {
            let run = frames(stage, include_str!("floods/tiny.py"))?;
            assert!(!run.record.results.is_empty(), "{}", run.json["truncated"]);
            Ok(())
        }),
        python_scene("errors", |stage| {
            let run = frames(stage, include_str!("floods/errors.py"))?;
            let error = run.record.error.ok_or_else(|| fail("no error came"))?;
            assert_eq!(error.message.len(), 64 << 10);
            Ok(())
        }),
        python_scene("no-frames", |stage| {
            let run = frames(stage, include_str!("floods/no_frames.py"))?;
            let is_said = |warning: &String| warning.contains("not the protocol");
            assert!(run.record.warnings.iter().any(is_said));
            Ok(())
        }),
        python_scene("streams", |stage| {
            let run = frames(stage, include_str!("floods/streams.py"))?;
            assert!(run.record.truncated.contains_key("stderr"));
            Ok(())
        }),
        python_scene("denials", |stage| {
            let run = frames(stage, include_str!("floods/denials.py"))?;
            let count = run.record.denied.first().map_or(0, |denied| denied.count);
            assert!(count > 1000, "{}", run.json["denied"]);
            Ok(())
        }),
        python_scene("everything-and-events", everything_and_events),
        python_scene("amplified", amplified),
        python_scene("results-as-asked", results_as_asked),
        python_scene("files", files),
        scene("memory-to-free", memory_to_free).needs(&[Need::Program("python3"), Need::Alone]),
        scene("frames-from-java", frames_from_java).needs(&[Need::Program("java")]),
    ],
    actors: &[],
};

/// The wall-clock limit of most of these runs, in milliseconds.
const WALL: u64 = 1_500;
/// How late a run may end. The promise is one second; a busy machine gets several,
/// since this is no benchmark.
const LATE: u64 = 6_000;
/// The supervisor's memory, on top of the data that the caller asked to keep.
const MEMORY: u64 = 32 << 20;
/// The text pages of this executable, which stay in memory in cells that do not start in one step.
const TEXT: u64 = 8 << 20;
/// The data kept by default: results and both streams.
const KEPT: u64 = (8 << 20) + 2 * (1 << 20);

const FRAME: &str = include_str!("floods/frame.py");
const LINGER: &str = include_str!("floods/linger.py");

fn with_frames(stage: &Stage, code: &str) -> String {
    // The first execution gave the cell its state.
    let execution = match stage.start() {
        Start::Carried => "EXECUTION = b'2'\n",
        Start::Cold | Start::Blank | Start::Forked => "",
    };
    format!("{execution}{FRAME}\n{code}")
}

/// Asserts that the run ends by its wall-clock limit, in time, and that the supervisor
/// took no more memory than its own and `kept`.
fn ends(stage: &Stage, cell: &Cell<'_>, wall: u64, kept: u64) -> Check<Run> {
    let wall = stage.within(wall);
    let millis = format!("{}ms", wall.as_millis());
    let run = cell
        .clone()
        .limit("wall", &millis)
        .deadline(60_000)
        .run()?
        .ended(Outcome::Timeout)?;
    let late = run.process.elapsed.saturating_sub(wall);
    stage.note(format!(
        "{late:?} after its limit, {} KiB",
        run.process.peak_rss >> 10
    ));
    // Another attempt to start the cell came first.
    let is_second = |warning: &String| warning.starts_with("the cell has the state of no other");
    if !run.record.warnings.iter().any(is_second) {
        assert!(late < stage.within(LATE), "{late:?} after its limit");
    }
    is_small(&run, kept);
    Ok(run)
}

fn is_small(run: &Run, kept: u64) {
    let peak = run.process.peak_rss;
    let text = match run.record.start {
        Some(record::Start::Cold) | None => 0,
        Some(_) => TEXT,
    };
    assert!(
        peak < MEMORY + text + kept,
        "{} KiB of memory for {} KiB to keep",
        peak >> 10,
        kept >> 10
    );
}

fn frames(stage: &Stage, code: &str) -> Check<Run> {
    let marker = Marker::new()?;
    let code = format!("# {}\n{}", marker.word(), with_frames(stage, code));
    // Each scene shows that the frames were received.
    let run = floods(stage, &stage.python(&code), WALL)?;
    marker.nothing_left()?;
    Ok(run)
}

/// Runs until the flood begins, which may take a second attempt on a busy machine.
fn floods(stage: &Stage, cell: &Cell<'_>, wall: u64) -> Check<Run> {
    let run = ends(stage, cell, wall, KEPT)?;
    if run.stdout().starts_with("flood\n") {
        return Ok(run);
    }
    let run = ends(stage, cell, 4 * wall, KEPT)?;
    match run.stdout().starts_with("flood\n") {
        true => Ok(run),
        false => Err(fail(format!(
            "it did not come to the flood: {}",
            run.json["stderr"]
        ))),
    }
}

/// Some results were kept and some were dropped.
fn are_dropped(run: &Run) -> Check {
    let cut = run.record.truncated.get("results");
    let cut = cut.ok_or_else(|| fail("no result was dropped"))?;
    assert!(cut.total > cut.kept, "{cut:?}");
    assert_eq!(run.record.limits["results"].hit, Some(true));
    Ok(())
}

/// Closing an in-flight socket blocks the process that receives it. This is shown
/// between two of the program's own sockets; the driver's channel carries no
/// descriptors.
fn lingering_close(stage: &Stage) -> Check {
    let run = ends(stage, &stage.python(LINGER), 2_500, KEPT)?;
    assert_eq!(run.stdout(), "a read waits\nENOTSOCK\n");
    Ok(())
}

fn lingering_close_and_a_signal(stage: &Stage) -> Check {
    let cell = stage.python(LINGER).limit("wall", "60s");
    let mut watch = cell.spawn()?;
    watch.pump(stage.within(2_500))?;
    watch.signal(Signal::SIGTERM)?;
    let run = Run::of(watch.until_end(stage.within(10_000))?)?.ended(Outcome::Cancelled)?;
    assert!(run.stdout().starts_with("a read waits\n"));
    Ok(())
}

fn lingering_close_from_node(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let linger = scratch.path().join("linger.py");
    std::fs::write(&linger, LINGER)?;
    let cell = stage
        .code("javascript", include_str!("floods/linger.js"))
        .option(["--file", path(&linger)?]);
    let run = ends(stage, &cell, 3_000, KEPT)?;
    assert_eq!(
        run.stdout(),
        "a read waits\nENOTSOCK\n",
        "{}",
        run.json["stderr"]
    );
    Ok(())
}

fn path(path: &Path) -> Check<&str> {
    path.to_str().ok_or_else(|| fail("not UTF-8"))
}

/// With events, each result is held twice: in the record, and in the queue to the
/// reader.
fn everything_and_events(stage: &Stage) -> Check {
    let code = with_frames(stage, include_str!("floods/everything.py"));
    let scratch = stage.scratch()?;
    let events = scratch.path().join("events");
    let cell = stage
        .python(&code)
        .option(["--events", path(&events)?])
        .limit("results", "256K")
        // Frames are read first, and output by one read between their turns.
        .limit("output", "64K");
    let run = floods(stage, &cell, WALL)?;
    are_dropped(&run)?;
    assert!(run.record.truncated.contains_key("stderr"));
    assert!(!run.record.denied.is_empty());
    Ok(())
}

/// Parsed, the first result alone would take about 500 MB.
fn amplified(stage: &Stage) -> Check {
    let (run, forms) = run_amplified(stage, ["--wall", &stage.duration(30_000)])?;
    are_dropped(&run)?;
    assert_eq!(forms, 32, "the first result is kept as it is");
    is_small(&run, KEPT);
    Ok(())
}

/// The record without the amplified JSON, which would take the harness gigabytes, and how often
/// the JSON is in it.
fn run_amplified<const N: usize>(stage: &Stage, options: [&str; N]) -> Check<(Run, usize)> {
    let code = with_frames(stage, include_str!("floods/amplified.py"));
    let mut process = stage.python(&code).option(options).finish()?;
    let amplified = format!("[{}]", [r#"{"":0}"#; 32_700].join(","));
    let text = String::from_utf8_lossy(&process.stdout);
    let count = text.matches(&amplified).count();
    process.stdout = text.replace(&amplified, "[]").into_bytes();
    let run = Run::of(process)?.ended(Outcome::Ok)?;
    assert_eq!(run.stdout(), "sent\n");
    Ok((run, count))
}

fn results_as_asked(stage: &Stage) -> Check {
    let wall = stage.duration(30_000);
    let (run, forms) = run_amplified(stage, ["--results", "64M", "--wall", &wall])?;
    assert_eq!((run.record.results.len(), forms), (2, 64));
    let limit = &run.record.limits["results"];
    assert_eq!(
        (limit.enforced, limit.hit),
        (Some(Enforced::Exactly(67_108_864.0)), Some(false))
    );
    is_small(&run, KEPT + (8 << 20));
    let run = stage
        .python("display('x' * 5000)\ndisplay(2)")
        .limit("results", "4K")
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(run.record.results.len(), 1);
    are_dropped(&run)
}

/// Files that could not be collected in time are listed with the reason.
fn files(stage: &Stage) -> Check {
    let cell = stage
        .python(include_str!("floods/files.py"))
        .limit("workspace-size", "16G")
        .limit("file-size", "none");
    let run = floods(stage, &cell, 1_000)?;
    assert_eq!(run.json["files"][0]["path"], "a");
    let skipped = &run.json["files_skipped"][0];
    assert_eq!(skipped["path"], "z");
    let reason = skipped["reason"].as_str().unwrap_or_default();
    assert!(
        reason.contains("the time for collecting files ran out"),
        "{reason}"
    );
    Ok(())
}

/// The kernel takes a while to free the memory; usage is still counted.
fn memory_to_free(stage: &Stage) -> Check {
    const GIB: u64 = 2;
    let free = available_memory().unwrap_or(0);
    if free < (GIB + 2) << 30 {
        return Err(crate::cells::Stop::Skip(format!(
            "{} MiB of memory are available, and {GIB} GiB are to be filled",
            free >> 20
        )));
    }
    let cell = stage
        .python(include_str!("floods/memory.py"))
        .arguments([&GIB.to_string()])
        .limit("memory", "none")
        .limit("cpu-time", "none");
    let run = floods(stage, &cell, 4_000)?;
    let usage = &run.record.usage;
    let cpu = usage.cpu_user_ms.unwrap_or(0.0) + usage.cpu_system_ms.unwrap_or(0.0);
    assert!(cpu > 1000.0, "{}", run.json["usage"]);
    assert!(usage.memory_peak_bytes > Some(0), "{}", run.json["usage"]);
    stage.note(format!("teardown {} ms", run.record.timing.teardown_ms));
    Ok(())
}

fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find(|line| line.starts_with("MemAvailable:"))?;
    let kib: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

fn frames_from_java(stage: &Stage) -> Check {
    let cell = stage
        .code("java", include_str!("floods/Flood.java"))
        .limit("results", "256K");
    let run = ends(stage, &cell, 5_000, KEPT)?;
    if run.stdout().is_empty() {
        let slow = Duration::from_millis(5_000);
        return Err(crate::cells::Stop::Skip(format!(
            "Java does not start within {slow:?} here"
        )));
    }
    are_dropped(&run)
}
