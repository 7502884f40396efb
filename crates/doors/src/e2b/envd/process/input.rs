//! The input of programs.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::stream::once;
use record::bytes::RawText;
use record::json::Object;
use record::object;
use serde::Deserialize;
use wire::{ProcessInput, ProcessName, method};

use super::selected::{Selector, find};
use super::{Selected, order};
use crate::answer::Answer;
use crate::e2b::connect::{self, Code, Error, Messages};
use crate::e2b::envd::call::{Call, SandboxClient};
use crate::e2b::sandboxes::Sandbox;
use crate::front::Guarded;

/// The most bytes of input in one call of the protocol.
const LONGEST_INPUT: usize = 1 << 20;

/// Bytes in base64.
#[derive(Debug, Default, Deserialize)]
struct Input {
    #[serde(default)]
    stdin: Option<String>,
    #[serde(default)]
    pty: Option<String>,
}

impl Input {
    /// The bytes, in pieces that fit into one call.
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
pub(in crate::e2b::envd) struct Sending {
    process: Selector,
    #[serde(default)]
    input: Input,
}

pub(in crate::e2b::envd) async fn send_input(
    call: Call<Sending>,
) -> Result<Object<'static>, Error> {
    let mut client = call.client()?;
    let process = find(&mut client, &call.message.process).await?;
    send(&mut client, process.process, &call.message.input).await?;
    Ok(object! {})
}

async fn send(client: &mut SandboxClient, process: u64, input: &Input) -> Result<(), Error> {
    for data in input.pieces()? {
        let params = ProcessInput {
            context: client.context(),
            process,
            data,
        };
        order::<method::ProcessInput>(client, &params).await?;
    }
    Ok(())
}

/// Input as a stream: the first message names the process, the others have the bytes.
pub(in crate::e2b::envd) async fn stream_input(
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
            let whole = [connect::message(&object! {}), connect::end(None)].concat();
            connect::stream(once(async { Ok(whole.into()) }))
        }
        Err(error) => connect::failed(&error),
    }
}

pub(in crate::e2b::envd) async fn close_input(
    call: Call<Selected>,
) -> Result<Object<'static>, Error> {
    let mut client = call.client()?;
    let process = find(&mut client, &call.message.process).await?;
    let params = ProcessName {
        context: client.context(),
        process: process.process,
    };
    order::<method::ProcessCloseInput>(&mut client, &params).await?;
    Ok(object! {})
}

#[cfg(test)]
mod tests {
    use super::*;

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
