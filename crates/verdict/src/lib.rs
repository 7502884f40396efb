//! Turns the evidence of how a cell ended into the record's verdict.
//!
//! What cellblock did comes first (it ended the cell, so the program's end says
//! little), then what was measured ([`evidence::Measured`]), then how the program ended.
//! What the code says of itself (an exception, its last words, a signal that it
//! may have sent itself) makes no outcome by itself: `memory`, `processes`,
//! `disk` and `timeout` need a figure that shows the limit. Without one the
//! outcome is how the program ended, the category what it reports, and `context`
//! has the report beside the figures.

#![forbid(unsafe_code)]
// Nothing that input, the kernel or a cell can influence may end in a panic.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod category;
mod causes;
mod counts;
mod errnos;
pub mod evidence;
mod explain;
mod lack;
pub mod last_words;
mod modules;
mod programs;
mod sanitizers;

use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::Signal;

pub use counts::Counts;
use evidence::{End, Evidence, FullTmpfs, Stop};
use explain::{
    claim, denials, exception_context, full_context, internal_context, limit_signal, refusals,
    setup_context, signal_meaning, signal_name, status_meaning,
};
use record::error::{SetupError, Step};
use record::{Category, CodeError, Outcome};
use spec::Limits;
use spec::units::show_duration;

/// Exit code for a time limit, as timeout(1) has it.
const TIMED_OUT: i32 = 124;
/// Exit code for a cell that could not be set up, and for cellblock's own failures.
const NOT_SET_UP: i32 = 125;
/// Exit code for a program that is there but cannot be executed, as shells have it.
const NOT_EXECUTABLE: i32 = 126;
/// Exit code for a program that is not there, as shells have it.
const NOT_FOUND: i32 = 127;
/// Exit code for an exception that ended the code.
const RAISED: i32 = 1;

/// The record's fields about how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// How it ended, in one word.
    pub outcome: Outcome,
    /// The record's exit code; 0 only for [`Outcome::Ok`].
    pub exit_code: i32,
    /// The signal that ended the program, from any sender.
    pub signal: Option<String>,
    /// Whether the run failed in any way.
    pub is_error: bool,
    /// What kind of failure it was.
    pub error_category: Option<Category>,
    /// Whether changed code could succeed where this failed: not when the cell
    /// could not be set up, when cellblock failed, when the caller cancelled,
    /// or when the network does not reach what the code wants. Or whether the same
    /// call could later: when another run has the kept directory.
    pub is_retryable: bool,
    /// One sentence for the code's author.
    pub context: Option<String>,
    /// One sentence for the operator, where the code's author can only do without.
    pub operator_hint: Option<String>,
}

/// How it ended.
pub fn judge(evidence: &Evidence<'_>) -> Verdict {
    let failure = match (&evidence.stopped, &evidence.end) {
        (Some(stop @ (Stop::Internal(_) | Stop::Cancelled(_) | Stop::ParentEnded)), _) => {
            stopped(stop, evidence)
        }
        (_, End::NotStarted(error)) => not_started(error),
        (Some(stop), _) => stopped(stop, evidence),
        (None, End::Signaled(signal)) => signaled(*signal, evidence),
        (None, End::Exited(status)) => match (evidence.error, *status) {
            (Some(error), _) => raised(error, evidence),
            (None, 0) => return OK,
            (None, status) => exited(status, evidence),
        },
    };
    let signal = match evidence.end {
        End::Signaled(signal) => Some(signal_name(signal).into_owned()),
        _ => None,
    };
    let causes = causes::of(evidence, failure.outcome, failure.category);
    let denials = denials(&causes, evidence) + &refusals(evidence);
    let mut verdict = failed(failure, signal, evidence.error, &denials);
    verdict.operator_hint = (verdict.operator_hint).or_else(|| causes::way_out(&causes, evidence));
    // A refused host is refused again, so a retry does not help.
    let is_networks = verdict.error_category == Some(Category::Network);
    verdict.is_retryable &= !is_networks || evidence.refused.is_empty();
    verdict
}

