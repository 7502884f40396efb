//! How soon events arrive, and what they cost.
//!
//! ```text
//! cargo bench --bench events
//! ```
//!
//! A program writes the time, line by line with pauses; what counts is the time
//! from there until the event with that line has been read. The floor is the same
//! program on a plain pipe. Then it writes many lines without pauses, with
//! events and without, in turn. `CELLBLOCK` names another binary than the one
//! cargo built. The results go to `target/bench/events.json`.

use std::error::Error;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;
use sys::process::monotonic_ns;

#[path = "common/stats.rs"]
mod stats;

use stats::{Summary, median};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Lines with pauses between them.
const STAMPS: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(1);
/// Lines without.
const LINES: u32 = 100_000;
/// Pairs of runs with events and without.
const ROUNDS: usize = 15;
const OUT: &str = "target/bench/events.json";

/// Times in microseconds, lines per second.
#[derive(Serialize)]
struct Results {
    schema: &'static str,
    stamps: u32,
    lines: u32,
    latency_pipe: Summary,
    latency_event: Summary,
    run_without: f64,
    run_with: f64,
    lines_per_second_without: f64,
    lines_per_second_with: f64,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["--stamps"] => stamps(),
        ["--lines"] => lines(),
        words if words.contains(&"--bench") => measure(),
        // `cargo test --all-targets` runs this too; there is nothing to test.
        _ => Ok(()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("events: {error}");
            ExitCode::FAILURE
        }
    }
}

fn stamps() -> Result<()> {
    let mut out = std::io::stdout().lock();
    for _ in 0..STAMPS {
        std::thread::sleep(PAUSE);
        writeln!(out, "{}", monotonic_ns())?;
        out.flush()?;
    }
    Ok(())
}

fn lines() -> Result<()> {
    let mut out = std::io::stdout().lock();
    for number in 0..LINES {
        writeln!(out, "line {number} of a program that writes")?;
    }
    Ok(())
}

fn measure() -> Result<()> {
    let own = std::env::current_exe()?;
    let cellblock = std::env::var_os("CELLBLOCK").map_or_else(
        || PathBuf::from(env!("CARGO_BIN_EXE_cellblock")),
        PathBuf::from,
    );
    let mut plain = Command::new(&own);
    plain.arg("--stamps");
    let latency_pipe = Summary::of(latencies(&mut plain, |line| line.trim().parse().ok())?);
    let mut cell = in_cell(&cellblock, &own, "--stamps", &["--events", "-"]);
    let latency_event = Summary::of(latencies(&mut cell, stamp_of_event)?);

    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        without.push(run(&mut in_cell(&cellblock, &own, "--lines", &["--json"]))?);
        with.push(run(&mut in_cell(
            &cellblock,
            &own,
            "--lines",
            &["--events", "-"],
        ))?);
    }
    let (run_without, run_with) = (median(without), median(with));
    let per_second = |micros: f64| f64::from(LINES) / micros * 1e6;
    let results = Results {
        schema: "cellblock.bench.events.v1",
        stamps: STAMPS,
        lines: LINES,
        latency_pipe,
        latency_event,
        run_without,
        run_with,
        lines_per_second_without: per_second(run_without),
        lines_per_second_with: per_second(run_with),
    };
    report(&results)
}

fn report(results: &Results) -> Result<()> {
    for (name, latency) in [
        ("plain pipe", &results.latency_pipe),
        ("event", &results.latency_event),
    ] {
        let (median, p99) = (latency.median, latency.p99);
        println!("latency, {name:<10}  median {median:>7.1} µs  p99 {p99:>7.1} µs");
    }
    for (name, micros, rate) in [
        (
            "without",
            results.run_without,
            results.lines_per_second_without,
        ),
        ("with", results.run_with, results.lines_per_second_with),
    ] {
        let millis = micros / 1000.0;
        println!("{LINES} lines, {name:<7}  {millis:>6.1} ms  {rate:>10.0} lines/s");
    }
    let out = Path::new(env!("CARGO_MANIFEST_DIR")).join(OUT);
    fs::create_dir_all(out.with_file_name(""))?;
    fs::write(out, serde_json::to_string_pretty(results)?)?;
    Ok(())
}

/// This program in a cell, in `role`.
fn in_cell(cellblock: &Path, own: &Path, role: &str, options: &[&str]) -> Command {
    let mut command = Command::new(cellblock);
    command
        .args(["exec", "--output", "64M", "--ro"])
        .arg(format!("{}:/own", own.display()))
        .args(options)
        .args(["--", "/own", role]);
    command
}

/// How long each line was on its way, in microseconds; `stamp` finds the time in
/// it.
fn latencies(command: &mut Command, stamp: impl Fn(&str) -> Option<u64>) -> Result<Vec<f64>> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(child.stdout.take().ok_or("no pipe")?);
    let mut found = Vec::new();
    let mut line = String::new();
    while lines.read_line(&mut line)? > 0 {
        let now = monotonic_ns();
        found.extend(stamp(&line).map(|then| now.saturating_sub(then) as f64 / 1e3));
        line.clear();
    }
    if !child.wait()?.success() || found.len() < STAMPS as usize / 2 {
        return Err(format!("{command:?} failed").into());
    }
    Ok(found)
}

/// The first of the times in an event, which waited longest.
fn stamp_of_event(line: &str) -> Option<u64> {
    let event: Value = serde_json::from_str(line).ok()?;
    let is_output = event["event"] == "stdout";
    let text = event["text"].as_str().filter(|_| is_output)?;
    text.lines().next()?.parse().ok()
}

/// How long a run takes whose output is all read, in microseconds.
fn run(command: &mut Command) -> Result<f64> {
    let start = Instant::now();
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut all = Vec::new();
    if let Some(mut out) = child.stdout.take() {
        out.read_to_end(&mut all)?;
    }
    if !child.wait()?.success() || all.len() < LINES as usize {
        return Err(format!("{command:?} failed").into());
    }
    Ok(start.elapsed().as_secs_f64() * 1e6)
}
