//! What `/run_code` costs with many clients at once, beside the same code in a bare
//! `python3`, and whether the server stays as it was.
//!
//! ```text
//! cargo bench --bench doors -- --clients 64 --seconds 600
//! ```
//!
//! Bare interpreters and the server have their turns of a few seconds each, with the same
//! number of callers, until the time is over. Every answer is checked. `CELLBLOCK` names
//! another binary than the one cargo built. Exit status 1 means that an answer was wrong.
//!
//! The machine must be quiet: where the scheduler groups processes by session, each cell is a
//! group of its own, and all bare interpreters are one.

use std::error::Error;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use clap::Parser;
use serde_json::{Value, json};

#[path = "common/stats.rs"]
mod stats;

use stats::{Summary, median};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// How long a turn is.
const TURN: Duration = Duration::from_secs(5);
const CODE: &str = "print(sum(range(1000)))";
const OUTPUT: &str = "499500\n";

#[derive(Parser)]
struct Args {
    /// Callers at once.
    #[arg(long, default_value_t = 64)]
    clients: usize,
    /// How long, in seconds, half of it for the server.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Interpreters that wait.
    #[arg(long, default_value_t = 4)]
    warm: usize,
    /// What cargo passes to a benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    // `cargo test --all-targets` runs this too; there is nothing to test.
    let done = match args.bench {
        true => measure(&args),
        false => Ok(()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("doors: {error}");
            ExitCode::FAILURE
        }
    }
}

struct Server {
    child: Child,
    address: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(args: &Args) -> Result<Self> {
        let own = std::env::var("CELLBLOCK").unwrap_or(env!("CARGO_BIN_EXE_cellblock").to_owned());
        let mut child = Command::new(own)
            .args(["serve", "--rootfs", "host", "--http", "127.0.0.1:0"])
            .args([
                "--max-clients",
                "4096",
                "--warm",
                &format!("python:{}", args.warm),
            ])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(child.stderr.take().ok_or("no stderr")?).read_line(&mut line)?;
        let address = line.trim().split_once("http://").ok_or("no address")?.1;
        let address = address.to_owned();
        Ok(Self { child, address })
    }

    /// Resident memory of the front end, in KiB.
    fn memory(&self) -> Result<u64> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next());
        Ok(number.ok_or("no VmRSS")?.parse()?)
    }

    fn run_code(&self) -> Result<()> {
        let body = json!({"code": CODE, "language": "python", "run_timeout": 30}).to_string();
        let mut socket = TcpStream::connect(&self.address)?;
        write!(
            socket,
            "POST /run_code HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        )?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer)?;
        let (_, body) = answer.split_once("\r\n\r\n").ok_or("no answer")?;
        let value: Value = serde_json::from_str(body)?;
        match value["run_result"]["stdout"] == OUTPUT {
            true => Ok(()),
            false => Err(answer.into()),
        }
    }
}

fn bare() -> Result<()> {
    let output = Command::new("python3").args(["-I", "-c", CODE]).output()?;
    match output.stdout == OUTPUT.as_bytes() {
        true => Ok(()),
        false => Err("python3 is wrong".into()),
    }
}

/// Has all callers call until the turn is over; returns the times in microseconds.
fn turn(clients: usize, call: impl Fn() -> Result<()> + Sync) -> Result<(Vec<f64>, Duration)> {
    let began = Instant::now();
    let times = Mutex::new(Vec::new());
    let wrong = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| {
                let mut own = Vec::new();
                while began.elapsed() < TURN {
                    let start = Instant::now();
                    if let Err(error) = call() {
                        *wrong.lock().unwrap() = Some(error);
                        return;
                    }
                    own.push(start.elapsed().as_secs_f64() * 1e6);
                }
                times.lock().unwrap().extend(own);
            });
        }
    });
    match wrong.into_inner().unwrap() {
        Some(error) => Err(error),
        None => Ok((times.into_inner().unwrap(), began.elapsed())),
    }
}

/// Calls a second.
fn rate((times, took): &(Vec<f64>, Duration)) -> f64 {
    times.len() as f64 / took.as_secs_f64()
}

fn measure(args: &Args) -> Result<()> {
    let server = Server::start(args)?;
    let turns = (args.seconds / (2 * TURN.as_secs())).max(1);
    let mut all = [(Vec::new(), Duration::ZERO), (Vec::new(), Duration::ZERO)];
    // What is kept for the first calls is no growth.
    turn(args.clients, || server.run_code())?;
    let before = server.memory()?;
    let mut ratios = Vec::new();
    for _ in 0..turns {
        let of_bare = turn(args.clients, bare)?;
        let of_server = turn(args.clients, || server.run_code())?;
        ratios.push(rate(&of_server) / rate(&of_bare));
        for (sum, part) in all.iter_mut().zip([of_bare, of_server]) {
            sum.0.extend(part.0);
            sum.1 += part.1;
        }
    }
    let after = server.memory()?;
    for (name, sum) in ["python3", "/run_code"].iter().zip(all) {
        let rate = rate(&sum);
        let summary = Summary::of(sum.0);
        println!(
            "{name:10} {rate:7.1} a second, median {:.1} ms, p99 {:.1} ms",
            summary.median / 1e3,
            summary.p99 / 1e3
        );
    }
    println!(
        "ratio of the rates, median of {turns} turns: {:.2}",
        median(ratios)
    );
    println!("front end: {before} KiB before, {after} KiB after");
    Ok(())
}
