//! The words of the record's `context`, for the code's author.

use std::borrow::Cow;
use std::fmt::Write as _;

use hosts::Reason;
use nix::errno::Errno;
use nix::sys::signal::Signal;

use super::evidence::{Evidence, Exhausted, FullTmpfs, Place, Reach};
use super::{category, causes, errnos, lack, modules, programs};
use record::error::{SetupError, Step};
use record::{Category, CodeError, Denied, RefusedHost};
use spec::units::show_duration;

/// What to do about a failure, in words that end a sentence.
pub(super) struct Advice {
    /// What the code's author can do.
    pub(super) author: String,
    /// What the operator can do, as a sentence of its own, where only they can help.
    pub(super) operator: Option<String>,
}

impl From<String> for Advice {
    fn from(author: String) -> Self {
        Self {
            author,
            operator: None,
        }
    }
}

/// What went wrong with an exception of this category.
pub(super) fn exception_context(
    error: &CodeError,
    category: Category,
    evidence: &Evidence<'_>,
) -> Advice {
    let place = &evidence.place;
    let mut operator = None;
    let mut for_author = |advice: Advice| {
        operator = advice.operator;
        advice.author
    };
    let advice = match category {
        Category::Syntax => "the code does not parse; correct it there",
        Category::Name => &for_author(name_advice(evidence)),
        Category::Import => &for_author(import_advice(error, place)),
        Category::Type => "a value has the wrong type there",
        Category::Value => "a value, key or index is not what that operation takes",
        Category::File => &for_author(file_advice(error, evidence)),
        Category::Permission => &permission_advice(error, evidence),
        Category::Memory => &for_author(lack::advice(evidence)),
        Category::Processes | Category::Disk => &claim(category, evidence),
        Category::Network if !evidence.refused.is_empty() => network_words(evidence),
        Category::Network if category::distrusts(error) => {
            "it does not trust the server's certificate; use a rootfs that has the certificate's authority, or name its file as that client wants it"
        }
        Category::Network if category::network_answered(error) => {
            "nothing listens at that address, or the connection was cut"
        }
        Category::Network => network_words(evidence),
        Category::Timeout => "an operation took longer than the code itself allows",
        _ if category::is_unavailable(error) => &not_the_limit(evidence),
        _ if is_of_processes(error, evidence) => &processes_claim(evidence),
        _ if error.name == "CalledProcessError" => {
            &for_author(of_a_child(evidence).unwrap_or_else(|| {
                "a program that it started failed; its output shows why"
                    .to_owned()
                    .into()
            }))
        }
        _ => "the traceback shows where",
    };
    let line = error
        .line
        .map_or_else(String::new, |line| format!(" on line {line}"));
    let author = format!(
        "the code raised {}{line}: {advice}",
        shown_class(&error.name)
    );
    Advice { author, operator }
}

/// What a program lacked that the code started, by its last words.
fn of_a_child(evidence: &Evidence<'_>) -> Option<Advice> {
    let (stderr, place) = (&evidence.stderr, &evidence.place);
    programs::of_package_manager(stderr, place).or_else(|| modules::of_a_child(stderr, place))
}

