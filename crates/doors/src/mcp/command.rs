//! A command in a context: a process beside the interpreter, whose output is collected
//! until it ends.

use std::collections::{BTreeMap, VecDeque};
use std::str::FromStr as _;
use std::time::Instant;

use nix::sys::signal::Signal;
use record::bytes::decode_base64;
use record::stream::{Kept, Text};
use record::{Outcome, Record, Truncation};
use wire::{Code, Failure, ProcessEvent, ProcessSignal, ProcessStarted};

/// Bytes that are kept of each end of a stream: an answer shows less.
const END: usize = 16 << 10;

/// A command that is running.
#[derive(Debug)]
pub(super) struct Command {
    context: String,
    /// The process's number, once it has begun.
    process: Option<u64>,
    began: Instant,
    stdout: Stream,
    stderr: Stream,
}

/// The beginning and the end of a stream's bytes.
#[derive(Debug, Default)]
struct Stream {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
}

impl Command {
    pub(super) fn new(context: String, now: Instant) -> Self {
        Self {
            context,
            process: None,
            began: now,
            stdout: Stream::default(),
            stderr: Stream::default(),
        }
    }

    pub(super) fn context(&self) -> &str {
        &self.context
    }

    pub(super) fn started(&mut self, started: &ProcessStarted) {
        self.process = Some(started.process);
    }

    /// The parameters of the call that kills it, once it has begun.
    pub(super) fn kill(&self) -> Option<ProcessSignal> {
        Some(ProcessSignal {
            context: self.context.clone(),
            process: self.process?,
            signal: "SIGKILL".to_owned(),
        })
    }

    /// Takes an event; returns the command's outcome, if it is the last one.
    pub(super) fn take(
        &mut self,
        event: ProcessEvent,
        now: Instant,
    ) -> Option<Result<Record, Failure>> {
        match event {
            ProcessEvent::ProcessOutput {
                stream,
                text,
                base64,
                ..
            } => {
                let bytes = base64.and_then(|base64| decode_base64(&base64).ok());
                let bytes = bytes.unwrap_or_else(|| text.into_bytes());
                match stream.as_str() {
                    "stderr" => self.stderr.push(&bytes),
                    _ => self.stdout.push(&bytes),
                }
                None
            }
            ProcessEvent::ProcessEnded {
                exit_code,
                signal,
                why,
                ..
            } => Some(self.record(exit_code, signal, why, now)),
        }
    }

    fn record(
        &mut self,
        exit_code: Option<i32>,
        signal: Option<String>,
        why: Option<String>,
        now: Instant,
    ) -> Result<Record, Failure> {
        let (outcome, exit_code) = match (exit_code, &signal) {
            (Some(0), _) => (Outcome::Ok, 0),
            (Some(status), _) => (Outcome::Exit, status),
            (None, Some(name)) => {
                let number = Signal::from_str(name).map_or(0, |signal| signal as i32);
                let outcome = match why {
                    Some(_) => Outcome::Timeout,
                    None => Outcome::Signal,
                };
                (outcome, 128 + number)
            }
            // Its end was not seen.
            (None, None) => {
                let why = why.unwrap_or_else(|| "its end was not seen".to_owned());
                return Err(Failure::new(
                    Code::Lost,
                    format!("the command has ended: {why}"),
                ));
            }
        };
        let mut truncated = BTreeMap::new();
        let mut stream = |name: &str, stream: &mut Stream| {
            let (text, cut) = std::mem::take(stream).into_text();
            truncated.extend(cut.map(|cut| (name.to_owned(), cut)));
            Some(text)
        };
        Ok(Record {
            outcome,
            exit_code,
            is_error: outcome != Outcome::Ok,
            context: why.map(|why| format!("The command was ended: {why}.")),
            execution_time: now.saturating_duration_since(self.began).as_secs_f64(),
            stdout: stream("stdout", &mut self.stdout),
            stderr: stream("stderr", &mut self.stderr),
            truncated,
            signal,
            ..Record::default()
        })
    }
}

impl Stream {
    fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let (head, rest) = bytes.split_at(bytes.len().min(END - self.head.len()));
        self.head.extend_from_slice(head);
        self.tail.extend(rest);
        self.tail.drain(..self.tail.len().saturating_sub(END));
    }

    fn into_text(self) -> (Text, Option<Truncation>) {
        let tail = Vec::from(self.tail);
        if self.total == (self.head.len() + tail.len()) as u64 {
            return (Kept::whole(self.head, tail).forms().0, None);
        }
        let kept = Kept::ends(self.head, tail, self.total);
        let (head, both) = kept.lengths();
        let cut = Truncation {
            total: self.total,
            kept: both,
            part: "head+tail".to_owned(),
            head: Some(head),
        };
        (kept.forms().0, Some(cut))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(exit_code: Option<i32>, signal: Option<&str>, why: Option<&str>) -> ProcessEvent {
        ProcessEvent::ProcessEnded {
            process: 1,
            exit_code,
            signal: signal.map(str::to_owned),
            why: why.map(str::to_owned),
        }
    }

    #[test]
    fn the_end_of_a_process_is_the_outcome_of_a_command() {
        for (event, outcome, status) in [
            (ended(Some(0), None, None), Outcome::Ok, 0),
            (ended(Some(3), None, None), Outcome::Exit, 3),
            (ended(None, Some("SIGTERM"), None), Outcome::Signal, 143),
            (
                ended(None, Some("SIGKILL"), Some("its wall time was over")),
                Outcome::Timeout,
                137,
            ),
        ] {
            let now = Instant::now();
            let record = Command::new("a".to_owned(), now)
                .take(event, now)
                .unwrap()
                .unwrap();
            assert_eq!((record.outcome, record.exit_code), (outcome, status));
            assert_eq!(record.is_error, status != 0);
        }
        let lost = ended(None, None, Some("the cell has ended"));
        let now = Instant::now();
        let failure = Command::new("a".to_owned(), now)
            .take(lost, now)
            .unwrap()
            .unwrap_err();
        assert_eq!(failure.code, Code::Lost);
    }

    #[test]
    fn both_ends_of_a_long_stream_are_kept() {
        let mut stream = Stream::default();
        for _ in 0..1000 {
            stream.push(&[b'x'; 1000]);
        }
        stream.push("the end: ü".as_bytes());
        assert_eq!((stream.head.len(), stream.tail.len()), (END, END));
        let (text, cut) = stream.into_text();
        assert_eq!(cut.unwrap().total, 1_000_011);
        assert!(text.to_string().ends_with("the end: ü"));
        let mut stream = Stream::default();
        let long = "ü".repeat(END - 1);
        stream.push(&long.as_bytes()[..3]);
        stream.push(&long.as_bytes()[3..]);
        let (text, cut) = stream.into_text();
        assert_eq!((text.to_string(), cut), (long, None));
    }
}
