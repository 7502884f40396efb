//! What contexts take that do nothing.

use std::fs;

use serde::Serialize;
use serde_json::json;

use crate::Result;
use crate::rows::{create, kept};
use crate::scene::Scene;
use crate::server::Server;

/// Contexts besides the first.
const MORE: usize = 20;

/// Memory for each context beyond the first, as PSS: what several processes share is
/// divided among them.
#[derive(Serialize)]
pub(crate) struct Idle {
    about: &'static str,
    contexts: usize,
    bytes_each: u64,
}

impl Idle {
    /// Measures contexts of Python that have executed a line, with these options.
    pub(crate) fn measure(scene: &Scene, about: &'static str, options: &[&str]) -> Result<Self> {
        let mut server = Server::start(scene, options)?;
        add(&mut server)?;
        let before = proportional(server.pid())?;
        for _ in 0..MORE {
            add(&mut server)?;
        }
        let after = proportional(server.pid())?;
        Ok(Self {
            about,
            contexts: MORE + 1,
            bytes_each: after.saturating_sub(before) / MORE as u64,
        })
    }

    pub(crate) fn line(&self) -> String {
        let mib = self.bytes_each as f64 / f64::from(1 << 20);
        let verdict = if mib <= 4.0 { "met" } else { "missed" };
        format!("| {} | {mib:.1} MiB | | | 4 MB | {verdict} |\n", self.about)
    }
}

/// Adds a context that has executed something.
fn add(server: &mut Server) -> Result<()> {
    let (_, context) = create(server)?;
    let params = json!({"context": context, "code": "x = [n for n in range(100)]"});
    kept(&server.call("context.run", params)?)
}

/// The PSS of a process and all of its descendants.
fn proportional(pid: u32) -> Result<u64> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib: u64 = line
        .and_then(|line| line.split_whitespace().next())
        .map_or(Ok(0), str::parse)?;
    let mut sum = kib << 10;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let children = task?.path().join("children");
        for child in fs::read_to_string(children)?.split_whitespace() {
            sum += proportional(child.parse()?).unwrap_or(0);
        }
    }
    Ok(sum)
}
