//! Where a call's record and events go.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Instant;

use nix::errno::Errno;

use super::{closed, complain, destination, is_quiet, notice, plots, print};
use crate::cli::{OutputTo, Outputs};
use crate::show::{Live, Style};
use engine::run::Events;
use record::error::{Result, SetupError, Step};
use record::format::Format;
use record::terminal;
use record::{Outcome, Record};
use spec::Mode;
use sys::inherited::Inherited;

/// Bytes of a record that are written at once.
const RECORD_BUFFER: usize = 64 << 10;

/// The open destinations of one call's record and events.
pub(super) struct Outlet {
    /// Where events go.
    pub(super) events: Option<Events>,
    /// The record's destination and its name, if it has one of its own.
    record: Option<(String, File)>,
    /// The format in which the record goes to standard output, if it does.
    printed: Option<Format>,
    /// The directory for pictures, if they are to be files.
    plots: Option<PathBuf>,
    /// Directories that the cell writes to.
    shared: Vec<PathBuf>,
    /// The view for people, if one goes to standard output.
    pub(super) view: Option<Rc<RefCell<Live>>>,
}

impl Outlet {
    /// Opens all destinations, so that nothing is started when one of them cannot
    /// be opened; the others then get the record of that. No links are followed in
    /// the directories `shared` with the cell.
    #[inline(never)]
    pub(super) fn open(
        mode: Mode,
        outputs: &Outputs,
        shared: &[PathBuf],
        inherited: &mut Inherited,
        began: Instant,
    ) -> (Self, Result<()>) {
        let mut opened = Ok(());
        let mut note = |error| {
            if opened.is_ok() {
                opened = Err(error);
            }
        };
        // Standard output cannot carry events and a record.
        let is_free = outputs.events != Some(OutputTo::Stdout);
        let is_run = mode == Mode::Run && outputs.printed.is_none() && is_free;
        let is_shown = is_run && io::stdout().is_terminal();
        let view = is_shown.then(|| Rc::new(RefCell::new(Live::new(Style::of_stdout()))));
        let mut events = Events::of(began);
        let stdout = closed::stdout();
        let is_there = |to: &&OutputTo| **to != OutputTo::Stdout || stdout.is_ok();
        if let Some(to) = outputs.events.as_ref().filter(is_there) {
            let with = open(to, "--events", shared, inherited)
                .and_then(|(name, file)| Events::of(began).with_lines(file, name));
            match with {
                Ok(with) => events = with,
                Err(error) => note(error),
            }
        }
        let events = match &view {
            Some(view) => own_stdout()
                .and_then(|file| events.with_view(file, Rc::clone(view) as _))
                .map_err(&mut note)
                .ok(),
            None => Some(events),
        };
        let record = outputs.record.as_ref();
        let record = record.and_then(|to| {
            open(to, "--record", shared, inherited)
                .map_err(&mut note)
                .ok()
        });
        if let Some(Err(error)) = outputs.plots.as_deref().map(plots::prepare) {
            note(error);
        }
        let by_default = is_run && !is_shown && outputs.record.is_none();
        if by_default || outputs.printed.is_some() || !is_free {
            stdout.unwrap_or_else(&mut note);
        }
        let outlet = Self {
            events: events.filter(|events| !events.go_nowhere()),
            record,
            printed: match by_default {
                true => Some(Format::default()),
                false => outputs.printed.clone(),
            },
            plots: outputs.plots.clone(),
            shared: shared.to_vec(),
            view,
        };
        (outlet, opened)
    }

    /// The outputs of an execution in a context, whose events come from its server. With `is_answered`,
    /// standard output gets that server's answer.
    pub(super) fn of_context(
        outputs: &Outputs,
        is_answered: bool,
        shared: &[PathBuf],
        inherited: &mut Inherited,
    ) -> Result<Self> {
        let began = Instant::now();
        let (outlet, opened) = Self::open(Mode::Run, outputs, shared, inherited, began);
        opened?;
        Ok(Self {
            events: None,
            printed: outputs.printed.clone(),
            view: outlet.view.filter(|_| !is_answered),
            ..outlet
        })
    }

    /// Whether nothing goes anywhere.
    pub(super) fn is_silent(&self) -> bool {
        self.printed.is_none() && self.view.is_none() && self.record.is_none()
    }

