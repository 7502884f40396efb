//! `cellblock run` and `cellblock exec`.

use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::Instant;

use super::outlet::{self, Outlet};
use super::{FAILED, beside, closed, complain, destination, is_quiet, notice, remote};
use crate::cli::{Options, TERMINAL_TAKEN};
use engine::run;
use engine::run::{CellStart, Compiled, Info, Passed};
use record::bytes::RawText;
use record::error::{Result, SetupError, Step};
use record::{Outcome, Record};
use spec::{self, Ask, Mode, Partial, Spec, Stdio};
use supervise::Parent;
use sys::inherited::Inherited;

/// How a program or code is run, besides what the options say.
pub(super) struct How {
    pub(super) start: CellStart,
    pub(super) began: Instant,
}

/// Runs a program or code, and delivers its record.
#[inline(never)]
pub(super) fn execute(
    mode: Mode,
    options: &Options,
    flags: Result<Partial>,
    inherited: &mut Inherited,
    how: How,
) -> u8 {
    let How { start, began } = how;
    if let Some(socket) = &options.server {
        return by_server(mode, socket, options, flags, inherited, began);
    }
    // First: a parent that ends from here on is seen.
    let parent = options.die_with_parent.then(Parent::hold).transpose();
    let file = flags
        .as_ref()
        .ok()
        .and_then(|flags| flags.code_file.clone());
    let passed = Passed::default();
    let compiled = Compiled::default();
    let spec = flags.and_then(|flags| {
        let mut spec = load(mode, options, flags)?;
        lend(&mut spec, &passed, inherited)?;
        Ok(spec)
    });
    let shared = spec.as_ref().map(destination::shared).unwrap_or_default();
    let (outlet, opened) = Outlet::open(mode, &options.outputs, &shared, inherited, began);
    let info = options.info_fd.as_ref();
    let info = info.map(|to| outlet::open(to, "--info-fd", &shared, inherited));
    let info = info
        .transpose()
        .map(|opened| opened.map(|(_, file)| Info::new(file)));
    let request = opened
        .and(parent)
        .and_then(|parent| Ok((spec?, parent, info?)));
    let mut record = match &request {
        Ok((spec, parent, info)) => {
            notice::terminal(spec);
            let caller = run::Caller {
                events: outlet.events.as_ref(),
                parent: parent.as_ref(),
                start,
                passed: Some(&passed),
                info: info.as_ref(),
                // A cell in several steps is for looking at, or has a template.
                compiled: (start == CellStart::Cold).then_some(&compiled),
            };
            match start {
                CellStart::Carried => engine::context::execute_carried(caller, spec, began),
                _ => run::execute_for(caller, spec, began),
            }
        }
        Err(error) => run::refused(error.clone()),
    };
    if let Some(hint) = file.and_then(|file| beside::hint(&record, &file)) {
        record.operator_hint = Some(hint);
    }
    if let Some(error) = &record.setup_error {
        complain(error);
    } else if (request.as_ref()).is_ok_and(|(spec, ..)| spec.stdio != Stdio::Capture) {
        say_which_limit(&record);
        notice::best_effort(&record);
    }
    let info = request.as_ref().ok().and_then(|(.., info)| info.as_ref());
    let told = info.map_or(Ok(()), |info| info.ended(record.exit_code));
    let _ = told.as_ref().inspect_err(|error| complain(error));
    let status = match (&*outlet.deliver(&record), told) {
        ([], Ok(())) => u8::try_from(record.exit_code).unwrap_or(FAILED),
        _ => FAILED,
    };
    // A caller that cancels the call waits for its end, and what fails here fails there, too.
    if !matches!(record.outcome, Outcome::Cancelled | Outcome::Setup) {
        compiled.keep();
    }
    status
}

