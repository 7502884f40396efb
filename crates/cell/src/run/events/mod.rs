//! A call told as it goes on: events to a descriptor of the caller's.
//!
//! The watcher and the driver's conversation tell a [`Teller`] what they see; it
//! makes events of that, within the caps of the record. [`Events`] numbers them
//! and passes them on.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Instant;

use record::Record;
use record::error::{Result, SetupError, Step};
use record::event::{Event, SCHEMA, What};
use record::terminal::Json;

mod chunks;
mod sink;
mod teller;

use sink::{Destination, PATIENCE, Patient, Queue, ROOM};
pub(super) use teller::Teller;

/// Bytes of the last event that are written at once.
const BUFFER: usize = 64 << 10;

/// The events of one call, on their way.
#[derive(Debug)]
pub struct Events {
    to: Destination,
    is_terminal: bool,
    /// What the caller called it.
    name: String,
    began: Instant,
    seq: Cell<u64>,
    queue: RefCell<Queue>,
}

impl Events {
    /// Events to `to`, which messages call `name`, of a call that `began` then.
    ///
    /// # Errors
    /// The system does not say what `to` is.
    pub fn new(to: File, name: String, began: Instant) -> Result<Self> {
        let is_terminal = to.is_terminal();
        let to = Destination::new(to)
            .map_err(|error| SetupError::io(Step::Spec, "fstat", &error).on(&name))?;
        Ok(Self {
            to,
            is_terminal,
            name,
            began,
            seq: Cell::new(0),
            queue: RefCell::default(),
        })
    }

    /// Adds an event of at most `cap` bytes; says how long it is, or `None` when
    /// it is longer and was left out.
    fn add(&self, what: What<'_>, cap: usize) -> Option<usize> {
        let is_terminal = self.is_terminal;
        let mut queue = self.queue.borrow_mut();
        if queue.broken().is_some() {
            return Some(0);
        }
        let before = queue.len();
        // Writing to memory, and what is written serialises.
        let _ = write_line(Json::new(&mut *queue, is_terminal), &self.event(what));
        let length = queue.len() - before;
        if length > cap {
            queue.truncate(before);
            return None;
        }
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
        self.queue.borrow().len() < ROOM
    }

    /// The descriptor to wait for, when something waits for it.
    fn waits_for(&self) -> Option<BorrowedFd<'_>> {
        (self.queue.borrow().len() > 0).then(|| self.to.as_fd())
    }

    fn pass_on(&self) {
        self.queue.borrow_mut().flush(&self.to);
    }

    /// Passes on what goes, and waits while there is no room for more.
    fn make_room(&self) {
        self.queue.borrow_mut().make_room(&self.to);
    }

    /// Why the events so far did not all reach the caller.
    pub(super) fn trouble(&self) -> Option<SetupError> {
        let errno = self.queue.borrow().broken()?;
        Some(SetupError::os(Step::Outputs, "write", errno).on(&self.name))
    }

    /// Tells the end. The record is written in pieces: it may be larger in JSON
    /// than everything else in memory.
    ///
    /// # Errors
    /// Nobody takes it, or what came before it.
    pub fn finish(&self, record: &Record) -> Result<()> {
        let last = self.event(What::Finished {
            schema: SCHEMA,
            record,
        });
        let mut to = Patient(&self.to);
        let drained = self.queue.borrow_mut().drain(&mut to);
        drained
            .and_then(|()| {
                let mut to = BufWriter::with_capacity(BUFFER, to);
                let written = write_line(Json::new(&mut to, self.is_terminal), &last)
                    .and_then(|()| to.flush());
                // What it still holds is not to be tried again.
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
