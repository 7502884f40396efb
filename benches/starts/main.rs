//! How long starts take that were prepared: in cells that wait, and in contexts.
//!
//! ```text
//! cargo bench --bench starts --target x86_64-unknown-linux-musl
//! cargo bench --bench starts --target x86_64-unknown-linux-musl -- --row pandas --runs 20
//! ```
//!
//! Each row is one way to have work done, timed from the request to its answer. All rows
//! take turns in one run, in an order shuffled for each round, so that the machine's moods
//! meet all alike. What counts is the ratio to one of two commands in the same run: B is
//! `bwrap --unshare-all --ro-bind / / /bin/true`, P is `python3 -I -c 1`. Rows with a goal
//! are printed beside it, also where it is missed.
//!
//! Between two rounds there is a pause in which servers refill what they keep ready: that
//! work is not part of a start. `--rest 0` leaves the pause out.
//!
//! After the rounds come the memory of idle contexts (`--row idle`), and calls on all
//! processors for a minute, by turns with bare Python (`--row sustained`). Rows of pandas need the rootfs `python-data` in the
//! plain user's store (`XDG_DATA_HOME`).
//!
//! Started as root, the harness measures as a plain user. `CELLBLOCK` names another binary
//! than the one cargo built. The results go to `target/bench/starts.json`.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

#[path = "../common/bare.rs"]
mod bare;
mod front;
#[path = "../common/machine.rs"]
mod machine;
mod memory;
#[path = "../common/plain.rs"]
mod plain;
#[path = "../common/pools.rs"]
mod pools;
#[path = "../common/processes.rs"]
mod processes;
#[path = "../common/record.rs"]
mod record;
mod report;
#[path = "../common/results.rs"]
mod results;
#[path = "../common/rounds.rs"]
mod rounds;
mod rows;
#[path = "../common/scene.rs"]
mod scene;
mod server;
#[path = "../common/shuffle.rs"]
mod shuffle;
#[path = "../common/stats.rs"]
mod stats;
mod sustained;
#[path = "../common/worker.rs"]
mod worker;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

#[derive(Parser)]
struct Args {
    /// How often each row is timed.
    #[arg(long, default_value_t = 200)]
    runs: usize,
    /// Milliseconds of rest between two rows, in which servers refill.
    #[arg(long, default_value_t = 30)]
    rest: u64,
    /// Seconds for which calls are made on all processors; 0 leaves that out.
    #[arg(long, default_value_t = 60)]
    sustain: u64,
    /// Time only the rows whose names contain this (repeatable).
    #[arg(long)]
    row: Vec<String>,
    /// Where the results go.
    #[arg(long, default_value = "target/bench/starts.json")]
    out: PathBuf,
    /// Act as the process that starts and times others: with this uid.
    #[arg(long, hide = true)]
    worker: Option<u32>,
    /// Act as a front end, with this uid.
    #[arg(long, hide = true)]
    front: Option<u32>,
    /// For a front end: with blank cells.
    #[arg(long, hide = true)]
    blank: bool,
    /// What cargo passes to a benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match (args.worker, args.front) {
        (Some(uid), _) => worker::serve(uid, false),
        (_, Some(uid)) => front::serve(uid, args.blank),
        // `cargo test --all-targets` runs this too; there is nothing to test.
        _ if !args.bench => Ok(()),
        _ => measure(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("starts: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(args: &Args) -> Result<()> {
    let scene = scene::Scene::prepare()?;
    let machine =
        machine::Machine::gather(&scene.cellblock, scene.uid, &["bwrap", "/usr/bin/python3"]);
    print!("{machine}");
    let is_wanted = |name: &str| {
        args.row.is_empty() || args.row.iter().any(|part| name.contains(part.as_str()))
    };
    let mut rows = Vec::new();
    for row in rows::ALL {
        if !row.is_base() && !is_wanted(row.name) {
            continue;
        }
        match row.prepare(&scene) {
            Ok(ready) => rows.push((row, ready)),
            Err(error) => println!("skipped: {}: {error}", row.name),
        }
    }
    let series = rounds::time(rows, |row| row.name, args.runs, args.rest)?;
    let mut results = report::Results::of(machine, series);
    if is_wanted("idle") {
        let about = "an idle Python context beyond the first";
        results
            .idle
            .push(memory::Idle::measure(&scene, about, &[])?);
        let about = "the same, forked from a template";
        let options = ["--warm", "python:2", "--preload", "json"];
        results
            .idle
            .push(memory::Idle::measure(&scene, about, &options)?);
    }
    if is_wanted("sustained") && args.sustain > 0 {
        match sustained::Sustained::measure(&scene, args.sustain) {
            Ok(measured) => results.sustained = Some(measured),
            Err(error) => println!("skipped: sustained: {error}"),
        }
    }
    print!("{}", results.table());
    results::write(&args.out, &results)
}
