//! `cellblock context run`: files in, code, files out, and the record to where it is wanted.

use std::cell::RefCell;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use engine::run;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, raise};
use record::bytes::RawText;
use record::error::{Result, SetupError, Step};
use record::quantity::Bound;
use record::unread::Unread;
use record::{Change, Record};
use serde_json::json;
use supervise::BlockedSignals;
use sys::inherited::Inherited;
use wire::client::{Canceller, Client};
use wire::{ContextRun, Executed, FileRead, FileWrite, State, method};
use workspace::OutDir;

use super::super::outlet::Outlet;
use super::super::{FAILED, complain, heard};
use super::{Place, print_json};
use crate::cli::{FileFrom, RunIn};
use crate::show::Live;

/// What code gets to end by itself after a signal, unless the caller says something else.
const GRACE: Duration = Duration::from_secs(2);
/// Longer code and files are refused: a line of the protocol has less than 17M.
const LONGEST: u64 = 16 << 20;

/// Executes code in a context; returns the exit status.
///
/// # Errors
/// The context does not exist, its server refuses, or a destination cannot be opened.
pub(super) fn execute(place: &Place, wanted: &RunIn, inherited: &mut Inherited) -> Result<u8> {
    let shared: Vec<PathBuf> = wanted.out.iter().cloned().collect();
    let outlet = Outlet::of_context(&wanted.outputs(), wanted.json, &shared, inherited)?;
    let is_answered = wanted.json || outlet.is_silent();
    let view = outlet.view.clone();
    let executed = ask(place, wanted, inherited, view.as_deref());
    let (mut client, executed, record) = match executed {
        Ok(executed) => executed,
        Err(error) => {
            let record = run::refused(error.clone());
            if is_answered {
                print_json(&json!({
                    "context": wanted.id, "execution": null, "state": null, "why": null,
                    "record": record,
                }))?;
            }
            outlet.without_view().deliver(&record);
            return Err(error);
        }
    };
    let copied =
        (wanted.out.as_ref()).map_or(Ok(()), |to| bring_out(&mut client, &wanted.id, &record, to));
    let mut is_delivered = copied.inspect_err(complain).is_ok();
    is_delivered &= outlet.deliver(&record).is_empty();
    if is_answered {
        print_json(&executed)?;
    } else if view.is_some() && executed.state == State::Lost {
        let why = executed.why.as_deref().unwrap_or("the interpreter ended");
        let lost = SetupError::new(Step::State, format!("its state is lost: {why}"));
        complain(&lost.on(&wanted.id));
    }
    Ok(match is_delivered {
        true => u8::try_from(record.exit_code).unwrap_or(FAILED),
        false => FAILED,
    })
}

/// Has the server execute the code, with its files written before.
fn ask(
    place: &Place,
    wanted: &RunIn,
    inherited: &mut Inherited,
    view: Option<&RefCell<Live>>,
) -> Result<(Client, Executed, Record)> {
    let mut words = wanted.source.iter().chain(&wanted.args);
    let (code, name) = match &wanted.code {
        Some(code) => (code.clone().into(), None),
        None => read_code(words.next())?,
    };
    let params = ContextRun {
        name,
        args: words.map(|word| word.clone().into()).collect(),
        wall: wanted.wall,
        grace: wanted.grace,
        events: view.is_some(),
        ..ContextRun::new(&wanted.id, Unread::of(&code))
    };
    let mut client = place.connect(&wanted.id)?;
    for file in &wanted.file {
        bring_in(&mut client, &wanted.id, file, inherited)?;
    }
    interrupt_on_signals(client.canceller()?, wanted.grace)?;
    let executed = match view {
        Some(view) => heard::ask::<method::ContextRun>(&mut client, &params, view)?,
        None => client.ask::<method::ContextRun>(&params)?,
    };
    let record = serde_json::from_str(executed.record.get()).map_err(|error| {
        SetupError::new(Step::Outputs, format!("the record cannot be read: {error}"))
    })?;
    Ok((client, executed, record))
}

