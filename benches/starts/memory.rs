//! What contexts take that do nothing.

use serde::Serialize;
use serde_json::json;

use crate::Result;
use crate::processes::{proportional, tree};
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
        let before = of_all(&server);
        for _ in 0..MORE {
            add(&mut server)?;
        }
        let after = of_all(&server);
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

/// The PSS of a server with all its processes.
fn of_all(server: &Server) -> u64 {
    tree(server.pid()).into_iter().map(proportional).sum()
}
