//! The commands: from a parsed command line to an exit status.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::AsFd as _;
use std::time::Instant;

use serde::Serialize;

use crate::cli::{self, EventsTo, Invocation, Options, RecordTo};
use crate::drivers;
use crate::error::{Result, SetupError, Step};
use crate::format::Format;
use crate::plan::Plan;
use crate::probe::HostFacts;
use crate::record::Record;
use crate::run::{self, Events};
use crate::show;
use crate::spec::{self, Ask, Language, Mode, Partial, Spec, Stdio};

/// Exit status for a wrong command line.
const USAGE: u8 = 2;
/// Exit status when cellblock itself could not do what was asked.
const FAILED: u8 = 125;
/// Bytes of a record that are written at once.
const RECORD_BUFFER: usize = 64 << 10;

/// Does what the command line `words` say; returns the exit status.
pub fn dispatch(words: impl Iterator<Item = OsString>, began: Instant) -> u8 {
    let words: Vec<OsString> = words.collect();
    match cli::parse(&words) {
        Ok(Invocation::Run(run)) => {
            let partial = run.partial(|name| std::env::var_os(name));
            execute(Mode::Run, &run.options, partial, began)
        }
        Ok(Invocation::Exec(exec)) => {
            let partial = exec.partial(|name| std::env::var_os(name));
            execute(Mode::Exec, &exec.options, partial, began)
        }
        Ok(Invocation::PlanRun(run)) => {
            let partial = run.partial(|name| std::env::var_os(name));
            finish(plan(Mode::Run, &run.options, partial))
        }
        Ok(Invocation::PlanExec(exec)) => {
            let partial = exec.partial(|name| std::env::var_os(name));
            finish(plan(Mode::Exec, &exec.options, partial))
        }
        Ok(Invocation::Doctor(doctor)) => finish(crate::doctor::run(doctor.json)),
        Ok(Invocation::Show(wanted)) => finish(show_record(&wanted)),
        Ok(Invocation::Policy(policy)) => finish(crate::policy::run(&policy.action)),
        Ok(Invocation::Rootfs(rootfs)) => finish(crate::prepared::run(&rootfs.action)),
        Ok(Invocation::Completions(wanted)) => finish(print(&wanted.script()).map(|()| 0)),
        Err(error) => usage(&error, &words, began),
    }
}

/// clap's own message; for a caller that reads records or events, one of those
/// too.
fn usage(error: &clap::Error, words: &[OsString], began: Instant) -> u8 {
    let _ = error.print();
    if !error.use_stderr() {
        return 0;
    }
    let wanted = cli::wanted(words);
    if wanted.format.is_some() || wanted.events {
        let message = error.to_string();
        let first = message
            .lines()
            .next()
            .unwrap_or_default()
            .trim_start_matches("error: ");
        let failure = SetupError::new(Step::Spec, first).hint("see cellblock --help");
        let record = run::refused(failure);
        let _ = match wanted.format {
            Some(format) => print_record(&record, &format, &mut io::stdout()),
            None => open_events(&EventsTo::Stdout, began).and_then(|to| to.finish(&record)),
        };
    }
    USAGE
}

fn finish(result: Result<u8>) -> u8 {
    result.unwrap_or_else(|error| {
        complain(&error);
        FAILED
    })
}

