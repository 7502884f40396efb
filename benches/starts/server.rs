//! A client of `cellblock serve` on its standard streams.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Result;
use crate::pools::wait_until_full;
use crate::scene::Scene;

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
        let mut server = Self::start_empty(scene, options)?;
        wait_until_full(|| server.call("status", json!({})))?;
        Ok(server)
    }

    /// Starts it with these options.
    pub(crate) fn start_empty(scene: &Scene, options: &[&str]) -> Result<Self> {
        let mut child = scene
            .command()
            .arg("serve")
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let calls = child.stdin.take();
        let answers = child.stdout.take().ok_or("no pipe to the server")?;
        let mut server = Self {
            child,
            calls,
            answers: BufReader::new(answers),
            last: 0,
        };
        // It reads calls once there is a template.
        server.call("status", json!({}))?;
        Ok(server)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Makes the same call over and over, always so many at a time, until `end`; how many
    /// were answered by then. `check` looks at each result.
    pub(crate) fn flood(
        &mut self,
        method: &str,
        params: &Value,
        at_once: usize,
        end: Instant,
        check: impl Fn(&Value) -> Result<()>,
    ) -> Result<usize> {
        let mut answered = 0;
        for _ in 0..at_once {
            self.send(method, params)?;
        }
        let mut waiting = at_once;
        while waiting > 0 {
            let (_, result) = self.receive()?;
            waiting -= 1;
            check(&result.map_err(|error| format!("{method}: {error}"))?)?;
            if Instant::now() < end {
                answered += 1;
                self.send(method, params)?;
                waiting += 1;
            }
        }
        Ok(answered)
    }

    /// Makes a call and waits for its result.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Result<Value> {
        Ok(self.timed(method, params)?.1)
    }

    /// The same, and how long the answer took.
    pub(crate) fn timed(&mut self, method: &str, params: Value) -> Result<(Duration, Value)> {
        let began = Instant::now();
        let id = self.send(method, &params)?;
        loop {
            let (answered, result) = self.receive()?;
            let took = began.elapsed();
            if answered == id {
                let result = result.map_err(|error| format!("{method}: {error}"))?;
                return Ok((took, result));
            }
        }
    }

    /// Sends a call; its id.
    fn send(&mut self, method: &str, params: &Value) -> Result<u64> {
        self.last += 1;
        let id = self.last;
        let mut line = json!({"id": id, "method": method, "params": params}).to_string();
        line.push('\n');
        let calls = self.calls.as_mut().ok_or("the server has ended")?;
        calls.write_all(line.as_bytes())?;
        Ok(id)
    }

    /// The next answer: to which call, and its result or error.
    fn receive(&mut self) -> Result<(u64, std::result::Result<Value, Value>)> {
        loop {
            let mut line = String::new();
            if self.answers.read_line(&mut line)? == 0 {
                return Err("the server has ended".into());
            }
            let mut answer: Value = serde_json::from_str(&line)?;
            if let Some(id) = answer["id"].as_u64()
                && answer.get("event").is_none()
            {
                let result = answer.get_mut("result").map(Value::take);
                return Ok((id, result.ok_or_else(|| answer["error"].take())));
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.calls = None;
        let _ = self.child.wait();
    }
}
