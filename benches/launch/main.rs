//! How long a launch takes beside other sandboxes doing the same work, and what
//! the supervisor costs meanwhile.
//!
//! ```text
//! cargo bench --bench launch --target x86_64-unknown-linux-musl
//! ```
//!
//! Every subject runs `/bin/true` once a round, in an order shuffled for each
//! round, so that the machine's moods meet all alike: the ratios are what
//! counts. The peers get the mounts that `cellblock plan` prints; what else they
//! do stands in the table. Started as root, the harness measures as a plain user.
//!
//! `CELLBLOCK` names another binary than the one cargo built. The results go to
//! `target/bench/launch.json`, and beside those of `--compare FILE` (by default
//! the file that is about to be replaced) into the table.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

mod chart;
#[path = "../common/machine.rs"]
mod machine;
mod mounts;
mod oci;
#[path = "../common/plain.rs"]
mod plain;
#[path = "../common/record.rs"]
mod record;
mod report;
#[path = "../common/results.rs"]
mod results;
mod scene;
mod series;
#[path = "../common/shuffle.rs"]
mod shuffle;
#[path = "../common/stats.rs"]
mod stats;
mod subjects;
#[path = "../common/worker.rs"]
mod worker;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

#[derive(Parser)]
struct Args {
    /// Launches of each subject.
    #[arg(long, default_value_t = 300)]
    runs: usize,
    /// Where the results go.
    #[arg(long, default_value = "target/bench/launch.json")]
    out: PathBuf,
    /// Results to compare with; by default those that OUT holds already.
    #[arg(long)]
    compare: Option<PathBuf>,
    /// Act as the process that starts and times others: with this uid.
    #[arg(long, hide = true)]
    worker: Option<u32>,
    /// For a worker: with cgroup v2 alone.
    #[arg(long, hide = true)]
    unified: bool,
    /// What cargo passes to a benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match args.worker {
        Some(uid) => worker::serve(uid, args.unified),
        // `cargo test --all-targets` runs this too; there is nothing to test.
        None if !args.bench => Ok(()),
        None => measure(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("launch: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The programs whose versions are recorded.
const PROGRAMS: [&str; 4] = ["bwrap", "crun", "runc", "/usr/bin/python3"];

fn measure(args: &Args) -> Result<()> {
    let mut scene = scene::Scene::prepare()?;
    let results = report::Results {
        schema: report::SCHEMA.to_owned(),
        machine: machine::Machine::gather(&scene.cellblock, scene.uid, &PROGRAMS),
        launch: series::launches(&mut scene, args.runs)?,
        per_second: series::per_second(&mut scene, args.runs)?,
        run: series::run_adds(&mut scene, args.runs)?,
        supervisor: series::supervisor(&mut scene)?,
    };
    let earlier = report::Results::read(args.compare.as_deref().unwrap_or(&args.out));
    print!("{}", results.table(earlier.as_ref()));
    results::write(&args.out, &results)
}
