//! Programs that are started.

use std::collections::BTreeMap;

use axum::body::Bytes;
use axum::http::HeaderMap;
use futures_util::Stream;
use serde::Deserialize;
use serde_json::{Value, json};
use serve::protocol::ProcessStarted;

use super::stream;
use crate::e2b::connect::{self, Error};
use crate::e2b::envd::call::Call;
use crate::e2b::{HOME, WORKSPACE};

#[derive(Debug, Deserialize)]
pub(in crate::e2b::envd) struct Start {
    process: Config,
    #[serde(default)]
    pty: Option<Terminal>,
    #[serde(default)]
    tag: Option<String>,
    /// Clients that leave this out expect to have standard input.
    #[serde(default)]
    stdin: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct Config {
    cmd: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    envs: BTreeMap<String, String>,
    #[serde(default)]
    cwd: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Terminal {
    #[serde(default)]
    size: Option<Size>,
}

#[derive(Debug, Deserialize)]
struct Size {
    #[serde(default)]
    cols: u16,
    #[serde(default)]
    rows: u16,
}

impl Terminal {
    pub(super) fn params(&self) -> Value {
        let (columns, rows) = self
            .size
            .as_ref()
            .map_or((80, 24), |size| (size.cols, size.rows));
        json!({"columns": columns, "rows": rows})
    }
}

impl Start {
    /// The parameters of `process.start`.
    fn params(&self, headers: &HeaderMap) -> Result<Value, Error> {
        let argv: Vec<_> = std::iter::once(&self.process.cmd)
            .chain(&self.process.args)
            .collect();
        let mut params = json!({
            "argv": argv,
            "env": self.process.envs,
            "input": self.stdin.unwrap_or(true),
            "events": true,
        });
        if let Some(cwd) = self.process.cwd.as_deref().filter(|cwd| !cwd.is_empty()) {
            params["cwd"] = directory(cwd).into();
        }
        if let Some(terminal) = &self.pty {
            params["terminal"] = terminal.params();
        }
        if let Some(tag) = &self.tag {
            params["tag"] = tag.as_str().into();
        }
        if let Some(wall) = connect::timeout(headers)? {
            params["wall"] = format!("{}ms", wall.as_millis()).into();
        }
        Ok(params)
    }
}

/// A directory as programs see it; relative ones are below the user's directory.
fn directory(given: &str) -> String {
    let whole = match given.starts_with('/') {
        true => given.to_owned(),
        false => format!("{HOME}/{given}"),
    };
    match whole.strip_prefix(HOME) {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("{WORKSPACE}{rest}"),
        _ => whole,
    }
}

pub(in crate::e2b::envd) async fn start(
    call: Call<Start>,
) -> Result<impl Stream<Item = Bytes> + use<>, Error> {
    let params = call.message.params(&call.headers)?;
    let mut client = call.client()?;
    let started: ProcessStarted = client.ask("process.start", params).await?;
    Ok(stream::events(client.client, &started))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_a_call_of_the_protocol() {
        let start = |value: Value| -> Start { serde_json::from_value(value).unwrap() };
        let mut headers = HeaderMap::new();
        headers.insert("connect-timeout-ms", 60_000.into());
        let asked = start(json!({
            "process": {"cmd": "/bin/bash", "args": ["-l", "-c", "x"], "envs": {"A": "b"}, "cwd": "d"},
            "tag": "t", "stdin": false,
        }));
        let expected = json!({
            "argv": ["/bin/bash", "-l", "-c", "x"], "env": {"A": "b"}, "cwd": "/workspace/d",
            "input": false, "events": true, "tag": "t", "wall": "60000ms",
        });
        assert_eq!(asked.params(&headers), Ok(expected));
        let terminal = start(json!({
            "process": {"cmd": "sh"}, "pty": {"size": {"cols": 100, "rows": 30}},
        }));
        let params = terminal.params(&HeaderMap::new()).unwrap();
        assert_eq!(params["terminal"], json!({"columns": 100, "rows": 30}));
        assert_eq!(params["input"], true);
        assert_eq!(directory("/tmp"), "/tmp");
        assert_eq!(directory("/home/users"), "/home/users");
    }
}
