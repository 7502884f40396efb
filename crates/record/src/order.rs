//! In which order output and results came, and a record's output in that order.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::stream::{Base64, Text, cut_line};
use crate::{Record, ResultItem};

/// A step of what an execution showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "part", rename_all = "snake_case")]
pub enum Shown {
    /// The next bytes of stdout, whether the record has them or not.
    Stdout {
        /// How many.
        bytes: u64,
    },
    /// The next bytes of stderr, whether the record has them or not.
    Stderr {
        /// How many.
        bytes: u64,
    },
    /// A result.
    Result {
        /// Its place in `results`, from 0.
        index: u64,
    },
    /// The code took back all that was shown before. Its results are gone; what was
    /// printed stays in the streams.
    Clear,
}

/// A piece of a record's output.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece<'a> {
    /// What it is.
    pub what: What<'a>,
    /// Whether the code took it back later.
    pub is_cleared: bool,
}

/// What a piece is.
#[derive(Clone, Debug, PartialEq)]
pub enum What<'a> {
    /// Text of stdout.
    Stdout(String),
    /// Text of stderr.
    Stderr(String),
    /// A result, and its place from 0.
    Result(usize, &'a ResultItem),
}

/// The output in its order. What the record's order does not name follows: stdout, the
/// results, stderr.
pub fn pieces(record: &Record) -> Vec<Piece<'_>> {
    let mut stdout = Stream::new(record, "stdout", &record.stdout, &record.stdout_base64);
    let mut stderr = Stream::new(record, "stderr", &record.stderr, &record.stderr_base64);
    let mut results: Vec<Option<&ResultItem>> = record.results.iter().map(Some).collect();
    let mut pieces: Vec<Piece<'_>> = Vec::new();
    let piece = |what| Piece {
        what,
        is_cleared: false,
    };
    for shown in &record.order {
        let what = match *shown {
            Shown::Stdout { bytes } => stdout.take(bytes).map(What::Stdout),
            Shown::Stderr { bytes } => stderr.take(bytes).map(What::Stderr),
            Shown::Result { index } => {
                let index = usize::try_from(index).unwrap_or(usize::MAX);
                let item = results.get_mut(index).and_then(Option::take);
                item.map(|item| What::Result(index, item))
            }
            Shown::Clear => {
                for piece in &mut pieces {
                    piece.is_cleared = true;
                }
                None
            }
        };
        pieces.extend(what.map(piece));
    }
    let others = results.into_iter().enumerate();
    let others = others.filter_map(|(index, item)| Some(What::Result(index, item?)));
    let rest = (stdout.take(u64::MAX).map(What::Stdout).into_iter())
        .chain(others)
        .chain(stderr.take(u64::MAX).map(What::Stderr));
    pieces.extend(rest.map(piece));
    pieces
}

/// What the record has of a stream, `stdout` or `stderr`, behind its first `bytes`.
pub fn rest(record: &Record, name: &str, bytes: u64) -> Option<String> {
    let (text, base64) = match name {
        "stdout" => (&record.stdout, &record.stdout_base64),
        _ => (&record.stderr, &record.stderr_base64),
    };
    let mut stream = Stream::new(record, name, text, base64);
    stream.take(bytes);
    stream.take(u64::MAX)
}

/// The kept bytes of a stream, of which the first were taken.
struct Stream {
    /// Head and tail.
    kept: Vec<u8>,
    head: usize,
    total: u64,
    taken: u64,
}