/// Why the network did not reach what the code wants.
fn network_words(evidence: &Evidence<'_>) -> &'static str {
    match evidence.place.reach {
        _ if !evidence.refused.is_empty() => "the cell's network refused it",
        Reach::Hosts => {
            "the network reaches allowed hosts only, by their names: use one, or allow an address that the code connects to with --net allow=ADDRESS:PORT"
        }
        Reach::All => "the network does not reach that address",
        Reach::Nothing => "the cell has no network; pass data in as files",
    }
}

/// Whether a process or thread could not be started, although the limit was not reached.
fn is_of_processes(error: &CodeError, evidence: &Evidence<'_>) -> bool {
    category::of_exception(error, evidence.place.driver) == Category::Processes
}

fn name_advice(evidence: &Evidence<'_>) -> Advice {
    modules::warned_of(&evidence.stderr, &evidence.place).unwrap_or_else(|| {
        "it uses a name or attribute that does not exist; define it, or correct its spelling"
            .to_owned()
            .into()
    })
}

fn import_advice(error: &CodeError, place: &Place<'_>) -> Advice {
    if error.message.starts_with("cannot import name ") {
        return "the installed module has no such name; correct its spelling, or use the names of that version".to_owned().into();
    }
    modules::advice(&error.message, place).unwrap_or_else(|| {
        "a module is missing; use one that the rootfs has"
            .to_owned()
            .into()
    })
}

fn file_advice(error: &CodeError, evidence: &Evidence<'_>) -> Advice {
    if category::is_too_many_files(error) {
        return too_many_files(evidence).into();
    }
    match programs::missing(error, &evidence.stderr, evidence.place.driver) {
        Some(program) => programs::advice(&program, &evidence.place),
        None => errnos::of_a_file(error.errno).to_owned().into(),
    }
}

fn too_many_files(evidence: &Evidence<'_>) -> String {
    let most = evidence.held.open_files.map_or_else(String::new, |count| {
        format!(" (its limit is {count} at a time)")
    });
    format!("it has too many files open{most}; close each one after use")
}

fn permission_advice(error: &CodeError, evidence: &Evidence<'_>) -> String {
    let denied = evidence.denied;
    if let Some(Denied { name, reason, .. }) = category::denial_behind(error, evidence) {
        let reason = reason
            .as_deref()
            .map_or_else(String::new, |reason| format!(" ({reason})"));
        return format!("the cell's policy denies that use of {name}{reason}; do without it");
    }
    match denied
        .iter()
        .any(|denied| causes::can_be_one(denied, evidence))
    {
        true => "the cell's policy forbids that; do without it".to_owned(),
        false => "the cell forbids that; write only below /workspace or /tmp".to_owned(),
    }
}

/// What the code reports that it lacked, beside the measurements: they do not show that
/// a limit was reached, but some refusals leave no trace.
pub(super) fn claim(category: Category, evidence: &Evidence<'_>) -> String {
    match category {
        Category::Memory => lack::claimed(evidence),
        Category::Network => network_words(evidence).to_owned(),
        Category::Processes => processes_claim(evidence),
        Category::Disk => disk_claim(evidence),
        Category::File => too_many_files(evidence),
        Category::Syntax => "correct the line that it names".to_owned(),
        _ => "its output shows the reason".to_owned(),
    }
}

fn processes_claim(evidence: &Evidence<'_>) -> String {
    let limit = evidence.limits.processes.map_or_else(String::new, |count| {
        format!("; the limit is {count} processes and threads at a time")
    });
    let stacks = evidence.limits.memory.map_or_else(String::new, |memory| {
        format!(", and the stack of each counts against the memory limit of {memory}")
    });
    format!(
        "it reports that it could not start a process or thread{limit}{stacks}; run fewer at a time"
    )
}

/// EAGAIN where the limit on processes did not act.
fn not_the_limit(evidence: &Evidence<'_>) -> String {
    let limit = evidence.limits.processes.map_or_else(String::new, |count| {
        format!("; if it was a process or thread, the limit is {count} at a time")
    });
    format!(
        "something was not available at that moment, such as data on a descriptor that does not block{limit}"
    )
}

fn disk_claim(evidence: &Evidence<'_>) -> String {
    let limits = evidence.limits;
    let file = limits
        .file_size
        .map_or_else(String::new, |size| format!(", and one file at most {size}"));
    format!(
        "it reports a full disk; none of its disks was seen full: /workspace holds {}, /tmp {}, /dev/shm {}{file}; write less at a time, or delete what is no longer needed",
        limits.workspace.size, limits.tmp.size, limits.shm.size
    )
}

/// Why this signal ended the program, if the kernel sends it at a limit. Any process
/// can send it too.
pub(super) fn limit_signal(signal: Signal, evidence: &Evidence<'_>) -> Option<String> {
    let Evidence {
        limits, measured, ..
    } = evidence;
    match signal {
        Signal::SIGXCPU => {
            let used = measured.cpu_used.map_or_else(String::new, |used| {
                let used = std::time::Duration::from_millis(used.as_millis() as u64);
                format!("; {} was measured", show_duration(used))
            });
            let limit = limits.cpu_time.map_or_else(
                || "and it has no such limit".to_owned(),
                |limit| format!("and it did not reach its limit of {}", show_duration(limit)),
            );
            Some(format!(
                "SIGXCPU ended the program, which the kernel sends at a limit on CPU time, {limit}{used}; a process can send it too"
            ))
        }
        Signal::SIGXFSZ => {
            let limit = limits.file_size.map_or_else(
                || "no limit is set".to_owned(),
                |size| format!("the limit is {size}, and no file of that size was found"),
            );
            Some(format!(
                "SIGXFSZ ended the program, which the kernel sends when a file would grow beyond its limit: {limit}; a process can send it too"
            ))
        }
        Signal::SIGSYS => Some(
            "SIGSYS ended the program, which the kernel sends for a system call of another architecture (such as 32-bit or x32 code): the policy allows none; a process can send it too".to_owned(),
        ),
        _ => None,
    }
}

/// Why cellblock failed, without any path of the host.
pub(super) fn internal_context(message: &str) -> String {
    match message.contains('/') {
        true => "cellblock itself failed, and the code is not at fault; the operator finds the details in the record's setup_error".to_owned(),
        false => format!("cellblock itself failed: {message}"),
    }
}

/// Why no code ran. A model reads this, so it has no path of the host and nothing else
/// with a `/`; the record's `setup_error` has those. The program to execute is an
/// exception: the caller chose its name, and it is inside the cell.
pub(super) fn setup_context(error: &SetupError) -> String {
    let is_callers_word = matches!(error.step, Step::Exec | Step::Chdir);
    let is_missing = error.errno == Some(Errno::ENOENT as i32);
    let what = match error.step {
        Step::Exec if error.is_of_interpreter() => {
            "the program is there, but its interpreter is not: the one that its `#!` line names, or the loader of a compiled program"
        }
        Step::Chdir if is_missing => "there is no such working directory in the cell",
        Step::Chdir => "the working directory could not be entered",
        Step::Exec if error.errno == Some(Errno::ENOENT as i32) => {
            "there is no such program in the cell"
        }
        Step::Exec => "the program could not be executed",
        Step::Interpreter => "the rootfs has no such interpreter",
        _ => "the cell could not be set up",
    };
    let mut shown = error.without_paths();
    if is_callers_word {
        shown.operand.clone_from(&error.operand);
    }
    let mut context = format!("{what}, and no code ran: {shown}");
    if let Some(hint) = &shown.hint {
        let _ = write!(context, "; {hint}");
    }
    if shown != *error {
        context += "; the operator finds the details in the record's setup_error";
    }
    context
}

/// An exception's class as a part of a sentence. It comes from the cell, with any
/// length and content.
fn shown_class(name: &str) -> String {
    let shown: String = name
        .chars()
        .filter(|c| c.is_alphanumeric() || "_.$:-".contains(*c))
        .take(80)
        .collect();
    match shown.as_str() {
        "" => "an exception".to_owned(),
        _ => shown,
    }
}

/// The hosts that the broker refused, and what the kernel refused in the cell, as the end of a
/// sentence.
pub(super) fn refusals(evidence: &Evidence<'_>) -> String {
    let mut text = refused_hosts(evidence.refused);
    if evidence.counts.unrouted > 0 {
        text += "; the network has no route to addresses that no rule writes out, as --net allow=ADDRESS:PORT would";
    }
    // The port may also be one of the program's own, whose server has not started.
    let closed = evidence.counts.closed_ports > 0;
    if closed && evidence.error.is_none_or(category::network_answered) {
        text += "; ports that no rule names are closed, and --net allow=HOST:PORT opens one";
    }
    text
}

fn refused_hosts(refused: &[RefusedHost]) -> String {
    const NAMED: usize = 3;
    if refused.is_empty() {
        return String::new();
    }
    let mut hosts: Vec<String> = (refused.iter().take(NAMED))
        .map(|refused| format!("{} ({})", refused.shown(), refused.reason))
        .collect();
    if refused.len() > NAMED {
        hosts.push(format!("{} more", refused.len() - NAMED));
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-_:[]".contains(c);
    // The name comes from the cell, through the broker, and becomes part of a command. A name that
    // begins with `_` is that of a service (RFC 2782), and clients go on without it.
    let can_be_allowed = |refused: &&RefusedHost| {
        !refused.host.starts_with(['-', '_'])
            && refused.shown().chars().all(is_plain)
            && [Reason::NotAllowed, Reason::PortNotAllowed]
                .map(Reason::explain)
                .contains(&&*refused.reason)
    };
    let way_out = match refused.iter().find(can_be_allowed) {
        Some(host) => format!("; --net allow={} would allow it", host.shown()),
        None => String::new(),
    };
    format!("; the network refused {}{way_out}", hosts.join(", "))
}

/// The calls that were denied, as the end of a sentence.
pub(super) fn denials(denied: &[&Denied], evidence: &Evidence<'_>) -> String {
    let (counted, others): (Vec<&Denied>, Vec<&Denied>) = denied
        .iter()
        .copied()
        .partition(|denied| causes::is_counted(denied, evidence.held));
    let mut text = String::new();
    if !others.is_empty() {
        text += &format!("; the policy denied {}", named(&others));
    }
    if !counted.is_empty() {
        text += &format!(
            "; the memory limit had no room for {}, which counts in full from the start",
            named(&counted)
        );
    }
    text
}

fn named(denied: &[&Denied]) -> String {
    const NAMED: usize = 5;
    let mut names: Vec<String> = denied
        .iter()
        .take(NAMED)
        .map(|denied| match denied.count {
            0 | 1 => denied.name.clone(),
            count => format!("{} ({count} times)", denied.name),
        })
        .collect();
    if denied.len() > NAMED {
        names.push(format!("{} more", denied.len() - NAMED));
    }
    names.join(", ")
}

/// The name of a signal.
pub(super) fn signal_name(signal: i32) -> Cow<'static, str> {
    match Signal::try_from(signal) {
        Ok(signal) => signal.as_str().into(),
        Err(_) => format!("signal {signal}").into(),
    }
}

/// The usual cause of a signal, as the end of a sentence.
pub(super) fn signal_meaning(signal: i32) -> &'static str {
    match Signal::try_from(signal) {
        Ok(Signal::SIGSEGV) => ": it used memory that is not its own, or overflowed its stack",
        Ok(Signal::SIGBUS) => ": it used a mapped page with nothing behind it",
        Ok(Signal::SIGABRT) => ": it gave up by itself; stderr may say why",
        Ok(Signal::SIGFPE) => ": it divided by zero or overflowed an integer",
        Ok(Signal::SIGILL) => ": it ran an instruction that this CPU does not have",
        Ok(Signal::SIGPIPE) => ": it wrote to a pipe without a reader",
        _ => "",
    }
}

