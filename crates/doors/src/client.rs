//! A client of the server's hub.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serve::Party;
use serve::net::Connector;
use serve::protocol::{CallId, Code, Failure, LONGEST_LINE};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;

use crate::front::held;

/// Longer lines end the connection: a record holds streams and results of bounded length.
const LONGEST: u64 = 300 << 20;

/// A client of the hub. What it asked for is cancelled when it is dropped, and its contexts
/// are deleted, except those that are kept.
#[derive(Debug)]
pub(crate) struct Client {
    socket: BufReader<UnixStream>,
    last: i64,
    /// The beginning of a line whose end has not arrived.
    line: Vec<u8>,
}

/// What the hub says to the call that goes on.
#[derive(Debug)]
pub(crate) enum Reply {
    /// Something happened meanwhile.
    Event(Box<RawValue>),
    /// The call's result.
    Result(Box<RawValue>),
}

#[derive(Serialize)]
struct Call<'a, T> {
    id: i64,
    method: &'a str,
    params: &'a T,
}

#[derive(Deserialize)]
struct Line {
    id: Option<CallId>,
    #[serde(default)]
    event: Option<Box<RawValue>>,
    #[serde(default)]
    result: Option<Box<RawValue>>,
    #[serde(default)]
    error: Option<Failure>,
}

impl Client {
    /// # Errors
    /// The server is ending, or has no descriptor left.
    pub(crate) fn connect(connector: &Connector, party: Party) -> Result<Self, Failure> {
        let connect = || {
            let socket = connector.connect(party)?;
            socket.set_nonblocking(true)?;
            UnixStream::from_std(socket)
        };
        let socket = connect().map_err(|error| {
            Failure::new(Code::Busy, format!("the server takes no client: {error}"))
                .retry_after(std::time::Duration::from_secs(1))
        })?;
        Ok(Self {
            socket: BufReader::new(socket),
            last: 0,
            line: Vec::new(),
        })
    }

    /// Makes a call, whose events and result follow by [`Client::next`].
    ///
    /// # Errors
    /// The call is too long.
    pub(crate) async fn begin(
        &mut self,
        method: &str,
        params: &impl Serialize,
    ) -> Result<(), Failure> {
        let line = self.call(method, params)?;
        self.send(line).await;
        Ok(())
    }

    /// The line of a call, which [`Client::send`] sends.
    ///
    /// # Errors
    /// The call is too long.
    pub(crate) fn call(
        &mut self,
        method: &str,
        params: &impl Serialize,
    ) -> Result<Vec<u8>, Failure> {
        self.last += 1;
        let call = Call {
            id: self.last,
            method,
            params,
        };
        let line = serde_json::to_vec(&call);
        let line = line.map_err(|error| Failure::new(Code::BadParams, error.to_string()))?;
        if line.len() > LONGEST_LINE {
            let message = format!("the call has more than {LONGEST_LINE} bytes as JSON");
            return Err(Failure::new(Code::TooLong, message));
        }
        Ok(line)
    }

    /// Sends a line of the protocol.
    pub(crate) async fn send(&mut self, mut line: Vec<u8>) {
        line.push(b'\n');
        // A server that refuses the client says so before it closes the connection.
        let _ = self.socket.get_mut().write_all(&line).await;
        held::sent(line.len());
    }

    /// The next line of the protocol. Nothing is lost if this future is dropped before it is ready.
    ///
    /// # Errors
    /// The server has ended.
    pub(crate) async fn line(&mut self) -> Result<Vec<u8>, Failure> {
        let left = LONGEST.saturating_sub(self.line.len() as u64);
        let mut socket = (&mut self.socket).take(left);
        let read = socket.read_until(b'\n', &mut self.line).await;
        if read.is_err() || !self.line.ends_with(b"\n") {
            let message = "the server ended before there was an answer";
            return Err(Failure::new(Code::ShuttingDown, message));
        }
        Ok(std::mem::take(&mut self.line))
    }

    /// The next event or the end of the call that was begun last. Nothing is lost if this future is
    /// dropped before it is ready.
    ///
    /// # Errors
    /// The call's own error, or the server has ended.
    pub(crate) async fn next(&mut self) -> Result<Reply, Failure> {
        loop {
            let line = self.line().await?;
            let line: Line = record::json::from_slice(&line).map_err(|error| {
                Failure::new(Code::Failed, format!("not a server's line: {error}"))
            })?;
            let is_own = line.id == Some(CallId::Number(self.last));
            match (line.error, line.result, line.event) {
                (Some(failure), ..) if is_own || line.id.is_none() => return Err(failure),
                (_, Some(result), _) if is_own => return Ok(Reply::Result(result)),
                (.., Some(event)) if is_own => return Ok(Reply::Event(event)),
                // News of a context that ended.
                _ => {}
            }
        }
    }

    /// Makes a call and waits for its result; events are dropped.
    ///
    /// # Errors
    /// See [`Client::begin`] and [`Client::next`].
    pub(crate) async fn ask(
        &mut self,
        method: &str,
        params: &impl Serialize,
    ) -> Result<Box<RawValue>, Failure> {
        self.begin(method, params).await?;
        self.result().await
    }

    /// Waits for the result of the call that was begun last; events are dropped.
    ///
    /// # Errors
    /// See [`Client::next`].
    pub(crate) async fn result(&mut self) -> Result<Box<RawValue>, Failure> {
        loop {
            if let Reply::Result(result) = self.next().await? {
                return Ok(result);
            }
        }
    }

    /// The same for a result of a known form.
    ///
    /// # Errors
    /// See [`Client::ask`].
    pub(crate) async fn ask_for<T: DeserializeOwned>(
        &mut self,
        method: &str,
        params: &impl Serialize,
    ) -> Result<T, Failure> {
        let result = self.ask(method, params).await?;
        serde_json::from_str(result.get()).map_err(|error| {
            Failure::new(Code::Failed, format!("not a result of {method}: {error}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn half_a_line_is_kept() {
        let (socket, mut server) = UnixStream::pair().unwrap();
        let mut client = Client {
            socket: BufReader::new(socket),
            last: 7,
            line: Vec::new(),
        };
        let (first, second) = br#"{"id":7,"result":{"done":true}}"#.split_at(11);
        server.write_all(first).await.unwrap();
        while client.line.len() < first.len() {
            tokio::select! {
                biased;
                said = client.next() => panic!("{said:?}"),
                () = tokio::task::yield_now() => {}
            }
        }
        server.write_all(second).await.unwrap();
        server.write_all(b"\n").await.unwrap();
        let said = client.next().await.unwrap();
        assert!(matches!(said, Reply::Result(result) if result.get() == r#"{"done":true}"#));
    }
}
