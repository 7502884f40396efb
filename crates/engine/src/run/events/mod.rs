//! Events of a call while it goes on, written to a descriptor of the caller's.
//!
//! An [`EventEmitter`] observes the execution and makes events of what it sees,
//! within the caps of the record. [`Events`] numbers and writes them: as lines of JSON, as text for a
//! person at a terminal, or as both.

use std::cell::{Cell, RefCell};
use std::fmt;
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

/// Makes text for a terminal of what happens.
pub trait Viewer {
    /// The text for an event; empty for one that is not shown.
    fn tell(&mut self, what: &What<'_>) -> String;
}

/// Where the events of one call go.
#[derive(Debug)]
pub struct Events {
    /// One or two; [`Sink::Lines`] comes first.
    sinks: Vec<Sink>,
    began: Instant,
    seq: Cell<u64>,
}

/// A destination of events, and those that wait to be written there.
enum Sink {
    /// Lines of JSON.
    Lines {
        out: Rc<Outbox>,
        is_terminal: bool,
        /// What stands before and behind each event, where others write to the same place:
        /// then no event waits for the reader.
        envelope: Option<[String; 2]>,
        /// The destination's name in messages.
        name: String,
    },
    /// Text for a person, who may stop the terminal for as long as they like.
    View {
        out: Outbox,
        viewer: Rc<RefCell<dyn Viewer>>,
    },
}

impl Events {
    /// Events that go nowhere yet, of a call that `began` then.
    pub const fn of(began: Instant) -> Self {
        Self {
            sinks: Vec::new(),
            began,
            seq: Cell::new(0),
        }
    }

    /// Whether there is no destination.
    pub const fn go_nowhere(&self) -> bool {
        self.sinks.is_empty()
    }

    /// Also writes lines of JSON to `to`, which messages call `name`.
    ///
    /// # Errors
    /// The system cannot tell what kind of file `to` is.
    pub fn with_lines(mut self, to: File, name: String) -> Result<Self> {
        let is_terminal = to.is_terminal();
        let out = Outbox::new(to)
            .map_err(|error| SetupError::io(Step::Spec, "fstat", &error).on(&name))?;
        let lines = Sink::Lines {
            out: Rc::new(out),
            is_terminal,
            envelope: None,
            name,
        };
        self.sinks.insert(0, lines);
        Ok(self)
    }

    /// Also writes the text of `viewer` to the terminal `to`.
    ///
    /// # Errors
    /// The system cannot tell what kind of file `to` is.
    pub fn with_view(mut self, to: File, viewer: Rc<RefCell<dyn Viewer>>) -> Result<Self> {
        let out = Outbox::new(to)
            .map_err(|error| SetupError::io(Step::Spec, "fstat", &error).on("standard output"))?;
        self.sinks.push(Sink::View { out, viewer });
        Ok(self)
    }

    /// Events among other lines of `out`, each between the two texts of `envelope`.
    pub fn among_others(out: Rc<Outbox>, envelope: [String; 2], began: Instant) -> Self {
        let lines = Sink::Lines {
            out,
            is_terminal: false,
            envelope: Some(envelope),
            name: "the server".to_owned(),
        };
        Self {
            sinks: vec![lines],
            ..Self::of(began)
        }
    }

    /// Adds an event of at most `cap` bytes and returns its length; `None` when it
    /// is longer and was left out.
    fn add(&self, what: What<'_>, cap: usize) -> Option<usize> {
        let event = self.event(what);
        let mut longest = Some(0);
        for sink in &self.sinks {
            longest = longest.max(Some(sink.add(&event, cap)?));
        }
        self.seq.set(self.seq.get() + 1);
        longest
    }

