//! The commands: from a parsed command line to an exit status.
//!
//! Those that are not `run` and `exec`, and what follows one after the other in these, have stack
//! frames of their own (`#[inline(never)]`): a frame is touched whole where it begins, so a merged one
//! costs each call a page fault for every 4 KiB, also of what it does not do.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::cli::{self, Invocation, Prescan};
pub use engine::run::CellStart;
use engine::run::refused;
use outlet::Outlet;
use record::error::{Result, SetupError, Step};
use record::terminal;
use run::How;
use spec::{Partial, read_descriptors};
use sys::inherited::Inherited;

mod beside;
mod closed;
mod completions;
mod context;
mod destination;
mod heard;
mod mcp;
mod notice;
mod outlet;
mod plan;
mod plots;
mod policy;
mod remote;
mod rootfs;
mod run;
mod serve;
mod show;

/// Exit status when cellblock failed, or the command line is wrong.
const FAILED: u8 = 125;

/// Whether standard error gets no line of cellblock's own (`--quiet`).
static QUIET: AtomicBool = AtomicBool::new(false);

/// Executes the command line `words`; returns the exit status.
pub fn dispatch(words: impl Iterator<Item = OsString>, began: Instant) -> u8 {
    dispatch_starting(words, began, CellStart::Cold)
}

/// The same as [`dispatch`] for a caller that says how `run` and `exec` start their cells,
/// as tests do: no command line can.
pub fn dispatch_starting(
    words: impl Iterator<Item = OsString>,
    began: Instant,
    start: CellStart,
) -> u8 {
    sys::process::expect_children();
    let words: Vec<OsString> = words.collect();
    let environment = |name: &str| std::env::var_os(name);
    if let Some(shell) = environment(completions::VARIABLE) {
        let answer = completions::answer(&shell, &words);
        return answer.map_or(FAILED, |answer| print(&answer).map_or(FAILED, |()| 0));
    }
    // Before anything is opened: see `Inherited`.
    let prescan = Prescan::of(&words);
    QUIET.store(prescan.quiet, Ordering::Relaxed);
    let activated = serve::activation(&words, environment);
    let mut inherited = Inherited::copy([&*prescan.descriptors, &activated].concat());
    let parsed = cli::parse(&words, &prescan);
    closed::make_writes_fail();
    if prints(&parsed)
        && let Err(error) = closed::stdout()
    {
        return finish(Err(error));
    }
    match parsed {
        Ok(Invocation::Launch(call)) => {
            let flags = with_files(call.partial(environment), &mut inherited);
            let how = How { start, began };
            run::execute(call.mode, &call.options, flags, &mut inherited, how)
        }
        Ok(Invocation::Plan(call)) => {
            let flags = with_files(call.partial(environment), &mut inherited);
            let plan = plan::print_plan(call.mode, &call.options, flags, &mut inherited);
            finish(plan)
        }
        Ok(Invocation::Serve(server)) => {
            let flags = server.partial(environment);
            let own = serve::Protocol::Own;
            finish(serve::serve(&server, own, flags, activated, &mut inherited))
        }
        Ok(Invocation::Mcp(server)) => {
            let flags = server.partial(environment);
            let mcp = serve::Protocol::Mcp;
            finish(serve::serve(
                &server,
                mcp,
                flags,
                Vec::new(),
                &mut inherited,
            ))
        }
        Ok(Invocation::Context(wanted)) => {
            finish(context::run(&wanted, &words, environment, &mut inherited))
        }
        Ok(Invocation::Doctor(doctor)) => finish(doctor::run(doctor.json)),
        Ok(Invocation::Show(wanted)) => finish(show::show(&wanted)),
        Ok(Invocation::Policy(policy)) => finish(policy::run(&policy.action)),
        Ok(Invocation::Rootfs(rootfs)) => finish(rootfs::run(rootfs.action)),
        Ok(Invocation::Completions(wanted)) => {
            let script = completions::script(wanted.shell);
            let script = script.map_err(|e| SetupError::io(Step::Outputs, "write", &e));
            finish(script.and_then(|script| print(&script)).map(|()| 0))
        }
        Err(error) => refuse(&error, &prescan, &mut inherited, began),
    }
}

/// Whether a command has nothing to do but to print. Calls that run something find out by what they print, and a
/// server serves.
fn prints(parsed: &std::result::Result<Invocation, clap::Error>) -> bool {
    match parsed {
        Ok(Invocation::Launch(_) | Invocation::Serve(_)) => false,
        Ok(Invocation::Context(context)) => !context.is_exec(),
        Ok(_) => true,
        Err(error) => !error.use_stderr(),
    }
}

/// The flags with the files that come from the caller's descriptors.
#[inline(never)]
fn with_files(flags: Result<Partial>, inherited: &mut Inherited) -> Result<Partial> {
    let mut flags = flags?;
    read_descriptors(&mut flags, |number| {
        let taken = inherited.take_readable(number);
        taken.map_err(|errno| {
            SetupError::os(Step::Spec, "fcntl", errno)
                .on(format!("--file fd:{number}"))
                .hint("pass a descriptor that is open for reading, and name it once")
        })
    })?;
    Ok(flags)
}

/// clap's own message; a caller of `run` and `exec` gets its record or its events
/// too.
#[inline(never)]
fn refuse(error: &clap::Error, prescan: &Prescan, inherited: &mut Inherited, began: Instant) -> u8 {
    if !error.use_stderr() {
        let printed = error.print();
        let printed = printed.map_err(|e| SetupError::io(Step::Outputs, "write", &e));
        return finish(printed.map(|()| 0).map_err(|e| e.on("standard output")));
    }
    // It quotes the words, which may come from elsewhere.
    let message = terminal::lines(&error.render().to_string());
    if !is_quiet() {
        let _ = io::stderr().write_all(message.as_bytes());
    }
    let Some(mode) = prescan.mode else {
        return FAILED;
    };
    let message = error.to_string();
    let lines = message.lines().map(str::trim);
    let lines: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
    let message = lines.join(" ");
    let message = message.trim_start_matches("error: ");
    let tip = error.to_string();
    let tip = tip
        .lines()
        .find_map(|line| line.trim().strip_prefix("tip: "));
    let hint = tip.unwrap_or("see cellblock --help");
    let failure = SetupError::new(Step::Spec, message).hint(hint);
    let (outlet, opened) = Outlet::open(mode, &prescan.outputs, &[], inherited, began);
    if let Err(error) = opened {
        complain(&error);
    }
    outlet.without_view().deliver(&refused(failure));
    FAILED
}

fn finish(result: Result<u8>) -> u8 {
    result.unwrap_or_else(|error| {
        complain(&error);
        FAILED
    })
}

/// Prints an error and its hint to standard error.
fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

fn complain(error: &SetupError) {
    if is_quiet() {
        return;
    }
    let mut text = format!("cellblock: {}\n", error.for_person());
    if let Some(hint) = &error.hint {
        text.push_str(&format!("\nhint: {hint}\n"));
    }
    let _ = io::stderr().write_all(terminal::lines(&text).as_bytes());
}

fn print(bytes: &[u8]) -> Result<()> {
    let mut stdout = io::stdout();
    stdout
        .write_all(bytes)
        .and_then(|()| stdout.flush())
        .map_err(|e| SetupError::io(Step::Outputs, "write", &e).on("standard output"))
}