    /// Leaves the view out: the error is reported elsewhere.
    pub(super) fn without_view(self) -> Self {
        Self { view: None, ..self }
    }

    /// Writes the record to every destination; returns and prints the error of each that
    /// fails.
    #[inline(never)]
    pub(super) fn deliver(self, record: &Record) -> Vec<SetupError> {
        // The events first: a reader may be blocked on them, and their writes have
        // a deadline.
        let finished = self.events.map(|events| events.finish(record));
        let kept = self
            .record
            .map(|(name, mut file)| write_whole(record, &mut file).map_err(|error| error.on(name)));
        let printed = self
            .printed
            .map(|format| print_record(record, &format, &mut io::stdout()));
        let plotted = (self.plots).map(|directory| plots::write(record, &directory, &self.shared));
        // An error that standard error has is not shown a second time.
        let is_said = record.outcome == Outcome::Setup && !is_quiet();
        let shown = self.view.filter(|_| !is_said).map(|view| {
            let plots = plotted.as_ref().and_then(|plotted| plotted.as_deref().ok());
            let end = view.borrow_mut().end(record, plots.unwrap_or_default());
            print(end.as_bytes())?;
            notice::best_effort(record);
            Ok(())
        });
        let plotted = plotted.map(|plotted| plotted.map(drop));
        [finished, kept, printed, shown, plotted]
            .into_iter()
            .flatten()
            .filter_map(Result::err)
            .inspect(complain)
            .collect()
    }
}

fn own_stdout() -> Result<File> {
    let stdout = io::stdout().as_fd().try_clone_to_owned();
    stdout
        .map(File::from)
        .map_err(|error| SetupError::io(Step::Spec, "fcntl", &error))
}

/// Opens the destination that `option` names.
pub(super) fn open(
    to: &OutputTo,
    option: &str,
    shared: &[PathBuf],
    inherited: &mut Inherited,
) -> Result<(String, File)> {
    let (name, opened) = match to {
        OutputTo::Stdout => (
            "standard output".to_owned(),
            own_stdout(),
        ),
        OutputTo::File(path) => (
            path.display().to_string(),
            destination::create(path, shared).map_err(|e| {
                SetupError::os(Step::Spec, "open", e).hint(match e {
                    Errno::ELOOP => {
                        format!("a cell may have made the link: give {option} its target instead")
                    }
                    _ => format!("name a file that you may write with {option}"),
                })
            }),
        ),
        OutputTo::Descriptor(number) => (
            format!("{option} fd:{number}"),
            inherited.take(*number).map_err(|e| {
                let file = option.trim_start_matches('-');
                SetupError::os(Step::Spec, "fcntl", e).hint(format!(
                    "open the descriptor for writing before cellblock starts, as in {number}>{file}.json",
                ))
            }),
        ),
    };
    match opened {
        Ok(file) => Ok((name, file)),
        Err(error) => Err(error.on(name)),
    }
}

/// Writes the record to a file of its own, and takes back what fits of it if the whole does not: half a
/// document must not look like one.
fn write_whole(record: &Record, file: &mut File) -> Result<()> {
    let before = file.metadata().ok().filter(|file| file.is_file());
    let written = print_record(record, &Format::default(), file);
    if let (Err(_), Some(before)) = (&written, before) {
        // The error of the write says more than one of this.
        let _ = file.set_len(before.len());
    }
    written
}

/// Writes the record in pieces: what it holds of the program's output may be
/// larger in JSON than everything else in memory.
pub(super) fn print_record(
    record: &Record,
    format: &Format,
    to: &mut (impl Write + IsTerminal),
) -> Result<()> {
    let is_terminal = to.is_terminal();
    let to = terminal::Json::new(to, is_terminal);
    let mut to = BufWriter::with_capacity(RECORD_BUFFER, to);
    let written = match format.write(record, &mut to) {
        Err(error) if !error.is_io() => {
            let message = format!("the record does not serialise: {error}");
            return Err(SetupError::new(Step::Outputs, message));
        }
        other => other.map_err(io::Error::from),
    };
    written
        .and_then(|()| to.write_all(b"\n"))
        .and_then(|()| to.flush())
        .map_err(|e| {
            SetupError::io(Step::Outputs, "write", &e)
                .on("standard output")
                .hint("make sure that its destination has room and a reader")
        })
}
