//! Makes events of what is observed of an execution.

use std::cell::RefCell;
use std::os::fd::BorrowedFd;
use std::time::SystemTime;

use super::Events;
use super::chunks::{Chunks, Piece};
use crate::run::filter::{self, Policy};
use plan::Plan;
use record::event::{Chunk, SCHEMA, Started, What};
use record::{CodeError, Connection, FileChange, RefusedHost, ResultItem, Start};
use spec::{Bytes, Command, Spec};
use supervise::{Observer, Stream};

/// Events of one kind, as many as the record may hold results; a program that
/// updates one of them for ever does not fill the caller's disk.
const COUNT_CAP: usize = 1000;
/// Bytes of an event besides its result.
const EVENT: usize = 256;
/// Bytes of the events of a kind other than results.
const BYTES_CAP: usize = 8 << 20;

/// Emits the events of one execution, within the caps of the record.
pub(in crate::run) struct EventEmitter<'a> {
    events: &'a Events,
    /// The execution's.
    id: &'a str,
    spec: &'a Spec,
    plan: &'a Plan,
    filter: Option<&'a Policy>,
    start: Start,
    emitted: RefCell<Emitted>,
}

/// What was emitted so far.
#[derive(Default)]
struct Emitted {
    is_started: bool,
    streams: [Output; 2],
    results: Allowance,
    updates: Allowance,
    clears: Allowance,
    errors: Allowance,
    denials: Allowance,
    connections: Allowance,
}

/// One captured stream.
#[derive(Default)]
struct Output {
    chunks: Chunks,
    /// Bytes that were emitted.
    emitted: u64,
    is_cut: bool,
}

/// How many events of a kind may follow.
struct Allowance {
    count: usize,
    bytes: usize,
}

impl Default for Allowance {
    fn default() -> Self {
        Self {
            count: COUNT_CAP,
            bytes: BYTES_CAP,
        }
    }
}

impl Allowance {
    /// For results that take up to this much of the record. An event is a little
    /// longer than its result.
    fn of(results: Bytes) -> Self {
        let results = usize::try_from(results.0).unwrap_or(usize::MAX);
        Self {
            count: COUNT_CAP,
            bytes: results.saturating_add(COUNT_CAP * EVENT),
        }
    }

    /// Adds the event within its allowance. The first event beyond it becomes a `cut`
    /// event, and later ones are dropped.
    fn add(&mut self, events: &Events, kind: &str, what: What<'_>) {
        if self.bytes == 0 {
            return;
        }
        let added = match self.count {
            0 => None,
            _ => events.add(what, self.bytes),
        };
        match added {
            Some(length) => {
                self.count -= 1;
                self.bytes = self.bytes.saturating_sub(length).max(1);
            }
            None => {
                self.bytes = 0;
                events.add(What::Cut { kind }, usize::MAX);
            }
        }
    }
}

impl<'a> EventEmitter<'a> {
    pub(in crate::run) fn new(
        events: &'a Events,
        id: &'a str,
        spec: &'a Spec,
        plan: &'a Plan,
        filter: Option<&'a Policy>,
        start: Start,
    ) -> Self {
        Self {
            start,
            events,
            id,
            spec,
            plan,
            filter,
            emitted: RefCell::new(Emitted {
                results: Allowance::of(plan.limits.results),
                updates: Allowance::of(plan.limits.results),
                ..Emitted::default()
            }),
        }
    }

    /// The execution changed this file. Nothing of the cell is watched now, so waiting
    /// for the reader is allowed.
    pub(in crate::run) fn file(&self, file: &FileChange) {
        self.emit(|_, events| {
            events.add(What::File { file }, usize::MAX);
        });
        self.events.make_room();
    }

    /// The event of the start comes first: the program's first output may arrive
    /// sooner than init's report that it was executed.
    fn emit(&self, emit: impl FnOnce(&mut Emitted, &Events)) {
        let emitted = &mut *self.emitted.borrow_mut();
        if !emitted.is_started {
            emitted.is_started = true;
            self.events.add(self.started_event(), usize::MAX);
        }
        emit(emitted, self.events);
    }

