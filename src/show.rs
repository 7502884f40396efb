//! A record for people at a terminal.
//!
//! Most of a record comes out of a cell, and a terminal obeys what is written
//! to it: everything goes through [`Page`], which lets no control character
//! pass.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::error::{Result, SetupError, Step};
use crate::record::stream::Text;
use crate::record::{
    Change, CodeError, FileChange, LimitRecord, Outcome, Record, ResultItem, SCHEMA,
};
use page::{Page, Tone};
use quantity::{bytes, in_unit, milliseconds};
use result::result;

pub use page::Style;
pub(crate) use page::escaped;

mod page;
pub(crate) mod quantity;
mod result;

/// Lines of one part that [`render`] shows.
const PART: Option<usize> = Some(40);

/// Reads the record in the file `path`, or on standard input for `-`.
///
/// # Errors
/// The file cannot be read, holds no record, or one of another format.
pub fn read(path: &Path) -> Result<Record> {
    let fail = |message: String| {
        SetupError::new(Step::Spec, message)
            .on(path.display())
            .hint("give it what cellblock printed with --json or wrote with --record")
    };
    let mut text = Vec::new();
    let read = match path.as_os_str() == "-" {
        true => io::stdin().read_to_end(&mut text),
        false => File::open(path).and_then(|mut file| file.read_to_end(&mut text)),
    };
    read.map_err(|error| SetupError::io(Step::Spec, "read", &error).on(path.display()))?;
    let value: serde_json::Value =
        serde_json::from_slice(&text).map_err(|error| fail(format!("it is not JSON: {error}")))?;
    match value.get("schema").and_then(serde_json::Value::as_str) {
        Some(SCHEMA) => serde_json::from_value(value)
            .map_err(|error| fail(format!("it is not a complete record: {error}"))),
        Some(other) if other.starts_with("cellblock.record.") => Err(fail(format!(
            "it has the format {other:?}, and this is for {SCHEMA:?}"
        ))
        .hint("use the version of cellblock that wrote it, or a newer one")),
        _ => Err(fail("it is JSON, but no record of cellblock's".to_owned())),
    }
}

/// What a run at a terminal shows: what the code printed and produced, then one
/// line on how it ended.
pub fn render_run(record: &Record, style: Style) -> String {
    let mut page = Page::new(style);
    page.block("", &text(record.stdout.as_ref()), None);
    for item in &record.results {
        result(&mut page, "", item, None);
    }
    page.block("", &text(record.stderr.as_ref()), None);
    if let Some(error) = &record.error {
        code_error(&mut page, "", error, None);
    }
    for file in &record.files {
        page.put(Tone::Faint, change_word(file.change));
        page.put(Tone::Plain, " ");
        page.put(Tone::Plain, &file.path.to_lossy());
        let facts = file_facts(file);
        if !facts.is_empty() {
            page.put(Tone::Faint, &format!(" ({})", facts.join(", ")));
        }
        page.end_line();
    }
    for warning in &record.warnings {
        page.put(Tone::Caution, "warning: ");
        page.put(Tone::Plain, warning);
        page.end_line();
    }
    // Apart from the lines above, which are the program's own.
    page.put(Tone::Faint, "── ");
    status(&mut page, record);
    page.into_text()
}

/// The whole record, long parts shortened.
pub fn render(record: &Record, style: Style) -> String {
    let mut page = Page::new(style);
    status(&mut page, record);
    if let Some(error) = &record.setup_error {
        page.heading("set-up error");
        page.pairs(&[
            ("what", error.to_string()),
            ("hint", error.hint.clone().unwrap_or_default()),
        ]);
    }
    if let Some(error) = &record.error {
        page.heading("error");
        code_error(&mut page, "  ", error, PART);
    }
    for (name, stream) in [("stdout", &record.stdout), ("stderr", &record.stderr)] {
        let text = text(stream.as_ref());
        if !text.is_empty() {
            page.heading(&stream_heading(record, name, &text));
            page.block("  ", &text, PART);
        }
    }
    results(&mut page, &record.results);
    files(&mut page, record);
    denied(&mut page, record);
    limits(&mut page, record);
    usage(&mut page, record);
    isolation(&mut page, record);
    if !record.warnings.is_empty() {
        page.heading("warnings");
        for warning in &record.warnings {
            page.block("  ", warning, PART);
        }
    }
    page.into_text()
}