/// The verdict on a call whose cell never started.
pub fn not_set_up(error: &SetupError) -> Verdict {
    failed(not_started(error), None, None, "")
}

/// The verdict on an execution that was cancelled before it began.
pub fn cancelled_early() -> Verdict {
    let context = "the caller cancelled the execution before it began";
    failed(cancelled(Signal::SIGTERM as i32, context), None, None, "")
}

fn failed(
    failure: Failure,
    signal: Option<String>,
    error: Option<&CodeError>,
    denials: &str,
) -> Verdict {
    Verdict {
        outcome: failure.outcome,
        exit_code: failure.exit_code,
        signal,
        is_error: true,
        error_category: Some(failure.category),
        is_retryable: is_retryable(&failure, error),
        context: Some(failure.context + denials),
        operator_hint: failure.operator_hint,
    }
}

const OK: Verdict = Verdict {
    outcome: Outcome::Ok,
    exit_code: 0,
    signal: None,
    is_error: false,
    error_category: None,
    is_retryable: false,
    context: None,
    operator_hint: None,
};

/// Why it is not [`OK`].
struct Failure {
    outcome: Outcome,
    category: Category,
    exit_code: i32,
    context: String,
    operator_hint: Option<String>,
    /// Whether the same call may succeed later.
    is_busy: bool,
}

impl Failure {
    fn new(
        outcome: Outcome,
        category: Category,
        exit_code: i32,
        context: impl Into<String>,
    ) -> Self {
        Self {
            outcome,
            category,
            exit_code,
            context: context.into(),
            operator_hint: None,
            is_busy: false,
        }
    }
}

fn is_retryable(failure: &Failure, error: Option<&CodeError>) -> bool {
    match failure.outcome {
        Outcome::Setup => failure.is_busy,
        Outcome::Internal | Outcome::Cancelled => false,
        _ if failure.category == Category::Network => error.is_some_and(category::network_answered),
        _ => true,
    }
}

fn not_started(error: &SetupError) -> Failure {
    let exit_code = match error.step {
        Step::Exec if error.errno == Some(Errno::ENOENT as i32) => NOT_FOUND,
        Step::Exec => NOT_EXECUTABLE,
        Step::Interpreter => NOT_FOUND,
        _ => NOT_SET_UP,
    };
    Failure {
        is_busy: error.is_busy(),
        ..Failure::new(
            Outcome::Setup,
            Category::Setup,
            exit_code,
            setup_context(error),
        )
    }
}

fn stopped(stop: &Stop, evidence: &Evidence<'_>) -> Failure {
    match stop {
        Stop::Internal(message) => Failure::new(
            Outcome::Internal,
            Category::Internal,
            NOT_SET_UP,
            internal_context(message),
        ),
        Stop::Cancelled(signal) => cancelled(
            *signal,
            format!(
                "the caller cancelled the run with {} before it ended",
                signal_name(*signal)
            ),
        ),
        // With the exit code of SIGTERM, the signal for the processes of a service
        // that ends.
        Stop::ParentEnded => cancelled(
            Signal::SIGTERM as i32,
            "the process that started cellblock ended, which cancelled the run (--die-with-parent)",
        ),
        Stop::WallTimeout(limit) => Failure::new(
            Outcome::Timeout,
            Category::Timeout,
            TIMED_OUT,
            format!(
                "the code ran longer than its limit of {}; make it faster, do less, or ask for more time",
                show_duration(*limit)
            ),
        ),
        Stop::CpuTimeout(limit) => cpu_timeout(Some(*limit)),
        Stop::OutputLimit { stream, cap } => Failure::new(
            Outcome::Output,
            Category::Output,
            failed_code(&evidence.end),
            format!(
                "the code wrote more than its limit of {cap} to {stream}; print less, or write to a file"
            ),
        ),
        Stop::MemoryWatchdog => memory(failed_code(&evidence.end), evidence),
        Stop::ChannelBroken => Failure::new(
            Outcome::Signal,
            Category::Killed,
            signal_code(Signal::SIGKILL as i32),
            "the code closed or damaged the descriptors on which cellblock speaks with the interpreter, so the interpreter was ended; leave descriptors alone that the code did not open",
        ),
    }
}

