//! The service `process.Process`: programs in a sandbox, on the calls `process.…` of the
//! protocol.

mod input;
mod selected;
mod start;
mod stream;

use std::time::Duration;

use axum::body::Bytes;
use futures_util::Stream;
use record::json::Object;
use record::object;
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::time::Instant;
use wire::{Failure, Method, ProcessInfo, ProcessName, ProcessResize, ProcessSignal, method};

use super::call::{Call, SandboxClient};
use crate::e2b::connect::{Code, Error};
pub(super) use input::{close_input, send_input, stream_input};
use selected::{Selector, all, find};
use start::Terminal;
pub(super) use start::start;

/// How long an answer waits for a killed process to be gone.
const KILL_DEADLINE: Duration = Duration::from_secs(1);
/// The time between two looks at it.
const BREATH: Duration = Duration::from_millis(5);

/// Makes a call about a process that was found: an answer `not_found` means that it has ended
/// since.
async fn order<M: Method>(client: &mut SandboxClient, params: &M::Params) -> Result<(), Error> {
    client.ask::<M>(params).await.map(drop).map_err(ended)
}

fn ended(failure: Failure) -> Error {
    match failure.code {
        wire::Code::NotFound => Error::new(Code::NotFound, failure.message),
        _ => failure.into(),
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Selected {
    process: Selector,
}

/// Streams a process's output from now on.
pub(super) async fn connect(
    call: Call<Selected>,
) -> Result<impl Stream<Item = Bytes> + use<>, Error> {
    let mut client = call.client()?;
    let process = find(&mut client, &call.message.process).await?;
    let params = ProcessName {
        context: client.context(),
        process: process.process,
    };
    let started = client.ask::<method::ProcessConnect>(&params).await;
    let started = started.map_err(ended)?;
    Ok(stream::events(client.client, &started))
}

pub(super) async fn list(call: Call<IgnoredAny>) -> Result<Object<'static>, Error> {
    let found = all(&mut call.client()?).await?;
    let shown: Vec<_> = found.iter().map(selected::shown).collect();
    Ok(object! {"processes": shown})
}

#[derive(Debug, Deserialize)]
pub(super) struct Signalling {
    process: Selector,
    #[serde(default)]
    signal: String,
}

pub(super) async fn send_signal(call: Call<Signalling>) -> Result<Object<'static>, Error> {
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
    let params = ProcessSignal {
        context: client.context(),
        process: process.process,
        signal: signal.to_owned(),
    };
    order::<method::ProcessSignal>(&mut client, &params).await?;
    if signal == "SIGKILL" {
        until_gone(&mut client, process.process).await;
    }
    Ok(object! {})
}

/// Waits until a killed process is gone: clients look for it after the answer.
async fn until_gone(client: &mut SandboxClient, number: u64) {
    let until = Instant::now() + KILL_DEADLINE;
    let is_it = |process: &ProcessInfo| process.process == number;
    while all(client).await.is_ok_and(|all| all.iter().any(is_it)) && Instant::now() < until {
        tokio::time::sleep(BREATH).await;
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Updating {
    process: Selector,
    #[serde(default)]
    pty: Option<Terminal>,
}

/// Gives a terminal another size.
pub(super) async fn update(call: Call<Updating>) -> Result<Object<'static>, Error> {
    let mut client = call.client()?;
    let process = find(&mut client, &call.message.process).await?;
    if let Some(terminal) = &call.message.pty {
        let params = ProcessResize {
            context: client.context(),
            process: process.process,
            terminal: terminal.size(),
        };
        order::<method::ProcessResize>(&mut client, &params).await?;
    }
    Ok(object! {})
}