fn text(stream: Option<&Text>) -> String {
    stream.map(ToString::to_string).unwrap_or_default()
}

/// How it ended, in one line; what to do about it, in another.
fn status(page: &mut Page, record: &Record) {
    let (tone, word) = match record.outcome {
        Outcome::Ok => (Tone::Good, "ok"),
        Outcome::Error => (Tone::Bad, "error"),
        Outcome::Exit => (Tone::Bad, "exit"),
        Outcome::Signal => (Tone::Bad, "signal"),
        Outcome::Timeout => (Tone::Bad, "timeout"),
        Outcome::Memory => (Tone::Bad, "memory"),
        Outcome::Processes => (Tone::Bad, "processes"),
        Outcome::Output => (Tone::Bad, "output"),
        Outcome::Disk => (Tone::Bad, "disk"),
        Outcome::Denied => (Tone::Bad, "denied"),
        Outcome::Cancelled => (Tone::Caution, "cancelled"),
        Outcome::Setup => (Tone::Bad, "setup"),
        Outcome::Internal => (Tone::Bad, "internal"),
    };
    page.put(tone, word);
    let mut facts = Vec::new();
    facts.extend(record.language.clone());
    facts.extend(record.argv.as_ref().map(|argv| {
        let words: Vec<_> = argv.iter().map(|word| word.to_lossy()).collect();
        shortened(&words.join(" "), 60)
    }));
    facts.push(format!("exit code {}", record.exit_code));
    facts.extend(record.signal.clone());
    facts.push(milliseconds(record.execution_time * 1000.0));
    for fact in facts {
        page.put(Tone::Faint, " · ");
        page.put(Tone::Plain, &fact);
    }
    page.end_line();
    if let Some(context) = &record.context {
        page.put(Tone::Plain, context);
        page.end_line();
    }
}

fn code_error(page: &mut Page, indent: &str, error: &CodeError, most: Option<usize>) {
    if error.traceback.is_empty() {
        page.block(indent, &format!("{}: {}", error.name, error.message), most);
    } else {
        page.block(indent, &error.traceback.join("\n"), most);
    }
}

fn stream_heading(record: &Record, name: &str, text: &str) -> String {
    match record.truncated.get(name) {
        Some(cut) => format!("{name} ({} of {} kept)", bytes(cut.kept), bytes(cut.total)),
        None => format!("{name} ({})", bytes(text.len() as u64)),
    }
}

fn results(page: &mut Page, results: &[ResultItem]) {
    for (index, item) in results.iter().enumerate() {
        let main = if item.is_main_result {
            ", the last expression"
        } else {
            ""
        };
        let forms: Vec<&str> = item.formats.keys().map(String::as_str).collect();
        page.heading(&format!("result {}{main}: {}", index + 1, forms.join(", ")));
        result(page, "  ", item, PART);
    }
}

fn files(page: &mut Page, record: &Record) {
    let rows: Vec<Vec<String>> = record
        .files
        .iter()
        .map(|file| {
            vec![
                change_word(file.change).to_owned(),
                file.path.to_string(),
                file.size.map_or_else(String::new, bytes),
                file.media_type.clone().unwrap_or_default(),
                file.sha256
                    .as_deref()
                    .map_or_else(String::new, |sha256| shortened(sha256, 12)),
            ]
        })
        .collect();
    page.table("files", &[], &rows);
    let rows: Vec<Vec<String>> = record
        .files_skipped
        .iter()
        .map(|skipped| vec![skipped.path.to_string(), skipped.reason.clone()])
        .collect();
    page.table("files left out", &[], &rows);
    for name in ["files", "files_skipped", "results", "denied"] {
        if let Some(cut) = record.truncated.get(name) {
            page.put(
                Tone::Caution,
                &format!("{name}: {} of {} are listed", cut.kept, cut.total),
            );
            page.end_line();
        }
    }
}

fn change_word(change: Change) -> &'static str {
    match change {
        Change::Created => "created",
        Change::Modified => "modified",
        Change::Deleted => "deleted",
    }
}

/// Size and media type, of a file that is there.
fn file_facts(file: &FileChange) -> Vec<String> {
    file.size
        .map(bytes)
        .into_iter()
        .chain(file.media_type.clone())
        .collect()
}