fn signaled(signal: i32, evidence: &Evidence<'_>) -> Failure {
    let exit_code = signal_code(signal);
    let measured = &evidence.measured;
    let known = Signal::try_from(signal).ok();
    // Interpreters end themselves with these signals; others come from outside.
    let gave_up = matches!(
        known,
        Some(Signal::SIGABRT | Signal::SIGTRAP | Signal::SIGILL | Signal::SIGSEGV | Signal::SIGBUS)
    );
    // OpenBLAS raises SIGINT where it cannot start a thread.
    let of_blas = known == Some(Signal::SIGINT);
    let claimed = claimed(evidence)
        .filter(|category| gave_up || (of_blas && *category == Category::Processes));
    let aborts = evidence.place.driver.is_some_and(|driver| driver.aborts);
    if out_of_memory(evidence, claimed) || (gave_up && aborts && measured.memory_short) {
        return memory(exit_code, evidence);
    }
    if claimed == Some(Category::Processes) && measured.processes == Some(true) {
        return processes(exit_code, evidence.limits);
    }
    let full = match claimed {
        Some(Category::Disk) => measured.disks.iter().collect(),
        _ => measured.full_at_end(),
    };
    if claimed == Some(Category::Disk) && !full.is_empty() {
        return disk(exit_code, &full);
    }
    if let Some(failure) = nearly_full(exit_code, claimed, evidence) {
        return failure;
    }
    match known {
        Some(Signal::SIGXCPU) if measured.cpu_time == Some(true) => {
            return cpu_timeout(evidence.limits.cpu_time);
        }
        Some(Signal::SIGXFSZ) if measured.file_size == Some(true) => {
            return file_too_large(exit_code, evidence.limits);
        }
        // A mapped page that a full tmpfs cannot provide.
        Some(Signal::SIGBUS) if !full.is_empty() => return disk(exit_code, &full),
        // What runtimes do that cannot start the thread they need.
        Some(Signal::SIGABRT) if measured.forks_refused => {
            return processes(exit_code, evidence.limits);
        }
        _ => {}
    }
    let context = if known == Some(Signal::SIGKILL) {
        "SIGKILL ended the program, and cellblock did not send it; the program may have killed itself, or the host may have run out of memory".to_owned()
    } else if let Some(context) = known.and_then(|signal| limit_signal(signal, evidence)) {
        context
    } else {
        let meaning = signal_meaning(signal);
        format!("the program was ended by {}{meaning}", signal_name(signal))
    };
    let quoted = claimed.map_or_else(String::new, |_| quoted(evidence));
    let category = claimed.unwrap_or(Category::Killed);
    Failure {
        operator_hint: claimed.and_then(|claimed| lack::way_out(claimed, evidence)),
        ..Failure::new(Outcome::Signal, category, exit_code, context + &quoted)
    }
}

/// What the last words say was lacking.
fn claimed(evidence: &Evidence<'_>) -> Option<Category> {
    evidence.last_words.map(|(category, _)| category)
}

/// The last words, and what was measured.
fn quoted(evidence: &Evidence<'_>) -> String {
    evidence
        .last_words
        .map_or_else(String::new, |(category, phrase)| {
            format!("; it wrote `{phrase}`: {}", claim(category, evidence))
        })
}

/// Whether memory ran out. That it was short is no proof by itself: the code has
/// to say that it failed for that.
fn out_of_memory(evidence: &Evidence<'_>, claim: Option<Category>) -> bool {
    let measured = &evidence.measured;
    measured.memory == Some(true) || (measured.memory_short && claim == Some(Category::Memory))
}

