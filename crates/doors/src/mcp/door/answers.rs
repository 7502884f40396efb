//! Lines of the server, and the answers to the client that they become.

use std::time::Instant;

use serde::Deserialize;
use serde_json::value::RawValue;
use wire::{Code, Failure, FileContent, ProcessEvent, ProcessStarted, method};

use super::{Door, LARGEST_RESOURCE, Line};
use crate::mcp::output::of_command;
use crate::mcp::pending::{OUTPUT_EVERY, Pending, What};
use crate::mcp::resource::contents;
use crate::mcp::revision::{Caching, Reply};
use crate::mcp::rpc::{Fault, INTERNAL_ERROR, INVALID_PARAMS};

/// Bytes of output that a report of progress shows.
const OUTPUT: usize = 200;

/// A line of the server.
#[derive(Deserialize)]
struct ServerLine<'a> {
    id: Option<i64>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<Failure>,
    #[serde(borrow, default)]
    event: Option<&'a RawValue>,
}

/// The part of an event that a report of progress shows.
#[derive(Deserialize)]
struct Happened {
    event: String,
    #[serde(default)]
    text: Option<String>,
    /// The stream of a process's output.
    #[serde(default)]
    stream: Option<String>,
}

impl Door {
    /// Takes a line of the server.
    pub(crate) fn take_from_server(&mut self, line: &[u8], now: Instant) {
        let Ok(reply) = record::json::from_slice::<ServerLine<'_>>(line) else {
            return;
        };
        let Some(id) = reply.id else { return };
        if let Some(event) = reply.event {
            return self.happened(id, event, now);
        }
        let Some(pending) = self.pending.remove(&id) else {
            return;
        };
        let answer = match (reply.result, reply.error) {
            (Some(result), _) => match self.finish(id, pending, result.get()) {
                Some((pending, answer)) => return self.settle(&pending, answer),
                None => return,
            },
            (None, failure) => pending.failed(&failure.unwrap_or_else(lost)),
        };
        self.settle(&pending, answer);
    }

    /// Answers a request, unless the client has cancelled it.
    pub(super) fn settle(&mut self, pending: &Pending, answer: Result<Reply, Fault>) {
        if !pending.is_cancelled {
            let line = self.answer(&pending.request, pending.revision, Caching::Private, answer);
            self.lines.push_back(Line::Client(line));
        }
    }

    /// Takes an event of a call: a part of a command's answer, or progress to report.
    fn happened(&mut self, call: i64, event: &RawValue, now: Instant) {
        let Some(pending) = self.pending.get_mut(&call) else {
            return;
        };
        if let What::Command(command) = &mut pending.what
            && let Ok(event) = serde_json::from_str::<ProcessEvent>(event.get())
            && let Some(end) = command.take(event, now)
        {
            let context = command.context().to_owned();
            let Some(pending) = self.pending.remove(&call) else {
                return;
            };
            let answer = match end {
                Ok(record) => {
                    let kept = &mut self.memory.lock();
                    Ok(of_command(&record, Some(&context), kept).into())
                }
                Err(failure) => pending.failed(&failure),
            };
            return self.settle(&pending, answer);
        }
        let Some(progress) = pending.progress.as_mut().filter(|_| !pending.is_cancelled) else {
            return;
        };
        let Ok(Happened {
            event,
            text: Some(text),
            stream,
        }) = serde_json::from_str(event.get())
        else {
            return;
        };
        let last_line = text.trim_end().rsplit('\n').next().unwrap_or_default();
        let is_output = event == "stdout" || stream.as_deref() == Some("stdout");
        if is_output && !last_line.is_empty() && progress.last + OUTPUT_EVERY <= now {
            let shown: String = last_line.chars().take(OUTPUT).collect();
            let line = progress.report(now, &shown);
            self.lines.push_back(Line::Client(line));
        }
    }

    /// Makes the answer to a request of the server's result, unless the call goes on.
    fn finish(
        &mut self,
        call: i64,
        mut pending: Pending,
        result: &str,
    ) -> Option<(Pending, Result<Reply, Fault>)> {
        let answer = match &mut pending.what {
            What::Tool(finish) => finish(result, &mut self.memory.lock())
                .map(Reply::from)
                .map_err(unreadable),
            What::Command(command) => match serde_json::from_str::<ProcessStarted>(result) {
                Ok(started) => {
                    command.started(&started);
                    if let Some(kill) = command.kill().filter(|_| pending.is_cancelled) {
                        self.call::<method::ProcessSignal>(&kill, None);
                    }
                    self.pending.insert(call, pending);
                    return None;
                }
                Err(error) => Err(unreadable(error)),
            },
            What::Resource { uri } => file_contents(uri, result),
        };
        Some((pending, answer))
    }
}

fn file_contents(uri: &str, result: &str) -> Result<Reply, Fault> {
    let read: FileContent = serde_json::from_str(result).map_err(unreadable)?;
    let part = read.content;
    if part.size > LARGEST_RESOURCE {
        let why = format!("it has {} bytes: read_file reads parts of it", part.size);
        return Err(Fault::new(INVALID_PARAMS, why));
    }
    let bytes = part.content.as_bytes();
    let media_type = record::picture::media_type(bytes);
    let media_type = media_type.unwrap_or("application/octet-stream");
    Ok(contents(uri, media_type, bytes).into())
}

fn unreadable(error: serde_json::Error) -> Fault {
    Fault::new(
        INTERNAL_ERROR,
        format!("the server's answer cannot be read: {error}"),
    )
}

fn lost() -> Failure {
    Failure::new(
        Code::Lost,
        "the server's answer has neither a result nor an error",
    )
}
