//! As many calls as there are processors, one after the other for a while.

use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;

use crate::Result;
use crate::bare;
use crate::rows::{DESCRIBE, PANDAS, code, started};
use crate::scene::Scene;
use crate::server::Server;
use crate::worker::{Done, Worker};

/// How long one of both goes on until it is the other's turn.
const SLICE: Duration = Duration::from_secs(10);

/// Runs a second.
#[derive(Serialize)]
pub(crate) struct Sustained {
    about: &'static str,
    seconds: u64,
    at_once: usize,
    describes: f64,
    bare_pythons: f64,
}

impl Sustained {
    /// Measures for `seconds` each.
    pub(crate) fn measure(scene: &Scene, seconds: u64) -> Result<Self> {
        let at_once = std::thread::available_parallelism()?.get();
        let options = [&PANDAS[..], &["--warm", "python:8"]].concat();
        let mut server = Server::start(scene, &options)?;
        let params = json!({"request": code(DESCRIBE)});
        let (mut described, mut started_bare) = (0, 0);
        let (mut for_describes, mut for_bare) = (Duration::ZERO, Duration::ZERO);
        while for_describes < Duration::from_secs(seconds) {
            let began = Instant::now();
            described += server.flood("run", &params, at_once, began + SLICE, |result| {
                started(result, "forked")
            })?;
            for_describes += SLICE;
            let (count, took) = bare(scene, at_once)?;
            started_bare += count;
            for_bare += took;
        }
        Ok(Self {
            about: "`df.describe()`, sustained on all processors",
            seconds,
            at_once,
            describes: described as f64 / for_describes.as_secs_f64(),
            bare_pythons: started_bare as f64 / for_bare.as_secs_f64(),
        })
    }

    pub(crate) fn line(&self) -> String {
        let ratio = self.describes / self.bare_pythons;
        let verdict = if ratio >= 1.0 { "met" } else { "missed" };
        format!(
            "| {} | {:.0} a second | | {ratio:.2} of P's {:.0} a second | 1.00 | {verdict} |\n",
            self.about, self.describes, self.bare_pythons
        )
    }
}

/// Starts of bare Python by so many launchers for a slice of time.
fn bare(scene: &Scene, at_once: usize) -> Result<(usize, Duration)> {
    const BATCH: usize = 10;
    let began = Instant::now();
    let launch = || -> std::result::Result<usize, String> {
        let mut worker = Worker::start(scene.uid, false).map_err(|e| e.to_string())?;
        let job = bare::job(&bare::PYTHON, BATCH);
        let mut count = 0;
        while began.elapsed() < SLICE {
            let Done { .. } = worker.call(&job).map_err(|e| e.to_string())?;
            count += BATCH;
        }
        Ok(count)
    };
    let counts: Vec<_> = std::thread::scope(|scope| {
        let launchers: Vec<_> = (0..at_once).map(|_| scope.spawn(launch)).collect();
        launchers
            .into_iter()
            .map(|launcher| launcher.join())
            .collect()
    });
    let mut all = 0;
    for count in counts {
        all += count.map_err(|_| "a launcher panicked")??;
    }
    Ok((all, began.elapsed()))
}
