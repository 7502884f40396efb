//! A record for a model: one text of bounded size, and the pictures.
//!
//! The first line is always cellblock's. The code's output stands between fences longer
//! than any in it, so that it cannot pass for another part of the text.

use std::fmt::Write as _;

use super::fit::{Scale, cut, fit};
use crate::json::length_in_json;
use crate::picture::{self, Picture};
use crate::words::{self, bytes, milliseconds};
use crate::{Denied, FileChange, Record, ResultItem};

/// Bytes of the sentence for the code's author, and of a name.
const CONTEXT: usize = 2_000;
const NAME: usize = 100;
/// Bytes of each stream.
const STREAM: usize = 10_000;
/// Bytes of the traceback.
const TRACEBACK: usize = 6_000;
/// Bytes of one result, and of all.
const RESULT: usize = 4_000;
const RESULTS: usize = 16_000;
/// Entries of a list, and bytes of one.
const ENTRIES: usize = 20;
const ENTRY: usize = 400;
/// Pictures; characters of one picture's base64, and pixels of a side: what the APIs take.
/// Models see less, Claude 1568 pixels of a side, and their APIs scale pictures themselves.
const PICTURES: usize = 8;
const PICTURE: usize = 5 << 20;
const SIDE: usize = 8_000;
/// Bytes of JSON around one picture, at most.
const AROUND_PICTURE: usize = 100;

/// Text and pictures for a model.
#[derive(Debug, Default)]
pub struct Brief<'a> {
    /// The text.
    pub text: String,
    /// Pictures, in the order of the results.
    pub pictures: Vec<Picture<'a>>,
}

/// How much JSON there may be of a brief, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Text and pictures.
    pub all: usize,
    /// Text. Half of `all` is kept for it if that is less.
    pub text: usize,
}

impl<'a> Brief<'a> {
    /// The record in brief.
    pub fn of(record: &'a Record, room: Room) -> Self {
        let for_pictures = room.all - room.text.min(room.all / 2);
        let mut left_out = Vec::new();
        let pictures = pictures(&record.results, for_pictures, &mut left_out);
        let used: usize = pictures.iter().map(in_json).sum();
        let streams =
            [("stdout", &record.stdout), ("stderr", &record.stderr)].map(|(name, text)| {
                (
                    name,
                    text.as_ref().map(ToString::to_string).unwrap_or_default(),
                )
            });
        let text = |scale| text(record, &streams, &left_out, scale);
        let size = |text: &String| length_in_json(text);
        Self {
            text: fit(room.text.min(room.all - used), size, text),
            pictures,
        }
    }

    /// How much JSON there is of it, at most.
    pub fn size(&self) -> usize {
        length_in_json(&self.text) + self.pictures.iter().map(in_json).sum::<usize>()
    }
}

fn in_json(picture: &Picture<'_>) -> usize {
    picture.base64.len() + AROUND_PICTURE
}

/// The text, of which each part has its share.
fn text(record: &Record, streams: &[(&str, String)], left_out: &[String], scale: Scale) -> String {
    let mut left_out = left_out.to_vec();
    let mut text = headline(record, scale);
    for (name, stream) in streams {
        fenced(&mut text, name, stream, scale.of(STREAM));
    }
    results(&mut text, &record.results, scale, &mut left_out);
    if let Some(error) = &record.error {
        fenced(&mut text, "error", &error.text(), scale.of(TRACEBACK));
    }
    list(&mut text, "files", record.files.iter().map(file), scale);
    list(&mut text, "denied", record.denied.iter().map(denied), scale);
    left_out.extend(record.truncated.iter().map(|(name, cut)| {
        let unit = match name.as_str() {
            "stdout" | "stderr" => " bytes",
            _ => "",
        };
        format!(
            "{name}: {} of {}{unit} kept ({})",
            cut.kept, cut.total, cut.part
        )
    }));
    list(&mut text, "left out", left_out.into_iter(), scale);
    text
}

/// How it ended, and what to do about it.
fn headline(record: &Record, scale: Scale) -> String {
    let mut text = format!(
        "outcome: {}, exit code {}",
        record.outcome, record.exit_code
    );
    if let Some(signal) = record.signal_shown() {
        let _ = write!(text, ", {}", one_line(&cut(signal, NAME)));
    }
    let _ = writeln!(text, ", {}", milliseconds(record.execution_time * 1000.0));
    if let Some(context) = &record.context {
        let context = cut(context, scale.of(CONTEXT));
        let _ = writeln!(text, "{}", one_line(&context));
    }
    text
}

fn results(text: &mut String, results: &[ResultItem], scale: Scale, left_out: &mut Vec<String>) {
    let mut room = scale.of(RESULTS);
    for (index, item) in results.iter().enumerate() {
        let Some(shown) = result_text(item) else {
            continue;
        };
        if room == 0 {
            left_out.push(format!("the text of results from {} on", index + 1));
            break;
        }
        let title = match item.is_main_result {
            true => "result".to_owned(),
            false => format!("displayed {}", index + 1),
        };
        fenced(text, &title, &shown, scale.of(RESULT).min(room));
        room = room.saturating_sub(shown.len());
    }
}

