//! Starting programs.

use std::collections::BTreeMap;

use axum::body::Bytes;
use axum::http::HeaderMap;
use futures_util::Stream;
use serde::Deserialize;
use serde_json::{Value, json};
use serve::protocol::ProcessStarted;

use super::stream;
use crate::e2b::HOME;
use crate::e2b::connect::{self, Error};
use crate::e2b::envd::call::Call;

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
    /// The whole path of the directory that the client named; relative ones are below the user's.
    fn directory(&self) -> Option<String> {
        let given = self.process.cwd.as_deref().filter(|cwd| !cwd.is_empty())?;
        Some(match given.starts_with('/') {
            true => given.to_owned(),
            false => format!("{HOME}/{given}"),
        })
    }

    /// The parameters of `process.start`, with a directory as programs name it.
    fn params(&self, headers: &HeaderMap, cwd: Option<&str>) -> Result<Value, Error> {
        let argv: Vec<_> = std::iter::once(&self.process.cmd)
            .chain(&self.process.args)
            .collect();
        let mut params = json!({
            "argv": argv,
            "env": self.process.envs,
            "input": self.stdin.unwrap_or(true),
            "events": true,
        });
        if let Some(cwd) = cwd {
            params["cwd"] = cwd.into();
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

pub(in crate::e2b::envd) async fn start(
    call: Call<Start>,
) -> Result<impl Stream<Item = Bytes> + use<>, Error> {
    let cwd = call.message.directory();
    let cwd = cwd.map(|cwd| call.sandbox.directory(&cwd));
    let params = call.message.params(&call.headers, cwd.as_deref())?;
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
        assert_eq!(asked.directory().as_deref(), Some("/home/user/d"));
        assert_eq!(asked.params(&headers, Some("/workspace/d")), Ok(expected));
        let terminal = start(json!({
            "process": {"cmd": "sh"}, "pty": {"size": {"cols": 100, "rows": 30}},
        }));
        let params = terminal.params(&HeaderMap::new(), None).unwrap();
        assert_eq!(params["terminal"], json!({"columns": 100, "rows": 30}));
        assert_eq!(params["input"], true);
        assert_eq!(terminal.directory(), None);
    }
}
