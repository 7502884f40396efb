//! What each language's shim adds to its bare interpreter.
//!
//! ```text
//! cargo bench --bench languages -- [--rootfs] [--runs N] [--language NAME]...
//! ```
//!
//! The same small code in the same cell: `cellblock run`, and `cellblock exec` of
//! the interpreter as one would call it for that. The launch is in both, so that
//! the difference is the shim's. Where the interpreter is the host's, it is timed
//! outside of any cell as well. All of a language take turns, and the difference
//! is taken within each turn.
//!
//! With `--rootfs`, the cells have the prepared rootfs of each language instead of
//! the host's. `CELLBLOCK` names another binary than the one cargo built. The
//! results go to `target/bench/languages.json`.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use clap::Parser;
use languages::{self, Delivery};
use nix::unistd::Uid;
use serde::Serialize;
use serde_json::Value;

#[path = "../common/machine.rs"]
mod machine;
#[path = "../common/record.rs"]
mod record;
#[path = "../common/results.rs"]
mod results;
#[path = "../common/shuffle.rs"]
mod shuffle;
#[path = "../common/stats.rs"]
mod stats;
#[path = "../common/worker.rs"]
mod worker;
mod works;

use stats::{Summary, median};
use worker::{Job, Output, Worker};
use works::{WORKS, Work};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// About the longest time for one language, which then has fewer runs.
const BUDGET: Duration = Duration::from_secs(120);
const FEWEST: usize = 7;
const WARM_UP: usize = 3;

#[derive(Parser)]
struct Args {
    /// Runs of each, fewer for slow languages.
    #[arg(long, default_value_t = 100)]
    runs: usize,
    /// Measure in the prepared rootfs of each language.
    #[arg(long)]
    rootfs: bool,
    /// Measure this language only (repeatable).
    #[arg(long)]
    language: Vec<String>,
    /// Where the results go.
    #[arg(long, default_value = "target/bench/languages.json")]
    out: PathBuf,
    /// Act as the process that starts and times others: with this uid.
    #[arg(long, hide = true)]
    worker: Option<u32>,
    /// What cargo passes to a benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Times in microseconds.
#[derive(Serialize)]
struct Results {
    schema: &'static str,
    machine: machine::Machine,
    works: Vec<Measured>,
    skipped: Vec<String>,
}

#[derive(Serialize)]
struct Measured {
    language: &'static str,
    what: &'static str,
    code: &'static str,
    /// Its name and digest; none is the host's.
    rootfs: Option<String>,
    /// The interpreter's command line.
    bare: Vec<String>,
    /// Outside of any cell.
    outside: Option<Summary>,
    exec: Summary,
    run: Summary,
    /// By how much `run` takes longer than `exec` in the same turn.
    shim: Summary,
    /// The same of the CPU time within the cell, which suffers less from others.
    shim_cpu: Summary,
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
            eprintln!("languages: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(args: &Args) -> Result<()> {
    let cellblock = std::env::var_os("CELLBLOCK")
        .map_or_else(|| env!("CARGO_BIN_EXE_cellblock").into(), PathBuf::from);
    // The store is the caller's, so the cells are, too.
    let uid = Uid::effective().as_raw();
    let machine = machine::Machine::gather(&cellblock, uid, &["node", "Rscript", "java"]);
    print!("{machine}");
    let mut bench = Bench {
        worker: Worker::start(uid, false)?,
        cellblock,
        is_prepared: args.rootfs,
        runs: args.runs,
    };
    let (mut works, mut skipped) = (Vec::new(), Vec::new());
    for driver in languages::TABLE {
        if let Delivery::File(_) = driver.delivery {
            skipped.push(format!("{}: it has no shim", driver.name));
        }
    }
    println!(
        "\nms          code        outside      exec       run   shim adds (p10, p99)   its CPU  runs"
    );
    let is_wanted = |work: &&Work| {
        args.language.is_empty() || args.language.iter().any(|name| name == work.language)
    };
    for work in WORKS.iter().filter(is_wanted) {
        match bench.measure(work) {
            Ok(measured) => {
                measured.print();
                works.push(measured);
            }
            Err(error) => skipped.push(format!("{}, {}: {error}", work.language, work.what)),
        }
    }
    for reason in &skipped {
        println!("skipped: {reason}");
    }
    let schema = "cellblock.bench.languages.v1";
    results::write(
        &args.out,
        &Results {
            schema,
            machine,
            works,
            skipped,
        },
    )
}

impl Measured {
    fn print(&self) {
        let ms = |micros: f64| micros / 1000.0;
        let outside = self.outside.as_ref();
        let outside = outside.map_or_else(|| "-".to_owned(), |s| format!("{:.1}", ms(s.median)));
        println!(
            "{:<11} {:<10} {outside:>8} {:>9.1} {:>9.1} {:>11.1} ({:.1}, {:.1}) {:>9.1} {:>5}",
            self.language,
            self.what,
            ms(self.exec.median),
            ms(self.run.median),
            ms(self.shim.median),
            ms(self.shim.p10),
            ms(self.shim.p99),
            ms(self.shim_cpu.median),
            self.shim.runs
        );
    }
}

struct Bench {
    worker: Worker,
    cellblock: PathBuf,
    is_prepared: bool,
    runs: usize,
}

/// The alternating subjects.
#[derive(Clone, Copy)]
enum Subject {
    Outside,
    Exec,
    Run,
}

/// Of one process, in microseconds.
struct Time {
    wall: f64,
    /// Within its cell.
    cpu: f64,
}

#[derive(Default)]
struct Times {
    outside: Vec<Time>,
    exec: Vec<Time>,
    run: Vec<Time>,
}

impl Bench {
    fn measure(&mut self, work: &Work) -> Result<Measured> {
        let driver = languages::find(work.language).ok_or("an unknown language")?;
        let profile = driver.profile.map_or("default", |profile| profile.name);
        let rootfs = if self.is_prepared {
            driver.rootfs
        } else {
            "host"
        };
        let run = [
            "run",
            "--json",
            "--rootfs",
            rootfs,
            "--lang",
            driver.name,
            "-c",
            work.code,
        ];
        let plan = self.plan(&run)?;
        let bare = work.bare(&plan)?;
        let exec = [
            "exec", "--json", "--rootfs", rootfs, "--policy", profile, "--",
        ];
        let exec = exec.into_iter().chain(bare.iter().map(String::as_str));
        let is_outside = !self.is_prepared && Path::new(&bare[0]).exists();
        let mut jobs = vec![
            (Subject::Exec, self.job(exec)),
            (Subject::Run, self.job(run)),
        ];
        if is_outside {
            jobs.push((Subject::Outside, job(bare.clone())));
        }
        let Times { outside, exec, run } = self.turns(&jobs)?;
        let differences = |of: fn(&Time) -> f64| {
            let pairs = run.iter().zip(&exec);
            Summary::of(pairs.map(|(run, exec)| of(run) - of(exec)).collect())
        };
        let wall = |times: &[Time]| Summary::of(times.iter().map(|time| time.wall).collect());
        Ok(Measured {
            language: work.language,
            what: work.what,
            code: work.code,
            rootfs: plan["rootfs"].as_str().map(str::to_owned),
            shim: differences(|time| time.wall),
            shim_cpu: differences(|time| time.cpu),
            bare,
            outside: is_outside.then(|| wall(&outside)),
            exec: wall(&exec),
            run: wall(&run),
        })
    }

