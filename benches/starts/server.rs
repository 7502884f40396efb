//! A client of `cellblock serve` on its standard streams.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nix::unistd::Uid;
use serde_json::{Value, json};

use crate::Result;
use crate::scene::Scene;

/// How long a server may take to fill what it keeps ready.
const FILL: Duration = Duration::from_secs(120);

/// A server of this process's own. Its end ends the server.
pub(crate) struct Server {
    child: Child,
    calls: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    last: u64,
}

impl Server {
    /// Starts it with these options, and waits until it has all that it keeps ready.
    pub(crate) fn start(scene: &Scene, options: &[&str]) -> Result<Self> {
        let mut command = Command::new(&scene.cellblock);
        command
            .arg("serve")
            .args(options)
            .current_dir("/")
            .env("XDG_RUNTIME_DIR", scene.scratch.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if Uid::effective().is_root() {
            command.uid(scene.uid).gid(scene.uid);
        }
        let mut child = command.spawn()?;
        let calls = child.stdin.take();
        let answers = child.stdout.take().ok_or("no pipe to the server")?;
        let mut server = Self {
            child,
            calls,
            answers: BufReader::new(answers),
            last: 0,
        };
        server.wait_until_full()?;
        Ok(server)
    }

    fn wait_until_full(&mut self) -> Result<()> {
        let until = Instant::now() + FILL;
        loop {
            let status = self.call("status", json!({}))?;
            let pools = status["pools"].as_array().cloned().unwrap_or_default();
            if pools.iter().all(|pool| pool["ready"] == pool["wanted"]) {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(format!("its cells are not ready: {pools:?}").into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Makes a call and waits for its result.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Result<Value> {
        Ok(self.timed(method, params)?.1)
    }

    /// The same, and how long the answer took.
    pub(crate) fn timed(&mut self, method: &str, params: Value) -> Result<(Duration, Value)> {
        self.last += 1;
        let id = self.last;
        let mut line = json!({"id": id, "method": method, "params": params}).to_string();
        line.push('\n');
        let calls = self.calls.as_mut().ok_or("the server has ended")?;
        let began = Instant::now();
        calls.write_all(line.as_bytes())?;
        loop {
            line.clear();
            if self.answers.read_line(&mut line)? == 0 {
                return Err("the server has ended".into());
            }
            let took = began.elapsed();
            let mut answer: Value = serde_json::from_str(&line)?;
            if answer["id"] != id {
                continue;
            }
            return match answer.get_mut("result").map(Value::take) {
                Some(result) => Ok((took, result)),
                None => Err(format!("{method}: {}", answer["error"]).into()),
            };
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.calls = None;
        let _ = self.child.wait();
    }
}