    fn started_event(&self) -> What<'_> {
        let (language, argv) = match &self.spec.command {
            Command::Run { language, .. } => (Some(language.as_str()), None),
            Command::Exec { argv, .. } => (None, Some(argv.as_slice())),
        };
        What::Started(Started {
            schema: SCHEMA,
            id: self.id,
            version: env!("CARGO_PKG_VERSION"),
            language,
            argv,
            start: self.start,
            time: humantime::format_rfc3339_millis(SystemTime::now()).to_string(),
        })
    }
}

impl Output {
    /// Emits the part of `bytes` that is within the cap, and once that there is more.
    fn wrote(&mut self, events: &Events, stream: Stream, bytes: &[u8], cap: u64) {
        if self.is_cut {
            return;
        }
        let left = usize::try_from(cap - self.emitted).unwrap_or(usize::MAX);
        let within = &bytes[..bytes.len().min(left)];
        self.emitted += within.len() as u64;
        self.is_cut = within.len() < bytes.len();
        let piece = self.chunks.next(within);
        if piece.is_some() || self.is_cut {
            emit_piece(events, stream, piece, self.is_cut);
        }
    }

    fn ended(&mut self, events: &Events, stream: Stream) {
        // A stream beyond the cap was cut here, perhaps within a character.
        if let Some(piece) = self.chunks.end().filter(|_| !self.is_cut) {
            emit_piece(events, stream, Some(piece), false);
        }
    }
}

fn emit_piece(events: &Events, stream: Stream, piece: Option<Piece>, cut: bool) {
    let (text, base64) = piece.map_or((String::new(), None), |piece| (piece.text, piece.base64));
    let chunk = Chunk {
        text: &text,
        base64,
        cut,
    };
    let what = match stream {
        Stream::Stdout => What::Stdout(chunk),
        Stream::Stderr => What::Stderr(chunk),
    };
    events.add(what, usize::MAX);
}

impl Observer for EventEmitter<'_> {
    fn started(&self) {
        self.emit(|_, _| {});
    }

    fn wrote(&self, stream: Stream, bytes: &[u8]) {
        let cap = self.plan.limits.output.0;
        self.emit(|emitted, events| {
            emitted.streams[stream as usize].wrote(events, stream, bytes, cap);
        });
    }

    fn stream_ended(&self, stream: Stream) {
        let mut emitted = self.emitted.borrow_mut();
        emitted.streams[stream as usize].ended(self.events, stream);
    }

    fn denied(&self, number: i64) {
        let denied = filter::denied(self.filter, number, 1);
        self.emit(|emitted, events| {
            let what = What::Denied {
                kind: &denied.kind,
                name: &denied.name,
                action: &denied.action,
                reason: denied.reason.as_deref(),
            };
            emitted.denials.add(events, "denied", what);
        });
    }

    fn connection(&self, connection: &Connection) {
        self.emit(|emitted, events| {
            let what = What::Connection { connection };
            emitted.connections.add(events, "connection", what);
        });
    }

    fn refused(&self, refused: &RefusedHost) {
        self.emit(|emitted, events| {
            let what = What::Denied {
                kind: "network",
                name: &refused.shown(),
                action: "refused",
                reason: Some(&refused.reason),
            };
            emitted.denials.add(events, "denied", what);
        });
    }

    fn result(&self, result: &ResultItem) {
        self.emit(|emitted, events| {
            let what = What::Result { result };
            emitted.results.add(events, "result", what);
        });
    }

    fn update(&self, result: &ResultItem) {
        self.emit(|emitted, events| {
            let what = What::DisplayUpdate { result };
            emitted.updates.add(events, "display_update", what);
        });
    }

    fn clear(&self, wait: bool) {
        let what = What::Clear { wait };
        self.emit(|emitted, events| emitted.clears.add(events, "clear", what));
    }

    fn error(&self, error: &CodeError) {
        let what = What::Error { error };
        self.emit(|emitted, events| emitted.errors.add(events, "error", what));
    }

    fn has_room(&self) -> bool {
        self.events.has_room()
    }

    fn waits_for(&self) -> Vec<BorrowedFd<'_>> {
        self.events.waits_for()
    }

    fn flush(&self) {
        self.events.flush();
    }
}