fn denied(page: &mut Page, record: &Record) {
    let rows: Vec<Vec<String>> = record
        .denied
        .iter()
        .map(|denied| {
            vec![
                denied.kind.clone(),
                denied.name.clone(),
                format!("{} times", denied.count),
                denied.action.clone(),
                denied.reason.clone().unwrap_or_default(),
            ]
        })
        .collect();
    page.table("denied", &[], &rows);
}

fn limits(page: &mut Page, record: &Record) {
    let row = |(name, limit): (&String, &LimitRecord)| {
        vec![
            name.clone(),
            in_unit(limit.requested, &limit.unit),
            limit
                .enforced
                .map_or_else(|| "none".to_owned(), |value| in_unit(value, &limit.unit)),
            limit.by.clone(),
            if limit.hit { "hit" } else { "" }.to_owned(),
        ]
    };
    let rows: Vec<Vec<String>> = record.limits.iter().map(row).collect();
    page.table("limits", &["", "requested", "enforced", "by", ""], &rows);
}

fn usage(page: &mut Page, record: &Record) {
    let usage = &record.usage;
    let timing = &record.timing;
    page.heading("usage");
    let cpu = match (usage.cpu_user_ms, usage.cpu_system_ms) {
        (None, None) => String::new(),
        (user, system) => format!(
            "{} user, {} system",
            milliseconds(user.unwrap_or(0.0)),
            milliseconds(system.unwrap_or(0.0))
        ),
    };
    let interpreter = timing.interpreter_ms.map_or_else(String::new, |time| {
        format!("interpreter {}, ", milliseconds(time))
    });
    page.pairs(&[
        ("time", milliseconds(usage.wall_ms)),
        ("cpu", cpu),
        (
            "memory",
            usage.memory_peak_bytes.map_or_else(String::new, bytes),
        ),
        (
            "processes",
            usage
                .processes_peak
                .map_or_else(String::new, |count| count.to_string()),
        ),
        (
            "held back",
            usage
                .throttled_ms
                .filter(|time| *time > 0.0)
                .map_or_else(String::new, milliseconds),
        ),
        ("measured by", usage.by.clone()),
        (
            "spent on",
            format!(
                "set-up {}, {interpreter}code {}, teardown {}",
                milliseconds(timing.setup_ms),
                milliseconds(timing.code_ms),
                milliseconds(timing.teardown_ms)
            ),
        ),
    ]);
}

fn isolation(page: &mut Page, record: &Record) {
    let Some(isolation) = &record.isolation else {
        return;
    };
    page.heading("isolation");
    let landlock = match isolation.landlock_abi {
        Some(abi) => format!("ABI {abi}: {}", isolation.landlock_scopes.join(", ")),
        None => "none".to_owned(),
    };
    let id = |id: &crate::record::IdRecord| format!("{} (outside {})", id.inside, id.outside);
    let cgroup = isolation.cgroup.as_ref().map_or_else(
        || "none".to_owned(),
        |cgroup| {
            format!(
                "{} ({}): {}",
                cgroup.path,
                cgroup.source,
                cgroup.controllers.join(", ")
            )
        },
    );
    page.pairs(&[
        ("profile", isolation.profile.clone()),
        ("rootfs", isolation.rootfs.clone()),
        ("namespaces", isolation.namespaces.join(", ")),
        ("uid", id(&isolation.uid)),
        ("gid", id(&isolation.gid)),
        ("capabilities", joined_or_none(&isolation.capabilities)),
        (
            "no_new_privs",
            if isolation.no_new_privs {
                "set"
            } else {
                "not set"
            }
            .to_owned(),
        ),
        (
            "seccomp",
            isolation
                .seccomp
                .clone()
                .unwrap_or_else(|| "none".to_owned()),
        ),
        ("landlock", landlock),
        (
            "nested",
            format!("denied by {}", joined_or_none(&isolation.nested_userns)),
        ),
        ("network", isolation.network.clone()),
        ("proc", isolation.proc.clone()),
        ("cgroup", cgroup),
        ("given up", isolation.given_up.join(", ")),
    ]);
}

fn joined_or_none(names: &[String]) -> String {
    match names.is_empty() {
        true => "none".to_owned(),
        false => names.join(", "),
    }
}

/// The first characters, with a mark when there are more.
fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