fn raised(error: &CodeError, evidence: &Evidence<'_>) -> Failure {
    let measured = &evidence.measured;
    let category = reported(error, evidence);
    if out_of_memory(evidence, Some(category)) {
        return memory(RAISED, evidence);
    }
    let is_too_large = category::is_file_too_large(error);
    match category {
        Category::Processes if measured.processes == Some(true) => {
            return processes(RAISED, evidence.limits);
        }
        Category::Disk if is_too_large && measured.file_size == Some(true) => {
            return file_too_large(RAISED, evidence.limits);
        }
        Category::Disk if !is_too_large && !measured.disks.is_empty() => {
            let full: Vec<&FullTmpfs> = measured.disks.iter().collect();
            return disk(RAISED, &full);
        }
        _ => {}
    }
    let claim = Some(category).filter(|_| !is_too_large);
    if let Some(failure) = nearly_full(RAISED, claim, evidence) {
        return failure;
    }
    let advice = exception_context(error, category, evidence);
    Failure {
        operator_hint: advice.operator,
        ..Failure::new(Outcome::Error, category, RAISED, advice.author)
    }
}

/// The category of the exception.
fn reported(error: &CodeError, evidence: &Evidence<'_>) -> Category {
    let measured = &evidence.measured;
    let driver = evidence.place.driver;
    match category::of_exception(error, driver) {
        _ if evidence.broken_syntax => Category::Syntax,
        // EAGAIN has many causes, and the limit is the one when it was reached.
        Category::Processes if measured.processes == Some(true) => Category::Processes,
        _ if measured.processes == Some(true) && category::follows_a_refused_start(error) => {
            Category::Processes
        }
        // OpenBLAS raises SIGINT where it cannot start a thread, and says so on stderr.
        _ if error.name == "KeyboardInterrupt"
            && claimed(evidence) == Some(Category::Processes) =>
        {
            Category::Processes
        }
        Category::Processes if measured.processes == Some(false) => Category::Runtime,
        Category::Processes if evidence.limits.processes.is_none() => Category::Runtime,
        Category::Processes if !category::is_of_a_start(error) => Category::Runtime,
        Category::Runtime if programs::missing(error, &evidence.stderr, driver).is_some() => {
            Category::File
        }
        // What a filter answers can look like the network's or anything else's.
        _ if category::denial_behind(error, evidence).is_some() => Category::Permission,
        category => category,
    }
}

fn exited(status: u8, evidence: &Evidence<'_>) -> Failure {
    let exit_code = i32::from(status);
    let measured = &evidence.measured;
    let claimed = claimed(evidence);
    if out_of_memory(evidence, claimed) {
        return memory(exit_code, evidence);
    }
    let says_processes = claimed == Some(Category::Processes);
    if measured.forks_refused || (says_processes && measured.processes == Some(true)) {
        return processes(exit_code, evidence.limits);
    }
    let full = match claimed {
        Some(Category::Disk) => measured.disks.iter().collect(),
        _ => measured.full_at_end(),
    };
    if !full.is_empty() {
        return disk(exit_code, &full);
    }
    if let Some(failure) = nearly_full(exit_code, claimed, evidence) {
        return failure;
    }
    if measured.file_size == Some(true) {
        return file_too_large(exit_code, evidence.limits);
    }
    let ended = |category, context| Failure::new(Outcome::Exit, category, exit_code, context);
    if evidence.broken_syntax {
        let context = "the code does not parse; correct what stderr shows".to_owned();
        return ended(Category::Syntax, context);
    }
    let not_found = (status == 127).then(|| programs::not_found_by_shell(&evidence.stderr));
    if let Some(program) = not_found.flatten() {
        let advice = programs::advice(&program, &evidence.place);
        let context = format!("the program exited with status {status}: {}", advice.author);
        return Failure {
            operator_hint: advice.operator,
            ..ended(Category::File, context)
        };
    }
    if matches!(status, 126 | 127) && programs::lacks_interpreter(&evidence.stderr) {
        let context = format!(
            "the program exited with status {status}: a script or program is there, but its interpreter is not: the one that its `#!` line names, or the loader of a compiled program"
        );
        return ended(Category::File, context);
    }
    if let Some(advice) = modules::of_a_child(&evidence.stderr, &evidence.place) {
        let context = format!("the program exited with status {status}: {}", advice.author);
        return Failure {
            operator_hint: advice.operator,
            ..ended(Category::Import, context)
        };
    }
    let advice = sanitizers::of_leak_check(&evidence.stderr)
        .or_else(|| programs::of_package_manager(&evidence.stderr, &evidence.place))
        .or_else(|| programs::of_root(&evidence.stderr, &evidence.place));
    if let Some(advice) = advice {
        let context = format!("the program exited with status {status}: {}", advice.author);
        return Failure {
            operator_hint: advice.operator,
            ..ended(Category::Permission, context)
        };
    }
    let meaning = status_meaning(status);
    let mut context = format!("the program exited with status {status}{meaning}");
    context += &quoted(evidence);
    if !measured.disks.is_empty() {
        let disks: Vec<&FullTmpfs> = measured.disks.iter().collect();
        context = format!("{context}; {}", full_context(&disks));
    }
    Failure {
        operator_hint: claimed.and_then(|claimed| lack::way_out(claimed, evidence)),
        ..ended(claimed.unwrap_or(Category::Runtime), context)
    }
}

