//! A client that waits for its answers.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use record::error::{Result, SetupError, Step};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::protocol::{CallId, Failure};

/// Longer lines are refused: a record holds streams and results of bounded length.
const LONGEST: u64 = 300 << 20;

/// A connection to a server.
#[derive(Debug)]
pub struct Client {
    socket: BufReader<UnixStream>,
    path: PathBuf,
    last: i64,
}

#[derive(Serialize)]
struct Call<'a, T> {
    id: i64,
    method: &'a str,
    params: &'a T,
}

#[derive(Deserialize)]
struct Line<'a> {
    id: Option<CallId>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<Failure>,
    #[serde(borrow, default)]
    event: Option<&'a RawValue>,
}

impl Client {
    /// Connects to the server that listens at `path`.
    ///
    /// # Errors
    /// No server listens there, or it may not be used.
    pub fn connect(path: &Path) -> Result<Self> {
        let socket = UnixStream::connect(path).map_err(|error| {
            let failure = SetupError::io(Step::Inputs, "connect", &error).on(path.display());
            match error.kind() {
                ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                    failure.hint("start a server there: cellblock serve --listen unix:PATH")
                }
                ErrorKind::PermissionDenied => {
                    failure.hint("only the server's own user and root may use its socket")
                }
                _ => failure,
            }
        })?;
        Ok(Self {
            socket: BufReader::new(socket),
            path: path.to_owned(),
            last: 0,
        })
    }

    /// Makes a call and waits for its answer; events are dropped.
    ///
    /// # Errors
    /// The server's own error, or the connection ended.
    pub fn call(&mut self, method: &str, params: &impl Serialize) -> Result<Box<RawValue>> {
        self.last += 1;
        let id = self.last;
        let call = Call { id, method, params };
        let mut line = serde_json::to_vec(&call)
            .map_err(|error| SetupError::new(Step::Inputs, error.to_string()))?;
        line.push(b'\n');
        // A server that refuses the client says so before it closes the connection.
        let sent = self.socket.get_mut().write_all(&line);
        loop {
            let line = self.line()?;
            if line.is_empty() {
                sent.map_err(|error| self.failed("write", &error))?;
                return Err(self.ended());
            }
            let line = self.parse(&line)?;
            if line.id.is_some_and(|own| own != CallId::Number(id)) {
                continue;
            }
            match (line.result, line.error) {
                (Some(result), _) => return Ok(result.to_owned()),
                (_, Some(failure)) => return Err(refused(method, failure)),
                // An event.
                _ => {}
            }
        }
    }

    /// Makes a call and reads its result.
    ///
    /// # Errors
    /// See [`Client::call`].
    pub fn ask<T: for<'de> Deserialize<'de>>(
        &mut self,
        method: &str,
        params: &impl Serialize,
    ) -> Result<T> {
        let result = self.call(method, params)?;
        serde_json::from_str(result.get()).map_err(|error| {
            SetupError::new(Step::Ask, format!("not a result of {method}: {error}"))
                .on(self.path.display())
        })
    }

    /// Waits for the next event of the last call that was made.
    ///
    /// # Errors
    /// The connection ended, or the event is not a `T`.
    pub fn event<T: for<'de> Deserialize<'de>>(&mut self) -> Result<T> {
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Err(self.ended());
            }
            let Line { id, event, .. } = self.parse(&line)?;
            if let Some(event) = event.filter(|_| id == Some(CallId::Number(self.last))) {
                return serde_json::from_str(event.get()).map_err(|error| {
                    SetupError::new(Step::Ask, format!("not an event of the call: {error}"))
                        .on(self.path.display())
                });
            }
        }
    }

    fn parse<'l>(&self, line: &'l [u8]) -> Result<Line<'l>> {
        record::json::from_slice(line).map_err(|error| {
            SetupError::new(Step::Ask, format!("not a server's line: {error}"))
                .on(self.path.display())
        })
    }

    fn ended(&self) -> SetupError {
        SetupError::new(Step::Ask, "the server ended the connection").on(self.path.display())
    }

    fn line(&mut self) -> Result<Vec<u8>> {
        let mut line = Vec::new();
        let read = (&mut self.socket)
            .take(LONGEST)
            .read_until(b'\n', &mut line);
        read.map_err(|error| self.failed("read", &error))?;
        Ok(line)
    }

    fn failed(&self, call: &str, error: &std::io::Error) -> SetupError {
        SetupError::io(Step::Ask, call, error).on(self.path.display())
    }
}

fn refused(method: &str, failure: Failure) -> SetupError {
    let wait = failure.retry_after_ms;
    let hint = failure
        .hint
        .or_else(|| wait.map(|wait| format!("try again after {wait}ms")));
    let error = SetupError::new(Step::Ask, failure.message).on(method);
    SetupError { hint, ..error }
}
