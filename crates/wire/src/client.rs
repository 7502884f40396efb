//! A client that waits for its answers.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use record::error::{Result, SetupError, Step};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::{
    CallId, Cancel, Failure, LONGEST_ANSWER, Lines, Method, Said, Span, call_line, method,
};

/// Read at once.
const PIECE: usize = 64 << 10;

/// A connection to a server.
#[derive(Debug)]
pub struct Client {
    socket: UnixStream,
    lines: Lines,
    path: PathBuf,
    last: i64,
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
            socket,
            lines: Lines::new(LONGEST_ANSWER),
            path: path.to_owned(),
            last: 0,
        })
    }

    /// Makes a call and waits for its result; events are dropped.
    ///
    /// # Errors
    /// The server's own error, or the connection ended.
    pub fn ask<M: Method>(&mut self, params: &M::Params) -> Result<M::Answer> {
        self.ask_as::<M, M::Answer>(params)
    }

    /// The same, with the result as another type: with all of it, or less.
    ///
    /// # Errors
    /// See [`Client::ask`].
    pub fn ask_as<M: Method, T: DeserializeOwned>(&mut self, params: &M::Params) -> Result<T> {
        self.call::<M, T>(params, |_| {})
    }

    /// The same for a call with events: `hear` gets them as they come.
    ///
    /// # Errors
    /// See [`Client::ask`].
    pub fn ask_hearing<M: Method>(
        &mut self,
        params: &M::Params,
        hear: impl FnMut(&RawValue),
    ) -> Result<M::Answer> {
        self.call::<M, M::Answer>(params, hear)
    }

    fn call<M: Method, T: DeserializeOwned>(
        &mut self,
        params: &M::Params,
        mut hear: impl FnMut(&RawValue),
    ) -> Result<T> {
        self.last += 1;
        let mut line = call_line::<M>(self.last, params)
            .map_err(|error| SetupError::new(Step::Inputs, error.to_string()))?;
        line.push('\n');
        // A server that refuses the client says so before it closes the connection.
        let sent = self.socket.write_all(line.as_bytes());
        loop {
            let Some(line) = self.line()? else {
                sent.map_err(|error| self.failed("write", &error))?;
                return Err(self.ended());
            };
            let said = Said::read(&line, self.last);
            match said.map_err(refused)? {
                Some(Said::Result(result)) => {
                    return serde_json::from_str(result.get()).map_err(|error| {
                        let message = format!("not a result of {}: {error}", M::NAME);
                        SetupError::new(Step::Ask, message).on(self.path.display())
                    });
                }
                Some(Said::Event(event)) => hear(&event),
                None => {}
            }
        }
    }

    /// What another thread can cancel the next call by.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn canceller(&self) -> Result<Canceller> {
        let socket = self.socket.try_clone();
        Ok(Canceller {
            socket: socket.map_err(|error| self.failed("dup", &error))?,
            call: self.last + 1,
        })
    }

    /// Waits for the next event of the last call that was made.
    ///
    /// # Errors
    /// The connection ended, or the event is not a `T`.
    pub fn event<T: DeserializeOwned>(&mut self) -> Result<T> {
        loop {
            let line = self.line()?.ok_or_else(|| self.ended())?;
            let said = Said::read(&line, self.last).map_err(refused)?;
            if let Some(Said::Event(event)) = said {
                return serde_json::from_str(event.get()).map_err(|error| {
                    SetupError::new(Step::Ask, format!("not an event of the call: {error}"))
                        .on(self.path.display())
                });
            }
        }
    }

    fn ended(&self) -> SetupError {
        SetupError::new(Step::Ask, "the server ended the connection").on(self.path.display())
    }

    /// The next line; `None` at the end.
    fn line(&mut self) -> Result<Option<Vec<u8>>> {
        let mut piece = [0; PIECE];
        loop {
            let line = self.lines.next_line().map_err(|_| {
                let message = format!("a line of the server has more than {LONGEST_ANSWER} bytes");
                SetupError::new(Step::Ask, message).on(self.path.display())
            })?;
            if line.is_some() {
                return Ok(line);
            }
            match self.socket.read(&mut piece) {
                Ok(0) => return Ok(None),
                Ok(count) => self.lines.push(&piece[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed("read", &error)),
            }
        }
    }

    fn failed(&self, call: &str, error: &std::io::Error) -> SetupError {
        SetupError::io(Step::Ask, call, error).on(self.path.display())
    }
}

/// Cancels a call while its client waits for the answer.
#[derive(Debug)]
pub struct Canceller {
    socket: UnixStream,
    call: i64,
}

impl Canceller {
    /// Interrupts the call's code, which gets `grace` to end by itself; `None` kills its interpreter
    /// at once. The call's own answer says what became of it.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn cancel(&mut self, grace: Option<Span>) -> std::io::Result<()> {
        let call = CallId::Number(self.call);
        // The answer, which has an id that no call of the client has, is passed over.
        let mut line = call_line::<method::Cancel>(-self.call, &Cancel { call, grace })?;
        line.push('\n');
        self.socket.write_all(line.as_bytes())
    }
}

fn refused(failure: Failure) -> SetupError {
    let wait = failure.retry_after_ms;
    let hint = failure
        .hint
        .or_else(|| wait.map(|wait| format!("try again after {wait}ms")));
    let error = SetupError::new(Step::Ask, failure.message);
    SetupError { hint, ..error }
}