/// Has a server run code, and delivers its record.
#[inline(never)]
fn by_server(
    mode: Mode,
    socket: &Path,
    options: &Options,
    flags: Result<Partial>,
    inherited: &mut Inherited,
    began: Instant,
) -> u8 {
    let (outlet, opened) = Outlet::open(mode, &options.outputs, &[], inherited, began);
    let record = match (mode, opened.and(flags)) {
        (Mode::Exec, _) => Err(SetupError::new(Step::Spec, "only `run` takes --server")
            .hint("name the program in the `argv` of a request to the server")),
        (Mode::Run, flags) => {
            let view = outlet.view.as_deref();
            flags.and_then(|flags| remote::run(socket, options, flags, view))
        }
    };
    let record = record.unwrap_or_else(run::refused);
    if let Some(error) = &record.setup_error {
        complain(error);
    }
    match &*outlet.deliver(&record) {
        [] => u8::try_from(record.exit_code).unwrap_or(FAILED),
        _ => FAILED,
    }
}

/// What the program's standard streams are.
fn stdio(mode: Mode, options: &Options) -> Stdio {
    match mode {
        Mode::Exec if !options.outputs.prints() => Stdio::Inherit,
        _ => Stdio::Capture,
    }
}

/// For a caller that has no record before it: the limit, or the signal to cellblock, that ended its program.
fn say_which_limit(record: &Record) {
    use Outcome::{Cancelled, Disk, Memory, Output, Processes, Timeout};
    let is_limit = matches!(
        record.outcome,
        Timeout | Memory | Processes | Disk | Output | Cancelled
    );
    if let (true, false, Some(context)) = (is_limit, is_quiet(), &record.context) {
        // Advice for the code's author follows the semicolon.
        let what = context.split(';').next().unwrap_or(context);
        print_if_there_is_room(&format!("cellblock: {}\n", what.escape_debug()));
    }
}

/// Writes a line to standard error, unless that would wait: its reader may have
/// stopped reading, and the call is over.
pub(super) fn print_if_there_is_room(line: &str) {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let stderr = io::stderr();
    // A pipe that is ready has room for PIPE_BUF bytes, and a line is shorter.
    let mut fds = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
    if poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0) {
        let _ = io::stderr().write_all(line.as_bytes());
    }
}

#[inline(never)]
pub(super) fn load(mode: Mode, options: &Options, flags: Partial) -> Result<Spec> {
    let cwd = std::env::current_dir().map_err(|e| {
        SetupError::io(Step::Spec, "getcwd", &e)
            .hint("change to a directory that exists and that you may read")
    })?;
    let ask = Ask {
        mode,
        cwd: &cwd,
        stdio: stdio(mode, options),
        lends: true,
    };
    let is_stdin = |path: Option<&Path>| path.is_some_and(|path| path.as_os_str() == "-");
    let read = [
        options.spec.as_deref(),
        options.request.as_deref(),
        flags.code_file.as_deref(),
        flags.files_from.as_deref(),
    ];
    if read.into_iter().any(is_stdin) {
        closed::stdin()?;
    }
    let spec = spec::load(
        &ask,
        options.spec.as_deref(),
        options.request.as_deref(),
        flags,
    )?;
    if spec.stdio == Stdio::Terminal && options.outputs.prints() {
        return Err(SetupError::new(Step::Spec, TERMINAL_TAKEN).on("tty"));
    }
    Ok(spec)
}

/// Gives the program its share of this process: descriptors, which `passed` keeps open, and, with a
/// terminal, TERM.
pub(super) fn lend(spec: &mut Spec, passed: &Passed, inherited: &mut Inherited) -> Result<()> {
    for fd in &spec.pass_fd {
        let taken = inherited.take_over(fd.from).map_err(|errno| {
            SetupError::os(Step::Spec, "fcntl", errno)
                .on(format!("--pass-fd {}", fd.from))
                .hint(
                    "open the descriptor before cellblock starts, and name it once; a spec file \
                     can name 3 to 15",
                )
        })?;
        let described = passed.add(fd.from, fd.inside(), &taken)?;
        spec.descriptors.push(described);
    }
    if spec.stdio == Stdio::Terminal
        && !spec.env_unset.contains("TERM")
        && let Some(kind) = std::env::var_os("TERM")
    {
        let kind = RawText::from(kind);
        spec.env.entry("TERM".to_owned()).or_insert(kind);
    }
    Ok(())
}
