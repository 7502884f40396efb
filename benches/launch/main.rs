//! What one call of cellblock costs beside fixed references: the executable of the commit in
//! `REFERENCE`, other sandboxes that do the same work, and the bare program.
//!
//! ```text
//! cargo bench --bench launch --target x86_64-unknown-linux-musl
//! ```
//!
//! Every subject is called once a round, in an order shuffled for each round, so that the
//! machine's moods meet all alike: the ratios are what counts. bwrap, crun and runc get the
//! mounts that `cellblock plan` prints; what is not installed is left out and named. Started
//! as root, the harness measures as a plain user.
//!
//! The reference is built once, as it would be shipped, and kept in `target/bench`.
//! `CELLBLOCK` names another executable to measure than the one that cargo built. The table
//! is Markdown, for docs/PERFORMANCE.md; the same as JSON goes to `target/bench/launch.json`.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

#[path = "../common/machine.rs"]
mod machine;
mod mounts;
mod oci;
#[path = "../common/plain.rs"]
mod plain;
#[path = "../common/record.rs"]
mod record;
mod reference;
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
mod supervisor;
#[path = "../common/worker.rs"]
mod worker;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

#[derive(Parser)]
struct Args {
    /// Calls of each subject.
    #[arg(long, default_value_t = 200)]
    runs: usize,
    /// Where the results go.
    #[arg(long, default_value = "target/bench/launch.json")]
    out: PathBuf,
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
const PROGRAMS: [&str; 6] = [
    "bwrap",
    "crun",
    "runc",
    "/usr/bin/python3",
    "/usr/bin/bash",
    "/usr/bin/node",
];

fn measure(args: &Args) -> Result<()> {
    let mut scene = scene::Scene::prepare()?;
    let calls = subjects::all(&mut scene)?;
    let results = report::Results {
        schema: report::SCHEMA.to_owned(),
        machine: machine::Machine::gather(&scene.cellblock, scene.uid, &PROGRAMS),
        reference: reference::commit().to_owned(),
        calls: series::measure(&mut scene, calls, args.runs)?,
        supervisor: supervisor::measure(&mut scene)?,
    };
    print!("{results}");
    results::write(&args.out, &results)
}
