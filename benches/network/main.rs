//! What allowed hosts cost a cell, beside a direct connection, pasta, a proxy, and a relay
//! that looks at nothing.
//!
//! ```text
//! cargo bench --bench network --target x86_64-unknown-linux-musl
//! ```
//!
//! Everything is in a network namespace of this benchmark's own, whose server answers at a
//! public address. The client is the host's `curl`. Rows take turns, in an order shuffled
//! for each round, and what counts are ratios to the direct connection in the same round.
//! The processor time is that of all: client, server, and what is between them. It depends
//! less than a rate on what else the machine does.
//!
//! For root. `pasta` and `tinyproxy` are measured where the host has them. `CELLBLOCK` names
//! another binary than the one cargo built. The results go to `target/bench/network.json`.

#[expect(dead_code, reason = "tests use the rest")]
#[path = "../../tests/support/internet.rs"]
mod internet;
mod memory;
mod outside;
mod peers;
mod relay;
#[path = "../common/results.rs"]
mod results;
#[path = "../common/shuffle.rs"]
mod shuffle;
#[path = "../common/stats.rs"]
mod stats;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use serde::Serialize;

use outside::{GIGABYTE, Outside};
use peers::{Peer, Request};
use stats::{Summary, median};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

#[derive(Parser)]
struct Args {
    /// How often each row carries a gigabyte.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// How many requests each row makes in a round.
    #[arg(long, default_value_t = 100)]
    requests: usize,
    /// How many pairs of cells are started, without and with an allowed host.
    #[arg(long, default_value_t = 200)]
    starts: usize,
    /// Where the results go.
    #[arg(long, default_value = "target/bench/network.json")]
    out: PathBuf,
    /// What cargo passes to a benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

/// One way to the server.
#[derive(Serialize)]
struct Row {
    name: &'static str,
    /// Megabytes a second, median.
    rate: f64,
    /// The median of the rates' ratios to the direct one's in the same round.
    of_direct: f64,
    /// Processor time for a gigabyte, in milliseconds, median.
    cpu_ms: f64,
    /// Microseconds of connect(2), of the first request on a connection from there, and of a
    /// later one.
    connect: Summary,
    first: Summary,
    later: Summary,
}

#[derive(Serialize)]
struct Results {
    rows: Vec<Row>,
    /// Microseconds of a cell's start without network, and with an allowed host.
    start_none: Summary,
    start_allow: Summary,
    /// The median of the pairs' differences, in microseconds.
    start_more: f64,
    /// Bytes of the broker's own memory for each count of open connections.
    memory: Vec<(usize, u64)>,
    load: String,
}

fn main() -> ExitCode {
    let args = Args::parse();
    // `cargo test --all-targets` runs this too; there is nothing to test.
    let done = if args.bench { measure(&args) } else { Ok(()) };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("network: {error}");
            ExitCode::FAILURE
        }
    }
}

#[derive(Default)]
struct Series {
    rates: Vec<f64>,
    ratios: Vec<f64>,
    cpu: Vec<f64>,
    connect: Vec<f64>,
    first: Vec<f64>,
    later: Vec<f64>,
}

fn measure(args: &Args) -> Result<()> {
    let load = std::fs::read_to_string("/proc/loadavg")?;
    let outside = Outside::new()?;
    let peers: Vec<Peer> = Peer::all(&outside);
    let mut series: Vec<Series> = peers.iter().map(|_| Series::default()).collect();
    let mut order: Vec<usize> = (0..peers.len()).collect();
    let mut shuffle = shuffle::Shuffle::new();
    for _ in 0..args.rounds {
        shuffle.of(&mut order);
        for &index in &order {
            let (peer, series) = (&peers[index], &mut series[index]);
            let big = peer.fetch(Request::Big)?;
            series.rates.push(GIGABYTE as f64 / big.seconds / 1e6);
            series.cpu.push(big.cpu_ms);
            for time in peer.times(Request::Apart(args.requests))? {
                series.connect.push(time.connect);
                series.first.push(time.rest);
            }
            let mut again = peer.times(Request::Together(args.requests))?;
            // The first one connects.
            again.drain(..1);
            series.later.extend(again.iter().map(|time| time.rest));
        }
        let direct = series[0].rates.last().copied().unwrap_or(1.0);
        for one in &mut series {
            one.ratios
                .push(one.rates.last().copied().unwrap_or(0.0) / direct);
        }
    }
    let rows = peers.iter().zip(series).map(|(peer, series)| Row {
        name: peer.name,
        rate: median(series.rates),
        of_direct: median(series.ratios),
        cpu_ms: median(series.cpu),
        connect: Summary::of(series.connect),
        first: Summary::of(series.first),
        later: Summary::of(series.later),
    });
    let rows: Vec<Row> = rows.collect();
    let (none, allow) = starts(args.starts, &outside)?;
    let more = none.iter().zip(&allow).map(|(none, allow)| allow - none);
    let results = Results {
        rows,
        start_more: median(more.collect()),
        start_none: Summary::of(none),
        start_allow: Summary::of(allow),
        memory: memory::of_connections(&outside, &[1, 1000])?,
        load: load.trim().to_owned(),
    };
    print!("{}", results.table());
    results::write(&args.out, &results)
}

/// Times of starts in microseconds, in pairs that begin with either.
fn starts(pairs: usize, outside: &Outside) -> Result<(Vec<f64>, Vec<f64>)> {
    let mut times = [Vec::new(), Vec::new()];
    let networks = ["none", "allow=bench.example"];
    // The first ones warm up.
    for pair in 0..pairs + 3 {
        for turn in 0..2 {
            let which = (pair + turn) % 2;
            let took = outside.start_of_cell(networks[which])?;
            if pair >= 3 {
                times[which].push(took.as_secs_f64() * 1e6);
            }
        }
    }
    let [none, allow] = times;
    Ok((none, allow))
}

impl Results {
    fn table(&self) -> String {
        let mut text = format!(
            "load {}\n\n{:<24} {:>7} {:>9} {:>10} {:>9} {:>8} {:>8}\n",
            self.load,
            "1 GiB by curl",
            "MB/s",
            "of direct",
            "CPU ms/GiB",
            "connect",
            "first",
            "later"
        );
        for row in &self.rows {
            text += &format!(
                "{:<24} {:>7.0} {:>9.2} {:>10.0} {:>6.0} µs {:>5.0} µs {:>5.0} µs\n",
                row.name,
                row.rate,
                row.of_direct,
                row.cpu_ms,
                row.connect.median,
                row.first.median,
                row.later.median,
            );
        }
        text += &format!(
            "\nstart of a cell: {:.0} µs without network, {:.0} µs with a host; {:+.0} µs in pairs\n",
            self.start_none.median, self.start_allow.median, self.start_more
        );
        for (count, bytes) in &self.memory {
            text += &format!(
                "{count} connections: {} KiB of the broker's own\n",
                bytes / 1024
            );
        }
        text
    }
}
