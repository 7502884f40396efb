//! A client process, or a server on standard streams: lines go in, lines come out.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::Result;

/// The process. It ends when its standard input does.
pub(crate) struct Client {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    last: u64,
}

impl Client {
    pub(crate) fn start(mut command: Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take();
        let output = child.stdout.take().ok_or("no pipe from the process")?;
        Ok(Self {
            child,
            input,
            output: BufReader::new(output),
            last: 0,
        })
    }

    pub(crate) fn send(&mut self, line: &str) -> Result<()> {
        let input = self.input.as_mut().ok_or("the process has ended")?;
        Ok(input.write_all(format!("{line}\n").as_bytes())?)
    }

    pub(crate) fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        match self.output.read_line(&mut line)? {
            0 => Err("the process has ended".into()),
            _ => Ok(line),
        }
    }

    /// The handshake of the Model Context Protocol.
    pub(crate) fn initialize(&mut self) -> Result<()> {
        let about = json!({"name": "bench", "version": "1"});
        let params =
            json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": about});
        self.call("initialize", &params)?;
        let done = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        self.send(&done.to_string())
    }

    /// The structured result of a tool.
    pub(crate) fn tool(&mut self, name: &str, arguments: &Value) -> Result<Value> {
        let params = json!({"name": name, "arguments": arguments});
        let mut result = self.call("tools/call", &params)?;
        match result["isError"] == true {
            false => Ok(result["structuredContent"].take()),
            true => Err(format!("{name}: {result}").into()),
        }
    }

    fn call(&mut self, method: &str, params: &Value) -> Result<Value> {
        self.last += 1;
        let id = self.last;
        let call = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.send(&call.to_string())?;
        loop {
            let mut answer: Value = serde_json::from_str(&self.line()?)?;
            if answer["id"] == id {
                let result = answer.get_mut("result").map(Value::take);
                return result.ok_or_else(|| format!("{method}: {answer}").into());
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.wait();
    }
}
