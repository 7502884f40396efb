//! The measurements.

use std::collections::BTreeMap;
use std::fs;

use record::{Record, Timing};
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::record::every_layer;
use crate::scene::Scene;
use crate::shuffle::Shuffle;
use crate::stats::{Summary, median};
use crate::subjects::{self, BARE, BWRAP, CELLBLOCK, Subject};
use crate::worker::{Job, Output};

/// The number of bytes that a flooding program writes.
const FLOOD: u64 = 1 << 30;
/// The bytes of one write.
const BLOCK: u64 = 64 << 10;
/// How often the slow measurements are repeated.
const REPEATS: usize = 7;
/// The interpreter's code.
const CODE: &str = "print(1)";

/// Times of one subject.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Launch {
    pub(crate) name: String,
    pub(crate) about: String,
    /// Microseconds from before the spawn until it was reaped.
    pub(crate) time: Summary,
    /// Medians of the record's `timing`.
    pub(crate) steps: Option<Steps>,
}

/// Medians of records' `timing`, in microseconds.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Steps {
    pub(crate) setup: f64,
    pub(crate) interpreter: Option<f64>,
    pub(crate) code: f64,
    pub(crate) teardown: f64,
    pub(crate) steps: BTreeMap<String, f64>,
}

impl Steps {
    fn of(timings: &[Timing]) -> Self {
        let of = |get: fn(&Timing) -> Option<f64>| {
            let values: Vec<f64> = timings.iter().filter_map(get).collect();
            (!values.is_empty()).then(|| median(values) * 1000.0)
        };
        let names: Vec<&String> = timings.iter().flat_map(|t| t.steps.keys()).collect();
        let step = |name: &String| {
            let values = timings.iter().filter_map(|t| t.steps.get(name).copied());
            median(values.collect()) * 1000.0
        };
        Self {
            setup: of(|t| Some(t.setup_ms)).unwrap_or_default(),
            interpreter: of(|t| t.interpreter_ms),
            code: of(|t| Some(t.code_ms)).unwrap_or_default(),
            teardown: of(|t| Some(t.teardown_ms)).unwrap_or_default(),
            steps: names.into_iter().map(|n| (n.clone(), step(n))).collect(),
        }
    }
}

/// Launches every subject `runs` times.
pub(crate) fn launches(scene: &mut Scene, runs: usize) -> Result<Vec<Launch>> {
    let mut subjects = subjects::all(scene)?;
    // The first launch is a warm-up and shows which subjects do not work here.
    subjects.retain(|subject| match launch(scene, subject) {
        Ok(_) => true,
        Err(error) => {
            eprintln!("launch: {} does not work here: {error}", subject.name);
            false
        }
    });
    let mut times = vec![Vec::new(); subjects.len()];
    let mut timings = vec![Vec::new(); subjects.len()];
    let mut order: Vec<usize> = (0..subjects.len()).collect();
    let mut shuffle = Shuffle::new();
    for _ in 0..runs {
        shuffle.of(&mut order);
        for &index in &order {
            times[index].push(launch(scene, &subjects[index])?);
            if let Some(path) = &subjects[index].record {
                timings[index].push(every_layer(&fs::read(path)?)?.timing);
            }
        }
    }
    let results = subjects.iter().zip(times).zip(timings);
    Ok(results
        .map(|((subject, times), timings)| Launch {
            name: subject.name.to_owned(),
            about: subject.about.to_owned(),
            time: Summary::of(times),
            steps: (!timings.is_empty()).then(|| Steps::of(&timings)),
        })
        .collect())
}

/// Microseconds of one launch.
fn launch(scene: &mut Scene, subject: &Subject) -> Result<f64> {
    let worker = match &mut scene.unified {
        Some(worker) if subject.unified => worker,
        _ => &mut scene.workers[0],
    };
    Ok(worker.call(&subject.job)?.nanos as f64 / 1000.0)
}

/// Launches per second, by name.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PerSecond {
    pub(crate) name: String,
    pub(crate) one: f64,
    pub(crate) two: f64,
}

/// Launches per second with one launcher and with two at once.
pub(crate) fn per_second(scene: &mut Scene, runs: usize) -> Result<Vec<PerSecond>> {
    let mut results = Vec::new();
    for subject in subjects::all(scene)? {
        if ![BARE, CELLBLOCK, BWRAP].contains(&subject.name) {
            continue;
        }
        let (mut one, mut two) = (Vec::new(), Vec::new());
        for _ in 0..REPEATS {
            let count = (runs / REPEATS).max(1);
            one.push(rate(scene, &subject, count, 1)?);
            two.push(rate(scene, &subject, count, 2)?);
        }
        results.push(PerSecond {
            name: subject.name.to_owned(),
            one: median(one),
            two: median(two),
        });
    }
    Ok(results)
}

/// Launches per second of `count` by each of the first `launchers` workers.
fn rate(scene: &mut Scene, subject: &Subject, count: usize, launchers: usize) -> Result<f64> {
    let jobs: Vec<Job> = (0..launchers)
        .map(|number| {
            let mut job = subject.job.clone();
            job.count = count;
            // Each launcher has a record file of its own.
            if let Some(record) = &subject.record {
                let mine = scene.path(&format!("record-{number}.json"));
                job.argv = subjects::exec(scene, &mine, &["/bin/true"]);
                debug_assert_ne!(&mine, record);
            }
            job
        })
        .collect();
    for (worker, job) in scene.workers.iter_mut().zip(&jobs) {
        worker.begin(job)?;
    }
    let mut slowest = 0;
    for (worker, _) in scene.workers.iter_mut().zip(&jobs) {
        slowest = slowest.max(worker.end()?.nanos);
    }
    Ok((count * launchers) as f64 / (slowest as f64 / 1e9))
}

