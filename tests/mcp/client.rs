//! A client on a pair of pipes, which does not wait for ever.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

/// How long anything may take on a busy machine.
fn patience() -> Duration {
    let factor = std::env::var("CELLS_PATIENCE").ok();
    let factor = factor.and_then(|factor| factor.parse().ok()).unwrap_or(1);
    Duration::from_secs(120) * factor
}

/// `cellblock mcp`; it is killed in the end.
pub(crate) struct Client {
    pub(crate) child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    /// Lines that came before the one that was waited for.
    passed: VecDeque<Value>,
    last: i64,
}

impl Client {
    pub(crate) fn start(options: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_cellblock"))
            .args(["mcp", "--rootfs", "host"])
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (to, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if to.send(line).is_err() {
                    return;
                }
            }
        });
        let input = child.stdin.take();
        Self {
            child,
            input,
            lines,
            passed: VecDeque::new(),
            last: 0,
        }
    }

    pub(crate) fn write(&mut self, line: &str) {
        let input = self.input.as_mut().unwrap();
        writeln!(input, "{line}").unwrap();
    }

    pub(crate) fn close(&mut self) {
        self.input = None;
    }

    /// The next line; all of them are JSON.
    pub(crate) fn read(&mut self) -> Value {
        if let Some(line) = self.passed.pop_front() {
            return line;
        }
        let line = self.lines.recv_timeout(patience()).expect("a line");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// Whether nothing more has come.
    pub(crate) fn is_silent(&mut self) -> bool {
        self.passed.is_empty() && self.lines.try_recv().is_err()
    }

    pub(crate) fn send(&mut self, method: &str, params: Value) -> i64 {
        self.last += 1;
        let line = json!({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params});
        self.write(&line.to_string());
        self.last
    }

    pub(crate) fn notify(&mut self, method: &str, params: Value) {
        let line = json!({"jsonrpc": "2.0", "method": method, "params": params});
        self.write(&line.to_string());
    }

    /// The line that answers a request; others are kept.
    pub(crate) fn answer(&mut self, id: i64) -> Value {
        if let Some(at) = self.passed.iter().position(|line| line["id"] == id) {
            return self.passed.remove(at).unwrap();
        }
        let mut others = std::mem::take(&mut self.passed);
        loop {
            let line = self.read();
            if line["id"] == id {
                others.append(&mut self.passed);
                self.passed = others;
                return line;
            }
            others.push_back(line);
        }
    }

    /// The result of a request.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        let mut answer = self.answer(id);
        assert!(answer.get("error").is_none(), "{answer}");
        answer["result"].take()
    }

    /// The result of a tool.
    pub(crate) fn tool(&mut self, name: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({"name": name, "arguments": arguments}))
    }

    /// What a tool that succeeds answers.
    pub(crate) fn data(&mut self, name: &str, arguments: Value) -> Value {
        let mut result = self.tool(name, arguments);
        assert_eq!(result["isError"], false, "{result}");
        result["structuredContent"].take()
    }

    pub(crate) fn create(&mut self, arguments: Value) -> String {
        let made = self.data("create_context", arguments);
        made["context_id"].as_str().unwrap().to_owned()
    }

    /// Waits for the process's end.
    pub(crate) fn wait(&mut self) -> std::process::ExitStatus {
        let end = std::time::Instant::now() + patience();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(std::time::Instant::now() < end, "it goes on");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
