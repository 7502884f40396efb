//! The service `process.Process`: programs in a sandbox, on the calls `process.…` of the
//! protocol.

mod selected;
mod stream;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::Stream;
use futures_util::stream::once;
use record::bytes::RawText;
use serde::Deserialize;
use serde_json::{Value, json};
use serve::protocol::{self, Failure, ProcessStarted};

use super::call::{Call, SandboxClient};
use crate::answer::Answer;
use crate::e2b::connect::{self, Code, Error, Messages};
use crate::e2b::sandboxes::Sandbox;
use crate::e2b::{HOME, WORKSPACE};
use crate::front::Guarded;
use selected::{Selector, all, find};

/// The most bytes of input in one call of the protocol.
const LONGEST_INPUT: usize = 1 << 20;

#[derive(Debug, Deserialize)]
pub(super) struct Start {
    process: Config,
    #[serde(default)]
    pty: Option<Terminal>,
    #[serde(default)]
    tag: Option<String>,
    /// Left out by clients that expect it to be there.
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
struct Terminal {
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
    fn params(&self) -> Value {
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

/// Makes a call about a process that was found: what is missing then is the process.
async fn order(client: &mut SandboxClient, method: &str, params: Value) -> Result<(), Error> {
    client.tell(method, params).await.map_err(ended)
}

fn ended(failure: Failure) -> Error {
    match failure.code {
        protocol::Code::NotFound => Error::new(Code::NotFound, failure.message),
        _ => failure.into(),
    }
}

/// A directory as programs see it; relative ones are below the user's.
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

pub(super) async fn start(call: Call<Start>) -> Result<impl Stream<Item = Bytes> + use<>, Error> {
    let params = call.message.params(&call.headers)?;
    let mut client = call.client()?;
    let started: ProcessStarted = client.ask("process.start", params).await?;
    Ok(stream::events(client.client, &started))
}

#[derive(Debug, Deserialize)]
pub(super) struct Selected {
    process: Selector,
}

/// Output from now on.
pub(super) async fn connect(
    call: Call<Selected>,
) -> Result<impl Stream<Item = Bytes> + use<>, Error> {
    let mut client = call.client()?;
    let process = find(&mut client, &call.message.process).await?;
    let params = json!({"process": process.process});
    let started: ProcessStarted = client.ask("process.connect", params).await.map_err(ended)?;
    Ok(stream::events(client.client, &started))
}

pub(super) async fn list(call: Call<Value>) -> Result<Value, Error> {
    let found = all(&mut call.client()?).await?;
    let shown: Vec<Value> = found.iter().map(selected::shown).collect();
    Ok(json!({"processes": shown}))
}

/// What a program reads: bytes in base64.
#[derive(Debug, Default, Deserialize)]
struct Input {
    #[serde(default)]
    stdin: Option<String>,
    #[serde(default)]
    pty: Option<String>,
}

impl Input {
    /// The bytes, in pieces that a call can have.
    fn pieces(&self) -> Result<Vec<RawText>, Error> {
        let text = self.stdin.as_ref().or(self.pty.as_ref());
        let bytes = STANDARD.decode(text.map_or("", String::as_str));
        let bytes = bytes.map_err(|error| {
            let message = format!("input: is not base64: {error}");
            Error::new(Code::InvalidArgument, message)
        })?;
        let pieces = bytes.chunks(LONGEST_INPUT);
        Ok(pieces.map(|piece| RawText::from(piece.to_vec())).collect())
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Sending {
    process: Selector,
    #[serde(default)]
    input: Input,
}

pub(super) async fn send_input(call: Call<Sending>) -> Result<Value, Error> {
    let mut client = call.client()?;
    let process = find(&mut client, &call.message.process).await?;
    send(&mut client, process.process, &call.message.input).await?;
    Ok(json!({}))
}

async fn send(client: &mut SandboxClient, process: u64, input: &Input) -> Result<(), Error> {
    for data in input.pieces()? {
        let params = json!({"process": process, "data": data});
        order(client, "process.input", params).await?;
    }
    Ok(())
}

/// Input as a stream: first whose it is, then the bytes.
pub(super) async fn stream_input(
    State(guarded): State<Guarded>,
    Extension(sandbox): Extension<Arc<Sandbox>>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    #[derive(Deserialize)]
    struct Message {
        #[serde(default)]
        start: Option<Selected>,
        #[serde(default)]
        data: Option<Data>,
    }
    #[derive(Deserialize)]
    struct Data {
        #[serde(default)]
        input: Input,
    }
    let done = async {
        let mut messages = Messages::new(&headers, body)?;
        let mut client = SandboxClient::connect(&guarded, &sandbox)?;
        let mut process = None;
        while let Some(message) = messages.next::<Message>().await? {
            if let Some(start) = message.start {
                process = Some(find(&mut client, &start.process).await?.process);
            }
            let Some(Data { input }) = message.data else {
                continue;
            };
            let process = process.ok_or_else(|| {
                let message = "the stream does not begin with `start`";
                Error::new(Code::InvalidArgument, message)
            })?;
            send(&mut client, process, &input).await?;
        }
        Ok::<_, Error>(())
    };
    match done.await {
        Ok(()) => {
            let whole = [connect::message(&json!({})), connect::end(None)].concat();
            connect::stream(once(async { whole.into() }))
        }
        Err(error) => connect::failed(&error),
    }
}

pub(super) async fn close_input(call: Call<Selected>) -> Result<Value, Error> {
    let mut client = call.client()?;
    let process = find(&mut client, &call.message.process).await?;
    let params = json!({"process": process.process});
    order(&mut client, "process.close_input", params).await?;
    Ok(json!({}))
}

#[derive(Debug, Deserialize)]
pub(super) struct Signalling {
    process: Selector,
    #[serde(default)]
    signal: String,
}

pub(super) async fn send_signal(call: Call<Signalling>) -> Result<Value, Error> {
    let mut client = call.client()?;
    let signal = match call.message.signal.as_str() {
        "SIGNAL_SIGKILL" => "SIGKILL",
        "SIGNAL_SIGTERM" => "SIGTERM",
        _ => {
            let message = "signal: wants SIGNAL_SIGKILL or SIGNAL_SIGTERM";
            return Err(Error::new(Code::InvalidArgument, message));
        }
    };
    let process = find(&mut client, &call.message.process).await?;
    let params = json!({"process": process.process, "signal": signal});
    order(&mut client, "process.signal", params).await?;
    Ok(json!({}))
}

#[derive(Debug, Deserialize)]
pub(super) struct Updating {
    process: Selector,
    #[serde(default)]
    pty: Option<Terminal>,
}

/// Gives a terminal another size.
pub(super) async fn update(call: Call<Updating>) -> Result<Value, Error> {
    let mut client = call.client()?;
    let process = find(&mut client, &call.message.process).await?;
    if let Some(terminal) = &call.message.pty {
        let params = json!({"process": process.process, "terminal": terminal.params()});
        order(&mut client, "process.resize", params).await?;
    }
    Ok(json!({}))
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

    #[test]
    fn input_is_base64() {
        let input = |text: &str| Input {
            stdin: Some(text.to_owned()),
            pty: None,
        };
        assert_eq!(input("YQ==").pieces().unwrap()[0].as_bytes(), b"a");
        assert!(input("?").pieces().is_err());
        assert!(Input::default().pieces().unwrap().is_empty());
        let long = STANDARD.encode(vec![b'x'; LONGEST_INPUT + 1]);
        assert_eq!(input(&long).pieces().unwrap().len(), 2);
    }
}
