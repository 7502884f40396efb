//! What the doors cost, their clients included.
//!
//! ```text
//! cargo bench --bench doors --target x86_64-unknown-linux-musl
//! cargo bench --bench doors -- --row e2b --runs 20
//! cargo bench --bench doors -- --row sustained --seconds 600
//! ```
//!
//! Rows are timed call by call, in an order that is shuffled for each round, and compared with P, a
//! bare `python3 -I -c 1` in the same run. E2B's SDK is that of `target/doors/venv`, where
//! tests/doors/run installs it; `E2B_PYTHON` names another Python that has it.
//!
//! `sustained` has many clients call `/run_code` at once, alternating with the same number that
//! start a bare `python3` with the same code, and looks at the server's memory each minute. Every
//! answer is checked. On a busy machine, only the ratio for the same processor time is meaningful.
//! The ratio of the rates needs a quiet machine: where the scheduler groups processes by session,
//! each cell is a group of its own, but all bare interpreters are in one.
//!
//! `hostile` times an honest client's runs beside `--clients` clients of another token, which send
//! what takes the most memory and time.
//!
//! `many` measures the serving process with many sandboxes, and with many open connections.
//!
//! Started as root, the harness measures servers of a plain user. `CELLBLOCK` names another
//! binary than the one cargo built. The results go to `target/bench/doors.json`. Exit status 1
//! means that an answer was wrong.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

#[path = "../common/bare.rs"]
mod bare;
mod client;
mod hostile;
mod load;
#[path = "../common/machine.rs"]
mod machine;
mod many;
#[path = "../common/plain.rs"]
mod plain;
#[path = "../common/pools.rs"]
mod pools;
#[path = "../common/processes.rs"]
mod processes;
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

type Failure = Box<dyn Error + Send + Sync>;
type Result<T> = std::result::Result<T, Failure>;

#[derive(Parser)]
struct Args {
    /// How often each row is timed.
    #[arg(long, default_value_t = 200)]
    runs: usize,
    /// Milliseconds of rest between two rows, in which servers refill.
    #[arg(long, default_value_t = 30)]
    rest: u64,
    /// Callers at once in `sustained` and `hostile`.
    #[arg(long, default_value_t = 64)]
    clients: usize,
    /// Seconds of `sustained`, half of them for the server; 0 leaves it out.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Interpreters that wait in `sustained`.
    #[arg(long, default_value_t = 4)]
    warm: usize,
    /// Modules of the template from which the interpreters in `sustained` are forked; without it
    /// they are started.
    #[arg(long)]
    preload: Option<String>,
    /// Sandboxes at once in `many`; 0 leaves it out.
    #[arg(long, default_value_t = 500)]
    sandboxes: usize,
    /// Open connections at once in `many`.
    #[arg(long, default_value_t = 2000)]
    connections: usize,
    /// Measure only parts with this in their name (repeatable): a row, `sustained`, `many` or `hostile`.
    #[arg(long)]
    row: Vec<String>,
    /// Where the results go.
    #[arg(long, default_value = "target/bench/doors.json")]
    out: PathBuf,
    /// Act as the process that starts and times others: with this uid.
    #[arg(long, hide = true)]
    worker: Option<u32>,
    /// What cargo passes to a benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match args.worker {
        Some(uid) => worker::serve(uid, false),
        // `cargo test --all-targets` runs this too; there is nothing to test.
        None if !args.bench => Ok(()),
        None => measure(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("doors: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(args: &Args) -> Result<()> {
    let scene = scene::Scene::prepare()?;
    let machine = machine::Machine::gather(&scene.cellblock, scene.uid, &["/usr/bin/python3"]);
    print!("{machine}");
    let is_wanted = |name: &str| {
        args.row.is_empty() || args.row.iter().any(|part| name.contains(part.as_str()))
    };
    let series = times(&scene, args, is_wanted)?;
    let mut results = report::Results::of(machine, series);
    if is_wanted("sustained") && args.seconds > 0 {
        results.sustained = Some(sustained::Sustained::measure(&scene, args)?);
    }
    if is_wanted("many") && args.sandboxes > 0 {
        results.many = Some(many::Many::measure(&scene, args)?);
    }
    if is_wanted("hostile") {
        results.hostile = Some(hostile::Hostile::measure(&scene, args)?);
    }
    print!("{}", results.tables());
    results::write(&args.out, &results)
}

/// The times of the wanted rows, in microseconds. The first row is P.
fn times(
    scene: &scene::Scene,
    args: &Args,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<Vec<(&'static rows::Row, Vec<f64>)>> {
    let mut rows = Vec::new();
    for row in rows::ALL.iter().filter(|row| is_wanted(row.name)) {
        match row.prepare(scene) {
            Ok(ready) => rows.push((row, ready)),
            Err(error) => println!("skipped: {}: {error}", row.name),
        }
    }
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    rows.insert(0, (&rows::BASE, rows::BASE.prepare(scene)?));
    rounds::time(rows, |row| row.name, args.runs, args.rest)
}
