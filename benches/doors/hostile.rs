//! An honest client beside hostile ones.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;

use crate::scene::Scene;
use crate::server::Server;
use crate::stats::Summary;
use crate::{Args, Result};

/// The goals: milliseconds that an honest call takes longer, and bytes of the serving process
/// besides those that its options let wait.
const LONGER: f64 = 100.0;
const MEMORY: u64 = 256 << 20;
/// Bytes that wait, by default.
const WAITING: u64 = 256 << 20;
/// How long a body that does not end stays open.
const HELD: Duration = Duration::from_secs(1);
const TOKENS: [&str; 2] = ["hostile-hostile-hostile", "honest-honest-honest"];

/// The times of honest calls, in microseconds, and the most memory of the serving process.
#[derive(Serialize)]
pub(crate) struct Hostile {
    clients: usize,
    alone: Summary,
    beside: Summary,
    memory: u64,
}

impl Hostile {
    /// Times runs of one token by themselves, and then while clients of another token send what
    /// takes the most memory and time: bodies that do not end, long code, and lists and tables
    /// with many small entries.
    pub(crate) fn measure(scene: &Scene, args: &Args) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let file = directory.path().join("tokens");
        std::fs::write(&file, TOKENS.join("\n"))?;
        for path in [directory.path(), &file] {
            use std::os::unix::fs::PermissionsExt as _;
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))?;
        }
        let file = file.to_str().ok_or("not a text")?;
        let options = [
            "--http-token",
            file,
            "--warm",
            "python:2",
            "--max-cells",
            "8",
        ];
        let server = Server::start_for(scene, &options, Some(TOKENS[1]))?;
        let alone = times(&server, args.runs)?;
        let ended = AtomicBool::new(false);
        let beside = std::thread::scope(|scope| {
            let bodies = bodies();
            for number in 0..args.clients {
                let (address, ended) = (&server.address, &ended);
                let body = bodies[number % bodies.len()].clone();
                scope.spawn(move || {
                    while !ended.load(Ordering::Relaxed) {
                        // A refusal is what is expected.
                        let _ = send(address, &body, number % 2 == 0);
                    }
                });
            }
            let beside = times(&server, args.runs);
            ended.store(true, Ordering::Relaxed);
            beside
        })?;
        Ok(Self {
            clients: args.clients,
            alone,
            beside,
            memory: peak(server.pid())?,
        })
    }

    pub(crate) fn table(&self) -> String {
        let longer = (self.beside.p99 - self.alone.p99) / 1e3;
        let says = |is_met: bool| if is_met { "met" } else { "missed" };
        format!(
            "\n| {} hostile clients | alone | beside them | goal | |\n|---|---:|---:|---|---|\n\
             | an honest run, median | {:.1} ms | {:.1} ms | | |\n\
             | an honest run, p99 | {:.1} ms | {:.1} ms | {LONGER} ms more | {} |\n\
             | the serving process at most | | {:.0} MB | {:.0} MB | {} |\n",
            self.clients,
            self.alone.median / 1e3,
            self.beside.median / 1e3,
            self.alone.p99 / 1e3,
            self.beside.p99 / 1e3,
            says(longer <= LONGER),
            self.memory as f64 / 1e6,
            (MEMORY + WAITING) as f64 / 1e6,
            says(self.memory <= MEMORY + WAITING),
        )
    }
}

/// What hostile clients send.
fn bodies() -> [String; 4] {
    let of = |field: &str| format!("{{\"request\":{{\"language\":\"python\",{field}}}}}");
    let list = |entry: &str, count: usize| vec![entry; count].join(",");
    let table: Vec<String> = (0..1_000_000).map(|n| format!("\"{n}\":\"\"")).collect();
    [
        of(&format!("\"code\":\"#{}\"", "x".repeat(15 << 20))),
        of(&format!("\"code\":\"1\",\"env\":{{{}}}", table.join(","))),
        of(&format!(
            "\"code\":\"1\",\"args\":[{}]",
            list("\"x\"", 3_500_000)
        )),
        of(&format!(
            "\"code\":\"1\",\"files\":[{}]",
            list("{\"path\":\"a\",\"text\":\"\"}", 600_000)
        )),
    ]
}

/// Sends a run, or keeps its body from ending for a while.
fn send(address: &str, body: &str, ends: bool) -> Result<()> {
    let mut socket = TcpStream::connect(address)?;
    let length = body.len() + usize::from(!ends);
    write!(
        socket,
        "POST /v1/runs HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\n\
         connection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n",
        TOKENS[0]
    )?;
    socket.write_all(body.as_bytes())?;
    if !ends {
        std::thread::sleep(HELD);
        return Ok(());
    }
    socket.read_to_end(&mut Vec::new())?;
    Ok(())
}

fn times(server: &Server, runs: usize) -> Result<Summary> {
    let body = json!({"request": {"language": "python", "code": "print(1)"}}).to_string();
    let mut times = Vec::new();
    for _ in 0..runs {
        let began = Instant::now();
        let ran = server.request(
            "POST /v1/runs",
            &[("content-type", "application/json")],
            &body,
        )?;
        if ran["record"]["outcome"] != "ok" {
            return Err(ran.to_string().into());
        }
        times.push(began.elapsed().as_secs_f64() * 1e6);
    }
    Ok(Summary::of(times))
}

/// The most resident bytes of a process so far.
fn peak(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next());
    Ok(kilobytes.ok_or("no VmHWM")?.parse::<u64>()? * 1024)
}
