//! The commands: from a parsed command line to an exit status.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::time::Instant;

use serde::Serialize;

use crate::cli::{self, Invocation, Options, OutputTo, Outputs};
use crate::show;
use cell::Parent;
use cell::plan::Plan;
use cell::probe::HostFacts;
use cell::run;
use cell::spec::{self, Ask, Mode, Partial, Spec, Stdio};
use record::error::{Result, SetupError, Step};
use record::terminal;
use record::{Outcome, Record};
use sys::inherited::Inherited;

mod destination;
mod outlet;
mod policy;
mod rootfs;

use outlet::{Outlet, print_record};

/// Exit status when cellblock could not do what was asked, or was not asked in a
/// way that it understands.
const FAILED: u8 = 125;

/// Does what the command line `words` say; returns the exit status.
pub fn dispatch(words: impl Iterator<Item = OsString>, began: Instant) -> u8 {
    let words: Vec<OsString> = words.collect();
    // Before anything is opened: see `Inherited`.
    let outputs = Outputs::wanted(&words);
    let mut inherited = Inherited::copy(outputs.descriptors());
    match cli::parse(&words) {
        Ok(Invocation::Run(run)) => {
            let partial = run.partial(|name| std::env::var_os(name));
            execute(Mode::Run, &run.options, partial, &mut inherited, began)
        }
        Ok(Invocation::Exec(exec)) => {
            let partial = exec.partial(|name| std::env::var_os(name));
            execute(Mode::Exec, &exec.options, partial, &mut inherited, began)
        }
        Ok(Invocation::PlanRun(run)) => {
            let partial = run.partial(|name| std::env::var_os(name));
            finish(plan(Mode::Run, &run.options, partial))
        }
        Ok(Invocation::PlanExec(exec)) => {
            let partial = exec.partial(|name| std::env::var_os(name));
            finish(plan(Mode::Exec, &exec.options, partial))
        }
        Ok(Invocation::Doctor(doctor)) => finish(cell::doctor::run(doctor.json)),
        Ok(Invocation::Show(wanted)) => finish(show_record(&wanted)),
        Ok(Invocation::Policy(policy)) => finish(policy::run(&policy.action)),
        Ok(Invocation::Rootfs(rootfs)) => finish(rootfs::run(&rootfs.action)),
        Ok(Invocation::Completions(wanted)) => finish(print(&wanted.script()).map(|()| 0)),
        Err(error) => refuse(&error, &words, &outputs, &mut inherited, began),
    }
}

/// clap's own message; a caller of `run` and `exec` gets its record or its events
/// too.
fn refuse(
    error: &clap::Error,
    words: &[OsString],
    outputs: &Outputs,
    inherited: &mut Inherited,
    began: Instant,
) -> u8 {
    if !error.use_stderr() {
        let _ = error.print();
        return 0;
    }
    // It quotes the words, which may come from elsewhere.
    let message = terminal::lines(&error.render().to_string());
    let _ = io::stderr().write_all(message.as_bytes());
    let mode = match words.get(1) {
        Some(word) if word == "run" => Mode::Run,
        Some(word) if word == "exec" => Mode::Exec,
        _ => return FAILED,
    };
    let message = error.to_string();
    let lines = message.lines().map(str::trim);
    let lines: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
    let message = lines.join(" ");
    let message = message.trim_start_matches("error: ");
    let failure = SetupError::new(Step::Spec, message).hint("see cellblock --help");
    let (outlet, opened) = Outlet::open(mode, outputs, &[], inherited, began);
    if let Err(error) = opened {
        complain(&error);
    }
    outlet.without_view().deliver(&run::refused(failure));
    FAILED
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
    let _ = io::stderr().write_all(terminal::lines(&text).as_bytes());
}

fn execute(
    mode: Mode,
    options: &Options,
    partial: Result<Partial>,
    inherited: &mut Inherited,
    began: Instant,
) -> u8 {
    // First: a parent that ends from here on is seen.
    let parent = options.die_with_parent.then(Parent::hold).transpose();
    let spec = partial.and_then(|partial| load(mode, options, partial));
    let shared = spec.as_ref().map(destination::shared).unwrap_or_default();
    let (outlet, opened) = Outlet::open(mode, &options.outputs, &shared, inherited, began);
    let request = opened.and(parent).and_then(|parent| Ok((spec?, parent)));
    let record = match &request {
        Ok((spec, parent)) => {
            let caller = run::Caller {
                events: outlet.events.as_ref(),
                parent: parent.as_ref(),
            };
            run::execute_for(caller, spec, began)
        }
        Err(error) => run::refused(error.clone()),
    };
    if let Some(error) = &record.setup_error {
        complain(error);
    } else if stdio(mode, options) == Stdio::Inherit {
        say_which_limit(&record);
    }
    match &*outlet.deliver(&record) {
        [] => u8::try_from(record.exit_code).unwrap_or(FAILED),
        _ => FAILED,
    }
}

/// What happens to the program's standard output and error.
fn stdio(mode: Mode, options: &Options) -> Stdio {
    let outputs = &options.outputs;
    let is_taken = outputs.printed.is_some() || outputs.events == Some(OutputTo::Stdout);
    match mode {
        Mode::Exec if !is_taken => Stdio::Inherit,
        _ => Stdio::Capture,
    }
}

/// For a caller that has no record before it: the limit that ended its program.
fn say_which_limit(record: &Record) {
    use Outcome::{Disk, Memory, Output, Processes, Timeout};
    let is_limit = matches!(record.outcome, Timeout | Memory | Processes | Disk | Output);
    if let (true, Some(context)) = (is_limit, &record.context) {
        // Advice for the code's author follows the semicolon.
        let what = context.split(';').next().unwrap_or(context);
        print_if_there_is_room(&format!("cellblock: {}\n", what.escape_debug()));
    }
}

/// Writes a line to standard error, unless that would wait: its reader may have
/// stopped reading, and the call is over.
fn print_if_there_is_room(line: &str) {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let stderr = io::stderr();
    // A pipe that is ready has room for PIPE_BUF bytes, and a line is shorter.
    let mut fds = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
    if poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0) {
        let _ = io::stderr().write_all(line.as_bytes());
    }
}

fn load(mode: Mode, options: &Options, partial: Partial) -> Result<Spec> {
    let cwd = std::env::current_dir().map_err(|e| SetupError::io(Step::Spec, "getcwd", &e))?;
    let ask = Ask {
        mode,
        cwd: &cwd,
        stdio: stdio(mode, options),
    };
    spec::load(&ask, options.spec.as_deref(), partial)
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
    let resolved = run::resolve(&spec).map_err(cell::explain)?;
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
    let text = terminal::json_for_stdout(text + "\n");
    print(text.as_bytes()).map(|()| 0)
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
