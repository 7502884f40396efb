//! What becomes the program's standard streams.

use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat};
use nix::unistd::pipe2;

use super::files::{FileWriter, ToFiles};
use super::set_nonblocking;
use super::terminal::{CallerTerminal, Display};
use crate::child::Shield;
use plan::Plan;
use record::error::{Result, SetupError, Step};
use spec::{Stdin, Stdio};
use sys::process::standard_streams;

/// Bytes that a captured stream may be ahead of its reader.
const PIPE_SIZE: i32 = 256 * 1024;

/// Names of the streams, by number.
pub(super) const NAMES: [&str; 3] = ["standard input", "standard output", "standard error"];

/// Both ends of the program's standard streams.
pub(super) struct Streams {
    /// The supervisor's read ends of stdout and stderr, where they are captured.
    pub(super) output: [Option<OwnedFd>; 2],
    /// What becomes the program's 0, 1 and 2; `None` leaves the caller's.
    pub(super) program: [Option<OwnedFd>; 3],
    /// The caller's terminal, if it is to show one of the cell's own.
    pub(super) display: Option<Display>,
    /// Carries output to the caller's files.
    pub(super) writers: Vec<FileWriter>,
    /// Streams of the caller's that init opens anew.
    pub(super) shields: Vec<Shield>,
}

impl Streams {
    /// Pipes for stdout and stderr, which are captured, and an empty standard input.
    ///
    /// # Errors
    /// When the caller has no descriptors left.
    pub(super) fn captured() -> Result<([OwnedFd; 2], [OwnedFd; 3])> {
        let ((stdout, program_stdout), (stderr, program_stderr)) = (output_pipe()?, output_pipe()?);
        let program = [open_null()?, program_stdout, program_stderr];
        Ok(([stdout, stderr], program))
    }

    /// # Errors
    /// When a stream of the caller's would lead out of the cell.
    pub(super) fn new(plan: &Plan, passed: &[(i32, OwnedFd)], holds: bool) -> Result<Self> {
        if plan.watch.stdio == Stdio::Terminal {
            let terminal = CallerTerminal::of_stdin()?;
            let (shown, copy) = output_pipe()?;
            return Ok(Self {
                output: [Some(shown), None],
                program: [None, None, None],
                display: Some(Display { terminal, copy }),
                writers: Vec::new(),
                shields: shields_of(passed, plan.ids.outer_uid),
            });
        }
        let stdin = match &plan.program.stdin {
            // What it reads comes with the program.
            Stdin::Inline(_) if holds => Some(open_null()?),
            stdin => given(stdin)?,
        };
        let mut files = ToFiles::default();
        let (output, program) = if plan.watch.stdio == Stdio::Inherit {
            if plan.limits.file_size.is_some() {
                files = ToFiles::of_caller()?;
            }
            let [stdout, stderr] = files.program;
            ([None, None], [stdin, stdout, stderr])
        } else {
            let (stdout, program_stdout) = output_pipe()?;
            let (stderr, program_stderr) = output_pipe()?;
            (
                [Some(stdout), Some(stderr)],
                [stdin, Some(program_stdout), Some(program_stderr)],
            )
        };
        let mut shields = Vec::new();
        for (stream, own) in standard_streams().into_iter().zip(&program) {
            if own.is_none() {
                shields.extend(inspect(stream, plan.ids.outer_uid)?);
            }
        }
        shields.extend(shields_of(passed, plan.ids.outer_uid));
        Ok(Self {
            output,
            program,
            display: None,
            writers: files.writers,
            shields,
        })
    }
}

/// Those of the program's descriptors that init must open anew, and how.
fn shields_of(passed: &[(i32, OwnedFd)], owner: u32) -> Vec<Shield> {
    let shield_of = |(_, fd): &(i32, OwnedFd)| {
        // SAFETY: it stays open until init has executed the program, which is as long
        // as shields are used.
        let fd = unsafe { BorrowedFd::borrow_raw(fd.as_raw_fd()) };
        let (flags, stat) = look(fd).ok()?;
        shield(fd, flags, &stat, owner)
    };
    passed.iter().filter_map(shield_of).collect()
}

/// What becomes standard input; `None` where it is the caller's.
///
/// # Errors
/// When there is no pipe that holds it.
pub fn given(stdin: &Stdin) -> Result<Option<OwnedFd>> {
    match stdin {
        Stdin::Inherit => Ok(None),
        Stdin::Null => open_null().map(Some),
        Stdin::Inline(text) => filled_pipe(text.as_bytes()).map(Some),
    }
}

/// Refuses a stream by which the program would reach other files; returns how init
/// opens it anew, if it must.
fn inspect(stream: BorrowedFd<'static>, owner: u32) -> Result<Option<Shield>> {
    let Ok((flags, stat)) = look(stream) else {
        return Ok(None);
    };
    let kind = SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits());
    let refused = |why: &str| {
        let message = format!("{why} cannot be a standard stream of the program");
        Err(SetupError::new(Step::Stdio, message)
            .on(NAMES[stream.as_raw_fd() as usize])
            .hint("redirect it from a file, a pipe or /dev/null; --ro DIR shows a directory"))
    };
    if kind == SFlag::S_IFDIR {
        return refused("a directory, which leads to every other file of the host,");
    }
    if flags.contains(OFlag::O_PATH) {
        return refused("a descriptor that was opened with O_PATH");
    }
    Ok(shield(stream, flags, &stat, owner))
}

