//! `cellblock context exec`: a program beside a context's interpreter, with the caller's
//! streams.
//!
//! The server starts the program and carries its streams. Input and signals have connections and
//! threads of their own here, because a call that gives input waits until the program has read it.

use std::ffi::OsString;
use std::io::{self, ErrorKind, IsTerminal as _, Read as _, Write};
use std::os::fd::BorrowedFd;
use std::str::FromStr as _;
use std::thread;

use nix::sys::signal::{SigSet, Signal};
use record::bytes::{RawText, decode_base64};
use record::error::{Result, SetupError, Step};
use record::terminal;
use sys::process::standard_streams;
use sys::terminal::{Settings, Size};
use wire::client::Client;
use wire::{
    ProcessEvent, ProcessInput, ProcessName, ProcessResize, ProcessSignal, ProcessStart,
    ProcessStarted, TerminalSize, method,
};

use super::super::notice;
use super::Place;
use crate::cli::ExecIn;

/// Bytes read at once from standard input.
const PIECE: usize = 64 << 10;
/// The size where a terminal reports none.
const USUAL_SIZE: TerminalSize = TerminalSize {
    rows: 24,
    columns: 80,
};

/// Runs the command to its end; returns its exit status.
///
/// # Errors
/// It cannot be started, or its end was not seen.
pub(super) fn exec(
    place: &Place,
    wanted: &ExecIn,
    environment: impl Fn(&str) -> Option<OsString>,
) -> Result<u8> {
    let terminal = wanted.tty.then(Terminal::of_stdin).transpose()?;
    if let (false, [program]) = (wanted.tty, &*wanted.argv) {
        notice::without_terminal(&program.to_string_lossy());
    }
    let start = start(wanted, terminal.as_ref(), environment)?;
    let mut client = place.connect(&wanted.id)?;
    let (feeding, passing) = (place.connect(&wanted.id)?, place.connect(&wanted.id)?);
    let ProcessStarted {
        context, process, ..
    } = client.ask::<method::ProcessStart>(&start)?;
    let name = move || ProcessName {
        context: context.clone(),
        process,
    };
    let signals = passed_on(wanted.tty);
    signals
        .thread_block()
        .map_err(|errno| SetupError::os(Step::Supervise, "sigprocmask", errno))?;
    // The threads end with this process.
    let (is_terminal, (to_feed, to_pass)) = (wanted.tty, (name(), name()));
    if let Some(terminal) = &terminal {
        terminal.pass_every_byte()?;
    }
    thread::spawn(move || feed(feeding, &to_feed, is_terminal));
    thread::spawn(move || pass_signals(passing, &to_pass, &signals, is_terminal));
    loop {
        match client.event()? {
            ProcessEvent::ProcessOutput {
                stream,
                text,
                base64,
                ..
            } => match stream.as_str() {
                "stderr" => show(&mut io::stderr(), io::stderr().is_terminal(), text, base64),
                "terminal" => show(&mut io::stdout(), false, text, base64),
                _ => show(&mut io::stdout(), io::stdout().is_terminal(), text, base64),
            }
            .map_err(|error| SetupError::io(Step::Outputs, "write", &error).on(stream))?,
            ProcessEvent::ProcessEnded {
                exit_code,
                signal,
                why,
                ..
            } => {
                return status(exit_code, signal.as_deref()).ok_or_else(|| {
                    let why = why.unwrap_or_else(|| "its end was not seen".to_owned());
                    SetupError::new(Step::Ask, format!("the command has ended: {why}"))
                        .on(&wanted.id)
                });
            }
        }
    }
}

fn start(
    wanted: &ExecIn,
    terminal: Option<&Terminal>,
    environment: impl Fn(&str) -> Option<OsString>,
) -> Result<ProcessStart> {
    let mut start = ProcessStart {
        context: wanted.id.clone(),
        argv: Some(wanted.argv.iter().map(|word| word.clone().into()).collect()),
        cwd: wanted.cwd.clone(),
        input: true,
        terminal: terminal.map(Terminal::size),
        events: true,
        attached: true,
        ..ProcessStart::default()
    };
    for variable in &wanted.env {
        let value = variable.value(&environment)?;
        start.env.insert(variable.name.clone(), value);
    }
    if wanted.tty
        && let Some(kind) = environment("TERM")
    {
        let kind = RawText::from(kind);
        start.env.entry("TERM".to_owned()).or_insert(kind);
    }
    Ok(start)
}

