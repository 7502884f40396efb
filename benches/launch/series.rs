//! The measurements of calls.

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::scene::Scene;
use crate::shuffle::Shuffle;
use crate::stats::{Summary, median};
use crate::subjects::{Call, Subject, THIS};
use crate::worker::Done;

/// How often the rates are measured.
const REPEATS: usize = 5;

/// What a call costs.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) name: String,
    /// The first is the build that is measured.
    pub(crate) rows: Vec<Row>,
}

/// What it costs by one way.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) by: String,
    /// Microseconds from before the spawn until it was reaped.
    pub(crate) time: Summary,
    /// Microseconds of CPU time of all its processes.
    pub(crate) cpu: Summary,
    /// Calls a second by two launchers at once.
    pub(crate) rate: f64,
}

/// Makes every call `runs` times in every way.
pub(crate) fn measure(
    scene: &mut Scene,
    mut calls: Vec<Call>,
    runs: usize,
) -> Result<Vec<Measured>> {
    // The first time is a warm-up and shows what does not work here.
    for Call { name, subjects } in &mut calls {
        let mut failed = None;
        subjects.retain(|subject| match call(scene, subject) {
            Ok(_) => true,
            Err(error) if subject.by == THIS => {
                failed = Some(error);
                false
            }
            Err(error) => {
                eprintln!(
                    "launch: {name} by {} does not work here: {error}",
                    subject.by
                );
                false
            }
        });
        failed.map_or(Ok(()), Err)?;
    }
    let subjects: Vec<&Subject> = calls.iter().flat_map(|call| &call.subjects).collect();
    let (times, cpu) = one_by_one(scene, &subjects, runs)?;
    let mut rates = vec![Vec::new(); subjects.len()];
    for _ in 0..REPEATS {
        for (rates, subject) in rates.iter_mut().zip(&subjects) {
            rates.push(rate(scene, subject, runs.div_ceil(2 * REPEATS))?);
        }
    }
    let mut costs = times.into_iter().zip(cpu).zip(rates);
    let row = |(subject, ((time, cpu), rate)): (&Subject, ((_, _), _))| Row {
        by: subject.by.clone(),
        time: Summary::of(time),
        cpu: Summary::of(cpu),
        rate: median(rate),
    };
    let measured = calls.iter().map(|call| Measured {
        name: call.name.to_owned(),
        rows: call.subjects.iter().zip(costs.by_ref()).map(row).collect(),
    });
    Ok(measured.collect())
}

/// Microseconds of time and of CPU time, by subject.
type Times = (Vec<Vec<f64>>, Vec<Vec<f64>>);

fn one_by_one(scene: &mut Scene, subjects: &[&Subject], runs: usize) -> Result<Times> {
    let mut times = vec![Vec::new(); subjects.len()];
    let mut cpu = vec![Vec::new(); subjects.len()];
    let mut order: Vec<usize> = (0..subjects.len()).collect();
    let mut shuffle = Shuffle::new();
    for _ in 0..runs {
        shuffle.of(&mut order);
        for &index in &order {
            let done = call(scene, subjects[index])?;
            times[index].push(done.nanos as f64 / 1000.0);
            cpu[index].push(done.cpu_micros as f64);
        }
    }
    Ok((times, cpu))
}

fn call(scene: &mut Scene, subject: &Subject) -> Result<Done> {
    let worker = match &mut scene.unified {
        Some(worker) if subject.unified => worker,
        _ => &mut scene.workers[0],
    };
    worker.call(&subject.job)
}

/// Calls a second by two workers at once that make `count` each.
fn rate(scene: &mut Scene, subject: &Subject, count: usize) -> Result<f64> {
    let mut job = subject.job.clone();
    job.count = count;
    let workers = match &mut scene.unified {
        // One such worker is all there is.
        Some(_) if subject.unified => return Ok(0.0),
        _ => &mut scene.workers,
    };
    for worker in workers.iter_mut() {
        worker.begin(&job)?;
    }
    let mut slowest = 0;
    for worker in workers.iter_mut() {
        slowest = slowest.max(worker.end()?.nanos);
    }
    Ok((count * workers.len()) as f64 / (slowest as f64 / 1e9))
}
