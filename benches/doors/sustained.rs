//! `/run_code` with many clients at once, compared with the same code in bare interpreters, and
//! whether the server's memory grows.

use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use serde::Serialize;

use crate::load::Load;
use crate::scene::Scene;
use crate::server::Server;
use crate::stats::{Summary, median};
use crate::{Args, Result};

/// How long a turn is.
const TURN: Duration = Duration::from_secs(5);
const CODE: &str = "print(sum(range(1000)))";
const OUTPUT: &str = "499500\n";

/// Both together.
#[derive(Serialize)]
pub(crate) struct Sustained {
    clients: usize,
    seconds: u64,
    bare: Calls,
    run_code: Calls,
    /// Of the rates, in the median of the turns.
    rate_ratio: f64,
    /// Of the calls for each second of processor time.
    per_core_ratio: f64,
    /// After each minute.
    memory: Vec<Load>,
}

/// Calls of one kind. Times are in microseconds.
#[derive(Serialize)]
struct Calls {
    per_second: f64,
    /// For each second of processor time, the callers' included.
    per_cpu_second: f64,
    time: Summary,
}

/// The calls of one turn or of several.
#[derive(Default)]
struct Turn {
    times: Vec<f64>,
    took: Duration,
    processor: Duration,
}

impl Turn {
    fn rate(&self) -> f64 {
        self.times.len() as f64 / self.took.as_secs_f64()
    }

    fn add(&mut self, other: Self) {
        self.times.extend(other.times);
        self.took += other.took;
        self.processor += other.processor;
    }

    fn calls(self) -> Calls {
        Calls {
            per_second: self.rate(),
            per_cpu_second: self.times.len() as f64 / self.processor.as_secs_f64(),
            time: Summary::of(self.times),
        }
    }
}

impl Sustained {
    pub(crate) fn measure(scene: &Scene, args: &Args) -> Result<Self> {
        let warm = format!("python:{}", args.warm);
        let mut options = vec!["--max-clients", "4096", "--warm", &warm];
        if let Some(modules) = &args.preload {
            options.extend(["--preload", modules]);
        }
        let server = Server::start(scene, &options)?;
        let of_server = || server.run_code(CODE, OUTPUT);
        // Memory that the first calls need is not counted as growth.
        turn(args.clients, of_server, || Ok(Duration::ZERO))?;
        let mut memory = vec![Load::of(&server)?];
        println!("/run_code, at the beginning: {}", memory[0]);
        let began = Instant::now();
        let (mut all_bare, mut all_served) = (Turn::default(), Turn::default());
        let mut ratios = Vec::new();
        while began.elapsed().as_secs() < args.seconds {
            let bare = turn(args.clients, bare, || Ok(Duration::ZERO))?;
            let served = turn(args.clients, of_server, || Ok(Load::of(&server)?.processor))?;
            ratios.push(served.rate() / bare.rate());
            all_bare.add(bare);
            all_served.add(served);
            if began.elapsed().as_secs() / 60 >= memory.len() as u64 {
                let load = Load::of(&server)?;
                println!("/run_code, minute {}: {load}", memory.len());
                memory.push(load);
            }
        }
        let (bare, run_code) = (all_bare.calls(), all_served.calls());
        Ok(Self {
            clients: args.clients,
            seconds: args.seconds,
            rate_ratio: median(ratios),
            per_core_ratio: run_code.per_cpu_second / bare.per_cpu_second,
            bare,
            run_code,
            memory,
        })
    }

    pub(crate) fn table(&self) -> String {
        let row = |about: &str, calls: &Calls| {
            format!(
                "| {about} | {:.1} | {:.1} | {:.1} ms | {:.1} ms |\n",
                calls.per_second,
                calls.per_cpu_second,
                calls.time.median / 1e3,
                calls.time.p99 / 1e3
            )
        };
        format!(
            "\n{} clients at once for {} s, half of it each\n\n\
             | | calls a second | calls a second of CPU time | median | p99 |\n\
             |---|---:|---:|---:|---:|\n{}{}\n\
             ratio of the rates {:.2}, for the same CPU time {:.2}\n",
            self.clients,
            self.seconds,
            row("bare `python3`", &self.bare),
            row("`/run_code`", &self.run_code),
            self.rate_ratio,
            self.per_core_ratio
        )
    }
}

fn bare() -> Result<()> {
    let output = Command::new("/usr/bin/python3")
        .args(["-I", "-c", CODE])
        .output()?;
    match output.stdout == OUTPUT.as_bytes() {
        true => Ok(()),
        false => Err("python3 printed something else".into()),
    }
}

/// Has all callers call until the turn is over. `others` returns the processor time of the other
/// processes that work for them, without this process and its children that have ended.
fn turn(
    clients: usize,
    call: impl Fn() -> Result<()> + Sync,
    others: impl Fn() -> Result<Duration>,
) -> Result<Turn> {
    let processor = || Ok::<_, crate::Failure>(own_time()? + others()?);
    let before = processor()?;
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
        None => Ok(Turn {
            times: times.into_inner().unwrap(),
            took: began.elapsed(),
            processor: processor()?.saturating_sub(before),
        }),
    }
}

/// The processor time of this process and of its children that have ended.
fn own_time() -> Result<Duration> {
    let mut sum = Duration::ZERO;
    for who in [UsageWho::RUSAGE_SELF, UsageWho::RUSAGE_CHILDREN] {
        let usage = getrusage(who)?;
        for time in [usage.user_time(), usage.system_time()] {
            sum += Duration::new(time.tv_sec() as u64, time.tv_usec() as u32 * 1000);
        }
    }
    Ok(sum)
}
