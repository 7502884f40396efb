//! Programs that keep the supervisor busy or fill its memory with frames, output,
//! denied calls, files, and memory to free. Limits are still checked, a run ends by its
//! wall-clock limit, and the supervisor stays small.

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
            are_dropped(&floods(stage, &cell, WALL, is_dropped)?)
        }),
        python_scene("frames-as-long-as-can-be", |stage| {
            frames(stage, include_str!("floods/one_frame.py"), |run| {
                warns(run, "within a frame")
            })
        }),
        python_scene("frames-as-many-as-can-be", |stage| {
            frames(stage, include_str!("floods/tiny.py"), |run| {
                !run.record.results.is_empty()
            })
        }),
        python_scene("errors", |stage| {
            frames(stage, include_str!("floods/errors.py"), |run| {
                let error = run.record.error.as_ref();
                error.is_some_and(|error| error.message.len() == 64 << 10)
            })
        }),
        python_scene("no-frames", |stage| {
            frames(stage, include_str!("floods/no_frames.py"), |run| {
                warns(run, "not the protocol")
            })
        }),
        python_scene("streams", |stage| {
            frames(stage, include_str!("floods/streams.py"), is_cut)
        }),
        python_scene("denials", |stage| {
            frames(stage, include_str!("floods/denials.py"), |run| {
                (run.record.denied.iter()).any(|denied| denied.count > 1000)
            })
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

/// Asserts that the run ends by its wall-clock limit, and that the supervisor took no more
/// memory than its own and the data that is kept.
fn floods(
    stage: &Stage,
    cell: &Cell<'_>,
    wall: u64,
    has_come: impl Fn(&Run) -> bool,
) -> Check<Run> {
    let run = cell.clone().measured().run_to_limit(wall, has_come)?;
    let limit = Duration::from_millis(run.record.limits["wall"].requested as u64);
    let late = run.process.elapsed.saturating_sub(limit);
    stage.note(format!(
        "{late:?} after its limit, {} KiB",
        run.process.taken()?.peak_rss >> 10
    ));
    is_small(&run, KEPT)?;
    Ok(run)
}

fn is_small(run: &Run, kept: u64) -> Check {
    let peak = run.process.taken()?.peak_rss;
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
    Ok(())
}

/// `are_received`: what shows that the frames were.
fn frames(stage: &Stage, code: &str, are_received: impl Fn(&Run) -> bool) -> Check {
    let marker = Marker::new()?;
    let code = format!("# {}\n{}", marker.word(), with_frames(stage, code));
    floods(stage, &stage.python(&code), WALL, are_received)?;
    marker.nothing_left()
}

fn warns(run: &Run, words: &str) -> bool {
    let mut warnings = run.record.warnings.iter();
    warnings.any(|warning| warning.contains(words))
}

fn is_dropped(run: &Run) -> bool {
    run.record.truncated.contains_key("results")
}

fn is_cut(run: &Run) -> bool {
    run.record.truncated.contains_key("stderr")
}

fn has_begun(run: &Run) -> bool {
    run.stdout().starts_with("flood\n")
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
    floods(stage, &stage.python(LINGER), 2_500, lingers).map(drop)
}

fn lingers(run: &Run) -> bool {
    run.stdout() == "a read waits\nENOTSOCK\n"
}

fn lingering_close_and_a_signal(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let shared = scratch.dir("shared", 0o777)?;
    // The last close never returns.
    let (before, last) = LINGER.rsplit_once("os.close(").unwrap_or_default();
    let code = format!("{before}open('/shared/lingers', 'w').close()\nos.close({last}");
    let cell = stage.python(&code).rw(&shared, Path::new("/shared"));
    let mut watch = cell.limit("wall", &stage.duration(120_000)).spawn()?;
    watch.until_exists(&shared.join("lingers"), stage.patience())?;
    watch.signal(Signal::SIGTERM)?;
    let run = Run::of(watch.until_end(stage.patience())?)?.ended(Outcome::Cancelled)?;
    assert!(lingers(&run), "{}", run.json);
    Ok(())
}

fn lingering_close_from_node(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let linger = scratch.path().join("linger.py");
    std::fs::write(&linger, LINGER)?;
    let cell = stage
        .code("javascript", include_str!("floods/linger.js"))
        .option(["--file", path(&linger)?]);
    floods(stage, &cell, 3_000, lingers).map(drop)
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
    let is_everything = |run: &Run| is_dropped(run) && is_cut(run) && !run.record.denied.is_empty();
    are_dropped(&floods(stage, &cell, WALL, is_everything)?)
}

/// Parsed, the first result alone would take about 500 MB.
fn amplified(stage: &Stage) -> Check {
    let (run, forms) = run_amplified(stage, ["--wall", &stage.duration(120_000)])?;
    are_dropped(&run)?;
    assert_eq!(forms, 32, "the first result is kept as it is");
    is_small(&run, KEPT)
}

/// The record without the amplified JSON, which would take the harness gigabytes, and how often
/// the JSON is in it.
fn run_amplified<const N: usize>(stage: &Stage, options: [&str; N]) -> Check<(Run, usize)> {
    let code = with_frames(stage, include_str!("floods/amplified.py"));
    let cell = stage.python(&code).option(options).measured();
    let mut process = cell.deadline(180_000).finish()?;
    let amplified = format!("[{}]", [r#"{"":0}"#; 32_700].join(","));
    let text = String::from_utf8_lossy(&process.stdout);
    let count = text.matches(&amplified).count();
    process.stdout = text.replace(&amplified, "[]").into_bytes();
    let run = Run::of(process)?.ended(Outcome::Ok)?;
    assert_eq!(run.stdout(), "sent\n");
    Ok((run, count))
}

fn results_as_asked(stage: &Stage) -> Check {
    let wall = stage.duration(120_000);
    let (run, forms) = run_amplified(stage, ["--results", "64M", "--wall", &wall])?;
    assert_eq!((run.record.results.len(), forms), (2, 64));
    let limit = &run.record.limits["results"];
    assert_eq!(
        (limit.enforced, limit.hit),
        (Some(Enforced::Exactly(67_108_864.0)), Some(false))
    );
    is_small(&run, KEPT + (8 << 20))?;
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
    let run = floods(stage, &cell, 1_000, has_begun)?;
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

/// The kernel takes a while to free the memory; usage is still counted. The program is ended when it
/// has filled the memory, so that it takes no more CPU time on a busy host.
fn memory_to_free(stage: &Stage) -> Check {
    let gib = if stage.long() { 2 } else { 1 };
    let free = available_memory().unwrap_or(0);
    if free < (gib + 2) << 30 {
        return Err(crate::cells::Stop::Skip(format!(
            "{} MiB of memory are available, and {gib} GiB are to be filled",
            free >> 20
        )));
    }
    let scratch = stage.scratch()?;
    let shared = scratch.dir("shared", 0o777)?;
    let cell = stage
        .python(include_str!("floods/memory.py"))
        .arguments([&gib.to_string()])
        .rw(&shared, Path::new("/shared"))
        .limit("memory", "none")
        .limit("cpu-time", "none")
        .limit("wall", &stage.duration(120_000))
        .measured();
    let mut watch = cell.spawn()?;
    watch.until_exists(&shared.join("filled"), stage.patience())?;
    watch.signal(Signal::SIGTERM)?;
    let run = Run::of(watch.until_end(stage.patience())?)?.ended(Outcome::Cancelled)?;
    is_small(&run, KEPT)?;
    let usage = &run.record.usage;
    let cpu = usage.cpu_user_ms.unwrap_or(0.0) + usage.cpu_system_ms.unwrap_or(0.0);
    assert!(cpu > 500.0, "{}", run.json["usage"]);
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
        .limit("results", "256K")
        .limit("wall", &stage.duration(120_000))
        .measured();
    let run = cell.deadline(180_000).run()?.ended(Outcome::Ok)?;
    is_small(&run, KEPT)?;
    are_dropped(&run)
}
