//! A client of the server's hub.

use std::io::ErrorKind;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use wire::{
    Code, Connector, Failure, LONGEST_ANSWER, LONGEST_LINE, Lines, Method, Party, Said, line_of,
};

use crate::front::held;

/// Read at once.
const PIECE: usize = 16 << 10;

/// A client of the hub. What it asked for is cancelled when it is dropped, and its contexts
/// are deleted, except those that are kept.
#[derive(Debug)]
pub(crate) struct Client {
    socket: UnixStream,
    last: i64,
    /// What has arrived, up to the beginning of a line whose end has not.
    lines: Lines,
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
        Ok(Self::of(socket))
    }

    fn of(socket: UnixStream) -> Self {
        Self {
            socket,
            last: 0,
            lines: Lines::new(LONGEST_ANSWER),
        }
    }

    /// Makes a call, whose events and result follow by [`Client::next`].
    ///
    /// # Errors
    /// The call is too long.
    pub(crate) async fn begin<M: Method>(&mut self, params: &M::Params) -> Result<(), Failure> {
        let line = self.call(M::NAME, params)?;
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
    ) -> Result<String, Failure> {
        self.last += 1;
        let line = line_of(self.last, method, params);
        let line = line.map_err(|error| Failure::new(Code::BadParams, error.to_string()))?;
        if line.len() > LONGEST_LINE {
            let message = format!("the call has more than {LONGEST_LINE} bytes as JSON");
            return Err(Failure::new(Code::TooLong, message));
        }
        Ok(line)
    }

    /// Sends a line of the protocol.
    pub(crate) async fn send(&mut self, mut line: String) {
        line.push('\n');
        // A server that refuses the client says so before it closes the connection.
        let _ = self.socket.write_all(line.as_bytes()).await;
        held::sent(line.len());
    }

    /// The next line of the protocol. Nothing is lost if this future is dropped before it is ready.
    ///
    /// # Errors
    /// The server has ended.
    pub(crate) async fn line(&mut self) -> Result<Vec<u8>, Failure> {
        let ended = || {
            let message = "the server ended before there was an answer";
            Failure::new(Code::ShuttingDown, message)
        };
        loop {
            if let Some(line) = self.lines.next_line().map_err(|_| ended())? {
                return Ok(line);
            }
            self.socket.readable().await.map_err(|_| ended())?;
            match self.read() {
                Ok(0) => return Err(ended()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return Err(ended()),
            }
        }
    }

    /// Reads what there is; returns the number of bytes.
    fn read(&mut self) -> std::io::Result<usize> {
        let mut piece = [0; PIECE];
        let count = self.socket.try_read(&mut piece)?;
        self.lines.push(&piece[..count]);
        Ok(count)
    }

    /// The next event or the end of the call that was begun last. Nothing is lost if this future is
    /// dropped before it is ready.
    ///
    /// # Errors
    /// The call's own error, or the server has ended.
    pub(crate) async fn next(&mut self) -> Result<Said, Failure> {
        loop {
            let line = self.line().await?;
            if let Some(said) = Said::read(&line, self.last)? {
                return Ok(said);
            }
        }
    }

    /// Makes a call and waits for its result; events are dropped.
    ///
    /// # Errors
    /// See [`Client::begin`] and [`Client::next`].
    pub(crate) async fn ask<M: Method>(
        &mut self,
        params: &M::Params,
    ) -> Result<M::Answer, Failure> {
        self.ask_as::<M, M::Answer>(params).await
    }

    /// The same, with the result as another type: with all of it, or less.
    ///
    /// # Errors
    /// See [`Client::ask`].
    pub(crate) async fn ask_as<M: Method, T: DeserializeOwned>(
        &mut self,
        params: &M::Params,
    ) -> Result<T, Failure> {
        self.begin::<M>(params).await?;
        let result = self.result().await?;
        serde_json::from_str(result.get()).map_err(|error| {
            Failure::new(
                Code::Failed,
                format!("not a result of {}: {error}", M::NAME),
            )
        })
    }

    /// Waits for the result of the call that was begun last; events are dropped.
    ///
    /// # Errors
    /// See [`Client::next`].
    pub(crate) async fn result(&mut self) -> Result<Box<RawValue>, Failure> {
        loop {
            if let Said::Result(result) = self.next().await? {
                return Ok(result);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn half_a_line_is_kept() {
        let (socket, mut server) = UnixStream::pair().unwrap();
        let mut client = Client {
            last: 7,
            ..Client::of(socket)
        };
        let (first, second) = br#"{"id":7,"result":{"done":true}}"#.split_at(11);
        server.write_all(first).await.unwrap();
        while client.lines.len() < first.len() {
            tokio::select! {
                biased;
                said = client.next() => panic!("{said:?}"),
                () = tokio::task::yield_now() => {}
            }
        }
        server.write_all(second).await.unwrap();
        server.write_all(b"\n").await.unwrap();
        let said = client.next().await.unwrap();
        assert!(matches!(said, Said::Result(result) if result.get() == r#"{"done":true}"#));
    }
}
