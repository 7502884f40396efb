//! Makes events of what is seen of a cell.

use std::cell::RefCell;
use std::os::fd::BorrowedFd;
use std::time::SystemTime;

use super::Events;
use super::chunks::{Chunks, Piece};
use crate::plan::Plan;
use crate::run::filter::{self, Policy};
use crate::spec::{Bytes, Command, Spec};
use crate::supervise::{Observer, Stream};
use record::event::{Chunk, SCHEMA, Started, What};
use record::{CodeError, FileChange, ResultItem};

/// Events of one kind, as many as the record may hold results; a program that
/// updates one of them for ever does not fill the caller's disk.
const COUNT_CAP: usize = 1000;
/// Bytes of an event besides what it tells of.
const EVENT: usize = 256;
/// Bytes of those that are not results.
const BYTES_CAP: usize = 8 << 20;

/// Tells what happens in one cell.
pub(in crate::run) struct Teller<'a> {
    events: &'a Events,
    spec: &'a Spec,
    plan: &'a Plan,
    filter: Option<&'a Policy>,
    told: RefCell<Told>,
}

/// What was told so far.
#[derive(Default)]
struct Told {
    is_started: bool,
    streams: [Output; 2],
    results: Allowance,
    updates: Allowance,
    clears: Allowance,
    errors: Allowance,
    denials: Allowance,
}

/// One captured stream.
#[derive(Default)]
struct Output {
    chunks: Chunks,
    /// Bytes that were told.
    told: u64,
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
    /// For results that the record may hold so many bytes of. An event has some
    /// more than the result.
    fn of(results: Bytes) -> Self {
        let results = usize::try_from(results.0).unwrap_or(usize::MAX);
        Self {
            count: COUNT_CAP,
            bytes: results.saturating_add(COUNT_CAP * EVENT),
        }
    }

    /// Adds the event, if it may; says so once when it may not.
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

impl<'a> Teller<'a> {
    pub(in crate::run) fn new(
        events: &'a Events,
        spec: &'a Spec,
        plan: &'a Plan,
        filter: Option<&'a Policy>,
    ) -> Self {
        Self {
            events,
            spec,
            plan,
            filter,
            told: RefCell::new(Told {
                results: Allowance::of(plan.limits.results),
                updates: Allowance::of(plan.limits.results),
                ..Told::default()
            }),
        }
    }

    /// The code produced a value.
    pub(in crate::run) fn result(&self, result: &ResultItem) {
        self.tell(|told, events| {
            let what = What::Result { result };
            told.results.add(events, "result", what);
        });
    }

    /// The code replaced what it displayed.
    pub(in crate::run) fn update(&self, result: &ResultItem) {
        self.tell(|told, events| {
            let what = What::DisplayUpdate { result };
            told.updates.add(events, "display_update", what);
        });
    }

    /// The code took back what it displayed.
    pub(in crate::run) fn clear(&self, wait: bool) {
        self.tell(|told, events| told.clears.add(events, "clear", What::Clear { wait }));
    }

    /// The code raised an exception.
    pub(in crate::run) fn error(&self, error: &CodeError) {
        self.tell(|told, events| told.errors.add(events, "error", What::Error { error }));
    }

    /// The run changed this file. The cell is gone: now the reader may be waited
    /// for.
    pub(in crate::run) fn file(&self, file: &FileChange) {
        self.tell(|_, events| {
            events.add(What::File { file }, usize::MAX);
        });
        self.events.make_room();
    }

    /// Whatever happens in a cell, its program has started before: its first
    /// words may come sooner than the word of init that it was executed.
    fn tell(&self, tell: impl FnOnce(&mut Told, &Events)) {
        let told = &mut *self.told.borrow_mut();
        if !told.is_started {
            told.is_started = true;
            self.events.add(self.started_event(), usize::MAX);
        }
        tell(told, self.events);
    }

    fn started_event(&self) -> What<'_> {
        let (language, argv) = match &self.spec.command {
            Command::Run { language, .. } => (Some(language.as_str()), None),
            Command::Exec { argv } => (None, Some(argv.as_slice())),
        };
        What::Started(Started {
            schema: SCHEMA,
            id: &self.plan.id,
            version: env!("CARGO_PKG_VERSION"),
            language,
            argv,
            time: humantime::format_rfc3339_millis(SystemTime::now()).to_string(),
        })
    }
}

impl Output {
    /// Tells what of `bytes` is within the cap, and once that there is more.
    fn wrote(&mut self, events: &Events, stream: Stream, bytes: &[u8], cap: u64) {
        if self.is_cut {
            return;
        }
        let left = usize::try_from(cap - self.told).unwrap_or(usize::MAX);
        let within = &bytes[..bytes.len().min(left)];
        self.told += within.len() as u64;
        self.is_cut = within.len() < bytes.len();
        let piece = self.chunks.next(within);
        if piece.is_some() || self.is_cut {
            tell_piece(events, stream, piece, self.is_cut);
        }
    }

    fn ended(&mut self, events: &Events, stream: Stream) {
        // Of a stream that was cut, it is not the program that cut a character.
        if let Some(piece) = self.chunks.end().filter(|_| !self.is_cut) {
            tell_piece(events, stream, Some(piece), false);
        }
    }
}

fn tell_piece(events: &Events, stream: Stream, piece: Option<Piece>, cut: bool) {
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

impl Observer for Teller<'_> {
    fn started(&self) {
        self.tell(|_, _| {});
    }

    fn wrote(&self, stream: Stream, bytes: &[u8]) {
        let cap = self.plan.limits.output.0;
        self.tell(|told, events| {
            told.streams[stream as usize].wrote(events, stream, bytes, cap);
        });
    }

    fn ended(&self, stream: Stream) {
        let mut told = self.told.borrow_mut();
        told.streams[stream as usize].ended(self.events, stream);
    }

    fn denied(&self, number: i64) {
        let denied = filter::denied(self.filter, number, 1);
        self.tell(|told, events| {
            let what = What::Denied {
                kind: &denied.kind,
                name: &denied.name,
                action: &denied.action,
                reason: denied.reason.as_deref(),
            };
            told.denials.add(events, "denied", what);
        });
    }

    fn has_room(&self) -> bool {
        self.events.has_room()
    }

    fn waits_for(&self) -> Option<BorrowedFd<'_>> {
        self.events.waits_for()
    }

    fn pass_on(&self) {
        self.events.pass_on();
    }
}
