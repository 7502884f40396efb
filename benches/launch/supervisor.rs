//! The supervisor's own memory and speed.

use std::fs;

use record::Record;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::record::every_layer;
use crate::scene::Scene;
use crate::stats::median;
use crate::subjects;
use crate::worker::{Job, Output};

/// The number of bytes that a flooding program writes.
const FLOOD: u64 = 1 << 30;
/// The bytes of one write.
const BLOCK: u64 = 64 << 10;
/// How often each is measured.
const REPEATS: usize = 7;

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
pub(crate) fn measure(scene: &mut Scene) -> Result<Supervisor> {
    let record = scene.path("record.json");
    let idle = captured(scene, vec!["/bin/true".to_owned()]);
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
