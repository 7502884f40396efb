//! A record with less in it, for shapes that hold most of a record.
//!
//! What is missing is listed in the record's own fields: `truncated`, and the notes of a
//! result.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;

use super::fit::{Scale, cut, fit, json_size};
use crate::bytes::RawText;
use crate::error::SetupError;
use crate::json::{Form, Json};
use crate::stream::Text;
use crate::words::{bytes, ends};
use crate::{CodeError, Denied, FileChange, FileSkipped, Record, ResultItem, Timing, Truncation};

/// Bytes of a name, and of a note.
const NAME: usize = 100;
const NOTE: usize = 400;
/// Notes of a result, and parts that were cut before.
const NOTES: usize = 20;
const PARTS: usize = 16;
/// Bytes of room for each entry of a list, at least.
const ENTRY: usize = 32;
/// With less room than this, the program's output comes before what held it.
const ROOM_FOR_DETAILS: usize = 16 << 10;

/// As much of the record as fits into `room` bytes, as `size` counts them.
pub(super) fn fitting<'a>(
    record: &'a Record,
    room: usize,
    size: impl Fn(&Record) -> usize,
) -> Cow<'a, Record> {
    if size(record) <= room {
        return Cow::Borrowed(record);
    }
    let less = |scale| Less::new(room, scale).record(record);
    Cow::Owned(fit(room, size, less))
}

/// Bounds on the parts of a record.
struct Less {
    /// Bytes of one text or one form.
    longest: usize,
    /// Entries of a list.
    entries: usize,
    /// Bytes of one part that is kept or left out as a whole.
    details: usize,
}

type Parts = BTreeMap<String, Truncation>;

impl Less {
    fn new(room: usize, scale: Scale) -> Self {
        let longest = scale.of(room);
        Self {
            longest,
            entries: scale.of(room / ENTRY),
            details: if room < ROOM_FOR_DETAILS { 0 } else { longest },
        }
    }

    /// A record with all fields named, so that no new one stays without a bound.
    fn record(&self, record: &Record) -> Record {
        let is_name = |part: &str| part.len() <= NAME / 2;
        let earlier = record.truncated.iter();
        let mut parts: Parts = earlier
            .filter(|(name, cut)| is_name(name) && is_name(&cut.part))
            .take(PARTS)
            .map(|(name, cut)| (name.clone(), cut.clone()))
            .collect();
        let parts = &mut parts;
        let stdout = self.stream(parts, "stdout", record.stdout.as_ref());
        let stderr = self.stream(parts, "stderr", record.stderr.as_ref());
        let is_cut = |new: &Option<Text>, old: &Option<Text>| new != old;
        let with_contents =
            |file: &&FileChange| file.content.is_some() || file.content_base64.is_some();
        let files = self.list(parts, "files", &record.files, |file| self.file(file));
        let inline = record.files.iter().filter(with_contents).count();
        let kept = files.iter().filter(with_contents).count();
        if kept < inline {
            note(parts, "inline_files", inline, kept, "whole");
        }
        let timing = Timing {
            steps: self
                .whole(parts, "timing.steps", &record.timing.steps)
                .unwrap_or_default(),
            ..record.timing
        };
        Record {
            schema: name(&record.schema),
            id: name(&record.id),
            version: name(&record.version),
            started_at: name(&record.started_at),
            language: record.language.as_deref().map(name),
            argv: (record.argv.as_ref())
                .map(|words| self.list(parts, "argv", words, |word| self.raw(word))),
            outcome: record.outcome,
            exit_code: record.exit_code,
            signal: record.signal.as_deref().map(name),
            execution_time: record.execution_time,
            is_error: record.is_error,
            error_category: record.error_category,
            is_retryable: record.is_retryable,
            context: self.words(record.context.as_deref()),
            operator_hint: self.words(record.operator_hint.as_deref()),
            stdout_base64: (record.stdout_base64.clone())
                .filter(|_| !is_cut(&stdout, &record.stdout)),
            stderr_base64: (record.stderr_base64.clone())
                .filter(|_| !is_cut(&stderr, &record.stderr)),
            stdout,
            stderr,
            results: self.list(parts, "results", &record.results, |item| self.item(item)),
            order: self.list(parts, "order", &record.order, |shown| *shown),
            error: record.error.as_ref().map(|error| self.error(parts, error)),
            files,
            files_skipped: self.list(parts, "files_skipped", &record.files_skipped, |file| {
                FileSkipped {
                    path: self.raw(&file.path),
                    reason: self.text(&file.reason),
                }
            }),
            denied: self.list(parts, "denied", &record.denied, |denied| {
                self.denied(denied)
            }),
            denied_to_interpreter: self.list(
                parts,
                "denied_to_interpreter",
                &record.denied_to_interpreter,
                |denied| self.denied(denied),
            ),
            network: (record.network.as_ref())
                .and_then(|network| self.whole(parts, "network", network)),
            usage: crate::Usage {
                by: name(&record.usage.by),
                ..record.usage
            },
            limits: self
                .whole(parts, "limits", &record.limits)
                .unwrap_or_default(),
            isolation: (record.isolation.as_ref())
                .and_then(|isolation| self.whole(parts, "isolation", isolation)),
            start: record.start,
            template: record.template,
            timing,
            setup_error: record
                .setup_error
                .as_ref()
                .map(|error| self.setup_error(error)),
            warnings: self.list(parts, "warnings", &record.warnings, |text| self.text(text)),
            truncated: std::mem::take(parts),
        }
    }