/// A result without its pictures.
fn result_text(item: &ResultItem) -> Option<String> {
    let has_picture = item.formats.keys().any(|name| name.starts_with("image/"));
    let readable =
        words::readable(item).filter(|text| !(has_picture && words::names_something(text)));
    let chart = item.chart.as_ref().map(words::chart);
    match (readable, &item.data, chart) {
        (Some(text), _, None) => Some(text.to_owned()),
        (Some(text), _, Some(chart)) => Some(format!("{text}\n{chart}")),
        (None, Some(data), _) => Some(data.compact()),
        (None, None, chart) => chart,
    }
}

fn pictures<'a>(
    results: &'a [ResultItem],
    mut room: usize,
    left_out: &mut Vec<String>,
) -> Vec<Picture<'a>> {
    let mut taken: Vec<(usize, Picture<'_>)> = Vec::new();
    for (index, item) in results.iter().enumerate() {
        let of = |note: &str| format!("result {}: {note}", index + 1);
        left_out.extend(item.notes.iter().map(|note| of(note)));
        let (picture, complaints) = picture::of(item);
        left_out.extend(complaints.iter().map(|complaint| of(complaint)));
        let Some(picture) = picture else {
            let others = item.formats.keys().filter(|name| {
                (name.starts_with("image/") && !picture::is_one(name)) || *name == "application/pdf"
            });
            left_out.extend(
                others.map(|name| of(&format!("{name}: models take PNG, JPEG, WebP and GIF only"))),
            );
            continue;
        };
        let same = taken
            .iter()
            .find(|(_, other)| other.base64 == picture.base64);
        let reason = match (same, picture.longest_side()) {
            (Some((first, _)), _) => format!("the same as that of result {}", first + 1),
            (_, Some(side)) if side > SIDE => format!("{side} pixels on a side: too large"),
            _ if taken.len() < PICTURES
                && picture.base64.len() <= PICTURE
                && in_json(&picture) <= room =>
            {
                room -= in_json(&picture);
                taken.push((index, picture));
                continue;
            }
            _ => "too much".to_owned(),
        };
        let size = bytes(picture.size);
        left_out.push(of(&format!("{}, {size}: {reason}", picture.media_type)));
    }
    taken.into_iter().map(|(_, picture)| picture).collect()
}

fn file(file: &FileChange) -> String {
    let mut line = format!("{} {}", file.change, file.path.to_lossy());
    if let Some(size) = file.size {
        let _ = write!(line, ", {}", bytes(size));
    }
    line
}

fn denied(denied: &Denied) -> String {
    let Denied {
        kind,
        name,
        count,
        action,
        reason,
    } = denied;
    let mut line = format!("{kind} {name}, {}, {action}", words::times(*count));
    if let Some(reason) = reason {
        let _ = write!(line, ": {reason}");
    }
    line
}

/// Appends a title and a text that may be the code's; nothing if the text is empty.
fn fenced(to: &mut String, title: &str, text: &str, most: usize) {
    if text.is_empty() {
        return;
    }
    let text = cut(text.strip_suffix('\n').unwrap_or(text), most);
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    let _ = write!(to, "\n{title}:\n{fence}\n{text}\n{fence}\n");
}

/// Appends a title and one line for each entry; nothing without entries.
fn list(
    to: &mut String,
    title: &str,
    entries: impl ExactSizeIterator<Item = String>,
    scale: Scale,
) {
    let (all, most) = (entries.len(), scale.of(ENTRIES));
    if all > 0 {
        let _ = writeln!(to, "\n{title}:");
    }
    for entry in entries.take(most) {
        let _ = writeln!(to, "- {}", cut(&one_line(&entry), scale.of(ENTRY)));
    }
    match all.saturating_sub(most) {
        0 => {}
        more if most == 0 => drop(writeln!(to, "- {more} entries")),
        more => drop(writeln!(to, "- and {more} more")),
    }
}

/// The text without line breaks.
fn one_line(text: &str) -> String {
    let is_end = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    text.replace(is_end, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_ends_its_fence() {
        let mut text = String::new();
        fenced(&mut text, "stdout", "a\n````\noutcome: ok\n", 100);
        assert_eq!(text, "\nstdout:\n`````\na\n````\noutcome: ok\n`````\n");
        fenced(&mut text, "stderr", "", 100);
        assert!(!text.contains("stderr"));
    }

    #[test]
    fn entries_stay_on_their_line_and_are_counted() {
        let mut text = String::new();
        list(
            &mut text,
            "files",
            (0..22).map(|n| format!("{n}\n- {n}")),
            Scale::WHOLE,
        );
        assert!(text.starts_with("\nfiles:\n- 0 - 0\n- 1 - 1\n"), "{text}");
        assert!(text.ends_with("- 19 - 19\n- and 2 more\n"), "{text}");
    }

    #[test]
    fn a_picture_that_models_do_not_take_is_said_to_be_left_out() {
        let item = |form: &str| ResultItem {
            formats: [(form.to_owned(), "<svg/>".into())].into(),
            ..ResultItem::default()
        };
        for form in ["image/svg+xml", "application/pdf"] {
            let record = Record {
                results: vec![item(form)],
                ..Record::default()
            };
            let room = Room {
                all: 1 << 20,
                text: 10_000,
            };
            let text = Brief::of(&record, room).text;
            let says = format!("result 1: {form}: models take PNG, JPEG, WebP and GIF only");
            assert!(text.contains(&says), "{text}");
        }
    }
}
