//! Whether a server is after many executions what it was before, and how many contexts
//! it can hold.
//!
//! ```text
//! cargo bench --bench soak -- --executions 50000
//! cargo bench --bench soak -- --contexts 1000
//! ```
//!
//! The first mixes executions in contexts, pools, blank cells and forks with exceptions,
//! timeouts, cancels, interrupts, killed interpreters, rewinds and clients that vanish, by
//! several clients at once. Each answer is checked. Memory, processes, descriptors,
//! cgroups, mounts and files of the server are compared before and after, and latencies of
//! the first tenth with those of the last. The second opens that many contexts at once,
//! has all of them answer, twice, and reports the memory of each.
//!
//! Started as root, the server is that of a plain user. `CELLBLOCK` names another binary
//! than the one cargo built. Exit status 1 means that something was wrong or left.

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;

mod client;
mod footprint;
mod many;
#[path = "../common/plain.rs"]
mod plain;
mod server;
#[path = "../common/stats.rs"]
mod stats;
mod work;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[derive(Parser)]
struct Args {
    /// Executions, mixed.
    #[arg(long, default_value_t = 5000)]
    executions: usize,
    /// Clients at once.
    #[arg(long, default_value_t = 4)]
    clients: usize,
    /// Open this many contexts at once instead.
    #[arg(long)]
    contexts: Option<usize>,
    /// Open them without a pause, however few interpreters wait.
    #[arg(long)]
    burst: bool,
    /// Modules that the template loads; empty for no template.
    #[arg(long, default_value = "decimal,json")]
    preload: String,
    /// Start the server as root, when root runs this.
    #[arg(long)]
    as_root: bool,
    /// What cargo passes to a benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match args.contexts {
        // `cargo test --all-targets` runs this too; there is nothing to test.
        _ if !args.bench => Ok(()),
        Some(count) => many::measure(&args, count),
        None => work::measure(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("soak: {error}");
            ExitCode::FAILURE
        }
    }
}