/// What `run` adds to an interpreter. Times in microseconds.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RunAdds {
    pub(crate) interpreter: Summary,
    pub(crate) run: Summary,
    /// The difference of the medians.
    pub(crate) adds: f64,
    pub(crate) steps: Steps,
}

/// Python by itself and in a cell, by turns.
pub(crate) fn run_adds(scene: &mut Scene, runs: usize) -> Result<RunAdds> {
    let python = "/usr/bin/python3";
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let cellblock = scene.cellblock.to_string_lossy().into_owned();
    let mut bare = subjects::job(scene, words(&[python, "-I", "-c", CODE]));
    let run = ["run", "--json", "--lang", "python", "-c", CODE];
    let mut run = subjects::job(scene, words(&[&[cellblock.as_str()], &run[..]].concat()));
    bare.output = Output::Read;
    run.output = Output::Read;
    let (mut bare_times, mut run_times, mut timings) = (Vec::new(), Vec::new(), Vec::new());
    let worker = &mut scene.workers[0];
    worker.call(&bare)?;
    worker.call(&run)?;
    for _ in 0..runs {
        bare_times.push(worker.call(&bare)?.nanos as f64 / 1000.0);
        let done = worker.call(&run)?;
        run_times.push(done.nanos as f64 / 1000.0);
        timings.push(every_layer(&done.output)?.timing);
    }
    let (interpreter, run) = (Summary::of(bare_times), Summary::of(run_times));
    Ok(RunAdds {
        adds: run.median - interpreter.median,
        steps: Steps::of(&timings),
        interpreter,
        run,
    })
}

/// The supervisor's own memory and speed.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Supervisor {
    /// Most resident memory of `exec -- /bin/true`, in bytes.
    pub(crate) idle_bytes: u64,
    /// The same with a program that floods its captured output with text.
    pub(crate) flood_bytes: u64,
    /// The same on stdout and stderr at once.
    #[serde(default)]
    pub(crate) flood_both_bytes: u64,
    /// The same with NULs, each of which takes six bytes in JSON.
    pub(crate) flood_nul_bytes: u64,
    /// The same with bytes that are no text, which the record holds twice.
    #[serde(default)]
    pub(crate) flood_invalid_bytes: u64,
    /// Bytes per second of the flood of text, of the program's whole run.
    pub(crate) flood_rate: f64,
    /// The same program into a pipe that is only read.
    pub(crate) pipe_rate: f64,
}

/// The most memory and the median speed of several runs.
pub(crate) fn supervisor(scene: &mut Scene) -> Result<Supervisor> {
    let record = scene.path("record.json");
    let idle = subjects::exec(scene, &record, &["/bin/true"]);
    let idle = Job {
        peak: true,
        ..subjects::job(scene, idle)
    };
    let text = flood("x", "");
    let pipe = Job {
        output: Output::Count,
        ..subjects::job(scene, text.clone())
    };
    let text = captured(scene, text);
    let both = captured(scene, flood("x", "syswrite STDERR, $b;"));
    let nul = captured(scene, flood("\\0", ""));
    let invalid = captured(scene, flood("\\xff", ""));
    let mut result = Supervisor {
        idle_bytes: 0,
        flood_bytes: 0,
        flood_both_bytes: 0,
        flood_nul_bytes: 0,
        flood_invalid_bytes: 0,
        flood_rate: 0.0,
        pipe_rate: 0.0,
    };
    let (mut flood_rates, mut pipe_rates) = (Vec::new(), Vec::new());
    for _ in 0..REPEATS {
        for (most, job) in [
            (&mut result.idle_bytes, &idle),
            (&mut result.flood_bytes, &text),
            (&mut result.flood_both_bytes, &both),
            (&mut result.flood_nul_bytes, &nul),
            (&mut result.flood_invalid_bytes, &invalid),
        ] {
            *most = (*most).max(peak(scene, job)?);
        }
        let worker = &mut scene.workers[0];
        worker.call(&text)?;
        flood_rates.push(flooded(&every_layer(&fs::read(&record)?)?)?);
        pipe_rates.push(FLOOD as f64 / (worker.call(&pipe)?.nanos as f64 / 1e9));
    }
    result.flood_rate = median(flood_rates);
    result.pipe_rate = median(pipe_rates);
    Ok(result)
}

/// A program that writes [`FLOOD`] bytes as fast as it can; `also` is done
/// after each block.
fn flood(byte: &str, also: &str) -> Vec<String> {
    let blocks = FLOOD / BLOCK;
    let code =
        format!("$b = \"{byte}\" x {BLOCK}; for (1..{blocks}) {{ syswrite STDOUT, $b; {also} }}");
    ["/usr/bin/perl", "-e", &code].map(str::to_owned).into()
}

/// A job that captures what `program` writes, its record in a file.
fn captured(scene: &Scene, program: Vec<String>) -> Job {
    let words = [&scene.cellblock.to_string_lossy(), "exec", "--json", "--"];
    let words = words.iter().map(|word| (*word).to_owned());
    Job {
        output: Output::File(scene.path("record.json")),
        ..subjects::job(scene, words.chain(program).collect())
    }
}

fn peak(scene: &mut Scene, job: &Job) -> Result<u64> {
    let job = Job {
        peak: true,
        ..job.clone()
    };
    let done = scene.workers[0].call(&job)?;
    Ok(done.peak.ok_or("no peak was measured")?)
}

/// Bytes per second of a flood that the record counted in full.
fn flooded(record: &Record) -> Result<f64> {
    match record.truncated.get("stdout") {
        Some(cut) if cut.total == FLOOD => Ok(FLOOD as f64 / record.execution_time),
        other => Err(format!("the flood was not counted: {other:?}").into()),
    }
}
