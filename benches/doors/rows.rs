//! The work that is timed call by call: one [`Row`] for each kind.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::Result;
use crate::bare;
use crate::client::Client;
use crate::rounds::Ready;
use crate::scene::Scene;
use crate::server::Server;
use crate::worker::Worker;

/// A way to have code executed.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// The goal: the largest ratio of the median to P.
    pub(crate) goal: Option<f64>,
    prepare: fn(&Scene) -> Result<Ready>,
}

impl Row {
    pub(crate) fn prepare(&self, scene: &Scene) -> Result<Ready> {
        (self.prepare)(scene)
    }
}

/// The row that all others are compared with.
pub(crate) const BASE: Row = Row {
    name: "python",
    about: "P: `python3 -I -c 1`",
    goal: None,
    prepare: |scene| {
        let mut worker = Worker::start(scene.uid, false)?;
        let job = bare::job(&bare::PYTHON, 1);
        Ok(Box::new(move || {
            Ok(Duration::from_nanos(worker.call(&job)?.nanos))
        }))
    },
};

/// All others. A row whose client cannot be started is skipped.
pub(crate) const ALL: &[Row] = &[
    Row {
        name: "e2b-whole",
        about: "E2B's SDK: `Sandbox.create()`, `run_code(\"1+1\")`, `kill()`",
        goal: Some(1.5),
        prepare: |scene| e2b(scene, "whole"),
    },
    Row {
        name: "e2b-live",
        about: "E2B's SDK: `run_code(\"1+1\")` in a sandbox that exists",
        goal: Some(0.4),
        prepare: |scene| e2b(scene, "live"),
    },
    Row {
        name: "mcp-run",
        about: "MCP on standard streams: `run_code` in a new cell",
        goal: Some(0.4),
        prepare: |scene| {
            let mut client = mcp(scene)?;
            Ok(Box::new(move || {
                let began = Instant::now();
                run_code(&mut client, json!({"code": "1+1"}))?;
                Ok(began.elapsed())
            }))
        },
    },
    Row {
        name: "mcp-live",
        about: "MCP on standard streams: `run_code` in a context",
        goal: Some(0.4),
        prepare: |scene| {
            let mut client = mcp(scene)?;
            let made = client.tool("create_context", &json!({}))?;
            let context = made["context_id"].clone();
            Ok(Box::new(move || {
                let began = Instant::now();
                run_code(&mut client, json!({"code": "1+1", "context_id": context}))?;
                Ok(began.elapsed())
            }))
        },
    },
    Row {
        name: "run-code",
        about: "SandboxFusion's `/run_code`, by a new connection",
        goal: None,
        prepare: |scene| {
            let server = Server::start(scene, &["--warm", "python:4"])?;
            Ok(Box::new(move || {
                let began = Instant::now();
                server.run_code("print(1+1)", "2\n")?;
                Ok(began.elapsed())
            }))
        },
    },
];

/// A client with E2B's SDK. It uses its server to its end, so it is dropped first.
struct E2b {
    client: Client,
    _server: Server,
}

impl E2b {
    fn time(&mut self, work: &str) -> Result<Duration> {
        self.client.send(work)?;
        let nanos = self.client.line()?;
        let nanos = nanos.trim().parse();
        Ok(Duration::from_nanos(nanos?))
    }
}

/// One of the functions in sdk.py, by a Python that has loaded the SDK.
fn e2b(scene: &Scene, work: &'static str) -> Result<Ready> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = std::env::var_os("E2B_PYTHON")
        .map_or_else(|| root.join("target/doors/venv/bin/python"), Into::into);
    if !python.exists() {
        let message =
            "no Python with E2B's SDK: tests/doors/run installs one, or E2B_PYTHON names it";
        return Err(message.into());
    }
    let server = Server::start(
        scene,
        &["--warm", "python:4", "--workspace-at", "/home/user"],
    )?;
    let url = format!("http://{}", server.address);
    let mut command = Command::new(python);
    // The caller's proxies would carry the requests otherwise.
    command
        .arg(root.join("benches/doors/sdk.py"))
        .env_clear()
        .envs([("E2B_API_URL", &url), ("E2B_SANDBOX_URL", &url)])
        .env("E2B_API_KEY", "e2b_0123456789abcdef");
    let mut client = Client::start(command)?;
    client.line()?;
    let mut e2b = E2b {
        client,
        _server: server,
    };
    Ok(Box::new(move || e2b.time(work)))
}

fn mcp(scene: &Scene) -> Result<Client> {
    let mut command = scene.command();
    command.args(["mcp", "--rootfs", "host", "--warm", "python:4"]);
    let mut client = Client::start(command)?;
    client.initialize()?;
    Ok(client)
}

fn run_code(client: &mut Client, arguments: serde_json::Value) -> Result<()> {
    let result = client.tool("run_code", &arguments)?;
    match result["value"] == "2" {
        true => Ok(()),
        false => Err(result.to_string().into()),
    }
}
