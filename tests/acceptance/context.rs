//! Steps in contexts, by one server for each case.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use super::case::{Case, Step};
use super::check::Ran;

/// A server with the contexts of a case.
pub(crate) struct Contexts {
    server: Child,
    calls: ChildStdin,
    answers: BufReader<ChildStdout>,
    known: BTreeSet<String>,
    language: String,
}

impl Contexts {
    pub(crate) fn start(case: &Case, rootfs: &str) -> Result<Self, String> {
        let mut server = Command::new(env!("CARGO_BIN_EXE_cellblock"))
            // Code that is interrupted gets the time to end by itself.
            .args(["serve", "--grace", "5s", "--rootfs", rootfs])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| e.to_string())?;
        let calls = server.stdin.take().ok_or("no standard input")?;
        let answers = BufReader::new(server.stdout.take().ok_or("no standard output")?);
        Ok(Self {
            server,
            calls,
            answers,
            known: BTreeSet::new(),
            language: case.language.clone(),
        })
    }

    /// Executes a step in the context that it names, or else in the case's.
    pub(crate) fn execute(&mut self, name: &str, step: &Step) -> Result<Ran, String> {
        if self.known.insert(name.to_owned()) {
            let request = json!({"language": self.language});
            self.call(
                "context.create",
                &json!({"request": request, "context": name}),
            )?;
        }
        let mut params = json!({"context": name, "code": step.code, "grace": "20s"});
        if let Some(wall) = &step.timeout {
            params["wall"] = wall.as_str().into();
        }
        let mut result = self.call("context.run", &params)?;
        let scratch = tempfile::tempdir().map_err(|e| e.to_string())?;
        Ok(Ran {
            json: result["record"].take(),
            out: scratch.path().to_owned(),
            _scratch: scratch,
        })
    }

    fn call(&mut self, method: &str, params: &Value) -> Result<Value, String> {
        let line = json!({"id": 1, "method": method, "params": params});
        writeln!(self.calls, "{line}").map_err(|e| e.to_string())?;
        let mut line = String::new();
        self.answers
            .read_line(&mut line)
            .map_err(|e| e.to_string())?;
        let mut answer: Value = serde_json::from_str(&line).map_err(|e| format!("{e}: {line}"))?;
        match answer.get("result") {
            Some(_) => Ok(answer["result"].take()),
            None => Err(format!("{method}: {answer}")),
        }
    }
}

impl Drop for Contexts {
    fn drop(&mut self) {
        // Its cells end with it.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
