//! How soon code in a context ends when it is interrupted.
//!
//! ```text
//! cargo bench --bench interrupts -- [--rounds N] [--language NAME]... [--rootfs]
//! ```
//!
//! A server has one context of each language. Its code writes a word and goes on without
//! end; when the word has arrived, `context.interrupt` is sent, and the time until the
//! answer to the execution is taken. Each answer must say that the state was kept. The rows
//! take turns, so that all of them see the same machine.
//!
//! With `--rootfs`, the cells have the prepared rootfs of each language instead of the
//! host's. `CELLBLOCK` names another binary than the one cargo built. The results go to
//! `target/bench/interrupts.json`.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use nix::unistd::Uid;
use serde::Serialize;
use serde_json::json;

#[path = "../soak/client.rs"]
#[allow(dead_code, reason = "the soak needs more of it")]
mod client;
#[path = "../common/machine.rs"]
mod machine;
#[path = "../common/results.rs"]
mod results;
#[path = "../common/stats.rs"]
#[allow(dead_code, reason = "other benchmarks need more of it")]
mod stats;

use client::Client;
use stats::Summary;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

#[derive(Parser)]
struct Args {
    /// Interrupts of each row.
    #[arg(long, default_value_t = 100)]
    rounds: usize,
    /// Measure this language only (repeatable).
    #[arg(long)]
    language: Vec<String>,
    /// Measure in the prepared rootfs of each language.
    #[arg(long)]
    rootfs: bool,
    /// Where the results go.
    #[arg(long, default_value = "target/bench/interrupts.json")]
    out: PathBuf,
    /// What cargo passes to a benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Code that writes a word and then goes on without end.
struct Endless {
    language: &'static str,
    what: &'static str,
    code: &'static str,
}

const fn endless(language: &'static str, what: &'static str, code: &'static str) -> Endless {
    Endless {
        language,
        what,
        code,
    }
}

const ROWS: [Endless; 15] = [
    endless(
        "python",
        "a loop",
        "print('go', flush=True)\nwhile True: pass",
    ),
    endless(
        "python",
        "waiting",
        "print('go', flush=True)\nimport time; time.sleep(1000)",
    ),
    endless("javascript", "a loop", "console.log('go'); while (true) {}"),
    endless(
        "javascript",
        "waiting",
        "console.log('go'); await new Promise((r) => setTimeout(r, 1e6))",
    ),
    endless(
        "javascript",
        "a loop after waiting",
        "await new Promise((r) => setTimeout(r, 1)); console.log('go'); while (true) {}",
    ),
    endless(
        "javascript",
        "a loop in a callback",
        "await new Promise((r) => require('fs').stat('/', () => { console.log('go'); while (true) {} }))",
    ),
    endless("r", "a loop", "cat('go\\n'); repeat {}"),
    endless("r", "waiting", "cat('go\\n'); Sys.sleep(1000)"),
    endless(
        "java",
        "a loop",
        "System.out.println(\"go\"); while (true) {}",
    ),
    endless(
        "java",
        "waiting",
        "System.out.println(\"go\"); Thread.sleep(1000000);",
    ),
    endless("bash", "a loop", "echo go; while :; do :; done"),
    endless("bash", "waiting", "echo go; sleep 1000"),
    endless(
        "bash",
        "a loop of programs",
        "echo go; while :; do /bin/true; done",
    ),
    endless(
        "bash",
        "a loop of subshells",
        "echo go; while :; do x=$(echo 7); done",
    ),
    endless("bash", "a pipeline", "echo go; yes | cat > /dev/null"),
];

/// Times in microseconds.
#[derive(Serialize)]
struct Results {
    schema: &'static str,
    machine: machine::Machine,
    rows: Vec<Row>,
    skipped: Vec<String>,
}

#[derive(Serialize)]
struct Row {
    language: &'static str,
    what: &'static str,
    /// From the interrupt to the answer.
    latency: Summary,
}

fn main() -> ExitCode {
    let args = Args::parse();
    // `cargo test --all-targets` runs this too; there is nothing to test.
    if !args.bench {
        return ExitCode::SUCCESS;
    }
    match measure(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("interrupts: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(args: &Args) -> Result<()> {
    let cellblock = std::env::var_os("CELLBLOCK")
        .map_or_else(|| env!("CARGO_BIN_EXE_cellblock").into(), PathBuf::from);
    let uid = Uid::effective().as_raw();
    let machine = machine::Machine::gather(&cellblock, uid, &["node", "Rscript", "java"]);
    print!("{machine}");
    let directory = tempfile::tempdir()?;
    let server = Server::start(&cellblock, directory.path(), args.rootfs)?;
    let mut client = server.connect()?;
    let (mut series, mut skipped) = (Vec::new(), Vec::new());
    for row in &ROWS {
        if !args.language.is_empty() && !args.language.iter().any(|name| name == row.language) {
            continue;
        }
        let request = json!({"language": row.language});
        let params = json!({"request": request, "context": name(row)});
        match client.call("context.create", params) {
            Ok(_) => series.push((row, Vec::new())),
            Err(error) => skipped.push(format!("{}: {error}", row.language)),
        }
    }
    for _ in 0..args.rounds {
        for (row, times) in &mut series {
            times.push(interrupted(&mut client, row)?);
        }
    }
    println!("\nms          code                     median    p90    p99  rounds");
    let rows: Vec<Row> = (series.into_iter())
        .map(|(row, times)| Row {
            language: row.language,
            what: row.what,
            latency: Summary::of(times),
        })
        .collect();
    for Row {
        language,
        what,
        latency,
    } in &rows
    {
        println!(
            "{language:<11} {what:<22} {:>8.1} {:>6.1} {:>6.1} {:>7}",
            latency.median / 1e3,
            latency.p90 / 1e3,
            latency.p99 / 1e3,
            latency.runs
        );
    }
    skipped.dedup();
    for why in &skipped {
        println!("skipped: {why}");
    }
    let results = Results {
        schema: "cellblock.bench.interrupts.v1",
        machine,
        rows,
        skipped,
    };
    results::write(&args.out, &results)
}

fn name(row: &Endless) -> String {
    let what = row.what.replace(' ', "-");
    format!("{}-{what}", row.language)
}

/// Interrupts the code once; the time until its answer, in microseconds.
fn interrupted(client: &mut Client, row: &Endless) -> Result<f64> {
    let params = json!({"context": name(row), "code": row.code, "events": true});
    let execution = client.send("context.run", params)?;
    client.begun(execution)?;
    // It is to go on for a while.
    std::thread::sleep(Duration::from_millis(20));
    let began = Instant::now();
    client.send(
        "context.interrupt",
        json!({"context": name(row), "grace": "60s"}),
    )?;
    let answer = client.result(execution)?;
    let took = began.elapsed();
    match answer["state"] == "kept" {
        true => Ok(took.as_secs_f64() * 1e6),
        false => Err(format!("{}, {}: {}", row.language, row.what, answer["why"]).into()),
    }
}

/// A server; it is killed in the end.
struct Server {
    child: Child,
    socket: PathBuf,
}

impl Server {
    fn start(cellblock: &Path, directory: &Path, is_prepared: bool) -> Result<Self> {
        let socket = directory.join("socket");
        let mut command = Command::new(cellblock);
        command.args(["serve", "--listen", &format!("unix:{}", socket.display())]);
        if !is_prepared {
            command.args(["--rootfs", "host"]);
        }
        let child = command
            .env("TMPDIR", directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Self { child, socket })
    }

    fn connect(&self) -> Result<Client> {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            match Client::connect(&self.socket) {
                Ok(client) => return Ok(client),
                Err(error) if Instant::now() > until => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