    fn event<'a>(&self, what: What<'a>) -> Event<'a> {
        Event {
            seq: self.seq.get(),
            at_ms: self.began.elapsed().as_micros() as f64 / 1000.0,
            what,
        }
    }

    fn outboxes(&self) -> impl Iterator<Item = &Outbox> {
        self.sinks.iter().map(Sink::out)
    }

    fn has_room(&self) -> bool {
        self.outboxes().all(Outbox::has_room)
    }

    /// The descriptors to wait for, while something waits to be written.
    fn waits_for(&self) -> Vec<BorrowedFd<'_>> {
        self.outboxes().filter_map(Outbox::waits_for).collect()
    }

    fn flush(&self) {
        self.outboxes().for_each(Outbox::flush);
    }

    /// Waits until the queue has room for more.
    fn make_room(&self) {
        for sink in &self.sinks {
            if let Sink::Lines {
                out,
                envelope: None,
                ..
            } = sink
            {
                out.make_room();
            }
        }
    }

    /// Why the events so far did not all reach the caller.
    pub(super) fn trouble(&self) -> Option<SetupError> {
        self.sinks.iter().find_map(|sink| match sink {
            Sink::Lines { out, name, .. } => {
                Some(SetupError::os(Step::Outputs, "write", out.broken()?).on(name))
            }
            // A terminal that is gone has nobody who misses them.
            Sink::View { .. } => None,
        })
    }

    /// Writes what waits, and the last event. The record goes out in pieces: in JSON it may be
    /// larger than everything else in memory.
    ///
    /// # Errors
    /// The reader does not take it, or the events before it.
    pub fn finish(&self, record: &Record) -> Result<()> {
        let last = self.event(What::Finished {
            schema: SCHEMA,
            record,
        });
        let mut finished = Ok(());
        for sink in &self.sinks {
            finished = finished.and(sink.finish(&last));
        }
        finished
    }
}

impl Sink {
    fn out(&self) -> &Outbox {
        match self {
            Self::Lines { out, .. } => out,
            Self::View { out, .. } => out,
        }
    }

    /// Adds an event of at most `cap` bytes; returns how many these were.
    fn add(&self, event: &Event<'_>, cap: usize) -> Option<usize> {
        self.out().add(cap, |queue| match self {
            Self::Lines {
                is_terminal,
                envelope: None,
                ..
            } => write_line(Json::new(queue, *is_terminal), event),
            Self::Lines {
                envelope: Some([before, behind]),
                ..
            } => {
                queue.write_all(before.as_bytes())?;
                serde_json::to_writer(&mut *queue, event)?;
                queue.write_all(behind.as_bytes())?;
                queue.write_all(b"\n")
            }
            Self::View { viewer, .. } => {
                let text = viewer.borrow_mut().tell(&event.what);
                queue.write_all(text.as_bytes())
            }
        })
    }

    fn finish(&self, last: &Event<'_>) -> Result<()> {
        match self {
            Self::Lines {
                out,
                is_terminal,
                name,
                ..
            } => {
                let (mut to, drained) = out.drain(Some(PATIENCE));
                let finished = drained.and_then(|()| {
                    let mut to = BufWriter::with_capacity(BUFFER, &mut to);
                    let written = write_line(Json::new(&mut to, *is_terminal), last)
                        .and_then(|()| to.flush());
                    // Otherwise dropping it would try the rest again.
                    let _ = to.into_parts();
                    written
                });
                finished.map_err(|error| undelivered(name, &error))
            }
            Self::View { out, .. } => {
                let (_, drained) = out.drain(None);
                drained.map_err(|error| {
                    SetupError::io(Step::Outputs, "write", &error).on("standard output")
                })
            }
        }
    }
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.out().fmt(f)
    }
}

fn undelivered(name: &str, error: &io::Error) -> SetupError {
    let error = if error.kind() == io::ErrorKind::TimedOut {
        let waited = PATIENCE.as_secs();
        let message = format!("nobody read the rest of the events for {waited} seconds");
        SetupError::new(Step::Outputs, message)
    } else {
        SetupError::io(Step::Outputs, "write", error)
    };
    error
        .on(name)
        .hint("see that the destination of the events has room, and a reader to the end")
}

fn write_line(mut to: impl Write, event: &Event<'_>) -> io::Result<()> {
    serde_json::to_writer(&mut to, event)?;
    to.write_all(b"\n")
}
