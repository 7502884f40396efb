//! What the broker costs, beside a direct connection: `BROKER_FIGURES=1 cargo test --release
//! -p broker --test net figures -- --nocapture`.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::Scenario;
use crate::apart::skip;
use crate::carries::everywhere;
use crate::internet::{echo, serve};
use crate::rig::{Rig, config, internet};

pub(crate) const SCENARIOS: &[Scenario] = &[("figures/all", all)];

const BYTES: usize = 1 << 30;
const ROUNDS: usize = 5;
const SAMPLES: usize = 500;

fn median(mut samples: Vec<Duration>) -> Duration {
    samples.sort_unstable();
    samples[samples.len() / 2]
}

/// One gigabyte from the server, in MB a second.
fn throughput(connect: &dyn Fn() -> TcpStream) -> u64 {
    let mut stream = connect();
    let begun = Instant::now();
    stream.write_all(b"\x01").unwrap();
    let mut buffer = vec![0; 256 << 10];
    let mut left = BYTES;
    while left > 0 {
        left -= stream.read(&mut buffer).unwrap();
    }
    (BYTES as f64 / begun.elapsed().as_secs_f64() / 1e6) as u64
}

/// What connecting, a first request and one on the same connection take.
fn latency(connect: &dyn Fn() -> TcpStream) -> [Duration; 3] {
    let mut times: [Vec<Duration>; 3] = Default::default();
    for _ in 0..SAMPLES {
        let begun = Instant::now();
        let mut stream = connect();
        times[0].push(begun.elapsed());
        for time in &mut times[1..] {
            let begun = Instant::now();
            stream.write_all(b"\x01x").unwrap();
            stream.read_exact(&mut [0; 2]).unwrap();
            time.push(begun.elapsed());
        }
    }
    times.map(median)
}

fn all() {
    if std::env::var_os("BROKER_FIGURES").is_none() {
        skip("without BROKER_FIGURES=1");
    }
    let internet = internet();
    serve("93.184.216.34:7000", |mut stream| {
        let _ = stream.read(&mut [0]);
        let chunk = vec![1; 256 << 10];
        for _ in 0..BYTES / chunk.len() {
            stream.write_all(&chunk).unwrap();
        }
    });
    serve("93.184.216.34:7001", echo);
    let resolver = everywhere("93.184.216.34");
    let mut config = config(&["example.com:7000", "example.com:7001"], &resolver);
    config.limits.connections_per_second = None;
    let rig = Rig::start(&internet, &config);
    let address = rig.address("example.com");
    // Processor time depends less on what else the machine does.
    let used = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", rig.pid())).unwrap();
        let fields = stat.rsplit(") ").next().unwrap().split(' ');
        let ticks: Vec<u64> = fields
            .skip(11)
            .take(2)
            .map(|f| f.parse().unwrap())
            .collect();
        // A tick is 10 ms (proc_pid_stat(5)).
        ticks.iter().map(|ticks| ticks * 10).collect::<Vec<_>>()
    };
    let before = used();
    rig.inside(|| {
        let connect = |port: u16| {
            move || {
                let stream = TcpStream::connect((address, port)).unwrap();
                stream.set_nodelay(true).unwrap();
                stream
            }
        };
        let rates: Vec<u64> = (0..ROUNDS).map(|_| throughput(&connect(7000))).collect();
        let spent: Vec<u64> = used()
            .iter()
            .zip(&before)
            .map(|(after, before)| (after - before) / ROUNDS as u64)
            .collect();
        println!("the broker's processor time for a gigabyte: {spent:?} ms, user and system");
        println!(
            "through the broker: {rates:?} MB/s, {:?} to connect, request, again",
            latency(&connect(7001))
        );
    });
    let direct = |port: u16| {
        move || {
            let stream = TcpStream::connect(("93.184.216.34", port)).unwrap();
            stream.set_nodelay(true).unwrap();
            stream
        }
    };
    let rates: Vec<u64> = (0..ROUNDS).map(|_| throughput(&direct(7000))).collect();
    println!(
        "direct: {rates:?} MB/s, {:?} to connect, request, again",
        latency(&direct(7001))
    );
}
