//! In which shape a record is printed, and the command that prints stored ones.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};

use crate::format::{Format, Shape};

/// In which shape a record is printed.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct Shaped {
    /// Print JSON of this shape to standard output: record; tool for streams,
    /// exit code and error facts; e2b for its Execution; mcp for a tool result;
    /// anthropic for a tool_result block; openai for a function_call_output
    /// item [default: record]
    #[arg(
        long, value_name = "SHAPE", help_heading = "Record", hide_possible_values = true,
        value_parser = PossibleValuesParser::new(Shape::ALL.map(Shape::name)).map(shape)
    )]
    pub format: Option<Shape>,
    /// Id of the model's tool call that is answered, for anthropic and openai
    #[arg(
        long, value_name = "ID", help_heading = "Record", requires = "format",
        required_if_eq_any = [("format", "anthropic"), ("format", "openai")]
    )]
    pub tool_call_id: Option<String>,
}

impl Shaped {
    /// The format, if one was named.
    pub(super) fn format(self) -> Option<Format> {
        let call_id = self.tool_call_id.unwrap_or_default();
        self.format.map(|shape| Format { shape, call_id })
    }
}

fn shape(name: String) -> Shape {
    Shape::named(&name).unwrap_or_default()
}

/// Show a record for people, or print it in another shape
#[derive(Args, Debug)]
pub struct Show {
    /// File that holds the record, or - for standard input
    #[arg(value_name = "RECORD")]
    pub record: PathBuf,
    /// Print one page of HTML that needs nothing else: no scripts, no network
    #[arg(long, conflicts_with = "format")]
    pub html: bool,
    #[command(flatten)]
    shaped: Shaped,
}

impl Show {
    /// The format, if one was named.
    pub fn format(&self) -> Option<Format> {
        self.shaped.clone().format()
    }
}

/// What somebody who gave a wrong command line reads from standard output, as
/// far as it can be told.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The format of the record; `None` when it is no JSON.
    pub format: Option<Format>,
    /// Whether it is events.
    pub events: bool,
}

/// Looks for that in the words of a command line.
pub fn wanted(words: &[OsString]) -> Wanted {
    let mut words = words
        .iter()
        .map(|word| word.to_string_lossy())
        .take_while(|word| word != "--");
    let (mut is_json, mut events) = (false, false);
    let mut shaped = Shaped::default();
    while let Some(word) = words.next() {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (&*word, None),
        };
        let mut value = || value.clone().or_else(|| words.next().map(Into::into));
        match name {
            "--json" => is_json = true,
            "--events" => events = value().is_some_and(|value| value == "-"),
            "--format" => shaped.format = value().and_then(|value| Shape::named(&value)),
            "--tool-call-id" => shaped.tool_call_id = value(),
            _ => {}
        }
    }
    let has_id = shaped.tool_call_id.is_some();
    let format = match shaped.format() {
        Some(format) if format.shape.wants_call_id() && !has_id => Some(Format::default()),
        None if is_json => Some(Format::default()),
        format => format,
    };
    Wanted { format, events }
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_wrong_command_line_wants_is_told() {
        let cases = [
            ("run --frob", None),
            ("run --json --frob", Some((Shape::Record, ""))),
            ("run --format frob", None),
            ("run --format record --frob", Some((Shape::Record, ""))),
            ("run --format=tool --frob", Some((Shape::Tool, ""))),
            ("exec --format mcp -- --format tool", Some((Shape::Mcp, ""))),
            ("run --format openai x", Some((Shape::Record, ""))),
            (
                "run --tool-call-id a --format openai --frob",
                Some((Shape::Openai, "a")),
            ),
            ("exec -- --json", None),
        ];
        for (line, expected) in cases {
            let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
            let expected = expected.map(|(shape, call_id)| Format {
                shape,
                call_id: call_id.to_owned(),
            });
            let wanted = wanted(&words);
            assert_eq!((wanted.format, wanted.events), (expected, false), "{line}");
        }
    }

    #[test]
    fn who_reads_events_is_told_by_events() {
        for (line, expected) in [
            ("run --events - --frob", true),
            ("run --frob --events=-", true),
            ("run --events file --frob", false),
            ("run - --frob", false),
            ("exec --frob -- --events -", false),
        ] {
            let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
            let wanted = wanted(&words);
            assert_eq!((wanted.format, wanted.events), (None, expected), "{line}");
        }
    }
}
