//! Many sandboxes and many connections at once.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde::Serialize;
use serde_json::json;

use crate::load::Load;
use crate::scene::Scene;
use crate::server::Server;
use crate::{Args, Result};

/// The goal: the most bytes of the serving process.
const GOAL: u64 = 20_000_000;

/// The memory that they take.
#[derive(Serialize)]
pub(crate) struct Many {
    sandboxes: usize,
    connections: usize,
    empty: Load,
    with_sandboxes: Load,
    with_both: Load,
}

impl Many {
    /// Measures sandboxes whose interpreters have executed a line and wait for more, and then
    /// connections that have had an answer and stay open.
    pub(crate) fn measure(scene: &Scene, args: &Args) -> Result<Self> {
        allow_many_descriptors()?;
        let (cells, connections) = (
            (args.sandboxes + 8).to_string(),
            (args.connections + 8).to_string(),
        );
        let server = Server::start(
            scene,
            &[
                &["--max-cells", &cells, "--http-connections", &connections][..],
                &["--max-clients", &connections, "--idle", "1h"],
                &["--warm", "python:2", "--preload", "json"],
                &["--workspace-at", "/home/user"],
            ]
            .concat(),
        )?;
        let empty = Load::of(&server)?;
        println!("no sandbox: {empty}");
        for _ in 0..args.sandboxes {
            sandbox(&server)?;
        }
        let with_sandboxes = Load::of(&server)?;
        println!("{} sandboxes: {with_sandboxes}", args.sandboxes);
        let mut open = Vec::new();
        for _ in 0..args.connections {
            open.push(Connection::open(&server)?);
        }
        let with_both = Load::of(&server)?;
        println!("and {} connections: {with_both}", open.len());
        for connection in open.iter_mut().rev().take(10) {
            connection.request()?;
        }
        Ok(Self {
            sandboxes: args.sandboxes,
            connections: args.connections,
            empty,
            with_sandboxes,
            with_both,
        })
    }

    pub(crate) fn table(&self) -> String {
        let row = |about: String, load: &Load, goal: Option<u64>| {
            let goal = match goal {
                None => " | ",
                Some(goal) if load.front_end_resident <= goal => "20 MB | met",
                Some(_) => "20 MB | missed",
            };
            let resident = load.front_end_resident as f64 / 1e6;
            format!(
                "| {about} | {resident:.1} MB | {:.0} MB | {goal} |\n",
                load.all as f64 / 1e6
            )
        };
        let (sandboxes, connections) = (self.sandboxes, self.connections);
        format!(
            "\n| | serving process | all processes | goal | |\n|---|---:|---:|---:|---|\n{}{}{}",
            row("no sandbox".to_owned(), &self.empty, None),
            row(
                format!("{sandboxes} sandboxes"),
                &self.with_sandboxes,
                Some(GOAL)
            ),
            row(
                format!("and {connections} open connections"),
                &self.with_both,
                None
            )
        )
    }
}

/// Makes a sandbox and executes a line in it.
fn sandbox(server: &Server) -> Result<()> {
    let made = server.request(
        "POST /v2/sandboxes",
        &[("x-api-key", "any"), ("content-type", "application/json")],
        &json!({"templateID": "base", "timeout": 3600}).to_string(),
    )?;
    let text = |name: &str| made[name].as_str().unwrap_or_default();
    server.text(
        "POST /execute",
        &[
            ("content-type", "application/json"),
            ("e2b-sandbox-id", text("sandboxID")),
            ("e2b-sandbox-port", "49999"),
            ("x-access-token", text("envdAccessToken")),
            ("e2b-traffic-access-token", text("trafficAccessToken")),
        ],
        &json!({"code": "x = [n for n in range(100)]"}).to_string(),
    )?;
    Ok(())
}

/// A connection that stays open between two requests.
struct Connection {
    socket: TcpStream,
    address: String,
}

impl Connection {
    fn open(server: &Server) -> Result<Self> {
        let mut connection = Self {
            socket: TcpStream::connect(&server.address)?,
            address: server.address.clone(),
        };
        connection.request()?;
        Ok(connection)
    }

    fn request(&mut self) -> Result<()> {
        let request = format!("GET /health HTTP/1.1\r\nhost: {}\r\n\r\n", self.address);
        self.socket.write_all(request.as_bytes())?;
        let mut answer = [0; 4096];
        match self.socket.read(&mut answer)? {
            0 => Err("the server ended a connection".into()),
            _ => Ok(()),
        }
    }
}

/// Each connection is one.
fn allow_many_descriptors() -> Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(setrlimit(Resource::RLIMIT_NOFILE, most, most)?)
}
