//! Starting programs.

use std::path::PathBuf;

use axum::body::Bytes;
use axum::http::HeaderMap;
use futures_util::Stream;
use record::bytes::RawText;
use record::json::{List, Pairs};
use record::quantity::Bound;
use serde::Deserialize;
use wire::{ProcessStart, TerminalSize, method};

use super::stream;
use crate::e2b::HOME;
use crate::e2b::connect::{self, Error};
use crate::e2b::envd::call::Call;

record::bounds! {
    /// The arguments of a program.
    MostArgs = "args", 1 << 16;
    /// The variables of a program.
    MostVariables = "envs", 4096;
}

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
    args: List<String, MostArgs>,
    #[serde(default)]
    envs: Pairs<String, MostVariables>,
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
    pub(super) fn size(&self) -> TerminalSize {
        let (columns, rows) = self
            .size
            .as_ref()
            .map_or((80, 24), |size| (size.cols, size.rows));
        TerminalSize { rows, columns }
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
    fn params(
        &self,
        context: String,
        headers: &HeaderMap,
        cwd: Option<&str>,
    ) -> Result<ProcessStart, Error> {
        let text = |text: &String| RawText::from(text.as_str());
        let argv = std::iter::once(&self.process.cmd).chain(self.process.args.iter());
        let env = self.process.envs.iter();
        Ok(ProcessStart {
            context,
            argv: Some(argv.map(text).collect()),
            env: env
                .map(|(name, value)| (name.clone(), text(value)))
                .collect(),
            cwd: cwd.map(PathBuf::from),
            input: self.stdin.unwrap_or(true),
            terminal: self.pty.as_ref().map(Terminal::size),
            wall: connect::timeout(headers)?.map(|wall| Bound(Some(wall))),
            tag: self.tag.clone(),
            events: true,
            ..ProcessStart::default()
        })
    }
}

pub(in crate::e2b::envd) async fn start(
    call: Call<Start>,
) -> Result<impl Stream<Item = Bytes> + use<>, Error> {
    let cwd = call.message.directory();
    let cwd = cwd.map(|cwd| call.sandbox.directory(&cwd));
    let context = call.sandbox.main.clone();
    let params = (call.message).params(context, &call.headers, cwd.as_deref())?;
    let mut client = call.client()?;
    let started = client.ask::<method::ProcessStart>(&params).await?;
    Ok(stream::events(client.client, &started))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

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
            "context": "c", "events": true, "tag": "t", "wall": "1m",
        });
        assert_eq!(asked.directory().as_deref(), Some("/home/user/d"));
        let params = asked
            .params("c".to_owned(), &headers, Some("/workspace/d"))
            .unwrap();
        assert_eq!(serde_json::to_value(params).unwrap(), expected);
        let terminal = start(json!({
            "process": {"cmd": "sh"}, "pty": {"size": {"cols": 100, "rows": 30}},
        }));
        let params = terminal
            .params("c".to_owned(), &HeaderMap::new(), None)
            .unwrap();
        let params = serde_json::to_value(params).unwrap();
        assert_eq!(params["terminal"], json!({"columns": 100, "rows": 30}));
        assert_eq!(params["input"], true);
        assert_eq!(terminal.directory(), None);
    }
}