/// How a descriptor is open, and of what.
pub(super) fn look(fd: BorrowedFd<'_>) -> Result<(OFlag, FileStat), Errno> {
    let flags = fcntl(fd, FcntlArg::F_GETFL)?;
    Ok((OFlag::from_bits_retain(flags), fstat(fd)?))
}

/// How init opens a stream of the caller's anew, if it must.
fn shield(
    stream: BorrowedFd<'static>,
    flags: OFlag,
    stat: &FileStat,
    owner: u32,
) -> Option<Shield> {
    let is_owned = stat.st_uid == owner;
    let access = flags & OFlag::O_ACCMODE;
    let shield = |required| Shield {
        stream,
        access,
        required,
    };
    match SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) {
        // No other process can open a deleted file, so it needs no protection.
        SFlag::S_IFREG if access == OFlag::O_RDONLY && stat.st_nlink > 0 => Some(shield(is_owned)),
        // A container's terminal may have no name inside.
        SFlag::S_IFCHR if is_owned => Some(shield(false)),
        _ => None,
    }
}

/// The supervisor's ends of the pipes of a process.
#[derive(Debug)]
pub struct ProcessPipes {
    /// To standard input, unless that is empty.
    pub input: Option<OwnedFd>,
    /// From stdout and stderr.
    pub output: [OwnedFd; 2],
}

/// Pipes for a process beside the program: the supervisor's ends, and its standard streams.
///
/// # Errors
/// When the caller has no descriptors left.
pub fn process_pipes(has_input: bool) -> Result<(ProcessPipes, [OwnedFd; 3])> {
    let pipe = || pipe2(OFlag::O_CLOEXEC).map_err(|e| SetupError::os(Step::Stdio, "pipe2", e));
    let (stdin, input) = match has_input {
        true => {
            let (read, write) = pipe()?;
            (read, Some(write))
        }
        false => (open_null()?, None),
    };
    let ((stdout, program_stdout), (stderr, program_stderr)) = (pipe()?, pipe()?);
    for ours in input.iter().chain([&stdout, &stderr]) {
        set_nonblocking(ours)?;
    }
    let program = [stdin, program_stdout, program_stderr];
    let first = usize::from(!has_input);
    for theirs in &program[first..] {
        open_by_name(theirs)?;
    }
    let output = [stdout, stderr];
    Ok((ProcessPipes { input, output }, program))
}

/// Lets a process that holds a pipe also open it by a name such as `/dev/stderr`, even as another
/// user than this process. The name means this pipe only to a process that holds it.
pub(super) fn open_by_name(pipe: &OwnedFd) -> Result<()> {
    fchmod(pipe, Mode::from_bits_truncate(0o666))
        .map_err(|e| SetupError::os(Step::Clone, "fchmod", e))
}

fn open_null() -> Result<OwnedFd> {
    std::fs::File::open("/dev/null")
        .map(OwnedFd::from)
        .map_err(|e| SetupError::io(Step::Clone, "open", &e).on("/dev/null"))
}

/// Only the read end is non-blocking: the supervisor must not wait, the program may.
fn output_pipe() -> Result<(OwnedFd, OwnedFd)> {
    let (read, write) =
        pipe2(OFlag::O_CLOEXEC).map_err(|e| SetupError::os(Step::Clone, "pipe2", e))?;
    set_nonblocking(&read)?;
    // A larger pipe halves the cost of a flood; beyond the caller's share
    // (pipe(7), pipe-user-pages-soft) the kernel refuses, and the usual size does.
    let _ = fcntl(&read, FcntlArg::F_SETPIPE_SZ(PIPE_SIZE));
    Ok((read, write))
}

/// The read end of a pipe that holds `text` and nothing more. A file in memory could be
/// executed, and the program, as its owner, could let itself write to it.
fn filled_pipe(text: &[u8]) -> Result<OwnedFd> {
    let failed = |call, errno| {
        SetupError::os(Step::Stdio, call, errno)
            .on(NAMES[0])
            .hint("give less standard input: the kernel grants this user no pipe that holds it")
    };
    let (read, write) = pipe2(OFlag::O_CLOEXEC).map_err(|e| failed("pipe2", e))?;
    set_nonblocking(&write)?;
    let size = i32::try_from(text.len()).unwrap_or(i32::MAX);
    if size > 0 {
        fcntl(&write, FcntlArg::F_SETPIPE_SZ(size)).map_err(|e| failed("fcntl", e))?;
    }
    let written = nix::unistd::write(&write, text).map_err(|e| failed("write", e))?;
    if written < text.len() {
        return Err(failed("write", Errno::EAGAIN));
    }
    Ok(read)
}

/// The stream's name, for messages.
pub(super) fn name(number: usize) -> Option<&'static str> {
    NAMES.get(number).copied()
}