/// The signals that go to the command; with a terminal, also the one for a changed size.
fn passed_on(tty: bool) -> SigSet {
    let mut signals: SigSet = [
        Signal::SIGHUP,
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGTERM,
    ]
    .into_iter()
    .collect();
    if tty {
        signals.add(Signal::SIGWINCH);
    }
    signals
}

/// Passes standard input on to the command. An error means that the command has stopped reading.
fn feed(mut client: Client, to: &ProcessName, is_terminal: bool) {
    let mut buffer = vec![0; PIECE];
    loop {
        let data = match io::stdin().lock().read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => buffer[..count].to_vec(),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        let input = ProcessInput {
            context: to.context.clone(),
            process: to.process,
            data: data.into(),
        };
        if client.ask::<method::ProcessInput>(&input).is_err() {
            return;
        }
    }
    // If the terminal is gone, there is a SIGHUP.
    if !is_terminal {
        let _ = client.ask::<method::ProcessCloseInput>(to);
    }
}

/// Passes on signals and the terminal's size. An error means that the command has ended.
fn pass_signals(mut client: Client, to: &ProcessName, signals: &SigSet, is_terminal: bool) {
    let resize = || ProcessResize {
        context: to.context.clone(),
        process: to.process,
        terminal: size_of(stdin()),
    };
    // The size may have changed since the command's terminal was made.
    if is_terminal {
        let _ = client.ask::<method::ProcessResize>(&resize());
    }
    while let Ok(signal) = signals.wait() {
        let _ = match signal {
            Signal::SIGWINCH => client.ask::<method::ProcessResize>(&resize()),
            signal => {
                let signal = ProcessSignal {
                    context: to.context.clone(),
                    process: to.process,
                    signal: signal.as_str().to_owned(),
                };
                client.ask::<method::ProcessSignal>(&signal)
            }
        };
    }
}

/// Writes output unchanged; but if it goes to a terminal and the command has none of its own,
/// control characters are escaped.
fn show(
    to: &mut impl Write,
    is_terminal: bool,
    text: String,
    base64: Option<String>,
) -> io::Result<()> {
    let bytes = match base64 {
        _ if is_terminal => terminal::lines(&text).into_bytes(),
        Some(base64) => {
            decode_base64(&base64).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?
        }
        None => text.into_bytes(),
    };
    to.write_all(&bytes)?;
    to.flush()
}

/// The exit status, or 128 and the number of the signal; `None` where neither was seen.
fn status(exit_code: Option<i32>, signal: Option<&str>) -> Option<u8> {
    let signalled = || Some(128 + Signal::from_str(signal?).ok()? as i32);
    u8::try_from(exit_code.or_else(signalled)?).ok()
}

fn stdin() -> BorrowedFd<'static> {
    let [stdin, ..] = standard_streams();
    stdin
}

fn size_of(terminal: BorrowedFd<'_>) -> TerminalSize {
    match Size::of(terminal).map(|size| (size.rows(), size.columns())) {
        Ok((rows @ 1.., columns @ 1..)) => TerminalSize { rows, columns },
        _ => USUAL_SIZE,
    }
}

/// The caller's terminal, whose settings are restored in the end.
struct Terminal {
    before: Settings,
}

impl Terminal {
    /// # Errors
    /// Standard input is not a terminal.
    fn of_stdin() -> Result<Self> {
        let before = Settings::of(stdin()).map_err(|_| {
            SetupError::new(Step::Inputs, "standard input is not a terminal")
                .on("--tty")
                .hint("start cellblock from a terminal, or leave --tty out: streams are passed through without it")
        })?;
        Ok(Self { before })
    }

    fn size(&self) -> TerminalSize {
        size_of(stdin())
    }

    /// Sets raw mode: keys reach the command's own terminal, which handles line editing and
    /// signals.
    ///
    /// # Errors
    /// The error of tcsetattr(3).
    fn pass_every_byte(&self) -> Result<()> {
        self.before
            .raw()
            .apply(stdin())
            .map_err(|errno| SetupError::os(Step::Stdio, "tcsetattr", errno).on("standard input"))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A terminal that is gone needs no settings.
        let _ = self.before.apply(stdin());
    }
}