/// From here on, the first signal that would end this process interrupts the code instead, so that
/// there is a record which says what became of the state. The second one ends this process.
fn interrupt_on_signals(mut of: Canceller, grace: Option<Bound<Duration>>) -> Result<()> {
    let signals = BlockedSignals::block()?;
    let next = move || loop {
        if let Some(signal) = signals.next() {
            return signal;
        }
        let _ = poll(
            &mut [PollFd::new(signals.fd(), PollFlags::POLLIN)],
            PollTimeout::NONE,
        );
    };
    // It ends with this process.
    thread::spawn(move || {
        next();
        let _ = of.cancel(Some(grace.unwrap_or(Bound(Some(GRACE)))));
        let signal = next();
        let _ = SigSet::from(signal).thread_unblock();
        let _ = raise(signal);
    });
    Ok(())
}

/// Writes a file into the context's workspace.
fn bring_in(
    client: &mut Client,
    context: &str,
    from: &FileFrom,
    inherited: &mut Inherited,
) -> Result<()> {
    let (file, named, path) = match from {
        FileFrom::Host(pair) => {
            let name = pair.source.file_name().unwrap_or_default();
            let file = File::open(&pair.source).map_err(|error| {
                SetupError::io(Step::Inputs, "open", &error).on(pair.source.display())
            })?;
            let path = pair.target.clone().unwrap_or_else(|| name.into());
            (file, pair.source.display().to_string(), path)
        }
        FileFrom::Descriptor(number, path) => {
            let named = format!("fd:{number}");
            let file = inherited.take_readable(*number).map_err(|errno| {
                SetupError::os(Step::Inputs, "fcntl", errno).on(format!("--file {named}"))
            })?;
            (file, named, path.clone())
        }
    };
    let status = file.metadata();
    let executable =
        status.is_ok_and(|status| status.is_file() && status.permissions().mode() & 0o111 != 0);
    let content: RawText = read(file, &named)?.into();
    let write = FileWrite {
        executable,
        ..FileWrite::new(context, path, Unread::of(&content))
    };
    client.ask::<method::FileWrite>(&write)?;
    Ok(())
}

/// Copies the files that the record lists to a directory.
fn bring_out(client: &mut Client, context: &str, record: &Record, to: &Path) -> Result<()> {
    let out = OutDir::open(to)?;
    let is_there = |file: &&record::FileChange| file.change != Change::Deleted;
    // An overlay's files are elsewhere, where `file.read` does not reach.
    let is_below = |file: &&record::FileChange| file.path.as_path().is_relative();
    for file in record.files.iter().filter(is_there).filter(is_below) {
        // It may have grown since.
        let size = file.size.unwrap_or(0);
        let mut next = Some(0);
        let pieces = std::iter::from_fn(|| {
            let offset = next.take()?;
            let wanted = FileRead {
                offset,
                ..FileRead::new(context, file.path.as_path())
            };
            let part = client.ask::<method::FileRead>(&wanted);
            Some(part.map(|part| {
                let bytes = part.content.content.as_bytes().to_vec();
                let end = offset + bytes.len() as u64;
                next = (end < size && !bytes.is_empty()).then_some(end);
                bytes
            }))
        });
        out.write(&file.path, pieces)?;
    }
    Ok(())
}

/// Code in a file or on standard input, and what it is called.
fn read_code(source: Option<&OsString>) -> Result<(RawText, Option<String>)> {
    match source {
        None => Err(SetupError::new(Step::Spec, "no code is given")
            .hint("give FILE, -c CODE, or - for standard input")),
        Some(source) if source == "-" => {
            Ok((read(io::stdin().lock(), "standard input")?.into(), None))
        }
        Some(source) => {
            let shown = source.to_string_lossy();
            let file = File::open(source)
                .map_err(|error| SetupError::io(Step::Spec, "open", &error).on(&shown))?;
            let name = Path::new(source).file_name();
            let name = name.map(|name| name.to_string_lossy().into_owned());
            Ok((read(file, &shown)?.into(), name))
        }
    }
}

fn read(from: impl io::Read, name: &str) -> Result<Vec<u8>> {
    let mut content = Vec::new();
    let read = from.take(LONGEST + 1).read_to_end(&mut content);
    read.map_err(|error| SetupError::io(Step::Inputs, "read", &error).on(name))?;
    match content.len() as u64 > LONGEST {
        true => Err(SetupError::new(Step::Inputs, "is larger than 16M").on(name)),
        false => Ok(content),
    }
}