    /// The first entries, each as `each` makes it.
    fn list<T>(
        &self,
        parts: &mut Parts,
        part: &str,
        entries: &[T],
        each: impl Fn(&T) -> T,
    ) -> Vec<T> {
        if entries.len() > self.entries {
            note(parts, part, entries.len(), self.entries, "head");
        }
        entries.iter().take(self.entries).map(each).collect()
    }

    /// A part that would mean something else without its middle.
    fn whole<T: Clone + Serialize>(&self, parts: &mut Parts, part: &str, value: &T) -> Option<T> {
        let size = json_size(value);
        let fits = size <= self.details;
        if !fits {
            note(parts, part, size, 0, "whole");
        }
        fits.then(|| value.clone())
    }

    fn stream(&self, parts: &mut Parts, part: &str, text: Option<&Text>) -> Option<Text> {
        let whole = text?.to_string();
        let Some((head, gap, tail)) = ends(&whole, self.longest) else {
            return text.cloned();
        };
        note(
            parts,
            part,
            whole.len(),
            head.len() + tail.len(),
            "head+tail",
        );
        if let Some(cut) = parts.get_mut(part) {
            cut.head = Some(head.len() as u64);
        }
        Some(format!("{head}\n[… {gap} left out …]\n{tail}").into())
    }

    fn text(&self, text: &str) -> String {
        cut(text, self.longest).into_owned()
    }

    fn words(&self, text: Option<&str>) -> Option<String> {
        text.map(|text| self.text(text))
    }

    fn raw(&self, text: &RawText) -> RawText {
        match text.as_bytes().len() > self.longest.max(NAME) {
            true => self.text(&text.to_lossy()).into(),
            false => text.clone(),
        }
    }

    fn item(&self, item: &ResultItem) -> ResultItem {
        let mut notes: Vec<String> = (item.notes.iter())
            .take(NOTES)
            .map(|note| cut(note, NOTE.min(self.longest)).into_owned())
            .collect();
        let mut left_out = |what: &str, size: usize| {
            if notes.len() < 2 * NOTES {
                notes.push(format!("{}: left out, {}", name(what), bytes(size as u64)));
            }
        };
        let mut formats = BTreeMap::new();
        for (media_type, form) in &item.formats {
            let size = size_of(form);
            match media_type.len() <= NAME && size <= self.longest && formats.len() < self.entries {
                true => drop(formats.insert(media_type.clone(), form.clone())),
                false => left_out(media_type, size),
            }
        }
        let mut json = |what: &str, json: &Option<Json>| {
            let json = json.as_ref()?;
            let fits = json.text().len() <= self.longest;
            if !fits {
                left_out(what, json.text().len());
            }
            fits.then(|| json.clone())
        };
        ResultItem {
            is_main_result: item.is_main_result,
            text: self.words(item.text.as_deref()),
            formats,
            chart: json("chart", &item.chart),
            data: json("data", &item.data),
            metadata: json("metadata", &item.metadata),
            display_id: self.words(item.display_id.as_deref()),
            notes,
        }
    }

    fn error(&self, parts: &mut Parts, error: &CodeError) -> CodeError {
        let traceback = error.traceback.join("\n");
        let kept = cut(&traceback, self.longest);
        if kept.len() != traceback.len() {
            note(parts, "error", traceback.len(), kept.len(), "head+tail");
        }
        CodeError {
            name: self.text(&error.name),
            message: self.text(&error.message),
            traceback: match kept {
                Cow::Borrowed(_) => error.traceback.clone(),
                Cow::Owned(kept) => kept.lines().map(str::to_owned).collect(),
            },
            line: error.line,
            errno: error.errno,
        }
    }

    fn file(&self, file: &FileChange) -> FileChange {
        let size = |content: &dyn ToString| content.to_string().len();
        FileChange {
            path: self.raw(&file.path),
            change: file.change,
            size: file.size,
            sha256: file.sha256.as_deref().map(name),
            media_type: file.media_type.as_deref().map(name),
            content: (file.content.clone()).filter(|text| size(text) <= self.longest),
            content_base64: (file.content_base64.clone())
                .filter(|base64| size(base64) <= self.longest),
        }
    }

    fn denied(&self, denied: &Denied) -> Denied {
        Denied {
            kind: name(&denied.kind),
            name: self.text(&denied.name),
            count: denied.count,
            action: name(&denied.action),
            reason: self.words(denied.reason.as_deref()),
        }
    }

    fn setup_error(&self, error: &SetupError) -> SetupError {
        SetupError {
            step: error.step,
            message: self.text(&error.message),
            syscall: error.syscall.as_deref().map(name),
            errno: error.errno,
            errno_name: error.errno_name.as_deref().map(name),
            operand: self.words(error.operand.as_deref()),
            hint: self.words(error.hint.as_deref()),
        }
    }
}

/// A name, which is short unless a stored record was made by hand.
fn name(text: &str) -> String {
    cut(text, NAME).into_owned()
}

fn size_of(form: &Form) -> usize {
    match form {
        Form::Text(text) => text.len(),
        Form::Json(json) => json.text().len(),
    }
}

/// Notes that a part was cut; what it had before an earlier cut stays its total.
fn note(parts: &mut Parts, part: &str, total: usize, kept: usize, which: &str) {
    let earlier = parts.get(part).map_or(0, |cut| cut.total);
    let cut = Truncation {
        total: earlier.max(total as u64),
        kept: kept as u64,
        part: which.to_owned(),
        head: None,
    };
    parts.insert(part.to_owned(), cut);
}