    fn turns(&mut self, jobs: &[(Subject, Job)]) -> Result<Times> {
        let mut times = Times::default();
        let mut order: Vec<usize> = (0..jobs.len()).collect();
        let mut shuffle = shuffle::Shuffle::new();
        // Warm-up turns, which also show how long one takes.
        let mut warm_up = Vec::new();
        for _ in 0..WARM_UP {
            let began = Instant::now();
            for (subject, job) in jobs {
                self.time(*subject, job)?;
            }
            warm_up.push(began.elapsed().as_secs_f64());
        }
        let affordable = (BUDGET.as_secs_f64() / median(warm_up)) as usize;
        for _ in 0..self.runs.min(affordable.max(FEWEST)) {
            shuffle.of(&mut order);
            for &index in &order {
                let (subject, job) = &jobs[index];
                let time = self.time(*subject, job)?;
                match subject {
                    Subject::Outside => times.outside.push(time),
                    Subject::Exec => times.exec.push(time),
                    Subject::Run => times.run.push(time),
                }
            }
        }
        Ok(times)
    }

    fn time(&mut self, subject: Subject, job: &Job) -> Result<Time> {
        let done = self.worker.call(job)?;
        let cpu = match subject {
            Subject::Outside => 0.0,
            Subject::Exec | Subject::Run => {
                let usage = record::every_layer(&done.output)?.usage;
                let both = usage.cpu_user_ms.zip(usage.cpu_system_ms);
                let (user, system) = both.ok_or("a record without CPU time")?;
                (user + system) * 1000.0
            }
        };
        let wall = done.nanos as f64 / 1000.0;
        Ok(Time { wall, cpu })
    }

    fn job<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Job {
        let own = self.cellblock.to_string_lossy().into_owned();
        let words = words.into_iter().map(str::to_owned);
        job([own].into_iter().chain(words).collect())
    }

    fn plan(&self, run: &[&str]) -> Result<Value> {
        let words = run.iter().filter(|word| **word != "--json");
        let output = Command::new(&self.cellblock)
            .arg("plan")
            .args(words)
            .output()?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(text.lines().next().unwrap_or("no plan").into());
        }
        let mut plan: Value = serde_json::from_slice(&output.stdout)?;
        Ok(plan["plan"].take())
    }
}

/// A job whose output is read.
fn job(argv: Vec<String>) -> Job {
    let kept = [
        "HOME",
        "XDG_DATA_HOME",
        "CELLBLOCK_STORE",
        "XDG_RUNTIME_DIR",
    ];
    let kept = kept
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?)));
    let path = ("PATH".to_owned(), "/usr/bin:/bin".to_owned());
    Job {
        argv,
        env: kept.chain([path]).collect(),
        output: Output::Read,
        count: 1,
        peak: false,
    }
}