fn cancelled(signal: i32, context: impl Into<String>) -> Failure {
    let exit_code = signal_code(signal);
    Failure::new(Outcome::Cancelled, Category::Killed, exit_code, context)
}

fn cpu_timeout(limit: Option<Duration>) -> Failure {
    let limit = limit.map_or_else(
        || "it may".to_owned(),
        |limit| format!("its limit of {}", show_duration(limit)),
    );
    Failure::new(
        Outcome::Timeout,
        Category::Timeout,
        TIMED_OUT,
        format!(
            "the code used more CPU time than {limit}; make it faster, do less, or ask for more time"
        ),
    )
}

fn memory(exit_code: i32, evidence: &Evidence<'_>) -> Failure {
    let context = lack::ran_out(evidence);
    Failure::new(Outcome::Memory, Category::Memory, exit_code, context)
}

fn processes(exit_code: i32, limits: &Limits) -> Failure {
    let context = match limits.processes {
        Some(limit) => format!(
            "the code came up against its limit of {limit} processes and threads; run fewer at a time"
        ),
        None => "the code could not start a process or thread; run fewer at a time".to_owned(),
    };
    Failure {
        operator_hint: limits.processes.map(|limit| {
            format!("`--processes` sets how many processes and threads a run may have at a time; here it was {limit}")
        }),
        ..Failure::new(Outcome::Processes, Category::Processes, exit_code, context)
    }
}

fn disk(exit_code: i32, full: &[&FullTmpfs]) -> Failure {
    no_room(exit_code, &full_context(full))
}

/// Where a program says that its disk is full, and one nearly is.
fn nearly_full(
    exit_code: i32,
    claim: Option<Category>,
    evidence: &Evidence<'_>,
) -> Option<Failure> {
    let is_of_one_file = matches!(evidence.last_words, Some((_, "File too large")));
    let is_claimed = claim == Some(Category::Disk) && !is_of_one_file;
    let which = lack::nearly_full(evidence).filter(|_| is_claimed)?;
    Some(no_room(exit_code, &which))
}

fn no_room(exit_code: i32, which: &str) -> Failure {
    let context = format!("{which}; write less, or delete files that are no longer needed");
    Failure::new(Outcome::Disk, Category::Disk, exit_code, context)
}

fn file_too_large(exit_code: i32, limits: &Limits) -> Failure {
    let limit = limits.file_size.map_or_else(
        || "a file may have".to_owned(),
        |limit| format!("the limit of {limit} for one file"),
    );
    Failure::new(
        Outcome::Disk,
        Category::Disk,
        exit_code,
        format!("the code wrote more than {limit}; write less, or to several files"),
    )
}

/// The exit code of a program that cellblock stopped: never 0, even if it
/// managed to exit in the meantime.
fn failed_code(end: &End) -> i32 {
    match end {
        End::Exited(status) if *status != 0 => i32::from(*status),
        End::Signaled(signal) => signal_code(*signal),
        End::Exited(_) | End::NotStarted(_) => signal_code(Signal::SIGKILL as i32),
    }
}

fn signal_code(signal: i32) -> i32 {
    128 + signal.clamp(1, 127)
}

#[cfg(test)]
mod tests;
