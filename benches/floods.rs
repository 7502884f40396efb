//! How late a flooded run ends, and how much memory its supervisor takes.
//!
//! ```text
//! cargo bench --bench floods
//! ```
//!
//! The programs are those of `tests/attacks/floods`: each runs into its limit on real
//! time, and what counts is the time from there until cellblock has written the record
//! and ended, with its start-up and all collecting in it, and the supervisor's largest
//! resident set. That is VmHWM, read every 2 ms: what wait4(2) says would be the largest
//! of the cell's processes. `CELLBLOCK` names another binary than the one cargo built.

use std::error::Error;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const WALL: Duration = Duration::from_secs(2);
const ROUNDS: usize = 5;
const FRAME: &str = include_str!("../tests/attacks/floods/frame.py");

/// A program, and options of its run.
struct Flood {
    name: &'static str,
    language: &'static str,
    code: &'static str,
    options: &'static [&'static str],
}

macro_rules! flood {
    ($name:literal, $language:literal, $file:literal $(, $option:literal)*) => {
        Flood {
            name: $name,
            language: $language,
            code: include_str!(concat!("../tests/attacks/floods/", $file)),
            options: &[$($option),*],
        }
    };
}

const FLOODS: &[Flood] = &[
    flood!("a lingering close", "python", "linger.py"),
    flood!("frames of JSON", "python", "json.py"),
    flood!("frames as long as can be", "python", "one_frame.py"),
    flood!("frames as many as can be", "python", "tiny.py"),
    flood!("errors", "python", "errors.py"),
    flood!("what is no frame", "python", "no_frames.py"),
    flood!("both streams", "python", "streams.py"),
    flood!("denied calls", "python", "denials.py"),
    flood!("all of them", "python", "everything.py"),
    flood!(
        "all of them, with events",
        "python",
        "everything.py",
        "--events",
        "/dev/null"
    ),
    flood!(
        "12 GiB of holes in a file",
        "python",
        "files.py",
        "--workspace-size",
        "16G",
        "--file-size",
        "none"
    ),
    flood!("frames of JSON from Java", "java", "Flood.java"),
];

fn main() -> ExitCode {
    // `cargo test --all-targets` runs this too; there is nothing to test.
    if !std::env::args().any(|arg| arg == "--bench") {
        return ExitCode::SUCCESS;
    }
    match measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("floods: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> Result<()> {
    let cellblock = std::env::var_os("CELLBLOCK").map_or_else(
        || PathBuf::from(env!("CARGO_BIN_EXE_cellblock")),
        PathBuf::from,
    );
    println!("| flood | after its limit, worst of {ROUNDS} | memory |\n|---|---|---|");
    for flood in FLOODS {
        let mut worst = Duration::ZERO;
        let mut memory = 0;
        for _ in 0..ROUNDS {
            let (late, peak) = run(&cellblock, flood)?;
            worst = worst.max(late);
            memory = memory.max(peak);
        }
        println!(
            "| {} | {} ms | {:.1} MiB |",
            flood.name,
            worst.as_millis(),
            memory as f64 / f64::from(1 << 20)
        );
    }
    Ok(())
}

/// The time from the limit to the end, and the peak resident memory in bytes.
fn run(cellblock: &PathBuf, flood: &Flood) -> Result<(Duration, u64)> {
    let wall = format!("{}ms", WALL.as_millis());
    let began = Instant::now();
    let mut child = Command::new(cellblock)
        .args(["run", "--json", "--wall", &wall, "--lang", flood.language])
        .args(flood.options)
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let code = match flood.language {
        "python" => format!("{FRAME}\n{}", flood.code),
        _ => flood.code.to_owned(),
    };
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(code.as_bytes())?;
    }
    let mut peak = 0;
    while child.try_wait()?.is_none() {
        peak = peak.max(high_water(child.id()).unwrap_or(0));
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok((began.elapsed().saturating_sub(WALL), peak))
}

/// The largest resident set of a process so far (proc_pid_status(5)), in bytes.
fn high_water(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib << 10)
}