/// The meaning of a status from a shell, as the end of a sentence.
pub(super) fn status_meaning(status: u8) -> String {
    match status {
        126 => ", which from a shell means a command that cannot be executed".to_owned(),
        127 => ", which from a shell means a command that was not found".to_owned(),
        129.. => match Signal::try_from(i32::from(status) - 128) {
            Ok(signal) => format!(
                ", which from a shell means a command that {} ended",
                signal.as_str()
            ),
            Err(_) => String::new(),
        },
        _ => String::new(),
    }
}

/// Which tmpfs are, or were, full, and of what.
pub(super) fn full_context(full: &[&FullTmpfs]) -> String {
    let words = |tmpfs: &&FullTmpfs| {
        let name = &tmpfs.name;
        match (tmpfs.exhausted, tmpfs.at_end) {
            (Exhausted::Space(size), true) => format!("{name} is full ({size})"),
            (Exhausted::Space(size), false) => format!("{name} was full at times ({size})"),
            (Exhausted::Inodes(count), true) => {
                format!("{name} holds as many files as it can ({count})")
            }
            (Exhausted::Inodes(count), false) => {
                format!("{name} held as many files as it can at times ({count})")
            }
        }
    };
    (full.iter().map(words).collect::<Vec<_>>()).join(" and ")
}