/// Says on stderr what went wrong, and the way out.
fn complain(error: &SetupError) {
    let mut text = format!("cellblock: {error}\n");
    if let Some(hint) = &error.hint {
        text.push_str(&format!("\nhint: {hint}\n"));
    }
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Where a call's output goes.
struct Outlet {
    /// The record's destination and its name, if it has one of its own.
    record: Option<(String, File)>,
    /// The format in which the record goes to stdout, if it does.
    json: Option<Format>,
    /// Whether a view for people goes to stdout.
    view: bool,
}

impl Outlet {
    /// Opens the record's destination, so that nothing is started when that
    /// cannot be done.
    fn open(mode: Mode, options: &Options) -> Result<Self> {
        let record = options.record.as_ref().map(open_record).transpose()?;
        let view = mode == Mode::Run && !options.json && io::stdout().is_terminal();
        let json = options.json || (mode == Mode::Run && !view && record.is_none());
        // Events and something else would be neither.
        let is_free = options.events != Some(EventsTo::Stdout);
        Ok(Self {
            record,
            json: (json && is_free).then(|| options.format.clone()),
            view: view && is_free,
        })
    }
}

fn open_record(to: &RecordTo) -> Result<(String, File)> {
    open(to, "--record")
}

fn open_events(to: &EventsTo, began: Instant) -> Result<Events> {
    let (name, file) = match to {
        EventsTo::Other(to) => open(to, "--events")?,
        EventsTo::Stdout => {
            let name = "standard output".to_owned();
            let copy = io::stdout().as_fd().try_clone_to_owned();
            let copy = copy.map_err(|e| SetupError::io(Step::Spec, "fcntl", &e).on(&name))?;
            (name, copy.into())
        }
    };
    Events::new(file, name, began)
}

/// Opens the destination that `option` names.
fn open(to: &RecordTo, option: &str) -> Result<(String, File)> {
    let (name, opened) = match to {
        RecordTo::File(path) => (
            path.display().to_string(),
            File::create(path).map_err(|e| {
                SetupError::io(Step::Spec, "open", &e)
                    .hint(format!("name a file that you may write with {option}"))
            }),
        ),
        RecordTo::Descriptor(number) => (
            format!("{option} fd:{number}"),
            crate::sys::process::adopt(*number).map_err(|e| {
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

fn execute(mode: Mode, options: &Options, partial: Result<Partial>, began: Instant) -> u8 {
    let events = options.events.as_ref();
    let events = match events.map(|to| open_events(to, began)).transpose() {
        Ok(events) => events,
        Err(error) => return refuse(&error, options, None),
    };
    let outlet = match Outlet::open(mode, options) {
        Ok(outlet) => outlet,
        Err(error) => return refuse(&error, options, events.as_ref()),
    };
    let spec = partial.and_then(|partial| load(mode, options, partial));
    let record = match &spec {
        Ok(spec) => run::execute_telling(spec, began, events.as_ref()),
        Err(error) => run::refused(error.clone()),
    };
    if let Some(error) = &record.setup_error {
        complain(error);
    }
    // The events first: their reader is waiting, and they for nobody for ever.
    let told = events.map_or(Ok(()), |events| events.finish(&record));
    let delivered = deliver(&record, outlet);
    let mut code = u8::try_from(record.exit_code).unwrap_or(FAILED);
    for error in [told, delivered].into_iter().filter_map(Result::err) {
        complain(&error);
        code = FAILED;
    }
    code
}

/// The end of a call that has no place for its record or its events.
fn refuse(error: &SetupError, options: &Options, events: Option<&Events>) -> u8 {
    let record = run::refused(error.clone());
    if options.json {
        let _ = print_record(&record, &options.format, &mut io::stdout());
    }
    let told = events.map_or(Ok(()), |events| events.finish(&record));
    complain(error);
    if let Err(error) = told {
        complain(&error);
    }
    FAILED
}

fn load(mode: Mode, options: &Options, partial: Partial) -> Result<Spec> {
    let cwd = std::env::current_dir().map_err(|e| SetupError::io(Step::Spec, "getcwd", &e))?;
    let languages: Vec<Language<'_>> = drivers::TABLE
        .iter()
        .map(|driver| Language {
            name: driver.name,
            aliases: driver.aliases,
            extensions: driver.extensions,
            profile: driver.profile,
        })
        .collect();
    let has_stdout = options.events != Some(EventsTo::Stdout);
    let stdio = if mode == Mode::Run || options.json || !has_stdout {
        Stdio::Capture
    } else {
        Stdio::Inherit
    };
    let ask = Ask {
        mode,
        cwd: &cwd,
        languages: &languages,
        stdio,
    };
    spec::load(&ask, options.spec.as_deref(), partial)
}

fn deliver(record: &Record, outlet: Outlet) -> Result<()> {
    if let Some((name, mut file)) = outlet.record {
        print_record(record, &Format::default(), &mut file).map_err(|error| error.on(name))?;
    }
    if let Some(format) = &outlet.json {
        print_record(record, format, &mut io::stdout())?;
    }
    if outlet.view {
        print(show::render_run(record, show::Style::of_stdout()).as_bytes())?;
    }
    Ok(())
}

/// Writes the record in pieces: what it holds of the program's output may be
/// larger in JSON than everything else in memory.
fn print_record(record: &Record, format: &Format, to: &mut dyn Write) -> Result<()> {
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
                .hint("see that its destination has room and a reader")
        })
}

fn print(bytes: &[u8]) -> Result<()> {
    let mut stdout = io::stdout();
    stdout
        .write_all(bytes)
        .and_then(|()| stdout.flush())
        .map_err(|e| SetupError::io(Step::Outputs, "write", &e).on("standard output"))
}

/// What `cellblock plan` prints.
#[derive(Serialize)]
struct PlanDocument<'a> {
    schema: &'static str,
    plan: &'a Plan,
    host: &'a HostFacts,
    seccomp: Option<String>,
}

fn plan(mode: Mode, options: &Options, partial: Result<Partial>) -> Result<u8> {
    let spec = load(mode, options, partial?)?;
    let resolved = run::resolve(&spec).map_err(crate::hints::explain)?;
    let document = PlanDocument {
        schema: "cellblock.plan.v1",
        plan: &resolved.plan,
        host: &resolved.host,
        seccomp: resolved
            .filter
            .as_ref()
            .map(|policy| policy.compiled().identity()),
    };
    let text = serde_json::to_string_pretty(&document).map_err(|e| {
        SetupError::new(
            Step::Outputs,
            format!("the plan cannot be shown as JSON: {e}"),
        )
        .hint("JSON holds UTF-8 only; the launch itself takes any path")
    })?;
    print(format!("{text}\n").as_bytes()).map(|()| 0)
}

fn show_record(wanted: &cli::Show) -> Result<u8> {
    let record = show::read(&wanted.record)?;
    match wanted.format() {
        Some(format) => print_record(&record, &format, &mut io::stdout())?,
        None if wanted.html => print(show::render_html(&record).as_bytes())?,
        None => print(show::render(&record, show::Style::of_stdout()).as_bytes())?,
    }
    Ok(0)
}