impl Stream {
    fn new(record: &Record, name: &str, text: &Option<Text>, base64: &Option<Base64>) -> Self {
        let text = text.as_ref().map(ToString::to_string).unwrap_or_default();
        let bytes = base64.as_ref();
        let bytes = bytes.and_then(|base64| BASE64.decode(base64.to_string()).ok());
        let ends = record.truncated.get(name).and_then(|cut| {
            let head = usize::try_from(cut.head?).ok()?;
            let tail = usize::try_from(cut.kept).ok()?.checked_sub(head)?;
            (cut.total >= cut.kept).then_some((head, tail, cut.total))
        });
        let cut = ends.and_then(|(head, tail, total)| {
            let kept = match &bytes {
                Some(bytes) => bytes.clone(),
                // Between the ends, the text has a line that says so.
                None => {
                    let text = text.as_bytes();
                    let from = text.len().checked_sub(tail)?.max(head);
                    [text.get(..head)?, &text[from..]].concat()
                }
            };
            (kept.len() == head + tail).then_some((kept, head, total))
        });
        // The bytes of a record that was made by hand may be others than those of its text.
        let shows = |kept: &[u8], head: usize| {
            let [first, last] = [&kept[..head], &kept[head..]].map(String::from_utf8_lossy);
            text.starts_with(&*first) && text.ends_with(&*last)
        };
        let cut = cut.filter(|(kept, head, _)| shows(kept, *head));
        let (kept, head, total) = cut.unwrap_or_else(|| {
            let same = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes) == text;
            let kept = bytes
                .filter(same)
                .unwrap_or_else(|| text.clone().into_bytes());
            let length = kept.len();
            (kept, length, length as u64)
        });
        Self {
            kept,
            head,
            total,
            taken: 0,
        }
    }

    /// The text of the next bytes.
    fn take(&mut self, count: u64) -> Option<String> {
        let from = self.taken;
        let to = from.saturating_add(count).min(self.total);
        self.taken = to;
        if from == to {
            return None;
        }
        let head = self.head as u64;
        let tail = self.total - (self.kept.len() - self.head) as u64;
        // Both ranges are within the kept bytes, whose number fits.
        let at = |position: u64| position as usize;
        let first = &self.kept[at(from.min(head))..at(to.min(head))];
        let last = |position: u64| self.head + at(position.max(tail) - tail);
        let mut text = String::from_utf8_lossy(first).into_owned();
        if from <= head && head < to && head < tail {
            text += &cut_line(tail - head);
        }
        text += &String::from_utf8_lossy(&self.kept[last(from)..last(to)]);
        (!text.is_empty()).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Truncation;

    fn record(order: &[Shown]) -> Record {
        let item = |text: &str| ResultItem {
            text: Some(text.to_owned()),
            ..ResultItem::default()
        };
        Record {
            stdout: Some("abcdef".to_owned().into()),
            stderr: Some("xyz".to_owned().into()),
            results: vec![item("1"), item("2")],
            order: order.to_vec(),
            ..Record::default()
        }
    }

    /// `o`, `e` and `r` with their texts; in brackets what was cleared.
    fn shown(record: &Record) -> String {
        let pieces = pieces(record).into_iter().map(|piece| {
            let text = match piece.what {
                What::Stdout(text) => format!("o:{text}"),
                What::Stderr(text) => format!("e:{text}"),
                What::Result(index, item) => {
                    format!("r{index}:{}", item.text.clone().unwrap_or_default())
                }
            };
            match piece.is_cleared {
                true => format!("({text})"),
                false => text,
            }
        });
        pieces.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn output_comes_in_its_order() {
        use Shown::{Clear, Result, Stderr, Stdout};
        let stdout = |bytes| Stdout { bytes };
        let result = |index| Result { index };
        assert_eq!(shown(&record(&[])), "o:abcdef r0:1 r1:2 e:xyz");
        let order = [
            stdout(2),
            result(0),
            Stderr { bytes: 3 },
            stdout(4),
            result(1),
        ];
        assert_eq!(shown(&record(&order)), "o:ab r0:1 e:xyz o:cdef r1:2");
        let order = [stdout(2), Clear, result(1), stdout(1)];
        assert_eq!(shown(&record(&order)), "(o:ab) r1:2 o:c o:def r0:1 e:xyz");
        // Made by hand.
        let order = [result(7), result(0), result(0), stdout(u64::MAX), stdout(1)];
        assert_eq!(shown(&record(&order)), "r0:1 o:abcdef r1:2 e:xyz");
    }

    #[test]
    fn what_was_cut_is_said_where_it_was() {
        let stdout = |bytes| Shown::Stdout { bytes };
        let order = [stdout(1), stdout(5), stdout(90), stdout(4)];
        let mut record = record(&order);
        let cut = |head| Truncation {
            total: 100,
            kept: 6,
            part: "head+tail".to_owned(),
            head: Some(head),
        };
        record.stdout = Some(format!("abc{}def", cut_line(94)).into());
        record.results.clear();
        record.stderr = None;
        record.truncated.insert("stdout".to_owned(), cut(3));
        assert_eq!(shown(&record), "o:a o:bc\n[… 94 bytes cut …]\n o:def");
        assert_eq!(
            rest(&record, "stdout", 2).unwrap(),
            "c\n[… 94 bytes cut …]\ndef"
        );
        assert_eq!(rest(&record, "stdout", 50).unwrap(), "def");
        assert_eq!(rest(&record, "stdout", 98).unwrap(), "ef");
        assert_eq!(rest(&record, "stdout", 100), None);
        // A cut that does not fit the text.
        record.truncated.insert("stdout".to_owned(), cut(7000));
        assert!(shown(&record).starts_with("o:a o:bc\n"));
    }
}
