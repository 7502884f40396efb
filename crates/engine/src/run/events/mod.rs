//! Events of a call while it goes on, written to a descriptor of the caller's.
//!
//! An [`EventEmitter`] observes the execution and makes events of what it sees,
//! within the caps of the record. [`Events`] numbers and writes them.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::Instant;

use record::Record;
use record::error::{Result, SetupError, Step};
use record::event::{Event, SCHEMA, What};
use record::terminal::Json;

mod chunks;
mod emitter;
mod sink;

pub use chunks::Chunks;
pub(super) use emitter::EventEmitter;
pub use sink::Outbox;
use sink::PATIENCE;

/// Bytes of the last event that are written at once.
const BUFFER: usize = 64 << 10;

/// Where the events of one call go, and those that wait to be written.
#[derive(Debug)]
pub struct Events {
    out: Rc<Outbox>,
    is_terminal: bool,
    /// What stands before and behind each event, where others write to the same place:
    /// then no event waits for the reader.
    envelope: Option<[String; 2]>,
    /// The destination's name in messages.
    name: String,
    began: Instant,
    seq: Cell<u64>,
}

impl Events {
    /// Events to `to`, which messages call `name`, of a call that `began` then.
    ///
    /// # Errors
    /// The system cannot tell what kind of file `to` is.
    pub fn new(to: File, name: String, began: Instant) -> Result<Self> {
        let is_terminal = to.is_terminal();
        let out = Outbox::new(to)
            .map_err(|error| SetupError::io(Step::Spec, "fstat", &error).on(&name))?;
        Ok(Self {
            out: Rc::new(out),
            is_terminal,
            envelope: None,
            name,
            began,
            seq: Cell::new(0),
        })
    }

    /// Events among other lines of `out`, each between the two texts of `envelope`.
    pub fn among_others(out: Rc<Outbox>, envelope: [String; 2], began: Instant) -> Self {
        Self {
            out,
            is_terminal: false,
            envelope: Some(envelope),
            name: "the server".to_owned(),
            began,
            seq: Cell::new(0),
        }
    }

    /// Adds an event of at most `cap` bytes and returns its length; `None` when it
    /// is longer and was left out.
    fn add(&self, what: What<'_>, cap: usize) -> Option<usize> {
        let is_terminal = self.is_terminal;
        let event = self.event(what);
        let length = self.out.add(cap, |queue| match &self.envelope {
            None => write_line(Json::new(queue, is_terminal), &event),
            Some([before, behind]) => {
                queue.write_all(before.as_bytes())?;
                serde_json::to_writer(&mut *queue, &event)?;
                queue.write_all(behind.as_bytes())?;
                queue.write_all(b"\n")
            }
        })?;
        self.seq.set(self.seq.get() + 1);
        Some(length)
    }

    fn event<'a>(&self, what: What<'a>) -> Event<'a> {
        Event {
            seq: self.seq.get(),
            at_ms: self.began.elapsed().as_micros() as f64 / 1000.0,
            what,
        }
    }

    fn has_room(&self) -> bool {
        self.out.has_room()
    }

    /// The descriptor to wait for, while something waits to be written.
    fn waits_for(&self) -> Option<BorrowedFd<'_>> {
        self.out.waits_for()
    }

    fn flush(&self) {
        self.out.flush();
    }

    /// Waits until the queue has room for more.
    fn make_room(&self) {
        if self.envelope.is_none() {
            self.out.make_room();
        }
    }

    /// Why the events so far did not all reach the caller.
    pub(super) fn trouble(&self) -> Option<SetupError> {
        let errno = self.out.broken()?;
        Some(SetupError::os(Step::Outputs, "write", errno).on(&self.name))
    }

    /// Writes the last event. The record goes out in pieces: in JSON it may be
    /// larger than everything else in memory.
    ///
    /// # Errors
    /// The reader does not take it, or the events before it.
    pub fn finish(&self, record: &Record) -> Result<()> {
        let last = self.event(What::Finished {
            schema: SCHEMA,
            record,
        });
        let (mut to, drained) = self.out.drain();
        drained
            .and_then(|()| {
                let mut to = BufWriter::with_capacity(BUFFER, &mut to);
                let written = write_line(Json::new(&mut to, self.is_terminal), &last)
                    .and_then(|()| to.flush());
                // Otherwise dropping it would try the rest again.
                let _ = to.into_parts();
                written
            })
            .map_err(|error| self.undelivered(&error))
    }

    fn undelivered(&self, error: &io::Error) -> SetupError {
        let error = if error.kind() == io::ErrorKind::TimedOut {
            let waited = PATIENCE.as_secs();
            let message = format!("nobody read the rest of the events for {waited} seconds");
            SetupError::new(Step::Outputs, message)
        } else {
            SetupError::io(Step::Outputs, "write", error)
        };
        error
            .on(&self.name)
            .hint("see that the destination of the events has room, and a reader to the end")
    }
}

fn write_line(mut to: impl Write, event: &Event<'_>) -> io::Result<()> {
    serde_json::to_writer(&mut to, event)?;
    to.write_all(b"\n")
}
